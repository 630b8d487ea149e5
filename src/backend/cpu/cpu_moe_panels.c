/* Experts in panels: the pairs of an expert are the rows of its matrix products.
 *
 * Rows are quantised expert by expert, so that each expert has tiles of its own; a pair's numbers do not depend on which
 * other pairs its expert has. Products lie in the order of the sorted pairs; at the end each row folds its own ones in
 * ascending order of the experts.
 */
#include "backend/cpu/cpu_moe.h"

enum { CHUNK_PANELS = 8 };

static bool has_panels(const struct weight *w) {
    return !w || (cpu_packed(w)->panels && !pack_is_filled_up(&cpu_packed(w)->pack));
}

bool cpu_experts_packed(const struct experts_args *a) {
    return has_panels(a->gate_up) && has_panels(a->gate) && has_panels(a->up) && has_panels(a->down);
}

/* Products of the last matrix, and for each pair its place in the list. */
int64_t cpu_experts_panel_floats(const struct op *op) {
    int64_t pairs = (int64_t)op->in[1].rows * op->in[1].width;
    return cpu_experts_packed(&op->arg.experts) ? pairs * (op->arg.experts.down->out + 1) + PANEL_ROWS : 0;
}

/* Bytes before the activations of the i-th used expert, which has n_pairs before it. An expert's rows are padded to at most twice their
 * number, and its four parts to lines. */
static size_t acts_offset(const struct pack_shape *s, int64_t n_pairs, int64_t i) {
    if (pack_is_plain(s)) return 2 * (size_t)(n_pairs * s->in) * ACTS_PLAIN_BYTES + 2 * 64 * (size_t)i;
    size_t per_row = (size_t)s->in * ACTS_TERMS + (size_t)(s->in / s->group + acts_spans(s->in)) * sizeof(float);
    return 2 * (size_t)n_pairs * per_row + 4 * 64 * (size_t)i;
}

