/* NEON with arithmetic in half precision: products of many rows with panels of 16-bit weights, twice as many numbers to an instruction as in f32.
 *
 * A row of activations and a part of a panel are scaled by powers of two, so that no product is too large and few are too small; CHAIN products are summed in half
 * precision, everything else in f32. What that costs is about what rounding the activations to bf16 costs. Rows lie in tiles of eight: [inputs / 8][rows][8].
 *
 * Attention among rows (cpu_rows_half.c) is made of the same products: queries with panels of keys, weights of rows with panels of values. */
#include "backend/cpu/kern_neon.h"

enum { ROWS = HALF_TILE, LANES = 8, CHAIN = 32, KEPT = 384, VECTORS = PANEL_ROWS / VW, LINE = 2 * PANEL_ROWS * (int)sizeof(uint16_t) };
enum { CHAIN_MAX = 40 };         /* the last chain of a row may be as long as this instead of a short one behind it */
enum { X_BITS = 7, W_BITS = 3 }; /* of the largest numbers: CHAIN_MAX products of them are below 65504 */

/* The power of two that brings the largest of some numbers below 2^bits; 1 where there is none. */
static float scale_for(float largest, int bits) {
    uint32_t word;
    memcpy(&word, &largest, sizeof word);
    int exponent = (int)(word >> 23 & 255);
    if (exponent == 0 || exponent == 255) return 1.0f;
    int n = bits + 126 - exponent;
    word = (uint32_t)((n > 100 ? 100 : n < -100 ? -100 : n) + 127) << 23;
    memcpy(&largest, &word, sizeof word);
    return largest;
}

static void half_row(const float *x, const struct quant_acts *out, int64_t row) {
    vf most = v_set(0);
    for (int64_t i = 0; i < out->in; i += VW) most = v_most(most, vabsq_f32(v_load(x + i)));
    float scale = scale_for(v_peak(most), X_BITS);
    float16_t *to = (float16_t *)(void *)out->q + row / ROWS * ROWS * out->in + row % ROWS * LANES;
    out->scale[row] = 1.0f / scale;
    for (int64_t i = 0; i < out->in; i += LANES, to += ROWS * LANES)
        vst1q_f16(to,
                  vcombine_f16(vcvt_f16_f32(v_mul(v_load(x + i), v_set(scale))), vcvt_f16_f32(v_mul(v_load(x + i + VW), v_set(scale)))));
}

/* One of the two inputs of a line, for the v-th four rows of the panel. */
static inline __attribute__((always_inline)) vf weight(const unsigned char *line, int v, int second, const enum dtype dtype) {
    if (dtype == DT_F16) return v_f16((const uint16_t *)(const void *)line + second * PANEL_ROWS + v * VW);
    return second ? v_bf16_second(line + v * VW * 4) : v_bf16_first(line + v * VW * 4);
}

/* n inputs of a panel as half numbers, [n][16]; returns one over their scale. */
static inline __attribute__((always_inline)) float unpack(const unsigned char *p, int64_t n, float16_t *out, const enum dtype dtype) {
    vf most = v_set(0);
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < VECTORS; v++) most = v_most(most, vabsq_f32(weight(p + i / 2 * LINE, v, i % 2, dtype)));
    float scale = scale_for(v_peak(most), W_BITS);
    for (int64_t i = 0; i < n; i++)
        for (int v = 0; v < VECTORS; v++, out += VW)
            vst1_f16(out, vcvt_f16_f32(v_mul(weight(p + i / 2 * LINE, v, i % 2, dtype), v_set(scale))));
    return 1.0f / scale;
}

