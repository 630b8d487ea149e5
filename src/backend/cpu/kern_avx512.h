/* Vectors of sixteen floats, for files compiled with AVX-512: what the templates (kern_tmpl.h, kern_plain_tmpl.h) stand on, and a panel's
 * scales. */
#ifndef MLXCEL_BACKEND_CPU_KERN_AVX512_H
#define MLXCEL_BACKEND_CPU_KERN_AVX512_H

#include "backend/cpu/kern.h"

#include <immintrin.h>

typedef __m512 vf;
enum { VW = 16 };

static inline vf v_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void v_store(float *p, vf a) {
    _mm512_storeu_ps(p, a);
}
static inline vf v_set(float a) {
    return _mm512_set1_ps(a);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline vf v_add(vf a, vf b) {
    return _mm512_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b) {
    return _mm512_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b) {
    return _mm512_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b) {
    return _mm512_div_ps(a, b);
}
static inline vf v_max(vf a, vf b) {
    return _mm512_max_ps(b, a);
} /* a NaN in a stays */
static inline vf v_min(vf a, vf b) {
    return _mm512_min_ps(b, a);
}
static inline vf v_most(vf a, vf b) {
    return _mm512_max_ps(b, a);
} /* a where b is no number */
static inline float v_peak(vf a) {
    return _mm512_reduce_max_ps(a);
}
/* How n numbers become whole ones of at most `steps`: returns what they are multiplied with, 0 where all of them are next to nothing. *scale: what 1 means
 * then; a NaN where one of the numbers is none, or infinite. n: a multiple of VW. */
static inline float v_whole(const float *x, int64_t n, int steps, float *scale) {
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    __m512i max[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    int64_t i = 0;
    for (; i + 4 * VW <= n;
         i += 4 * VW) /* as whole numbers magnitudes have the same order, and what is no number or infinite is above them all */
        for (int k = 0; k < 4; k++) max[k] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + i + k * VW), magnitude), max[k]);
    for (; i < n; i += VW) max[0] = _mm512_max_epu32(_mm512_and_si512(_mm512_loadu_si512(x + i), magnitude), max[0]);
    uint32_t bits = _mm512_reduce_max_epu32(_mm512_max_epu32(_mm512_max_epu32(max[0], max[1]), _mm512_max_epu32(max[2], max[3])));
    bool odd = bits >= 0x7F800000;
    float most;
    memcpy(&most, &bits, sizeof most);
    *scale = odd ? __builtin_nanf("") : most * (1.0f / (float)steps);
    return most > ACTS_LEAST && !odd ? (float)steps / most : 0;
}
static inline vf v_round(vf a) {
    return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_exp2(vf n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
static inline float v_sum(vf a) {
    return _mm512_reduce_add_ps(a);
}
static inline vf v_f16(const uint16_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
static inline vf v_bf16(const uint16_t *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
static inline void v_store_f16(uint16_t *p, vf a) {
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* The first and the second ones of VW pairs of bf16. */
static inline vf v_bf16_first(const void *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline vf v_bf16_second(const void *p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int32_t)0xFFFF0000u)));
}

/* Scales and biases of a panel's group; all sixteen are part 0. */
static inline __attribute__((always_inline)) void load_scales(const unsigned char *p, const int narrow, const int part, __m512 *scale,
                                                              __m512 *bias) {
    (void)part;
    if (narrow) {
        __m512i s = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
        __m512i b = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)));
        *scale = _mm512_castsi512_ps(_mm512_slli_epi32(s, 16));
        *bias = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
    } else {
        *scale = _mm512_loadu_ps((const float *)(const void *)p);
        *bias = _mm512_loadu_ps((const float *)(const void *)(p + 64));
    }
}

#endif
