/* The splitter's inside: what splitter.c (text, reasoning, messages) and call.c (calls) share.
 *
 * Bytes are taken one by one, and every decision depends on the bytes so far alone: that is why cuts do not matter.
 */
#ifndef MLXCEL_TEXT_OUTPUT_SPLITTER_H
#define MLXCEL_TEXT_OUTPUT_SPLITTER_H

#include "text/output/elements.h"
#include "text/output/shape.h"
#include "text/output/value_reader.h"

enum { SPLITTER_MARKERS = 32, SPLITTER_SPACE = 4096, SPLITTER_HEADER = 256 };

enum marker_action {
    MARK_THINK,      /* reasoning begins */
    MARK_END_THINK,  /* and ends */
    MARK_CALL,       /* calls begin; the step behind the marker is `next` */
    MARK_FRAME,      /* another message begins with its header */
    MARK_END_FRAME,  /* the message ends */
    MARK_SILENT,     /* belongs to nothing */
    MARK_ANSWER,     /* the answer begins */
    MARK_END_ANSWER, /* and ends */
    MARK_STOP        /* nothing more comes */
};

enum marker_place {
    IN_CONTENT = 1,
    IN_REASONING = 2,
    BEFORE_THINK = 4,  /* at the beginning of the message, before any reasoning */
    BEFORE_ANSWER = 8, /* before any content */
    IN_ANSWER = 16
};

struct marker {
    struct literal literal;
    enum marker_action action;
    unsigned places;
    int next;
};

/* One call as it is read. Buffers keep their memory from call to call. */
struct call {
    enum { CALL_CHOOSING, CALL_HOLE, CALL_OVER } mode;
    int at; /* step of the shape */
    struct shape_choice choice;
    unsigned alive;   /* literals of the choice that still match */
    size_t n_matched; /* bytes of them; or of the literal that ends a hole */
    int best;         /* a literal that is complete while a longer one may come; -1: none */
    size_t n_best;
    struct sb name, id, key, attr, text;
    struct sb args;    /* JSON */
    struct sb json;    /* %c and %o, whole */
    bool has_name;     /* name is known */
    bool is_group;     /* args is written member by member */
    size_t n_members;  /* of it */
    unsigned types;    /* of the value that is being read */
    bool is_first;     /* no byte of the value yet */
    bool has_newline;  /* a line break that may be the value's last byte is held back */
    size_t args_begin; /* in json; 0: not yet */
    size_t args_end;   /* 0: not yet */
    bool ate_frame;    /* code ended with the beginning of the next message */
    bool is_begun;     /* as_it_comes: has been announced */
    size_t n_sent;     /* of the arguments */
    struct value_reader value;
    struct elements elements;
};

enum splitter_state { IN_TEXT, IN_THOUGHTS, IN_HEADER, IN_CALL, AT_STOP };

struct splitter {
    struct output_options options;
    const struct output_format *format;
    struct arena *arena;
    struct shape shape;
    struct marker markers[SPLITTER_MARKERS];
    int n_markers;
    bool begins_marker[256];
    struct literal quote, element, frame_begin, think_close;
    enum splitter_state state;
    bool is_token;      /* inside the spelling of a token */
    bool holds_space;   /* white space waits: it may turn out to stand before a call */
    bool drops_space;   /* white space here belongs to nothing */
    bool is_start;      /* no content yet */
    bool has_thought;   /* reasoning has begun, here or in the prompt */
    bool has_reasoning; /* some has come out */
    bool is_answer;     /* inside answer tags */
    bool is_after_call; /* nothing but white space since */
    bool needs_gap;     /* the next content is another message's */
    bool tried_whole;   /* the message is not calls alone */
    bool is_tentative;  /* what is read as calls is right only if the text ends with it: calls are in `held` until then */
    bool was_thinking;  /* it began inside reasoning, and is reasoning if it is not right */
    size_t n_close;     /* bytes at its end that seem to end the reasoning */
    struct sb tail;     /* bytes of a character that is not complete */
    struct sb hold;     /* what may be the beginning of a marker */
    struct sb space;
    struct sb raw; /* the text of the call, or of the header */
    size_t n_header;
    struct call call;
    int32_t n_calls;
    struct output_pieces held;
    struct output_pieces *out;
};

/* splitter.c */
void output_pieces_put(struct output_pieces *out, enum output_kind kind, int32_t call, struct str text);
void splitter_after_call(struct splitter *s);

/* call.c */
enum call_feed {
    CALL_TAKEN,
    CALL_ENDED, /* taken, and the section ends with it */
    CALL_LEFT   /* not taken: the section ended before it, or this is no call */
};
/* Begins to read at a step of the shape; name is that of the header, or empty. */
void call_begin(struct splitter *s, int at, struct str name);
/* The byte stands at the end of s->raw already. */
enum call_feed call_feed(struct splitter *s, char c);
/* Bytes at the end of s->raw that seem to begin a literal of the shape. */
size_t call_n_partial(const struct splitter *s);
/* The text is at its end: true when everything that was read is complete. */
bool call_finish(struct splitter *s, bool is_cut);
/* as_it_comes: what is certain of the arguments. */
void call_send(struct splitter *s);
/* as_it_comes: true when the call had been announced; its end is sent. */
bool call_break(struct splitter *s);
void call_free(struct call *c);
/* The call that has been read comes out; false when it is none. */
bool call_commit(struct splitter *s);
bool call_set_name(struct splitter *s, struct str name);
/* What the tool's schema says about its arguments. */
struct typed call_arguments_type(const struct splitter *s);
bool call_is_name_char(char c);

/* call_take.c; false: this is no call */
bool call_take_member(struct splitter *s);                  /* of %c, which has just ended */
bool call_take_arguments(struct splitter *s);               /* when %c ends */
bool call_take_answer(struct splitter *s, struct str json); /* %o; commits what it finds */
bool call_take_code(struct splitter *s);                    /* %y */
bool output_is_arguments_key(struct str key);
bool output_is_code_tool(struct str name);

#endif
