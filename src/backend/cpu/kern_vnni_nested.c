/* AVX-512 with VNNI over nested panels, activations of one byte: a group's dot products are multiplied with its byte and added up as whole
 * numbers, floats come once for 256 inputs.
 *
 * One row takes codes as they lie. Several rows share codes that are spread into bytes once: eight rows at a time, a load for eight
 * products.
 */
#include "backend/cpu/kern_nested_avx512.h"

enum { TILE = 8, STREAMS = 8, INPUTS = 16, LINES = PACK_SPAN / 4, BLOCK_SPANS = 4 };

/* ---- several rows ------------------------------------------------------------------------------------------------- */

struct spread {
    unsigned char codes[LINES][PANEL_LINE] __attribute__((aligned(64)));
    struct span_weights weights;
    const int8_t *scale;
};

INLINE void spread_codes(const unsigned char *p, struct spread *out, const int bits) {
    for (int line = 0; line < LINES; line += 4, p += INPUTS * PANEL_ROWS * bits / 8) {
        __m512i w[4];
        load_codes(p, bits, w);
        UNROLL for (int i = 0; i < 4; i++) _mm512_store_si512(out->codes[line + i], w[i]);
    }
}

static void spread(const struct pack_shape *s, const unsigned char *p, struct spread *out) {
    struct pack_span at = pack_span_at(s, p);
    if (s->code_bits == 4) spread_codes(p, out, 4);
    else spread_codes(p, out, 6);
    if (s->group == 32) load_span_weights(&at, 8, &out->weights);
    else load_span_weights(&at, 16, &out->weights);
    out->scale = at.scale;
}

/* Some spans of a panel against n rows of one tile; what spans before gave is in y. */
struct part {
    const struct spread *w;
    const struct quant_acts *x;
    int64_t row, span, n_spans; /* span: the first one */
    int centre;
    float *y;
    int64_t y_stride;
};

INLINE void group_dot(const unsigned char *codes, const int8_t *q, const int n, const int group, __m512i total[TILE]) {
    UNROLL for (int m = 0; m < n; m++) total[m] = _mm512_setzero_si512();
    UNROLL for (int k = 0; k < group; k += 4) {
        __m512i w = _mm512_load_si512(codes + k / 4 * PANEL_LINE);
        UNROLL for (int m = 0; m < n; m++) total[m] = _mm512_dpbusd_epi32(total[m], w, four(q + m * NESTED_STEP + k));
    }
}

INLINE void part(const struct part *a, const int n, const int group) {
    const int groups = PACK_SPAN / group;
    const int64_t step = (int64_t)a->x->tile * NESTED_STEP;
    float *y = a->y;
    __m512 acc[TILE];
    UNROLL for (int m = 0; m < n; m++) acc[m] = a->span ? _mm512_loadu_ps(y + m * a->y_stride) : _mm512_setzero_ps();
    for (int64_t span = 0; span < a->n_spans; span++) {
        const struct spread *w = &a->w[span];
        struct nested_acts x = nested_acts_at(a->x, a->row, a->span + span);
        __m512i sums[TILE];
        UNROLL for (int m = 0; m < n; m++) sums[m] = _mm512_setzero_si512();
        ROLLED for (int g = 0; g < groups; g++) {
            const int8_t *q = x.q + g * group / NESTED_STEP * step + g * group % NESTED_STEP;
            __m512i total[TILE], scale = sixteen_bytes(w->scale + g * PANEL_ROWS);
            group_dot(w->codes[g * group / 4], q, n, group, total);
            UNROLL for (int m = 0; m < n; m++) sums[m] = _mm512_add_epi32(sums[m], _mm512_mullo_epi32(total[m], scale));
        }
        UNROLL for (int m = 0; m < n; m++) acc[m] =
            weigh_span(acc[m], sums[m], &w->weights, x.sums + m * 2 * groups, x.scale[m], groups, a->centre);
    }
    UNROLL for (int m = 0; m < n; m++) _mm512_storeu_ps(y + m * a->y_stride, acc[m]);
}

#define PART(N, GROUP)                                     \
    static void part_##N##_##GROUP(const struct part *a) { \
        part(a, N, GROUP);                                 \
    }
PART(8, 16)
PART(4, 16)
PART(2, 16)
PART(1, 16)
PART(8, 32)
PART(4, 32)
PART(2, 32)
PART(1, 32)

