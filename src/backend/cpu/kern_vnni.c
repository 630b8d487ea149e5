/* AVX-512 with VNNI: vpdpbusd takes codes as the unsigned operand, four inputs of sixteen rows at a time.
 *
 * One 64-byte line of 4-bit codes is 128 weights: two loads, two masks, a shift and four dot products for each row of
 * activations, whose high and low bytes come by fours by broadcasts from memory. Up to eight rows share the unpacked line.
 */
#include "backend/cpu/kern_avx512.h"

enum { CHAINS = 2, SCORE_HEADS = 8, SCORE_SUMS = 16, MIX_HEADS = 8 };

#include "backend/cpu/kern_tmpl.h"

enum { ROWS_MAX = 8, STREAMS_MAX = 8 };

#define ROLLED _Pragma("GCC unroll 1")

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

/* One group of a panel for n rows of activations: weighed sums are added to inner. Sums of high and low bytes are kept
 * apart; integer sums are exact in any order. */
INLINE void group_add(const unsigned char *p, const struct acts_row *x, __m512 *inner, bool narrow, const int n, const int bits,
                      const int group) {
    __m512i high[ROWS_MAX], rest[ROWS_MAX];
    __m512 scale, bias;
    const int8_t *q = x->q, *below = q + x->low;
    __asm__("" : "+r"(q), "+r"(below)); /* else the address of each four bytes is kept in a register, or in what is left of them */
    UNROLL for (int m = 0; m < n; m++) high[m] = rest[m] = _mm512_setzero_si512();
    lines_add(p, q, below, high, rest, n, bits, group);
    p += group * bits / 8 * PANEL_ROWS;
    if (narrow) load_scales(p, 1, &scale, &bias);
    else load_scales(p, 0, &scale, &bias);
    UNROLL for (int m = 0; m < n; m++) {
        __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(high[m], 4), rest[m]);
        __m512 weighed = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, inner[m]);
        inner[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(x->sum[m]), weighed);
    }
}

/* What a tile asks for while it is at group g: `far` groups ahead in the same panel, or in those that come next. */
INLINE size_t far_ahead(const struct panel_args *a, int64_t g, int n_panels, const int far) {
    size_t same = (size_t)far * a->shape->group_bytes;
    return g + far < a->x.n_groups ? same : same + (size_t)(n_panels - 1) * a->shape->panel_bytes;
}

/* n rows of activations from `row` on (in one tile) against n_panels panels, which advance together, group by group. */
INLINE void tile(const struct panel_args *a, int64_t row, int64_t panel, int n_panels, const int n, const int bits, const int group,
                 const int far) {
    const struct pack_shape *s = a->shape;
    const unsigned char *p = a->panels + (size_t)panel * s->panel_bytes;
    struct acts_row x = acts_row_at(&a->x, row);
    __m512 acc[STREAMS_MAX][ROWS_MAX], inner[STREAMS_MAX][ROWS_MAX];
    ROLLED for (int i = 0; i < n_panels; i++) UNROLL for (int m = 0; m < n; m++) acc[i][m] = inner[i][m] = _mm512_setzero_ps();
    for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
        for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
            const unsigned char *at = p;
            size_t ahead = far_ahead(a, g, n_panels, far);
            ROLLED for (int i = 0; i < n_panels; i++, at += s->panel_bytes) {
                UNROLL for (int line = 0; line <= group * bits / 8 * PANEL_ROWS; line += PANEL_LINE)
                    _mm_prefetch((const char *)(at + ahead + line), _MM_HINT_T0);
                group_add(at, &x, inner[i], s->narrow_scales, n, bits, group);
            }
        }
        ROLLED for (int i = 0; i < n_panels; i++) UNROLL for (int m = 0; m < n; m++) {
            acc[i][m] = _mm512_fmadd_ps(inner[i][m], _mm512_set1_ps(x.scale[m]), acc[i][m]);
            inner[i][m] = _mm512_setzero_ps();
        }
    }
    float *y = a->y + row * a->y_stride + panel * PANEL_ROWS;
    ROLLED for (int i = 0; i < n_panels; i++) UNROLL for (int m = 0; m < n; m++)
        _mm512_storeu_ps(y + m * a->y_stride + i * PANEL_ROWS, acc[i][m]);
}

/* n rows against all panels. One row takes eight side by side: memory answers several streams sooner than one. Several rows have enough
 * to do with one, whose next groups are asked for early, and keep their sums in registers. */
INLINE void rows(const struct panel_args *a, int64_t row, const int n, const int bits, const int group) {
    enum { FAR = 512 }; /* inputs */
    if (n > 1) {
        for (int64_t p = 0; p < a->n_panels; p++) tile(a, row, p, 1, n, bits, group, FAR / group);
        return;
    }
    for (int64_t p = 0; p < a->n_panels; p += STREAMS_MAX)
        tile(a, row, p, a->n_panels - p < STREAMS_MAX ? (int)(a->n_panels - p) : STREAMS_MAX, n, bits, group, 1);
}

#define ROWS(N, BITS, GROUP)                                                           \
    static void rows_##N##_##BITS##_##GROUP(const struct panel_args *a, int64_t row) { \
        rows(a, row, N, BITS, GROUP);                                                  \
    }
#define SOME_ROWS(BITS, GROUP) ROWS(1, BITS, GROUP) ROWS(2, BITS, GROUP) ROWS(4, BITS, GROUP) ROWS(8, BITS, GROUP)
#define ALL_ROWS(BITS) SOME_ROWS(BITS, 64) ROWS(3, BITS, 64) ROWS(5, BITS, 64) ROWS(6, BITS, 64) ROWS(7, BITS, 64)
ALL_ROWS(4)
ALL_ROWS(8)
SOME_ROWS(4, 32)
SOME_ROWS(8, 32)
SOME_ROWS(4, 16)
SOME_ROWS(8, 16)

/* By the number of rows; where there is none, fewer rows go first. */
typedef void rows_fn(const struct panel_args *a, int64_t row);
#define SOME_OF(BITS, GROUP) \
    [1] = rows_1_##BITS##_##GROUP, [2] = rows_2_##BITS##_##GROUP, [4] = rows_4_##BITS##_##GROUP, [8] = rows_8_##BITS##_##GROUP
#define ALL_OF(BITS) \
    SOME_OF(BITS, 64), [3] = rows_3_##BITS##_64, [5] = rows_5_##BITS##_64, [6] = rows_6_##BITS##_64, [7] = rows_7_##BITS##_64
static rows_fn *const rows_of[2][3][ROWS_MAX + 1] = {
    {{ALL_OF(4)}, {SOME_OF(4, 32)}, {SOME_OF(4, 16)}},
    {{ALL_OF(8)}, {SOME_OF(8, 32)}, {SOME_OF(8, 16)}},
};

void kern_vnni_panel(const struct panel_args *a) {
    int32_t group = a->shape->group;
    rows_fn *const *of = rows_of[a->shape->code_bits == 8][group == 64 ? 0 : group == 32 ? 1 : 2];
    for (int64_t m = 0, n; m < a->n_rows; m += n) {
        n = a->n_rows - m < ROWS_MAX ? a->n_rows - m : ROWS_MAX;
        while (!of[n]) n--;
        of[n](a, m);
    }
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
    fill_float_kernels(k);
    k->isa = "avx512-vnni";
    k->quant_row = quant_row;
    k->panel = kern_vnni_panel;
    k->row_more = 0.15f; /* two cores, whole steps of 4-bit models: 2 rows take 1.1, 4 rows 1.35 and 8 rows 2.05 */
}
