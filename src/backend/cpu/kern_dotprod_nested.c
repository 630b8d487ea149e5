/* NEON with int8 dot products over nested panels, activations of one byte. A span's groups are added up as whole numbers: one multiplication for a
 * group and four rows, where scales of f32 take a conversion and two multiplications.
 *
 * Several rows share codes that are spread into bytes once: products are then loads, which have pipes of their own, and dot products.
 */
#include "backend/cpu/kern_arm.h"

enum { TILE = 4, QUADS = 4, HALF = 2, STREAMS = 8, INPUTS = 16, GROUPS_MAX = PACK_SPAN / 16 };

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

/* ---- sums --------------------------------------------------------------------------------------------------------- */

/* The biases' part of a span is a dot product, too, with groups as inputs. A group's sum has 13 bits, two bytes that weigh 128 and 1; the
 * whole stays below 2^22. A row has for each span the first bytes of all groups, the second ones, and the sums as they are, which is what the sums of ordinary panels take. */
INLINE int8_t *sums_at(const struct quant_acts *x, int64_t row, int64_t span) {
    int64_t first = row / x->tile * x->tile, groups = PACK_SPAN / x->group;
    return (int8_t *)(x->sum + first * x->n_groups + (span * x->tile + row % x->tile) * groups);
}

INLINE const int16_t *whole_sums(const int8_t *sums, const int groups) {
    return (const int16_t *)(const void *)(sums + 2 * groups);
}

INLINE float32x4_t bias_dot(const int8_t *bias, const int8_t *sums, const int groups, int quad) {
    int32x4_t out = vdupq_n_s32(ARM_START >> 7);
    bias += 16 * quad;
    if (groups == 8) {
        int8x16_t x = vld1q_s8(sums), b0 = vld1q_s8(bias), b1 = vld1q_s8(bias + PANEL_LINE);
        out = vshlq_n_s32(vdotq_laneq_s32(vdotq_laneq_s32(out, b0, x, 0), b1, x, 1), 7);
        return arm_float(vdotq_laneq_s32(vdotq_laneq_s32(out, b0, x, 2), b1, x, 3));
    }
    UNROLL for (int i = 0; i < 2; i++) {
        int8x16_t x = vld1q_s8(sums + i * groups);
        if (i) out = vshlq_n_s32(out, 7);
        UNROLL for (int j = 0; j < 4; j++) out = dot_lane(out, vld1q_s8(bias + j * PANEL_LINE), x, j);
    }
    return arm_float(out);
}

/* A span of a row to bytes. */
INLINE void quant_span(const float *x, float inverse, int32_t group, int8_t *q, int64_t q_step, int8_t *sums) {
    int groups = PACK_SPAN / group;
    int16_t *whole = (int16_t *)(void *)(sums + 2 * groups);
    for (int g = 0; g < groups; g++, q += q_step) {
        int16x8_t total = vdupq_n_s16(0);
        for (int32_t i = 0; i < group; i += 16, x += 16) {
            int16x8_t low = vcombine_s16(vmovn_s32(arm_round(x, inverse)), vmovn_s32(arm_round(x + 4, inverse)));
            int16x8_t high = vcombine_s16(vmovn_s32(arm_round(x + 8, inverse)), vmovn_s32(arm_round(x + 12, inverse)));
            total = vaddq_s16(total, vaddq_s16(low, high));
            vst1q_s8(q + i, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
        }
        int16_t sum = vaddvq_s16(total);
        sums[g] = (int8_t)(sum >> 7), sums[groups + g] = (int8_t)(sum & 127), whole[g] = sum;
    }
}

static void nested_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row at = acts_row_at(out, row);
    int64_t span_step = PACK_SPAN / out->group * at.q_step;
    for (int64_t span = 0; span < out->in / PACK_SPAN; span++, x += PACK_SPAN, at.q += span_step, at.scale += at.step) {
        float inverse = arm_quant_span(x, PACK_SPAN, (float)ACTS_BYTE_MAX, at.scale);
        quant_span(x, inverse, out->group, at.q, at.q_step, sums_at(out, row, span));
    }
}

