/* AVX-512 with VNNI: vpdpbusd takes codes as the unsigned operand, four inputs of sixteen rows at a time.
 *
 * One 64-byte line of 4-bit codes is 128 weights: a load, two masks, a shift and two dot products for each row of
 * activations, whose four bytes come by a broadcast from memory. Up to eight rows share the unpacked line.
 */
#include "backend/cpu/kern.h"

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

enum { TILE = 8 };

INLINE void load_scales(const unsigned char *p, int narrow, __m512 *scale, __m512 *bias) {
    if (narrow) {
        __m512i s = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
        __m512i b = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(p + 32)));
        *scale = _mm512_castsi512_ps(_mm512_slli_epi32(s, 16));
        *bias = _mm512_castsi512_ps(_mm512_slli_epi32(b, 16));
    } else {
        *scale = _mm512_loadu_ps((const float *)(const void *)p);
        *bias = _mm512_loadu_ps((const float *)(const void *)(p + 64));
    }
}

INLINE __m512i four(const int8_t *q) {
    int32_t word;
    memcpy(&word, q, 4);
    return _mm512_set1_epi32(word);
}

/* Rows [first, first + n) of the activations against the panel; n, bits and narrow are constants where this is expanded.
 * A single row keeps two integer sums, to hide the latency; integer sums are exact in any order. */
INLINE void tile(const struct panel_args *a, int64_t first, const int n, const int bits, const int narrow) {
    const struct pack_shape *s = a->shape;
    const unsigned char *p = a->panel;
    const int8_t *q = a->x.q + first * a->x.in;
    const float *sx = a->x.scale + first * a->x.n_groups, *sum = a->x.sum + first * a->x.n_groups;
    const __m512i low = _mm512_set1_epi8(15);
    __m512 acc[TILE];
    for (int m = 0; m < n; m++) acc[m] = _mm512_setzero_ps();
    for (int64_t g = 0; g < a->x.n_groups; g++) {
        __m512i total[TILE], other = _mm512_setzero_si512();
        for (int m = 0; m < n; m++) total[m] = _mm512_setzero_si512();
        for (int32_t k = 0; k < s->group; k += bits == 4 ? 8 : 4, p += PANEL_LINE) {
            __m512i w = _mm512_loadu_si512(p);
            if (bits == 4) {
                __m512i lo = _mm512_and_si512(w, low), hi = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
                for (int m = 0; m < n; m++) {
                    total[m] = _mm512_dpbusd_epi32(total[m], lo, four(q + m * a->x.in + k));
                    if (n == 1) other = _mm512_dpbusd_epi32(other, hi, four(q + k + 4));
                    else total[m] = _mm512_dpbusd_epi32(total[m], hi, four(q + m * a->x.in + k + 4));
                }
            } else {
                for (int m = 0; m < n; m++) total[m] = _mm512_dpbusd_epi32(total[m], w, four(q + m * a->x.in + k));
            }
        }
        if (n == 1 && bits == 4) total[0] = _mm512_add_epi32(total[0], other);
        __m512 scale, bias;
        load_scales(p, narrow, &scale, &bias);
        p += narrow ? 64 : 128;
        for (int m = 0; m < n; m++) {
            __m512 weighed = _mm512_mul_ps(scale, _mm512_set1_ps(sx[m * a->x.n_groups + g]));
            acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[m]), weighed, acc[m]);
            acc[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(sum[m * a->x.n_groups + g]), acc[m]);
        }
        q += s->group;
    }
    for (int m = 0; m < n; m++) _mm512_storeu_ps(a->y + (first + m) * a->y_stride, acc[m]);
}

