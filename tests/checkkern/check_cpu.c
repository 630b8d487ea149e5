/* Every kernel of every level against kern_ref, on random and extreme inputs, then timed.
 *
 * Integer products must be the reference's bits, whatever the number of rows; float kernels may round differently.
 * Counts are check_tally.h's. Times are the shortest of many short runs: a busy machine makes them rarer, not longer.
 */
#include "check_cpu.h"
#include "check_tally.h"
#include "kern_ref_packed.h"
#include "kern_in_c.h"

#include "base/arena.h"
#include "base/half.h"
#include "base/hash.h"
#include "os/cpu.h"
#include "os/os.h"

#include <math.h>
#include <stdio.h>

static float random_at(uint64_t i) {
    return (float)(hash_mix(i + 1) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

/* ---- panels ------------------------------------------------------------------------------------------------------- */

enum { ROWS = 37, PADDED = 48, IN_MAX = 5376, PANELS = 5 };

static const struct format formats[] = {
    {QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_AFFINE, DT_F16, 4, 64},  {QUANT_AFFINE, DT_BF16, 4, 32}, {QUANT_AFFINE, DT_BF16, 4, 128},
    {QUANT_AFFINE, DT_BF16, 8, 64}, {QUANT_AFFINE, DT_F32, 8, 64},  {QUANT_AFFINE, DT_BF16, 8, 32}, {QUANT_AFFINE, DT_BF16, 2, 64},
    {QUANT_AFFINE, DT_BF16, 3, 32}, {QUANT_AFFINE, DT_BF16, 5, 64}, {QUANT_AFFINE, DT_F16, 6, 64},  {QUANT_MXFP4, DT_BF16, 4, 32},
    {QUANT_NVFP4, DT_BF16, 4, 16},  {QUANT_AFFINE, DT_F32, 4, 16},  {QUANT_AFFINE, DT_F32, 6, 16},  {QUANT_AFFINE, DT_F32, 4, 32},
};

struct fixture {
    struct pack_shape shape;
    unsigned char *panels;
    float *x; /* [ROWS][in] */
    struct quant_acts acts;
};

/* Rows of the batch that are not of ordinary size. */
static float row_size(int64_t m) {
    static const float sizes[] = {1, 0, 1e-38f, 1e-20f, 1e18f, 3e37f, 127, 1};
    return m < 8 ? sizes[m] : 1 + (float)(m % 3);
}

static void make_fixture(struct fixture *t, const struct format *f, int64_t in, uint64_t seed) {
    static unsigned char values[PANEL_ROWS][IN_MAX], scales[PANEL_ROWS][IN_MAX / 4], biases[PANEL_ROWS][IN_MAX / 4];
    static float source[IN_MAX];
    struct quant_row rows[PANEL_ROWS];
    pack_shape_of(f, in, &t->shape);
    t->panels = mem_alloc(t->shape.panel_bytes * PANELS + 64);
    for (int p = 0; p < PANELS; p++) {
        for (int r = 0; r < PANEL_ROWS; r++) {
            float size = r == 3 ? 0.0f : r == 5 ? 1e4f : r == 6 ? 1e-6f : 1.0f;
            for (int64_t i = 0; i < in; i++) source[i] = random_at(seed + (uint64_t)((p * PANEL_ROWS + r) * in + i)) * size;
            quant_pack(f, source, in, values[r], scales[r], biases[r]);
            rows[r] = (struct quant_row){values[r], scales[r], f->mode == QUANT_AFFINE ? biases[r] : NULL};
        }
        pack_panel(&t->shape, f, rows, p == PANELS - 1 ? 7 : PANEL_ROWS, t->panels + (size_t)p * t->shape.panel_bytes);
    }
    int64_t groups = in / t->shape.group;
    t->x = mem_alloc((size_t)(ROWS * in) * sizeof *t->x);
    t->acts =
        (struct quant_acts){.q = mem_alloc((size_t)(PADDED * ACTS_TERMS * in)), .in = in, .n_groups = groups, .group = t->shape.group};
    acts_fit(&t->acts, &t->shape);
    t->acts.scale = mem_alloc((size_t)(PADDED * groups) * sizeof(float));
    t->acts.sum = mem_alloc((size_t)(PADDED * groups) * sizeof(float));
    for (int64_t m = 0; m < ROWS; m++)
        for (int64_t i = 0; i < in; i++) t->x[m * in + i] = random_at(seed * 7 + (uint64_t)(m * in + i)) * row_size(m);
    t->x[9 * in + 5] = NAN; /* a broken row beside whole ones */
    t->x[11 * in + in - 1] = -INFINITY;
}

/* A row of a K type: each group's scale and bias are a byte times what a span has; the largest bytes and codes in some rows. Bytes of scales have
 * both signs in every second span alone. */
static void make_nested_row(const struct format *f, int64_t in, int centre, uint64_t seed, unsigned char *values, float *scales,
                            float *biases) {
    static uint8_t codes[IN_MAX];
    bool is_extreme = seed % 5 == 0;
    for (int64_t i = 0; i < in; i++)
        codes[i] = is_extreme ? (uint8_t)0 : (uint8_t)(hash_mix(seed + (uint64_t)i) >> 33 & ((1u << f->bits) - 1));
    if (is_extreme && !centre) memset(codes, (1 << f->bits) - 1, (size_t)in);
    quant_put_codes(f, codes, in, values);
    for (int64_t g = 0; g < in / f->group; g++) {
        uint64_t span = seed + (uint64_t)(g * f->group / PACK_SPAN) * 77, at = seed * 3 + (uint64_t)g;
        float scale_1 = f16_to_f32(f16_from_f32(random_at(span) * 0.01f)), bias_1 = f16_to_f32(f16_from_f32(random_at(span + 1) * 0.03f));
        bool has_sign = g * f->group / PACK_SPAN % 2 == 1;
        float most = has_sign && g % 7 ? -128.0f : 127.0f;
        scales[g] = scale_1 * (is_extreme ? most : (float)(hash_mix(at) >> 40 & 127) - (has_sign ? 63.0f : 0.0f));
        biases[g] = centre ? -(float)centre * scales[g] : bias_1 * (float)(hash_mix(at + 9) >> 40 & 63);
    }
}

/* False: this format has no such panels. */
static bool make_nested(struct fixture *t, const struct format *f, int64_t in, bool centred, uint64_t seed) {
    static unsigned char values[PANEL_ROWS][IN_MAX];
    static float scales[PANEL_ROWS][IN_MAX / 16], biases[PANEL_ROWS][IN_MAX / 16], got[IN_MAX], want[IN_MAX];
    struct quant_row rows[PANEL_ROWS];
    struct pack_shape shape;
    bool whole = true;
    make_nested_row(f, in, centred ? 1 << (f->bits - 1) : 0, seed, values[0], scales[0], biases[0]);
    if (!pack_nested_shape_of(f, in, &(struct quant_row){values[0], scales[0], biases[0]}, &shape)) return false;
    make_fixture(t, f, in, seed);
    mem_free(t->panels);
    t->shape = shape;
    acts_fit(&t->acts, &shape);
    t->panels = mem_alloc(shape.panel_bytes * PANELS + 64);
    for (int p = 0; p < PANELS; p++) {
        unsigned char *panel = t->panels + (size_t)p * shape.panel_bytes;
        for (int r = 0; r < PANEL_ROWS; r++) {
            make_nested_row(f, in, shape.centre, seed + (uint64_t)(p * PANEL_ROWS + r), values[r], scales[r], biases[r]);
            rows[r] = (struct quant_row){values[r], scales[r], biases[r]};
        }
        whole &= pack_nested_panel(&shape, f, rows, PANEL_ROWS, panel);
        for (int r = 0; r < PANEL_ROWS; r++) {
            quant_unpack(f, &rows[r], 0, in, want);
            pack_unpack_row(&shape, panel, r, got);
            for (int64_t i = 0; i < in; i++) whole &= got[i] == want[i]; /* the sign of a zero may differ */
        }
    }
    tally_check(whole, "nested", centred ? "centred" : "biased", "%d bits, groups of %d, %d inputs: the same numbers", f->bits,
                (int)f->group, (int)in);
    scales[3][0] = 1.0f / 3.0f; /* no multiple of anything that the others are */
    tally_check(!pack_nested_panel(&shape, f, rows, PANEL_ROWS, t->panels) || in == 0, "nested", "refused", "%d bits", f->bits);
    scales[3][0] = 0, biases[3][0] = 0;
    pack_nested_panel(&shape, f, rows, PANEL_ROWS, t->panels);
    return true;
}

static void free_fixture(struct fixture *t) {
    mem_free(t->panels);
    mem_free(t->x);
    mem_free(t->acts.q);
    mem_free(t->acts.scale);
    mem_free(t->acts.sum);
}

static void run_panels(const struct kernels *k, struct fixture *t, int64_t first, int64_t n, float *y) {
    t->acts.tile = acts_tile(n);
    for (int64_t m = 0; m < n; m++) kern_acts_row(k, t->x + (first + m) * t->acts.in, &t->acts, m);
    (t->shape.nested ? k->nested : k->panel)(&(struct panel_args){
        .shape = &t->shape, .panels = t->panels, .n_panels = PANELS, .x = t->acts, .n_rows = n, .y = y, .y_stride = PANELS * PANEL_ROWS});
}

/* Equal bits; any NaN is as good as another. */
static int64_t differences(const float *a, const float *b, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) count += memcmp(a + i, b + i, sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i]));
    return count;
}

