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

struct vocab_node {
    uint32_t skip;
    int32_t token;  /* that ends here; -1: none */
    uint16_t depth; /* from 1 on */
    uint8_t byte;
};

struct vocab_part {
    struct vocab_node *nodes; /* [n] */
    const int32_t *same;      /* by token: another one that ends at the same node; -1: none */
    uint32_t n;
    uint32_t first[256];        /* node of a first byte; n: none */
    uint32_t *bits;             /* mask of the part's tokens */
    uint32_t longest;           /* characters */
    const struct dfa *language; /* NULL for the rest */
};

struct vocab_length {
    int32_t token;
    uint32_t n; /* characters */
};

/* What may follow inside a string, whatever comes behind it: found once for all places that have the string. */
struct inside {
    const uint32_t *bits; /* tokens that stay inside it or end with its closing quote */
    const int32_t *ends;  /* nodes of VOCAB_REST that close it and have others below */
    uint32_t n_ends;
    uint32_t parts; /* bits of parts that it takes whole */
};

struct gram_vocab {
    struct arena a;
    size_t n_tokens, n_words;
    struct str *bytes; /* [n_tokens]; special tokens and holes are empty */
    struct vocab_part parts[VOCAB_PARTS];
    struct vocab_part indented;           /* tokens that begin with white space and go on, by what they go on with */
    struct vocab_part closing;            /* tokens that close a string of any characters and go on, by what they go on with */
    struct inside any;                    /* such a string */
    uint32_t *text_bits;                  /* all parts of text */
    uint32_t *length_bits[VOCAB_LENGTHS]; /* of those, tokens of at most i characters */
    struct vocab_length *long_texts;      /* of those, tokens of VOCAB_LENGTHS characters or more, the longest first */
    uint32_t n_long;
    uint32_t longest_text; /* characters, over those parts */
    uint32_t longest;      /* bytes, over all */
    int32_t *quoted;       /* tokens with three quotes or more */
    int32_t *paired;       /* with two or more */
    int32_t *escaped;      /* with a backslash */
    int32_t *blank;        /* of white space alone, the longest first */
    uint16_t *n_spaces;    /* [n_tokens]: characters of white space at the beginning */
    uint32_t n_quoted, n_paired, n_escaped, n_blank;
};

/* Finds what a string of any characters takes, into v->any and v->closing. */
int gram_vocab_find_any(struct gram_vocab *v, struct err *err);
/* A trie of v's tokens by some bytes of each; the entries are sorted. */
struct vocab_entry {
    struct str bytes;
    int32_t id;
};
void gram_vocab_sort(struct vocab_entry *e, size_t n);
void gram_vocab_trie(struct gram_vocab *v, struct vocab_part *p, int32_t *same, const struct vocab_entry *e, size_t n);
int32_t *gram_vocab_same(struct gram_vocab *v); /* for one trie: no token has another */

#endif
