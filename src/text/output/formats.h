/* The rows of formats.def: how calls and reasoning are written. Data for the splitter and for grammars.
 *
 * Shapes are strings with holes. White space in a shape may be any white space in a text, or none; written, it stands as it
 * is. White space is allowed before every part of a call but a value.
 *
 *   %n name                        %N "functions.NAME:INDEX", which is also the id
 *   %i id                          %x a number that nobody needs
 *   %a the arguments as JSON       %c {"name": ..., "arguments": ...} as JSON
 *   %p name(key=value, ...)        %g {key:value, ...} with strings between `quote`
 *   %y code up to the end          %o {"tool_calls": [...]} or {"response": ...} as JSON
 *   %e elements, as in XML, each tag behind `element`
 *   %( %) parameters, each once:   %k key, %v value, %V value with a line break at both ends,
 *                                  %s "true" for a string, %t type of the value
 *   %[ %] may be missing           %{ %} may be there; is not written
 *   %_ nothing: two parts, between which white space may stand
 */
#ifndef MLXCEL_TEXT_OUTPUT_FORMATS_H
#define MLXCEL_TEXT_OUTPUT_FORMATS_H

#include "text/output/output.h"

enum { FORMAT_OPENS = 3, FORMAT_CALLS = 2, FORMAT_SILENT = 8, FORMAT_HINTS = 3 };

enum format_flags {
    FORMAT_WHOLE = 1,       /* the whole message is calls, without a marker */
    FORMAT_BARE_CALL = 2,   /* a call may stand without `open` */
    FORMAT_KEY_NAME = 4,    /* %c is {NAME: arguments} */
    FORMAT_CDATA = 8,       /* a value may stand in <![CDATA[ ]]> */
    FORMAT_ID_FIRST = 16,   /* in %c, written before the name */
    FORMAT_OWN_SECTION = 32 /* every call is written with `open` and `close` of its own */
};

enum format_ids { IDS_PLAIN, IDS_NINE, IDS_FUNCTIONS };

struct output_reasoning {
    const char *name;
    const char *open, *close;
    bool anywhere;    /* not at the beginning of a message alone */
    bool ends_others; /* `close` also stands behind what is no reasoning */
};

/* Messages with a header, which says for whom the message is and on which channel. */
struct output_frame {
    const char *begin;    /* a further message; its header follows */
    const char *message;  /* ends the header */
    const char *marks[2]; /* may stand in the header; [0] is before the channel's name */
    const char *ends[3];  /* end the message */
    const char *thoughts; /* channel or recipient of reasoning */
    const char *everyone; /* recipient of content; not NULL: the header is the recipient's name alone */
};

struct output_format {
    const char *name;
    const char *hints[FORMAT_HINTS]; /* a template that has all of them is written for this format; none: no template is */
    const char *or_hint;             /* does for all hints but the first */
    const char *opens[FORMAT_OPENS]; /* before the first call */
    const char *calls[FORMAT_CALLS]; /* a call is one of them; the first is written */
    const char *between, *close;     /* between two calls; behind the last */
    const char *keys[2];             /* in %c, as written; NULL: name, arguments. All that are usual are read */
    const char *id_key;              /* in %c, as written; NULL: none */
    const char *quote;               /* of %g */
    const char *element;             /* of %e */
    const char *silent[FORMAT_SILENT];
    const char *answer[2]; /* around an answer that has no call */
    const char *stop;      /* everything from here on is not the model's to say */
    const char *no_call;   /* the tool that stands for calling none */
    const struct output_frame *frame;
    const struct output_reasoning *reasoning;
    unsigned flags;
    enum format_ids ids;
};

/* The rows of reasoning and of formats, each list with a zeroed row at its end. */
extern const struct output_reasoning output_reasonings[];
extern const struct output_format output_formats[];

#endif
