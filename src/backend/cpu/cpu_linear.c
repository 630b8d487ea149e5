/* Matrix products: a weight row is dequantised once and multiplied with every row of the batch; output rows are split
 * over the threads. Each output element is one dot product in a fixed order, whatever the batch. */
#include "backend/cpu/cpu.h"

struct linear_job {
    struct cpu *c;
    const struct op *op;
    const float *bias;
};

static void linear_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct linear_job *job = ctx;
    struct cpu *c = job->c;
    const struct weight *w = job->op->arg.linear.weight;
    struct tensor x = job->op->in[0], y = job->op->out[0];
    float *row = cpu_thread(c, thread);
    for (int64_t n = first; n < last; n++) {
        struct quant_row q = cpu_weight_row(w, n);
        c->kern.unpack(&w->format, &q, 0, w->in, row);
        for (int64_t r = 0; r < x.rows; r++) {
            float sum = c->kern.dot(row, cpu_row(c, x, r), w->in);
            cpu_row(c, y, r)[n] = job->bias ? sum + job->bias[n] : sum;
        }
    }
}

void cpu_run_linear(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct linear_job job = {c, op, cpu_vec(op->arg.linear.bias)};
    pool_run(c->pool, op->arg.linear.weight->out, 0, linear_rows, &job);
}

static void head_linear_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct linear_job *job = ctx;
    struct cpu *c = job->c;
    const struct weight *w = job->op->arg.linear.weight;
    struct tensor x = job->op->in[0], y = job->op->out[0];
    float *row = cpu_thread(c, thread);
    for (int64_t n = first; n < last; n++) {
        int64_t head = n / w->out, i_out = n % w->out;
        struct quant_row q = cpu_weight_row(w, n);
        c->kern.unpack(&w->format, &q, 0, w->in, row);
        for (int64_t r = 0; r < x.rows; r++)
            cpu_row(c, y, r)[head * y.head_stride + i_out] = c->kern.dot(row, cpu_row(c, x, r) + head * x.head_stride, w->in);
    }
}

void cpu_run_head_linear(struct cpu *c, const struct op *op, const struct step *step) {
    (void)step;
    struct linear_job job = {c, op, NULL};
    pool_run(c->pool, op->arg.linear.weight->out * op->arg.linear.weight->n_experts, 0, head_linear_rows, &job);
}

void cpu_run_embed(struct cpu *c, const struct op *op, const struct step *step) {
    const struct embed_args *a = &op->arg.embed;
    const struct weight *w = a->weight;
    for (int64_t r = 0; r < op->out[0].rows; r++) {
        int64_t index = a->by_position ? step->pos[r] + a->position_offset : step->ids[r];
        struct quant_row q = cpu_weight_row(w, index);
        float *y = cpu_row(c, op->out[0], r);
        c->kern.unpack(&w->format, &q, 0, w->in, y);
        if (a->scale != 1.0f)
            for (int64_t i = 0; i < w->in; i++) y[i] *= a->scale;
    }
}
