/* Rows that the host gives, and what a tower over them needs: attention without a cache, means of rows. */
#include "backend/cpu/cpu.h"

struct rows_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
};

static void given_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct rows_job *job = ctx;
    const struct given_args *a = &job->op->arg.given;
    const float *const *given = job->step->given[a->set];
    bool has_x = job->op->n_in > 0;
    for (int64_t r = first; r < last; r++) {
        float *y = cpu_row(job->c, job->op->out[0], r);
        const float *g = given ? given[r] : NULL, *x = has_x && (!g || a->adds) ? cpu_row(job->c, job->op->in[0], r) : NULL;
        if (x && g)
            for (int32_t i = 0; i < a->width; i++) y[i] = x[i] + g[i];
        else if (x || g) memcpy(y, x ? x : g, (size_t)a->width * sizeof *y);
        else memset(y, 0, (size_t)a->width * sizeof *y);
    }
}

void cpu_run_given(struct cpu *c, const struct op *op, const struct step *step) {
    struct rows_job job = {c, op, step};
    pool_run(c->pool, op->out[0].rows, 0, given_rows, &job);
}

static void pooled_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct rows_job *job = ctx;
    struct tensor x = job->op->in[0], y = job->op->out[0];
    int32_t n = job->op->arg.pool_rows.n;
    int64_t width = tensor_row_size(y);
    for (int64_t r = first; r < last; r++) {
        float *out = cpu_row(job->c, y, r);
        memcpy(out, cpu_row(job->c, x, r * n), (size_t)width * sizeof *out);
        for (int32_t k = 1; k < n; k++) job->c->kern.axpy(out, cpu_row(job->c, x, r * n + k), 1.0f, width);
        for (int64_t i = 0; i < width; i++) out[i] /= (float)n;
    }
}

void cpu_run_pool_rows(struct cpu *c, const struct op *op, const struct step *step) {
    struct rows_job job = {c, op, step};
    pool_run(c->pool, op->out[0].rows, 0, pooled_rows, &job);
}

/* Items are heads of rows, those of one head next to each other: its keys stay in the cache. */
static void attend(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct rows_job *job = ctx;
    struct cpu *c = job->c;
    struct tensor q = job->op->in[0], k = job->op->in[1], v = job->op->in[2], y = job->op->out[0];
    const int32_t *spans = job->step->spans[job->op->arg.attn_rows.set];
    float *scores = cpu_thread(c, thread), scale = job->op->arg.attn_rows.scale;
    for (int64_t item = first; item < last; item++) {
        int64_t h = item / q.rows, r = item % q.rows;
        int32_t from = spans[2 * r], n = spans[2 * r + 1] - from;
        const float *row = cpu_row(c, q, r) + h * q.head_stride;
        for (int32_t i = 0; i < n; i++) scores[i] = scale * c->kern.dot(row, cpu_row(c, k, from + i) + h * k.head_stride, q.width);
        float largest = c->kern.max(scores, n, scores[0]), sum = c->kern.exp_sum(scores, n, largest);
        float *out = cpu_row(c, y, r) + h * y.head_stride;
        memset(out, 0, (size_t)y.width * sizeof *out);
        for (int32_t i = 0; i < n; i++) c->kern.axpy(out, cpu_row(c, v, from + i) + h * v.head_stride, scores[i], y.width);
        for (int32_t i = 0; i < y.width; i++) out[i] /= sum;
    }
}

void cpu_run_attn_rows(struct cpu *c, const struct op *op, const struct step *step) {
    struct rows_job job = {c, op, step};
    pool_run(c->pool, (int64_t)op->in[0].rows * op->in[0].heads, 0, attend, &job);
}