size_t cpu_experts_acts_bytes(const struct op *op) {
    const struct experts_args *a = &op->arg.experts;
    if (!cpu_experts_packed(a)) return 0;
    int64_t pairs = (int64_t)op->in[1].rows * op->in[1].width, used = pairs < a->down->n_experts ? pairs : a->down->n_experts;
    const struct weight *all[] = {a->gate_up, a->gate, a->up, a->down};
    size_t most = 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        size_t bytes = all[i] ? acts_offset(&cpu_packed(all[i])->pack, pairs, used) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* One pass: a matrix of every used expert times its rows. */
struct pass {
    const struct experts_job *job;
    const struct weight *w;
    const float *x; /* rows of the pairs in the order of the list; NULL: the op's own rows */
    int64_t x_stride;
    float *y;
    int64_t y_stride, n_chunks;
};

/* Where the activations of the i-th used expert lie: behind those of the experts before it. */
static struct quant_acts acts_of(const struct pass *p, int32_t i) {
    const struct pack_shape *s = &cpu_packed(p->w)->pack;
    const struct experts_job *job = p->job;
    int32_t e = job->used[i];
    struct quant_acts out;
    unsigned char *memory = job->c->acts + acts_offset(s, job->starts[e], i);
    memory += (64 - ((uintptr_t)memory & 63)) & 63;
    cpu_place_acts(s, job->starts[e + 1] - job->starts[e], memory, &out);
    return out;
}

static void quantise_experts(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct pass *p = ctx;
    const struct experts_job *job = p->job;
    for (int64_t i = first; i < last; i++) {
        int32_t e = job->used[i], start = job->starts[e], n = job->starts[e + 1] - start;
        struct quant_acts acts = acts_of(p, (int32_t)i);
        for (int32_t m = 0; m < n; m++) {
            const float *x = p->x ? p->x + (start + m) * p->x_stride : cpu_row(job->c, job->op->in[0], job->pairs[start + m] / job->k);
            kern_acts_row(&job->c->kern, x, &acts, m);
        }
    }
}

static void expert_panels(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct pass *p = ctx;
    const struct experts_job *job = p->job;
    const struct cpu_weight *w = cpu_packed(p->w);
    int64_t n_panels = p->w->out / PANEL_ROWS;
    for (int64_t i = first; i < last; i++) {
        int32_t e = job->used[i / p->n_chunks];
        int64_t panel = i % p->n_chunks * CHUNK_PANELS;
        kern_panel(&job->c->kern, &(struct panel_args){.shape = &w->pack,
                                                       .panels = w->panels + (size_t)(e * n_panels + panel) * w->pack.panel_bytes,
                                                       .n_panels = n_panels - panel < CHUNK_PANELS ? n_panels - panel : CHUNK_PANELS,
                                                       .x = acts_of(p, (int32_t)(i / p->n_chunks)),
                                                       .n_rows = job->starts[e + 1] - job->starts[e],
                                                       .y = p->y + job->starts[e] * p->y_stride + panel * PANEL_ROWS,
                                                       .y_stride = p->y_stride});
    }
}

/* `known`: the activations are those of the pass before. */
static void run_pass(struct pass *p, bool known) {
    struct pool *pool = p->job->c->pool;
    p->n_chunks = (p->w->out / PANEL_ROWS + CHUNK_PANELS - 1) / CHUNK_PANELS;
    if (!known) pool_run(pool, p->job->n_used, 1, quantise_experts, p);
    pool_run(pool, p->job->n_used * p->n_chunks, 1, expert_panels, p);
}

static void add_bias(const struct experts_job *job, const struct weight *bias, int64_t pair, float *y, int64_t n) {
    int32_t e = cpu_pair_expert(job, pair);
    for (int64_t i = 0; i < n && bias; i++) y[i] += cpu_vec(bias)[e * n + i];
}

static void activate(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct experts_job *job = ctx;
    const struct experts_args *a = &job->op->arg.experts;
    for (int64_t i = first; i < last; i++) {
        int64_t pair = job->pairs[i];
        float *h = job->inner + i * 2 * a->inner, weight = a->scale_input ? cpu_pair_weight(job, pair) : 1.0f;
        int64_t n = a->gate_up || a->gate ? 2 * a->inner : a->inner;
        for (int64_t k = 0; k < n && a->scale_input; k++) h[k] *= weight;
        add_bias(job, a->gate_up_bias, pair, h, 2 * a->inner);
        add_bias(job, a->gate_bias, pair, h, a->inner);
        add_bias(job, a->up_bias, pair, a->gate ? h + a->inner : h, a->inner);
        cpu_activate_expert(job, h);
    }
}

/* Folds a row's pairs, which lie in the list in the order of their experts. */
static void fold_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct experts_job *job = ctx;
    const struct experts_args *a = &job->op->arg.experts;
    int64_t n = a->down->out;
    const int32_t *places = (const int32_t *)(job->more + (int64_t)job->op->in[1].rows * job->k * n);
    for (int64_t r = first; r < last; r++) {
        float *y = cpu_row(job->c, job->op->out[0], r);
        memset(y, 0, (size_t)n * sizeof *y);
        for (int32_t j = 0, at = -1; j < job->k; j++) {
            int32_t next = INT32_MAX;
            for (int32_t i = 0; i < job->k; i++) {
                int32_t place = places[r * job->k + i];
                if (place > at && place < next) next = place;
            }
            if (next == INT32_MAX) break; /* the others are of other ranks */
            at = next;
            int64_t pair = job->pairs[at];
            float *x = job->more + at * n;
            add_bias(job, a->down_bias, pair, x, n);
            job->c->kern.axpy(y, x, a->scale_input ? 1.0f : cpu_pair_weight(job, pair), n);
        }
    }
}

static bool same_acts(const struct pack_shape *a, const struct pack_shape *b) {
    return a->group == b->group && pack_is_plain(a) == pack_is_plain(b) && a->dtype == b->dtype && a->nested == b->nested;
}

void cpu_experts_panels(const struct experts_job *job) {
    const struct experts_args *a = &job->op->arg.experts;
    struct pool *pool = job->c->pool;
    int64_t n_pairs = (int64_t)job->op->in[1].rows * job->k;
    int32_t *places = (int32_t *)(job->more + n_pairs * a->down->out);
    for (int32_t i = 0; i < n_pairs; i++) places[i] = -1;
    for (int32_t i = 0; i < job->n_here; i++) places[job->pairs[i]] = i;
    struct pass p = {.job = job, .w = a->gate_up, .y = job->inner, .y_stride = 2 * a->inner};
    if (a->gate_up) {
        run_pass(&p, false);
    } else {
        p.w = a->up;
        p.y = job->inner + (a->gate ? a->inner : 0);
        run_pass(&p, false);
        p.w = a->gate;
        p.y = job->inner;
        if (a->gate) run_pass(&p, same_acts(&cpu_packed(a->gate)->pack, &cpu_packed(a->up)->pack));
    }
    pool_run(pool, job->n_here, 0, activate, (void *)(uintptr_t)job);
    run_pass(&(struct pass){.job = job, .w = a->down, .x = job->inner, .x_stride = 2 * a->inner, .y = job->more, .y_stride = a->down->out},
             false);
    pool_run(pool, job->op->in[1].rows, 0, fold_rows, (void *)(uintptr_t)job);
}
