/* NEON with bfloat16 matrix products: bfmmla multiplies two rows of weights with two rows of activations, four inputs at a
 * time, and here the two rows of activations are the two terms of ONE row, x = high + low (16 bits of mantissa).
 *
 * So every row of a batch is computed for itself, by one chain of products over its inputs for each term, and its bits do not
 * depend on what stands beside it; and a single row wastes nothing. A panel's unit is four inputs: two rows of them are one
 * vector, a panel has eight. Activations lie as [tiles][inputs / 4][rows of a tile][4 high, 4 low].
 *
 * Compiled without gcc's scheduling before registers are allotted, which loads so far ahead that sums are spilled.
 */
#include "backend/cpu/kern.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

/* UNIT_BYTES: four inputs of a panel. STRETCH units of half a panel stay in the level-1 cache while ROW_BLOCK rows pass; their
 * activations in the level-2 cache. */
enum { UNIT = 4, UNIT_BYTES = UNIT * PANEL_ROWS * 2, PAIRS = PANEL_ROWS / 2, ROWS = 4, STRETCH = 128, ROW_BLOCK = 128 };

INLINE bfloat16x8_t load(const void *p) {
    return vreinterpretq_bf16_u8(vld1q_u8(p));
}

/* Products of two rows of weights: (row 0 high, row 0 low, row 1 high, row 1 low) each; four rows' results. */
INLINE float32x4_t whole(float32x4_t first, float32x4_t second) {
    return vpaddq_f32(first, second);
}

/* ---- one row of activations ----------------------------------------------------------------------------------------- */

/* Panels side by side: memory answers several streams sooner than one. */
INLINE void one_row(const struct panel_args *a, int64_t panel, const int n_panels) {
    enum { MOST = 2 };
    const unsigned char *p = a->panels + (size_t)panel * a->shape->panel_bytes, *x = (const unsigned char *)a->x.q;
    float32x4_t acc[MOST][PAIRS];
    for (int i = 0; i < n_panels; i++)
        for (int j = 0; j < PAIRS; j++) acc[i][j] = vdupq_n_f32(0);
    for (int64_t k = 0; k < a->x.in; k += UNIT, p += UNIT_BYTES, x += 16) {
        bfloat16x8_t pair = load(x);
        for (int i = 0; i < n_panels; i++) {
            const unsigned char *at = p + (size_t)i * a->shape->panel_bytes;
            __builtin_prefetch(at + 8 * UNIT_BYTES);
            __builtin_prefetch(at + 8 * UNIT_BYTES + 64);
            for (int j = 0; j < PAIRS; j++) acc[i][j] = vbfmmlaq_f32(acc[i][j], load(at + 16 * j), pair);
        }
    }
    float *y = a->y + panel * PANEL_ROWS;
    for (int i = 0; i < n_panels; i++)
        for (int j = 0; j < PAIRS; j += 2) vst1q_f32(y + i * PANEL_ROWS + 2 * j, whole(acc[i][j], acc[i][j + 1]));
}

/* ---- more: four rows x half a panel --------------------------------------------------------------------------------- */

/* n units of half a panel from p on against four rows, whose units lie x_step apart; sums go on where they stopped. */
INLINE void four_rows(const unsigned char *p, const unsigned char *x, size_t x_step, int64_t n, float *sums) {
    float32x4_t acc[ROWS][PAIRS / 2];
    for (int m = 0; m < ROWS; m++)
        for (int j = 0; j < PAIRS / 2; j++) acc[m][j] = vld1q_f32(sums + (m * PAIRS + j) * 4);
    for (int64_t k = 0; k < n; k++, p += UNIT_BYTES, x += x_step) {
        bfloat16x8_t w[PAIRS / 2];
        for (int j = 0; j < PAIRS / 2; j++) w[j] = load(p + 16 * j);
        for (int m = 0; m < ROWS; m++) {
            bfloat16x8_t pair = load(x + 16 * m);
            for (int j = 0; j < PAIRS / 2; j++) acc[m][j] = vbfmmlaq_f32(acc[m][j], w[j], pair);
        }
    }
    for (int m = 0; m < ROWS; m++)
        for (int j = 0; j < PAIRS / 2; j++) vst1q_f32(sums + (m * PAIRS + j) * 4, acc[m][j]);
}

