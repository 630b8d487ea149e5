/* AVX2 over nested panels, activations of one byte. vpmaddubsw leaves pairs of products in 16 bits; as many of them are added up as surely fit,
 * and the multiplication with the group's byte adds the two pairs of a row, too: it costs nothing beyond the sum.
 */
#include "backend/cpu/kern_avx2.h"
#include "backend/cpu/kern_nested_x86.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define ROLLED _Pragma("GCC unroll 1")

enum { TILE = 4, INPUTS = 16, HALF = PANEL_LINE / 2, PAIRS_MAX = NESTED_GROUPS_MAX / 2 };
_Static_assert(8 * 2 * 15 * ACTS_BYTE_MAX <= INT16_MAX && 2 * 2 * 63 * ACTS_BYTE_MAX <= INT16_MAX, "sums of pairs fit 16 bits");

INLINE __m256i load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256i four(const void *p) {
    int32_t word;
    memcpy(&word, p, 4);
    return _mm256_set1_epi32(word);
}

INLINE __m128i eight_bytes(const int8_t *p) {
    return _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* Codes of sixteen inputs of eight rows, four inputs at a time. */
INLINE void load_codes(const unsigned char *p, const int bits, __m256i out[4]) {
    const __m256i low = _mm256_set1_epi8(bits == 4 ? 15 : 63);
    __m256i first = load(p), second = load(p + PANEL_LINE);
    if (bits == 4) {
        out[0] = _mm256_and_si256(first, low);
        out[1] = _mm256_and_si256(_mm256_srli_epi16(first, 4), low);
        out[2] = _mm256_and_si256(second, low);
        out[3] = _mm256_and_si256(_mm256_srli_epi16(second, 4), low);
        return;
    }
    __m256i third = load(p + 2 * PANEL_LINE), high = _mm256_set1_epi8((char)0xC0);
    __m256i last =
        _mm256_or_si256(_mm256_srli_epi16(_mm256_and_si256(first, high), 6), _mm256_srli_epi16(_mm256_and_si256(second, high), 4));
    out[0] = _mm256_and_si256(first, low);
    out[1] = _mm256_and_si256(second, low);
    out[2] = _mm256_and_si256(third, low);
    out[3] = _mm256_or_si256(last, _mm256_srli_epi16(_mm256_and_si256(third, high), 2));
}

/* What a span's whole numbers are weighed by, for eight rows. pairs: two groups of each row as numbers of two bytes, to be multiplied with sums of
 * activations: bytes of biases, or of scales where codes are centred. */
struct span_weights {
    __m256i pairs[PAIRS_MAX];
    __m256 scale_1, bias_1;
};

INLINE void load_span_weights(const struct pack_span *at, int half, const int groups, struct span_weights *out) {
    const __m256i byte = _mm256_set1_epi32(0xFF);
    out->scale_1 = v_f16(at->scale_1 + 8 * half);
    out->bias_1 = _mm256_setzero_ps();
    if (!at->bias) {
        UNROLL for (int i = 0; i < groups / 2; i++) {
            const int8_t *p = at->scale + 2 * i * PANEL_ROWS + 8 * half;
            __m128i a = eight_bytes(p), b = eight_bytes(p + PANEL_ROWS);
            out->pairs[i] = _mm256_set_m128i(_mm_unpackhi_epi16(a, b), _mm_unpacklo_epi16(a, b));
        }
        return;
    }
    out->bias_1 = v_f16(at->bias_1 + 8 * half);
    UNROLL for (int i = 0; i < groups / 2; i++) { /* bytes that are not negative: four groups of a row, two of which are taken */
        __m256i two = _mm256_srli_epi32(load(at->bias + i / 2 * PANEL_LINE + HALF * half), i % 2 ? 16 : 0);
        __m256i second = _mm256_slli_epi32(_mm256_and_si256(_mm256_srli_epi32(two, 8), byte), 16);
        out->pairs[i] = _mm256_or_si256(_mm256_and_si256(two, byte), second);
    }
}

INLINE __m256 weigh_span(__m256 acc, __m256i total, const struct span_weights *w, const int16_t *sums, float scale, const int groups,
                         int centre) {
    __m256i other = _mm256_setzero_si256();
    UNROLL for (int i = 0; i < groups / 2; i++) other = _mm256_add_epi32(other, _mm256_madd_epi16(w->pairs[i], four(sums + 2 * i)));
    if (centre) total = _mm256_sub_epi32(total, _mm256_sll_epi32(other, _mm_cvtsi32_si128(centre)));
    __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(total), w->scale_1);
    if (!centre) v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(other), w->bias_1, v);
    return _mm256_fmadd_ps(v, _mm256_set1_ps(scale), acc);
}

/* ---- products ----------------------------------------------------------------------------------------------------- */

/* Sixteen inputs of a group. pairs: sums of pairs of products, which begin anew where they would not fit. */
INLINE void sixteen_dot(const unsigned char *p, const int8_t *q, __m256i scale, const int n, const int bits, __m256i pairs[TILE],
                        __m256i sums[TILE]) {
    __m256i w[4];
    __asm__("" : "+r"(q)); /* else the address of each four bytes is kept in a register, or in what is left of them */
    load_codes(p, bits, w);
    UNROLL for (int m = 0; m < n; m++) {
        const int8_t *x = q + m * NESTED_STEP;
        __m256i first = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], four(x)), _mm256_maddubs_epi16(w[1], four(x + 4)));
        __m256i second = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], four(x + 8)), _mm256_maddubs_epi16(w[3], four(x + 12)));
        if (bits == 4) {
            pairs[m] = _mm256_add_epi16(pairs[m], _mm256_add_epi16(first, second));
            __asm__("" : "+x"(pairs[m])); /* else gcc 12 adds up in another order, for which there are too few registers */
        } else sums[m] = _mm256_add_epi32(sums[m], _mm256_add_epi32(_mm256_madd_epi16(first, scale), _mm256_madd_epi16(second, scale)));
    }
}

