/* Products over panels of plain weights: against sums in double over the rows as they were, and against themselves, as a
 * row's bits may not depend on the rows beside it. */
#include "check_cpu.h"
#include "check_tally.h"

#include "base/arena.h"
#include "base/half.h"
#include "base/hash.h"
#include "os/os.h"

#include <math.h>
#include <stdio.h>

enum { ROWS = 67, PADDED = 80, PANELS = 7, OUT = PANELS * PANEL_ROWS };

struct fixture {
    struct pack_shape shape;
    enum dtype dtype;
    unsigned char *rows; /* [OUT][in] */
    unsigned char *panels;
    float *x; /* [ROWS][in] */
    struct quant_acts acts;
};

static float random_at(uint64_t i) {
    return (float)(hash_mix(i + 1) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

/* Rows of the batch, and of the weights, that are not of ordinary size. */
static float row_size(int64_t m) {
    static const float sizes[] = {1, 0, 1e-38f, 1e-20f, 1e18f, 1e30f, 127, 1e-30f};
    return m < 8 ? sizes[m] : 1 + (float)(m % 3);
}
static float weight_size(int64_t r) {
    return r == 3 ? 0.0f : r == 5 ? 6e4f : r == 6 ? 1e-6f : r == 7 ? 6e-5f : r == 21 ? 1e-37f : 1.0f;
}

static float weight_at(const struct fixture *t, int64_t i) {
    float v;
    plain_to_f32(t->dtype, t->rows + (size_t)i * (size_t)(dtype_bits(t->dtype) / 8), 1, &v);
    return v;
}

/* The last panel has seven rows. */
static void make_fixture(struct fixture *t, const struct kernels *k, enum dtype dtype, int64_t in) {
    size_t bytes = (size_t)(dtype_bits(dtype) / 8);
    t->dtype = dtype;
    t->rows = mem_alloc((size_t)(OUT * in) * bytes);
    t->x = mem_alloc((size_t)(ROWS * in) * sizeof *t->x);
    for (int64_t i = 0; i < OUT * in; i++) {
        float v = i / in < OUT - 9 ? random_at((uint64_t)(i + in)) * weight_size(i / in) : 0;
        plain_from_f32(dtype, &v, 1, t->rows + (size_t)i * bytes);
    }
    for (int64_t i = 0; i < ROWS * in; i++) t->x[i] = random_at((uint64_t)(i * 7 + in)) * row_size(i / in);
    t->x[9 * in + 5] = NAN; /* a broken row beside whole ones */
    t->x[11 * in + in - 1] = -INFINITY;
    pack_plain_shape_of(&(struct format){.dtype = dtype}, in, kern_plain(k, dtype)->unit, &t->shape);
    t->panels = mem_alloc(t->shape.panel_bytes * PANELS + 64);
    for (int p = 0; p < PANELS; p++) {
        struct quant_row rows[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) rows[r] = (struct quant_row){.values = t->rows + (size_t)((p * PANEL_ROWS + r) * in) * bytes};
        memset(t->panels + (size_t)p * t->shape.panel_bytes, 0x55, t->shape.panel_bytes);
        pack_panel(&t->shape, &(struct format){.dtype = dtype}, rows, p == PANELS - 1 ? 7 : PANEL_ROWS,
                   t->panels + (size_t)p * t->shape.panel_bytes);
    }
    t->acts = (struct quant_acts){.in = in, .group = t->shape.group, .plain = true, .dtype = dtype};
    t->acts.q = mem_alloc((size_t)(PADDED * in) * ACTS_PLAIN_BYTES);
    memset(t->acts.q, 0xFF, (size_t)(PADDED * in) * ACTS_PLAIN_BYTES); /* NaN where a tile is not filled */
}

static void free_fixture(struct fixture *t) {
    mem_free(t->rows);
    mem_free(t->x);
    mem_free(t->panels);
    mem_free(t->acts.q);
}

static void run(const struct kernels *k, struct fixture *t, int64_t first, int64_t n, int64_t n_panels, float *y) {
    t->acts.tile = acts_tile(n);
    for (int64_t m = 0; m < n; m++) kern_acts_row(k, t->x + (first + m) * t->acts.in, &t->acts, m);
    kern_panel(k, &(struct panel_args){
                      .shape = &t->shape, .panels = t->panels, .n_panels = n_panels, .x = t->acts, .n_rows = n, .y = y, .y_stride = OUT});
}

/* Sixteen bits of an activation's mantissa and a sum in f32, and f16 may be two terms that leave out as much; a factor or product too small for a normal number may count as
 * zero. */
static bool near_exact(const struct fixture *t, int64_t m, int64_t r, float have) {
    int64_t in = t->shape.in;
    double exact = 0, size = 0, small = 0;
    for (int64_t i = 0; i < in; i++) {
        double w = (double)weight_at(t, r * in + i), x = (double)t->x[m * in + i];
        exact += w * x;
        size += fabs(w * x);
        small += 1 + fabs(w) + fabs(x);
    }
    if (isnan(exact) || isinf(exact)) return isnan(have) || isinf(have);
    return fabs((double)have - exact) <= (t->dtype == DT_F16 ? 8e-6 : 4e-6) * size + 1.2e-38 * small;
}

static void check_rows(const struct fixture *t, const float *y) {
    static float unpacked[16384];
    for (int64_t m = 0; m < ROWS; m++)
        for (int64_t r = 0; r < OUT; r++)
            tally_check(near_exact(t, m, r, y[m * OUT + r]), "plain panel", dtype_name(t->dtype), "%d inputs, row %d, output %d",
                        (int)t->shape.in, (int)m, (int)r);
    for (int64_t r = 0; r < OUT; r += 5) {
        int64_t wrong = 0, in = t->shape.in;
        pack_unpack_row(&t->shape, t->panels + (size_t)(r / PANEL_ROWS) * t->shape.panel_bytes, (int32_t)(r % PANEL_ROWS), unpacked);
        for (int64_t i = 0; i < in; i++) wrong += unpacked[i] != weight_at(t, r * in + i);
        tally_check(wrong == 0, "unpacked plain panel", dtype_name(t->dtype), "%d inputs, row %d", (int)in, (int)r);
    }
}

static int64_t differences(const float *a, const float *b) {
    int64_t count = 0;
    for (int64_t i = 0; i < OUT; i++) count += memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]));
    return count;
}

