/* AVX-512 with VNNI: vpdpbusd takes codes as the unsigned operand, four inputs of sixteen rows at a time.
 *
 * One 64-byte line of 4-bit codes is 128 weights: a load, two masks, a shift and four dot products for each row of
 * activations, whose high and low bytes come by fours by broadcasts from memory. Up to eight rows share the unpacked line.
 */
#include "backend/cpu/kern_avx512.h"

enum { CHAINS = 2, SCORE_HEADS = 8, SCORE_SUMS = 16, MIX_HEADS = 8 };

#include "backend/cpu/kern_tmpl.h"

enum { ROWS_MAX = 8, STREAMS_MAX = 8 };

INLINE __m512i four(const int8_t *q) {
    int32_t word;
    memcpy(&word, q, 4);
    return _mm512_set1_epi32(word);
}

/* One group of a panel for n rows of activations: weighed sums are added to inner. Sums of high and low bytes are kept
 * apart; integer sums are exact in any order. */
INLINE void group_add(const unsigned char *p, const struct acts_row *x, int32_t group, __m512 *inner, const int n, const int bits,
                      const int narrow) {
    const __m512i low = _mm512_set1_epi8(15);
    __m512i total[ROWS_MAX], rest[ROWS_MAX];
    for (int m = 0; m < n; m++) total[m] = rest[m] = _mm512_setzero_si512();
    for (int32_t k = 0; k < group; k += bits == 4 ? 8 : 4, p += PANEL_LINE) {
        __m512i w = _mm512_loadu_si512(p), lo = bits == 4 ? _mm512_and_si512(w, low) : w;
        for (int m = 0; m < n; m++) {
            const int8_t *q = x->q + m * group + k;
            total[m] = _mm512_dpbusd_epi32(total[m], lo, four(q));
            rest[m] = _mm512_dpbusd_epi32(rest[m], lo, four(q + x->low));
        }
        if (bits == 8) continue;
        __m512i hi = _mm512_and_si512(_mm512_srli_epi16(w, 4), low);
        for (int m = 0; m < n; m++) {
            const int8_t *q = x->q + m * group + k + 4;
            total[m] = _mm512_dpbusd_epi32(total[m], hi, four(q));
            rest[m] = _mm512_dpbusd_epi32(rest[m], hi, four(q + x->low));
        }
    }
    __m512 scale, bias;
    load_scales(p, narrow, &scale, &bias);
    for (int m = 0; m < n; m++) {
        __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(total[m], 4), rest[m]);
        inner[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, inner[m]);
        inner[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(x->sum[m]), inner[m]);
    }
}

/* n rows of activations from `row` on (in one tile) against n_panels panels; what is `const` is constant where this is
 * expanded. The panels advance together, group by group: memory answers several streams sooner than one. */
INLINE void tile(const struct panel_args *a, int64_t row, int64_t panel, const int n, const int n_panels, const int bits,
                 const int narrow) {
    const struct pack_shape *s = a->shape;
    const unsigned char *p = a->panels + (size_t)panel * s->panel_bytes;
    const int32_t group = s->group == 64 ? 64 : s->group;
    struct acts_row x = acts_row_at(&a->x, row);
    __m512 acc[STREAMS_MAX][ROWS_MAX], inner[STREAMS_MAX][ROWS_MAX];
    for (int i = 0; i < n_panels; i++)
        for (int m = 0; m < n; m++) acc[i][m] = _mm512_setzero_ps();
    for (int64_t g = 0; g < a->x.n_groups; x.scale += x.step) {
        for (int i = 0; i < n_panels; i++)
            for (int m = 0; m < n; m++) inner[i][m] = _mm512_setzero_ps();
        for (int64_t end = g + acts_span_groups(&a->x, g); g < end; g++, p += s->group_bytes, x.q += x.q_step, x.sum += x.step) {
            /* the group after this one is asked for: of the same panel, or the first one of a panel that comes next */
            size_t ahead = s->group_bytes + (g + 1 < a->x.n_groups ? 0 : (size_t)(n_panels - 1) * s->panel_bytes);
            for (int i = 0; i < n_panels; i++) {
                const unsigned char *at = p + (size_t)i * s->panel_bytes;
                for (size_t line = 0; line < s->group_bytes; line += PANEL_LINE)
                    _mm_prefetch((const char *)(at + ahead + line), _MM_HINT_T0);
                group_add(at, &x, group, inner[i], n, bits, narrow);
            }
        }
        for (int i = 0; i < n_panels; i++)
            for (int m = 0; m < n; m++) acc[i][m] = _mm512_fmadd_ps(inner[i][m], _mm512_set1_ps(x.scale[m]), acc[i][m]);
    }
    float *y = a->y + row * a->y_stride + panel * PANEL_ROWS;
    for (int i = 0; i < n_panels; i++)
        for (int m = 0; m < n; m++) _mm512_storeu_ps(y + m * a->y_stride + i * PANEL_ROWS, acc[i][m]);
}

/* n rows against all panels, as many at a time as the registers hold. */
INLINE void rows_of(const struct panel_args *a, int64_t row, const int n, const int n_panels, const int bits, const int narrow) {
    int64_t p = 0;
    for (; p + n_panels <= a->n_panels; p += n_panels) tile(a, row, p, n, n_panels, bits, narrow);
    if (n_panels > 4 && p + 4 <= a->n_panels) tile(a, row, p, n, 4, bits, narrow), p += 4;
    if (n_panels > 2 && p + 2 <= a->n_panels) tile(a, row, p, n, 2, bits, narrow), p += 2;
    for (; p < a->n_panels; p++) tile(a, row, p, n, 1, bits, narrow);
}

INLINE void rows(const struct panel_args *a, const int bits, const int narrow) {
    int64_t m = 0;
    for (; m + 8 <= a->n_rows; m += 8) rows_of(a, m, 8, 1, bits, narrow);
    if (m + 4 <= a->n_rows) rows_of(a, m, 4, 2, bits, narrow), m += 4;
    if (m + 2 <= a->n_rows) rows_of(a, m, 2, 4, bits, narrow), m += 2;
    if (m < a->n_rows) rows_of(a, m, 1, 8, bits, narrow);
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

static void quant_row(const float *x, const struct quant_acts *out, int64_t row) {
    struct acts_row to = acts_row_at(out, row);
    for (int64_t g = 0; g < out->n_groups; to.scale += to.step) {
        int64_t end = g + acts_span_groups(out, g);
        float inverse = v_whole(x, (end - g) * out->group, ACTS_MAX, to.scale);
        for (; g < end; g++, x += out->group, to.q += to.q_step, to.sum += to.step)
            *to.sum = quant_group(x, out->group, _mm512_set1_ps(inverse), to.q, to.low);
    }
}

void kern_vnni(struct kernels *k) {
    fill_float_kernels(k);
    k->isa = "avx512-vnni";
    k->quant_row = quant_row;
    k->panel = kern_vnni_panel;
}
