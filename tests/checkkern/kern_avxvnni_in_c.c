/* kern_avxvnni.c for processors without AVX-VNNI: what its one instruction does, in plain C. */
#include "kern_in_c.h"

#include <immintrin.h>

static inline __m256i add_products_in_c(__m256i sum, __m256i a, __m256i b) {
    enum { WORDS = 16 };
    int16_t x[WORDS], y[WORDS];
    int32_t total[WORDS / 2];
    _mm256_storeu_si256((__m256i *)(void *)x, a);
    _mm256_storeu_si256((__m256i *)(void *)y, b);
    _mm256_storeu_si256((__m256i *)(void *)total, sum);
    for (int i = 0; i < WORDS; i++) total[i / 2] += x[i] * y[i];
    return _mm256_loadu_si256((const __m256i *)(const void *)total);
}

#define _mm256_dpwssd_avx_epi32 add_products_in_c
#define kern_avxvnni kern_avxvnni_in_c
#include "../../src/backend/cpu/kern_avxvnni.c"
