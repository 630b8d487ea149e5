/* A cache of short words and their ids: one cache line for each, overwritten without ceremony.
 *
 * It belongs to struct tok_work, so the tokenizer stays immutable and threads do not meet. Keys are padded with zeros to
 * 30 bytes, so that comparing is four 64-bit words; `kind` tells whole words from parts of words, which can differ.
 */
#ifndef MLXCEL_TEXT_TOKENIZER_WORD_CACHE_H
#define MLXCEL_TEXT_TOKENIZER_WORD_CACHE_H

#include "text/tokenizer/internal.h"

enum { WORD_BYTES = 30, WORD_IDS = 8, WORD_SLOTS = 1 << 15, WORD_SLOTS_SMALL = 1 << 9 };

union tok_word_key {
    struct {
        unsigned char n;    /* bytes of the word; 0: empty slot */
        unsigned char meta; /* in the slot: ids and kind; in a search: kind */
        char p[WORD_BYTES];
    } s;
    uint64_t w[4];
};

struct tok_word_slot {
    union tok_word_key key;
    int32_t ids[WORD_IDS];
};

/* Word and kind as a key. `room` is how many bytes may be read from p on. */
static inline void tok_word_make(union tok_word_key *k, const char *p, size_t n, size_t room, unsigned kind) {
    k->w[0] = k->w[1] = k->w[2] = k->w[3] = 0;
    if (room >= 32 && n <= 16) { /* two loads and masks in place of a copy of unknown length */
        uint64_t a, b;
        memcpy(&a, p, 8);
        memcpy(&b, p + 8, 8);
        if (n < 8) {
            a &= (UINT64_C(1) << (8 * n)) - 1;
            b = 0;
        } else if (n < 16) {
            b &= (UINT64_C(1) << (8 * (n - 8))) - 1;
        }
        memcpy(k->s.p, &a, 8);
        memcpy(k->s.p + 8, &b, 8);
    } else {
        memcpy(k->s.p, p, n);
    }
    k->s.n = (unsigned char)n;
    k->s.meta = (unsigned char)kind;
}

static inline uint64_t tok_word_hash(const union tok_word_key *k) {
    uint64_t h = k->w[0] * UINT64_C(0x9E3779B97F4A7C15) ^ k->w[1] * UINT64_C(0xC2B2AE3D27D4EB4F);
    h ^= k->w[2] * UINT64_C(0x165667B19E3779F9) ^ k->w[3] * UINT64_C(0xD6E8FEB86659FD93);
    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return h ^ h >> 29;
}

/* meta of a slot: kind in the lowest bit, number of ids above it. */
static inline bool tok_word_equal(const struct tok_word_slot *s, const union tok_word_key *k) {
    uint64_t mask = ~(UINT64_C(0xFE) << 8); /* meta without the number of ids: the second byte of the first word */
    return ((s->key.w[0] ^ k->w[0]) & mask) == 0 && s->key.w[1] == k->w[1] && s->key.w[2] == k->w[2] && s->key.w[3] == k->w[3];
}

#endif
