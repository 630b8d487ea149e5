/* Products over panels of plain weights by float multiply-adds, written once for every vector width: for sets without tiles.
 *
 * A file of one instruction set includes its vectors of floats (kern_avx2.h and the like), then this. A weight is widened as it
 * is loaded, the activations stay f32: [tiles][blocks of 32 inputs][rows of a tile][32]. An output is one chain of
 * multiply-adds in the order of the inputs, whatever the number of rows.
 *
 *   SUMS: vectors of sums that fit the registers; ROWS_MAX: rows that share a widened weight
 *   PLAIN_LANES: the set has v_fma_lane, and add_block_f32, one block of f32 weights of one panel for four rows
 */
#define INLINE static inline __attribute__((always_inline))

/* Inputs are taken KEPT_INPUTS at a time where rows are many: so much of a panel stays in the first cache from row to row, and of the rows in the
 * second from panel to panel. The sums lie in the outputs meanwhile. */
enum { KEPT_INPUTS = 384, MANY_ROWS = 16 };

/* A line is two inputs of a panel's rows: 64 bytes, or of f32 128. */
enum { VECTORS = PANEL_ROWS / VW, PANELS_MAX = SUMS / VECTORS < 8 ? SUMS / VECTORS : 8, LINES = PACK_PLAIN_GROUP / 2 };

INLINE size_t line_bytes(const enum dtype dtype) {
    return dtype == DT_F32 ? 2 * PANEL_LINE : PANEL_LINE;
}

/* The first or the second input of a line, for the v-th VW rows. */
INLINE vf weights(const unsigned char *line, const int v, const int second, const enum dtype dtype) {
    const int at = second * PANEL_ROWS + v * VW;
    if (dtype == DT_F32) return v_load((const float *)(const void *)line + at);
    if (dtype == DT_F16) return v_f16((const uint16_t *)(const void *)line + at);
    return second ? v_bf16_second(line + v * VW * 4) : v_bf16_first(line + v * VW * 4);
}

/* One block of 32 inputs: n rows, which lie 32 floats apart, against n_panels panels. */
#ifdef PLAIN_LANES /* a multiply-add takes one number of a vector: four inputs of a row are one load */
INLINE void add_block(const unsigned char *p, size_t panel_bytes, const float *x, vf *acc, const int n, const int n_panels,
                      const enum dtype dtype) {
    for (int line = 0; line < LINES; line += 2) {
        vf inputs[ROWS_MAX];
#pragma GCC unroll 4
        for (int m = 0; m < n; m++) inputs[m] = v_load(x + m * PACK_PLAIN_GROUP + 2 * line);
#pragma GCC unroll 4
        for (int at = 0; at < 4; at++)
#pragma GCC unroll 8
            for (int i = 0; i < n_panels * VECTORS; i++) {
                const unsigned char *from = p + (size_t)(i / VECTORS) * panel_bytes + (size_t)(line + at / 2) * line_bytes(dtype);
                vf w = weights(from, i % VECTORS, at % 2, dtype);
#pragma GCC unroll 4
                for (int m = 0; m < n; m++) acc[i * n + m] = v_fma_lane(w, inputs[m], at, acc[i * n + m]);
            }
    }
}
#else
INLINE void add_block(const unsigned char *p, size_t panel_bytes, const float *x, vf *acc, const int n, const int n_panels,
                      const enum dtype dtype) {
    for (int line = 0; line < LINES; line++)
#pragma GCC unroll 8
        for (int i = 0; i < n_panels; i++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                const unsigned char *at = p + (size_t)i * panel_bytes + (size_t)line * line_bytes(dtype);
                vf first = weights(at, v, 0, dtype), second = weights(at, v, 1, dtype), *sum = acc + (i * VECTORS + v) * n;
#pragma GCC unroll 8
                for (int m = 0; m < n; m++) sum[m] = v_fma(first, v_set(x[m * PACK_PLAIN_GROUP + 2 * line]), sum[m]);
#pragma GCC unroll 8
                for (int m = 0; m < n; m++) sum[m] = v_fma(second, v_set(x[m * PACK_PLAIN_GROUP + 2 * line + 1]), sum[m]);
            }
}
#endif

/* Blocks of inputs that are taken at a time. */
struct blocks {
    int64_t first, last;
};

/* The outputs of n rows and a panel's v-th VW rows. */
INLINE float *outputs(const struct panel_args *a, int64_t row, int64_t panel, const int v) {
    return a->y + row * a->y_stride + panel * PANEL_ROWS + v * VW;
}

/* n rows from `row` on (in one tile) against n_panels panels. The panels advance together, block by block, and ask for what
 * comes next: memory answers several streams sooner than one. */
