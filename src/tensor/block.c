/* The table of GGUF's block types, and those whose codes are numbers. tests/gguf/test_blocks.py compares each with the gguf package. */
#include "tensor/block.h"

#include "base/half.h"
#include "tensor/quant.h"

#include <assert.h>
#include <math.h>

static float half_at(const uint8_t *p) {
    return f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* Bytes of two codes: low halves first, then high halves. */
static void nibbles(const uint8_t *p, int n_bytes, uint8_t *codes) {
    for (int i = 0; i < n_bytes; i++) {
        codes[i] = p[i] & 15;
        codes[n_bytes + i] = p[i] >> 4;
    }
}

/* Chunks of 32 bytes with four codes of two bits each: 32 lowest ones, then 32 of the next bits. */
static void pairs_of_bits(const uint8_t *p, uint8_t *codes) {
    for (int e = 0; e < BLOCK_MAX; e++) codes[e] = p[e / 128 * 32 + e % 32] >> e % 128 / 32 * 2 & 3;
}

/* One group whose codes count from -offset. */
static void centred(struct block_parts *out, int group, float scale, float offset) {
    out->scales[group] = scale;
    out->biases[group] = -offset * scale;
}

/* ---- 32 elements -------------------------------------------------------------------------------------------------------- */

static void split_q4_0(const uint8_t *p, struct block_parts *out) {
    centred(out, 0, half_at(p), 8);
    nibbles(p + 2, 16, out->codes);
}

static void split_q4_1(const uint8_t *p, struct block_parts *out) {
    out->scales[0] = half_at(p);
    out->biases[0] = half_at(p + 2);
    nibbles(p + 4, 16, out->codes);
}

/* The fifth bits of 32 codes. */
static void fifth_bits(const uint8_t *p, uint8_t *codes) {
    for (int e = 0; e < 32; e++) codes[e] |= (uint8_t)((p[e / 8] >> e % 8 & 1) << 4);
}

static void split_q5_0(const uint8_t *p, struct block_parts *out) {
    centred(out, 0, half_at(p), 16);
    nibbles(p + 6, 16, out->codes);
    fifth_bits(p + 2, out->codes);
}

static void split_q5_1(const uint8_t *p, struct block_parts *out) {
    out->scales[0] = half_at(p);
    out->biases[0] = half_at(p + 2);
    nibbles(p + 8, 16, out->codes);
    fifth_bits(p + 4, out->codes);
}

static void split_q8_0(const uint8_t *p, struct block_parts *out) {
    centred(out, 0, half_at(p), 128);
    for (int e = 0; e < 32; e++) out->codes[e] = p[2 + e] ^ 0x80;
}

static void split_mxfp4(const uint8_t *p, struct block_parts *out) {
    out->raw[0] = p[0];
    nibbles(p + 1, 16, out->codes);
}

/* Four groups of 16; the sign of their scales means nothing, and the byte that would be a NaN stands for zero. */
static void split_nvfp4(const uint8_t *p, struct block_parts *out) {
    for (int k = 0; k < 4; k++) {
        uint8_t scale = p[k] & 0x7F;
        out->raw[k] = scale == 0x7F ? 0 : scale;
        nibbles(p + 4 + 8 * k, 8, out->codes + 16 * k);
    }
}

/* ---- 256 elements ------------------------------------------------------------------------------------------------------- */

static void split_q2_k(const uint8_t *p, struct block_parts *out) {
    float d = half_at(p + 80), least = half_at(p + 82);
    for (int k = 0; k < 16; k++) {
        out->scales[k] = d * (float)(p[k] & 15);
        out->biases[k] = -(least * (float)(p[k] >> 4));
    }
    pairs_of_bits(p + 16, out->codes);
}

/* Bit e / 32 of byte e % 32, for 256 codes. */
static void add_bits(const uint8_t *p, int place, uint8_t *codes) {
    for (int e = 0; e < BLOCK_MAX; e++) codes[e] |= (uint8_t)((p[e % 32] >> e / 32 & 1) << place);
}

static void split_q3_k(const uint8_t *p, struct block_parts *out) {
    const uint8_t *s = p + 96;
    float d = half_at(p + 108);
    for (int k = 0; k < 16; k++) {
        int scale = (s[k % 8] >> k / 8 * 4 & 15) | (s[8 + k % 4] >> k / 4 * 2 & 3) << 4;
        centred(out, k, d * (float)(scale - 32), 4);
    }
    pairs_of_bits(p + 32, out->codes);
    add_bits(p, 2, out->codes);
}

/* Eight scales and eight least values of six bits each in twelve bytes. */
static void scales_of_six(const uint8_t *p, struct block_parts *out) {
    const uint8_t *s = p + 4;
    float d = half_at(p), least = half_at(p + 2);
    for (int k = 0; k < 8; k++) {
        int scale = k < 4 ? s[k] & 63 : (s[4 + k] & 15) | (s[k - 4] >> 2 & 0x30);
        int m = k < 4 ? s[4 + k] & 63 : s[4 + k] >> 4 | (s[k] >> 2 & 0x30);
        out->scales[k] = d * (float)scale;
        out->biases[k] = -(least * (float)m);
    }
}

static void split_q4_k(const uint8_t *p, struct block_parts *out) {
    scales_of_six(p, out);
    for (int c = 0; c < 4; c++) nibbles(p + 16 + 32 * c, 32, out->codes + 64 * c);
}

static void split_q5_k(const uint8_t *p, struct block_parts *out) {
    scales_of_six(p, out);
    for (int c = 0; c < 4; c++) nibbles(p + 48 + 32 * c, 32, out->codes + 64 * c);
    add_bits(p + 16, 4, out->codes);
}

static void split_q6_k(const uint8_t *p, struct block_parts *out) {
    uint8_t high[BLOCK_MAX];
    float d = half_at(p + 208);
    for (int c = 0; c < 2; c++) nibbles(p + 64 * c, 64, out->codes + 128 * c);
    pairs_of_bits(p + 128, high);
    for (int e = 0; e < BLOCK_MAX; e++) out->codes[e] |= (uint8_t)(high[e] << 4);
    for (int k = 0; k < 16; k++) centred(out, k, d * (float)(int8_t)p[192 + k], 32);
}

/* Five digits of base three in a byte, as the fraction that the byte is of 256. */
static uint8_t digit(uint8_t byte, int place) {
    static const uint8_t powers[] = {1, 3, 9, 27, 81};
    return (uint8_t)((uint8_t)(byte * powers[place]) * 3 >> 8);
}

static void split_tq1_0(const uint8_t *p, struct block_parts *out) {
    uint8_t *codes = out->codes;
    for (int k = 0; k < 2; k++) centred(out, k, half_at(p + 52), 1);
    for (int e = 0; e < 160; e++) *codes++ = digit(p[e % 32], e / 32);
    for (int e = 0; e < 80; e++) *codes++ = digit(p[32 + e % 16], e / 16);
    for (int e = 0; e < 16; e++) *codes++ = digit(p[48 + e % 4], e / 4);
}

static void split_tq2_0(const uint8_t *p, struct block_parts *out) {
    for (int k = 0; k < 2; k++) centred(out, k, half_at(p + 64), 1);
    pairs_of_bits(p, out->codes);
}

/* ---- the table ---------------------------------------------------------------------------------------------------------- */

/* clang-format off */
#define PLAIN(type) {.mode = QUANT_NONE, .dtype = DT_##type}
#define AFFINE(n_bits, n_group, type) {.mode = QUANT_AFFINE, .dtype = DT_##type, .bits = n_bits, .group = n_group}

static const struct block_type types[] = {
    {"F32", 0, 1, 4, PLAIN(F32), NULL},
    {"F16", 1, 1, 2, PLAIN(F16), NULL},
    {"Q4_0", 2, 32, 18, AFFINE(4, 32, F16), split_q4_0},
    {"Q4_1", 3, 32, 20, AFFINE(4, 32, F16), split_q4_1},
    {"Q5_0", 6, 32, 22, AFFINE(5, 32, F16), split_q5_0},
    {"Q5_1", 7, 32, 24, AFFINE(5, 32, F16), split_q5_1},
    {"Q8_0", 8, 32, 34, AFFINE(8, 32, F16), split_q8_0},
    {"Q2_K", 10, 256, 84, AFFINE(2, 16, F32), split_q2_k},
    {"Q3_K", 11, 256, 110, AFFINE(3, 16, F32), split_q3_k},
    {"Q4_K", 12, 256, 144, AFFINE(4, 32, F32), split_q4_k},
    {"Q5_K", 13, 256, 176, AFFINE(5, 32, F32), split_q5_k},
    {"Q6_K", 14, 256, 210, AFFINE(6, 16, F32), split_q6_k},
    {"IQ2_XXS", 16, 256, 66, AFFINE(8, 32, F32), block_split_iq2_xxs},
    {"IQ2_XS", 17, 256, 74, AFFINE(8, 16, F32), block_split_iq2_xs},
    {"IQ3_XXS", 18, 256, 98, AFFINE(8, 32, F32), block_split_iq3_xxs},
    {"IQ1_S", 19, 256, 50, AFFINE(4, 32, F32), block_split_iq1_s},
    {"IQ4_NL", 20, 32, 18, AFFINE(8, 32, F16), block_split_iq4_nl},
    {"IQ3_S", 21, 256, 110, AFFINE(4, 32, F32), block_split_iq3_s},
    {"IQ2_S", 22, 256, 82, AFFINE(8, 16, F32), block_split_iq2_s},
    {"IQ4_XS", 23, 256, 136, AFFINE(8, 32, F32), block_split_iq4_xs},
    {"I8", 24, 1, 1, PLAIN(I8), NULL},
    {"I16", 25, 1, 2, PLAIN(I16), NULL},
    {"I32", 26, 1, 4, PLAIN(I32), NULL},
    {"I64", 27, 1, 8, PLAIN(I64), NULL},
    {"F64", 28, 1, 8, PLAIN(F64), NULL},
    {"IQ1_M", 29, 256, 56, AFFINE(4, 16, F32), block_split_iq1_m},
    {"BF16", 30, 1, 2, PLAIN(BF16), NULL},
    {"TQ1_0", 34, 256, 54, AFFINE(2, 128, F16), split_tq1_0},
    {"TQ2_0", 35, 256, 66, AFFINE(2, 128, F16), split_tq2_0},
    {"MXFP4", 39, 32, 17, {.mode = QUANT_MXFP4, .dtype = DT_U8, .bits = 4, .group = 32}, split_mxfp4},
    {"NVFP4", 40, 64, 36, {.mode = QUANT_NVFP4, .dtype = DT_U8, .bits = 4, .group = 16}, split_nvfp4},
};
/* clang-format on */

const struct block_type *block_find(uint32_t id) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].id == id) return &types[i];
    return NULL;
}

