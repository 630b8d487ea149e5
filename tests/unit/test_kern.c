/* CPU kernels: every level that this machine has, against the plain C ones, on random and extreme inputs. */
#include "../checkkern/kern_ref_packed.h"
#include "unit.h"

#include "backend/cpu/tune.h"
#include "base/hash.h"
#include "os/cpu.h"

#include <math.h>

static const char *const levels[] = {"avx2", "avxvnni", "avx512", "vnni", "amx", "neon", "dotprod", "i8mm", "bf16"};

static float random_at(uint64_t i) {
    return (float)(hash_mix(i + 1) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

/* Calls check for each level that exists here and offers more than the one before. */
static void each_level(void (*check)(const struct kernels *k)) {
    uint32_t seen = 0;
    bool any = false;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        uint32_t mask;
        struct err err;
        struct kernels k;
        CHECK_OK(cpu_level_parse(str_of(levels[i]), &mask, &err), err);
        uint32_t flags = cpu_flags() & mask;
        if (flags == seen || flags == 0) continue;
        seen = flags;
        kern_select(&k, flags);
        check(&k);
        any = true;
    }
    if (!any) unit_skip("this processor has none of the faster instruction sets");
}

enum { IN = 640, ROWS = 37, PADDED = 48 };

static const struct format formats[] = {
    {QUANT_AFFINE, DT_BF16, 4, 64}, {QUANT_AFFINE, DT_BF16, 4, 32},  {QUANT_AFFINE, DT_BF16, 4, 128}, {QUANT_AFFINE, DT_F16, 4, 64},
    {QUANT_AFFINE, DT_F32, 8, 64},  {QUANT_AFFINE, DT_BF16, 8, 128}, {QUANT_AFFINE, DT_BF16, 2, 64},  {QUANT_AFFINE, DT_BF16, 3, 32},
    {QUANT_AFFINE, DT_BF16, 5, 64}, {QUANT_AFFINE, DT_F16, 6, 64},   {QUANT_MXFP4, DT_BF16, 4, 32},   {QUANT_NVFP4, DT_BF16, 4, 16},
    {QUANT_AFFINE, DT_F32, 3, 16},  {QUANT_AFFINE, DT_F32, 6, 16},
};

struct fixture {
    struct pack_shape shape;
    unsigned char *panel;
    float weights[PANEL_ROWS][IN]; /* as the reference unpacks them */
    float x[ROWS][IN];
    int8_t q[PADDED * ACTS_TERMS * IN];
    float scale[PADDED * IN / 16], sum[PADDED * IN / 16];
};

static void make_fixture(struct fixture *t, const struct format *f, uint64_t seed) {
    unsigned char values[PANEL_ROWS][IN], scales[PANEL_ROWS][IN], biases[PANEL_ROWS][IN];
    struct quant_row rows[PANEL_ROWS];
    CHECK(pack_shape_of(f, IN, &t->shape));
    for (int r = 0; r < PANEL_ROWS; r++) {
        float source[IN];
        for (int i = 0; i < IN; i++) source[i] = random_at(seed + (uint64_t)(r * IN + i)) * (r == 3 ? 0.0f : r == 5 ? 1000.0f : 1.0f);
        quant_pack(f, source, IN, values[r], scales[r], biases[r]);
        rows[r] = (struct quant_row){values[r], scales[r], f->mode == QUANT_AFFINE ? biases[r] : NULL};
        quant_unpack(f, &rows[r], 0, IN, t->weights[r]);
    }
    t->panel = mem_alloc(t->shape.panel_bytes);
    pack_panel(&t->shape, f, rows, PANEL_ROWS, t->panel);
    for (int m = 0; m < ROWS; m++)
        for (int i = 0; i < IN; i++)
            t->x[m][i] = random_at(seed * 7 + (uint64_t)(m * IN + i)) * (m == 2 ? 1e-20f : m == 4 ? 1e15f : m == 6 ? 0.0f : 3.0f);
}

static void run_panel(const struct kernels *k, struct fixture *t, int64_t first, int64_t n, float *y) {
    struct quant_acts x = {.q = t->q, .scale = t->scale, .sum = t->sum, .in = IN, .n_groups = IN / t->shape.group};
    x.group = t->shape.group;
    x.tile = acts_tile(n);
    acts_fit(&x, &t->shape);
    for (int64_t m = 0; m < n; m++) k->quant_row(t->x[first + m], &x, m);
    kern_panel(k, &(struct panel_args){
                      .shape = &t->shape, .panels = t->panel, .n_panels = 1, .x = x, .n_rows = n, .y = y, .y_stride = PANEL_ROWS});
}

static void check_panels(const struct kernels *k) {
    static struct fixture t;
    struct kernels plain;
    kern_ref(&plain);
    kern_ref_packed(&plain);
    if (!k->panel) return;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        float want[ROWS][PANEL_ROWS], got[ROWS][PANEL_ROWS], alone[PANEL_ROWS];
        make_fixture(&t, &formats[i], 1000 * (uint64_t)i + 3);
        run_panel(&plain, &t, 0, ROWS, want[0]);
        run_panel(k, &t, 0, ROWS, got[0]);
        for (int n = 2; n < 16; n++) {
            float few[16][PANEL_ROWS];
            run_panel(k, &t, 0, n, few[0]);
            CHECK(memcmp(few, got, (size_t)n * sizeof few[0]) == 0);
            for (int64_t many = 2; many <= 32 && k->panel_few; many *= 4) { /* wherever the self-benchmark puts the border */
                struct kernels tuned = *k;
                tuned.many_rows = many;
                run_panel(&tuned, &t, 0, n, few[0]);
                CHECK(memcmp(few, got, (size_t)n * sizeof few[0]) == 0);
            }
        }
        for (int m = 0; m < ROWS; m++) {
            run_panel(k, &t, m, 1, alone);
            for (int r = 0; r < PANEL_ROWS; r++) {
                double exact = 0, size = 0;
                for (int j = 0; j < IN; j++) {
                    exact += (double)t.weights[r][j] * t.x[m][j];
                    /* code and bias of a zero weight cancel up to rounding, and a group of zeros may have any scale */
                    size += (fabs((double)t.weights[r][j]) + 0.1) * fabs((double)t.x[m][j]);
                }
                CHECK_NEAR(got[m][r], want[m][r], 1e-6 * size + 1e-30);   /* the same integers */
                CHECK_NEAR(got[m][r], exact, 0.001 * size + 1e-30);       /* activations of 12 bits */
                CHECK(memcmp(&got[m][r], &alone[r], sizeof(float)) == 0); /* whatever stands beside it */
            }
        }
        mem_free(t.panel);
    }
}

