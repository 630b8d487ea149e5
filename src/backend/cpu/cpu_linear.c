/* Matrix products: output rows are split over the threads; a weight row (or a panel of sixteen) is read once and
 * multiplied with every row of the batch. Each output element is computed in a fixed order, whatever the batch. */
#include "backend/cpu/cpu.h"

struct linear_job {
    struct cpu *c;
    const struct op *op;
    const float *bias;
    struct quant_acts acts;
    float *rest; /* [rows][16] */
    /* Long prompts: an item is some panels x some rows. */
    int64_t n_panels, panel_step, row_step;
    int64_t n_parts; /* that each tile of activations is quantised in */
};

/* ---- packed panels ------------------------------------------------------------------------------------------------ */

static size_t align64(size_t n) {
    return (n + 63) / 64 * 64;
}

size_t cpu_place_acts(const struct pack_shape *s, int64_t n_rows, unsigned char *memory, struct quant_acts *out) {
    int32_t tile = acts_tile(n_rows);
    if (pack_is_plain(s)) {
        *out = (struct quant_acts){.q = (int8_t *)memory, .in = s->in, .group = s->group, .tile = tile, .plain = true, .dtype = s->dtype};
        return align64((size_t)((n_rows + tile - 1) / tile * tile * s->in) * ACTS_PLAIN_BYTES);
    }
    size_t rows = (size_t)((n_rows + tile - 1) / tile * tile), groups = (size_t)(s->in / s->group);
    size_t codes = align64(rows * (size_t)s->in * ACTS_TERMS), sums = align64(rows * groups * sizeof(float));
    size_t scales = align64(rows * (size_t)acts_spans(s->in) * sizeof(float));
    *out = (struct quant_acts){.q = (int8_t *)memory, .in = s->in, .n_groups = (int64_t)groups, .group = s->group, .tile = tile};
    acts_fit(out, s);
    if (memory) {
        out->sum = (float *)(void *)(memory + codes);
        out->scale = (float *)(void *)(memory + codes + sums);
    }
    return codes + sums + scales;
}

/* Behind the activations: outputs of a part-filled last panel. */
size_t cpu_linear_acts_bytes(const struct op *op) {
    const struct cpu_weight *w = cpu_packed(op->arg.linear.weight);
    struct quant_acts acts;
    if (!w->panels) return 0;
    return cpu_place_acts(&w->pack, op->in[0].rows, NULL, &acts) + (size_t)op->in[0].rows * PANEL_ROWS * sizeof(float);
}

/* Rows that are shorter than their panels get zeros behind them first. */
static void quantise_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct linear_job *job = ctx;
    size_t width = (size_t)job->op->arg.linear.weight->in, rest = (size_t)job->acts.in - width;
    float *filled = cpu_thread(job->c, thread);
    for (int64_t r = first; r < last; r++) {
        const float *x = cpu_row(job->c, job->op->in[0], r);
        if (rest) memcpy(filled, x, width * sizeof *x), memset(filled + width, 0, rest * sizeof *x);
        kern_acts_row(&job->c->kern, rest ? filled : x, &job->acts, r);
    }
}

/* Items are parts of tiles, some spans of all their rows: what lies in one line of memory is written by one thread. */
static void quantise_parts(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct linear_job *job = ctx;
    const struct quant_acts *acts = &job->acts;
    int64_t rows = job->op->in[0].rows, n_spans = acts_spans(acts->in);
    for (int64_t i = first; i < last; i++) {
        int64_t row = i / job->n_parts * acts->tile, part = i % job->n_parts;
        int64_t from = n_spans * part / job->n_parts, to = n_spans * (part + 1) / job->n_parts;
        struct quant_acts x = acts_part(acts, row, from, to);
        for (int64_t m = 0; m < acts->tile && row + m < rows; m++)
            kern_acts_row(&job->c->kern, cpu_row(job->c, job->op->in[0], row + m) + from * ACTS_SPAN, &x, m);
    }
}

static void quantise(struct linear_job *job, int64_t n_rows) {
    struct pool *pool = job->c->pool;
    if (n_rows <= 4) { /* less work than a barrier */
        quantise_rows(job, 0, n_rows, 0);
        return;
    }
    if (job->acts.plain) {
        pool_run(pool, n_rows, 0, quantise_rows, job);
        return;
    }
    int64_t n_tiles = (n_rows + job->acts.tile - 1) / job->acts.tile, n_spans = acts_spans(job->acts.in);
    int64_t wanted = 4 * pool_threads(pool) / n_tiles;
    job->n_parts = wanted < 1 ? 1 : wanted < n_spans ? wanted : n_spans;
    pool_run(pool, n_tiles * job->n_parts, 1, quantise_parts, job);
}