/* ---- several rows ------------------------------------------------------------------------------------------------- */

enum { BLOCK_SPANS = 4 }; /* that are spread at a time: the first cache holds them */

/* A span of a panel. A half of it, eight rows, lies together: four inputs of each row. */
struct spread {
    int8_t codes[HALF][PACK_SPAN * PANEL_ROWS / HALF];
    int32_t scale[GROUPS_MAX][PANEL_ROWS];
    float scale_1[PANEL_ROWS], bias_1[PANEL_ROWS];
    const int8_t *bias;
};

INLINE void spread_codes(const unsigned char *p, int32_t centre, struct spread *out, const int bits) {
    const int8x16_t zero = vdupq_n_s8((int8_t)centre);
    for (int k = 0; k < PACK_SPAN; k += INPUTS, p += INPUTS * PANEL_ROWS * bits / 8) UNROLL for (int i = 0; i < QUADS; i++) {
            int8x16_t w[4];
            load_codes(p + 16 * i, bits, w);
            UNROLL for (int j = 0; j < 4; j++) vst1q_s8(out->codes[i / HALF] + (k / 4 + j) * 32 + i % HALF * 16, vsubq_s8(w[j], zero));
        }
}

static void spread(const struct pack_shape *s, const unsigned char *p, struct spread *out) {
    struct pack_span at = pack_span_at(s, p);
    if (s->code_bits == 4) spread_codes(p, s->centre, out, 4);
    else spread_codes(p, s->centre, out, 6);
    for (int g = 0; g < PACK_SPAN / s->group; g++)
        UNROLL for (int i = 0; i < QUADS; i++) vst1q_s32(out->scale[g] + 4 * i, four_of(vld1q_s8(at.scale + g * PANEL_ROWS), i));
    out->bias = at.bias;
    for (int i = 0; i < QUADS; i++) {
        vst1q_f32(out->scale_1 + 4 * i, halves(at.scale_1 + 4 * i));
        if (at.bias) vst1q_f32(out->bias_1 + 4 * i, halves(at.bias_1 + 4 * i));
    }
}

/* Some spans of half a panel against n rows of one tile; what spans before gave is in y. */
struct part {
    const struct spread *w;
    const struct quant_acts *x;
    int64_t row, span, n_spans; /* span: the first one */
    int half;
    float *y;
    int64_t y_stride;
};

INLINE void group_dot(const int8_t *w, const int8_t *x, const int n, const int group, int32x4_t total[TILE][HALF]) {
    const int32_t *zero = arm_begin()->zero;
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < HALF; i++) total[m][i] = vld1q_s32(zero + 4 * (HALF * m + i));
    UNROLL for (int k = 0; k < group; k += INPUTS) {
        int8x16_t in[TILE];
        UNROLL for (int m = 0; m < n; m++) in[m] = vld1q_s8(x + m * group + k);
        UNROLL for (int j = 0; j < 4; j++) UNROLL for (int i = 0; i < HALF; i++) {
            int8x16_t codes = vld1q_s8(w + (k / 4 + j) * 32 + 16 * i);
            UNROLL for (int m = 0; m < n; m++) total[m][i] = dot_lane(total[m][i], codes, in[m], j);
        }
    }
}

