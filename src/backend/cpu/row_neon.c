/* Passes over a row by vectors of four. */
#include "backend/cpu/row.h"

#include <arm_neon.h>

struct lanes {
    float64x2_t low, high;
};

#include "backend/cpu/row_tmpl.h"

INLINE void lanes_add(struct lanes *to, float32x4_t a) {
    to->low = vaddq_f64(to->low, vcvt_f64_f32(vget_low_f32(a)));
    to->high = vaddq_f64(to->high, vcvt_high_f64_f32(a));
}

INLINE double lanes_fold(struct lanes a) {
    return vaddvq_f64(a.low) + vaddvq_f64(a.high);
}

/* The constants that a fused product adds to. The instruction overwrites them: a load each time is cheaper than a copy, since loads have units
 * of their own, and the compiler would copy. */
static const float addends[][4] = {
    {ROW_MAGIC, ROW_MAGIC, ROW_MAGIC, ROW_MAGIC},
    {ROW_C4, ROW_C4, ROW_C4, ROW_C4},
    {ROW_C3, ROW_C3, ROW_C3, ROW_C3},
    {ROW_C2, ROW_C2, ROW_C2, ROW_C2},
    {ROW_C1, ROW_C1, ROW_C1, ROW_C1},
    {1, 1, 1, 1},
};

INLINE float32x4_t addend(int i) {
    float32x4_t out;
    __asm__ volatile("ldr %q0, %1" : "=w"(out) : "m"(addends[i]));
    return out;
}

#define EIGHT _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)

INLINE void add_folded(struct lanes *to, const float32x4_t e[8]) {
    lanes_add(to,
              vaddq_f32(vaddq_f32(vaddq_f32(e[0], e[4]), vaddq_f32(e[2], e[6])), vaddq_f32(vaddq_f32(e[1], e[5]), vaddq_f32(e[3], e[7]))));
}

/* Eight vectors side by side: while the others take a step, each gets the result of its own. They are variables, since the compiler writes
 * arrays to memory. What is multiplied by lies in the lanes of one vector, so that the registers suffice. */
#define ALL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)

INLINE void weigh_group(const float *x, float *p, float best, float scale, const bool is_scaled, struct lanes *sum) {
    const float32x4_t by = {scale, ROW_LOG2E, ROW_LN2, ROW_C5};
#define DROP(i) float32x4_t d##i = vsubq_f32(vld1q_f32(x + 4 * i), vdupq_n_f32(best));
#define SCALE(i) d##i = vmulq_laneq_f32(d##i, by, 0);
#define BOUND(i) d##i = vmaxq_f32(d##i, vdupq_n_f32(ROW_FLOOR));
#define MAGIC(i) float32x4_t n##i = vfmaq_laneq_f32(addend(0), d##i, by, 1);
#define REST(i) d##i = vfmsq_laneq_f32(d##i, vsubq_f32(n##i, vdupq_n_f32(ROW_MAGIC)), by, 2);
#define FIRST(i) float32x4_t e##i = vfmaq_laneq_f32(addend(1), d##i, by, 3);
#define NEXT2(i)                             \
    e##i = vfmaq_f32(addend(2), e##i, d##i); \
    n##i = vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(n##i), 23));
#define NEXT3(i) e##i = vfmaq_f32(addend(3), e##i, d##i);
#define NEXT4(i) e##i = vfmaq_f32(addend(4), e##i, d##i);
#define NEXT5(i) e##i = vfmaq_f32(addend(5), e##i, d##i);
#define POWER(i)                                                                                       \
    e##i = vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(e##i), vreinterpretq_u32_f32(n##i))); \
    vst1q_f32(p + 4 * i, e##i);
    ALL(DROP)
    if (is_scaled) {
        ALL(SCALE)
    }
    ALL(BOUND)
    ALL(MAGIC)
    ALL(REST)
    ALL(FIRST)
    ALL(NEXT2)
    ALL(NEXT3)
    ALL(NEXT4)
    ALL(NEXT5)
    ALL(POWER)
    lanes_add(sum, vaddq_f32(vaddq_f32(vaddq_f32(e0, e4), vaddq_f32(e2, e6)), vaddq_f32(vaddq_f32(e1, e5), vaddq_f32(e3, e7))));
}

INLINE int moment_group(const float *x, const float *p, float best, struct lanes *sum) {
    float32x4_t e[8];
    uint32x4_t count = vdupq_n_u32(0);
    EIGHT {
        float32x4_t at = vld1q_f32(x + 4 * i);
        count = vsubq_u32(count, vcgtq_f32(at, vdupq_n_f32(-INFINITY)));
        e[i] = vmulq_f32(vld1q_f32(p + 4 * i), vmaxq_f32(vsubq_f32(at, vdupq_n_f32(best)), vdupq_n_f32(ROW_FLOOR)));
    }
    add_folded(sum, e);
    return (int)vaddvq_u32(count);
}

INLINE float32x4_t most_of_group(const float *x) {
    float32x4_t m[4];
    for (int i = 0; i < 4; i++) m[i] = vmaxq_f32(vld1q_f32(x + 4 * i), vld1q_f32(x + 16 + 4 * i));
    return vmaxq_f32(vmaxq_f32(m[0], m[1]), vmaxq_f32(m[2], m[3]));
}

/* A NaN goes through every one of these. */
INLINE float peak_groups(const float *x, float *peaks) {
    float32x4_t first = vpmaxq_f32(most_of_group(x), most_of_group(x + 32)),
                second = vpmaxq_f32(most_of_group(x + 64), most_of_group(x + 96));
    float32x4_t all = vpmaxq_f32(first, second);
    vst1q_f32(peaks, all);
    return vmaxvq_f32(all);
}

INLINE float mask_group(const float *x, uint32_t word, float *out) {
    static const uint32_t bits[4] = {1, 2, 4, 8};
    float32x4_t most = vdupq_n_f32(-INFINITY);
    EIGHT {
        uint32x4_t is_set = vtstq_u32(vdupq_n_u32(word >> 4 * i), vld1q_u32(bits));
        float32x4_t at = vbslq_f32(is_set, vld1q_f32(x + 4 * i), vdupq_n_f32(-INFINITY));
        vst1q_f32(out + 4 * i, at);
        most = vmaxq_f32(most, at);
    }
    return vmaxvq_f32(most);
}

const struct row_kernels row_neon = {peaks, mask, weigh, moment};
