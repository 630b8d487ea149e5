/* Looking into grammars: whether a text obeys one, and what its masks are. For the command `grammar`. */
#ifndef MLXCEL_TOOLS_GRAMMAR_H
#define MLXCEL_TOOLS_GRAMMAR_H

#include "text/grammar/grammar.h"

struct grammar_tool {
    struct gram_options options;
    struct tok *tok; /* NULL: no masks */
    struct gram_vocab *vocab;
};

/* model: as text_tokenizer_open takes it; with_masks false: none is opened. */
int grammar_tool_open(const char *model, bool with_masks, struct grammar_tool *out, struct err *err);
void grammar_tool_close(struct grammar_tool *t);

struct grammar_verdict {
    bool is_accepted;
    size_t at; /* the byte that is not allowed, or the text's length where the text must go on */
    bool must_go_on;
    uint32_t allowed[8]; /* rejected: the bytes that may come there, as bits */
};

/* Judges the text. Appends what is said of it: lines, or with as_json one line of JSON; where there is a tokenizer also, for each of the
 * text's tokens, how many were allowed before it and the time of that mask. */
void grammar_tool_judge(const struct grammar_tool *t, const struct gram *g, struct str text, bool as_json, struct grammar_verdict *out,
                        struct sb *report);
/* A grammar that cannot be held, as a line of JSON. */
void grammar_tool_refused(const struct err *err, struct sb *report);
/* A line of {"schema" | "gbnf" | "regex" | "json_object", "texts"}: appends a line of JSON, {"refused"} or {"results"}. */
void grammar_tool_line(const struct grammar_tool *t, struct str line, struct sb *out);

#endif
