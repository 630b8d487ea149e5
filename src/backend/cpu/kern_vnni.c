/* AVX-512 with VNNI: vpdpbusd takes codes as the unsigned operand, four inputs of sixteen rows at a time.
 *
 * One 64-byte line of 4-bit codes is 128 weights: a load, two masks, a shift and two dot products for each row of
 * activations, whose four bytes come by a broadcast from memory. Up to eight rows share the unpacked line.
 */
#include "backend/cpu/kern.h"

#include <immintrin.h>

typedef __m512 vf;
enum { VW = 16, SCORE_HEADS = 4, MIX_HEADS = 4 };

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

#include "backend/cpu/kern_tmpl.h"

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

/* n rows of activations from `row` on (in one tile) against a panel; n, bits and narrow are constants where this is
 * expanded. A single row keeps two integer sums, to hide the latency; integer sums are exact in any order. */
INLINE void tile(const struct panel_args *a, const unsigned char *p, int64_t row, float *y, const int n, const int bits, const int narrow) {
    const struct pack_shape *s = a->shape;
    struct acts_row x = acts_row_at(&a->x, row);
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
                    const int8_t *q = x.q + m * s->group + k;
                    total[m] = _mm512_dpbusd_epi32(total[m], lo, four(q));
                    if (n == 1) other = _mm512_dpbusd_epi32(other, hi, four(q + 4));
                    else total[m] = _mm512_dpbusd_epi32(total[m], hi, four(q + 4));
                }
            } else {
                for (int m = 0; m < n; m++) total[m] = _mm512_dpbusd_epi32(total[m], w, four(x.q + m * s->group + k));
            }
        }
        if (n == 1 && bits == 4) total[0] = _mm512_add_epi32(total[0], other);
        __m512 scale, bias;
        load_scales(p, narrow, &scale, &bias);
        p += narrow ? 64 : 128;
        for (int m = 0; m < n; m++) {
            __m512 weighed = _mm512_mul_ps(scale, _mm512_set1_ps(x.scale[m]));
            acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(total[m]), weighed, acc[m]);
            acc[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(x.sum[m]), acc[m]);
        }
        x.q += x.q_step, x.scale += x.step, x.sum += x.step;
    }
    for (int m = 0; m < n; m++) _mm512_storeu_ps(y + m * a->y_stride, acc[m]);
}

INLINE void rows(const struct panel_args *a, const int bits, const int narrow) {
    const unsigned char *p = a->panels;
    for (int64_t i = 0; i < a->n_panels; i++, p += a->shape->panel_bytes) {
        float *y = a->y + i * PANEL_ROWS;
        int64_t m = 0;
        for (; m + TILE <= a->n_rows; m += TILE) tile(a, p, m, y + m * a->y_stride, TILE, bits, narrow);
        if (m + 4 <= a->n_rows) tile(a, p, m, y + m * a->y_stride, 4, bits, narrow), m += 4;
        if (m + 2 <= a->n_rows) tile(a, p, m, y + m * a->y_stride, 2, bits, narrow), m += 2;
        if (m < a->n_rows) tile(a, p, m, y + m * a->y_stride, 1, bits, narrow);
    }
}

void kern_vnni_panel(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    if (s->code_bits == 4) {
        if (s->narrow_scales) rows(a, 4, 1);
        else rows(a, 4, 0);
    } else {
        if (s->narrow_scales) rows(a, 8, 1);
        else rows(a, 8, 0);
    }
}

static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row to = acts_row_at(out, row);
    int32_t group = out->group;
    for (int64_t g = 0; g < out->n_groups; g++, x += group, to.q += to.q_step, to.scale += to.step, to.sum += to.step) {
        __m512 max = _mm512_setzero_ps();
        for (int32_t i = 0; i < group; i += 16) max = _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)), max);
        /* max_ps drops a NaN in its first operand: look for one apart */
        __mmask16 odd = 0;
        for (int32_t i = 0; i < group; i += 16) odd |= _mm512_fpclass_ps_mask(_mm512_loadu_ps(x + i), 0x99);
        float most = _mm512_reduce_max_ps(max), inverse = most > ACTS_LEAST && !odd ? 127.0f / most : 0;
        __m512i total = _mm512_setzero_si512();
        for (int32_t i = 0; i < group; i += 16) {
            __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inverse)));
            total = _mm512_add_epi32(total, v);
            _mm_storeu_si128((__m128i *)(to.q + i), _mm512_cvtepi32_epi8(v));
        }
        *to.scale = odd ? __builtin_nanf("") : most * (1.0f / 127.0f);
        *to.sum = *to.scale * (float)_mm512_reduce_add_epi32(total);
    }
}

void kern_vnni(struct kernels *k) {
    fill_float_kernels(k);
    k->isa = "avx512-vnni";
    k->quant_row = quant_row;
    k->panel = kern_vnni_panel;
}
