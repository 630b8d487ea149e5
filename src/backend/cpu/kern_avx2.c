/* AVX2 with FMA and F16C: a panel's sixteen rows are two registers of eight, and activations are words. */
#include "backend/cpu/kern_avx2.h"

enum { CHAINS = 2, SCORE_HEADS = 1, SCORE_SUMS = 8, MIX_HEADS = 2 };

#include "backend/cpu/kern_tmpl.h"

#include "backend/cpu/kern_avx2_words.h"

INLINE vi v_add_products(vi sum, vi a, vi b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}

#include "backend/cpu/kern_words_tmpl.h"

#include "backend/cpu/kern_panel_tmpl.h"

INLINE int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

/* One group by its span's factor; returns the sum of its numbers. */
INLINE float quant_group(const float *x, int32_t group, __m256 inverse, int8_t *q) {
    const __m128i order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    __m256i total = _mm256_setzero_si256();
    for (int32_t i = 0; i < group; i += 8) {
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
        total = _mm256_add_epi32(total, v);
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storeu_si128((__m128i *)(void *)(q + 2 * i), _mm_shuffle_epi8(words, order));
    }
    return (float)sum_of(total);
}

static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row to = acts_at(out, row);
    for (int64_t g = 0; g < out->n_groups; to.scale += to.step) {
        int64_t end = g + acts_span_groups(out, g);
        float inverse = v_whole(x, (end - g) * out->group, ACTS_MAX, to.scale);
        for (; g < end; g++, x += out->group, to.q += to.q_step, to.sum += to.step)
            *to.sum = quant_group(x, out->group, _mm256_set1_ps(inverse), to.q);
    }
}

void kern_avx2(struct kernels *k) {
    fill_float_kernels(k);
    k->isa = "avx2";
    k->quant_row = quant_row;
    k->panel = panel;
    k->row_more = 0.4f; /* two cores, whole steps of 4-bit models: 2 rows take 1.3, 4 rows 2.1 and 8 rows 4.1 */
}