static void check_dtype(const struct kernels *k, enum dtype dtype) {
    static const int64_t widths[] = {32, 96, 576, 1024, 2880}; /* the last ones with fewer numbers of rows */
    static float all[ROWS * OUT], some[ROWS * OUT];
    const char *name = dtype_name(dtype);
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        struct fixture t;
        make_fixture(&t, k, dtype, widths[w]);
        run(k, &t, 0, ROWS, PANELS, all);
        check_rows(&t, all);
        for (int64_t n = 1; n<ROWS; n += w> 2 ? 11 : n < 20 ? 1 : 4) {
            int64_t wrong = 0, first = n % 3;
            memset(some, 0x55, sizeof some);
            run(k, &t, first, n, PANELS, some);
            for (int64_t m = 0; m < n; m++) wrong += differences(some + m * OUT, all + (first + m) * OUT);
            tally_check(wrong == 0, "plain panel", name, "%d inputs, %d rows", (int)widths[w], (int)n);
        }
        for (int64_t m = 0; m<ROWS; m += w> 2 ? 17 : 3) {
            for (int64_t p = 1; p <= PANELS; p++) run(k, &t, m, 1, p, some);
            tally_check(differences(some, all + m * OUT) == 0, "plain panel", name, "%d inputs, row %d alone", (int)widths[w], (int)m);
        }
        free_fixture(&t);
    }
}