static void check_panels(const struct kernels *k) {
    static const int64_t widths[] = {128, 640, 2048, 576, 896, 1152, 2880, 5376}; /* the last ones with fewer numbers of rows */
    enum { N_WIDTHS = sizeof widths / sizeof *widths, N_FULL = 3 };
    static float want[ROWS * PANELS * PANEL_ROWS], got[ROWS * PANELS * PANEL_ROWS];
    struct kernels plain;
    kern_ref(&plain);
    kern_ref_packed(&plain);
    if (!k->panel) return;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (size_t w = 0; w < N_WIDTHS; w++) {
            struct fixture t;
            char name[32];
            if (widths[w] % formats[i].group) continue;
            format_name(&formats[i], name);
            make_fixture(&t, &formats[i], widths[w], 1000 * (uint64_t)i + w);
            run_panels(&plain, &t, 0, ROWS, want);
            for (int64_t n = 1; n <= ROWS; n += w >= N_FULL ? 9 : n < 17 ? 1 : 5) {
                memset(got, 0x55, sizeof got);
                run_panels(k, &t, 0, n, got);
                tally_check(differences(got, want, n * PANELS * PANEL_ROWS) == 0, "panel", name, "%d inputs, %d rows", (int)widths[w],
                            (int)n);
            }
            for (int64_t m = 1; m < ROWS; m += w >= N_FULL ? 17 : 3) {
                run_panels(k, &t, m, 1, got);
                tally_check(differences(got, want + m * PANELS * PANEL_ROWS, PANELS * PANEL_ROWS) == 0, "panel", name,
                            "%d inputs, row %d alone", (int)widths[w], (int)m);
            }
            free_fixture(&t);
        }
}