/* One panel for rows [first, first + n_rows); `first` begins a tile. */
static void panel_of_rows(const struct panel_args *a, int64_t panel, int64_t first, int64_t n_rows) {
    float sums[ROW_BLOCK * PAIRS * 4];
    const unsigned char *p = a->panels + (size_t)panel * a->shape->panel_bytes;
    size_t x_step = (size_t)a->x.tile * 16;
    int64_t n_units = a->x.in / UNIT;
    memset(sums, 0, (size_t)((n_rows + ROWS - 1) / ROWS * ROWS * PAIRS * 4) * sizeof *sums);
    for (int64_t u = 0; u < n_units; u += STRETCH) {
        int64_t n = n_units - u < STRETCH ? n_units - u : STRETCH;
        for (int half = 0; half < 2; half++)
            for (int64_t m = 0; m < n_rows; m += ROWS) {
                int64_t row = first + m, tile = row / a->x.tile * a->x.tile;
                const unsigned char *x = (const unsigned char *)a->x.q + tile * ACTS_PLAIN_BYTES * a->x.in;
                four_rows(p + (size_t)u * UNIT_BYTES + (size_t)half * (UNIT_BYTES / 2), x + (size_t)u * x_step + (row - tile) * 16, x_step,
                          n, sums + m * PAIRS * 4 + half * (PAIRS / 2) * 4);
            }
    }
    for (int64_t m = 0; m < n_rows; m++) {
        float *y = a->y + (first + m) * a->y_stride + panel * PANEL_ROWS;
        const float *s = sums + m * PAIRS * 4;
        for (int j = 0; j < PAIRS; j += 2) vst1q_f32(y + 2 * j, whole(vld1q_f32(s + 4 * j), vld1q_f32(s + 4 * j + 4)));
    }
}

static void bf16_panel(const struct panel_args *a) {
    if (a->x.tile == 1) {
        int64_t p = 0;
        for (; p + 2 <= a->n_panels; p += 2) one_row(a, p, 2);
        if (p < a->n_panels) one_row(a, p, 1);
        return;
    }
    for (int64_t m = 0; m < a->n_rows; m += ROW_BLOCK)
        for (int64_t p = 0; p < a->n_panels; p++) panel_of_rows(a, p, m, a->n_rows - m < ROW_BLOCK ? a->n_rows - m : ROW_BLOCK);
}

/* ---- activations ----------------------------------------------------------------------------------------------------- */

static void bf16_row(const float *x, const struct quant_acts *out, int64_t row) {
    int64_t tile = row / out->tile * out->tile;
    int8_t *to = out->q + tile * ACTS_PLAIN_BYTES * out->in + (row - tile) * 16;
    for (int64_t i = 0; i < out->in; i += UNIT, to += (int64_t)out->tile * 16) {
        float32x4_t v = vld1q_f32(x + i);
        uint16x4_t high = vreinterpret_u16_bf16(vcvt_bf16_f32(v));
        float32x4_t rest = vsubq_f32(v, vreinterpretq_f32_u32(vshll_n_u16(high, 16)));
        uint16x4_t low = vreinterpret_u16_bf16(vcvt_bf16_f32(rest));
        vst1q_u8((uint8_t *)to, vreinterpretq_u8_u16(vcombine_u16(high, low)));
    }
}

void kern_bfmmla(struct kernels *k) {
    k->isa = "neon-i8mm, bf16";
    k->half_panel = NULL; /* these are quicker, and lie in another order */
    k->bf16 = (struct plain_kernels){.row = bf16_row, .panel = bf16_panel, .unit = UNIT};
}
