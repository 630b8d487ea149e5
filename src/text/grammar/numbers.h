/* Sets of numbers as automata over their spelling.
 *
 * Numbers are written as JSON has them, without an exponent: -?(0|[1-9][0-9]*)(\.[0-9]+)?. A set holds every such spelling
 * of each of its numbers, 1.50 as well as 1.5, so that sets can be cut, joined and taken off each other. numbers_spell
 * chooses the spellings that a text may have in the end. Arithmetic is exact on decimal digits.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_NUMBERS_H
#define MLXCEL_TEXT_GRAMMAR_NUMBERS_H

#include "text/grammar/dfa.h"

struct decimal { /* sign, and digits without zeros that say nothing: "0" and "" for zero */
    bool is_negative;
    struct str whole, fraction;
};

struct numbers {
    struct dfa_pool *p;
    dfa_id all, integers;
    dfa_id unsigned_all;
    dfa_id at_least_zero;
    dfa_id spell_all, spell_at_least_zero, spell_integers, spell_unique;
};

void numbers_init(struct numbers *n, struct dfa_pool *p);
/* A JSON number; ERR_ELIMIT where it has hundreds of digits. */
int gram_decimal_parse(struct arena *a, struct str text, struct decimal *out, struct err *err);
bool gram_decimal_is_whole(const struct decimal *d);
/* A whole number as such; false: it has a fraction, a minus or does not fit. */
bool gram_decimal_to_size(const struct decimal *d, uint64_t *out);

dfa_id numbers_above(struct numbers *n, const struct decimal *bound, bool inclusive);
dfa_id numbers_below(struct numbers *n, const struct decimal *bound, bool inclusive);
dfa_id numbers_equal(struct numbers *n, const struct decimal *value);
/* Multiples of a number above zero; ERR_ELIMIT where the automaton would be too large. */
int numbers_multiples(struct numbers *n, const struct decimal *of, dfa_id *out, struct err *err);

/* The spellings in a text: whole numbers without a point where the set has no others, exponents where the set leaves all numbers
 * (or all from zero on), one spelling for each number where `is_unique`. */
dfa_id numbers_spell(struct numbers *n, dfa_id set, bool is_unique);

#endif