/* More rows and panels than kernels take at a time: those of the fixture again and again, whose results are known. */
static void check_nested_blocks(const struct kernels *k, const struct fixture *t, const float *want, const char *name) {
    enum { MANY_ROWS = 300, MANY_PADDED = 304, MANY_PANELS = 2 * PANELS, WIDTH = PANELS * PANEL_ROWS };
    size_t groups = (size_t)t->acts.n_groups, size = t->shape.panel_bytes * PANELS;
    unsigned char *panels = mem_alloc(2 * size);
    float *y = mem_alloc(MANY_ROWS * 2 * WIDTH * sizeof *y);
    struct panel_args a = {.shape = &t->shape, .panels = panels, .n_panels = MANY_PANELS, .x = t->acts, .n_rows = MANY_ROWS, .y = y};
    int64_t wrong = 0;
    a.y_stride = 2 * WIDTH;
    a.x.tile = acts_tile(MANY_ROWS);
    a.x.q = mem_alloc((size_t)(MANY_PADDED * t->acts.in));
    a.x.scale = mem_alloc(MANY_PADDED * groups * sizeof(float));
    a.x.sum = mem_alloc(MANY_PADDED * groups * sizeof(float));
    memcpy(panels, t->panels, size);
    memcpy(panels + size, t->panels, size);
    for (int64_t m = 0; m < MANY_ROWS; m++) kern_acts_row(k, t->x + m % ROWS * t->acts.in, &a.x, m);
    k->nested(&a);
    for (int64_t i = 0; i < MANY_ROWS * 2; i++) wrong += differences(y + i * WIDTH, want + i / 2 % ROWS * WIDTH, WIDTH);
    tally_check(wrong == 0, "nested panel", name, "%d rows, %d panels", MANY_ROWS, MANY_PANELS);
    mem_free(a.x.q), mem_free(a.x.scale), mem_free(a.x.sum);
    mem_free(panels);
    mem_free(y);
}

