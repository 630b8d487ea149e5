/* Element types and weight formats: names, sizes, and nothing about where data lies. */
#ifndef MLXCEL_TENSOR_DTYPE_H
#define MLXCEL_TENSOR_DTYPE_H

#include "base/str.h"

enum dtype {
#define DTYPE(id, name, bits) DT_##id,
#include "tensor/dtype.def"
#undef DTYPE
    N_DTYPES
};

const char *dtype_name(enum dtype dt); /* as safetensors writes it */
int dtype_bits(enum dtype dt);
bool dtype_parse(struct str name, enum dtype *out);

/* How a weight matrix is stored. A plain matrix has one plane of its dtype; a quantised one has packed values and
 * scales (and biases, for affine) by groups along the input dimension. */
enum quant_mode {
    QUANT_NONE,
    QUANT_AFFINE,
    QUANT_MXFP4,
    QUANT_MXFP8,
    QUANT_NVFP4,
    QUANT_FP4, /* E2M1 with scales of f32, in groups of any size; this and the next come out of checkpoints that are not MLX's */
    QUANT_FP8, /* E4M3 with scales of f32 */
    N_QUANT_MODES
};

struct format {
    enum quant_mode mode;
    enum dtype dtype; /* plain: of the elements; affine: of scales and biases; fp4, fp8: F32 */
    uint8_t bits;     /* 2, 3, 4, 5, 6, 8; 0 for plain */
    uint16_t group;   /* 16, 32, 64, 128; 0 for plain */
};

const char *quant_mode_name(enum quant_mode mode);
bool quant_mode_parse(struct str name, enum quant_mode *out);
/* Whether the mode exists with these bits and group, as MLX defines it. */
bool format_valid(const struct format *f);
/* What the scales of a quantised matrix are stored as. */
enum dtype format_scale_dtype(const struct format *f);
/* "bf16", "affine 4-bit g64", "mxfp4". */
const char *format_name(const struct format *f, char out[32]);
/* Bytes of one row of n elements, all planes together. */
size_t format_row_bytes(const struct format *f, size_t n);

#endif
