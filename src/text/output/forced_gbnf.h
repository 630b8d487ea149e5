/* The tree of forced calls as a grammar: GBNF rules, and the schemas that they call by name. */
#ifndef MLXCEL_TEXT_OUTPUT_FORCED_GBNF_H
#define MLXCEL_TEXT_OUTPUT_FORCED_GBNF_H

#include "text/grammar/grammar.h"
#include "text/output/forced.h"

struct forced_gbnf { /* zeroed storage is empty */
    struct sb rules;
    struct gram_schema *schemas;
    size_t n_schemas, capacity;
    size_t n_rules, n_values;
};

/* Adds the rules of a part; the number of its rule, which is called "cN". Markers that are tokens of the vocabulary are asked for as tokens.
 * Memory comes from the arena. */
size_t forced_gbnf_put(struct arena *a, const struct output_part *part, const struct output_format *f, const struct tok *tok,
                       struct forced_gbnf *out);
/* Adds a rule of the name "cN" for a JSON schema. */
size_t forced_gbnf_put_schema(struct arena *a, struct str schema, struct forced_gbnf *out);
/* A literal of GBNF, in quotes. f may be NULL: then nothing in it is a token. */
void forced_gbnf_put_literal(const struct output_format *f, const struct tok *tok, struct str text, struct sb *out);
/* The same letters with GRAM_TOKEN_MARK around markers that are tokens. */
void forced_gbnf_mark(const struct output_format *f, const struct tok *tok, struct str text, struct sb *out);

#endif
