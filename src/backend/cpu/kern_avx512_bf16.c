/* AVX-512: panels of bf16 weights by multiply-adds of sixteen rows. */
#include "backend/cpu/kern.h"

#include <immintrin.h>

typedef __m512 vf;
enum { VW = 16, SUMS = 16, ROWS_MAX = 8 };

static inline vf v_zero(void) {
    return _mm512_setzero_ps();
}
static inline vf v_set(float a) {
    return _mm512_set1_ps(a);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline void v_store(float *p, vf a) {
    _mm512_storeu_ps(p, a);
}
static inline vf v_even(const unsigned char *p) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16));
}
static inline vf v_odd(const unsigned char *p) {
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_loadu_si512(p), _mm512_set1_epi32((int32_t)0xFFFF0000u)));
}

#include "backend/cpu/kern_bf16_tmpl.h"

void kern_avx512_bf16(struct kernels *k) {
    k->bf16_row = bf16_row;
    k->bf16_panel = bf16_panel;
    k->bf16_unit = 2;
}
