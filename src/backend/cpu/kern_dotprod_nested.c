/* NEON with int8 dot products over nested panels. A span's groups are added up as whole numbers: one multiplication for a group and four rows, where
 * scales of f32 take a conversion and two multiplications. */
#include "backend/cpu/kern_arm.h"

enum { TILE = 4, QUADS = 4, STREAMS = 8, INPUTS = 16 };

INLINE int32x4_t dot_lane(int32x4_t sum, int8x16_t w, int8x16_t x, const int lane) {
    return lane == 0   ? vdotq_laneq_s32(sum, w, x, 0)
           : lane == 1 ? vdotq_laneq_s32(sum, w, x, 1)
           : lane == 2 ? vdotq_laneq_s32(sum, w, x, 2)
                       : vdotq_laneq_s32(sum, w, x, 3);
}

/* Codes of sixteen inputs of four rows, four inputs at a time. */
INLINE void load_codes(const unsigned char *p, const int bits, int8x16_t out[4]) {
    uint8x16_t first = vld1q_u8(p), second = vld1q_u8(p + PANEL_LINE), codes[4];
    if (bits == 4) {
        const uint8x16_t low = vdupq_n_u8(15);
        codes[0] = vandq_u8(first, low);
        codes[1] = vshrq_n_u8(first, 4);
        codes[2] = vandq_u8(second, low);
        codes[3] = vshrq_n_u8(second, 4);
    } else {
        const uint8x16_t all = vdupq_n_u8(63);
        uint8x16_t third = vld1q_u8(p + 2 * PANEL_LINE);
        codes[0] = vandq_u8(first, all);
        codes[1] = vandq_u8(second, all);
        codes[2] = vandq_u8(third, all);
        codes[3] = vshrq_n_u8(vsriq_n_u8(vsriq_n_u8(third, second, 2), first, 4), 2);
    }
    UNROLL for (int i = 0; i < 4; i++) out[i] = vreinterpretq_s8_u8(codes[i]);
}

/* Four bytes of sixteen as whole numbers. */
INLINE int32x4_t four_of(int8x16_t bytes, const int quad) {
    int16x8_t half = quad < 2 ? vmovl_s8(vget_low_s8(bytes)) : vmovl_high_s8(bytes);
    return quad % 2 == 0 ? vmovl_s16(vget_low_s16(half)) : vmovl_high_s16(half);
}

INLINE float32x4_t halves(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

/* ---- several rows ------------------------------------------------------------------------------------------------- */

/* One group: four sums for each of n rows and n_quads quads. */
INLINE void group_dot(const struct pack_shape *s, const unsigned char *p, const struct acts_row *at, const int n, const int n_quads,
                      const int bits, int32x4_t total[TILE][QUADS]) {
    int32x4_t rest[TILE][QUADS];
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < n_quads; i++) {
        total[m][i] = vdupq_n_s32(0);
        rest[m][i] = vdupq_n_s32(-s->centre * (int32_t)at->sum[m]);
    }
    for (int32_t k = 0; k < s->group; k += INPUTS, p += INPUTS * PANEL_ROWS * bits / 8) {
        int8x16_t x[TILE], fine[TILE];
        UNROLL for (int m = 0; m < n; m++) {
            x[m] = vld1q_s8(at->q + m * s->group + k);
            fine[m] = vld1q_s8(at->q + at->low + m * s->group + k);
        }
        UNROLL for (int i = 0; i < n_quads; i++) {
            int8x16_t w[4];
            load_codes(p + 16 * i, bits, w);
            UNROLL for (int m = 0; m < n; m++) UNROLL for (int j = 0; j < 4; j++) {
                total[m][i] = dot_lane(total[m][i], w[j], x[m], j);
                rest[m][i] = dot_lane(rest[m][i], w[j], fine[m], j);
            }
        }
    }
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < n_quads; i++) total[m][i] =
        vaddq_s32(rest[m][i], vshlq_n_s32(total[m][i], 4));
}