/* One input of eight rows with eight rows of the panel. Compilers copy numbers and sums about here, as much work again. */
#define EIGHT(at, from, s)                                                                                                                \
    __asm__("ldr %q[w], [%[p], #" #from "]\n"                                                                                             \
            "fmla %[a].8h, %[w].8h, %[x0].h[" #at "]\nfmla %[b].8h, %[w].8h, %[x1].h[" #at "]\n"                                          \
            "fmla %[c].8h, %[w].8h, %[x2].h[" #at "]\nfmla %[d].8h, %[w].8h, %[x3].h[" #at "]\n"                                          \
            "fmla %[e].8h, %[w].8h, %[x4].h[" #at "]\nfmla %[f].8h, %[w].8h, %[x5].h[" #at "]\n"                                          \
            "fmla %[g].8h, %[w].8h, %[x6].h[" #at "]\nfmla %[h].8h, %[w].8h, %[x7].h[" #at "]"                                            \
            : [w] "=&w"(weights), [a] "+w"((s)[0]), [b] "+w"((s)[1]), [c] "+w"((s)[2]), [d] "+w"((s)[3]), [e] "+w"((s)[4]),               \
              [f] "+w"((s)[5]), [g] "+w"((s)[6]), [h] "+w"((s)[7])                                                                        \
            : [p] "r"(w), [x0] "x"(x0), [x1] "x"(x1), [x2] "x"(x2), [x3] "x"(x3), [x4] "x"(x4), [x5] "x"(x5), [x6] "x"(x6), [x7] "x"(x7), \
              "m"(*(const float16_t(*)[LANES * PANEL_ROWS]) w))
#define INPUT(at, low, high)         \
    do {                             \
        EIGHT(at, low, acc);         \
        EIGHT(at, high, acc + ROWS); \
    } while (0)

/* n inputs of eight rows, added to their sums, [8][16]. */
static inline __attribute__((always_inline)) void add_chain(const float16_t *w, const float16_t *x, int64_t n, float *sums) {
    float16x8_t acc[2 * ROWS], weights;
    for (int i = 0; i < 2 * ROWS; i++) acc[i] = vdupq_n_f16(0);
    for (int64_t k = 0; k < n; k += LANES, w += LANES * PANEL_ROWS, x += ROWS * LANES) {
        float16x8_t x0 = vld1q_f16(x), x1 = vld1q_f16(x + LANES), x2 = vld1q_f16(x + 2 * LANES), x3 = vld1q_f16(x + 3 * LANES),
                    x4 = vld1q_f16(x + 4 * LANES), x5 = vld1q_f16(x + 5 * LANES), x6 = vld1q_f16(x + 6 * LANES),
                    x7 = vld1q_f16(x + 7 * LANES);
        INPUT(0, 0, 16);
        INPUT(1, 32, 48);
        INPUT(2, 64, 80);
        INPUT(3, 96, 112);
        INPUT(4, 128, 144);
        INPUT(5, 160, 176);
        INPUT(6, 192, 208);
        INPUT(7, 224, 240);
    }
    __asm__ volatile(
        "" ::
            : "memory"); /* the sums stay in memory: a compiler that keeps them in registers has none for the above, and moves all of them about */
#pragma GCC unroll 8
    for (int m = 0; m < ROWS; m++, sums += PANEL_ROWS) {
        v_store(sums, v_add(v_load(sums), vcvt_f32_f16(vget_low_f16(acc[m]))));
        v_store(sums + VW, v_add(v_load(sums + VW), vcvt_high_f32_f16(acc[m])));
        v_store(sums + 2 * VW, v_add(v_load(sums + 2 * VW), vcvt_f32_f16(vget_low_f16(acc[ROWS + m]))));
        v_store(sums + 3 * VW, v_add(v_load(sums + 3 * VW), vcvt_high_f32_f16(acc[ROWS + m])));
    }
}

