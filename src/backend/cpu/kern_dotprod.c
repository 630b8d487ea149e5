/* NEON with int8 dot products: sdot by lane multiplies four inputs of four rows with one lane of activations.
 *
 * Codes below 128 are valid as signed bytes. 8-bit codes are taken as code - 128, and 128 times the sum of the
 * activations is added back, which is exact.
 */
#include "backend/cpu/kern.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

/* Four registers of four rows are a panel. Sums of four rows of activations, high and low bytes apart, fill the registers
 * for two of the quads: several rows take a panel in two halves. */
enum { TILE = 4, QUADS = 4 };

INLINE void load_scales(const unsigned char *p, int narrow, int quad, float32x4_t *scale, float32x4_t *bias) {
    if (narrow) {
        const uint16_t *h = (const uint16_t *)(const void *)p;
        *scale = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(h + 4 * quad), 16));
        *bias = vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(h + PANEL_ROWS + 4 * quad), 16));
    } else {
        const float *f = (const float *)(const void *)p;
        *scale = vld1q_f32(f + 4 * quad);
        *bias = vld1q_f32(f + PANEL_ROWS + 4 * quad);
    }
}

/* One group: four sums for each of n rows and n_quads quads. Eight inputs at a time come as two 64-bit loads per row. */
INLINE void group_dot(const struct panel_args *a, const unsigned char *p, const int8_t *q, int64_t below, const int n, const int n_quads,
                      const int bits, int32x4_t total[TILE][QUADS]) {
    const uint8x16_t low = vdupq_n_u8(15);
    int32x4_t rest[TILE][QUADS];
    int32_t sums[TILE] = {0};
    for (int m = 0; m < n; m++)
        for (int i = 0; i < n_quads; i++) total[m][i] = rest[m][i] = vdupq_n_s32(0);
    for (int32_t k = 0; k < a->shape->group; k += 8) {
        int8x8_t x[TILE], fine[TILE];
        for (int m = 0; m < n; m++) {
            x[m] = vld1_s8(q + m * a->shape->group + k);
            fine[m] = vld1_s8(q + below + m * a->shape->group + k);
        }
        for (int i = 0; i < n_quads; i++) {
            int8x16_t w0, w1;
            if (bits == 4) {
                uint8x16_t w = vld1q_u8(p + 16 * i);
                w0 = vreinterpretq_s8_u8(vandq_u8(w, low));
                w1 = vreinterpretq_s8_u8(vshrq_n_u8(w, 4));
            } else {
                const uint8x16_t top = vdupq_n_u8(128);
                w0 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p + 16 * i), top));
                w1 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p + PANEL_LINE + 16 * i), top));
            }
            for (int m = 0; m < n; m++) {
                total[m][i] = vdotq_lane_s32(total[m][i], w0, x[m], 0);
                total[m][i] = vdotq_lane_s32(total[m][i], w1, x[m], 1);
                rest[m][i] = vdotq_lane_s32(rest[m][i], w0, fine[m], 0);
                rest[m][i] = vdotq_lane_s32(rest[m][i], w1, fine[m], 1);
            }
        }
        if (bits == 8)
            for (int m = 0; m < n; m++) sums[m] += 16 * vaddlv_s8(x[m]) + vaddlv_s8(fine[m]);
        p += bits == 4 ? PANEL_LINE : 2 * PANEL_LINE;
    }
    for (int m = 0; m < n; m++)
        for (int i = 0; i < n_quads; i++) {
            total[m][i] = vaddq_s32(vshlq_n_s32(total[m][i], 4), rest[m][i]);
            if (bits == 8) total[m][i] = vaddq_s32(total[m][i], vdupq_n_s32(128 * sums[m]));
        }
}

