/* Adapters: what low-rank matrices add to products, row by row. Rows of one step may have different ones, several, or none.
 *
 * Two passes: every row through the small matrices down to their ranks, then up again onto the product. A number depends on its own row alone. */
#include "backend/cpu/cpu.h"

enum { UP_CHUNK = 256 };

struct adapt_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
    float *hidden; /* [rows][n_hidden] */
    int64_t n_chunks;
};

int64_t cpu_adapt_floats(const struct op *op) {
    return (int64_t)op->out[0].rows * op->arg.adapt.site->n_hidden;
}

static int32_t step_row(const struct adapt_job *job, int64_t row) {
    return job->op->arg.adapt.of_wanted ? job->step->wanted_rows[row] : (int32_t)row;
}

/* The row's scale of the part's adapter. */
static float scale_of(const struct adapt_job *job, const struct adapt_part *p, int64_t row) {
    int32_t seq = job->step->seq_of[step_row(job, row)];
    return job->step->adapters[(int64_t)seq * job->step->n_adapters + p->adapter];
}

/* Items are rows. */
static void go_down(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct adapt_job *job = ctx;
    const struct adapt_args *a = &job->op->arg.adapt;
    (void)thread;
    for (int64_t r = first; r < last; r++) {
        float *h = job->hidden + r * a->site->n_hidden;
        for (int32_t i = 0; i < a->site->n_parts; h += a->site->parts[i++].rank) {
            const struct adapt_part *p = &a->site->parts[i];
            const float *down = cpu_vec(p->down);
            if (scale_of(job, p, r) == 0) continue;
            if (a->site->by_token) {
                int64_t id = job->step->ids[r] < p->in ? job->step->ids[r] : 0;
                for (int32_t k = 0; k < p->rank; k++) h[k] = down[id * p->rank + k] * a->scale;
                continue;
            }
            const float *x = cpu_row(job->c, job->op->in[0], r);
            for (int32_t k = 0; k < p->rank; k++) h[k] = job->c->kern.dot(down + k * p->in, x, p->in);
        }
    }
}

/* A row of `up` has a few numbers: less than a call of a kernel costs. Four sums, so that a compiler takes four numbers at a time. */
static inline float short_dot(const float *a, const float *b, int32_t n) {
    float sums[4] = {0};
    int32_t k = 0;
    for (; k + 4 <= n; k += 4)
        for (int i = 0; i < 4; i++) sums[i] += a[k + i] * b[k + i];
    for (; k < n; k++) sums[0] += a[k] * b[k];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

/* Outputs [from, to) of a row. */
static void up_part(const struct adapt_job *job, const struct adapt_part *p, const float *h, int64_t row, int64_t from, int64_t to) {
    const float *bias = cpu_vec(job->op->arg.adapt.bias), *gain = cpu_vec(p->gain), *up = cpu_vec(p->up);
    const float *y = cpu_row(job->c, job->op->in[1], row);
    float *out = cpu_row(job->c, job->op->out[0], row), scale = scale_of(job, p, row);
    if (from < p->first) from = p->first;
    if (to > p->first + p->out) to = p->first + p->out;
    if (scale == 0) return;
    for (int64_t i = from; i < to; i++) {
        float sum = short_dot(up + (i - p->first) * p->rank, h, p->rank);
        if (gain) sum += gain[i - p->first] * (y[i] - (bias ? bias[i] : 0.0f));
        out[i] += scale * sum;
    }
}

/* Items are chunks of the outputs of rows. */
static void go_up(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct adapt_job *job = ctx;
    const struct adapt_args *a = &job->op->arg.adapt;
    int64_t width = job->op->out[0].width;
    (void)thread;
    for (int64_t item = first; item < last; item++) {
        int64_t r = item / job->n_chunks, from = item % job->n_chunks * UP_CHUNK, to = from + UP_CHUNK < width ? from + UP_CHUNK : width;
        const float *h = job->hidden + r * a->site->n_hidden;
        memcpy(cpu_row(job->c, job->op->out[0], r) + from, cpu_row(job->c, job->op->in[1], r) + from, (size_t)(to - from) * sizeof(float));
        for (int32_t i = 0; i < a->site->n_parts; h += a->site->parts[i++].rank) up_part(job, &a->site->parts[i], h, r, from, to);
    }
}

void cpu_run_adapt(struct cpu *c, const struct op *op, const struct step *step) {
    struct adapt_job job = {.c = c, .op = op, .step = step, .hidden = c->op_scratch};
    job.n_chunks = (op->out[0].width + UP_CHUNK - 1) / UP_CHUNK;
    pool_run(c->pool, op->out[0].rows, 1, go_down, &job);
    pool_run(c->pool, op->out[0].rows * job.n_chunks, 0, go_up, &job);
}