INLINE void rows(const struct panel_args *a, const int bits, const int narrow) {
    int64_t m = 0;
    for (; m + TILE <= a->n_rows; m += TILE) tile(a, m, TILE, bits, narrow);
    if (m + 4 <= a->n_rows) tile(a, m, 4, bits, narrow), m += 4;
    if (m + 2 <= a->n_rows) tile(a, m, 2, bits, narrow), m += 2;
    if (m < a->n_rows) tile(a, m, 1, bits, narrow);
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

static void quant_row(const float *x, int64_t n, int32_t group, int8_t *q, float *scale, float *sum) {
    for (int64_t g = 0; g < n / group; g++, x += group, q += group) {
        __m512 max = _mm512_setzero_ps();
        for (int32_t i = 0; i < group; i += 16) max = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)), max);
        /* max_ps drops a NaN in its first operand: look for one apart */
        __mmask16 odd = 0;
        for (int32_t i = 0; i < group; i += 16) odd |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + i), 0x99);
        float most = _mm512_reduce_max_ps(max), inverse = most > 0 && !odd ? 127.0f / most : 0;
        __m512i total = _mm512_setzero_si512();
        for (int32_t i = 0; i < group; i += 16) {
            __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inverse)));
            total = _mm512_add_epi32(total, v);
            _mm_storeu_si128((__m128i *)(q + i), _mm512_cvtepi32_epi8(v));
        }
        scale[g] = odd ? __builtin_nanf("") : most * (1.0f / 127.0f);
        sum[g] = scale[g] * (float)_mm512_reduce_add_epi32(total);
    }
}

INLINE __m512 widen(const void *w, int64_t i, const enum dtype dtype) {
    if (dtype == DT_F32) return _mm512_loadu_ps((const float *)w + i);
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)((const uint16_t *)w + i));
    if (dtype == DT_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

INLINE __m512 widen_tail(const void *w, int64_t i, const enum dtype dtype, __mmask16 some) {
    if (dtype == DT_F32) return _mm512_maskz_loadu_ps(some, (const float *)w + i);
    __m256i h = _mm256_maskz_loadu_epi16(some, (const uint16_t *)w + i);
    if (dtype == DT_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Two chains per row, whatever the number of rows: the order of additions is part of the result. */
INLINE void plain_tile(const struct plain_args *a, int64_t first, const int n, const enum dtype dtype) {
    __m512 even[4], odd[4];
    const float *x = a->x + first * a->x_stride;
    for (int m = 0; m < n; m++) even[m] = odd[m] = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + 32 <= a->n; i += 32) {
        __m512 w0 = widen(a->w, i, dtype), w1 = widen(a->w, i + 16, dtype);
        for (int m = 0; m < n; m++) {
            even[m] = _mm512_fmadd_ps(w0, _mm512_loadu_ps(x + m * a->x_stride + i), even[m]);
            odd[m] = _mm512_fmadd_ps(w1, _mm512_loadu_ps(x + m * a->x_stride + i + 16), odd[m]);
        }
    }
    for (; i < a->n; i += 16) {
        __mmask16 some = a->n - i >= 16 ? 0xFFFF : (__mmask16)((1u << (a->n - i)) - 1);
        __m512 w0 = widen_tail(a->w, i, dtype, some);
        for (int m = 0; m < n; m++) even[m] = _mm512_fmadd_ps(w0, _mm512_maskz_loadu_ps(some, x + m * a->x_stride + i), even[m]);
    }
    for (int m = 0; m < n; m++) a->y[(first + m) * a->y_stride] = _mm512_reduce_add_ps(_mm512_add_ps(even[m], odd[m]));
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
    __m512 s = _mm512_set1_ps(scale);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(y + i, _mm512_fmadd_ps(s, _mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
    if (i == n) return;
    __mmask16 some = (__mmask16)((1u << (n - i)) - 1);
    _mm512_mask_storeu_ps(y + i, some, _mm512_fmadd_ps(s, _mm512_maskz_loadu_ps(some, x + i), _mm512_maskz_loadu_ps(some, y + i)));
}

void kern_vnni(struct kernels *k) {
    k->isa = "avx512-vnni";
    k->dot = dot;
    k->axpy = axpy;
    k->quant_row = quant_row;
    k->panel = panel;
    k->plain = plain;
}
