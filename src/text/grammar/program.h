/* A compiled grammar: what the front ends make and the machine runs. Immutable once made; any number of machines may read it.
 *
 * (1) A goal is a set of JSON values, as alternatives by kind: scalars without quotes (one automaton over their spelling), strings,
 *     objects, arrays. Members and items lead to goals again, so that recursion is a number.
 * (2) Alternatives may overlap: the machine follows all of them at once. Every alternative that is left in a program can be
 *     completed; what cannot was taken out when the program was made.
 * (3) A rule is a little automaton over bytes whose edges may also call rules (GBNF) or goals.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_PROGRAM_H
#define MLXCEL_TEXT_GRAMMAR_PROGRAM_H

#include "text/grammar/dfa.h"
#include "text/grammar/grammar.h"
#include "text/grammar/strset.h"

#define PROG_NONE UINT32_MAX
#define PROG_MANY UINT32_MAX

struct prog_string {
    uint32_t dfa;
    uint32_t min, max;                /* characters; max STR_LONG: no end */
    const struct strlengths *lengths; /* NULL: every length can be reached */
};

struct prog_goal {
    uint32_t raw; /* automaton of null, booleans and numbers; DFA_NONE: none */
    uint32_t *strings, *objects, *arrays;
    uint32_t n_strings, n_objects, n_arrays;
    uint32_t n_values; /* how many there are; PROG_MANY: no end, or not counted */
    bool is_possible;
};

/* A goal for a member or item, and which of the container's needs (bits) it meets. */
struct prog_choice {
    uint32_t goal;
    uint32_t meets;
};
struct prog_choices {
    struct prog_choice *p;
    uint32_t n;
};

struct prog_key {
    struct str name;
    uint32_t order; /* place in the schema's order */
    bool is_required;
    bool is_possible; /* some choice is */
    struct prog_choices choices;
};

struct prog_trie_node {      /* of the names, sorted; node 0 is the root */
    uint32_t child, sibling; /* 0: none */
    uint32_t first, end;     /* keys below it */
    uint32_t key;            /* that ends here; PROG_NONE: none */
    uint32_t depth;
    uint8_t byte;
};

struct prog_object {
    struct prog_key *keys; /* sorted by name */
    uint32_t n_keys;
    uint32_t *by_order; /* [n_keys]: key at each place */
    struct prog_trie_node *trie;
    uint32_t extras;               /* automaton of names that no key has, labels = class + 1; DFA_NONE: none is allowed */
    const uint64_t *extra_classes; /* per state: classes that can still be reached */
    struct prog_choices *classes;
    uint32_t n_classes;
    uint32_t n_extras;  /* how many such names there are */
    uint32_t min, max;  /* members */
    uint32_t needs;     /* bits that choices must meet */
    bool tracks_extras; /* two equal names would be counted twice */
    bool is_blocked;    /* a required key is impossible */
    /* From each place of the order on, [n_keys + 1]: */
    uint32_t *next_required; /* place of the next required key; n_keys: none */
    uint32_t *n_required, *n_possible;
};

struct prog_array {
    struct prog_choices *prefix;
    uint32_t n_prefix;
    struct prog_choices rest;
    uint32_t min, max;
    uint32_t n_needs; /* contains: choices meet bit i */
    uint32_t need_min[4], need_max[4];
    bool is_unique;
};

enum prog_edge_kind { EDGE_RANGE, EDGE_CALL, EDGE_GOAL };

struct prog_edge {
    uint8_t kind, lo, hi;
    uint32_t number; /* rule or goal */
    uint32_t to;
};

struct prog_state {
    uint32_t first, n; /* edges */
    bool is_end;       /* the rule may end here */
    bool has_range;
};

struct prog_rule {
    uint32_t start;
    bool is_nullable;
};

enum prog_root { ROOT_GOAL, ROOT_REGEX, ROOT_RULE }; /* ROOT_REGEX: a goal whose scalar is the expression */

struct gram {
    struct arena a;
    struct dfa_pool pool;
    struct gram_options options;
    uint32_t any_string; /* automaton of all strings */
    enum prog_root root_kind;
    uint32_t root;
    const uint32_t **counts; /* by automaton: texts that each state still leads to, PROG_MANY: no end; NULL where nobody asks */
    struct prog_string *strings;
    struct prog_goal *goals;
    struct prog_object *objects;
    struct prog_array *arrays;
    struct prog_rule *rules;
    struct prog_state *states;
    struct prog_edge *edges;
    uint32_t n_strings, n_goals, n_objects, n_arrays, n_rules, n_states, n_edges;
    uint32_t strings_capacity, goals_capacity, objects_capacity, arrays_capacity;
};

static inline const struct dfa *prog_dfa(const struct gram *g, uint32_t id) {
    return g->pool.list[id];
}

/* ---- how far an object or array is --------------------------------------------------------------------------------------- */

struct object_progress { /* without holes: hashed as such */
    uint32_t shape;
    uint32_t place; /* order kept: the next place; PROG_NONE once extras have begun */
    uint32_t seen;  /* any order: the set of keys seen, by the machine's number */
    uint32_t n_members;
    uint32_t pending;    /* needs */
    uint32_t extras;     /* names of extras seen, by the machine's number, where they are tracked */
    uint32_t n_required; /* keys still to come */
    uint32_t n_possible; /* keys that may still come, required ones among them */
    uint32_t n_extras;
};

struct array_progress {
    uint32_t shape;
    uint32_t index; /* items so far, as far as it matters */
    uint32_t met[4];
    uint32_t items; /* texts of items seen, by the machine's number, where they must differ */
};

/* The progress of a container that has just been opened. */
struct object_progress gram_object_begin(const struct gram *g, uint32_t shape);
struct array_progress gram_array_begin(uint32_t shape);
/* It may end now. */
bool gram_object_may_end(const struct gram *g, const struct object_progress *p);
bool gram_array_may_end(const struct gram *g, const struct array_progress *p);
/* It can still be completed. `seen` are bits of keys that had their turn where any order is allowed; else NULL. */
bool gram_object_fits(const struct gram *g, const struct object_progress *p, const uint32_t *seen);
bool gram_array_fits(const struct gram *g, const struct array_progress *p);
/* The progress after a key, an extra name or an item, by a choice that meets these needs. The caller keeps `seen`, `extras` and `items`. */
struct object_progress gram_object_after_key(const struct gram *g, const struct object_progress *p, const struct prog_key *k,
                                             uint32_t meets);
struct object_progress gram_object_after_extra(const struct gram *g, const struct object_progress *p, uint32_t meets);
struct array_progress gram_array_after_item(const struct gram *g, const struct array_progress *p, uint32_t meets);
const struct prog_choices *gram_array_choices(const struct gram *g, const struct array_progress *p);
/* A key may come now, whatever is chosen for it. */
bool gram_object_takes_key(const struct gram *g, const struct object_progress *p, const uint32_t *seen, const struct prog_key *k);
bool gram_object_takes_extra(const struct gram *g, const struct object_progress *p, const uint32_t *seen, uint32_t class_);

/* Counts what the goals' is_possible says; to be called again when goals have changed. */
void gram_object_refresh(const struct gram *g, struct prog_object *o);

#endif
