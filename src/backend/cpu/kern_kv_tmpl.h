/* A cache of 8 or 4 bits: everything but the sums of products, which a set of instructions brings along.
 *
 * One block of one key head is 64 scales in f32 and then codes, bytes without sign:
 *   8 bits  value = scale (code - 128)        codes [n / 4][lanes][4]
 *   4 bits  value = scale / 2 (2 code - 15)   codes [n / 8][lanes][4], the next four in the upper halves
 * Keys have n = width and a lane for each position: a score is a sum along the width. Values have n = 64 and a lane for each
 * element: the mix is a sum along the positions. Both are the same loop, kv_dot.
 *
 * (1) What is multiplied with codes is a whole number of 16 bits, 256 high + low: queries, and the weights of softmax times
 *     the scales of their positions. Sums are exact, so every set gives the same bits; floats come before and after, element
 *     by element.
 * (2) A scale belongs to one position: its bytes depend on that position alone, whatever the batch or the chunk.
 * (3) Vectors are turned by a Hadamard matrix before they are rounded. Scores do not change when queries are turned as well;
 *     the mix is turned back. A few large elements are spread over all of them: one scale serves the whole head.
 *
 * Plain loops that compilers turn into vectors; the file that includes this defines kv_dot, KV_PAIRS where it wants
 * multipliers as numbers of 16 bits, and KV_OWN_WEIGHTS where it brings kv_weights.
 */
#include "backend/cpu/kern.h"

#include <math.h>

enum { KV_MAGIC_BITS = 0x4B400000 };
#define KV_MAGIC 12582912.0f /* 1.5 * 2^23: what is added to it is rounded to a whole number, ties to even */

static inline int32_t kv_round(float x) {
    float sum = x + KV_MAGIC;
    int32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return bits - KV_MAGIC_BITS;
}

/* The largest magnitude of n numbers; NAN when one of them is not finite. Magnitudes are in the order of their bits. */
static float kv_most(const float *x, int32_t n) {
    int32_t most = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        bits &= 0x7FFFFFFF;
        most = bits > most ? bits : most;
    }
    float found;
    memcpy(&found, &most, sizeof found);
    return most < KV_FINITE_BITS ? found : NAN;
}

/* One stage of the transform: sums of neighbours, then their differences. As many stages as the size has bits are the Hadamard
 * matrix. */
static inline __attribute__((always_inline)) void kv_stage(const float *restrict x, float *restrict y, const int32_t half) {
    for (int32_t i = 0; i < half; i++) y[i] = x[2 * i] + x[2 * i + 1];
    for (int32_t i = 0; i < half; i++) y[half + i] = x[2 * i] - x[2 * i + 1];
}

/* The size is constant where this is expanded. */
static inline __attribute__((always_inline)) void kv_turn_part(float *x, const int32_t size) {
    float other[KV_WIDTH_MAX];
    int32_t left = size;
    for (; left >= 4; left /= 4) {
        kv_stage(x, other, size / 2);
        kv_stage(other, x, size / 2);
    }
    if (left < 2) return;
    kv_stage(x, other, size / 2);
    memcpy(x, other, (size_t)size * sizeof *x);
}

static void kv_turn(float *x, int32_t width) {
    int32_t size = kv_turn_size(width);
    for (float *end = x + width; x < end; x += size) {
        if (size == 128) kv_turn_part(x, 128);
        else if (size == 64) kv_turn_part(x, 64);
        else kv_turn_part(x, size);
    }
}

/* Numbers as multipliers of 16 bits. Returns their scale. */
static float kv_multipliers(const float *x, int32_t n, struct kv_query *out) {
    int32_t q[KV_WIDTH_MAX], sum = 0;
    float most = kv_most(x, n), inverse = most > KV_LEAST ? (float)KV_MULTIPLIER_MAX / most : 0;
    bool finite = most == most;
    for (int32_t i = 0; i < n; i++) q[i] = kv_round(finite ? x[i] * inverse : 0);
    for (int32_t i = 0; i < n; i++) sum += q[i];
    out->sum = sum;
    out->scale = most * (1.0f / (float)KV_MULTIPLIER_MAX);
#ifdef KV_PAIRS
    int16_t *m = out->m.pairs;
    for (int32_t i = 0; i < n; i += 4) {
        m[i] = (int16_t)q[i], m[i + 1] = (int16_t)q[i + 2];
        m[i + 2] = (int16_t)q[i + 1], m[i + 3] = (int16_t)q[i + 3];
    }
#else
    int8_t *high = out->m.bytes, *low = high + n;
    for (int32_t i = 0; i < n; i++) high[i] = (int8_t)((q[i] + 128) >> 8);
    for (int32_t i = 0; i < n; i++) low[i] = (int8_t)(q[i] - 256 * ((q[i] + 128) >> 8));
#endif
    return out->scale;
}