/* Every f16 and every bf16 that is a number, times one: it must come out as it was (bf16: or as zero, where it is not normal). */
static void check_every_number(const struct kernels *k, enum dtype dtype) {
    enum { IN = 1024, N_PANELS = 4, ALL = IN * N_PANELS * PANEL_ROWS, AT_ONCE = 64 };
    static uint16_t values[ALL];
    static float x[IN], y[AT_ONCE][N_PANELS * PANEL_ROWS];
    const struct plain_kernels *plain = kern_plain(k, dtype);
    struct pack_shape shape;
    pack_plain_shape_of(&(struct format){.dtype = dtype}, IN, plain->unit, &shape);
    unsigned char *panels = mem_alloc(shape.panel_bytes * N_PANELS + 64);
    int8_t *q = mem_alloc(AT_ONCE * IN * ACTS_PLAIN_BYTES);
    for (int32_t i = 0; i < ALL; i++)
        values[i] = isfinite(dtype == DT_F16 ? f16_to_f32((uint16_t)i) : bf16_to_f32((uint16_t)i)) ? (uint16_t)i : 0;
    for (int p = 0; p < N_PANELS; p++) {
        struct quant_row rows[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) rows[r] = (struct quant_row){.values = values + (p * PANEL_ROWS + r) * IN};
        pack_panel(&shape, &(struct format){.dtype = dtype}, rows, PANEL_ROWS, panels + (size_t)p * shape.panel_bytes);
    }
    struct panel_args a = {.shape = &shape, .panels = panels, .n_panels = N_PANELS, .n_rows = AT_ONCE, .y = y[0]};
    a.x = (struct quant_acts){.q = q, .in = IN, .group = shape.group, .tile = acts_tile(AT_ONCE), .plain = true, .dtype = dtype};
    a.y_stride = N_PANELS * PANEL_ROWS;
    int64_t wrong = 0;
    for (int64_t i = 0; i < IN; i += AT_ONCE) {
        for (int64_t m = 0; m < AT_ONCE; m++) {
            x[i + m] = 1;
            kern_acts_row(k, x, &a.x, m);
            x[i + m] = 0;
        }
        kern_panel(k, &a);
        for (int64_t m = 0; m < AT_ONCE; m++)
            for (int64_t r = 0; r < N_PANELS * PANEL_ROWS; r++) {
                uint16_t h = values[r * IN + i + m];
                float want = dtype == DT_F16 ? f16_to_f32(h) : bf16_to_f32(h);
                wrong += y[m][r] != want && !(y[m][r] == 0 && fabsf(want) < 1.1754944e-38f);
            }
    }
    tally_check(wrong == 0, "plain panel", dtype_name(dtype), "%d numbers times one", (int)wrong);
    mem_free(panels);
    mem_free(q);
}

/* Rows and weights of very different sizes, in half precision: sums of products, some of which are rounded to 11 bits. */
static void check_half(const struct kernels *k, enum dtype dtype) {
    enum { IN = 1184, N_PANELS = 3, N_ROWS = 21, OUT = N_PANELS * PANEL_ROWS };
    static uint16_t values[OUT][IN];
    static float x[N_ROWS][IN], y[N_ROWS][OUT], scales[32];
    struct pack_shape shape;
    pack_plain_shape_of(&(struct format){.dtype = dtype}, IN, kern_plain(k, dtype)->unit, &shape);
    unsigned char *panels = mem_alloc(shape.panel_bytes * N_PANELS + 64);
    int8_t *q = mem_alloc(32 * IN * sizeof(uint16_t));
    for (int r = 0; r < OUT; r++)
        for (int i = 0; i < IN; i++) {
            float w = (float)(hash_mix((uint64_t)(r * IN + i)) % 2001) / 1000.0f - 1.0f;
            values[r][i] = dtype == DT_F16 ? f16_from_f32(w * 0.03f) : bf16_from_f32(w * (r % 2 ? 3e4f : 3e-6f));
        }
    for (int p = 0; p < N_PANELS; p++) {
        struct quant_row rows[PANEL_ROWS];
        for (int r = 0; r < PANEL_ROWS; r++) rows[r] = (struct quant_row){.values = values[p * PANEL_ROWS + r]};
        pack_panel(&shape, &(struct format){.dtype = dtype}, rows, PANEL_ROWS, panels + (size_t)p * shape.panel_bytes);
    }
    struct panel_args a = {.shape = &shape, .panels = panels, .n_panels = N_PANELS, .n_rows = N_ROWS, .y = y[0], .y_stride = OUT};
    a.x = (struct quant_acts){
        .q = q, .scale = scales, .in = IN, .group = shape.group, .tile = ACTS_TILE, .plain = true, .dtype = dtype, .half = true};
    for (int m = 0; m < N_ROWS; m++) {
        for (int i = 0; i < IN; i++)
            x[m][i] = ((float)(hash_mix((uint64_t)(77777 + m * IN + i)) % 2001) / 1000.0f - 1.0f) * (m % 3 ? 1e6f : 1e-5f);
        x[m][m] *= 300.0f;
        kern_acts_row(k, x[m], &a.x, m);
    }
    kern_panel(k, &a);
    double worst = 0, all = 0;
    for (int m = 0; m < N_ROWS; m++)
        for (int r = dtype == DT_F16 ? 0 : 1; r < OUT;
             r += dtype == DT_F16 ? 1 : 2) { /* the small rows of a panel are rounded by its large ones */
            double want = 0, square = 0;
            for (int i = 0; i < IN; i++) {
                double product = (double)x[m][i] * (double)(dtype == DT_F16 ? f16_to_f32(values[r][i]) : bf16_to_f32(values[r][i]));
                want += product, square += product * product;
            }
            double far = fabs((double)y[m][r] - want) / sqrt(square);
            worst = far > worst || far != far ? far : worst, all += far;
        }
    tally_check(worst < 6e-3 && all > 0, "half panel", dtype_name(dtype), "%g of the deviation", worst);
    mem_free(panels);
    mem_free(q);
}

