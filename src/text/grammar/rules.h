/* Rules that call each other: from their expressions to the states and edges of a program. */
#ifndef MLXCEL_TEXT_GRAMMAR_RULES_H
#define MLXCEL_TEXT_GRAMMAR_RULES_H

#include "base/map.h"
#include "text/grammar/program.h"

struct rule {
    struct str name;
    struct expr *body; /* NULL: called and not defined */
};

struct rule_set { /* `a` set, the rest zero: empty */
    struct arena *a;
    struct rule *p;
    uint32_t n, capacity;
    struct map by_name;
};

/* The number of a rule, made when it is first named. */
uint32_t rules_find(struct rule_set *r, struct str name);
/* Fills g's rules, states and edges; refuses undefined names, left recursion, and grammars without a finite text. */
int rules_compile(struct gram *g, const struct rule_set *r, uint32_t root, uint32_t max_states, struct err *err);

#endif
