/* Chat templates: a Jinja interpreter for the templates that come with models.
 *
 * A template is hostile input, and so is what it renders. It sees the context and nothing else, runs under the limits
 * below, and its output is a list of spans: text that the template wrote, and text that came from the user. Control
 * tokens may be recognised in template spans only, so that a typed "<|im_end|>" stays text.
 *
 * The dialect is Jinja2 3.1 as transformers configures it: trim_blocks, lstrip_blocks, loop controls, generation blocks,
 * its tojson, raise_exception and strftime_now, and the immutable sandbox. docs/templates.md lists the differences.
 */
#ifndef MLXCEL_TEXT_TEMPLATE_TEMPLATE_H
#define MLXCEL_TEXT_TEMPLATE_TEMPLATE_H

#include "base/json.h"
#include "base/str.h"

struct tmpl; /* a parsed template: immutable, may be rendered by several threads at once */

/* Local wall-clock time, for strftime_now. */
struct tmpl_time {
    int year, month, day; /* month and day count from 1 */
    int hour, minute, second, microsecond;
};

enum { TMPL_SOURCE_BYTES = 1024 * 1024 }; /* a longer template is refused */

/* Of one rendering. Zero in a field means the default. */
struct tmpl_limits {
    size_t steps;        /* evaluated nodes and handled bytes: 1,000,000, 400 more for each value in the context, 1 for each byte of text */
    size_t output_bytes; /* 64 MiB */
    size_t memory_bytes; /* of all values made: 32 MiB, and 16 times the bytes of the context's strings */
    size_t depth;        /* of nested calls and expressions: 400 */
    size_t range;        /* items of one range(): 100,000 */
};

struct tmpl_context {
    yyjson_val *input;   /* object: messages, tools, add_generation_prompt, any further keyword. Its strings are user text */
    yyjson_val *special; /* object or NULL: bos_token and the like. Its strings are template text */
    struct tmpl_time now;
    struct tmpl_limits limits;
    /* What templates expect of their caller is there also where the input has none of it: date_string ("10 Jul 2025") and datetime ("Jul 10
     * 2025") by `now`, functions: the tools as JSON text. */
    bool adds_usual;
};

struct tmpl_span {
    struct str text;
    bool is_user;
};

/* A part of the output that stands inside {% generation %}: bytes [begin, end). */
struct tmpl_range {
    size_t begin, end;
};

struct tmpl_output {
    struct str text;         /* the whole rendering */
    struct tmpl_span *spans; /* its pieces in order; neighbours differ in is_user */
    size_t n_spans;
    struct tmpl_range *generations;
    size_t n_generations;
};

/* The source is copied. Errors carry the line: "chat template line 3: TemplateSyntaxError: ...". */
int tmpl_parse(struct arena *a, struct str source, struct tmpl **out_template, struct err *err);

/* Everything in *out_output lives in the arena. A message given to raise_exception becomes the error's whole text. */
int tmpl_render(const struct tmpl *t, struct arena *a, const struct tmpl_context *ctx, struct tmpl_output *out_output, struct err *err);

/* Reads "2025-07-10", "2025-07-10T12:00:00" or with a fraction; false when it is no such time. */
bool tmpl_time_parse(struct str text, struct tmpl_time *out_time);

#endif
