/* Sets of strings: a union of terms, each an automaton over UTF-8 together with a least and a greatest number of characters.
 *
 * Lengths stand beside the automaton because `maxLength: 5000` would cost thousands of states. The automaton of "any string"
 * is `any`; every set lies within it.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_STRSET_H
#define MLXCEL_TEXT_GRAMMAR_STRSET_H

#include "text/grammar/dfa.h"

#define STR_LONG UINT32_MAX /* no greatest length */

struct strterm {
    dfa_id dfa;
    uint32_t min, max;
};

struct strset { /* no terms: empty */
    struct strterm *terms;
    size_t n;
};

struct strings {
    struct arena *a;
    struct dfa_pool *p;
    dfa_id any;
};

void gram_strings_init(struct strings *s, struct arena *a, struct dfa_pool *p);
struct strset strset_all(struct strings *s);
struct strset strset_of(struct strings *s, dfa_id dfa, uint32_t min, uint32_t max);
struct strset strset_and(struct strings *s, struct strset x, struct strset y);
struct strset strset_or(struct strings *s, struct strset x, struct strset y);
struct strset strset_not(struct strings *s, struct strset x);
bool strset_is_all(const struct strings *s, struct strset x);

/* How many more characters a text of a term may have from each state on. A text whose automaton stands in `state` after
 * `n_chars` characters can be completed exactly when strlen_fits says so. */
struct strlengths {
    uint32_t n_states, n_levels; /* 0 levels: there is no greatest length */
    uint32_t *next;              /* [n_levels * n_states]: the least possible number of characters from the level on; STR_LONG: none */
    uint32_t slack;              /* with levels: from every state an end is at most so many characters away */
    uint32_t *longest;           /* [n_states] without levels: the greatest number of characters; STR_LONG: no end */
};

/* NULL in *out where every length is possible from every state. ERR_ELIMIT where the table would be too large. */
int gram_strlengths_make(struct arena *a, const struct dfa *d, uint32_t min, uint32_t max, struct strlengths **out, struct err *err);
bool gram_strlengths_fits(const struct strlengths *l, uint32_t state, uint32_t min, uint32_t max, uint32_t n_chars);

#endif