static void parts(struct part *p, int64_t n_rows, float *y, int32_t group) {
    static void (*const of_16[])(const struct part *) = {part_1_16, part_2_16, part_4_16, part_8_16};
    static void (*const of_32[])(const struct part *) = {part_1_32, part_2_32, part_4_32, part_8_32};
    int size = 3;
    for (p->row = 0; p->row < n_rows; p->row += 1 << size) {
        while (n_rows - p->row < 1 << size) size--;
        p->y = y + p->row * p->y_stride;
        (group == 16 ? of_16 : of_32)[size](p);
    }
}

static void rows(const struct panel_args *a) {
    const struct pack_shape *s = a->shape;
    struct spread spans[BLOCK_SPANS];
    int64_t n_spans = s->in / PACK_SPAN;
    struct part p = {.w = spans, .x = &a->x, .centre = nested_centre(s), .y_stride = a->y_stride};
    for (int64_t i = 0; i < a->n_panels; i++)
        for (p.span = 0; p.span < n_spans; p.span += p.n_spans) {
            p.n_spans = n_spans - p.span < BLOCK_SPANS ? n_spans - p.span : BLOCK_SPANS;
            for (int64_t k = 0; k < p.n_spans; k++)
                spread(s, a->panels + (size_t)i * s->panel_bytes + (size_t)(p.span + k) * s->span_bytes, &spans[k]);
            parts(&p, a->n_rows, a->y + i * PANEL_ROWS, s->group);
        }
}

/* ---- one row ------------------------------------------------------------------------------------------------------ */

/* A span of the row, as panels want it. begin: what a group's sum begins with, -centre times the sum of its inputs. high, low: sums of four groups
 * in bytes, sum = 128 high + low, for products with bytes of biases. */
struct row_x {
    const int8_t *q;
    float scale;
    int32_t begin[NESTED_GROUPS_MAX];
    int8_t high[NESTED_GROUPS_MAX], low[NESTED_GROUPS_MAX];
};

static void take_row_span(const struct panel_args *a, int64_t span, struct row_x *out) {
    struct nested_acts x = nested_acts_at(&a->x, 0, span);
    out->q = x.q, out->scale = *x.scale;
    for (int g = 0; g < PACK_SPAN / a->shape->group; g++) {
        out->begin[g] = -a->shape->centre * x.sums[g];
        out->high[g] = (int8_t)(x.sums[g] >> 7), out->low[g] = (int8_t)(x.sums[g] & 127);
    }
}

INLINE __m512i row_group(const unsigned char *p, size_t ahead, const int8_t *q, int32_t begin, const int bits, const int group) {
    __m512i even = _mm512_set1_epi32(begin), odd = _mm512_setzero_si512();
    UNROLL for (int k = 0; k < group; k += INPUTS, p += INPUTS * PANEL_ROWS * bits / 8) {
        __m512i w[4];
        UNROLL for (int line = 0; line < bits / 2; line++) _mm_prefetch((const char *)(p + ahead + line * PANEL_LINE), _MM_HINT_T0);
        load_codes(p, bits, w);
        UNROLL for (int i = 0; i < 4; i += 2) {
            even = _mm512_dpbusd_epi32(even, w[i], four(q + k + 4 * i));
            odd = _mm512_dpbusd_epi32(odd, w[i + 1], four(q + k + 4 * i + 4));
        }
    }
    return _mm512_add_epi32(even, odd);
}

/* Sums times bytes of biases. */
INLINE __m512i row_biases(const int8_t *bias, const struct row_x *x, const int groups) {
    __m512i high = _mm512_setzero_si512(), low = _mm512_setzero_si512();
    UNROLL for (int g = 0; g < groups; g += 4) {
        __m512i bytes = _mm512_loadu_si512(bias + g * PANEL_ROWS);
        high = _mm512_dpbusd_epi32(high, bytes, four(x->high + g));
        low = _mm512_dpbusd_epi32(low, bytes, four(x->low + g));
    }
    return _mm512_add_epi32(_mm512_slli_epi32(high, 7), low);
}