void cpu_linear_expect(struct cpu *c, const struct op *op, const struct op *next) {
    enum { FEW_ROWS = 8 };
    bool makes = op->kind == OP_NORM || op->kind == OP_ADD_NORM || op->kind == OP_GLU;
    if (!makes || next->kind != OP_LINEAR || next->in[0].rows > FEW_ROWS) return;
    struct tensor y = op->out[op->n_out - 1], x = next->in[0];
    if (y.id != x.id || y.offset != x.offset || y.rows != x.rows || y.width != x.width || y.heads != 1 || x.heads != 1) return;
    const struct cpu_weight *w = cpu_packed(next->arg.linear.weight);
    if (!w->panels || pack_is_plain(&w->pack) || w->pack.in != x.width) return;
    cpu_place_acts(&w->pack, x.rows, c->acts, &c->expected_acts);
    c->expected = next;
}

void cpu_made_row(struct cpu *c, const struct op *op, int64_t r) {
    if (c->expected) kern_acts_row(&c->kern, cpu_row(c, op->out[op->n_out - 1], r), &c->expected_acts, r);
}

void cpu_made_part(struct cpu *c, const struct op *op, int64_t r, int64_t from, int64_t n) {
    if (!c->expected) return;
    struct quant_acts part = acts_part(&c->expected_acts, 0, from / ACTS_SPAN, acts_spans(from + n));
    kern_acts_row(&c->kern, cpu_row(c, op->out[op->n_out - 1], r) + from, &part, r);
}

/* Outputs [first, first + n) of n_rows rows from `row` on. */
static void add_bias(const struct linear_job *job, int64_t row, int64_t n_rows, int64_t first, int64_t n) {
    struct tensor y = job->op->out[0];
    for (int64_t r = row; r < row + n_rows && job->bias; r++) {
        float *out = cpu_row(job->c, y, r) + first;
        for (int64_t i = 0; i < n; i++) out[i] += job->bias[first + i];
    }
}

/* The last panel of a matrix may be part-filled: its outputs take a detour. */
static void partial_panel(const struct linear_job *job, const struct panel_args *whole, int64_t row, int64_t n) {
    struct tensor y = job->op->out[0];
    struct panel_args a = *whole;
    float *rest = job->rest + row * PANEL_ROWS;
    float *to = whole->y + whole->n_panels * PANEL_ROWS;
    a.panels += (size_t)a.n_panels * a.shape->panel_bytes;
    a.n_panels = 1;
    a.y = rest;
    a.y_stride = PANEL_ROWS;
    kern_panel(&job->c->kern, &a);
    for (int64_t r = 0; r < a.n_rows; r++) memcpy(to + r * y.row_stride, rest + r * PANEL_ROWS, (size_t)n * sizeof *to);
}

/* Rows of a tile are together: `row` is the first of one. */
static struct quant_acts acts_from(const struct quant_acts *all, int64_t row) {
    struct quant_acts x = *all;
    if (x.half) {
        x.q += row * (int64_t)sizeof(uint16_t) * x.in;
        x.scale += row;
        return x;
    }
    if (x.plain) {
        x.q += row * ACTS_PLAIN_BYTES * x.in;
        return x;
    }
    x.q += row * acts_terms(&x) * x.in;
    x.scale += row * acts_spans(x.in);
    x.sum += row * x.n_groups;
    return x;
}

/* Panels [first, last) for n_rows rows from `row` on. */
static void panels_of_rows(const struct linear_job *job, int64_t first, int64_t last, int64_t from, int64_t n_rows) {
    const struct weight *weight = job->op->arg.linear.weight;
    const struct cpu_weight *w = cpu_packed(weight);
    struct tensor y = job->op->out[0];
    int64_t row = first * PANEL_ROWS, end = last * PANEL_ROWS < weight->out ? last * PANEL_ROWS : weight->out;
    struct panel_args a = {.shape = &w->pack,
                           .panels = w->panels + (size_t)first * w->pack.panel_bytes,
                           .n_panels = (end - row) / PANEL_ROWS,
                           .x = acts_from(&job->acts, from),
                           .n_rows = n_rows,
                           .y = cpu_row(job->c, y, from) + row,
                           .y_stride = y.row_stride};
    if (a.n_panels) kern_panel(&job->c->kern, &a);
    if ((end - row) % PANEL_ROWS) partial_panel(job, &a, from, (end - row) % PANEL_ROWS);
    add_bias(job, from, n_rows, row, end - row);
}

static void panels(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct linear_job *job = ctx;
    panels_of_rows(job, first, last, 0, job->op->out[0].rows);
}

