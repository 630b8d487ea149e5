/* Weights repacked for kernels: panels of sixteen rows.
 *
 * A panel holds 16 output rows. Its groups follow one another; a group holds the codes of `group` inputs, then 16 scales
 * and 16 biases (bf16 where the checkpoint's are, else f32). Codes lie four inputs of each of the 16 rows together, so
 * that one 64-byte line feeds a dot-product instruction of any width:
 *
 *   8-bit codes: line j holds inputs 4j .. 4j+3 of row 0, then of row 1 ... row 15
 *   4-bit codes: the low halves of line j are inputs 8j .. 8j+3, the high halves inputs 8j+4 .. 8j+7
 *
 * Codes are 0 .. 255 and weigh code * scale + bias. Formats whose values are not such codes (mxfp8, fp8) are not packed;
 * E2M1 values become 2 v + 12. Groups of 128 are stored as two of 64. Rows are padded to 16 with zero scales.
 *
 * Scales of f32 in small groups are more than the codes need, and most are a whole number times one that 256 inputs share (the K types of GGUF). Such
 * panels are "nested", without loss (pack_nested.c): of 256 inputs the codes of all groups, then a signed byte for each group and row, then, unless
 * biases are -centre times the scale, bytes of 0 .. 127 for those, which lie like 8-bit codes with groups as inputs; then 16 numbers of f16 which the
 * bytes multiply, and the same for the biases. Codes have 4 bits as above, or 6:
 *
 *   6-bit codes: three lines for 16 inputs: the low six bits of line j are inputs 4j .. 4j+3, the high two are bits 2j, 2j+1 of inputs 12 .. 15
 *
 * Plain weights (f32, f16, bf16) are panels too where a set of kernels has products over them, filled up with zeros to whole numbers of 32 inputs:
 * `unit` inputs of each of the 16 rows together, in as much memory as before. One of f32 and f16, which are loaded or widened
 * as they lie; of bf16 two (an AMX tile) or four (two rows of them are an operand of Arm's matrix product), which depends on
 * the set (struct kernels). There is neither a scale nor a bias.
 */
#ifndef MLXCEL_BACKEND_CPU_PACK_H
#define MLXCEL_BACKEND_CPU_PACK_H

#include "tensor/quant.h"

enum { PANEL_ROWS = 16, PANEL_LINE = 64, PACK_GROUP_MAX = 64, PACK_PLAIN_GROUP = 32, PACK_SPAN = 256, PACK_NESTED_MAX = 65536 };

struct pack_shape {
    int64_t in;
    int64_t width;      /* of plain ones: inputs that are the matrix's own; zeros stand for the rest */
    int32_t group;      /* 16, 32, 64 */
    int32_t code_bits;  /* 4, 8; nested: 4, 6; 16, 32: plain */
    enum dtype dtype;   /* of plain ones: F32, F16, BF16 */
    int32_t unit;       /* and the inputs of a row that lie together */
    bool narrow_scales; /* bf16 */
    bool nested;
    int32_t centre;    /* nested: the code that is zero; 0: biases have bytes of their own */
    size_t span_bytes; /* nested: of PACK_SPAN inputs; group_bytes are then those of the codes */
    size_t group_bytes, panel_bytes;
};

/* False when the format is not packed. */
bool pack_shape_of(const struct format *f, int64_t in, struct pack_shape *out);

/* The same for plain weights. */
bool pack_plain_shape_of(const struct format *f, int64_t in, int32_t unit, struct pack_shape *out);
static inline bool pack_is_plain(const struct pack_shape *s) {
    return s->code_bits >= 16;
}

static inline bool pack_is_filled_up(const struct pack_shape *s) {
    return pack_is_plain(s) && s->width < s->in;
}

/* Packs up to 16 rows (fewer at the end of a matrix) into one panel. */
void pack_panel(const struct pack_shape *s, const struct format *f, const struct quant_row *rows, int32_t n_rows, unsigned char *out);

/* A row's own 4-bit codes of n inputs, eight in four bytes, to their lines; `out` is its place in the first one. */
void pack_put_nibbles(const unsigned char *values, int32_t n, unsigned char *out);

/* One row of a panel back to f32: for embeddings that are stored once. */
void pack_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out);

/* Nested panels, for a matrix whose rows are like `row`. False when a format has none; pack_nested_panel: when these numbers have none. */
bool pack_nested_shape_of(const struct format *f, int64_t in, const struct quant_row *row, struct pack_shape *out);
bool pack_nested_panel(const struct pack_shape *s, const struct format *f, const struct quant_row *rows, int32_t n_rows,
                       unsigned char *out);
void pack_nested_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out);

/* What stands behind the codes of a span. */
struct pack_span {
    const int8_t *scale, *bias;       /* [groups][16], [groups / 4][16][4]; bias: NULL where codes are centred */
    const uint16_t *scale_1, *bias_1; /* [16], f16 */
};
static inline struct pack_span pack_span_at(const struct pack_shape *s, const unsigned char *span) {
    int32_t groups = PACK_SPAN / s->group, bytes = PANEL_ROWS * groups;
    const unsigned char *p = span + (size_t)groups * s->group_bytes;
    const unsigned char *numbers = p + (s->centre ? bytes : 2 * bytes);
    return (struct pack_span){.scale = (const int8_t *)p,
                              .bias = s->centre ? NULL : (const int8_t *)p + bytes,
                              .scale_1 = (const uint16_t *)(const void *)numbers,
                              .bias_1 = (const uint16_t *)(const void *)(numbers + 2 * PANEL_ROWS)};
}

static inline int32_t pack_bias_place(int32_t group, int32_t row) {
    return group / 4 * PANEL_LINE + row * 4 + group % 4;
}

/* What those two do for plain weights. */
void pack_plain_panel(const struct pack_shape *s, const struct quant_row *rows, int32_t n_rows, unsigned char *out);
void pack_plain_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out);

#endif