/* Weights of a softmax as rows of a tile, from scores of all sizes: each as a half number, and their sum. */
static void check_half_weights(const struct kernels *k) {
    enum { N = 264, ROWS = HALF_TILE };
    static float scores[N], scales[ROWS];
    static uint16_t tile[ROWS * N];
    struct quant_acts out = {.q = (int8_t *)tile, .scale = scales, .in = N};
    double worst = 0;
    for (int row = 0; row < ROWS; row++) {
        double sum = 0, most = -10.0 * row;
        for (int i = 0; i < N; i++) {
            scores[i] = (float)(most - (double)(hash_mix((uint64_t)(row * N + i)) % 4000) / (row % 2 ? 10.0 : 1000.0));
            if (i == row) scores[i] = (float)most;
            if (i == 100 + row) scores[i] = -INFINITY;
        }
        float have = k->half_weights(scores, N, (float)most, &out, row);
        for (int i = 0; i < N; i++) {
            double want = exp((double)scores[i] - most), got = (double)(f16_to_f32(tile[i / 8 * 8 * ROWS + row * 8 + i % 8]) * scales[row]);
            double far = fabs(got - want) / (want + 1e-4);
            worst = far > worst || far != far ? far : worst, sum += want;
        }
        worst = fabs((double)have - sum) / sum > worst ? fabs((double)have - sum) / sum : worst;
    }
    tally_check(worst > 0 && worst < 1e-3, "half weights", "f16", "%g off", worst);
}

void check_cpu_plain(const struct kernels *k) {
    if (k->half_weights) check_half_weights(k);
    static const enum dtype dtypes[] = {DT_BF16, DT_F16, DT_F32};
    for (int i = 0; i < 3; i++) {
        if (!kern_plain(k, dtypes[i])->panel) continue;
        check_dtype(k, dtypes[i]);
        if (dtypes[i] != DT_F32) check_every_number(k, dtypes[i]);
        if (dtypes[i] != DT_F32 && k->half_panel) check_half(k, dtypes[i]);
    }
}

/* ---- times -------------------------------------------------------------------------------------------------------- */

static void time_dtype(const struct kernels *k, enum dtype dtype) {
    enum { IN = 2048, N_PANELS = 8, MOST = 256 };
    struct pack_shape shape;
    struct err err;
    pack_plain_shape_of(&(struct format){.dtype = dtype}, IN, kern_plain(k, dtype)->unit, &shape);
    unsigned char *panels = os_pages_alloc(shape.panel_bytes * N_PANELS, &err);
    int8_t *q = os_pages_alloc(MOST * ACTS_PLAIN_BYTES * IN, &err);
    float *y = mem_alloc(MOST * N_PANELS * PANEL_ROWS * sizeof *y);
    struct panel_args a = {.shape = &shape, .panels = panels, .n_panels = N_PANELS, .y = y, .y_stride = N_PANELS * PANEL_ROWS};
    a.x = (struct quant_acts){.q = q, .in = IN, .group = shape.group, .plain = true, .dtype = dtype};
    time_panel_rows(k, dtype_name(dtype), a);
    os_pages_free(panels, shape.panel_bytes * N_PANELS);
    os_pages_free(q, MOST * ACTS_PLAIN_BYTES * IN);
    mem_free(y);
}

void time_cpu_plain(const struct kernels *k) {
    static const enum dtype dtypes[] = {DT_BF16, DT_F16, DT_F32};
    for (int i = 0; i < 3; i++)
        if (kern_plain(k, dtypes[i])->panel) time_dtype(k, dtypes[i]);
}