/* n rows of activations from `row` on (in one tile) against quads [quad, quad + n_quads) of a panel. */
INLINE void tile(const struct panel_args *a, const unsigned char *p, int64_t row, float *y, int quad, const int n, const int n_quads,
                 const int bits, const int narrow) {
    const struct pack_shape *s = a->shape;
    struct acts_row x = acts_row_at(&a->x, row);
    size_t code_bytes = s->group_bytes - (narrow ? 64 : 128);
    float32x4_t acc[TILE][QUADS];
    for (int m = 0; m < n; m++)
        for (int i = 0; i < n_quads; i++) acc[m][i] = vdupq_n_f32(0);
    for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
        float32x4_t inner[TILE][QUADS];
        for (int m = 0; m < n; m++)
            for (int i = 0; i < n_quads; i++) inner[m][i] = vdupq_n_f32(0);
        for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
            int32x4_t total[TILE][QUADS];
            group_dot(a, p + 16 * quad, x.q, x.low, n, n_quads, bits, total);
            for (int i = 0; i < n_quads; i++) {
                float32x4_t scale, bias;
                load_scales(p + code_bytes, narrow, quad + i, &scale, &bias);
                for (int m = 0; m < n; m++) {
                    inner[m][i] = vfmaq_f32(inner[m][i], vcvtq_f32_s32(total[m][i]), scale);
                    inner[m][i] = vfmaq_n_f32(inner[m][i], bias, x.sum[m]);
                }
            }
        }
        for (int m = 0; m < n; m++)
            for (int i = 0; i < n_quads; i++) acc[m][i] = vfmaq_n_f32(acc[m][i], inner[m][i], x.scale[m]);
    }
    for (int m = 0; m < n; m++)
        for (int i = 0; i < n_quads; i++) vst1q_f32(y + m * a->y_stride + 4 * (quad + i), acc[m][i]);
}

INLINE void rows(const struct panel_args *a, const int bits, const int narrow) {
    const unsigned char *p = a->panels;
    for (int64_t i = 0; i < a->n_panels; i++, p += a->shape->panel_bytes) {
        float *y = a->y + i * PANEL_ROWS;
        int64_t m = 0;
        for (; m + TILE <= a->n_rows; m += TILE)
            for (int quad = 0; quad < QUADS; quad += 2) tile(a, p, m, y + m * a->y_stride, quad, TILE, 2, bits, narrow);
        for (; m < a->n_rows; m++) tile(a, p, m, y + m * a->y_stride, 0, 1, QUADS, bits, narrow);
    }
}

void kern_dotprod_panel(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    if (s->code_bits == 4) {
        if (s->narrow_scales) rows(a, 4, 1);
        else rows(a, 4, 0);
    } else {
        if (s->narrow_scales) rows(a, 8, 1);
        else rows(a, 8, 0);
    }
}

/* One group by its span's factor; returns the sum of its numbers. */
INLINE float quant_group(const float *x, int32_t group, float inverse, int8_t *to, int64_t below) {
    int32x4_t total = vdupq_n_s32(0);
    for (int32_t i = 0; i < group; i += 8) {
        int32x4_t v0 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i), inverse)),
                  v1 = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + i + 4), inverse));
        total = vaddq_s32(total, vaddq_s32(v0, v1));
        int16x8_t q = vcombine_s16(vmovn_s32(v0), vmovn_s32(v1)), high = vshrq_n_s16(vaddq_s16(q, vdupq_n_s16(8)), 4);
        vst1_s8(to + i, vmovn_s16(high));
        vst1_s8(to + below + i, vmovn_s16(vsubq_s16(q, vshlq_n_s16(high, 4))));
    }
    return (float)vaddvq_s32(total);
}

void kern_dotprod_quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row to = acts_row_at(out, row);
    for (int64_t g = 0; g < out->n_groups; to.scale += to.step) {
        int64_t end = g + acts_span_groups(out, g), n = (end - g) * out->group;
        float32x4_t max = vdupq_n_f32(0);
        uint32x4_t fine = vdupq_n_u32(UINT32_MAX);
        for (int64_t i = 0; i < n; i += 4) {
            float32x4_t v = vabsq_f32(vld1q_f32(x + i));
            fine = vandq_u32(fine, vcleq_f32(v, vdupq_n_f32(3.4e38f)));
            max = vmaxnmq_f32(max, v);
        }
        int odd = vminvq_u32(fine) == 0;
        float most = vmaxvq_f32(max), inverse = most > ACTS_LEAST && !odd ? (float)ACTS_MAX / most : 0;
        *to.scale = odd ? __builtin_nanf("") : most * (1.0f / (float)ACTS_MAX);
        for (; g < end; g++, x += out->group, to.q += to.q_step, to.sum += to.step)
            *to.sum = quant_group(x, out->group, inverse, to.q, to.low);
    }
}

void kern_dotprod(struct kernels *k) {
    k->isa = "neon-dotprod";
    k->quant_row = kern_dotprod_quant_row;
    k->panel = kern_dotprod_panel;
}
