/* Reference packing and unpacking of every weight format.
 *
 * Speed rule: the format is looked at once per call or per group; the inner loops are written per width, without
 * branches, so that a compiler turns them into vector code. Exactness rule: packing follows MLX's own order of
 * operations and roundings, so that the bytes are the same; tests/quant compares them with MLX itself.
 */
#include "tensor/quant.h"

#include "base/half.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { GROUP_MAX = 128 };

/* ---- plain elements ---- */

static void f16_row(const uint8_t *src, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        /* move exponent and fraction in place, then let one multiplication rebias (exact, subnormals too) */
        uint32_t special = (h & 0x7C00u) == 0x7C00u ? 0x7F800000u : 0;
        float magnitude = f32_from_bits((uint32_t)(h & 0x7FFFu) << 13) * 0x1p112f;
        out[i] = f32_from_bits(f32_bits(magnitude) | special | (uint32_t)(h & 0x8000u) << 16);
    }
}

static void bf16_row(const uint8_t *src, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, src + 2 * i, 2);
        out[i] = bf16_to_f32(h);
    }
}

bool plain_to_f32(enum dtype dt, const void *src, int64_t n, float *out) {
    switch (dt) {
    case DT_F32:
        if (n) memcpy(out, src, (size_t)n * 4);
        return true;
    case DT_F16: f16_row(src, n, out); return true;
    case DT_BF16: bf16_row(src, n, out); return true;
    default: return false;
    }
}

bool plain_from_f32(enum dtype dt, const float *src, int64_t n, void *out) {
    uint8_t *p = out;
    switch (dt) {
    case DT_F32:
        if (n) memcpy(out, src, (size_t)n * 4);
        return true;
    case DT_F16:
        for (int64_t i = 0; i < n; i++) memcpy(p + 2 * i, &(uint16_t){f16_from_f32(src[i])}, 2);
        return true;
    case DT_BF16:
        for (int64_t i = 0; i < n; i++) memcpy(p + 2 * i, &(uint16_t){bf16_from_f32(src[i])}, 2);
        return true;
    default: return false;
    }
}

static float plain_load(enum dtype dt, const void *plane, int64_t i) {
    float f = 0;
    plain_to_f32(dt, (const uint8_t *)plane + i * (dtype_bits(dt) / 8), 1, &f);
    return f;
}

static void plain_store(enum dtype dt, float f, void *plane, int64_t i) {
    plain_from_f32(dt, &f, 1, (uint8_t *)plane + i * (dtype_bits(dt) / 8));
}

/* ---- sizes ---- */

static size_t scale_bytes(const struct format *f) {
    return (size_t)dtype_bits(format_scale_dtype(f)) / 8;
}

size_t quant_values_bytes(const struct format *f, int64_t n) {
    return (size_t)n * (size_t)(f->mode == QUANT_NONE ? dtype_bits(f->dtype) : f->bits) / 8;
}

size_t quant_scales_bytes(const struct format *f, int64_t n) {
    return f->mode == QUANT_NONE ? 0 : (size_t)n / f->group * scale_bytes(f);
}

size_t quant_biases_bytes(const struct format *f, int64_t n) {
    return f->mode == QUANT_AFFINE ? quant_scales_bytes(f, n) : 0;
}

/* ---- the bit stream: eight values are exactly `bits` bytes at every width ---- */

static inline void codes_by_width(const uint8_t *p, int64_t n, uint8_t *out, unsigned bits) {
    for (int64_t i = 0; i < n; i += 8, p += bits) {
        uint64_t word = 0;
        for (unsigned b = 0; b < bits; b++) word |= (uint64_t)p[b] << 8 * b;
        for (unsigned k = 0; k < 8; k++) out[i + k] = (uint8_t)(word >> k * bits & ((1u << bits) - 1));
    }
}

static inline void pack_by_width(const uint8_t *codes, int64_t n, uint8_t *p, unsigned bits) {
    for (int64_t i = 0; i < n; i += 8, p += bits) {
        uint64_t word = 0;
        for (unsigned k = 0; k < 8; k++) word |= (uint64_t)codes[i + k] << k * bits;
        memcpy(p, &word, bits);
    }
}

#define CODES(bits)                                                       \
    static void codes_##bits(const uint8_t *p, int64_t n, uint8_t *out) { \
        codes_by_width(p, n, out, bits);                                  \
    }