enum { TWICE = 0xA0 }; /* for shuffles of words: the first of two, and again */

/* A group of eight rows of a panel for n rows of activations: sums of codes times the group's bytes are added to sums. */
INLINE void group_dot(const unsigned char *p, const int8_t *q, const int8_t *scales, const int n, const int bits, const int group,
                      __m256i sums[TILE]) {
    __m256i bytes = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)scales));
    __m256i scale = _mm256_shufflelo_epi16(_mm256_shufflehi_epi16(bytes, TWICE), TWICE), pairs[TILE];
    UNROLL for (int m = 0; m < n; m++) pairs[m] = _mm256_setzero_si256();
    UNROLL for (int k = 0; k < group; k += INPUTS) sixteen_dot(p + k * PANEL_ROWS * bits / 8, q + k, scale, n, bits, pairs, sums);
    UNROLL for (int m = 0; m < n && bits == 4; m++) sums[m] = _mm256_add_epi32(sums[m], _mm256_madd_epi16(pairs[m], scale));
}

/* n rows of activations from `row` on (in one tile) against half a panel. */
INLINE void tile(const struct panel_args *a, const unsigned char *p, int64_t row, int half, float *y, const int n, const int bits,
                 const int group) {
    const struct pack_shape *s = a->shape;
    const int groups = PACK_SPAN / group, centre = s->centre ? __builtin_ctz((unsigned)s->centre) : 0;
    const int64_t step = (int64_t)a->x.tile * NESTED_STEP;
    __m256 acc[TILE];
    UNROLL for (int m = 0; m < n; m++) acc[m] = _mm256_setzero_ps();
    for (int64_t span = 0; span < s->in / PACK_SPAN; span++, p += s->span_bytes) {
        struct nested_acts x = nested_acts_at(&a->x, row, span);
        struct pack_span at = pack_span_at(s, p);
        struct span_weights weights;
        __m256i sums[TILE];
        UNROLL for (int m = 0; m < n; m++) sums[m] = _mm256_setzero_si256();
        ROLLED for (int g = 0; g < groups; g++) {
            const int8_t *q = x.q + g * group / NESTED_STEP * step + g * group % NESTED_STEP;
            group_dot(p + g * (group * PANEL_ROWS * bits / 8) + HALF * half, q, at.scale + g * PANEL_ROWS + 8 * half, n, bits, group, sums);
        }
        load_span_weights(&at, half, groups, &weights);
        UNROLL for (int m = 0; m < n; m++) acc[m] =
            weigh_span(acc[m], sums[m], &weights, x.sums + m * 2 * groups, x.scale[m], groups, centre);
    }
    UNROLL for (int m = 0; m < n; m++) _mm256_storeu_ps(y + m * a->y_stride + 8 * half, acc[m]);
}

INLINE void rows(const struct panel_args *a, const int bits, const int group) {
    const unsigned char *p = a->panels;
    for (int64_t i = 0; i < a->n_panels; i++, p += a->shape->panel_bytes) {
        float *y = a->y + i * PANEL_ROWS;
        int64_t m = 0;
        for (; m + TILE <= a->n_rows; m += TILE)
            for (int half = 0; half < 2; half++) tile(a, p, m, half, y + m * a->y_stride, TILE, bits, group);
        for (; m + 2 <= a->n_rows; m += 2)
            for (int half = 0; half < 2; half++) tile(a, p, m, half, y + m * a->y_stride, 2, bits, group);
        for (; m < a->n_rows; m++)
            for (int half = 0; half < 2; half++) tile(a, p, m, half, y + m * a->y_stride, 1, bits, group);
    }
}

static void nested(const struct panel_args *a) {
    bool wide = a->shape->group == 32;
    if (a->shape->code_bits == 4 && wide) rows(a, 4, 32);
    else if (a->shape->code_bits == 4) rows(a, 4, 16);
    else if (wide) rows(a, 6, 32);
    else rows(a, 6, 16);
}

/* ---- activations -------------------------------------------------------------------------------------------------- */

/* Sixteen inputs to bytes; returns their sum. */
INLINE int quant_sixteen(const float *x, __m256 factor, int8_t *q) {
    __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), factor));
    __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), factor));
    __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
    _mm_storeu_si128((__m128i *)(void *)q, _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
    __m256i pairs = _mm256_add_epi32(a, b);
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
}

static void nested_row(const float *x, const struct quant_acts *out, int64_t row) {
    for (int64_t span = 0; span < out->in / PACK_SPAN; span++, x += PACK_SPAN) {
        struct nested_acts to = nested_acts_at(out, row, span);
        float inverse = v_whole(x, PACK_SPAN, ACTS_BYTE_MAX, to.scale);
        for (int k = 0; k < PACK_SPAN; k += out->group) {
            int8_t *q = to.q + (int64_t)(k / NESTED_STEP) * out->tile * NESTED_STEP + k % NESTED_STEP;
            int sum = 0;
            for (int i = 0; i < out->group; i += INPUTS) sum += quant_sixteen(x + k + i, _mm256_set1_ps(inverse), q + i);
            *to.sums++ = (int16_t)sum;
        }
    }
}

void kern_avx2_nested(struct kernels *k) {
    k->nested_row = nested_row;
    k->nested = nested;
}
