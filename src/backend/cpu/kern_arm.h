/* What the integer kernels of 64-bit ARM share: scales of a panel, and activations as whole numbers. */
#ifndef MLXCEL_BACKEND_CPU_KERN_ARM_H
#define MLXCEL_BACKEND_CPU_KERN_ARM_H

#include "backend/cpu/kern.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))
#ifdef __clang__
#define UNROLL _Pragma("clang loop unroll(full)")
#define ROLLED _Pragma("clang loop unroll(disable)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")
#endif
#define NOINLINE __attribute__((noinline)) /* one copy of a long loop, with a name that bench/mca.py finds */

/* Integer sums begin with the bits of 1.5 * 2^23 where they stay within 2^22 (4-bit codes: 64 * 15 * ACTS_MAX is below it): as floats they are
 * then that number plus the sum, and a subtraction, which is exact, does what a conversion takes twice the work for. */
#define ARM_START 0x4B400000
#define ARM_START_FLOAT 12582912.0f

#define FOUR(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
#define SIXTEEN(...) FOUR(__VA_ARGS__), FOUR(__VA_ARGS__), FOUR(__VA_ARGS__), FOUR(__VA_ARGS__)

/* What sums begin with, from memory: a load costs nothing where products wait for the vector pipes, and a move of a register takes one of
 * those. The compiler must not know what it loads. */
struct arm_begin {
    int32_t start[64], zero[64];
    int32_t second[32]; /* 0 and ARM_START in turn */
};
INLINE const struct arm_begin *arm_begin(void) {
    static const struct arm_begin begin
        __attribute__((aligned(64))) = {{SIXTEEN(ARM_START, ARM_START, ARM_START, ARM_START)}, {0}, {SIXTEEN(0, ARM_START)}};
    const struct arm_begin *p = &begin;
    __asm__("" : "+r"(p));
    return p;
}

/* The sum that began with ARM_START. */
INLINE float32x4_t arm_float(int32x4_t sum) {
    return vsubq_f32(vreinterpretq_f32_s32(sum), vdupq_n_f32(ARM_START_FLOAT));
}

/* Four scales, or four biases: from the one of row `first` on. */
INLINE float32x4_t arm_scales(const unsigned char *p, int first, const int narrow) {
    if (narrow) return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16((const uint16_t *)(const void *)p + first), 16));
    return vld1q_f32((const float *)(const void *)p + first);
}

/* ---- one row ------------------------------------------------------------------------------------------------------ */

enum { ARM_STREAMS = 8 };

/* One group of some panels, side by side: memory answers several streams sooner than one. */
struct arm_row_group {
    const unsigned char *p;
    size_t panel_bytes, ahead; /* from a panel to the next; from a group to the one that is asked for */
    const int8_t *q;
    int64_t low, n_panels;
    int32_t group;
    float sum;
    float (*inner)[PANEL_ROWS]; /* of each panel: weighed sums are added */
};

/* For groups of 64 with narrow scales, other groups with narrow scales, and any with wide ones. */
struct arm_row_kernels {
    void (*bits_4)(const struct arm_row_group *), (*bits_4_any)(const struct arm_row_group *), (*bits_4_wide)(const struct arm_row_group *);
    void (*bits_8)(const struct arm_row_group *), (*bits_8_wide)(const struct arm_row_group *);
};

/* row_kernels, made of one inlined function (r, group, bits, narrow) whose last three arguments are constants where it counts. */
#define ARM_ROW_KERNELS(PANELS)                                      \
    static NOINLINE void row_4_bits(const struct arm_row_group *r) { \
        PANELS(r, 64, 4, 1);                                         \
    }                                                                \
    static void row_4_bits_any(const struct arm_row_group *r) {      \
        PANELS(r, r->group, 4, 1);                                   \
    }                                                                \
    static void row_4_bits_wide(const struct arm_row_group *r) {     \
        PANELS(r, r->group, 4, 0);                                   \
    }                                                                \
    static NOINLINE void row_8_bits(const struct arm_row_group *r) { \
        PANELS(r, r->group, 8, 1);                                   \
    }                                                                \
    static void row_8_bits_wide(const struct arm_row_group *r) {     \
        PANELS(r, r->group, 8, 0);                                   \
    }                                                                \
    static const struct arm_row_kernels row_kernels = {row_4_bits, row_4_bits_any, row_4_bits_wide, row_8_bits, row_8_bits_wide};

