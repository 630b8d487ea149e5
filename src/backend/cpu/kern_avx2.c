/* AVX2 with FMA and F16C: sixteen rows are two registers of eight.
 *
 * vpmaddubsw takes codes as the unsigned operand. 4-bit codes cannot saturate it (2 * 15 * 127 < 2^15); 8-bit codes are
 * multiplied as two 4-bit halves, which keeps every sum exact. What a half or a byte of an activation weighs is multiplied
 * in where pairs are added: all sums go into one.
 */
#include "backend/cpu/kern_avx2.h"

enum { CHAINS = 2, SCORE_HEADS = 1, SCORE_SUMS = 8, MIX_HEADS = 2 };

#include "backend/cpu/kern_tmpl.h"

enum { TILE = 4 };

INLINE void load_scales(const unsigned char *p, int narrow, int half, __m256 *scale, __m256 *bias) {
    if (narrow) {
        __m256i s = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 16 * half)));
        __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 32 + 16 * half)));
        *scale = _mm256_castsi256_ps(_mm256_slli_epi32(s, 16));
        *bias = _mm256_castsi256_ps(_mm256_slli_epi32(b, 16));
    } else {
        *scale = _mm256_loadu_ps((const float *)(const void *)(p + 32 * half));
        *bias = _mm256_loadu_ps((const float *)(const void *)(p + 64 + 32 * half));
    }
}

INLINE __m256i four(const int8_t *q) {
    int32_t word;
    memcpy(&word, q, 4);
    return _mm256_set1_epi32(word);
}

/* Adds four products per lane, `weight` times: those with the high bytes of the activations and with the low ones. */
INLINE __m256i dot_add(__m256i total, __m256i codes, const int8_t *x, int64_t low, const short weight) {
    __m256i high_sum = _mm256_madd_epi16(_mm256_maddubs_epi16(codes, four(x)), _mm256_set1_epi16((short)(16 * weight)));
    __m256i low_sum = _mm256_madd_epi16(_mm256_maddubs_epi16(codes, four(x + low)), _mm256_set1_epi16(weight));
    return _mm256_add_epi32(total, _mm256_add_epi32(high_sum, low_sum));
}

/* One group of eight rows of the panel for n rows of activations. */
INLINE void group_dot(const struct panel_args *a, const unsigned char *p, const int8_t *q, int64_t below, const int n, const int bits,
                      __m256i total[TILE]) {
    const __m256i low = _mm256_set1_epi8(15);
    for (int m = 0; m < n; m++) total[m] = _mm256_setzero_si256();
    for (int32_t k = 0; k < a->shape->group; k += bits == 4 ? 8 : 4, p += PANEL_LINE) {
        __m256i w = _mm256_loadu_si256((const __m256i *)(const void *)p);
        __m256i lo = _mm256_and_si256(w, low), hi = _mm256_and_si256(_mm256_srli_epi16(w, 4), low);
        for (int m = 0; m < n; m++) {
            const int8_t *x = q + m * a->shape->group + k;
            total[m] = dot_add(total[m], lo, x, below, 1);
            if (bits == 4) total[m] = dot_add(total[m], hi, x + 4, below, 1);
            else total[m] = dot_add(total[m], hi, x, below, 16);
        }
    }
}

/* n rows of activations from `row` on (in one tile) against half a panel. */
INLINE void tile(const struct panel_args *a, const unsigned char *p, int64_t row, float *y, const int n, const int bits, const int narrow,
                 const int half) {
    const struct pack_shape *s = a->shape;
    struct acts_row x = acts_row_at(&a->x, row);
    size_t code_bytes = s->group_bytes - (narrow ? 64 : 128);
    __m256 acc[TILE];
    for (int m = 0; m < n; m++) acc[m] = _mm256_setzero_ps();
    for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
        __m256 inner[TILE];
        for (int m = 0; m < n; m++) inner[m] = _mm256_setzero_ps();
        for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
            __m256i total[TILE];
            __m256 scale, bias;
            group_dot(a, p + 32 * half, x.q, x.low, n, bits, total);
            load_scales(p + code_bytes, narrow, half, &scale, &bias);
            for (int m = 0; m < n; m++) {
                inner[m] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(total[m]), scale, inner[m]);
                inner[m] = _mm256_fmadd_ps(bias, _mm256_set1_ps(x.sum[m]), inner[m]);
            }
        }
        for (int m = 0; m < n; m++) acc[m] = _mm256_fmadd_ps(inner[m], _mm256_set1_ps(x.scale[m]), acc[m]);
    }
    for (int m = 0; m < n; m++) _mm256_storeu_ps(y + m * a->y_stride + 8 * half, acc[m]);
}

INLINE void rows(const struct panel_args *a, const int bits, const int narrow) {
    const unsigned char *p = a->panels;
    for (int64_t i = 0; i < a->n_panels; i++, p += a->shape->panel_bytes) {
        float *y = a->y + i * PANEL_ROWS;
        int64_t m = 0;
        for (; m + TILE <= a->n_rows; m += TILE)
            for (int half = 0; half < 2; half++) tile(a, p, m, y + m * a->y_stride, TILE, bits, narrow, half);
        for (; m < a->n_rows; m++)
            for (int half = 0; half < 2; half++) tile(a, p, m, y + m * a->y_stride, 1, bits, narrow, half);
    }
}

static void panel(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    if (s->code_bits == 4) {
        if (s->narrow_scales) rows(a, 4, 1);
        else rows(a, 4, 0);
    } else {
        if (s->narrow_scales) rows(a, 8, 1);
        else rows(a, 8, 0);
    }
}

INLINE int32_t sum_of(__m256i v) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

/* One group by its span's factor; returns the sum of its numbers. */
INLINE float quant_group(const float *x, int32_t group, __m256 inverse, int8_t *q, int64_t below) {
    __m256i total = _mm256_setzero_si256();
    for (int32_t i = 0; i < group; i += 8) {
        __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), inverse));
        total = _mm256_add_epi32(total, v);
        __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        __m128i high = _mm_srai_epi16(_mm_add_epi16(words, _mm_set1_epi16(8)), 4), low = _mm_sub_epi16(words, _mm_slli_epi16(high, 4));
        _mm_storel_epi64((__m128i *)(void *)(q + i), _mm_packs_epi16(high, high));
        _mm_storel_epi64((__m128i *)(void *)(q + below + i), _mm_packs_epi16(low, low));
    }
    return (float)sum_of(total);
}

static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row to = acts_row_at(out, row);
    for (int64_t g = 0; g < out->n_groups; to.scale += to.step) {
        int64_t end = g + acts_span_groups(out, g);
        float inverse = v_whole(x, (end - g) * out->group, ACTS_MAX, to.scale);
        for (; g < end; g++, x += out->group, to.q += to.q_step, to.sum += to.step)
            *to.sum = quant_group(x, out->group, _mm256_set1_ps(inverse), to.q, to.low);
    }
}

void kern_avx2(struct kernels *k) {
    fill_float_kernels(k);
    k->isa = "avx2";
    k->quant_row = quant_row;
    k->panel = panel;
}
