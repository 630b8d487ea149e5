/* NEON with int8 dot products: sdot by lane multiplies four inputs of four rows with one lane of activations.
 *
 * Codes below 128 are valid as signed bytes. 8-bit codes are taken as code - 128, and 128 times the sum of the
 * activations is added back, which is exact.
 */
#include "backend/cpu/kern_arm.h"

/* Four registers of four rows are a panel. Sums of four rows of activations, high and low bytes apart, fill the registers
 * for two of the quads: several rows take a panel in two halves. */
enum { TILE = 4, QUADS = 4 };

INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t w, int8x16_t x, const int lane) {
    return lane == 0   ? vdotq_laneq_s32(sum, w, x, 0)
           : lane == 1 ? vdotq_laneq_s32(sum, w, x, 1)
           : lane == 2 ? vdotq_laneq_s32(sum, w, x, 2)
                       : vdotq_laneq_s32(sum, w, x, 3);
}

/* One group of 8-bit codes: four sums for each of n rows and n_quads quads. Eight inputs at a time come as two 64-bit loads per row. */
INLINE void group_dot(const struct panel_args *a, const unsigned char *p, const struct acts_row *at, const int n, const int n_quads,
                      float32x4_t total[TILE][QUADS]) {
    const uint8x16_t top = vdupq_n_u8(128);
    const int8_t *q = at->q;
    int32x4_t high[TILE][QUADS], rest[TILE][QUADS];
    for (int m = 0; m < n; m++) /* code - 128 leaves 128 times the sum of the activations out */
        for (int i = 0; i < n_quads; i++) high[m][i] = vdupq_n_s32(0), rest[m][i] = vdupq_n_s32(128 * (int32_t)at->sum[m]);
    for (int32_t k = 0; k < a->shape->group; k += 8, p += 2 * PANEL_LINE) {
        int8x8_t x[TILE], fine[TILE];
        for (int m = 0; m < n; m++) {
            x[m] = vld1_s8(q + m * a->shape->group + k);
            fine[m] = vld1_s8(q + at->low + m * a->shape->group + k);
        }
        for (int i = 0; i < n_quads; i++) {
            int8x16_t w0 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p + 16 * i), top));
            int8x16_t w1 = vreinterpretq_s8_u8(veorq_u8(vld1q_u8(p + PANEL_LINE + 16 * i), top));
            for (int m = 0; m < n; m++) {
                high[m][i] = vdotq_lane_s32(high[m][i], w0, x[m], 0);
                high[m][i] = vdotq_lane_s32(high[m][i], w1, x[m], 1);
                rest[m][i] = vdotq_lane_s32(rest[m][i], w0, fine[m], 0);
                rest[m][i] = vdotq_lane_s32(rest[m][i], w1, fine[m], 1);
            }
        }
    }
    for (int m = 0; m < n; m++)
        for (int i = 0; i < n_quads; i++) total[m][i] = vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(high[m][i], 4), rest[m][i]));
}

/* Several rows against 4-bit codes: three products of bytes for two inputs, where high and low bytes would take four.
 *
 * A byte of a panel holds two codes, w0 + 16 w1, and is multiplied as it is. Of the two inputs x0 and x1 that belong to them,
 *
 *   a   is x0 modulo 16, such that   c = x1 - 16 a   is a byte: of sixteen neighbours one is
 *   b = (x0 - a) / 16   is a byte, too
 *   w0 x0 + w1 x1 = 16 (w0 b) + (w0 + 16 w1) a + w1 c
 *
 * which is exact, and all three are bytes as long as inputs are within ACTS_MAX. The byte of codes is taken as code - 128: 128 times the sum of the a of a
 * group, which its first sixteen bytes end with, is added back. Of eight inputs, four are x0 and four x1; a row has them as four b, a and c and
 * four bytes more: [groups][group / 8][rows of a tile][16]. */
enum { PAIR_BYTES = 16, PAIR_SUM = 12 };

INLINE int8_t *pairs_of(const struct quant_acts *x, int64_t row, const struct acts_row *at) {
    return at->q + row % x->tile * (PAIR_BYTES - x->group);
}

INLINE void pairs_dot(const struct panel_args *a, const unsigned char *p, const int8_t *q, const int n, const int n_quads,
                      float32x4_t total[TILE][QUADS]) {
    int32x4_t high[TILE][QUADS], rest[TILE][QUADS];
    const int64_t step = (int64_t)PAIR_BYTES * a->x.tile;
    for (int m = 0; m < n; m++) {
        int32_t lost;
        memcpy(&lost, q + m * PAIR_BYTES + PAIR_SUM, sizeof lost);
        for (int i = 0; i < n_quads; i++) high[m][i] = vdupq_n_s32(0), rest[m][i] = vdupq_n_s32(lost + ARM_START);
    }
    for (int32_t k = 0; k < a->shape->group; k += 8, p += PANEL_LINE, q += step) {
        int8x16_t x[TILE];
        for (int m = 0; m < n; m++) x[m] = vld1q_s8(q + m * PAIR_BYTES);
        for (int i = 0; i < n_quads; i++) {
            uint8x16_t w = vld1q_u8(p + 16 * i);
            int8x16_t w0 = vreinterpretq_s8_u8(vandq_u8(w, vdupq_n_u8(15))), w1 = vreinterpretq_s8_u8(vshrq_n_u8(w, 4));
            int8x16_t both = vreinterpretq_s8_u8(veorq_u8(w, vdupq_n_u8(128)));
            for (int m = 0; m < n; m++) {
                high[m][i] = vdotq_laneq_s32(high[m][i], w0, x[m], 0);
                rest[m][i] = vdotq_laneq_s32(rest[m][i], both, x[m], 1);
                rest[m][i] = vdotq_laneq_s32(rest[m][i], w1, x[m], 2);
            }
        }
    }
    for (int m = 0; m < n; m++)
        for (int i = 0; i < n_quads; i++) total[m][i] = arm_float(vmlaq_s32(rest[m][i], high[m][i], vdupq_n_s32(16)));
}

