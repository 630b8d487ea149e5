/* AVX-512 with VNNI: vpdpbusd takes codes as the unsigned operand, four inputs of sixteen rows at a time.
 *
 * One 64-byte line of 4-bit codes is 128 weights: two loads, two masks, a shift and four dot products for each row of
 * activations, whose high and low bytes come by fours by broadcasts from memory. Up to eight rows share the unpacked line.
 */
#include "backend/cpu/kern_avx512.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

typedef __m512i vi;
enum { ROWS_MAX = 8 };

INLINE vf v_float(vi a) {
    return _mm512_cvtepi32_ps(a);
}

INLINE struct acts_row acts_at(const struct quant_acts *x, int64_t row) {
    return acts_row_at(x, row);
}

/* The product reads its four bytes itself. From intrinsics gcc 12 makes a load of its own for each, and moves the sums about. */
INLINE __m512i dot_four(__m512i sum, __m512i w, const int8_t *q) {
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const int8_t(*)[4])q));
    return sum;
}

/* A line of codes against four inputs of each of n rows: high bytes from q on, low ones from `below` on. */
INLINE void line_add(__m512i w, const int8_t *q, const int8_t *below, __m512i *high, __m512i *rest, const int n, const int group) {
    UNROLL for (int m = 0; m < n; m++) high[m] = dot_four(high[m], w, q + m * group);
    UNROLL for (int m = 0; m < n; m++) rest[m] = dot_four(rest[m], w, below + m * group);
}

INLINE void lines_add(const unsigned char *p, const int8_t *q, const int8_t *below, __m512i *high, __m512i *rest, const int n,
                      const int bits, const int group) {
    const __m512i low = _mm512_set1_epi8(15);
    UNROLL for (int k = 0; k < group; k += 32 / bits, p += PANEL_LINE) {
        __m512i w = _mm512_loadu_si512(p);
        line_add(bits == 4 ? _mm512_and_si512(w, low) : w, q + k, below + k, high, rest, n, group);
        if (bits == 8) continue;
        line_add(_mm512_and_si512(_mm512_srli_epi16(w, 4), low), q + k + 4, below + k + 4, high, rest, n, group);
    }
}

/* Sums of high and low bytes are kept apart; integer sums are exact in any order. */
INLINE void group_dots(const unsigned char *p, const struct acts_row *x, vi *total, const int n, const int bits, const int group) {
    __m512i rest[ROWS_MAX];
    const int8_t *q = x->q, *below = q + x->low;
    __asm__("" : "+r"(q), "+r"(below)); /* else the address of each four bytes is kept in a register, or in what is left of them */
    UNROLL for (int m = 0; m < n; m++) total[m] = rest[m] = _mm512_setzero_si512();
    lines_add(p, q, below, total, rest, n, bits, group);
    UNROLL for (int m = 0; m < n; m++) total[m] = _mm512_add_epi32(_mm512_slli_epi32(total[m], 4), rest[m]);
}

#include "backend/cpu/kern_panel_tmpl.h"

void kern_vnni_panel(const struct panel_args *a) {
    panel(a);
}

/* One group by its span's factor; returns the sum of its numbers. */
INLINE float quant_group(const float *x, int32_t group, __m512 inverse, int8_t *q, int64_t below) {
    __m512i total = _mm512_setzero_si512();
    for (int32_t i = 0; i < group; i += 16) {
        __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
        __m512i high = _mm512_srai_epi32(_mm512_add_epi32(v, _mm512_set1_epi32(8)), 4);
        total = _mm512_add_epi32(total, v);
        _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtepi32_epi8(high));
        _mm_storeu_si128((__m128i *)(void *)(q + below + i), _mm512_cvtepi32_epi8(_mm512_sub_epi32(v, _mm512_slli_epi32(high, 4))));
    }
    return (float)_mm512_reduce_add_epi32(total);
}

/* The same for a group of 64, whose numbers become words and then bytes together. */
INLINE float quant_64(const float *x, __m512 inverse, int8_t *q, int64_t below) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), ones = _mm512_set1_epi16(1);
    __m512i v[4], high[2], low[2], total = _mm512_setzero_si512();
    UNROLL for (int i = 0; i < 4; i++) v[i] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + 16 * i), inverse));
    UNROLL for (int i = 0; i < 2; i++) {
        __m512i words = _mm512_packs_epi32(v[2 * i], v[2 * i + 1]);
        total = _mm512_dpwssd_epi32(total, words, ones);
        high[i] = _mm512_srai_epi16(_mm512_add_epi16(words, _mm512_set1_epi16(8)), 4);
        low[i] = _mm512_sub_epi16(words, _mm512_slli_epi16(high[i], 4));
    }
    _mm512_storeu_si512(q, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(high[0], high[1])));
    _mm512_storeu_si512(q + below, _mm512_permutexvar_epi32(order, _mm512_packs_epi16(low[0], low[1])));
    return (float)_mm512_reduce_add_epi32(total);
}

static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row to = acts_row_at(out, row);
    for (int64_t g = 0; g < out->n_groups; to.scale += to.step) {
        int64_t end = g + acts_span_groups(out, g);
        float inverse = v_whole(x, (end - g) * out->group, ACTS_MAX, to.scale);
        for (; g < end; g++, x += out->group, to.q += to.q_step, to.sum += to.step)
            *to.sum = out->group == 64 ? quant_64(x, _mm512_set1_ps(inverse), to.q, to.low)
                                       : quant_group(x, out->group, _mm512_set1_ps(inverse), to.q, to.low);
    }
}

void kern_vnni(struct kernels *k) {
    k->isa = "avx512-vnni";
    k->quant_row = quant_row;
    k->panel = kern_vnni_panel;
    k->row_more = 0.15f; /* two cores, whole steps of 4-bit models: 2 rows take 1.1, 4 rows 1.35 and 8 rows 2.05 */
}
