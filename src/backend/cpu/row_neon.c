/* Passes over a row by vectors of four. */
#include "backend/cpu/row.h"

#include <arm_neon.h>

struct four {
    float32x4_t of;
};
struct lanes {
    float64x2_t low, high;
};

#include "backend/cpu/row_tmpl.h"

INLINE void lanes_add(struct lanes *to, struct four a) {
    to->low = vaddq_f64(to->low, vcvt_f64_f32(vget_low_f32(a.of)));
    to->high = vaddq_f64(to->high, vcvt_high_f64_f32(a.of));
}

INLINE void four_store(float *to, struct four a) {
    vst1q_f32(to, a.of);
}

INLINE struct four four_all(float a) {
    return (struct four){vdupq_n_f32(a)};
}

INLINE double lanes_fold(struct lanes a) {
    return vaddvq_f64(a.low) + vaddvq_f64(a.high);
}

#define EIGHT _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++)

#pragma GCC diagnostic ignored "-Woverlength-strings" /* one group is one piece of assembler */

/* What a fused product adds to it overwrites: a load each time is cheaper than a copy, since loads have units of their own.
 * Eight vectors side by side: while the others take a step, each gets the result of its own. Compilers run out of registers here and copy,
 * a fifth of the time, so the registers are named: 0 to 7 have d and then the rest, 8 to 15 the powers of two, 16 to 24 the polynomial, whose
 * steps go round since each needs a fresh one, 25 to 28 constants. Shifts have one unit only and stand between products. */
#define ALL(X) X(0, 8, 16) X(1, 9, 17) X(2, 10, 18) X(3, 11, 19) X(4, 12, 20) X(5, 13, 21) X(6, 14, 22) X(7, 15, 23)
#define V(i) "v" #i ".4s"
#define DROP(d, n, e) "fsub " V(d) ", " V(d) ", v25.4s\n"
#define SCALE(d, n, e) "fmul " V(d) ", " V(d) ", v28.s[0]\n"
#define BOUND(d, n, e) "fmax " V(d) ", " V(d) ", v26.4s\n"
#define MAGIC(d, n, e) "ldr q" #n ", [%[table]]\nfmla " V(n) ", " V(d) ", v28.s[1]\n"
#define WHOLE(d, n, e) "fsub " V(e) ", " V(n) ", v27.4s\n"
#define REST(d, n, e) "fmls " V(d) ", " V(e) ", v28.s[2]\n"
#define FIRST(d, n, e) "ldr q" #e ", [%[table], #16]\nfmla " V(e) ", " V(d) ", v28.s[3]\n"
#define NEXT(to, from, d, at) "ldr q" #to ", [%[table], #" #at "]\nfmla " V(to) ", " V(from) ", " V(d) "\n"
#define SHIFT(n) "shl " V(n) ", " V(n) ", #23\n"
#define ROUND(a, b, c, d, e, f, g, h, i, at, X) \
    X(8)                                        \
    NEXT(i, a, 0, at)                           \
    X(9)                                        \
    NEXT(a, b, 1, at)                           \
    X(10)                                       \
    NEXT(b, c, 2, at)                           \
    X(11) NEXT(c, d, 3, at) X(12) NEXT(d, e, 4, at) X(13) NEXT(e, f, 5, at) X(14) NEXT(f, g, 6, at) X(15) NEXT(g, h, 7, at)
#define NO_SHIFT(n)
#define POWER(e, n) "add " V(n) ", " V(n) ", " V(e) "\n"
#define SUM(to, a, b) "fadd " V(to) ", " V(a) ", " V(b) "\n"
#define PAIR(a, b, at) "ldp q" #a ", q" #b ", [%[x], #" #at "]\n"
#define STORE(a, b, at) "stp q" #a ", q" #b ", [%[p], #" #at "]\n"

#define WEIGH(shapes, also, ...)                                                                                                          \
    __asm__(CONSTANTS LOADS shapes ALL(MAGIC) ALL(WHOLE) ALL(REST) ALL(FIRST) ROUND(16, 17, 18, 19, 20, 21, 22, 23, 24, 32, NO_SHIFT)     \
                ROUND(24, 16, 17, 18, 19, 20, 21, 22, 23, 48, NO_SHIFT) ROUND(23, 24, 16, 17, 18, 19, 20, 21, 22, 64, SHIFT) POWER(22, 8) \
                    POWER(23, 9) POWER(24, 10) POWER(16, 11) POWER(17, 12) POWER(18, 13) POWER(19, 14) POWER(20, 15) also SUM(0, 8, 12)   \
                        SUM(1, 10, 14) SUM(2, 9, 13) SUM(3, 11, 15) SUM(0, 0, 1) SUM(2, 2, 3) "fadd %[sum].4s, v0.4s, v2.4s"              \
            : [sum] "=&w"(out.fold.of)__VA_ARGS__                                                                                         \
            : [table] "r"(c->table), [x] "r"(x), [p] "r"(p), "m"(c->table), "m"(*(const float(*)[ROW_GROUP])x)                            \
            : "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16", "v17", "v18",  \
              "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28")