static void panels_agree(void) {
    each_level(check_panels);
}

static void check_poison(const struct kernels *k) {
    float x[320], scale[2], sum[5], bad[] = {NAN, INFINITY, -INFINITY};
    int8_t q[ACTS_TERMS * 320];
    for (size_t b = 0; b < 3 && k->quant_row; b++) {
        for (int i = 0; i < 320; i++) x[i] = 1.0f;
        x[37 + 64 * (b + 1)] = bad[b];
        k->quant_row(x, &(struct quant_acts){.q = q, .scale = scale, .sum = sum, .in = 320, .n_groups = 5, .group = 64, .tile = 1}, 0);
        CHECK(isnan(scale[0]) && sum[0] == 0);
        CHECK(scale[1] == 1.0f / ACTS_MAX && sum[4] == 64 * ACTS_MAX); /* the span beside it, a short one, is whole */
    }
}

static void poison_is_not_hidden(void) {
    each_level(check_poison);
}

static void check_floats(const struct kernels *k) {
    enum { N = 203 };
    float a[N], b[4][N], y[N], z[N];
    uint16_t h[N];
    for (int i = 0; i < N; i++) a[i] = random_at((uint64_t)i), y[i] = z[i] = random_at((uint64_t)i + 99);
    for (int m = 0; m < 4; m++)
        for (int i = 0; i < N; i++) b[m][i] = random_at((uint64_t)(500 + m * N + i));
    for (int n = 0; n <= N; n += n < 40 ? 1 : 27) {
        double exact = 0;
        for (int i = 0; i < n; i++) exact += (double)a[i] * b[0][i];
        CHECK_NEAR(k->dot(a, b[0], n), exact, 1e-5);
    }
    k->axpy(y, a, 0.5f, N);
    for (int i = 0; i < N; i++) CHECK_NEAR(y[i], z[i] + 0.5f * a[i], 1e-6);
    for (int t = 0; t < 3 && k->plain; t++) {
        enum dtype dtype = t == 0 ? DT_F32 : t == 1 ? DT_F16 : DT_BF16;
        float w[N], four[4], one;
        plain_from_f32(dtype == DT_F32 ? DT_BF16 : dtype, a, N, h);
        if (dtype == DT_F32) memcpy(w, a, sizeof w);
        else plain_to_f32(dtype, h, N, w);
        struct plain_args p = {.w = dtype == DT_F32 ? (const void *)w : h,
                               .dtype = dtype,
                               .x = b[0],
                               .x_stride = N,
                               .n = N,
                               .n_rows = 4,
                               .y = four,
                               .y_stride = 1};
        k->plain(&p);
        for (int m = 0; m < 4; m++) {
            double exact = 0;
            for (int i = 0; i < N; i++) exact += (double)w[i] * b[m][i];
            CHECK_NEAR(four[m], exact, 1e-5);
            p.x = b[m], p.n_rows = 1, p.y = &one;
            k->plain(&p);
            CHECK(memcmp(&one, &four[m], sizeof one) == 0);
        }
    }
}

