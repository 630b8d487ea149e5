/* Nested panels with vectors of sixteen rows: what the kernels of VNNI and those of AMX share. For files compiled with AVX-512 VNNI.
 *
 * All sums of a span are whole numbers, so both give the same bits.
 */
#ifndef MLXCEL_BACKEND_CPU_KERN_NESTED_AVX512_H
#define MLXCEL_BACKEND_CPU_KERN_NESTED_AVX512_H

#include "backend/cpu/kern_avx512.h"
#include "backend/cpu/kern_nested_x86.h"

#ifndef INLINE
#define INLINE static inline __attribute__((always_inline))
#endif
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")

enum { PAIRS_MAX = NESTED_GROUPS_MAX / 2 };
enum { CHOOSE = 0xCA }; /* of three operands: bits of the second where the first has one, else of the third */

/* What a span's whole numbers are weighed by. pairs: two groups of each row as numbers of two bytes, to be multiplied with sums of
 * activations: bytes of biases, or of scales where codes are centred. */
struct span_weights {
    __m512i pairs[PAIRS_MAX];
    __m512 scale_1, bias_1;
};

INLINE __m512i four(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm512_set1_epi32(word);
}

INLINE __m512i sixteen_bytes(const int8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* Codes of sixteen inputs of sixteen rows, four inputs at a time. */
INLINE void load_codes(const unsigned char *p, const int bits, __m512i out[4]) {
    const __m512i low = _mm512_set1_epi8(bits == 4 ? 15 : 63);
    __m512i first = _mm512_loadu_si512(p), second = _mm512_loadu_si512(p + PANEL_LINE);
    if (bits == 4) {
        out[0] = _mm512_and_si512(first, low);
        out[1] = _mm512_and_si512(_mm512_srli_epi16(first, 4), low);
        out[2] = _mm512_and_si512(second, low);
        out[3] = _mm512_and_si512(_mm512_srli_epi16(second, 4), low);
        return;
    }
    __m512i third = _mm512_loadu_si512(p + 2 * PANEL_LINE), last = _mm512_srli_epi16(third, 2);
    out[0] = _mm512_and_si512(first, low);
    out[1] = _mm512_and_si512(second, low);
    out[2] = _mm512_and_si512(third, low);
    last = _mm512_ternarylogic_epi32(_mm512_set1_epi8(15), _mm512_srli_epi16(second, 4), last, CHOOSE);
    last = _mm512_ternarylogic_epi32(_mm512_set1_epi8(3), _mm512_srli_epi16(first, 6), last, CHOOSE);
    out[3] = _mm512_and_si512(last, low);
}

INLINE void load_span_weights(const struct pack_span *at, const int groups, struct span_weights *out) {
    const __m512i half = _mm512_set1_epi32(0xFFFF), byte = _mm512_set1_epi32(0xFF);
    out->scale_1 = v_f16(at->scale_1);
    out->bias_1 = _mm512_setzero_ps();
    if (!at->bias) {
        UNROLL for (int i = 0; i < groups / 2; i++) {
            __m512i a = sixteen_bytes(at->scale + 2 * i * PANEL_ROWS), b = sixteen_bytes(at->scale + (2 * i + 1) * PANEL_ROWS);
            out->pairs[i] = _mm512_or_si512(_mm512_and_si512(a, half), _mm512_slli_epi32(b, 16));
        }
        return;
    }
    out->bias_1 = v_f16(at->bias_1);
    UNROLL for (int i = 0; i < groups / 4; i++) { /* bytes that are not negative: four groups of a row */
        __m512i four_groups = _mm512_loadu_si512(at->bias + i * PANEL_LINE), upper = _mm512_srli_epi32(four_groups, 16);
        out->pairs[2 * i] = _mm512_or_si512(_mm512_and_si512(four_groups, byte),
                                            _mm512_slli_epi32(_mm512_and_si512(_mm512_srli_epi32(four_groups, 8), byte), 16));
        out->pairs[2 * i + 1] =
            _mm512_or_si512(_mm512_and_si512(upper, byte), _mm512_slli_epi32(_mm512_and_si512(_mm512_srli_epi32(upper, 8), byte), 16));
    }
}

/* Adds to acc what a span makes of one row of activations: `total` are sums of codes times bytes of scales. centre: of the codes, as a
 * power of two; 0: biases have bytes. */
INLINE __m512 weigh_span(__m512 acc, __m512i total, const struct span_weights *w, const int16_t *sums, float scale, const int groups,
                         const int centre) {
    __m512i other = _mm512_setzero_si512();
    UNROLL for (int i = 0; i < groups / 2; i++) other = _mm512_dpwssd_epi32(other, w->pairs[i], four(sums + 2 * i));
    if (centre) total = _mm512_sub_epi32(total, _mm512_sll_epi32(other, _mm_cvtsi32_si128(centre)));
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(total), w->scale_1);
    if (!centre) v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(other), w->bias_1, v);
    return _mm512_fmadd_ps(v, _mm512_set1_ps(scale), acc);
}

/* The power of two that weigh_span wants. */
static inline int nested_centre(const struct pack_shape *s) {
    return s->centre ? __builtin_ctz((unsigned)s->centre) : 0;
}

#endif
