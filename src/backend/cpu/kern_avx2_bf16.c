/* AVX2 with FMA: panels of bf16 weights by multiply-adds of eight rows. */
#include "backend/cpu/kern.h"

#include <immintrin.h>

typedef __m256 vf;
enum { VW = 8, SUMS = 8, ROWS_MAX = 4 };

static inline vf v_zero(void) {
    return _mm256_setzero_ps();
}
static inline vf v_set(float a) {
    return _mm256_set1_ps(a);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline void v_store(float *p, vf a) {
    _mm256_storeu_ps(p, a);
}
static inline vf v_even(const unsigned char *p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p), 16));
}
static inline vf v_odd(const unsigned char *p) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(const void *)p), _mm256_set1_epi32((int32_t)0xFFFF0000u)));
}

#include "backend/cpu/kern_bf16_tmpl.h"

void kern_avx2_bf16(struct kernels *k) {
    k->bf16_row = bf16_row;
    k->bf16_panel = bf16_panel;
    k->bf16_unit = 2;
}