/* The biases' part of a span is a dot product, too, with groups as inputs. A sum has 17 bits: three bytes, which weigh 2^14, 2^7 and 1. */
enum { PIECES = 3, GROUPS_MAX = PACK_SPAN / 16, SPANS_MAX = PACK_NESTED_MAX / PACK_SPAN, PANEL_BLOCK = 4 };

struct split_sums {
    int8_t pieces[PIECES][GROUPS_MAX];
};

INLINE void split(const struct acts_row *x, int groups, struct split_sums *out) {
    for (int g = 0; g < groups; g++) {
        int32_t sum = (int32_t)x->sum[g * x->step];
        out->pieces[0][g] = (int8_t)(sum >> 14);
        out->pieces[1][g] = (int8_t)(sum >> 7 & 127);
        out->pieces[2][g] = (int8_t)(sum & 127);
    }
}

INLINE int32x4_t bias_dot(const int8_t *bias, const struct split_sums *sums, int groups, int quad) {
    int32x4_t out = vdupq_n_s32(0);
    bias += 16 * quad;
    UNROLL for (int i = 0; i < PIECES; i++) {
        int8x16_t x = vld1q_s8(sums->pieces[i]);
        out = vdotq_laneq_s32(vshlq_n_s32(out, 7), vld1q_s8(bias), x, 0);
        out = vdotq_laneq_s32(out, vld1q_s8(bias + PANEL_LINE), x, 1);
        if (groups == 8) continue;
        out = vdotq_laneq_s32(out, vld1q_s8(bias + 2 * PANEL_LINE), x, 2);
        out = vdotq_laneq_s32(out, vld1q_s8(bias + 3 * PANEL_LINE), x, 3);
    }
    return out;
}

/* n rows of activations from `row` on (in one tile) against quads [quad, quad + n_quads) of a panel. */
INLINE void tile(const struct panel_args *a, const unsigned char *p, int64_t row, float *y, const int quad, const int n, const int n_quads,
                 const int bits, const struct split_sums (*split)[TILE]) {
    const struct pack_shape *s = a->shape;
    struct acts_row x = acts_row_at(&a->x, row);
    float32x4_t acc[TILE][QUADS];
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < n_quads; i++) acc[m][i] = vdupq_n_f32(0);
    for (int64_t span = 0; span < s->in / PACK_SPAN; span++, p += s->span_bytes, x.scale += x.step) {
        struct pack_span at = pack_span_at(s, p);
        int32x4_t sums[TILE][QUADS];
        UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < n_quads; i++) sums[m][i] = vdupq_n_s32(0);
        for (int g = 0; g < PACK_SPAN / s->group; g++, x.q += x.q_step, x.sum += x.step) {
            int32x4_t total[TILE][QUADS];
            group_dot(s, p + (size_t)g * s->group_bytes + 16 * quad, &x, n, n_quads, bits, total);
            int8x16_t bytes = vld1q_s8(at.scale + g * PANEL_ROWS);
            UNROLL for (int i = 0; i < n_quads; i++) {
                int32x4_t weight = four_of(bytes, quad + i);
                UNROLL for (int m = 0; m < n; m++) sums[m][i] = vmlaq_s32(sums[m][i], total[m][i], weight);
            }
        }
        UNROLL for (int i = 0; i < n_quads; i++) UNROLL for (int m = 0; m < n; m++) {
            float32x4_t v = vmulq_f32(vcvtq_f32_s32(sums[m][i]), halves(at.scale_1 + 4 * (quad + i)));
            if (at.bias) {
                int32x4_t biases = bias_dot(at.bias, &split[span][m], PACK_SPAN / s->group, quad + i);
                v = vfmaq_f32(v, vcvtq_f32_s32(biases), halves(at.bias_1 + 4 * (quad + i)));
            }
            acc[m][i] = vfmaq_n_f32(acc[m][i], v, x.scale[m]);
        }
    }
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < n_quads; i++) vst1q_f32(y + m * a->y_stride + 4 * (quad + i), acc[m][i]);
}

