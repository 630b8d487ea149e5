/* NEON with int8 matrix products: usmmla multiplies two rows of codes with two rows of activations, eight inputs at a time.
 *
 * A line of a panel holds four inputs of each row; one zip of two quads of inputs makes rows of eight. Activations of a
 * batch lie in pairs of rows, eight inputs of the one and then of the other, so that a pair is one load; a single row
 * lies as it is and is left to the dot products. Integer sums are exact: the results are the same bits as theirs.
 */
#include "backend/cpu/kern.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

enum { QUADS = 4, ROWS_MAX = 8 };

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

/* Eight inputs of four rows: the first two rows, the last two. */
INLINE void load_codes(const unsigned char *p, const int bits, uint8x16_t *first, uint8x16_t *second) {
    uint8x16_t w0, w1;
    if (bits == 4) {
        uint8x16_t w = vld1q_u8(p);
        w0 = vandq_u8(w, vdupq_n_u8(15));
        w1 = vshrq_n_u8(w, 4);
    } else {
        w0 = vld1q_u8(p);
        w1 = vld1q_u8(p + PANEL_LINE);
    }
    *first = vreinterpretq_u8_u32(vzip1q_u32(vreinterpretq_u32_u8(w0), vreinterpretq_u32_u8(w1)));
    *second = vreinterpretq_u8_u32(vzip2q_u32(vreinterpretq_u32_u8(w0), vreinterpretq_u32_u8(w1)));
}

/* n rows of activations (pairs from q on) against four rows of a panel; `kept` of the results are stored. */
INLINE void tile(const struct panel_args *a, const unsigned char *p, struct acts_row x, float *y, int64_t kept, int quad, const int n,
                 const int bits, const int narrow) {
    const struct pack_shape *s = a->shape;
    size_t code_bytes = s->group_bytes - (narrow ? 64 : 128);
    float32x4_t acc[ROWS_MAX];
    float32x4_t inner[ROWS_MAX];
    for (int m = 0; m < n; m++) acc[m] = inner[m] = vdupq_n_f32(0);
    for (int64_t g = 0; g < a->x.n_groups; p += s->group_bytes) {
        int32x4_t total[ROWS_MAX / 2][2], rest[ROWS_MAX / 2][2];
        const unsigned char *line = p + 16 * quad;
        for (int i = 0; i < n / 2; i++) total[i][0] = total[i][1] = rest[i][0] = rest[i][1] = vdupq_n_s32(0);
        for (int32_t k = 0; k < s->group; k += 8, line += bits == 4 ? PANEL_LINE : 2 * PANEL_LINE) {
            uint8x16_t first, second;
            load_codes(line, bits, &first, &second);
            for (int i = 0; i < n / 2; i++) {
                const int8_t *q = x.q + i * 2 * s->group + 2 * k;
                int8x16_t pair = vld1q_s8(q), fine = vld1q_s8(q + x.low);
                total[i][0] = vusmmlaq_s32(total[i][0], first, pair);
                total[i][1] = vusmmlaq_s32(total[i][1], second, pair);
                rest[i][0] = vusmmlaq_s32(rest[i][0], first, fine);
                rest[i][1] = vusmmlaq_s32(rest[i][1], second, fine);
            }
        }
        for (int i = 0; i < n / 2; i++)
            for (int j = 0; j < 2; j++) total[i][j] = vaddq_s32(vshlq_n_s32(total[i][j], 4), rest[i][j]);
        float32x4_t scale, bias;
        load_scales(p + code_bytes, narrow, quad, &scale, &bias);
        for (int m = 0; m < n; m++) {
            int32x4_t *t = total[m / 2], row = m % 2 ? vuzp2q_s32(t[0], t[1]) : vuzp1q_s32(t[0], t[1]);
            inner[m] = vfmaq_f32(inner[m], vcvtq_f32_s32(row), scale);
            inner[m] = vfmaq_n_f32(inner[m], bias, x.sum[m]);
        }
        x.q += x.q_step, x.sum += x.step;
        if (++g % (ACTS_SPAN / s->group) && g < a->x.n_groups) continue;
        for (int m = 0; m < n; m++) {
            acc[m] = vfmaq_n_f32(acc[m], inner[m], x.scale[m]);
            inner[m] = vdupq_n_f32(0);
        }
        x.scale += x.step;
    }
    for (int m = 0; m < n; m++)
        if (m < kept) vst1q_f32(y + m * a->y_stride + 4 * quad, acc[m]);
}

INLINE void rows(const struct panel_args *a, const int bits, const int narrow) {
    const unsigned char *p = a->panels;
    for (int64_t i = 0; i < a->n_panels; i++, p += a->shape->panel_bytes)
        for (int64_t m = 0; m < a->n_rows;) {
            int64_t left = a->n_rows - m;
            float *y = a->y + m * a->y_stride + i * PANEL_ROWS;
            struct acts_row x = acts_row_at(&a->x, m);
            for (int quad = 0; quad < QUADS; quad++) {
                if (left > 4) tile(a, p, x, y, left, quad, 8, bits, narrow);
                else tile(a, p, x, y, left, quad, 4, bits, narrow);
            }
            m += left > 4 ? 8 : 4;
        }
}

static void panel(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    if (a->x.tile == 1) {
        kern_dotprod_panel(a);
    } else if (s->code_bits == 4) {
        if (s->narrow_scales) rows(a, 4, 1);
        else rows(a, 4, 0);
    } else {
        if (s->narrow_scales) rows(a, 8, 1);
        else rows(a, 8, 0);
    }
}

/* A row is quantised as it is, and then laid beside its partner. */
static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    if (out->tile == 1) {
        kern_dotprod_quant_row(x, out, row);
        return;
    }
    struct acts_row to = acts_row_at(out, row & ~(int64_t)1);
    to.q += row % 2 * 8, to.scale += row % 2, to.sum += row % 2;
    for (int64_t g = 0; g < out->n_groups; to.scale += to.step) {
        int8_t span[ACTS_TERMS * ACTS_SPAN], *q = span;
        float sums[ACTS_SPAN / 16], *sum = sums;
        struct quant_acts one = {.q = span, .scale = to.scale, .sum = sums, .group = out->group, .tile = 1};
        one.n_groups = acts_span_groups(out, g), one.in = one.n_groups * one.group;
        kern_dotprod_quant_row(x, &one, 0);
        x += one.in;
        for (int64_t end = g + one.n_groups; g < end; g++, q += ACTS_TERMS * out->group, to.q += to.q_step, to.sum += to.step) {
            *to.sum = *sum++;
            for (int32_t k = 0; k < out->group; k += 8) {
                memcpy(to.q + 2 * k, q + k, 8);
                memcpy(to.q + to.low + 2 * k, q + out->group + k, 8);
            }
        }
    }
}

void kern_i8mm(struct kernels *k) {
    k->isa = "neon-i8mm";
    k->quant_row = quant_row;
    k->panel = panel;
}