static void kv_query(const float *x, int32_t width, struct kv_query *out) {
    float turned[KV_WIDTH_MAX];
    memcpy(turned, x, (size_t)width * sizeof *x);
    kv_turn(turned, width);
    out->scale = kv_multipliers(turned, width, out) / (float)kv_turn_size(width);
}

/* Codes of 4 bits, then the scale that serves them best: least squares, over the numbers as multipliers. */
static float kv_codes_4(const float *x, int32_t width, float most, uint8_t *codes) {
    float inverse = most > KV_LEAST ? 7.5f / most : 0, finer = most > KV_LEAST ? (float)KV_MULTIPLIER_MAX / most : 0;
    int32_t products = 0, squares = 0;
    for (int32_t i = 0; i < width; i++) {
        int32_t code = kv_round(x[i] * inverse + 7.5f);
        code = code < 0 ? 0 : code > 15 ? 15 : code;
        codes[i] = (uint8_t)code;
        products += kv_round(x[i] * finer) * (2 * code - 15);
        squares += (2 * code - 15) * (2 * code - 15);
    }
    return 2.0f * most * ((float)products / ((float)squares * (float)KV_MULTIPLIER_MAX));
}

static float kv_store(const float *x, int32_t width, int32_t bits, uint8_t *codes) {
    float turned[KV_WIDTH_MAX];
    memcpy(turned, x, (size_t)width * sizeof *x);
    kv_turn(turned, width);
    float most = kv_most(turned, width), inverse = most > KV_LEAST ? 127.0f / most : 0;
    if (most != most) {
        memset(codes, 0, (size_t)width);
        return NAN;
    }
    if (bits == 4) return kv_codes_4(turned, width, most, codes);
    for (int32_t i = 0; i < width; i++) codes[i] = (uint8_t)(kv_round(turned[i] * inverse) + 128);
    return most * (1.0f / 127.0f);
}

/* As many lines as scales take: kv_dot asks for as many as it reads. */
static inline void kv_ask_rest(const struct kv_block *b) {
    uint32_t lines = (uint32_t)(b->width * b->bits) / 8;
    for (uint32_t i = 0; i < KV_SCALE_BYTES / KV_LINE; i++) kern_ask(b->ask, lines + i);
}

/* y = scale * scales[i] * (sums of products with values), or y += with one scale for all. */
static void kv_scores(const struct kv_block *b) {
    int32_t totals[KV_HEADS_MAX][KV_BLOCK_POS];
    const float *scales = (const float *)(const void *)b->cache;
    kv_ask_rest(b);
    kv_dot(b, b->q, b->width, KV_BLOCK_POS, totals[0], KV_BLOCK_POS);
    for (int32_t h = 0; h < b->heads; h++) {
        float *scores = b->scores + h * b->scores_stride, scale = b->q[h].scale * b->scale * (b->bits == 8 ? 1.0f : 0.5f);
        int32_t times = b->bits == 8 ? 1 : 2, less = (b->bits == 8 ? 128 : 15) * b->q[h].sum;
        for (int32_t p = 0; p < KV_BLOCK_POS; p++) scores[p] = (float)(times * totals[h][p] - less) * (scale * scales[p]);
    }
}

#ifndef KV_OWN_WEIGHTS
/* The weights of one head's positions times the scales of their values. */
static void kv_weights(const struct kv_block *b, int32_t h, struct kv_query *out) {
    float w[KV_BLOCK_POS] = {0};
    const float *scores = b->scores + h * b->scores_stride, *scales = (const float *)(const void *)b->cache;
    for (int32_t p = b->range[h][0]; p < b->range[h][1]; p++) w[p] = scores[p] * scales[p];
    kv_multipliers(w, KV_BLOCK_POS, out);
}
#endif

static void kv_mix(const struct kv_block *b) {
    int32_t totals[KV_HEADS_MAX][KV_WIDTH_MAX];
    struct kv_query weights[KV_HEADS_MAX];
    kv_ask_rest(b);
    weights[0].scale = 0, weights[0].sum = 0; /* some compilers see a block without heads */
    for (int32_t h = 0; h < b->heads; h++) kv_weights(b, h, &weights[h]);
    kv_dot(b, weights, KV_BLOCK_POS, b->width, totals[0], KV_WIDTH_MAX);
    for (int32_t h = 0; h < b->heads; h++) {
        float *out = b->out + h * b->out_stride, scale = weights[h].scale * (b->bits == 8 ? 1.0f : 0.5f);
        int32_t times = b->bits == 8 ? 1 : 2, less = (b->bits == 8 ? 128 : 15) * weights[h].sum;
        for (int32_t d = 0; d < b->width; d++) out[d] += (float)(times * totals[h][d] - less) * scale;
    }
}

static void fill_kv_kernels(struct kernels *k) {
    k->kv_turn = kv_turn;
    k->kv_query = kv_query;
    k->kv_store = kv_store;
    k->kv_scores = kv_scores;
    k->kv_mix = kv_mix;
}
