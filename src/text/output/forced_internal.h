/* What the writers of forced calls share: forced_gbnf.c has literals and parts, forced_values.c values. */
#ifndef MLXCEL_TEXT_OUTPUT_FORCED_INTERNAL_H
#define MLXCEL_TEXT_OUTPUT_FORCED_INTERNAL_H

#include "text/output/forced_gbnf.h"
#include "text/output/typed.h"

/* A schema that has a rule of its own, so that it may refer to itself. */
struct writer_rule {
    yyjson_val *schema;
    size_t number;
};

struct writer {
    struct arena *a;
    const struct output_format *f;
    const struct tok *tok;
    struct forced_gbnf *out;
    struct writer_rule *rules; /* of values; arena memory */
    size_t n_rules, capacity;
};

void forced_gbnf_literal(struct writer *w, struct str text, struct sb *out);
/* Any text in which `end` does not stand. */
void forced_gbnf_text_without(struct writer *w, struct str end, struct sb *out);
/* Adds a rule "cN"; its number. */
size_t forced_gbnf_rule(struct writer *w, struct str body);
/* Adds a schema, whose name is made; that name. */
struct str forced_gbnf_schema(struct arena *a, struct forced_gbnf *o, struct gram_schema schema);
void forced_gbnf_part(struct writer *w, const struct output_part *p, struct str next, struct sb *out);
/* A part that is a value, or a text without quotes. */
void forced_values_put(struct writer *w, const struct output_part *p, struct str next, struct sb *out);
void forced_values_put_text(struct writer *w, const struct output_part *p, struct sb *out);

#endif