static void check_nested(const struct kernels *k) {
    static const int64_t widths[] = {256, 768, 2048};
    static const struct format kinds[] = {{QUANT_AFFINE, DT_F32, 4, 32}, {QUANT_AFFINE, DT_F32, 5, 32}, {QUANT_AFFINE, DT_F32, 2, 16},
                                          {QUANT_AFFINE, DT_F32, 3, 16}, {QUANT_AFFINE, DT_F32, 6, 16}, {QUANT_AFFINE, DT_F32, 6, 32}};
    static float want[ROWS * PANELS * PANEL_ROWS], got[ROWS * PANELS * PANEL_ROWS];
    struct kernels plain;
    kern_ref(&plain);
    kern_ref_packed(&plain);
    for (size_t i = 0; i < 2 * sizeof kinds / sizeof *kinds && k->nested; i++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
            struct fixture t;
            char name[32];
            format_name(&kinds[i / 2], name);
            if (!make_nested(&t, &kinds[i / 2], widths[w], i % 2, 1000 * (uint64_t)i + w)) continue;
            run_panels(&plain, &t, 0, ROWS, want);
            for (int64_t n = 1; n <= ROWS; n += n < 9 ? 1 : 7) {
                memset(got, 0x55, sizeof got);
                run_panels(k, &t, 0, n, got);
                tally_check(differences(got, want, n * PANELS * PANEL_ROWS) == 0, "nested panel", name, "%s, %d inputs, %d rows",
                            t.shape.centre ? "centred" : "biased", (int)widths[w], (int)n);
            }
            for (int64_t m = 1; m < ROWS; m += 7) {
                run_panels(k, &t, m, 1, got);
                tally_check(differences(got, want + m * PANELS * PANEL_ROWS, PANELS * PANEL_ROWS) == 0, "nested panel", name,
                            "%d inputs, row %d alone", (int)widths[w], (int)m);
            }
            check_nested_blocks(k, &t, want, name);
            free_fixture(&t);
        }
}

/* ---- floats ------------------------------------------------------------------------------------------------------- */

enum { N = 203 };

static void check_sums(const struct kernels *k, const struct kernels *plain) {
    static const float sizes[] = {1, 1e-20f, 1e15f};
    float a[N], b[N], y[N], z[N];
    for (size_t s = 0; s < 3; s++)
        for (int n = 0; n <= N; n += n < 70 ? 1 : 19) {
            double size = 0;
            for (int i = 0; i < N; i++) a[i] = random_at((uint64_t)i) * sizes[s], b[i] = y[i] = z[i] = random_at((uint64_t)i + 999);
            for (int i = 0; i < n; i++) size += fabs((double)a[i] * (double)b[i]);
            tally_check(fabs((double)(k->dot(a, b, n) - plain->dot(a, b, n))) <= 1e-6 * size, "dot", "", "%d elements", n);
            k->axpy(y, a, 0.5f, n);
            plain->axpy(z, a, 0.5f, n);
            for (int i = 0; i < n; i++) y[i] = fabsf(y[i] - z[i]) <= 1e-6f * (fabsf(a[i]) + 1) ? z[i] : NAN;
            tally_check(memcmp(y, z, sizeof y) == 0, "axpy", "", "%d elements", n);
            double have = k->sum_squares(b, n), want = plain->sum_squares(b, n);
            tally_check(fabs(have - want) <= 1e-6 * want, "sum_squares", "", "%d elements", n);
            tally_check(fabs(k->sum(b, n) - plain->sum(b, n)) <= 1e-6 * (n + 1), "sum", "", "%d elements", n);
            tally_check(k->max(a, n, -INFINITY) == plain->max(a, n, -INFINITY), "max", "", "%d elements", n);
            if (n > 3) a[n / 2] = NAN;
            tally_check(k->max(a, n, -3.0f) == plain->max(a, n, -3.0f), "max", "", "%d elements, one of them not a number", n);
        }
}