/* Sums of n rows from `row` on. */
static void split_rows(const struct panel_args *a, int64_t row, int n, struct split_sums (*out)[TILE]) {
    int groups = PACK_SPAN / a->shape->group;
    for (int m = 0; m < n; m++) {
        struct acts_row x = acts_row_at(&a->x, row + m);
        for (int64_t span = 0; span < a->shape->in / PACK_SPAN; span++, x.sum += groups * x.step) split(&x, groups, &out[span][m]);
    }
}

/* Rows of a batch; what a tile of four leaves goes one by one. A few panels, which the first cache holds, share what is made of the sums. */
INLINE void rows(const struct panel_args *a, const int bits) {
    struct split_sums sums[SPANS_MAX][TILE];
    for (int64_t first = 0; first < a->n_panels; first += PANEL_BLOCK)
        for (int64_t m = 0; m < a->n_rows; m += TILE) {
            int64_t n = a->n_rows - m < TILE ? a->n_rows - m : TILE,
                    last = first + PANEL_BLOCK < a->n_panels ? first + PANEL_BLOCK : a->n_panels;
            if (a->shape->centre == 0) split_rows(a, m, (int)n, sums);
            for (int64_t i = first; i < last; i++) {
                const unsigned char *p = a->panels + (size_t)i * a->shape->panel_bytes;
                float *y = a->y + m * a->y_stride + i * PANEL_ROWS;
                if (n == TILE) {
                    tile(a, p, m, y, 0, TILE, 2, bits, (const struct split_sums(*)[TILE])sums);
                    tile(a, p, m, y, 2, TILE, 2, bits, (const struct split_sums(*)[TILE])sums);
                }
                for (int64_t k = 0; k < n && n < TILE; k++)
                    tile(a, p, m + k, y + k * a->y_stride, 0, 1, QUADS, bits, (const struct split_sums(*)[TILE]) & sums[0][k]);
            }
        }
}

/* ---- one row ------------------------------------------------------------------------------------------------------ */

/* One span of a panel. ahead: from a line to the one that is asked for. */
struct row_span {
    const struct pack_shape *shape;
    const unsigned char *p;
    size_t ahead;
    const int8_t *q;
    int64_t low, q_step;
    const float *sum;
    const struct split_sums *split;
    float scale;
    float *acc; /* [16] */
};

INLINE void row_group(const struct row_span *r, const unsigned char *p, const int8_t *q, int32_t lost, const int bits, const int group,
                      int32x4_t out[QUADS]) {
    int32x4_t high[QUADS];
    UNROLL for (int i = 0; i < QUADS; i++) high[i] = vdupq_n_s32(0), out[i] = vdupq_n_s32(-lost);
    /* unrolled, gcc would take one quad after the other, and each sum would wait for itself */
    ROLLED for (int k = 0; k < group; k += INPUTS, q += INPUTS) {
        int8x16_t x = vld1q_s8(q), fine = vld1q_s8(q + r->low);
        UNROLL for (int line = 0; line < bits / 2; line++) __builtin_prefetch(p + r->ahead + line * PANEL_LINE, 0, 3);
        UNROLL for (int i = 0; i < QUADS; i++) {
            int8x16_t w[4];
            load_codes(p + 16 * i, bits, w);
            UNROLL for (int j = 0; j < 4; j++) {
                high[i] = dot_lane(high[i], w[j], x, j);
                out[i] = dot_lane(out[i], w[j], fine, j);
            }
        }
        p += INPUTS * PANEL_ROWS * bits / 8;
    }
    UNROLL for (int i = 0; i < QUADS; i++) out[i] = vaddq_s32(out[i], vshlq_n_s32(high[i], 4));
}