/* n rows of activations from `row` on (in one tile) against quads [quad, quad + n_quads) of a panel. */
INLINE void tile(const struct panel_args *a, const unsigned char *p, int64_t row, float *y, int quad, const int n, const int n_quads,
                 const int bits, const int narrow) {
    const struct pack_shape *s = a->shape;
    struct acts_row x = acts_row_at(&a->x, row);
    const int8_t *pairs = pairs_of(&a->x, row, &x);
    size_t code_bytes = s->group_bytes - (narrow ? 64 : 128);
    float32x4_t acc[TILE][QUADS];
    for (int m = 0; m < n; m++)
        for (int i = 0; i < n_quads; i++) acc[m][i] = vdupq_n_f32(0);
    for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
        float32x4_t inner[TILE][QUADS];
        for (int m = 0; m < n; m++)
            for (int i = 0; i < n_quads; i++) inner[m][i] = vdupq_n_f32(0);
        for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
            float32x4_t total[TILE][QUADS];
            if (bits == 4) pairs_dot(a, p + 16 * quad, pairs, n, n_quads, total), pairs += x.q_step;
            else group_dot(a, p + 16 * quad, &x, n, n_quads, total);
            for (int i = 0; i < n_quads; i++) {
                float32x4_t scale = arm_scales(p + code_bytes, 4 * (quad + i), narrow),
                            bias = arm_scales(p + code_bytes, PANEL_ROWS + 4 * (quad + i), narrow);
                for (int m = 0; m < n; m++) {
                    inner[m][i] = vfmaq_f32(inner[m][i], total[m][i], scale);
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

/* Rows of a batch, four at a time; what that leaves goes together, too. */
INLINE void rows(const struct panel_args *a, const int bits, const int narrow) {
    const unsigned char *p = a->panels;
    for (int64_t i = 0; i < a->n_panels; i++, p += a->shape->panel_bytes) {
        float *y = a->y + i * PANEL_ROWS;
        int64_t m = 0;
        for (; m + TILE <= a->n_rows; m += TILE)
            for (int quad = 0; quad < QUADS; quad += 2) tile(a, p, m, y + m * a->y_stride, quad, TILE, 2, bits, narrow);
        y += m * a->y_stride;
        if (a->n_rows - m == 3)
            for (int quad = 0; quad < QUADS; quad += 2) tile(a, p, m, y, quad, 3, 2, bits, narrow);
        if (a->n_rows - m == 2 && bits == 4)
            for (int quad = 0; quad < QUADS; quad += 2) tile(a, p, m, y, quad, 2, 2, bits, narrow);
        if (a->n_rows - m == 2 && bits == 8) tile(a, p, m, y, 0, 2, QUADS, bits, narrow);
        if (a->n_rows - m == 1) tile(a, p, m, y, 0, 1, QUADS, bits, narrow);
    }
}

/* ---- one row ------------------------------------------------------------------------------------------------------ */

/* The integers of a panel's group by high and low bytes. Returns where its scales are. */
INLINE const unsigned char *row_products(const unsigned char *p, const struct arm_row_group *r, int32_t group, int32x4_t high[QUADS],
                                         int32x4_t low[QUADS], const int bits) {
    const int8_t *q = r->q;
    /* unrolled, gcc would take one quad after the other, and each sum would wait for itself */
    ROLLED for (int32_t k = 0; k < group; k += 16, q += 16) {
        int8x16_t x = vld1q_s8(q), fine = vld1q_s8(q + r->low);
        UNROLL for (int j = 0; j < bits / 2; j++) __builtin_prefetch(p + r->ahead + j * PANEL_LINE, 0, 3);
        UNROLL for (int j = 0; j < bits / 2; j++, p += PANEL_LINE) UNROLL for (int i = 0; i < QUADS; i++) {
            uint8x16_t w = vld1q_u8(p + 16 * i);
            int8x16_t w0 = vreinterpretq_s8_u8(bits == 4 ? vandq_u8(w, vdupq_n_u8(15)) : veorq_u8(w, vdupq_n_u8(128)));
            int8x16_t w1 = vreinterpretq_s8_u8(vshrq_n_u8(w, 4));
            high[i] = dot_lane(high[i], w0, x, bits == 4 ? 2 * j : j);
            low[i] = dot_lane(low[i], w0, fine, bits == 4 ? 2 * j : j);
            if (bits == 8) continue;
            high[i] = dot_lane(high[i], w1, x, 2 * j + 1);
            low[i] = dot_lane(low[i], w1, fine, 2 * j + 1);
        }
    }
    return p;
}

INLINE void row_panels(const struct arm_row_group *whole, const int32_t group, const int bits, const int narrow) {
    const struct arm_row_group local = *whole, *r = &local; /* what is stored cannot change it */
    const struct arm_begin *begin = arm_begin();
    const int32x4_t lost = vdupq_n_s32(128 * (int32_t)r->sum); /* what code - 128 leaves out */
    for (int64_t i = 0; i < r->n_panels; i++) {
        int32x4_t high[QUADS], low[QUADS];
        float *inner = r->inner[i];
        UNROLL for (int j = 0; j < QUADS; j++) {
            high[j] = vld1q_s32(begin->zero + 4 * j);
            low[j] = bits == 4 ? vld1q_s32(begin->start + 4 * j) : lost;
        }
        const unsigned char *p = row_products(r->p + (size_t)i * r->panel_bytes, r, group, high, low, bits);
        __builtin_prefetch(p + r->ahead, 0, 3);
        UNROLL for (int j = 0; j < QUADS; j++) {
            int32x4_t whole_sum = vmlaq_s32(low[j], high[j], vdupq_n_s32(16));
            float32x4_t v = vld1q_f32(inner + 4 * j);
            v = vfmaq_f32(v, bits == 4 ? arm_float(whole_sum) : vcvtq_f32_s32(whole_sum), arm_scales(p, 4 * j, narrow));
            vst1q_f32(inner + 4 * j, vfmaq_n_f32(v, arm_scales(p, PANEL_ROWS + 4 * j, narrow), r->sum));
        }
    }
}

ARM_ROW_KERNELS(row_panels)

static void panel(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    if (a->n_rows == 1 && (s->code_bits == 8 || a->x.tile == 1)) {
        arm_one_row(a, &row_kernels);
    } else if (s->code_bits == 4) {
        if (s->narrow_scales) rows(a, 4, 1);
        else rows(a, 4, 0);
    } else {
        if (s->narrow_scales) rows(a, 8, 1);
        else rows(a, 8, 0);
    }
}

/* Eight inputs as four b, a and c. Returns the four a. */
INLINE int32x4_t put_pairs(int8_t *q, int32x4_t x0, int32x4_t x1) {
    int32x4_t a = vshrq_n_s32(vaddq_s32(x1, vdupq_n_s32(128)), 4); /* the largest whose c is a byte */
    a = vsubq_s32(a, vandq_s32(vsubq_s32(a, x0), vdupq_n_s32(15)));
    int32x4_t b = vshrq_n_s32(vsubq_s32(x0, a), 4), c = vsubq_s32(x1, vshlq_n_s32(a, 4));
    int16x8_t front = vcombine_s16(vmovn_s32(b), vmovn_s32(a)), back = vcombine_s16(vmovn_s32(c), vdup_n_s16(0));
    vst1q_s8(q, vcombine_s8(vmovn_s16(front), vmovn_s16(back)));
    return a;
}

static float pair_group(const float *x, const struct quant_acts *out, float inverse, int8_t *q) {
    int32x4_t total = vdupq_n_s32(0), lost = total;
    int64_t step = (int64_t)PAIR_BYTES * out->tile;
    for (int32_t k = 0; k < out->group; k += 8) {
        int32x4_t x0 = arm_round(x + k, inverse), x1 = arm_round(x + k + 4, inverse);
        total = vaddq_s32(total, vaddq_s32(x0, x1));
        lost = vaddq_s32(lost, put_pairs(q + k / 8 * step, x0, x1));
    }
    int32_t sum = 128 * vaddvq_s32(lost);
    memcpy(q + PAIR_SUM, &sum, sizeof sum);
    return (float)vaddvq_s32(total);
}

static void pair_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row at = acts_row_at(out, row);
    int8_t *q = pairs_of(out, row, &at);
    for (int64_t g = 0; g < out->n_groups; at.scale += at.step) {
        int64_t end = g + acts_span_groups(out, g);
        float inverse = arm_quant_span(x, (end - g) * out->group, (float)ACTS_MAX, at.scale);
        for (; g < end; g++, x += out->group, q += at.q_step, at.sum += at.step) *at.sum = pair_group(x, out, inverse, q);
    }
}

static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row at = acts_row_at(out, row);
    if (out->bits == 4 && out->tile > 1) pair_row(x, out, row);
    else arm_quant_row(x, out, at, (struct arm_place){at.q, at.low, 8}, 0);
}

void kern_dotprod(struct kernels *k) {
    k->isa = "neon-dotprod";
    k->quant_row = quant_row;
    k->panel = panel;
    k->row_more = 0.5f; /* of 4-bit codes, products alone: 2 rows take 1.5, 4 rows 2.6 and 8 rows 5.2 */
}