#define PACK(bits)                                                         \
    static void pack_##bits(const uint8_t *codes, int64_t n, uint8_t *p) { \
        pack_by_width(codes, n, p, bits);                                  \
    }
CODES(2)
CODES(3)
CODES(5)
CODES(6)
PACK(2)
PACK(3)
PACK(4)
PACK(5)
PACK(6)
#undef CODES
#undef PACK

/* The common width, by bytes: compilers interleave this well. */
static void codes_4(const uint8_t *p, int64_t n, uint8_t *out) {
    for (int64_t i = 0; i < n / 2; i++) {
        out[2 * i] = p[i] & 15;
        out[2 * i + 1] = p[i] >> 4;
    }
}

static void copy_8(const uint8_t *p, int64_t n, uint8_t *out) {
    memcpy(out, p, (size_t)n);
}

static const struct {
    void (*codes)(const uint8_t *p, int64_t n, uint8_t *out);
    void (*pack)(const uint8_t *codes, int64_t n, uint8_t *p);
} widths[9] = {
    [2] = {codes_2, pack_2}, [3] = {codes_3, pack_3}, [4] = {codes_4, pack_4},
    [5] = {codes_5, pack_5}, [6] = {codes_6, pack_6}, [8] = {copy_8, copy_8},
};

void quant_codes(const struct format *f, const void *values, int64_t first, int64_t n, uint8_t *out) {
    assert(f->mode != QUANT_NONE && first % 8 == 0 && n % 8 == 0);
    widths[f->bits].codes((const uint8_t *)values + first * f->bits / 8, n, out);
}

void quant_put_codes(const struct format *f, const uint8_t *codes, int64_t n, void *values) {
    assert(f->mode != QUANT_NONE && n % 8 == 0);
    widths[f->bits].pack(codes, n, values);
}

/* ---- unpacking ---- */

static void affine_group(const uint8_t *codes, int64_t n, float scale, float bias, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = (float)codes[i] * scale + bias;
}

static void fp4_group(const uint8_t *codes, int64_t n, float scale, float *out) {
    for (int64_t i = 0; i < n; i++) out[i] = f4e2m1_values[codes[i]] * scale;
}

static void fp8_group(const uint8_t *codes, int64_t n, float scale, float *out) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = codes[i], magnitude = u & 0x7F;
        float value = magnitude == 0x7F ? f32_from_bits(0x7FC00000u) : f32_from_bits(magnitude << 20) * 0x1p120f;
        out[i] = f32_from_bits(f32_bits(value) | (u & 0x80) << 24) * scale;
    }
}

static float fp_scale(const struct format *f, const void *scales, int64_t i) {
    if (format_scale_dtype(f) == DT_F32) return plain_load(DT_F32, scales, i);
    uint8_t b = ((const uint8_t *)scales)[i];
    return f->mode == QUANT_NVFP4 ? f8e4m3_to_f32(b) : e8m0_to_f32(b);
}

void quant_unpack(const struct format *f, const struct quant_row *row, int64_t first, int64_t n, float *out) {
    if (f->mode == QUANT_NONE) {
        bool plain = plain_to_f32(f->dtype, (const uint8_t *)row->values + first * (dtype_bits(f->dtype) / 8), n, out);
        assert(plain);
        (void)plain;
        return;
    }
    assert(first % f->group == 0 && n % f->group == 0);
    uint8_t codes[GROUP_MAX];
    const uint8_t *p = (const uint8_t *)row->values + first * f->bits / 8;
    int64_t i_group = first / f->group;
    for (int64_t i = 0; i < n; i += f->group, i_group++, p += f->group * f->bits / 8) {
        widths[f->bits].codes(p, f->group, codes);
        if (f->mode == QUANT_AFFINE)
            affine_group(codes, f->group, plain_load(f->dtype, row->scales, i_group), plain_load(f->dtype, row->biases, i_group), out + i);
        else (f->bits == 4 ? fp4_group : fp8_group)(codes, f->group, fp_scale(f, row->scales, i_group), out + i);
    }
}

/* ---- packing ---- */

/* The edge of larger magnitude is kept exact: it becomes the bias, and the scale is bent so that zero has a code.
 * The codes come from the f32 scale and bias; what is stored is rounded to the dtype afterwards. */