static void half_inputs(const struct half_args *a) {
    const float16_t *w = (const float16_t *)(const void *)a->w;
    for (int64_t row = 0; row < a->n_rows; row += ROWS) {
        const float16_t *x = (const float16_t *)(const void *)a->x->q + row * a->x->in + a->first * ROWS;
        float sums[ROWS * PANEL_ROWS] = {0};
        for (int64_t k = 0, n; k < a->n; k += n) {
            n = a->n - k <= CHAIN_MAX ? a->n - k : CHAIN;
            add_chain(w + k * PANEL_ROWS, x + k * ROWS, n, sums);
        }
        for (int64_t m = 0; m < ROWS && row + m < a->n_rows; m++) {
            float *out = a->y + (row + m) * a->y_stride;
            vf factor = v_set(a->w_scale * a->x->scale[row + m]);
            for (int v = 0; v < VECTORS; v++) {
                vf sum = v_mul(v_load(sums + m * PANEL_ROWS + v * VW), factor);
                v_store(out + v * VW, a->adds ? v_add(v_load(out + v * VW), sum) : sum);
            }
        }
    }
}

static void half_panel(const struct panel_args *a) {
    float16_t w[KEPT * PANEL_ROWS];
    for (int64_t first = 0; first < a->x.in; first += KEPT) {
        int64_t n = a->x.in - first < KEPT ? a->x.in - first : KEPT;
        for (int64_t p = 0; p < a->n_panels; p++) {
            const unsigned char *from =
                a->panels + (size_t)p * a->shape->panel_bytes + (size_t)(first / PACK_PLAIN_GROUP) * a->shape->group_bytes;
            float scale = a->x.dtype == DT_F16 ? unpack(from, n, w, DT_F16) : unpack(from, n, w, DT_BF16);
            half_inputs(&(struct half_args){.w = (const uint16_t *)(const void *)w,
                                            .w_scale = scale,
                                            .x = &a->x,
                                            .first = first,
                                            .n = n,
                                            .n_rows = a->n_rows,
                                            .y = a->y + p * PANEL_ROWS,
                                            .y_stride = a->y_stride,
                                            .adds = first > 0});
        }
    }
}

/* 2^u for u <= 0, to five digits: a half number has three. Below 2^-126 it is that. */
static inline __attribute__((always_inline)) vf power(vf u) {
    const vf shift =
        v_set(12582912.0f + 127.0f); /* 1.5 * 2^23: the whole number nearest to u, and an exponent's offset, are the last bits of the sum */
    u = v_max(u, v_set(-126.0f));
    vf whole = v_add(u, shift), f = v_sub(u, v_sub(whole, shift)), p = v_set(9.6181291e-3f);
    p = v_fma(p, f, v_set(5.5504109e-2f));
    p = v_fma(p, f, v_set(2.4022651e-1f));
    p = v_fma(p, f, v_set(6.9314718e-1f));
    p = v_fma(p, f, v_set(1.0f));
    return v_mul(p, vreinterpretq_f32_s32(vshlq_n_s32(vreinterpretq_s32_f32(whole), 23)));
}

static float half_weights(const float *scores, int64_t n, float most, const struct quant_acts *out, int64_t row) {
    const vf base = v_set(1.44269504f), start = v_set(-1.44269504f * most), scale = v_set((float)(1 << X_BITS));
    float16_t *to = (float16_t *)(void *)out->q + row / ROWS * ROWS * out->in + row % ROWS * LANES;
    vf even = v_set(0), odd = v_set(0);
    out->scale[row] = 1.0f / (float)(1 << X_BITS);
    for (int64_t i = 0; i < n; i += LANES, to += ROWS * LANES) {
        vf a = power(v_fma(v_load(scores + i), base, start)), b = power(v_fma(v_load(scores + i + VW), base, start));
        even = v_add(even, a), odd = v_add(odd, b);
        vst1q_f16(to, vcombine_f16(vcvt_f16_f32(v_mul(a, scale)), vcvt_f16_f32(v_mul(b, scale))));
    }
    return v_sum(v_add(even, odd));
}

void kern_half(struct kernels *k) {
    k->half_inputs = half_inputs;
    k->half_weights = half_weights;
    k->half_row = half_row;
    k->half_panel = half_panel;
}
