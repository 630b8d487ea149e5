/* The front ends, each of which fills a program. */
#ifndef MLXCEL_TEXT_GRAMMAR_FRONT_H
#define MLXCEL_TEXT_GRAMMAR_FRONT_H

#include "text/grammar/program.h"

/* Adds the goals of a schema; *out_goal is the root's. */
int gram_schema_compile(struct gram *g, struct str text, struct sb *warnings, uint32_t *out_goal, struct err *err);
/* A goal for the strings of a schema as they stand, less those that hold `without` and the empty one; *may_be_empty: the schema allows that.
 * PROG_NONE: there are no others. */
int gram_bare_compile(struct gram *g, const struct gram_schema *schema, struct sb *warnings, uint32_t *out_goal, bool *may_be_empty,
                      struct err *err);
int gbnf_compile(struct gram *g, const struct gram_source *source, struct sb *warnings, struct err *err);

#endif
