/* What a model writes, taken apart as it comes: content for the user, reasoning, tool calls.
 *
 * Text goes in, cut anywhere; ordered pieces come out. The result does not depend on the cuts, and nothing comes out that
 * would have to be taken back. How a model writes calls and reasoning is a row of a table (formats.def), recognised from
 * its chat template.
 *
 * (1) A call comes out when it is complete: its name first, then its arguments as one JSON object, then its end. A call
 *     that is cut or malformed comes out as the text that it was. With `as_it_comes` arguments come out while they are
 *     written; then a call that breaks off ends with OUTPUT_CALL_CUT, and its arguments are the beginning of a JSON text.
 * (2) White space around reasoning and around calls belongs to neither; white space elsewhere is kept.
 * (3) Where a tokenizer is given, markers that are tokens of its vocabulary count only as tokens: the same letters written
 *     as ordinary text are text. The caller puts OUTPUT_TOKEN_MARK around the spelling of every such token.
 * (4) Memory and work are bounded: a call of more than OUTPUT_CALL_BYTES, or nested deeper than OUTPUT_DEPTH, is text.
 */
#ifndef MLXCEL_TEXT_OUTPUT_OUTPUT_H
#define MLXCEL_TEXT_OUTPUT_OUTPUT_H

#include "base/json.h"
#include "base/str.h"

enum { OUTPUT_CALL_BYTES = 4 << 20, OUTPUT_DEPTH = 128, OUTPUT_NAME_BYTES = 256 };
/* Stands before and after a token's spelling; no byte of UTF-8. */
#define OUTPUT_TOKEN_MARK "\xFF"

struct tok;

/* ---- formats ---------------------------------------------------------------------------------------------------- */

struct output_format;    /* how calls are written; a row of formats.def */
struct output_reasoning; /* between which markers a model thinks; a row of formats.def */

/* NULL when there is no such name. */
const struct output_format *output_format_find(struct str name);
/* The i-th format, or NULL behind the last one. */
const struct output_format *output_format_at(size_t i);
const char *output_format_name(const struct output_format *f);
/* By what stands in the text of a chat template: NULL when it shows no way to write calls. */
const struct output_format *output_format_recognize(struct str template_text);
/* Likewise; the format's own where the template shows none. format may be NULL. */
const struct output_reasoning *output_reasoning_recognize(struct str template_text, const struct output_format *format);
/* The prompt leaves the model inside its thoughts. NULL: those of <think>. */
bool output_reasoning_is_open(const struct output_reasoning *r, struct str prompt);
/* A text ends inside thoughts that it begins. */
bool output_reasoning_goes_on(const struct output_reasoning *r, struct str text);
/* A whole text that ends thoughts which it did not begin: the prompt began them. */
bool output_reasoning_was_open(const struct output_reasoning *r, struct str text);
/* What begins thoughts. NULL: those of <think>. */
struct str output_reasoning_open(const struct output_reasoning *r);
/* What ends thoughts that have gone on for too long. Both may be NULL. */
struct str output_reasoning_close(const struct output_format *f, const struct output_reasoning *r);
/* A token that belongs to the format's markers: keep it in the text, between marks. */
bool output_uses_token(const struct output_format *f, const struct output_reasoning *r, struct str spelling);

/* ---- tools ------------------------------------------------------------------------------------------------------ */

struct output_tool {
    struct str name;
    yyjson_val *parameters; /* JSON Schema of the arguments, or NULL */
};

struct output_tools {
    const struct output_tool *p;
    size_t n;
};

/* OpenAI's list: {"type": "function", "function": {"name", "parameters"}}, or the inner objects alone. NULL: no tools. */
int output_tools_read(struct arena *a, yyjson_val *list, struct output_tools *out, struct err *err);

/* ---- pieces ----------------------------------------------------------------------------------------------------- */

enum output_kind {
    OUTPUT_CONTENT,
    OUTPUT_REASONING,
    OUTPUT_CALL,      /* a call begins: the text is the tool's name */
    OUTPUT_ARGUMENTS, /* the next part of the call's arguments; all parts together are one JSON object */
    OUTPUT_CALL_END,
    OUTPUT_CALL_CUT, /* as_it_comes only: the call broke off, its arguments are incomplete */
};

struct output_piece {
    enum output_kind kind;
    int32_t call;      /* counts calls from 0; -1 where there is none */
    size_t id_begin;   /* OUTPUT_CALL: the id is [id_begin, begin); empty where the format carries none */
    size_t begin, end; /* bytes of output_pieces.text */
};

struct output_pieces { /* zeroed storage is empty */
    struct output_piece *p;
    size_t n, capacity;
    struct sb text;
};

static inline struct str output_piece_text(const struct output_pieces *o, const struct output_piece *p) {
    return str_sub(sb_str(&o->text), p->begin, p->end - p->begin);
}
static inline struct str output_piece_id(const struct output_pieces *o, const struct output_piece *p) {
    return str_sub(sb_str(&o->text), p->id_begin, p->begin - p->id_begin);
}
/* More text of a kind that belongs to no call. */
void output_pieces_add(struct output_pieces *o, enum output_kind kind, struct str text);
/* All pieces of `more` behind those of o. */
void output_pieces_append(struct output_pieces *o, const struct output_pieces *more);
void output_pieces_clear(struct output_pieces *o);
void output_pieces_free(struct output_pieces *o);

/* ---- the splitter ----------------------------------------------------------------------------------------------- */

struct output_options {
    const struct output_format *format;       /* NULL: the model has no way to write calls */
    const struct output_reasoning *reasoning; /* NULL: the format's */
    struct output_tools tools;                /* empty: any name is taken, types are guessed */
    bool takes_calls;                         /* without it, what looks like a call is content */
    bool as_it_comes;                         /* (1) */
    bool is_open;                             /* the prompt leaves the model inside its thoughts */
    bool continues;        /* the prompt ends inside a message, of content or of thoughts, and the text is the rest of it */
    const struct tok *tok; /* (3); NULL: markers are known by their letters */
};

struct output {
    struct splitter *s; /* in the arena of output_init, with buffers on the heap */
};

/* Format, tools and tokenizer must outlive it. */
void output_init(struct output *o, struct arena *a, const struct output_options *options);
void output_free(struct output *o); /* a zeroed one is fine */
/* Appends to *out what has become certain. */
void output_push(struct output *o, struct str text, struct output_pieces *out);
/* The text is at its end; is_cut: because of a limit on its length. */
void output_flush(struct output *o, bool is_cut, struct output_pieces *out);
/* Inside thoughts now: what comes next is reasoning unless it ends them. */
bool output_is_reasoning(const struct output *o);
/* What comes next is content, unless it begins something else. */
bool output_is_content(const struct output *o);
/* An id for a call whose format carries none, in the form that the format's template takes back. random: 64 bits that no
 * other call has. */
struct str output_make_id(struct arena *a, const struct output_format *f, struct str name, int32_t call, uint64_t random);

#endif
