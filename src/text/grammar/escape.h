/* Escapes inside JSON strings, byte by byte. A surrogate stands for a character only as half of a pair. */
#ifndef MLXCEL_TEXT_GRAMMAR_ESCAPE_H
#define MLXCEL_TEXT_GRAMMAR_ESCAPE_H

#include "base/str.h"

enum escape_result {
    ESCAPE_BAD,
    ESCAPE_MORE, /* not complete; what it can become is in the ranges */
    ESCAPE_CHAR, /* complete: the character is ranges.lo */
};

struct escape_ranges { /* characters that an escape can still become; empty where lo > hi */
    uint32_t lo, hi;
    uint32_t lo2, hi2; /* those above U+FFFF */
};

/* *escape: 0 outside; a backslash begins one. Any other value is private. */
enum escape_result escape_step(uint32_t *escape, uint8_t byte, struct escape_ranges *out);

#endif
