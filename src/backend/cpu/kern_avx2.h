/* Vectors of eight floats, for files compiled with AVX2, FMA and F16C: what the templates (kern_tmpl.h, kern_plain_tmpl.h) stand on. */
#ifndef MLXCEL_BACKEND_CPU_KERN_AVX2_H
#define MLXCEL_BACKEND_CPU_KERN_AVX2_H

#include "backend/cpu/kern.h"

#include <immintrin.h>

typedef __m256 vf;
enum { VW = 8 };

static inline vf v_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void v_store(float *p, vf a) {
    _mm256_storeu_ps(p, a);
}
static inline vf v_set(float a) {
    return _mm256_set1_ps(a);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline vf v_add(vf a, vf b) {
    return _mm256_add_ps(a, b);
}
static inline vf v_sub(vf a, vf b) {
    return _mm256_sub_ps(a, b);
}
static inline vf v_mul(vf a, vf b) {
    return _mm256_mul_ps(a, b);
}
static inline vf v_div(vf a, vf b) {
    return _mm256_div_ps(a, b);
}
static inline vf v_max(vf a, vf b) {
    return _mm256_max_ps(b, a);
} /* a NaN in a stays */
static inline vf v_min(vf a, vf b) {
    return _mm256_min_ps(b, a);
}
static inline vf v_most(vf a, vf b) {
    return _mm256_max_ps(b, a);
} /* a where b is no number */
static inline float v_peak(vf v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}
/* How n numbers become whole ones of at most `steps`: returns what they are multiplied with, 0 where all of them are next to nothing. *scale: what 1 means
 * then; a NaN where one of the numbers is none, or infinite. n: a multiple of VW. */
static inline float v_whole(const float *x, int64_t n, int steps, float *scale) {
    const __m256 sign = _mm256_set1_ps(-0.0f), huge = _mm256_set1_ps(3.4e38f);
    __m256 max = _mm256_setzero_ps(), bad = _mm256_setzero_ps();
    for (int64_t i = 0; i < n; i += VW) {
        __m256 v = _mm256_andnot_ps(sign, _mm256_loadu_ps(x + i));
        max = _mm256_max_ps(v, max);
        bad = _mm256_or_ps(bad, _mm256_cmp_ps(v, huge, _CMP_NLE_UQ));
    }
    bool is_odd = _mm256_movemask_ps(bad);
    float most = v_peak(max);
    *scale = is_odd ? __builtin_nanf("") : most * (1.0f / (float)steps);
    return most > ACTS_LEAST && !is_odd ? (float)steps / most : 0;
}
static inline vf v_round(vf a) {
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_exp2(vf n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
static inline float v_sum(vf v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
static inline vf v_f16(const uint16_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
static inline vf v_bf16(const uint16_t *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
static inline void v_store_f16(uint16_t *p, vf a) {
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
/* The first and the second ones of VW pairs of bf16. */
static inline vf v_bf16_first(const void *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256(p), 16));
}
static inline vf v_bf16_second(const void *p) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_loadu_si256(p), _mm256_set1_epi32((int32_t)0xFFFF0000u)));
}

#endif
