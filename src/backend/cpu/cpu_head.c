/* A matrix for each head over panels of plain weights: every head's rows are laid out as activations of their own, then each head's
 * panels run over them. Other formats take cpu_linear.c's rows. */
#include "backend/cpu/cpu.h"

enum { CHUNK_PANELS = 8 };

struct head_job {
    struct cpu *c;
    const struct op *op;
    size_t acts_bytes; /* of a head */
    int64_t n_chunks;
};

bool cpu_head_panels(const struct op *op) {
    const struct cpu_weight *w = cpu_packed(op->arg.linear.weight);
    return w->panels && pack_is_plain(&w->pack) && !pack_is_filled_up(&w->pack);
}

static size_t head_bytes(const struct op *op) {
    struct quant_acts acts;
    return cpu_place_acts(&cpu_packed(op->arg.linear.weight)->pack, op->in[0].rows, NULL, &acts);
}

size_t cpu_head_acts_bytes(const struct op *op) {
    return cpu_head_panels(op) ? head_bytes(op) * (size_t)op->arg.linear.weight->n_experts : 0;
}

static struct quant_acts acts_of(const struct head_job *job, int64_t head) {
    struct quant_acts acts;
    cpu_place_acts(&cpu_packed(job->op->arg.linear.weight)->pack, job->op->in[0].rows, job->c->acts + (size_t)head * job->acts_bytes,
                   &acts);
    return acts;
}

static void lay_heads(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct head_job *job = ctx;
    struct tensor x = job->op->in[0];
    for (int64_t h = first; h < last; h++) {
        struct quant_acts acts = acts_of(job, h);
        for (int64_t r = 0; r < x.rows; r++) kern_acts_row(&job->c->kern, cpu_row(job->c, x, r) + h * x.head_stride, &acts, r);
    }
}

static void head_panels(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct head_job *job = ctx;
    const struct weight *weight = job->op->arg.linear.weight;
    const struct cpu_weight *w = cpu_packed(weight);
    struct tensor y = job->op->out[0];
    int64_t n_panels = weight->out / PANEL_ROWS;
    for (int64_t i = first; i < last; i++) {
        int64_t h = i / job->n_chunks, panel = i % job->n_chunks * CHUNK_PANELS;
        kern_panel(&job->c->kern, &(struct panel_args){.shape = &w->pack,
                                                       .panels = w->panels + (size_t)(h * n_panels + panel) * w->pack.panel_bytes,
                                                       .n_panels = n_panels - panel < CHUNK_PANELS ? n_panels - panel : CHUNK_PANELS,
                                                       .x = acts_of(job, h),
                                                       .n_rows = y.rows,
                                                       .y = cpu_data(job->c, y) + h * y.head_stride + panel * PANEL_ROWS,
                                                       .y_stride = y.row_stride});
    }
}

void cpu_run_head_panels(struct cpu *c, const struct op *op) {
    const struct weight *w = op->arg.linear.weight;
    struct head_job job = {.c = c, .op = op, .acts_bytes = head_bytes(op)};
    job.n_chunks = (w->out / PANEL_ROWS + CHUNK_PANELS - 1) / CHUNK_PANELS;
    pool_run(c->pool, w->n_experts, 1, lay_heads, &job);
    pool_run(c->pool, w->n_experts * job.n_chunks, 1, head_panels, &job);
}