static void float_kernels_agree(void) {
    each_level(check_floats);
}

/* Packing loses nothing: a row of a panel unpacks to what the checkpoint's row does. */
static void panels_unpack(void) {
    static struct fixture t;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        make_fixture(&t, &formats[i], (uint64_t)i);
        for (int r = 0; r < PANEL_ROWS; r++) {
            float row[IN];
            pack_unpack_row(&t.shape, t.panel, r, row);
            for (int j = 0; j < IN; j++) CHECK_NEAR(row[j], t.weights[r][j], 1e-6 * fabs((double)t.weights[r][j]) + 1e-9);
        }
        mem_free(t.panel);
    }
}

/* Times that the test makes up: vectors take one unit, tiles what is written down for each step; below zero: no time. */
static bool made_up_time(void *ctx, const struct kernels *k, int64_t n_rows, double *out_few, double *out_many) {
    const double *many = ctx;
    (void)k;
    *out_few = 1.0;
    *out_many = many[n_rows == 4 ? 0 : n_rows == 6 ? 1 : n_rows == 8 ? 2 : 3];
    return *out_many >= 0;
}

static void no_panel(const struct panel_args *a) {
    (void)a;
}

static void self_benchmark_chooses(void) {
    struct {
        double many[TUNE_STEPS];
        int64_t want;
        bool measured;
        const char *text;
    } cases[] = {
        {{0.5, 0.5, 0.5, 0.5}, 4, true, "tiles from 4 rows on; tiles (vectors): 4 rows"},
        {{1.0, 1.0, 1.04, 1.0}, 4, true, "tiles from 4 rows on;"}, /* what is hardly slower is not slower */
        {{1.1, 0.9, 0.9, 0.8}, 6, true, "tiles from 6 rows on;"},
        {{1.1, 1.1, 0.9, 0.8}, 8, true, "tiles from 8 rows on;"},
        {{0.9, 0.9, 1.1, 0.8}, 16, true, "tiles from 16 rows on;"},
        {{0.1, 0.1, 0.1, 1.5}, 32, true, "tiles from 32 rows on;"},
        {{2.0, 2.0, 2.0, -1.0}, 4, false, "tiles from 4 rows on, not measured"}, /* what the flags said */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct kernels k = {.panel = no_panel, .panel_few = no_panel, .many_rows = 4};
        struct tune t;
        struct sb line = {0};
        tune_choose(&k, made_up_time, cases[i].many, &t);
        CHECK_INT(k.many_rows, cases[i].want);
        CHECK(t.measured == cases[i].measured);
        tune_describe(&k, &t, &line);
        CHECK(strstr(line.p, cases[i].text));
        sb_free(&line);
    }
}

/* A level that was named, and a level with one kernel only, are not measured. */
static void self_benchmark_keeps_a_named_level(void) {
    struct kernels k, before;
    struct tune t;
    struct sb line = {0};
    cpu_flags_mask(UINT32_MAX - 1);
    kern_select(&k, cpu_flags());
    before = k;
    tune_kernels(&k, &t);
    cpu_flags_mask(UINT32_MAX);
    CHECK(!t.measured && k.many_rows == before.many_rows);
    kern_select(&k, 0);
    tune_kernels(&k, &t);
    CHECK(!t.measured && k.many_rows == 0);
    tune_describe(&k, &t, &line);
    CHECK(strstr(line.p, "one kernel"));
    sb_free(&line);
    kern_select(&k, cpu_flags());
    tune_kernels(&k, &t);
    CHECK(k.panel_few || !t.measured); /* by the clock: any of its answers will do */
}

const struct unit_suite unit_kern = {"kern", (const struct unit_case[]){
                                                 {"panels_agree", panels_agree},
                                                 {"poison_is_not_hidden", poison_is_not_hidden},
                                                 {"float_kernels_agree", float_kernels_agree},
                                                 {"panels_unpack", panels_unpack},
                                                 {"self_benchmark_chooses", self_benchmark_chooses},
                                                 {"self_benchmark_keeps_a_named_level", self_benchmark_keeps_a_named_level},
                                                 {0},
                                             }};
