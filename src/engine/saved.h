/* A prompt's cache as bytes, as a file holds them.
 *
 *     struct saved_head      what it is, and of which model, device and settings
 *     f32 scales[n_scales]   of adapters; none where none was used
 *     i32 tokens[n_tokens]
 *     u8 there[...]          for each class and each of its blocks: 1, or 0 where the block had left its window; zeros up to a multiple of 8
 *     blocks                 those that are there, class by class, each as the backend lays it out
 *     f32 state[]            of recurrent layers
 *     u64 sum                hash of everything before it
 *
 * (1) Numbers are stored as the processor has them, the lowest byte first.
 * (2) Nothing in a file is used before it was checked: the head against what the reader has, sizes against the size of the file, everything against the sum.
 */
#ifndef MLXCEL_ENGINE_SAVED_H
#define MLXCEL_ENGINE_SAVED_H

#include "backend/backend.h"

enum { SAVED_VERSION = 1, SAVED_LAYOUT_BYTES = 16 };

struct saved_class {
    int32_t n_layers, heads, k_width, v_width, window, unused;
    uint64_t block_bytes;
    char layout[SAVED_LAYOUT_BYTES]; /* the backend's name for how numbers lie in a block */
};

struct saved_head {
    char magic[8];
    uint32_t version, head_bytes;
    uint64_t file_bytes, model; /* model: hash of its configuration and weights */
    int32_t precision, kv_bits, block_tokens, n_classes;
    struct saved_class classes[KV_CLASSES_MAX];
    uint64_t state_bytes;
    int32_t n_scales, n_tokens;
};

/* What a reader knows of itself. */
struct saved_reader {
    struct saved_head own; /* but file_bytes, n_scales, n_tokens */
    int32_t n_adapters, vocab, context;
};

struct saved {
    const float *scales; /* [n_scales] */
    const int32_t *tokens;
    const unsigned char *there[KV_CLASSES_MAX]; /* [n_blocks] */
    const unsigned char *blocks;
    const float *state;                   /* NULL: none */
    int32_t n_scales, n_tokens, n_blocks; /* n_blocks: of each class, those that are not there included */
};

/* The head of this model's caches. Left to the caller: precision, kv_bits, the classes' blocks, file_bytes, n_scales, n_tokens. */
struct saved_head saved_head(uint64_t model, const struct kv_layout *l);
/* How the backend lays out one block of a class. */
void saved_class_blocks(struct saved_class *k, uint64_t block_bytes, const char *layout);

/* Bytes of a file with this head, in which so many blocks of each class are there. */
uint64_t saved_bytes(const struct saved_head *h, const int32_t n_there[KV_CLASSES_MAX]);
/* Where the parts of such a file lie. `data` has room for the fixed part at least: head, scales, tokens and what is there. */
void saved_parts(const struct saved_head *h, const void *data, struct saved *out);
/* Writes the sum at the end. */
void saved_seal(void *data, uint64_t n);

/* Whether a file of so many bytes that begins like this can be read here. Before anything else of it is read. */
int saved_check_head(const struct saved_head *h, uint64_t file_bytes, const struct saved_reader *r, struct err *err);
/* A whole file, aligned as mem_alloc does it. What *out points at lies in the data. */
int saved_open(const void *data, uint64_t n, const struct saved_reader *r, struct saved *out, struct err *err);

#endif
