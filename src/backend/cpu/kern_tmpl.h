/* Float kernels written once for every vector width.
 *
 * A file of one instruction set defines `vf` (a vector of VW floats) and the handful of v_ functions over it, then
 * includes this. What follows is static; nothing here knows an instruction. Each result is computed by one fixed
 * sequence of operations, whatever the number of rows: the number of accumulators is part of the result.
 *
 *   vf v_load(const float *), void v_store(float *, vf), vf v_set(float), vf v_fma(a, b, c) = a * b + c,
 *   vf v_add, v_sub, v_mul, v_div, v_max, v_min, vf v_round(vf) to nearest even, vf v_exp2(vf n) for whole n,
 *   float v_sum(vf), float v_peak(vf), vf v_most(a, b): the larger, a where b is no number, vf v_f16(const uint16_t *), vf v_bf16(const uint16_t *), void v_store_f16(uint16_t *, vf)
 */
#include "base/fmath.h"
#include "base/half.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16") /* before gcc decides what is kept in registers */

/* ---- products ----------------------------------------------------------------------------------------------------- */

INLINE vf load_part(const float *x, int64_t n) {
    float whole[VW] = {0};
    memcpy(whole, x, (size_t)n * sizeof *x);
    return v_load(whole);
}

INLINE vf widen(const void *w, int64_t i, const enum dtype dtype) {
    if (dtype == DT_F32) return v_load((const float *)w + i);
    return dtype == DT_F16 ? v_f16((const uint16_t *)w + i) : v_bf16((const uint16_t *)w + i);
}

INLINE vf widen_part(const void *w, int64_t i, int64_t n, const enum dtype dtype) {
    unsigned char whole[VW * 4] = {0};
    size_t size = dtype == DT_F32 ? 4 : 2;
    memcpy(whole, (const unsigned char *)w + (size_t)i * size, (size_t)n * size);
    return widen(whole, 0, dtype);
}

/* n rows of x against one row of weights; CHAINS sums each, so that a product need not wait for the one before. */
INLINE void plain_tile(const struct plain_args *a, int64_t first, const int n, const enum dtype dtype) {
    vf sums[4 * CHAINS];
    const float *x = a->x + first * a->x_stride;
    UNROLL for (int c = 0; c < 4 * CHAINS; c++) sums[c] = v_set(0);
    int64_t i = 0;
    for (; i + CHAINS * VW <= a->n; i += CHAINS * VW) {
        vf w[CHAINS];
        UNROLL for (int c = 0; c < CHAINS; c++) w[c] = widen(a->w, i + c * VW, dtype);
        UNROLL for (int k = 0; k < n * CHAINS; k++) sums[k] =
            v_fma(w[k % CHAINS], v_load(x + k / CHAINS * a->x_stride + i + k % CHAINS * VW), sums[k]);
    }
    for (; i < a->n; i += VW) {
        int64_t left = a->n - i < VW ? a->n - i : VW;
        vf w0 = widen_part(a->w, i, left, dtype);
        UNROLL for (int m = 0; m < n; m++) sums[m * CHAINS] = v_fma(w0, load_part(x + m * a->x_stride + i, left), sums[m * CHAINS]);
    }
    UNROLL for (int m = 0; m < n; m++) {
        vf *of = sums + m * CHAINS;
        UNROLL for (int c = 2; c < CHAINS; c++) of[c % 2] = v_add(of[c % 2], of[c]);
        a->y[(first + m) * a->y_stride] = v_sum(v_add(of[0], of[1]));
    }
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
    int64_t i = 0;
    for (; i + VW <= n; i += VW) v_store(y + i, v_fma(v_set(scale), v_load(x + i), v_load(y + i)));
    if (i == n) return;
    float whole[VW];
    v_store(whole, v_fma(v_set(scale), load_part(x + i, n - i), load_part(y + i, n - i)));
    memcpy(y + i, whole, (size_t)(n - i) * sizeof *y);
}

