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
 * Plain weights (f32, f16, bf16) are panels too where a set of kernels has products over them, whole numbers of 32 inputs:
 * `unit` inputs of each of the 16 rows together, in as much memory as before. One of f32 and f16, which are loaded or widened
 * as they lie; of bf16 two (an AMX tile) or four (two rows of them are an operand of Arm's matrix product), which depends on
 * the set (struct kernels). There is neither a scale nor a bias.
 */
#ifndef MLXCEL_BACKEND_CPU_PACK_H
#define MLXCEL_BACKEND_CPU_PACK_H

#include "tensor/quant.h"

enum { PANEL_ROWS = 16, PANEL_LINE = 64, PACK_GROUP_MAX = 64, PACK_PLAIN_GROUP = 32 };

struct pack_shape {
    int64_t in;
    int32_t group;      /* 16, 32, 64 */
    int32_t code_bits;  /* 4, 8; 16, 32: plain */
    enum dtype dtype;   /* of plain ones: F32, F16, BF16 */
    int32_t unit;       /* and the inputs of a row that lie together */
    bool narrow_scales; /* bf16 */
    size_t group_bytes, panel_bytes;
};

/* False when the format is not packed. */
bool pack_shape_of(const struct format *f, int64_t in, struct pack_shape *out);

/* The same for plain weights. */
bool pack_plain_shape_of(const struct format *f, int64_t in, int32_t unit, struct pack_shape *out);
static inline bool pack_is_plain(const struct pack_shape *s) {
    return s->code_bits >= 16;
}

/* Packs up to 16 rows (fewer at the end of a matrix) into one panel. */
void pack_panel(const struct pack_shape *s, const struct format *f, const struct quant_row *rows, int32_t n_rows, unsigned char *out);

/* One row of a panel back to f32: for embeddings that are stored once. */
void pack_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out);

/* What those two do for plain weights. */
void pack_plain_panel(const struct pack_shape *s, const struct quant_row *rows, int32_t n_rows, unsigned char *out);
void pack_plain_unpack_row(const struct pack_shape *s, const unsigned char *panel, int32_t row, float *out);

#endif