const struct block_type *block_named(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

/* One entry per group. f16 holds what a block's own f16 gives times a power of two, unless that is beyond its range. */
static bool put_floats(const struct format *f, const float *values, int32_t n, uint8_t *out) {
    for (int32_t i = 0; i < n && f->dtype == DT_F16; i++)
        if (fabsf(values[i]) > 65504.0f && !isinf(values[i])) return false;
    return plain_from_f32(f->dtype, values, n, out);
}

bool block_plane(const struct block_type *t, enum block_plane plane, const void *blocks, int64_t n, void *out) {
    const struct format *f = &t->format;
    const uint8_t *p = blocks;
    uint8_t *to = out;
    assert(!block_is_plain(t) && n % t->n == 0);
    int32_t n_groups = t->n / f->group;
    size_t stride = plane == BLOCK_VALUES ? quant_values_bytes(f, t->n) : quant_scales_bytes(f, t->n);
    struct block_parts parts;
    bool fits = true;
    for (int64_t i = 0; i < n; i += t->n, p += t->bytes, to += stride) {
        t->split(p, &parts);
        if (plane == BLOCK_VALUES) quant_put_codes(f, parts.codes, t->n, to);
        else if (f->mode != QUANT_AFFINE) memcpy(to, parts.raw, (size_t)n_groups);
        else fits &= put_floats(f, plane == BLOCK_SCALES ? parts.scales : parts.biases, n_groups, to);
    }
    return fits;
}
