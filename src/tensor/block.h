/* Block types of GGUF files, and what each becomes in the table of formats.
 *
 * A row of such a type is blocks behind one another; a block holds codes and everything that scales them. Each type has a format of ours
 * that holds the same numbers without loss: affine codes with scales of f16 where scale and bias are numbers of f16, else of f32, in
 * groups of 16 to 128; mxfp4 and nvfp4; or plain elements. So nothing behind the file knows these types: rows are repacked as they are
 * read.
 *
 * What code * scale + bias gives in f32 is the number that the `gguf` package gives, but for the sign of zeros: codes have at most 8
 * bits and scales at most 18, so that the product is exact, and the sum is rounded as the reference rounds it.
 */
#ifndef MLXCEL_TENSOR_BLOCK_H
#define MLXCEL_TENSOR_BLOCK_H

#include "tensor/dtype.h"

struct quant_row;

enum { BLOCK_MAX = 256, BLOCK_GROUPS_MAX = 16 };

/* A block taken apart: affine codes with a scale and a bias per group, or E2M1 codes with a byte per group. */
struct block_parts {
    uint8_t codes[BLOCK_MAX];
    float scales[BLOCK_GROUPS_MAX], biases[BLOCK_GROUPS_MAX];
    uint8_t raw[BLOCK_GROUPS_MAX];
};

struct block_type {
    const char *name;
    uint16_t id; /* in a file */
    uint16_t n;  /* elements; 1: a plain type, which has no split */
    uint16_t bytes;
    struct format format;
    void (*split)(const uint8_t *block, struct block_parts *out);
};

/* NULL: no type of weights. */
const struct block_type *block_find(uint32_t id);
const struct block_type *block_named(const char *name);
static inline bool block_is_plain(const struct block_type *t) {
    return t->n == 1;
}

enum block_plane { BLOCK_VALUES, BLOCK_SCALES, BLOCK_BIASES, N_BLOCK_PLANES };

/* One plane of n elements (a multiple of the block) in the format of the type. False: a scale is too large for it. */
bool block_plane(const struct block_type *t, enum block_plane plane, const void *blocks, int64_t n, void *out);

/* ---- the other way (block_join.c) ---------------------------------------------------------------------------------------- */

/* The i-th type that may hold rows of a packed format; NULL: there are no more. */
const struct block_type *block_for(const struct format *f, int i);
/* n elements of a row as blocks. False: this type does not hold these numbers. */
bool block_join(const struct block_type *t, const struct format *f, const struct quant_row *row, int64_t n, void *out);

/* ---- types whose codes point into tables (block_iq.c) ------------------------------------------------------------------- */

void block_split_iq2_xxs(const uint8_t *p, struct block_parts *out);
void block_split_iq2_xs(const uint8_t *p, struct block_parts *out);
void block_split_iq2_s(const uint8_t *p, struct block_parts *out);
void block_split_iq3_xxs(const uint8_t *p, struct block_parts *out);
void block_split_iq3_s(const uint8_t *p, struct block_parts *out);
void block_split_iq1_s(const uint8_t *p, struct block_parts *out);
void block_split_iq1_m(const uint8_t *p, struct block_parts *out);
void block_split_iq4_nl(const uint8_t *p, struct block_parts *out);
void block_split_iq4_xs(const uint8_t *p, struct block_parts *out);

#endif