static void check_functions(const struct kernels *k, const struct kernels *plain) {
    static const float edges[] = {0, -0.0f, 1e-30f, 88, 89, -88, -104, -120, 1000, -1000, INFINITY, -INFINITY, 20, -20};
    enum { N_EDGES = sizeof edges / sizeof *edges };
    float x[N], y[N];
    for (int kind = 0; kind < N_ACT_KINDS; kind++) {
        struct act_args a = {.kind = (enum act_kind)kind, .scale = 1, .p = {3, 2, 0.5f, -1e-6f}};
        int wrong = 0;
        for (int i = 0; i < N; i++) x[i] = y[i] = i < N_EDGES ? edges[i] : 12 * random_at((uint64_t)i);
        k->act(x, N, &a);
        plain->act(y, N, &a);
        for (int i = 0; i < N; i++) {
            if (isnan(y[i]) || isinf(y[i])) wrong += isnan(x[i]) && !isnan(y[i]);
            else wrong += !(fabs((double)x[i] - y[i]) <= 4e-6 * fabs((double)y[i]) + 1e-6);
        }
        tally_check(wrong == 0, "act", act_name((enum act_kind)kind), "%d of %d numbers", wrong, N);
    }
    for (int n = 1; n < N; n += 7) {
        for (int i = 0; i < n; i++) x[i] = y[i] = 30 * random_at((uint64_t)i);
        float most = plain->max(x, n, -INFINITY), have = k->exp_sum(x, n, most), want = plain->exp_sum(y, n, most);
        tally_check(fabsf(have - want) <= 2e-6f * want, "exp_sum", "", "%d elements", n);
    }
}

static void check_plain(const struct kernels *k) {
    float w[N], x[5 * N], y[5], one;
    uint16_t h[N];
    for (int i = 0; i < 5 * N; i++) x[i] = random_at((uint64_t)i + 77);
    for (int t = 0; t < 3 && k->plain; t++)
        for (int n = 1; n <= N; n += n < 40 ? 1 : 23) {
            enum dtype dtype = t == 0 ? DT_F32 : t == 1 ? DT_F16 : DT_BF16;
            const char *name = dtype_name(dtype);
            for (int i = 0; i < n; i++) w[i] = random_at((uint64_t)i);
            if (t) plain_from_f32(dtype, w, n, h), plain_to_f32(dtype, h, n, w);
            struct plain_args p = {
                .w = t ? (const void *)h : w, .dtype = dtype, .x = x, .x_stride = N, .n = n, .n_rows = 5, .y = y, .y_stride = 1};
            k->plain(&p);
            for (int m = 0; m < 5; m++) {
                double exact = 0;
                for (int i = 0; i < n; i++) exact += (double)w[i] * (double)x[m * N + i];
                tally_check(fabs(exact - (double)y[m]) <= 1e-5, "plain", name, "%d inputs, row %d: off by %g", n, m, exact - (double)y[m]);
                p.x = x + m * N, p.n_rows = 1, p.y = &one;
                k->plain(&p);
                tally_check(memcmp(&one, &y[m], sizeof one) == 0, "plain", name, "%d inputs, row %d alone", n, m);
            }
        }
}

