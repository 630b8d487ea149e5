/* Tables over token strings: a hash from bytes to id, a pool that keeps the bytes, and a byte trie. */
#ifndef MLXCEL_TEXT_TOKENIZER_VOCAB_H
#define MLXCEL_TEXT_TOKENIZER_VOCAB_H

#include "base/hash.h"
#include "base/str.h"

/* A hash of short strings that never reads beyond them. */
static inline uint64_t tok_hash(const char *p, size_t n, uint64_t seed) {
    uint64_t h = seed ^ n * UINT64_C(0x9E3779B97F4A7C15), word = 0;
    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * UINT64_C(0xBF58476D1CE4E5B9);
        h ^= h >> 29;
    }
    if (n >= 4) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        word = low | (uint64_t)high << 32;
    } else if (n > 0) {
        word = (uint64_t)(unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 | (uint64_t)(unsigned char)p[n - 1] << 16;
    } else {
        word = 0;
    }
    h = (h ^ word) * UINT64_C(0x94D049BB133111EB);
    return h ^ h >> 32;
}

struct tok_slot {
    uint32_t tag;   /* upper half of the hash */
    uint32_t index; /* position in keys + 1; 0 = empty */
};

/* From string to the index at which it was put. Immutable once filled. */
struct tok_table {
    struct tok_slot *slots;
    size_t mask;
    uint64_t seed;          /* of the hashes */
    const struct str *keys; /* [index], owned by the caller */
};

int tok_table_init(struct arena *a, struct tok_table *t, const struct str *keys, size_t n_keys, struct err *err);
/* Puts keys[index]; returns false when an equal key is already there. */
bool tok_table_put(struct tok_table *t, uint32_t index);

/* Many strings at once: the places of a block are looked at before any of them is compared, so that the processor waits
 * for memory once instead of each time. out[i] is -1 where keys[i] is absent. */
enum { TOK_BLOCK = 32 };
void tok_table_find_block(const struct tok_table *t, const struct str *keys, size_t n, int32_t *out);
/* Puts keys[first] to keys[first + n - 1], n <= TOK_BLOCK, empty strings too; the index of the first key that is there
 * already, or UINT32_MAX. */
uint32_t tok_table_put_block(struct tok_table *t, const uint32_t *indices, size_t n);
/* -1 when absent. */
static inline int32_t tok_table_find(const struct tok_table *t, const char *p, size_t n) {
    if (!t->slots) return -1;
    uint64_t h = tok_hash(p, n, t->seed);
    uint32_t tag = (uint32_t)(h >> 32);
    for (size_t i = h & t->mask;; i = (i + 1) & t->mask) {
        struct tok_slot s = t->slots[i];
        if (s.index == 0) return -1;
        if (s.tag == tag) {
            struct str k = t->keys[s.index - 1];
            if (k.n == n && memcmp(k.p, p, n) == 0) return (int32_t)(s.index - 1);
        }
    }
}

/* A byte trie over a sorted list; immutable. */
enum { TOK_MAX_NODES = 1 << 24 }; /* 17 bytes each; the largest known vocabularies have some millions */
struct tok_trie_node {
    uint32_t edge; /* first of its edges */
    uint32_t n_edges;
    int32_t value; /* of the string that ends here; -1: none */
};

struct tok_trie {
    struct tok_trie_node *nodes;
    unsigned char *labels; /* [edge] */
    uint32_t *targets;     /* [edge] */
    uint32_t root[256];    /* child of the root by byte; 0 = none */
    bool empty;
};

struct tok_trie_item {
    struct str key;
    int32_t value;
};

/* Sorts items. Of equal keys the last in the list stays. */
int tok_trie_build(struct arena *a, struct tok_trie *t, struct tok_trie_item *items, size_t n, struct err *err);

static inline uint32_t tok_trie_step(const struct tok_trie *t, uint32_t node, unsigned char byte) {
    if (node == 0) return t->root[byte];
    const struct tok_trie_node *at = &t->nodes[node];
    size_t low = at->edge, high = low + at->n_edges, end = high;
    while (high - low > 8) {
        size_t mid = (low + high) / 2;
        if (t->labels[mid] <= byte) low = mid;
        else high = mid;
    }
    for (; low < end && t->labels[low] < byte; low++) {}
    return low < end && t->labels[low] == byte ? t->targets[low] : 0;
}

#endif