#define CONSTANTS "ldp q25, q26, [%[table], #80]\nldr q27, [%[table]]\nldr q28, [%[table], #112]\n"
#define LOADS PAIR(0, 1, 0) PAIR(2, 3, 32) PAIR(4, 5, 64) PAIR(6, 7, 96)
#define STORES STORE(8, 9, 0) STORE(10, 11, 32) STORE(12, 13, 64) STORE(14, 15, 96)
#define TIMES(to, e, d) "fmla " V(to) ", " V(e) ", " V(d) "\n"
/* d once more, and its products with p */
#define MOMENT(shapes)                                                                                                       \
    LOADS shapes "fmul v16.4s, v8.4s, v0.4s\nfmul v17.4s, v9.4s, v1.4s\n" TIMES(16, 10, 2) TIMES(17, 11, 3) TIMES(16, 12, 4) \
        TIMES(17, 13, 5) TIMES(16, 14, 6) TIMES(17, 15, 7) "fadd %[moment].4s, v16.4s, v17.4s\n"
#define PLAIN ALL(DROP)
#define BOUNDED ALL(DROP) ALL(BOUND)
#define EXTREME ALL(DROP) ALL(SCALE) ALL(BOUND)

INLINE struct part weigh_group(const struct curve *c, const float *x, float *p, const struct pass pass) {
    struct part out;
    if (pass.stores && pass.moments) WEIGH(EXTREME, STORES MOMENT(EXTREME), , [moment] "=&w"(out.moment.of), "=m"(*(float(*)[ROW_GROUP])p));
    else if (pass.stores && pass.extremes) WEIGH(EXTREME, STORES, , "=m"(*(float(*)[ROW_GROUP])p));
    else if (pass.stores) WEIGH(BOUNDED, STORES, , "=m"(*(float(*)[ROW_GROUP])p));
    else if (pass.moments && pass.bounds) WEIGH(BOUNDED, MOMENT(BOUNDED), , [moment] "=&w"(out.moment.of));
    else if (pass.moments) WEIGH(PLAIN, MOMENT(PLAIN), , [moment] "=&w"(out.moment.of));
    else if (pass.extremes) WEIGH(EXTREME, "", );
    else if (pass.bounds) WEIGH(BOUNDED, "", );
    else WEIGH(PLAIN, "", );
    return out;
}

/* The bits of a group's word, four to a vector. */
static const uint32_t bits_of[8][4] = {{UINT32_C(1) << 0, UINT32_C(1) << 1, UINT32_C(1) << 2, UINT32_C(1) << 3},
                                       {UINT32_C(1) << 4, UINT32_C(1) << 5, UINT32_C(1) << 6, UINT32_C(1) << 7},
                                       {UINT32_C(1) << 8, UINT32_C(1) << 9, UINT32_C(1) << 10, UINT32_C(1) << 11},
                                       {UINT32_C(1) << 12, UINT32_C(1) << 13, UINT32_C(1) << 14, UINT32_C(1) << 15},
                                       {UINT32_C(1) << 16, UINT32_C(1) << 17, UINT32_C(1) << 18, UINT32_C(1) << 19},
                                       {UINT32_C(1) << 20, UINT32_C(1) << 21, UINT32_C(1) << 22, UINT32_C(1) << 23},
                                       {UINT32_C(1) << 24, UINT32_C(1) << 25, UINT32_C(1) << 26, UINT32_C(1) << 27},
                                       {UINT32_C(1) << 28, UINT32_C(1) << 29, UINT32_C(1) << 30, UINT32_C(1) << 31}};

INLINE uint32_t above_group(const float *x, float bar) {
    uint32x4_t word = vdupq_n_u32(0);
    EIGHT word = vorrq_u32(word, vandq_u32(vcgeq_f32(vld1q_f32(x + 4 * i), vdupq_n_f32(bar)), vld1q_u32(bits_of[i])));
    return vaddvq_u32(word);
}

INLINE int count_group(const float *x) {
    uint32x4_t count = vdupq_n_u32(0);
    EIGHT count = vsubq_u32(count, vcgtq_f32(vld1q_f32(x + 4 * i), vdupq_n_f32(-INFINITY)));
    return (int)vaddvq_u32(count);
}

INLINE float32x4_t most_of_group(const float *x, struct four *least) {
    float32x4_t m[4], l[4];
    for (int i = 0; i < 4; i++) {
        float32x4_t a = vld1q_f32(x + 4 * i), b = vld1q_f32(x + 16 + 4 * i);
        m[i] = vmaxq_f32(a, b);
        l[i] = vminq_f32(a, b);
    }
    least->of = vminq_f32(least->of, vminq_f32(vminq_f32(l[0], l[1]), vminq_f32(l[2], l[3])));
    return vmaxq_f32(vmaxq_f32(m[0], m[1]), vmaxq_f32(m[2], m[3]));
}

/* A NaN goes through every one of these. */
INLINE float peak_groups(const float *x, float *peaks, struct four *least) {
    float32x4_t first = vpmaxq_f32(most_of_group(x, least), most_of_group(x + 32, least)),
                second = vpmaxq_f32(most_of_group(x + 64, least), most_of_group(x + 96, least));
    float32x4_t all = vpmaxq_f32(first, second);
    vst1q_f32(peaks, all);
    return vmaxvq_f32(all);
}

INLINE float mask_group(const float *x, uint32_t word, float *out) {
    float32x4_t most = vdupq_n_f32(-INFINITY);
    EIGHT {
        float32x4_t at = vbslq_f32(vtstq_u32(vdupq_n_u32(word), vld1q_u32(bits_of[i])), vld1q_f32(x + 4 * i), vdupq_n_f32(-INFINITY));
        vst1q_f32(out + 4 * i, at);
        most = vmaxq_f32(most, at);
    }
    return vmaxvq_f32(most);
}

const struct row_kernels row_neon = {peaks, mask, weigh, refold, count, list};