/* Sums of a row: float lanes, folded in double. */
INLINE double fold_double(vf a, vf b) {
    float lanes[VW];
    double total = 0;
    v_store(lanes, v_add(a, b));
    for (int i = 0; i < VW; i++) total += (double)lanes[i];
    return total;
}

static double sum_squares(const float *x, int64_t n) {
    vf even = v_set(0), odd = v_set(0);
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        vf a = v_load(x + i), b = v_load(x + i + VW);
        even = v_fma(a, a, even);
        odd = v_fma(b, b, odd);
    }
    double total = fold_double(even, odd);
    for (; i < n; i++) total += (double)x[i] * (double)x[i];
    return total;
}

static double sum(const float *x, int64_t n) {
    vf even = v_set(0), odd = v_set(0);
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        even = v_add(even, v_load(x + i));
        odd = v_add(odd, v_load(x + i + VW));
    }
    double total = fold_double(even, odd);
    for (; i < n; i++) total += (double)x[i];
    return total;
}

static float max(const float *x, int64_t n, float least) {
    vf even = v_set(least), odd = even;
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        even = v_most(even, v_load(x + i));
        odd = v_most(odd, v_load(x + i + VW));
    }
    least = v_peak(v_most(even, odd));
    for (; i < n; i++)
        if (x[i] > least) least = x[i];
    return least;
}

/* ---- functions ---------------------------------------------------------------------------------------------------- */

/* e^x by 2^n times a polynomial on [-ln2/2, ln2/2]; relative error below 2e-7, 0 and infinity beyond the range. */
INLINE vf exp_v(vf x) {
    x = v_min(v_max(x, v_set(-104.0f)), v_set(89.0f));
    vf n = v_round(v_mul(x, v_set(1.44269504f)));
    vf r = v_fma(n, v_set(-0.693359375f), x);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    p = v_add(v_fma(v_mul(r, r), p, r), v_set(1.0f));
    /* in two steps: 2^n alone may not be a float where the product is */
    vf half = v_round(v_mul(n, v_set(0.5f)));
    return v_mul(v_mul(p, v_exp2(half)), v_exp2(v_sub(n, half)));
}

INLINE vf sigmoid_v(vf x) {
    return v_div(v_set(1.0f), v_add(v_set(1.0f), exp_v(v_sub(v_set(0), x))));
}

INLINE vf tanh_v(vf x) { /* 1 - 2 / (e^2x + 1) */
    return v_sub(v_set(1.0f), v_div(v_set(2.0f), v_add(exp_v(v_add(x, x)), v_set(1.0f))));
}

/* max(x, 0) - |x| q, where q is the share of a normal distribution beyond |x|: half of erfc(y) = e^(-y^2) P(1 / (1 + 0.36 y)), y = |x| / sqrt 2. P is
 * fitted for the least error of the whole, below 1e-8; there is nothing to lose digits by. */
INLINE vf gelu_v(vf x) {
    vf zero = v_set(0), far = v_min(v_max(x, v_sub(zero, x)), v_set(20.0f)), y = v_mul(far, v_set(0.70710678f));
    vf t = v_div(v_set(1.0f), v_fma(y, v_set(0.36f), v_set(1.0f))), p = v_set(-0.151723504f);
    p = v_fma(p, t, v_set(0.504588664f));
    p = v_fma(p, t, v_set(-0.232677519f));
    p = v_fma(p, t, v_set(0.294821799f));
    p = v_fma(p, t, v_set(0.188626245f));
    p = v_fma(p, t, v_set(0.190769508f));
    p = v_fma(p, t, v_set(0.205594763f));
    vf q = v_mul(v_mul(v_set(0.5f), v_mul(p, t)), exp_v(v_sub(zero, v_mul(y, y))));
    return v_sub(v_max(x, zero), v_mul(far, q));
}

