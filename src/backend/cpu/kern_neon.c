/* Plain NEON: float products; conversions of f16 and bf16 rows on the way. */
#include "backend/cpu/kern.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

INLINE float32x4_t widen(const void *w, int64_t i, const enum dtype dtype) {
    if (dtype == DT_F32) return vld1q_f32((const float *)w + i);
    uint16x4_t h = vld1_u16((const uint16_t *)w + i);
    if (dtype == DT_F16) return vcvt_f32_f16(vreinterpret_f16_u16(h));
    return vreinterpretq_f32_u32(vshll_n_u16(h, 16));
}

/* Four chains per row, whatever the number of rows; a tail shorter than 4 is padded with zeros. */
INLINE void plain_tile(const struct plain_args *a, int64_t first, const int n, const enum dtype dtype) {
    float32x4_t acc[4][4];
    const float *x = a->x + first * a->x_stride;
    for (int m = 0; m < n; m++)
        for (int c = 0; c < 4; c++) acc[m][c] = vdupq_n_f32(0);
    int64_t i = 0;
    for (; i + 16 <= a->n; i += 16)
        for (int c = 0; c < 4; c++) {
            float32x4_t w = widen(a->w, i + 4 * c, dtype);
            for (int m = 0; m < n; m++) acc[m][c] = vfmaq_f32(acc[m][c], w, vld1q_f32(x + m * a->x_stride + i + 4 * c));
        }
    for (; i < a->n; i += 4) {
        unsigned char wide[16] = {0};
        float values[4] = {0};
        size_t left = a->n - i >= 4 ? 4 : (size_t)(a->n - i), size = dtype == DT_F32 ? 4 : 2;
        memcpy(wide, (const unsigned char *)a->w + (size_t)i * size, left * size);
        float32x4_t w = widen(wide, 0, dtype);
        for (int m = 0; m < n; m++) {
            memcpy(values, x + m * a->x_stride + i, left * sizeof *values);
            acc[m][0] = vfmaq_f32(acc[m][0], w, vld1q_f32(values));
        }
    }
    for (int m = 0; m < n; m++)
        a->y[(first + m) * a->y_stride] = vaddvq_f32(vaddq_f32(vaddq_f32(acc[m][0], acc[m][1]), vaddq_f32(acc[m][2], acc[m][3])));
}

INLINE void plain_rows(const struct plain_args *a, const enum dtype dtype) {
    int64_t m = 0;
    for (; m + 4 <= a->n_rows; m += 4) plain_tile(a, m, 4, dtype);
    for (; m < a->n_rows; m++) plain_tile(a, m, 1, dtype);
}

static void plain(const struct plain_args *a) {
    if (a->dtype == DT_F32) plain_rows(a, DT_F32);
    else if (a->dtype == DT_F16) plain_rows(a, DT_F16);
    else plain_rows(a, DT_BF16);
}

static float dot(const float *a, const float *b, int64_t n) {
    float y;
    plain_tile(&(struct plain_args){.w = a, .x = b, .n = n, .y = &y}, 0, 1, DT_F32);
    return y;
}

static void axpy(float *y, const float *x, float scale, int64_t n) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) vst1q_f32(y + i, vfmaq_n_f32(vld1q_f32(y + i), vld1q_f32(x + i), scale));
    for (; i < n; i++) y[i] = __builtin_fmaf(scale, x[i], y[i]);
}

void kern_neon(struct kernels *k) {
    k->isa = "neon";
    k->dot = dot;
    k->axpy = axpy;
    k->plain = plain;
}