static void panel_blocks(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct linear_job *job = ctx;
    int64_t rows = job->op->out[0].rows, n_blocks = (rows + job->row_step - 1) / job->row_step;
    for (int64_t i = first; i < last; i++) {
        int64_t panel = i / n_blocks * job->panel_step, row = i % n_blocks * job->row_step;
        panels_of_rows(job, panel, panel + job->panel_step < job->n_panels ? panel + job->panel_step : job->n_panels, row,
                       rows - row < job->row_step ? rows - row : job->row_step);
    }
}

/* Blocks of a long prompt: large ones share what they read, small ones let threads finish together. At least four for each thread.
 * Activations for panels of 16-bit weights are twice as large as those, and products by tiles so fast that reading is what counts: there,
 * eight rows for each panel read the least. */
static int64_t choose_blocks(struct linear_job *job, int64_t n_rows, int64_t n_threads) {
    enum { FEWEST_ROWS = 64, FEWEST_PANELS = 4 };
    job->panel_step = job->acts.plain ? 32 : 8;
    job->row_step = 256;
    for (;;) {
        int64_t n = ((job->n_panels + job->panel_step - 1) / job->panel_step) * ((n_rows + job->row_step - 1) / job->row_step);
        if (n >= 4 * n_threads) return n;
        bool wide = !job->acts.plain || 8 * job->panel_step >= job->row_step || job->row_step <= FEWEST_ROWS;
        if (job->panel_step > FEWEST_PANELS && wide) job->panel_step /= 2;
        else if (job->row_step > FEWEST_ROWS) job->row_step /= 2;
        else return n;
    }
}

/* Panels that a thread takes at a time: kernels read eight of them side by side, and a thread should have two turns. */
static int64_t panel_chunk(int64_t n_panels, int64_t n_threads) {
    int64_t chunk = n_panels / (8 * n_threads);
    if (chunk < 8) chunk = n_panels / (2 * n_threads) < 8 ? n_panels / (2 * n_threads) : 8;
    return chunk > 1 ? chunk : 1;
}

enum { LONG_ROWS = 96 };

static bool has_sharp(const struct oplist *l) {
    for (int32_t i = 0; i < l->n_ops; i++)
        if (l->ops[i].kind == OP_ATTN_ROWS && op_is_sharp(&l->ops[i])) return true;
    return false;
}

/* Towers see thousands of rows at once: where nobody asks for more, and no softmax magnifies it, their products are in half precision. */
static bool is_half(const struct linear_job *job, int64_t n_rows) {
    const struct cpu *c = job->c;
    bool is_rough = c->base.precision != PRECISION_EXACT && c->base.precision != PRECISION_F32, is_tower = c->layout.n_classes == 0;
    return is_tower && is_rough && c->kern.half_panel && n_rows >= LONG_ROWS && job->acts.plain && job->acts.dtype != DT_F32 &&
           !has_sharp(&c->base.list);
}

/* Half as large as f32, with the scales behind them. */
static void place_half(struct quant_acts *x, int64_t n_rows) {
    int64_t rows = (n_rows + x->tile - 1) / x->tile * x->tile;
    x->half = true;
    x->scale = (float *)(void *)(x->q + rows * x->in * (int64_t)sizeof(uint16_t));
}

static void run_panels(struct linear_job *job) {
    struct cpu *c = job->c;
    const struct weight *weight = job->op->arg.linear.weight;
    int64_t n_rows = job->op->in[0].rows, n_panels = (weight->out + PANEL_ROWS - 1) / PANEL_ROWS;
    size_t bytes = cpu_place_acts(&cpu_packed(weight)->pack, n_rows, c->acts, &job->acts);
    job->rest = (float *)(void *)(c->acts + bytes);
    if (is_half(job, n_rows)) place_half(&job->acts, n_rows);
    if (c->expected == job->op) c->expected = NULL;
    else quantise(job, n_rows);
    job->n_panels = n_panels;
    if (n_rows >= LONG_ROWS) pool_run(c->pool, choose_blocks(job, n_rows, pool_threads(c->pool)), 1, panel_blocks, job);
    else pool_run(c->pool, n_panels, panel_chunk(n_panels, pool_threads(c->pool)), panels, job);
}

struct pool_ahead cpu_linear_ahead(const struct cpu *c, const struct op *op) {
    const struct weight *weight = op->arg.linear.weight;
    const struct cpu_weight *w = cpu_packed(weight);
    if (!w->panels || op->in[0].rows >= LONG_ROWS) return (struct pool_ahead){0};
    int64_t n_panels = (weight->out + PANEL_ROWS - 1) / PANEL_ROWS;
    return (struct pool_ahead){.from = w->panels,
                               .step = (size_t)panel_chunk(n_panels, pool_threads(c->pool)) * w->pack.panel_bytes,
                               .size = (size_t)n_panels * w->pack.panel_bytes};
}

/* ---- rows as they are --------------------------------------------------------------------------------------------- */