INLINE vf act_v(vf x, const enum act_kind kind, const float *p) {
    if (kind == ACT_SILU) return v_mul(x, sigmoid_v(x));
    if (kind == ACT_SIGMOID) return sigmoid_v(x);
    if (kind == ACT_GELU) return gelu_v(x);
    if (kind == ACT_GELU_TANH) {
        vf inner = v_mul(v_set(0.79788456f), v_fma(v_mul(v_set(0.044715f), v_mul(x, x)), x, x));
        return v_mul(v_mul(v_set(0.5f), x), v_add(v_set(1.0f), tanh_v(inner)));
    }
    return v_mul(v_set(p[0]), tanh_v(v_div(x, v_set(p[0])))); /* ACT_SOFTCAP */
}

INLINE void act_all(float *x, int64_t n, const enum act_kind kind, const float *p) {
    int64_t i = 0;
    for (; i + 4 * VW <= n; i += 4 * VW) { /* four side by side: each is one long chain */
        vf y[4];
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) y[k] = act_v(v_load(x + i + k * VW), kind, p);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) v_store(x + i + k * VW, y[k]);
    }
    for (; i + VW <= n; i += VW) v_store(x + i, act_v(v_load(x + i), kind, p));
    if (i == n) return;
    float whole[VW];
    v_store(whole, act_v(load_part(x + i, n - i), kind, p));
    memcpy(x + i, whole, (size_t)(n - i) * sizeof *x);
}

static void act(float *x, int64_t n, const struct act_args *a) {
    switch (a->kind) {
    case ACT_SILU: act_all(x, n, ACT_SILU, a->p); break;
    case ACT_SIGMOID: act_all(x, n, ACT_SIGMOID, a->p); break;
    case ACT_GELU: act_all(x, n, ACT_GELU, a->p); break;
    case ACT_GELU_TANH: act_all(x, n, ACT_GELU_TANH, a->p); break;
    case ACT_SOFTCAP: act_all(x, n, ACT_SOFTCAP, a->p); break;
    default: kern_ref_act(x, n, a);
    }
}

static float exp_sum(float *x, int64_t n, float max) {
    vf total = v_set(0);
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf e = exp_v(v_sub(v_load(x + i), v_set(max)));
        v_store(x + i, e);
        total = v_add(total, e);
    }
    float sum = v_sum(total);
    for (; i < n; i++) {
        x[i] = m_expf(x[i] - max);
        sum += x[i];
    }
    return sum;
}

/* ---- attention over blocks of 64 positions ------------------------------------------------------------------------ */

enum { POS_VECTORS = KV_BLOCK_POS / VW };

/* Asks for as many lines of the next block as n numbers from `at` on of this one are, from its four quarters in turn. */
INLINE void ask_for(const struct attn_block *b, int64_t at, const int n) {
    for (int i = 0; i < n; i += 32) {
        int64_t line = (at + i) / 32;
        __builtin_prefetch(b->next + line % 4 * (KV_BLOCK_POS / 4) * b->width + line / 4 * 32);
    }
}

/* Keys lie transposed, [width][64]: a score vector grows by one element of q at a time. n heads share the keys of n_vectors
 * vectors of positions from `from` on, which are in registers. */
INLINE void block_scores_part(const struct attn_block *b, int32_t head, int32_t from, const int n, const int n_vectors) {
    vf acc[SCORE_HEADS][POS_VECTORS];
    const float *q = b->q + head * b->q_stride;
    for (int h = 0; h < n; h++)
        for (int c = 0; c < n_vectors; c++) acc[h][c] = v_set(0);
    for (int32_t d = 0; d < b->width; d++) {
        const uint16_t *row = b->cache + (int64_t)d * KV_BLOCK_POS + from;
        if (head == 0 && from % 32 == 0) ask_for(b, (int64_t)d * KV_BLOCK_POS + from, n_vectors * VW);
        vf key[POS_VECTORS];
        for (int c = 0; c < n_vectors; c++) key[c] = v_f16(row + c * VW);
        for (int h = 0; h < n; h++)
            for (int c = 0; c < n_vectors; c++) acc[h][c] = v_fma(key[c], v_set(q[h * b->q_stride + d]), acc[h][c]);
    }
    for (int h = 0; h < n; h++)
        for (int c = 0; c < n_vectors; c++)
            v_store(b->scores + (head + h) * b->scores_stride + from + c * VW, v_mul(acc[h][c], v_set(b->scale)));
}