INLINE void part(const struct part *whole, const int n, const int group) {
    const struct part local = *whole, *a = &local; /* what is stored cannot change it */
    struct acts_row x = acts_row_at(a->x, a->row);
    const int groups = PACK_SPAN / group;
    const int8_t *q = x.q + a->span * groups * x.q_step, *of_span = sums_at(a->x, a->row, a->span);
    float32x4_t acc[TILE][HALF];
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < HALF; i++) acc[m][i] =
        a->span ? vld1q_f32(a->y + m * a->y_stride + 4 * i) : vdupq_n_f32(0);
    for (int64_t span = 0; span < a->n_spans; span++) {
        const struct spread *w = &a->w[span];
        const int first = HALF * a->half;
        int32x4_t sums[TILE][HALF];
        UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < HALF; i++) sums[m][i] = vdupq_n_s32(0);
        ROLLED for (int g = 0; g < groups; g++, q += x.q_step) {
            int32x4_t total[TILE][HALF];
            group_dot(w->codes[a->half] + g * group * (PANEL_ROWS / HALF), q, n, group, total);
            UNROLL for (int i = 0; i < HALF; i++) {
                int32x4_t weight = vld1q_s32(w->scale[g] + 4 * (first + i));
                UNROLL for (int m = 0; m < n; m++) sums[m][i] = vmlaq_s32(sums[m][i], total[m][i], weight);
            }
        }
        const float *scale = x.scale + (a->span + span) * x.step;
        const int8_t *of_rows = of_span + span * x.step * 4 * groups;
        UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < HALF; i++) {
            float32x4_t v = vmulq_f32(vcvtq_f32_s32(sums[m][i]), vld1q_f32(w->scale_1 + 4 * (first + i)));
            if (w->bias) {
                float32x4_t biases = bias_dot(w->bias, of_rows + m * 4 * groups, groups, first + i);
                v = vfmaq_f32(v, biases, vld1q_f32(w->bias_1 + 4 * (first + i)));
            }
            acc[m][i] = vfmaq_n_f32(acc[m][i], v, scale[m]);
        }
    }
    UNROLL for (int m = 0; m < n; m++) UNROLL for (int i = 0; i < HALF; i++) vst1q_f32(a->y + m * a->y_stride + 4 * i, acc[m][i]);
}

