/* Deterministic automata over bytes, and the pool that keeps them.
 *
 * (1) A DFA is complete and minimal: state 0 is the dead one, every other state can still reach an end. An automaton whose
 *     state is not 0 has therefore read the beginning of something it accepts.
 * (2) The pool numbers automata by their language: two ids are equal exactly when the languages (and labels) are. Set
 *     operations are remembered, so that asking twice costs a look-up.
 * (3) Work is counted against the pool's budget. Past it every operation gives DFA_NONE and `is_over` is set; the caller
 *     asks for that once, at the end of what it does.
 * (4) Ends carry a label from 1 on; set operations look at "accepts or not" alone and label everything 1.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_DFA_H
#define MLXCEL_TEXT_GRAMMAR_DFA_H

#include "text/grammar/expr.h"

struct dfa {
    uint8_t classes[256]; /* byte -> column */
    uint32_t n_classes, n_states;
    uint32_t start;
    uint32_t *next;   /* [n_states * n_classes] */
    uint16_t *labels; /* [n_states]; 0: no end */
};

static inline uint32_t dfa_step(const struct dfa *d, uint32_t state, uint8_t byte) {
    return d->next[(size_t)state * d->n_classes + d->classes[byte]];
}

typedef uint32_t dfa_id;
enum { DFA_NONE = 0 }; /* the empty language */

struct dfa_memo;

struct dfa_pool {
    struct arena *a;      /* what is kept */
    struct arena scratch; /* what one operation needs */
    const struct dfa **list;
    uint32_t n, capacity;
    uint32_t *slots; /* hash table of ids + 1, by content */
    uint32_t n_slots;
    struct dfa_memo *memo; /* hash table of operations */
    uint32_t n_memo, n_memo_slots;
    uint64_t work, max_work;
    bool is_over;
};

void dfa_pool_init(struct dfa_pool *p, struct arena *a, uint64_t max_work);
void dfa_pool_free(struct dfa_pool *p);

static inline const struct dfa *dfa_get(const struct dfa_pool *p, dfa_id id) {
    return p->list[id];
}

/* From an automaton with any number of NFA_ACCEPT states, whose `number` is the label. at_start: nothing stands before `start`. */
dfa_id dfa_from_nfa(struct dfa_pool *p, const struct nfa *n, uint32_t start, bool at_start);
/* From a complete table, any order of states, dead and equal states allowed; `d` may be scratch. */
dfa_id dfa_from_table(struct dfa_pool *p, const struct dfa *d);
/* Exactly these texts, in any order. */
dfa_id dfa_from_texts(struct dfa_pool *p, const struct str *texts, size_t n);
dfa_id dfa_from_text(struct dfa_pool *p, struct str text);

dfa_id dfa_and(struct dfa_pool *p, dfa_id x, dfa_id y);
dfa_id dfa_or(struct dfa_pool *p, dfa_id x, dfa_id y);
dfa_id dfa_minus(struct dfa_pool *p, dfa_id x, dfa_id y); /* keeps the labels of x */
/* x with its labels split by membership in y: label 2 * old - 1 outside of y, 2 * old inside. */
dfa_id dfa_split(struct dfa_pool *p, dfa_id x, dfa_id y);
/* New labels for old ones, map[label]; 0 takes the end away. */
dfa_id dfa_relabel(struct dfa_pool *p, dfa_id x, const uint16_t *map);

/* The label of a text; 0: not accepted. */
uint16_t dfa_run(const struct dfa *d, struct str text);
/* How many texts lead from each state to an end, at most UINT32_MAX, which also stands for infinitely many. */
uint32_t *dfa_counts(struct arena *a, const struct dfa *d);
/* All texts of a language with at most `limit` of them, none of them long; false: it is larger. */
bool dfa_words(struct arena *a, const struct dfa *d, size_t limit, struct str **out, size_t *out_n);

#endif