static void affine_pack_group(const struct format *f, const float *x, uint8_t *codes, float *out_scale, float *out_bias) {
    float bins = (float)((1 << f->bits) - 1), lo = INFINITY, hi = -INFINITY;
    for (int i = 0; i < f->group; i++) {
        hi = hi < x[i] ? x[i] : hi;
        lo = x[i] < lo ? x[i] : lo;
    }
    bool low_edge = fabsf(lo) > fabsf(hi);
    float scale = (hi - lo) / bins, edge = low_edge ? lo : hi, bias = 0;
    if (scale < 1e-7f) scale = 1e-7f;
    if (!low_edge) scale = -scale;
    float at_zero = rintf(edge / scale);
    if (at_zero != 0) {
        scale = edge / at_zero;
        bias = edge;
    }
    for (int i = 0; i < f->group; i++) {
        float q = (x[i] - bias) / scale;
        q = q > 0 ? q : 0; /* also for NaN */
        q = q > bins ? bins : q;
        codes[i] = (uint8_t)f32_bits(q + 0x1p23f); /* rounds to even; the integer is then the lowest bits */
    }
    *out_scale = scale;
    *out_bias = bias;
}

static float round_to(enum dtype dt, float x) {
    return dt == DT_F16 ? f16_to_f32(f16_from_f32(x)) : dt == DT_BF16 ? bf16_to_f32(bf16_from_f32(x)) : x;
}

/* The smallest power of two >= x, as its exponent. Zero asks for nothing and gets 2^0, which is what MLX writes.
 * Below 2^-127 MLX's byte wraps around to a huge scale; there, and only there, we write other bytes: the smallest. */
static int e8m0_exponent(float x) {
    if (x == 0) return 0;
    if (x == INFINITY) return 127;
    int e;
    float fraction = frexpf(x, &e); /* x = fraction * 2^e, fraction in [0.5, 1) */
    e -= fraction == 0.5f;
    return e < -127 ? -127 : e > 127 ? 127 : e;
}

/* The nearest E2M1 value, found as MLX finds it: the first of the 16 codes at the smallest distance. So a tie goes to
 * the smaller magnitude, a zero is positive, and a value so far out that all distances round alike becomes zero. */
static uint8_t f4_nearest(enum dtype dt, float x) {
    static const float middle[7] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
    float magnitude = fabsf(x);
    unsigned code = 0;
    if (magnitude <= 8) {
        for (int k = 0; k < 7; k++) code += magnitude > middle[k];
        return (uint8_t)(code | (code && x < 0 ? 8 : 0));
    }
    float best = fabsf(round_to(dt, x - f4e2m1_values[0]));
    for (unsigned k = 1; k < 16; k++) {
        float distance = fabsf(round_to(dt, x - f4e2m1_values[k]));
        if (distance < best) best = distance, code = k;
    }
    return (uint8_t)code;
}

static void fp_pack_group(const struct format *f, const float *x, uint8_t *codes, uint8_t *out_scale) {
    float top = 0, scale;
    for (int i = 0; i < f->group; i++) top = top < fabsf(x[i]) ? fabsf(x[i]) : top;
    float wanted = round_to(f->dtype, top / (f->bits == 4 ? 6.0f : 448.0f));
    if (f->mode == QUANT_NVFP4) {
        *out_scale = f8e4m3_from_f32(wanted);
        scale = f8e4m3_to_f32(*out_scale);
    } else {
        int exponent = e8m0_exponent(wanted);
        *out_scale = (uint8_t)(exponent + 127);
        scale = round_to(f->dtype, ldexpf(1.0f, exponent));
    }
    for (int i = 0; i < f->group; i++) {
        float v = round_to(f->dtype, x[i] / scale);
        codes[i] = f->bits == 4 ? f4_nearest(f->dtype, v) : f8e4m3_from_f32(v);
    }
}

void quant_pack(const struct format *f, const float *x, int64_t n, void *values, void *scales, void *biases) {
    if (f->mode == QUANT_NONE) {
        bool plain = plain_from_f32(f->dtype, x, n, values);
        assert(plain);
        (void)plain;
        return;
    }
    assert(n % f->group == 0);
    uint8_t codes[GROUP_MAX], *p = values;
    for (int64_t i = 0, i_group = 0; i < n; i += f->group, i_group++, p += f->group * f->bits / 8) {
        if (f->mode == QUANT_AFFINE) {
            float scale, bias;
            affine_pack_group(f, x + i, codes, &scale, &bias);
            plain_store(f->dtype, scale, scales, i_group);
            plain_store(f->dtype, bias, biases, i_group);
        } else fp_pack_group(f, x + i, codes, (uint8_t *)scales + i_group);
        widths[f->bits].pack(codes, f->group, p);
    }
}