static inline void arm_one_row(const struct panel_args *a, const struct arm_row_kernels *k) {
    const struct pack_shape *s = a->shape;
    void (*group_of)(const struct arm_row_group *) = s->narrow_scales ? k->bits_8 : k->bits_8_wide;
    if (s->code_bits == 4) group_of = !s->narrow_scales ? k->bits_4_wide : s->group == 64 ? k->bits_4 : k->bits_4_any;
    for (int64_t panel = 0, n; panel < a->n_panels; panel += n) {
        float acc[ARM_STREAMS][PANEL_ROWS] = {{0}}, inner[ARM_STREAMS][PANEL_ROWS];
        struct acts_row x = acts_row_at(&a->x, 0);
        struct arm_row_group r = {.panel_bytes = s->panel_bytes, .low = x.low, .group = s->group, .inner = inner};
        n = a->n_panels - panel < ARM_STREAMS ? a->n_panels - panel : ARM_STREAMS;
        r.p = a->panels + (size_t)panel * s->panel_bytes, r.n_panels = n;
        for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
            memset(inner, 0, sizeof inner);
            for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, r.p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
                /* what is asked for: the group after this one, or the first one of a panel that comes next */
                r.ahead = s->group_bytes + (g + 1 < a->x.n_groups ? 0 : (size_t)(n - 1) * s->panel_bytes);
                r.q = x.q, r.sum = *x.sum;
                group_of(&r);
            }
            for (int i = 0; i < ARM_STREAMS * PANEL_ROWS; i += 4)
                vst1q_f32(acc[0] + i, vfmaq_n_f32(vld1q_f32(acc[0] + i), vld1q_f32(inner[0] + i), *x.scale));
        }
        memcpy(a->y + panel * PANEL_ROWS, acc, (size_t)n * sizeof *acc);
    }
}

/* ---- activations -------------------------------------------------------------------------------------------------- */

/* Where a row's numbers go: eight at a time, high bytes at q and low ones `low` behind; `step` from eight to eight. */
struct arm_place {
    int8_t *q;
    int64_t low, step;
};

INLINE void arm_put(int8_t *q, int64_t low, int32x4_t v0, int32x4_t v1) {
    int16x8_t v = vcombine_s16(vmovn_s32(v0), vmovn_s32(v1)), high = vshrq_n_s16(vaddq_s16(v, vdupq_n_s16(8)), 4);
    vst1_s8(q, vmovn_s16(high));
    vst1_s8(q + low, vmovn_s16(vsubq_s16(v, vshlq_n_s16(high, 4))));
}

INLINE int32x4_t arm_round(const float *x, float inverse) {
    return vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), inverse));
}

/* One group by its span's factor; returns the sum of its numbers. Of sixteen inputs, the first eight numbers are 0 .. 7, or, crossed,
 * 0 .. 3 and 8 .. 11. */
INLINE float arm_quant_group(const float *x, int32_t group, float inverse, struct arm_place to, const int crossed) {
    int32x4_t total = vdupq_n_s32(0);
    for (int32_t i = 0; i < group; i += 16, to.q += 2 * to.step) {
        int32x4_t v0 = arm_round(x + i, inverse), v1 = arm_round(x + i + 4, inverse), v2 = arm_round(x + i + 8, inverse),
                  v3 = arm_round(x + i + 12, inverse);
        total = vaddq_s32(total, vaddq_s32(vaddq_s32(v0, v1), vaddq_s32(v2, v3)));
        arm_put(to.q, to.low, v0, crossed ? v2 : v1);
        arm_put(to.q + to.step, to.low, crossed ? v1 : v2, v3);
    }
    return (float)vaddvq_s32(total);
}

/* The factor of a span of n inputs, whose largest becomes `limit`, and its scale: NaN where one of them is no number or infinite. */
INLINE float arm_quant_span(const float *x, int64_t n, const float limit, float *out_scale) {
    float32x4_t max[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
    uint32x4_t fine[2] = {vdupq_n_u32(UINT32_MAX), vdupq_n_u32(UINT32_MAX)};
    for (int64_t i = 0; i < n; i += 8)
        for (int k = 0; k < 2; k++) {
            float32x4_t v = vabsq_f32(vld1q_f32(x + i + 4 * k));
            fine[k] = vandq_u32(fine[k], vcleq_f32(v, vdupq_n_f32(3.4e38f)));
            max[k] = vmaxnmq_f32(max[k], v);
        }
    int odd = vminvq_u32(vandq_u32(fine[0], fine[1])) == 0;
    float most = vmaxvq_f32(vmaxnmq_f32(max[0], max[1]));
    *out_scale = odd ? __builtin_nanf("") : most * (1.0f / limit);
    return most > ACTS_LEAST && !odd ? limit / most : 0;
}

/* A row: `at` says where its scales and sums go, `to` where its numbers go and how they lie. */
INLINE void arm_quant_row(const float *x, const struct quant_acts *out, struct acts_row at, struct arm_place to, const int crossed) {
    for (int64_t g = 0; g < out->n_groups; at.scale += at.step) {
        int64_t end = g + acts_span_groups(out, g);
        float inverse = arm_quant_span(x, (end - g) * out->group, (float)ACTS_MAX, at.scale);
        for (; g < end; g++, x += out->group, to.q += at.q_step, at.sum += at.step)
            *at.sum = arm_quant_group(x, out->group, inverse, to, crossed);
    }
}

#endif
