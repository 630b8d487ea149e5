/* Element types and weight formats: the tables behind their names and sizes. */
#include "tensor/dtype.h"

#include <stdio.h>

static const struct {
    const char *name;
    int bits;
} dtypes[N_DTYPES] = {
#define DTYPE(id, name, bits) [DT_##id] = {name, bits},
#include "tensor/dtype.def"
#undef DTYPE
};

const char *dtype_name(enum dtype dt) {
    return dtypes[dt].name;
}

int dtype_bits(enum dtype dt) {
    return dtypes[dt].bits;
}

bool dtype_parse(struct str name, enum dtype *out) {
    for (int i = 0; i < N_DTYPES; i++)
        if (str_is(name, dtypes[i].name)) {
            *out = (enum dtype)i;
            return true;
        }
    return false;
}

/* What MLX defines for each mode: which bits, which groups, how wide a scale is (0: as the dtype), biases or not. */
static const struct {
    const char *name;
    uint32_t bits_mask;  /* bit b set: b bits per value exist */
    uint32_t group_mask; /* bit g/16 set: groups of g exist */
    uint8_t scale_bits;
    bool has_bias;
} modes[N_QUANT_MODES] = {
    [QUANT_NONE] = {"none", 1u << 0, 1u << 0, 0, false},
    [QUANT_AFFINE] = {"affine", 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8, 1u << 2 | 1u << 4 | 1u << 8, 0, true},
    [QUANT_MXFP4] = {"mxfp4", 1u << 4, 1u << 2, 8, false},
    [QUANT_MXFP8] = {"mxfp8", 1u << 8, 1u << 2, 8, false},
    [QUANT_NVFP4] = {"nvfp4", 1u << 4, 1u << 1, 8, false},
    [QUANT_FP4] = {"fp4", 0, 0, 32, false}, /* not MLX's: no file declares them */
    [QUANT_FP8] = {"fp8", 0, 0, 32, false},
};

const char *quant_mode_name(enum quant_mode mode) {
    return modes[mode].name;
}

bool quant_mode_parse(struct str name, enum quant_mode *out) {
    for (int i = QUANT_AFFINE; i < N_QUANT_MODES; i++)
        if (modes[i].bits_mask && str_is(name, modes[i].name)) {
            *out = (enum quant_mode)i;
            return true;
        }
    return false;
}

bool format_valid(const struct format *f) {
    if (f->bits > 8 || f->group > 128 || f->group % 16) return false;
    return (modes[f->mode].bits_mask >> f->bits & 1) && (modes[f->mode].group_mask >> f->group / 16 & 1);
}

enum dtype format_scale_dtype(const struct format *f) {
    uint8_t bits = modes[f->mode].scale_bits;
    return bits == 8 ? DT_U8 : bits == 32 ? DT_F32 : f->dtype;
}

const char *format_name(const struct format *f, char out[32]) {
    static const char *const plain[] = {[DT_F32] = "f32", [DT_F16] = "f16", [DT_BF16] = "bf16"};
    if (f->mode == QUANT_NONE) snprintf(out, 32, "%s", f->dtype <= DT_BF16 ? plain[f->dtype] : dtype_name(f->dtype));
    else if (f->mode == QUANT_AFFINE) snprintf(out, 32, "affine %d-bit g%d", f->bits, f->group);
    else if (modes[f->mode].bits_mask) snprintf(out, 32, "%s", modes[f->mode].name);
    else snprintf(out, 32, "%s g%d", modes[f->mode].name, f->group);
    return out;
}

size_t format_row_bytes(const struct format *f, size_t n) {
    if (f->mode == QUANT_NONE) return n * (size_t)dtype_bits(f->dtype) / 8;
    size_t per_group = (size_t)dtype_bits(format_scale_dtype(f)) * (modes[f->mode].has_bias ? 2 : 1);
    return n * f->bits / 8 + n / f->group * per_group / 8;
}
