/* Sets of code points, as ranges: what a class of a regular expression or a grammar stands for.
 *
 * A set grows by cs_add in any order; cs_finish sorts it and joins what touches. Everything that reads a set (cs_negate,
 * the automaton's builder) wants it finished.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_CHARSET_H
#define MLXCEL_TEXT_GRAMMAR_CHARSET_H

#include "base/str.h"

enum { CS_LAST = 0x10FFFF };

struct cs_range {
    uint32_t lo, hi; /* both inside */
};

struct charset { /* zeroed storage is empty */
    struct cs_range *r;
    size_t n, capacity;
};

void cs_add(struct arena *a, struct charset *s, uint32_t lo, uint32_t hi);
void cs_add_set(struct arena *a, struct charset *s, const struct charset *other);
void cs_finish(struct charset *s);
/* What is not in s; surrogates, which no text holds, are left out. */
void cs_negate(struct arena *a, struct charset *s);
/* Adds the other case of every letter. */
void cs_fold(struct arena *a, struct charset *s);

enum cs_class {
    CS_DIGIT, /* \d: 0-9 */
    CS_WORD,  /* \w: ASCII letters, digits, underscore */
    CS_SPACE, /* \s: white space of ECMAScript */
    CS_UNI_DIGIT,
    CS_UNI_WORD,
    CS_UNI_SPACE,
};
void cs_add_class(struct arena *a, struct charset *s, enum cs_class class_);
/* \p{name}: a general category (L, Lu, Nd ...) or a few long names; false: not known. */
bool cs_add_property(struct arena *a, struct charset *s, struct str name);
/* [:name:]; false: not known. */
bool cs_add_posix(struct arena *a, struct charset *s, struct str name);

#endif
