/* The text that calls must have, for a grammar that holds a model to it: a tree of literals with holes for values.
 *
 * With tool_choice "required" or a named tool the grammar begins at the root, behind any reasoning. With "auto" it begins
 * when the model has written the trigger, which the root begins with. A grammar that ends may be followed by the end of the
 * turn only, or by free text, as the caller likes.
 */
#ifndef MLXCEL_TEXT_OUTPUT_FORCED_H
#define MLXCEL_TEXT_OUTPUT_FORCED_H

#include "text/output/output.h"

enum output_part_kind {
    OUTPUT_PART_LITERAL,  /* `text` */
    OUTPUT_PART_VALUE,    /* a value that the schema allows, written in `syntax` */
    OUTPUT_PART_TEXT,     /* the string that the schema allows as it stands, without quotes: it does not hold `text`, which follows */
    OUTPUT_PART_PATTERN,  /* what the regular expression `text` takes */
    OUTPUT_PART_SEQUENCE, /* all parts, each once, with `text` between two; those that are optional may be missing */
    OUTPUT_PART_CHOICE,   /* one of the parts */
    OUTPUT_PART_REPEAT    /* the one part, once or more often, with `text` between two */
};

enum output_syntax {
    OUTPUT_SYNTAX_JSON,
    OUTPUT_SYNTAX_PYTHON,  /* True, False, None; else JSON is right */
    OUTPUT_SYNTAX_QUOTED,  /* keys bare, strings as they stand between two `text`; else JSON without white space */
    OUTPUT_SYNTAX_ELEMENTS /* lists as <item>, objects as <key>, strings as they stand; each tag behind `text` */
};

struct output_part {
    enum output_part_kind kind;
    bool is_optional;
    struct str text;
    enum output_syntax syntax;
    yyjson_val *schema; /* NULL: anything */
    yyjson_val *root;   /* whose definitions the schema may refer to */
    const struct output_part *parts;
    size_t n;
};

struct output_forced {
    struct str trigger; /* empty: nothing marks a call, so the grammar can only begin with the answer */
    struct output_part root;
};

/* Calls of these tools: one, or with is_parallel one or more where the format can write several. False where nobody can say
 * how the format's calls are written. */
bool output_force(struct arena *a, const struct output_format *f, struct output_tools tools, bool is_parallel, struct output_forced *out);

#endif
