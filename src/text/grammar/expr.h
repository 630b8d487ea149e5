/* Expressions: the tree that regular expressions and GBNF rules are read into, and the small nondeterministic automaton
 * over bytes that is made of it.
 *
 * Characters become the byte sequences of their UTF-8. A tree may call rules (GBNF) and JSON values (a schema named in a
 * grammar); those become edges that the machine follows with a stack. A regular expression has none and becomes a DFA.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_EXPR_H
#define MLXCEL_TEXT_GRAMMAR_EXPR_H

#include "text/grammar/charset.h"

enum expr_kind {
    EXPR_EMPTY,    /* the empty text */
    EXPR_SET,      /* one character of a set */
    EXPR_TEXT,     /* these bytes */
    EXPR_CAT,      /* one after the other */
    EXPR_ALT,      /* one of them */
    EXPR_REPEAT,   /* min to max times; max EXPR_MANY: no end */
    EXPR_START,    /* the text begins here */
    EXPR_END,      /* the text ends here */
    EXPR_WORD,     /* \b */
    EXPR_NOT_WORD, /* \B */
    EXPR_LOOK,     /* what follows begins like items[0]; `negative`: does not */
    EXPR_CALL,     /* a rule, by its number */
    EXPR_VALUE,    /* a JSON value, by the number of its goal */
};

#define EXPR_MANY UINT32_MAX

struct expr {
    enum expr_kind kind;
    bool negative;
    uint32_t min, max;
    uint32_t number; /* rule or goal */
    struct charset set;
    struct str text;
    struct expr **items;
    size_t n_items;
};

struct expr *expr_new(struct arena *a, enum expr_kind kind);
struct expr *expr_text(struct arena *a, struct str text);
struct expr *expr_repeat(struct arena *a, struct expr *item, uint32_t min, uint32_t max);
/* A list that grows while it is parsed. */
struct expr_list {
    struct expr **p;
    size_t n, capacity;
};
void expr_list_put(struct arena *a, struct expr_list *l, struct expr *e);
/* The list as one expression; one item stays itself. */
struct expr *expr_join(struct arena *a, enum expr_kind kind, const struct expr_list *l);

/* ---- the nondeterministic automaton ------------------------------------------------------------------------------- */

enum nfa_kind { NFA_RANGE, NFA_SPLIT, NFA_ACCEPT, NFA_START, NFA_END, NFA_WORD, NFA_NOT_WORD, NFA_CALL, NFA_VALUE };

struct nfa_state {
    uint8_t kind;
    uint8_t lo, hi;  /* NFA_RANGE: bytes */
    uint32_t out;    /* where it goes; NFA_ACCEPT: none */
    uint32_t out2;   /* NFA_SPLIT: the other way */
    uint32_t number; /* NFA_CALL, NFA_VALUE */
};

struct nfa;
/* Builds an EXPR_LOOK in front of `next`; it may mark the automaton as refused. */
typedef uint32_t nfa_look_fn(struct nfa *n, const struct expr *e, uint32_t next);

struct nfa {
    struct arena *a;
    struct nfa_state *states;
    uint32_t n, capacity, max_states;
    uint32_t n_calls; /* parts of trees built, also those that needed no state */
    uint32_t *slots;  /* hash table of NFA_RANGE states, so that equal tails are shared */
    uint32_t n_slots;
    bool is_over;     /* the tree asks for too much; what was built is useless */
    uint32_t n_loops; /* endless repetitions around what is being built: what follows it is not known yet */
    nfa_look_fn *look;
    void *user; /* look's */
};

void nfa_init(struct nfa *n, struct arena *a, uint32_t max_states);
uint32_t nfa_add(struct nfa *n, struct nfa_state s);
uint32_t nfa_range(struct nfa *n, uint8_t lo, uint8_t hi, uint32_t out);
/* The state at which a match of e begins that goes on at `next`. */
uint32_t nfa_build(struct nfa *n, const struct expr *e, uint32_t next);

#endif