static void check_attention(const struct kernels *k) {
    enum { WIDTH_MAX = 256, HEADS = 8 };
    static uint16_t cache[KV_BLOCK_POS * WIDTH_MAX];
    static float q[HEADS * WIDTH_MAX], scores[HEADS * KV_BLOCK_POS], out[HEADS * WIDTH_MAX], alone[WIDTH_MAX];
    if (!k->block_scores) return;
    for (int i = 0; i < KV_BLOCK_POS * WIDTH_MAX; i++) cache[i] = f16_from_f32(random_at((uint64_t)i));
    for (int i = 0; i < HEADS * WIDTH_MAX; i++) q[i] = random_at((uint64_t)i + 5555);
    for (int32_t width = 16; width <= WIDTH_MAX; width += 48)
        for (int32_t heads = 1; heads <= HEADS; heads++) {
            struct attn_block b = {.cache = cache, .width = width, .heads = heads, .q = q, .q_stride = width, .scores = scores};
            b.next = cache;
            b.scores_stride = KV_BLOCK_POS, b.scale = 0.25f, b.out = out, b.out_stride = width, b.first = 3, b.last = 61;
            double worst = 0;
            k->block_scores(&b);
            for (int h = 0; h < heads; h++)
                for (int p = 0; p < KV_BLOCK_POS; p++) {
                    double exact = 0;
                    for (int d = 0; d < width; d++) exact += (double)q[h * width + d] * (double)f16_to_f32(cache[d * KV_BLOCK_POS + p]);
                    worst = fmax(worst, fabs(exact * 0.25 - (double)scores[h * KV_BLOCK_POS + p]));
                }
            tally_check(worst <= 1e-4, "block_scores", "f16", "width %d, %d heads: off by %g", (int)width, (int)heads, worst);
            memset(out, 0, sizeof out);
            k->block_mix(&b);
            worst = 0;
            for (int h = 0; h < heads; h++) {
                struct attn_block single = b;
                single.heads = 1, single.scores = scores + h * KV_BLOCK_POS, single.out = alone;
                memset(alone, 0, sizeof alone);
                k->block_mix(&single);
                tally_check(memcmp(alone, out + h * width, (size_t)width * sizeof *out) == 0, "block_mix", "f16", "width %d, head %d alone",
                            (int)width, h);
                for (int d = 0; d < width; d++) {
                    double exact = 0;
                    for (int p = 3; p < 61; p++) exact += (double)scores[h * KV_BLOCK_POS + p] * (double)f16_to_f32(cache[p * width + d]);
                    worst = fmax(worst, fabs(exact - (double)out[h * width + d]));
                }
            }
            tally_check(worst <= 1e-3, "block_mix", "f16", "width %d, %d heads: off by %g", (int)width, (int)heads, worst);
        }
}

static void check_store(const struct kernels *k) {
    static const float edges[] = {0, -0.0f, 1, 65504, 65520, 1e9f, -1e9f, 6e-8f, 1e-9f, INFINITY, -INFINITY, 1.00048828125f, 0.333333343f};
    float x[N];
    uint16_t h[N];
    if (!k->store_f16) return;
    for (int i = 0; i < N; i++) x[i] = i < 13 ? edges[i] : random_at((uint64_t)i);
    k->store_f16(h, x, N);
    for (int i = 0; i < N; i++) tally_check(h[i] == f16_from_f32(x[i]), "store_f16", "", "%g", (double)x[i]);
}

/* ---- times -------------------------------------------------------------------------------------------------------- */

struct timed {
    const struct kernels *k;
    struct panel_args panel;
    struct attn_block block;
    struct kv_block small;
};

static void run_panel(struct timed *t) {
    kern_panel(t->k, &t->panel);
}
static void run_scores(struct timed *t) {
    t->k->block_scores(&t->block);
}
static void run_mix(struct timed *t) {
    t->k->block_mix(&t->block);
}

static void run_small_scores(struct timed *t) {
    t->k->kv_scores(&t->small);
}
static void run_small_mix(struct timed *t) {
    t->k->kv_mix(&t->small);
}

/* The shortest of many runs, in seconds. */
static double shortest(void (*run)(struct timed *), struct timed *t) {
    uint64_t begin = os_clock_ns(), best = UINT64_MAX;
    for (int i = 0; i < 20000 && os_clock_ns() - begin < 200000000; i++) {
        uint64_t start = os_clock_ns();
        run(t);
        uint64_t took = os_clock_ns() - start;
        if (took < best) best = took;
    }
    return (double)(best ? best : 1) * 1e-9;
}

