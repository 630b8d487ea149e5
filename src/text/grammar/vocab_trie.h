/* The vocabulary as tries of its tokens' bytes.
 *
 * Tokens are parted by what they are made of (letters, words with a blank before them, other scripts, printable ASCII, other text).
 * Where a state takes every text of a part, the part's mask is taken as a whole and its trie is not walked: that is what
 * makes the inside of a string cheap. Two parts are always walked: tokens with control characters, which no string takes, and the
 * rest: quotes, backslashes, halves of characters.
 *
 * A trie is an array in the order of a walk: a node's children follow it, `skip` is the node behind its last descendant.
 */
#ifndef MLXCEL_TEXT_GRAMMAR_VOCAB_TRIE_H
#define MLXCEL_TEXT_GRAMMAR_VOCAB_TRIE_H

#include "text/grammar/dfa.h"
#include "text/grammar/grammar.h"

enum { VOCAB_TEXT_PARTS = 8, VOCAB_CONTROL = VOCAB_TEXT_PARTS, VOCAB_REST, VOCAB_PARTS, VOCAB_LENGTHS = 32 };

struct vocab_part {
    uint8_t *bytes;   /* [n] */
    uint16_t *depths; /* [n], from 1 on */
    uint32_t *skips;  /* [n] */
    int32_t *tokens;  /* [n]: the token that ends here; -1: none */
    uint32_t n;
    uint32_t first[256];        /* node of a first byte; n: none */
    uint32_t *bits;             /* mask of the part's tokens */
    uint32_t longest;           /* characters */
    const struct dfa *language; /* NULL for the rest */
};

struct vocab_run {
    int32_t token;
    uint32_t n; /* characters of white space at its beginning */
};

struct gram_vocab {
    struct arena a;
    size_t n_tokens, n_words;
    struct str *bytes; /* [n_tokens]; special tokens and holes are empty */
    int32_t *same;     /* [n_tokens]: another token with the same bytes; -1: none */
    struct vocab_part parts[VOCAB_PARTS];
    uint32_t *text_bits;                  /* all parts of text */
    uint32_t *length_bits[VOCAB_LENGTHS]; /* of those, tokens of at most i characters */
    uint32_t longest_text;                /* characters, over those parts */
    uint32_t longest;                     /* bytes, over all */
    int32_t *quoted;                      /* tokens with three quotes or more */
    int32_t *paired;                      /* with two or more */
    int32_t *escaped;                     /* with a backslash */
    struct vocab_run *spaced;             /* that begin with white space, the most of it first */
    uint32_t n_quoted, n_paired, n_escaped, n_spaced;
};

#endif
