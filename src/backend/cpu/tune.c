/* The self-benchmark: two kernels over a few panels that stay in the cache; the shortest call of each counts. */
#include "backend/cpu/tune.h"

#include "base/arena.h"
#include "os/cpu.h"
#include "os/os.h"

static const int64_t row_steps[TUNE_STEPS] = {4, 6, 8, 16};

enum { IN = 1024, N_PANELS = 4, GROUPS = IN / PACK_GROUP_MAX, MOST = 16, BEYOND = 32, CALLS = 12, LIMIT_NS = 5000000 };
/* What counts as slower: less is noise. */
#define SLOWER 1.05

void tune_choose(struct kernels *k, tune_time_fn *time, void *ctx, struct tune *out) {
    int64_t many_rows = BEYOND;
    *out = (struct tune){0};
    for (int i = 0; i < TUNE_STEPS; i++) {
        out->steps[i].n_rows = row_steps[i];
        if (!time(ctx, k, row_steps[i], &out->steps[i].few, &out->steps[i].many)) return;
    }
    for (int i = TUNE_STEPS; i-- > 0 && out->steps[i].many <= out->steps[i].few * SLOWER;) many_rows = row_steps[i];
    k->many_rows = many_rows;
    out->measured = true;
}

/* Zeros all over: how long a product takes does not depend on the numbers. */
struct bench {
    struct pack_shape shape;
    unsigned char *panels;
    int8_t *q;
    float *numbers, *y;
    uint64_t end;
};

static void clock_call(void (*panel)(const struct panel_args *a), const struct panel_args *args, uint64_t *best) {
    uint64_t start = os_clock_ns();
    panel(args);
    uint64_t took = os_clock_ns() - start;
    if (took < *best) *best = took;
}

static bool clock_both(void *ctx, const struct kernels *k, int64_t n_rows, double *out_few, double *out_many) {
    const struct bench *b = ctx;
    struct panel_args args = {.shape = &b->shape, .panels = b->panels, .n_panels = N_PANELS, .n_rows = n_rows, .y = b->y};
    args.y_stride = N_PANELS * PANEL_ROWS;
    args.x = (struct quant_acts){.q = b->q, .scale = b->numbers, .sum = b->numbers + MOST * GROUPS, .in = IN, .n_groups = GROUPS};
    args.x.group = b->shape.group, args.x.tile = acts_tile(n_rows);
    acts_fit(&args.x, &b->shape);
    uint64_t few = UINT64_MAX, many = UINT64_MAX;
    for (int i = 0; i < CALLS; i++) clock_call(k->panel_few, &args, &few);
    for (int i = 0; i < CALLS; i++) clock_call(k->panel, &args, &many); /* in turn, tiles would begin anew each time */
    *out_few = (double)few * 1e-9;
    *out_many = (double)many * 1e-9;
    return os_clock_ns() <= b->end;
}

void tune_kernels(struct kernels *k, struct tune *out) {
    *out = (struct tune){0};
    if (!k->panel_few || cpu_flags_masked()) return;
    struct bench b = {.end = os_clock_ns() + LIMIT_NS};
    if (!pack_shape_of(&(struct format){QUANT_AFFINE, DT_BF16, 4, PACK_GROUP_MAX}, IN, &b.shape)) return;
    size_t panels = b.shape.panel_bytes * N_PANELS, q = (size_t)MOST * ACTS_TERMS * IN, numbers = 2 * MOST * GROUPS * sizeof(float);
    size_t bytes = panels + q + numbers + MOST * N_PANELS * PANEL_ROWS * sizeof(float);
    struct err err;
    unsigned char *memory = os_pages_alloc(bytes, &err);
    if (!memory) return; /* what the flags say stays */
    b.panels = memory;
    b.q = (int8_t *)(memory + panels);
    b.numbers = (float *)(void *)(memory + panels + q);
    b.y = (float *)(void *)(memory + panels + q + numbers);
    tune_choose(k, clock_both, &b, out);
    os_pages_free(memory, bytes);
}

void tune_describe(const struct kernels *k, const struct tune *t, struct sb *out) {
    sb_puts(out, "few or many rows    ");
    if (!k->panel_few) {
        sb_puts(out, "one kernel for all\n");
        return;
    }
    sb_fmt(out, "tiles from %d rows on", (int)k->many_rows);
    if (!t->measured) sb_puts(out, ", not measured");
    for (int i = 0; i < TUNE_STEPS && t->measured; i++)
        sb_fmt(out, "%s %d rows %.1f us (%.1f)", i ? "," : "; tiles (vectors):", (int)t->steps[i].n_rows, t->steps[i].many * 1e6,
               t->steps[i].few * 1e6);
    sb_putc(out, '\n');
}