/* Many heads take few positions at a time, few heads many: the registers hold as many sums either way. */
INLINE void block_scores_heads(const struct attn_block *b, int32_t head, const int n) {
    const int n_vectors = SCORE_SUMS / n < POS_VECTORS ? SCORE_SUMS / n : POS_VECTORS;
    for (int from = 0; from < KV_BLOCK_POS; from += n_vectors * VW) block_scores_part(b, head, from, n, n_vectors);
}

static void block_scores(const struct attn_block *b) {
    int32_t h = 0;
    for (; SCORE_HEADS >= 8 && h + 8 <= b->heads; h += 8) block_scores_heads(b, h, 8);
    for (; SCORE_HEADS >= 4 && h + 4 <= b->heads; h += 4) block_scores_heads(b, h, 4);
    for (; SCORE_HEADS >= 2 && h + 2 <= b->heads; h += 2) block_scores_heads(b, h, 2);
    for (; h < b->heads; h++) block_scores_heads(b, h, 1);
}

/* out[head] += weights[head] x values [n][width]; positions in ascending order. n heads share the values that are in
 * registers. */
INLINE void block_mix_part(const struct attn_block *b, int32_t head, int32_t from, const int n, const int n_vectors) {
    vf acc[MIX_HEADS][4];
    float *out = b->out + head * b->out_stride + from;
    const float *weights = b->scores + head * b->scores_stride;
    for (int h = 0; h < n; h++)
        for (int c = 0; c < n_vectors; c++) acc[h][c] = v_load(out + h * b->out_stride + c * VW);
    for (int32_t p = b->first; p < b->last; p++) {
        const uint16_t *row = b->cache + (int64_t)p * b->width + from;
        if (head == 0 && from % 32 == 0) ask_for(b, (int64_t)p * b->width + from, n_vectors * VW);
        vf value[4];
        for (int c = 0; c < n_vectors; c++) value[c] = v_f16(row + c * VW);
        for (int h = 0; h < n; h++)
            for (int c = 0; c < n_vectors; c++) acc[h][c] = v_fma(value[c], v_set(weights[h * b->scores_stride + p]), acc[h][c]);
    }
    for (int h = 0; h < n; h++)
        for (int c = 0; c < n_vectors; c++) v_store(out + h * b->out_stride + c * VW, acc[h][c]);
}

INLINE void block_mix_heads(const struct attn_block *b, int32_t head, const int n, const int n_vectors) {
    int32_t d = 0;
    for (; d + n_vectors * VW <= b->width; d += n_vectors * VW) block_mix_part(b, head, d, n, n_vectors);
    for (; d < b->width; d += VW) block_mix_part(b, head, d, n, 1);
}

static void block_mix(const struct attn_block *b) {
    int32_t h = 0;
    for (; MIX_HEADS > 4 && h + MIX_HEADS <= b->heads; h += MIX_HEADS) block_mix_heads(b, h, MIX_HEADS, 2);
    for (; MIX_HEADS >= 4 && h + 4 <= b->heads; h += 4) block_mix_heads(b, h, 4, 4);
    for (; MIX_HEADS >= 2 && h + 2 <= b->heads; h += 2) block_mix_heads(b, h, 2, 4);
    for (; h < b->heads; h++) block_mix_heads(b, h, 1, 4);
}

static void store_f16(uint16_t *out, const float *x, int64_t n) {
    int64_t i = 0;
    for (; i + VW <= n; i += VW) v_store_f16(out + i, v_load(x + i));
    for (; i < n; i++) out[i] = f16_from_f32(x[i]);
}

static void fill_float_kernels(struct kernels *k) {
    k->dot = dot;
    k->axpy = axpy;
    k->plain = plain;
    k->act = act;
    k->sum_squares = sum_squares;
    k->sum = sum;
    k->max = max;
    k->exp_sum = exp_sum;
    k->block_scores = block_scores;
    k->block_mix = block_mix;
    k->store_f16 = store_f16;
}