/* Adds to acc what a span of a panel makes of the row. ahead: from a line to the one that is asked for. */
INLINE __m512 row_span(const struct pack_shape *s, const unsigned char *p, size_t ahead, const struct row_x *x, __m512 acc, const int bits,
                       const int group) {
    const int groups = PACK_SPAN / group;
    const size_t group_bytes = (size_t)(group * PANEL_ROWS * bits / 8);
    struct pack_span at = pack_span_at(s, p);
    __m512i sums = _mm512_setzero_si512();
    ROLLED for (int g = 0; g < groups; g++) {
        __m512i total = row_group(p + (size_t)g * group_bytes, ahead, x->q + g * group, x->begin[g], bits, group);
        sums = _mm512_add_epi32(sums, _mm512_mullo_epi32(total, sixteen_bytes(at.scale + g * PANEL_ROWS)));
    }
    for (const unsigned char *end = p + s->span_bytes, *line = (const unsigned char *)at.scale; line < end; line += PANEL_LINE)
        _mm_prefetch((const char *)(line + ahead), _MM_HINT_T0);
    __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sums), v_f16(at.scale_1));
    if (at.bias) v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(row_biases(at.bias, x, groups)), v_f16(at.bias_1), v);
    return _mm512_fmadd_ps(v, _mm512_set1_ps(x->scale), acc);
}

/* Panels advance together, span by span: memory answers several streams sooner than one. */
INLINE void one_row(const struct panel_args *a, const int bits, const int group) {
    const struct pack_shape *s = a->shape;
    int64_t spans = s->in / PACK_SPAN;
    for (int64_t panel = 0, n; panel < a->n_panels; panel += n) {
        float acc[STREAMS][PANEL_ROWS] __attribute__((aligned(64))) = {{0}};
        const unsigned char *p = a->panels + (size_t)panel * s->panel_bytes;
        n = a->n_panels - panel < STREAMS ? a->n_panels - panel : STREAMS;
        for (int64_t span = 0; span < spans; span++, p += s->span_bytes) {
            struct row_x x;
            take_row_span(a, span, &x);
            /* what is asked for: the span after this one, or the first one of a panel that comes next */
            size_t ahead = s->span_bytes + (span + 1 < spans ? 0 : (size_t)(n - 1) * s->panel_bytes);
            for (int64_t i = 0; i < n; i++)
                _mm512_store_ps(acc[i], row_span(s, p + (size_t)i * s->panel_bytes, ahead, &x, _mm512_load_ps(acc[i]), bits, group));
        }
        memcpy(a->y + panel * PANEL_ROWS, acc, (size_t)n * sizeof *acc);
    }
}

static void row(const struct panel_args *a) {
    bool wide = a->shape->group == 32;
    if (a->shape->code_bits == 4 && wide) one_row(a, 4, 32);
    else if (a->shape->code_bits == 4) one_row(a, 4, 16);
    else if (wide) one_row(a, 6, 32);
    else one_row(a, 6, 16);
}

void kern_vnni_nested_panel(const struct panel_args *a) {
    if (a->x.tile == 1) row(a);
    else rows(a);
}

/* ---- activations -------------------------------------------------------------------------------------------------- */

/* 256 inputs to bytes, 64 at a time `step` apart; sums of groups. */
INLINE void quant_span(const float *x, float inverse, struct nested_acts to, int64_t step, const int32_t group) {
    const __m512 factor = _mm512_set1_ps(inverse);
    for (int32_t k = 0; k < PACK_SPAN; k += group, to.sums++) {
        int8_t *q = to.q + k / NESTED_STEP * step + k % NESTED_STEP;
        __m512i total = _mm512_setzero_si512();
        UNROLL for (int32_t i = 0; i < group; i += 16) {
            __m512i v = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + k + i), factor));
            total = _mm512_add_epi32(total, v);
            _mm_storeu_si128((__m128i *)(void *)(q + i), _mm512_cvtepi32_epi8(v));
        }
        *to.sums = (int16_t)_mm512_reduce_add_epi32(total);
    }
}

static void nested_row(const float *x, const struct quant_acts *out, int64_t row) {
    for (int64_t span = 0; span < out->in / PACK_SPAN; span++, x += PACK_SPAN) {
        struct nested_acts to = nested_acts_at(out, row, span);
        float inverse = v_whole(x, PACK_SPAN, ACTS_BYTE_MAX, to.scale);
        if (out->group == 32) quant_span(x, inverse, to, (int64_t)out->tile * NESTED_STEP, 32);
        else quant_span(x, inverse, to, (int64_t)out->tile * NESTED_STEP, 16);
    }
}

void kern_vnni_nested(struct kernels *k) {
    k->nested_row = nested_row;
    k->nested = kern_vnni_nested_panel;
}
