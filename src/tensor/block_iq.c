/* GGUF's IQ types: codes point into tables of four or eight elements, or of sixteen numbers. */
#include "tensor/block.h"

#include "base/half.h"

#include "tensor/block_grids.inc"

static uint32_t u16_at(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static uint32_t u32_at(const uint8_t *p) {
    return u16_at(p) | u16_at(p + 2) << 16;
}

static float half_at(const uint8_t *p) {
    return f16_to_f32((uint16_t)u16_at(p));
}

static void centred(struct block_parts *out, int group, float scale) {
    out->scales[group] = scale;
    out->biases[group] = -128.0f * scale;
}

/* The sign bits of eight elements: seven are stored, and their number is even. */
static uint32_t eight_signs(uint32_t seven) {
    uint32_t odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    return seven | ((odd ^ odd >> 1) & 1) << 7;
}

/* n elements of an entry, each bits wide, as 128 plus or minus what their digits stand for. */
static void signed_codes(uint32_t entry, int n, int bits, const uint8_t *meaning, uint32_t signs, uint8_t *out) {
    for (int i = 0; i < n; i++) {
        uint8_t v = meaning[entry >> bits * i & ((1u << bits) - 1)];
        out[i] = (uint8_t)(signs >> i & 1 ? 128 - v : 128 + v);
    }
}

/* ---- two bits ----------------------------------------------------------------------------------------------------------- */

static const uint8_t meaning_2[4] = {8, 25, 43, 0};

void block_split_iq2_xxs(const uint8_t *p, struct block_parts *out) {
    float d = half_at(p);
    for (int k = 0; k < 8; k++) {
        const uint8_t *entries = p + 2 + 8 * k;
        uint32_t rest = u32_at(entries + 4);
        centred(out, k, d * (0.5f + (float)(rest >> 28)) * 0.25f);
        for (int j = 0; j < 4; j++)
            signed_codes(grid_iq2_xxs[entries[j]], 8, 2, meaning_2, eight_signs(rest >> 7 * j & 127), out->codes + 32 * k + 8 * j);
    }
}

static void scales_of_four(const uint8_t *p, float d, struct block_parts *out) {
    for (int k = 0; k < 16; k++) centred(out, k, d * (0.5f + (float)(p[k / 2] >> k % 2 * 4 & 15)) * 0.25f);
}

void block_split_iq2_xs(const uint8_t *p, struct block_parts *out) {
    scales_of_four(p + 66, half_at(p), out);
    for (int j = 0; j < 32; j++) {
        uint32_t q = u16_at(p + 2 + 2 * j);
        signed_codes(grid_iq2_xs[q & 511], 8, 2, meaning_2, eight_signs(q >> 9), out->codes + 8 * j);
    }
}

void block_split_iq2_s(const uint8_t *p, struct block_parts *out) {
    const uint8_t *entries = p + 2, *signs = p + 34, *high = p + 66;
    scales_of_four(p + 74, half_at(p), out);
    for (int j = 0; j < 32; j++) {
        uint32_t entry = entries[j] | (uint32_t)(high[j / 4] >> j % 4 * 2 & 3) << 8;
        signed_codes(grid_iq2_s[entry], 8, 2, meaning_2, signs[j], out->codes + 8 * j);
    }
}

/* ---- three bits --------------------------------------------------------------------------------------------------------- */

void block_split_iq3_xxs(const uint8_t *p, struct block_parts *out) {
    static const uint8_t meaning[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    float d = half_at(p);
    for (int k = 0; k < 8; k++) {
        const uint8_t *entries = p + 2 + 8 * k;
        uint32_t rest = u32_at(p + 66 + 4 * k);
        centred(out, k, d * (0.5f + (float)(rest >> 28)) * 0.5f);
        for (int j = 0; j < 8; j++)
            signed_codes(grid_iq3_xxs[entries[j]], 4, 3, meaning, eight_signs(rest >> j / 2 * 7 & 127) >> j % 2 * 4,
                         out->codes + 32 * k + 4 * j);
    }
}

/* Odd numbers from -15 to 15: sixteen codes. */
void block_split_iq3_s(const uint8_t *p, struct block_parts *out) {
    const uint8_t *entries = p + 2, *high = p + 66, *signs = p + 74, *scales = p + 106;
    float d = half_at(p);
    for (int k = 0; k < 8; k++) {
        float scale = d * (float)(1 + 2 * (scales[k / 2] >> k % 2 * 4 & 15));
        out->scales[k] = 2.0f * scale;
        out->biases[k] = -15.0f * scale;
    }
    for (int j = 0; j < 64; j++) {
        uint32_t entry = grid_iq3_s[entries[j] | (uint32_t)(high[j / 8] >> j % 8 & 1) << 8], sign = signs[j / 2] >> j % 2 * 4;
        for (int i = 0; i < 4; i++) {
            uint8_t v = entry >> 3 * i & 7;
            out->codes[4 * j + i] = sign >> i & 1 ? 7 - v : 8 + v;
        }
    }
}

/* ---- one bit ------------------------------------------------------------------------------------------------------------ */

/* -1, 0 or 1, and an eighth more or less: (2 code - 9) / 8, with codes 0, 1, 4, 5, 8, 9. */
static void eighths(uint32_t entry, bool less, uint8_t *out) {
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(4 * (entry >> 2 * i & 3) + !less);
}

static void scale_eighths(struct block_parts *out, int group, float scale) {
    out->scales[group] = scale * 0.25f;
    out->biases[group] = scale * -1.125f;
}

void block_split_iq1_s(const uint8_t *p, struct block_parts *out) {
    float d = half_at(p);
    for (int k = 0; k < 8; k++) {
        uint32_t rest = u16_at(p + 34 + 2 * k);
        scale_eighths(out, k, d * (float)(2 * (rest >> 12 & 7) + 1));
        for (int j = 0; j < 4; j++) eighths(grid_iq1[p[2 + 4 * k + j] | (rest >> 3 * j & 7) << 8], rest >> 15, out->codes + 32 * k + 8 * j);
    }
}

/* The scale of the block lies in the highest four bits of four words. */
void block_split_iq1_m(const uint8_t *p, struct block_parts *out) {
    const uint8_t *high = p + 32, *scales = p + 48;
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++) bits |= u16_at(scales + 2 * i) >> 12 << 4 * i;
    float d = f16_to_f32((uint16_t)bits);
    for (int k = 0; k < 16; k++) scale_eighths(out, k, d * (float)(2 * (u16_at(scales + k / 4 * 2) >> k % 4 * 3 & 7) + 1));
    for (int j = 0; j < 32; j++) {
        uint32_t rest = high[j / 2] >> j % 2 * 4;
        eighths(grid_iq1[p[j] | (rest & 7) << 8], rest >> 3 & 1, out->codes + 8 * j);
    }
}

/* ---- four bits: sixteen numbers, closer together around zero -------------------------------------------------------------- */

static const uint8_t meaning_4[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}; /* plus 128 */

static void bent_nibbles(const uint8_t *p, uint8_t *codes) {
    for (int i = 0; i < 16; i++) {
        codes[i] = meaning_4[p[i] & 15];
        codes[16 + i] = meaning_4[p[i] >> 4];
    }
}

void block_split_iq4_nl(const uint8_t *p, struct block_parts *out) {
    centred(out, 0, half_at(p));
    bent_nibbles(p + 2, out->codes);
}

void block_split_iq4_xs(const uint8_t *p, struct block_parts *out) {
    float d = half_at(p);
    uint32_t high = u16_at(p + 2);
    for (int k = 0; k < 8; k++) {
        int scale = (p[4 + k / 2] >> k % 2 * 4 & 15) | (int)(high >> 2 * k & 3) << 4;
        centred(out, k, d * (float)(scale - 32));
        bent_nibbles(p + 8 + 16 * k, out->codes + 32 * k);
    }
}