INLINE void tile(const struct panel_args *a, struct blocks k, int64_t row, int64_t panel, const int n, const int n_panels,
                 const enum dtype dtype) {
    size_t panel_bytes = a->shape->panel_bytes;
    const unsigned char *p = a->panels + (size_t)panel * panel_bytes + (size_t)k.first * a->shape->group_bytes;
    int64_t first = row / a->x.tile * a->x.tile, n_blocks = a->x.in / PACK_PLAIN_GROUP, x_step = (int64_t)a->x.tile * PACK_PLAIN_GROUP;
    const float *x = (const float *)(const void *)a->x.q + first * a->x.in + (row - first) * PACK_PLAIN_GROUP + k.first * x_step;
    vf acc[SUMS];
#pragma GCC unroll 16
    for (int i = 0; i < n_panels * VECTORS * n; i++) acc[i] = k.first ? v_load(outputs(a, row + i % n, panel, i / n)) : v_set(0);
    for (int64_t b = k.first; b < k.last; b++, p += a->shape->group_bytes, x += x_step) {
        /* the block after this one: of the same panel, or the first one of a panel that comes next */
        size_t ahead = a->shape->group_bytes + (b + 1 < n_blocks ? 0 : (size_t)(n_panels - 1) * panel_bytes);
        for (int i = 0; i < n_panels && row == 0; i++)
            for (size_t at = 0; at < LINES * line_bytes(dtype); at += PANEL_LINE)
                __builtin_prefetch(p + (size_t)i * panel_bytes + ahead + at);
#ifdef PLAIN_LANES
        if (n == 4 && n_panels == 1 && dtype == DT_F32) {
            add_block_f32(p, x, acc);
            continue;
        }
#endif
        add_block(p, panel_bytes, x, acc, n, n_panels, dtype);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n_panels * VECTORS * n; i++) v_store(outputs(a, row + i % n, panel, i / n), acc[i]);
}

/* Rows [row, end) by n at a time against some panels. */
INLINE int64_t rows_of(const struct panel_args *a, struct blocks k, int64_t row, int64_t panel, const int n, const int n_panels,
                       const enum dtype dtype) {
    for (; row + n <= a->n_rows; row += n) tile(a, k, row, panel, n, n_panels, dtype);
    return row;
}

/* All panels for the rows that come by n at a time from `row` on: as many panels at once as the registers have sums. */
INLINE int64_t panels_of(const struct panel_args *a, int64_t row, const int n, const enum dtype dtype) {
    const int most = SUMS / VECTORS / n < PANELS_MAX ? SUMS / VECTORS / n : PANELS_MAX;
    int64_t end = row, n_blocks = a->x.in / PACK_PLAIN_GROUP, step = a->n_rows < MANY_ROWS ? n_blocks : KEPT_INPUTS / PACK_PLAIN_GROUP;
    if (row + n > a->n_rows) return row;
    for (int64_t first = 0; first < n_blocks; first += step) {
        struct blocks k = {first, first + step < n_blocks ? first + step : n_blocks};
        int64_t p = 0;
        for (; p + most <= a->n_panels; p += most) end = rows_of(a, k, row, p, n, most, dtype);
        for (; p < a->n_panels; p++) end = rows_of(a, k, row, p, n, 1, dtype);
    }
    return end;
}

INLINE void panels(const struct panel_args *a, const enum dtype dtype) {
    int64_t row = 0;
    if (ROWS_MAX >= 8) row = panels_of(a, row, 8, dtype);
    row = panels_of(a, row, 4, dtype);
    row = panels_of(a, row, 2, dtype);
    panels_of(a, row, 1, dtype);
}

static void f32_panel(const struct panel_args *a) {
    panels(a, DT_F32);
}
static void f16_panel(const struct panel_args *a) {
    panels(a, DT_F16);
}
static void bf16_panel(const struct panel_args *a) {
    panels(a, DT_BF16);
}

static void plain_row(const float *x, const struct quant_acts *out, int64_t row) {
    int64_t first = row / out->tile * out->tile;
    float *to = (float *)(void *)out->q + first * out->in + (row - first) * PACK_PLAIN_GROUP;
    for (int64_t i = 0; i < out->in; i += PACK_PLAIN_GROUP, to += (int64_t)out->tile * PACK_PLAIN_GROUP)
        memcpy(to, x + i, PACK_PLAIN_GROUP * sizeof *to);
}

static void fill_plain_kernels(struct kernels *k) {
    k->f32 = (struct plain_kernels){.row = plain_row, .panel = f32_panel, .unit = 1};
    k->f16 = (struct plain_kernels){.row = plain_row, .panel = f16_panel, .unit = 1};
    k->bf16 = (struct plain_kernels){.row = plain_row, .panel = bf16_panel, .unit = 2};
}
