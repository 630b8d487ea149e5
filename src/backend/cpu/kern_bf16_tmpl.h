/* Products over panels of bf16 weights by float multiply-adds, written once for every vector width: for sets without tiles.
 *
 * A file of one instruction set defines `vf` (a vector of VW floats) and some v_ functions over it, then includes this. A
 * weight is widened by a shift or a mask, the activations stay f32: [tiles][blocks of 32 inputs][rows of a tile][32]. An output
 * is one chain of multiply-adds in the order of the inputs, whatever the number of rows.
 *
 *   vf v_zero(void), v_set(float), v_fma(a, b, c) = a * b + c, void v_store(float *, vf),
 *   vf v_even(const unsigned char *), v_odd(...): the first and the second input of VW rows
 *   SUMS: vectors of sums that fit the registers; ROWS_MAX: rows that share a widened weight
 */
#define INLINE static inline __attribute__((always_inline))

enum { VECTORS = PANEL_ROWS / VW, PANELS_MAX = SUMS / VECTORS < 8 ? SUMS / VECTORS : 8, LINES = PACK_BF16_GROUP / 2 };

/* One block of 32 inputs: n rows, which lie 32 floats apart, against n_panels panels. */
INLINE void add_block(const unsigned char *p, size_t panel_bytes, const float *x, vf *acc, const int n, const int n_panels) {
    for (int line = 0; line < LINES; line++)
#pragma GCC unroll 8
        for (int i = 0; i < n_panels; i++)
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) {
                const unsigned char *at = p + (size_t)i * panel_bytes + (size_t)line * PANEL_LINE + (size_t)v * VW * 4;
                vf even = v_even(at), odd = v_odd(at), *sum = acc + (i * VECTORS + v) * n;
#pragma GCC unroll 8
                for (int m = 0; m < n; m++) sum[m] = v_fma(even, v_set(x[m * PACK_BF16_GROUP + 2 * line]), sum[m]);
#pragma GCC unroll 8
                for (int m = 0; m < n; m++) sum[m] = v_fma(odd, v_set(x[m * PACK_BF16_GROUP + 2 * line + 1]), sum[m]);
            }
}

/* n rows from `row` on (in one tile) against n_panels panels. The panels advance together, block by block, and ask for what
 * comes next: memory answers several streams sooner than one. */
INLINE void tile(const struct panel_args *a, int64_t row, int64_t panel, const int n, const int n_panels) {
    size_t panel_bytes = a->shape->panel_bytes;
    const unsigned char *p = a->panels + (size_t)panel * panel_bytes;
    int64_t first = row / a->x.tile * a->x.tile, n_blocks = a->x.in / PACK_BF16_GROUP;
    const float *x = (const float *)(const void *)a->x.q + first * a->x.in + (row - first) * PACK_BF16_GROUP;
    vf acc[SUMS];
#pragma GCC unroll 16
    for (int i = 0; i < n_panels * VECTORS * n; i++) acc[i] = v_zero();
    for (int64_t b = 0; b < n_blocks; b++, p += a->shape->group_bytes, x += (int64_t)a->x.tile * PACK_BF16_GROUP) {
        /* the block after this one: of the same panel, or the first one of a panel that comes next */
        size_t ahead = a->shape->group_bytes + (b + 1 < n_blocks ? 0 : (size_t)(n_panels - 1) * panel_bytes);
        for (int i = 0; i < n_panels && row == 0; i++)
            for (int line = 0; line < LINES; line++) __builtin_prefetch(p + (size_t)i * panel_bytes + ahead + (size_t)line * PANEL_LINE);
        add_block(p, panel_bytes, x, acc, n, n_panels);
    }
    float *y = a->y + row * a->y_stride + panel * PANEL_ROWS;
#pragma GCC unroll 8
    for (int i = 0; i < n_panels; i++)
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++)
#pragma GCC unroll 8
            for (int m = 0; m < n; m++) v_store(y + m * a->y_stride + i * PANEL_ROWS + v * VW, acc[(i * VECTORS + v) * n + m]);
}

/* Rows [row, end) by n at a time against some panels. */
INLINE int64_t rows_of(const struct panel_args *a, int64_t row, int64_t panel, const int n, const int n_panels) {
    for (; row + n <= a->n_rows; row += n) tile(a, row, panel, n, n_panels);
    return row;
}

/* All panels for the rows that come by n at a time from `row` on: as many panels at once as the registers have sums. */
INLINE int64_t panels_of(const struct panel_args *a, int64_t row, const int n) {
    const int most = SUMS / VECTORS / n < PANELS_MAX ? SUMS / VECTORS / n : PANELS_MAX;
    int64_t p = 0, end = row;
    if (row + n > a->n_rows) return row;
    for (; p + most <= a->n_panels; p += most) end = rows_of(a, row, p, n, most);
    for (; p < a->n_panels; p++) end = rows_of(a, row, p, n, 1);
    return end;
}

static void bf16_panel(const struct panel_args *a) {
    int64_t row = 0;
    if (ROWS_MAX >= 8) row = panels_of(a, row, 8);
    row = panels_of(a, row, 4);
    row = panels_of(a, row, 2);
    panels_of(a, row, 1);
}

static void bf16_row(const float *x, const struct quant_acts *out, int64_t row) {
    int64_t first = row / out->tile * out->tile;
    float *to = (float *)(void *)out->q + first * out->in + (row - first) * PACK_BF16_GROUP;
    for (int64_t i = 0; i < out->in; i += PACK_BF16_GROUP, to += (int64_t)out->tile * PACK_BF16_GROUP)
        memcpy(to, x + i, PACK_BF16_GROUP * sizeof *to);
}