void time_panel_rows(const struct kernels *k, const char *name, struct panel_args a) {
    static const int64_t batches[] = {1, 2, 4, 8, 16, 64, 256};
    printf("%-24s %-10s", k->isa, name);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        a.n_rows = batches[i];
        a.x.tile = acts_tile(batches[i]);
        double seconds = shortest(run_panel, &(struct timed){.k = k, .panel = a});
        printf("  %d rows %.1f", (int)a.n_rows, (double)(a.n_rows * a.x.in * a.n_panels * PANEL_ROWS) / seconds * 1e-9);
        if (i == 0) printf(" (%.1f GB/s)", (double)a.shape->panel_bytes * (double)a.n_panels / seconds * 1e-9);
    }
    printf("  GMAC/s\n");
}

static void time_panels(const struct kernels *k, const struct format *f, bool is_nested, const char *name) {
    enum { IN = 1024, N_PANELS = 8, MOST = 256 };
    struct pack_shape shape;
    if (!k->panel) return;
    pack_shape_of(f, IN, &shape);
    static float ones[IN / 16], centred[IN / 16];
    for (int i = 0; i < IN / 16; i++) ones[i] = 1, centred[i] = f->bits > 5 ? -(float)(1 << (f->bits - 1)) : 1;
    if (is_nested && !(k->nested && pack_nested_shape_of(f, IN, &(struct quant_row){NULL, ones, centred}, &shape))) return;
    struct err err;
    unsigned char *panels = os_pages_alloc(shape.panel_bytes * N_PANELS, &err);
    int8_t *q = os_pages_alloc(MOST * ACTS_TERMS * IN, &err);
    float *numbers = os_pages_alloc(2 * MOST * IN / 16 * sizeof(float), &err), *y = mem_alloc(MOST * N_PANELS * PANEL_ROWS * sizeof *y);
    struct panel_args a = {.shape = &shape, .panels = panels, .n_panels = N_PANELS, .y = y, .y_stride = N_PANELS * PANEL_ROWS};
    a.x = (struct quant_acts){
        .q = q, .scale = numbers, .sum = numbers + MOST * IN / 16, .in = IN, .n_groups = IN / shape.group, .group = shape.group};
    acts_fit(&a.x, &shape);
    memset(panels, 0x3C, shape.panel_bytes * N_PANELS); /* pages that nobody wrote are all the same one, under many addresses */
    memset(q, 0x11, MOST * ACTS_TERMS * IN);
    memset(numbers, 0x3C, 2 * MOST * IN / 16 * sizeof(float));
    time_panel_rows(k, name, a);
    os_pages_free(panels, shape.panel_bytes * N_PANELS);
    os_pages_free(q, MOST * ACTS_TERMS * IN);
    os_pages_free(numbers, 2 * MOST * IN / 16 * sizeof(float));
    mem_free(y);
}

static void time_attention(const struct kernels *k) {
    enum { WIDTH = 128, HEADS = 8 };
    static uint16_t cache[KV_BLOCK_POS * WIDTH];
    static float q[HEADS * WIDTH], scores[HEADS * KV_BLOCK_POS], out[HEADS * WIDTH];
    if (!k->block_scores) return;
    struct timed t = {.k = k, .block = {.cache = cache, .width = WIDTH, .q = q, .q_stride = WIDTH, .scores = scores, .out = out}};
    t.block.next = cache;
    t.block.scores_stride = KV_BLOCK_POS, t.block.out_stride = WIDTH, t.block.scale = 1, t.block.last = KV_BLOCK_POS;
    printf("%-24s attention ", k->isa);
    for (int heads = 1; heads <= HEADS; heads *= 2) {
        t.block.heads = heads;
        double work = (double)heads * WIDTH * KV_BLOCK_POS * 1e-9;
        printf("  %d queries %.1f + %.1f", heads, work / shortest(run_scores, &t), work / shortest(run_mix, &t));
    }
    printf("  GMAC/s\n");
}