INLINE void row_span(const struct row_span *whole, const int bits, const int group) {
    const struct row_span local = *whole, *r = &local; /* what is stored cannot change it */
    struct pack_span at = pack_span_at(r->shape, r->p);
    int32x4_t sums[QUADS];
    UNROLL for (int i = 0; i < QUADS; i++) sums[i] = vdupq_n_s32(0);
    for (int g = 0; g < PACK_SPAN / group; g++) {
        int32x4_t total[QUADS];
        int32_t sum = (int32_t)r->sum[g];
        row_group(r, r->p + (size_t)g * r->shape->group_bytes, r->q + g * r->q_step, r->shape->centre * sum, bits, group, total);
        int8x16_t bytes = vld1q_s8(at.scale + g * PANEL_ROWS);
        UNROLL for (int i = 0; i < QUADS; i++) sums[i] = vmlaq_s32(sums[i], total[i], four_of(bytes, i));
    }
    for (const unsigned char *p = (const unsigned char *)at.scale; p < r->p + r->shape->span_bytes; p += PANEL_LINE)
        __builtin_prefetch(p + r->ahead, 0, 3);
    UNROLL for (int i = 0; i < QUADS; i++) {
        float32x4_t v = vmulq_f32(vcvtq_f32_s32(sums[i]), halves(at.scale_1 + 4 * i));
        if (at.bias) v = vfmaq_f32(v, vcvtq_f32_s32(bias_dot(at.bias, r->split, PACK_SPAN / group, i)), halves(at.bias_1 + 4 * i));
        vst1q_f32(r->acc + 4 * i, vfmaq_n_f32(vld1q_f32(r->acc + 4 * i), v, r->scale));
    }
}

static NOINLINE void row_4_bits_32(const struct row_span *r) {
    row_span(r, 4, 32);
}
static NOINLINE void row_4_bits_16(const struct row_span *r) {
    row_span(r, 4, 16);
}
static NOINLINE void row_6_bits_32(const struct row_span *r) {
    row_span(r, 6, 32);
}
static NOINLINE void row_6_bits_16(const struct row_span *r) {
    row_span(r, 6, 16);
}

static void one_row(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    void (*span_of)(const struct row_span *) = s->group == 32 ? row_6_bits_32 : row_6_bits_16;
    if (s->code_bits == 4) span_of = s->group == 32 ? row_4_bits_32 : row_4_bits_16;
    int64_t spans = s->in / PACK_SPAN;
    for (int64_t panel = 0, n; panel < a->n_panels; panel += n) {
        float acc[STREAMS][PANEL_ROWS] = {{0}};
        struct acts_row x = acts_row_at(&a->x, 0);
        struct split_sums sums;
        struct row_span r = {.shape = s, .low = x.low, .q_step = x.q_step, .split = &sums};
        n = a->n_panels - panel < STREAMS ? a->n_panels - panel : STREAMS;
        for (int64_t span = 0; span < spans; span++) {
            r.q = x.q, r.sum = x.sum, r.scale = *x.scale;
            split(&x, PACK_SPAN / s->group, &sums);
            /* what is asked for: the span after this one, or the first one of a panel that comes next */
            r.ahead = s->span_bytes + (span + 1 < spans ? 0 : (size_t)(n - 1) * s->panel_bytes);
            for (int64_t i = 0; i < n; i++) {
                r.p = a->panels + (size_t)(panel + i) * s->panel_bytes + (size_t)span * s->span_bytes;
                r.acc = acc[i];
                span_of(&r);
            }
            x.q += PACK_SPAN / s->group * x.q_step, x.sum += PACK_SPAN / s->group * x.step, x.scale += x.step;
        }
        memcpy(a->y + panel * PANEL_ROWS, acc, (size_t)n * sizeof *acc);
    }
}

static void nested(const struct panel_args *a) {
    if (a->x.tile == 1) one_row(a);
    else if (a->shape->code_bits == 4) rows(a, 4);
    else rows(a, 6);
}

void kern_dotprod_nested(struct kernels *k) {
    k->nested = nested;
}
