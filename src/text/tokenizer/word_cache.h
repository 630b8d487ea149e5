/* A cache of words and their ids, overwritten without ceremony.
 *
 * It belongs to struct tok_work, so the tokenizer stays immutable and threads do not meet. Two sizes of slot: most words
 * fit into 32 bytes (14 of text, 4 ids), so that two of them share a line of the processor's cache; longer ones take 64.
 * Keys are padded with zeros and compared as 64-bit words; `kind` tells whole words from parts of words, which can have
 * different ids.
 */
#ifndef MLXCEL_TEXT_TOKENIZER_WORD_CACHE_H
#define MLXCEL_TEXT_TOKENIZER_WORD_CACHE_H

#include "text/tokenizer/internal.h"

enum {
    SMALL_BYTES = 14,
    SMALL_IDS = 4,
    BIG_BYTES = 30,
    BIG_IDS = 8,
    SMALL_BITS = 16, /* of the number of slots, in working memory that is kept */
    BIG_BITS = 13,
    BRIEF_BITS = 8, /* both, in working memory for one call */
};

/* The last word of a key holds six bytes of text, then the length, then the kind (lowest bit) and the number of ids. */
enum { KEY_LENGTH_SHIFT = 48, KEY_META_SHIFT = 56 };
#define KEY_MASK (UINT64_MAX >> 7) /* without the number of ids */

struct tok_small_slot {
    uint64_t w[2];
    int32_t ids[SMALL_IDS];
};

struct tok_big_slot {
    uint64_t w[4];
    int32_t ids[BIG_IDS];
};

/* Up to eight bytes at p as a number; `room` is how many may be read from p on. */
static inline uint64_t tok_word_load(const char *p, size_t n, size_t room) {
    uint64_t v = 0;
    if (room >= 8) {
        memcpy(&v, p, 8);
        return n >= 8 ? v : v & ((UINT64_C(1) << (8 * n)) - 1);
    }
    for (size_t i = 0; i < n && i < 8; i++) v |= (uint64_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static inline uint64_t tok_word_tail(uint64_t text, size_t n, unsigned kind) {
    return text | (uint64_t)n << KEY_LENGTH_SHIFT | (uint64_t)kind << KEY_META_SHIFT;
}

static inline uint64_t tok_word_mix(uint64_t h) {
    h ^= h >> 32;
    h *= UINT64_C(0xD6E8FEB86659FD93);
    return h;
}

static inline void tok_small_key(uint64_t w[2], const char *p, size_t n, size_t room, unsigned kind) {
    w[0] = tok_word_load(p, n, room);
    w[1] = tok_word_tail(n > 8 ? tok_word_load(p + 8, n - 8, room - 8) : 0, n, kind);
}

static inline struct tok_small_slot *tok_small_slot(const struct tok_word_cache *c, const uint64_t w[2]) {
    uint64_t h = tok_word_mix(w[0] * UINT64_C(0x9E3779B97F4A7C15) ^ w[1] * UINT64_C(0xC2B2AE3D27D4EB4F));
    return &c->small[h >> (64 - c->small_bits)];
}

static inline void tok_big_key(uint64_t w[4], const char *p, size_t n, size_t room, unsigned kind) {
    for (size_t i = 0; i < 3; i++) w[i] = n > 8 * i ? tok_word_load(p + 8 * i, n - 8 * i, room - 8 * i) : 0;
    w[3] = tok_word_tail(n > 24 ? tok_word_load(p + 24, n - 24, room - 24) : 0, n, kind);
}

static inline struct tok_big_slot *tok_big_slot(const struct tok_word_cache *c, const uint64_t w[4]) {
    uint64_t h = w[0] * UINT64_C(0x9E3779B97F4A7C15) ^ w[1] * UINT64_C(0xC2B2AE3D27D4EB4F) ^ w[2] * UINT64_C(0x165667B19E3779F9) ^
                 w[3] * UINT64_C(0xD6E8FEB86659FD93);
    return &c->big[tok_word_mix(h) >> (64 - c->big_bits)];
}

#endif