static void time_small(const struct kernels *k, int32_t bits) {
    enum { WIDTH = 128, HEADS = 8 };
    static unsigned char cache[KV_SCALE_BYTES + KV_BLOCK_POS * WIDTH];
    static float scores[HEADS * KV_BLOCK_POS], out[HEADS * WIDTH];
    static struct kv_query q[HEADS];
    int32_t range[HEADS][2];
    for (int h = 0; h < HEADS; h++) range[h][0] = 0, range[h][1] = KV_BLOCK_POS;
    struct timed t = {.k = k, .small = {.cache = cache, .width = WIDTH, .bits = bits, .q = q, .scores = scores, .out = out}};
    for (int i = 0; i < KV_ASKS; i++) t.small.ask[i] = cache;
    t.small.scores_stride = KV_BLOCK_POS, t.small.out_stride = WIDTH, t.small.range = range;
    printf("%-24s %d-bit cache", k->isa, bits);
    for (int heads = 1; heads <= HEADS; heads *= 2) {
        t.small.heads = heads;
        double work = (double)heads * WIDTH * KV_BLOCK_POS * 1e-9, bytes = (double)kv_block_size(WIDTH, bits) * 1e-9;
        double scores_s = shortest(run_small_scores, &t), mix_s = shortest(run_small_mix, &t);
        printf("  %d queries %.1f + %.1f (%.0f GB/s)", heads, work / scores_s, work / mix_s, 2 * bytes / (scores_s + mix_s));
    }
    printf("  GMAC/s\n");
}

/* ---- levels ------------------------------------------------------------------------------------------------------- */

static void check_level(const struct kernels *k, bool timed) {
    struct kernels plain;
    kern_ref(&plain);
    check_panels(k);
    check_nested(k);
    check_sums(k, &plain);
    check_functions(k, &plain);
    check_plain(k);
    check_cpu_plain(k);
    check_attention(k);
    check_store(k);
    check_kv(k, &plain);
    if (!timed) return;
    time_panels(k, &(struct format){QUANT_AFFINE, DT_BF16, 4, 64}, false, "4-bit g64");
    time_panels(k, &(struct format){QUANT_AFFINE, DT_BF16, 8, 64}, false, "8-bit g64");
    time_panels(k, &(struct format){QUANT_AFFINE, DT_F32, 4, 32}, false, "4-bit f32");
    time_panels(k, &(struct format){QUANT_AFFINE, DT_F32, 6, 16}, false, "6-bit f32");
    time_panels(k, &(struct format){QUANT_AFFINE, DT_F32, 4, 32}, true, "Q4_K");
    time_panels(k, &(struct format){QUANT_AFFINE, DT_F32, 6, 16}, true, "Q6_K");
    time_cpu_plain(k);
    time_attention(k);
    time_small(k, 8);
    time_small(k, 4);
}

/* Sets that only few processors have are checked with what their instructions do in C. */
static void check_in_c(const char *level) {
#if defined(__x86_64__)
    const struct {
        const char *level;
        uint32_t needs;
        void (*fill)(struct kernels *k);
        void (*check)(const struct kernels *k);
        const char *name;
    } sets[] = {
        {"avx2", CPU_AVX2, kern_avxvnni_in_c, check_panels, "avx-vnni in C"},
        {"vnni", CPU_AVX2 | CPU_AVX512 | CPU_VNNI, kern_tiles_in_c, check_nested, "avx512-vnni, tiles in C"},
    };
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct kernels k;
        if ((cpu_flags() & sets[i].needs) != sets[i].needs || (level && strcmp(level, sets[i].level))) continue;
        kern_select(&k, sets[i].needs);
        sets[i].fill(&k);
        k.isa = sets[i].name;
        tally_begin(k.isa);
        sets[i].check(&k);
        tally_end();
    }
#else
    (void)level;
#endif
}

int check_cpu(const char *level, bool timed) {
    static const char *const levels[] = {"ref", "avx2", "avxvnni", "avx512", "vnni", "amx", "neon", "dotprod", "i8mm", "bf16"};
    uint32_t seen = UINT32_MAX;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        uint32_t mask;
        struct err err;
        struct kernels k;
        if (cpu_level_parse(str_of(levels[i]), &mask, &err)) continue;
        uint32_t flags = cpu_flags() & mask & ~(uint32_t)CPU_SHA; /* every family has it, and no kernel */
        if (flags == seen || (flags == 0 && i > 0) || (level && strcmp(level, levels[i]))) continue;
        seen = flags;
        kern_select(&k, flags);
        tally_begin(k.isa);
        check_level(&k, timed);
        tally_end();
    }
    check_in_c(level);
    return tally_finish();
}