void cpu_unpack_row(const struct cpu *c, const struct weight *w, int64_t row, float *out) {
    const struct cpu_weight *p = cpu_packed(w);
    if (p->panels) {
        pack_unpack_row(&p->pack, p->panels + (size_t)(row / PANEL_ROWS) * p->pack.panel_bytes, (int32_t)(row % PANEL_ROWS), out);
    } else {
        struct quant_row q = cpu_weight_row(w, row);
        c->kern.unpack(&w->format, &q, 0, w->in, out);
    }
}

/* One output of every row of the batch; the weight's row is used in place where it can be, else unpacked. */
static void weight_row(struct cpu *c, const struct weight *w, int64_t row, struct plain_args *a, int32_t thread) {
    a->n = w->in;
    if (c->kern.plain && w->format.mode == QUANT_NONE && !cpu_packed(w)->panels) {
        a->w = cpu_weight_row(w, row).values;
        a->dtype = w->format.dtype;
    } else {
        cpu_unpack_row(c, w, row, cpu_thread(c, thread));
        a->w = cpu_thread(c, thread);
        a->dtype = DT_F32;
    }
    if (c->kern.plain) {
        c->kern.plain(a);
        return;
    }
    for (int64_t r = 0; r < a->n_rows; r++) a->y[r * a->y_stride] = c->kern.dot(a->w, a->x + r * a->x_stride, a->n);
}

static void plain_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct linear_job *job = ctx;
    struct tensor x = job->op->in[0], y = job->op->out[0];
    struct plain_args a = {.x = cpu_data(job->c, x), .x_stride = x.row_stride, .n_rows = x.rows, .y_stride = y.row_stride};
    for (int64_t n = first; n < last; n++) {
        a.y = cpu_data(job->c, y) + n;
        weight_row(job->c, job->op->arg.linear.weight, n, &a, thread);
    }
    add_bias(job, 0, y.rows, first, last - first);
}

void cpu_run_linear(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct linear_job job = {.c = c, .op = op, .bias = cpu_vec(op->arg.linear.bias)};
    if (cpu_packed(op->arg.linear.weight)->panels) run_panels(&job);
    else pool_run(c->pool, op->arg.linear.weight->out, 0, plain_rows, &job);
}

static void head_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct linear_job *job = ctx;
    const struct weight *w = job->op->arg.linear.weight;
    struct tensor x = job->op->in[0], y = job->op->out[0];
    struct plain_args a = {.x_stride = x.row_stride, .n_rows = x.rows, .y_stride = y.row_stride};
    for (int64_t n = first; n < last; n++) {
        a.x = cpu_data(job->c, x) + n / w->out * x.head_stride;
        a.y = cpu_data(job->c, y) + n / w->out * y.head_stride + n % w->out;
        weight_row(job->c, w, n, &a, thread);
    }
}

void cpu_run_head_linear(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct linear_job job = {.c = c, .op = op};
    if (cpu_head_panels(op)) {
        cpu_run_head_panels(c, op);
        return;
    }
    pool_run(c->pool, op->arg.linear.weight->out * op->arg.linear.weight->n_experts, 0, head_rows, &job);
}

struct embed_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
};

static void embed_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct embed_job *job = ctx;
    const struct embed_args *a = &job->op->arg.embed;
    const struct weight *w = a->weight;
    const struct cpu_weight *p = cpu_packed(w);
    for (int64_t r = first; r < last; r++) {
        int64_t id = job->step->ids[r], index = a->by_position ? job->step->pos[r] + a->position_offset : id;
        if (a->vocab) index = a->by_type ? id / a->vocab : id % a->vocab;
        if (index >= (a->of ? a->of : w->out)) index = 0;
        index -= a->first;
        float *y = cpu_row(job->c, job->op->out[0], r);
        if (index < 0 || index >= w->out) { /* another rank has it */
            memset(y, 0, (size_t)w->in * sizeof *y);
            continue;
        }
        if (p->panels) {
            pack_unpack_row(&p->pack, p->panels + (size_t)(index / PANEL_ROWS) * p->pack.panel_bytes, (int32_t)(index % PANEL_ROWS), y);
        } else {
            struct quant_row q = cpu_weight_row(w, index);
            job->c->kern.unpack(&w->format, &q, 0, w->in, y);
        }
        if (a->scale != 1.0f)
            for (int64_t i = 0; i < w->in; i++) y[i] *= a->scale;
    }
}

void cpu_run_embed(struct cpu *c, const struct op *op, const struct step *step) {
    struct embed_job job = {c, op, step};
    if (op->out[0].rows <= 4) embed_rows(&job, 0, op->out[0].rows, 0); /* less work than a barrier */
    else pool_run(c->pool, op->out[0].rows, 0, embed_rows, &job);
}