#define PARTS(GROUP)                                            \
    static NOINLINE void part_4_##GROUP(const struct part *a) { \
        part(a, 4, GROUP);                                      \
    }                                                           \
    static void part_3_##GROUP(const struct part *a) {          \
        part(a, 3, GROUP);                                      \
    }                                                           \
    static void part_2_##GROUP(const struct part *a) {          \
        part(a, 2, GROUP);                                      \
    }                                                           \
    static void part_1_##GROUP(const struct part *a) {          \
        part(a, 1, GROUP);                                      \
    }                                                           \
    static void (*const parts_##GROUP[])(const struct part *) = {part_1_##GROUP, part_2_##GROUP, part_3_##GROUP, part_4_##GROUP};
PARTS(16)
PARTS(32)

/* Rows of a batch, four at a time; what that leaves goes together, too. */
static void rows(const struct panel_args *a) {
    struct spread spans[BLOCK_SPANS];
    int64_t n_spans = a->shape->in / PACK_SPAN;
    struct part p = {.w = spans, .x = &a->x, .y_stride = a->y_stride};
    for (int64_t i = 0; i < a->n_panels; i++)
        for (p.span = 0; p.span < n_spans; p.span += p.n_spans) {
            p.n_spans = n_spans - p.span < BLOCK_SPANS ? n_spans - p.span : BLOCK_SPANS;
            for (int64_t k = 0; k < p.n_spans; k++)
                spread(a->shape, a->panels + (size_t)i * a->shape->panel_bytes + (size_t)(p.span + k) * a->shape->span_bytes, &spans[k]);
            for (p.half = 0; p.half < HALF; p.half++)
                for (p.row = 0; p.row < a->n_rows; p.row += TILE) {
                    int64_t n = a->n_rows - p.row < TILE ? a->n_rows - p.row : TILE;
                    p.y = a->y + p.row * a->y_stride + i * PANEL_ROWS + p.half * (PANEL_ROWS / HALF);
                    (a->shape->group == 16 ? parts_16 : parts_32)[n - 1](&p);
                }
        }
}

/* ---- one row ------------------------------------------------------------------------------------------------------ */

/* One span of a panel. ahead: from a line to the one that is asked for. */
struct row_span {
    const struct pack_shape *shape;
    const unsigned char *p;
    size_t ahead;
    const int8_t *q, *sums;
    float scale;
    float *acc; /* [16] */
};

INLINE void row_group(const struct row_span *r, const unsigned char *p, const int8_t *q, int32_t lost, const int bits, const int group,
                      int32x4_t out[QUADS]) {
    UNROLL for (int i = 0; i < QUADS; i++) out[i] = vdupq_n_s32(-lost);
    /* unrolled, gcc would take one quad after the other, and each sum would wait for itself */
    ROLLED for (int k = 0; k < group; k += INPUTS, q += INPUTS) {
        int8x16_t x = vld1q_s8(q);
        UNROLL for (int line = 0; line < bits / 2; line++) __builtin_prefetch(p + r->ahead + line * PANEL_LINE, 0, 3);
        UNROLL for (int i = 0; i < QUADS; i++) {
            int8x16_t w[4];
            load_codes(p + 16 * i, bits, w);
            UNROLL for (int j = 0; j < 4; j++) out[i] = dot_lane(out[i], w[j], x, j);
        }
        p += INPUTS * PANEL_ROWS * bits / 8;
    }
}

INLINE void row_span(const struct row_span *whole, const int bits, const int group) {
    const struct row_span local = *whole, *r = &local; /* what is stored cannot change it */
    struct pack_span at = pack_span_at(r->shape, r->p);
    const int groups = PACK_SPAN / group;
    const int16_t *sum = whole_sums(r->sums, groups);
    int32x4_t sums[QUADS];
    UNROLL for (int i = 0; i < QUADS; i++) sums[i] = vdupq_n_s32(0);
    for (int g = 0; g < groups; g++) {
        int32x4_t total[QUADS];
        row_group(r, r->p + (size_t)g * r->shape->group_bytes, r->q + g * group, r->shape->centre * sum[g], bits, group, total);
        int8x16_t bytes = vld1q_s8(at.scale + g * PANEL_ROWS);
        UNROLL for (int i = 0; i < QUADS; i++) sums[i] = vmlaq_s32(sums[i], total[i], four_of(bytes, i));
    }
    for (const unsigned char *p = (const unsigned char *)at.scale; p < r->p + r->shape->span_bytes; p += PANEL_LINE)
        __builtin_prefetch(p + r->ahead, 0, 3);
    UNROLL for (int i = 0; i < QUADS; i++) {
        float32x4_t v = vmulq_f32(vcvtq_f32_s32(sums[i]), halves(at.scale_1 + 4 * i));
        if (at.bias) v = vfmaq_f32(v, bias_dot(at.bias, r->sums, groups, i), halves(at.bias_1 + 4 * i));
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
        struct row_span r = {.shape = s};
        n = a->n_panels - panel < STREAMS ? a->n_panels - panel : STREAMS;
        for (int64_t span = 0; span < spans; span++) {
            r.q = a->x.q + span * PACK_SPAN, r.sums = sums_at(&a->x, 0, span), r.scale = a->x.scale[span];
            /* what is asked for: the span after this one, or the first one of a panel that comes next */
            r.ahead = s->span_bytes + (span + 1 < spans ? 0 : (size_t)(n - 1) * s->panel_bytes);
            for (int64_t i = 0; i < n; i++) {
                r.p = a->panels + (size_t)(panel + i) * s->panel_bytes + (size_t)span * s->span_bytes;
                r.acc = acc[i];
                span_of(&r);
            }
        }
        memcpy(a->y + panel * PANEL_ROWS, acc, (size_t)n * sizeof *acc);
    }
}

static void nested(const struct panel_args *a) {
    if (a->x.tile == 1) one_row(a);
    else rows(a);
}

void kern_dotprod_nested(struct kernels *k) {
    k->nested_row = nested_row;
    k->nested = nested;
}
