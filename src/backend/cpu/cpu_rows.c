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

static void input_rows(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct rows_job *job = ctx;
    struct tensor y = job->op->out[0];
    int64_t width = tensor_row_size(y);
    const float *from = job->step->inputs[job->op->arg.input.slot];
    memcpy(cpu_row(job->c, y, first), from + first * width, (size_t)((last - first) * width) * sizeof *from);
}

void cpu_run_input(struct cpu *c, const struct op *op, const struct step *step) {
    struct rows_job job = {c, op, step};
    pool_run(c->pool, op->out[0].rows, 0, input_rows, &job);
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

/* ---- the same in blocks --------------------------------------------------------------------------------------------------
 *
 * As attention over the half-precision cache: keys of 64 rows lie transposed, values row by row, and up to QUERIES rows of one head are one work item, so
 * that a block is read once for all of them. Widths are filled up to multiples of 16. A row's largest score is that of all rows that it sees. */

enum { QUERIES = KV_HEADS_MAX };

static int32_t filled(int32_t width) {
    return (width + 15) / 16 * 16;
}

static int32_t n_blocks(const struct op *op) {
    return (op->in[0].rows + KV_BLOCK_POS - 1) / KV_BLOCK_POS;
}

static bool in_blocks(const struct cpu *c, const struct op *op) {
    bool is_rough = c->base.precision != PRECISION_EXACT && c->base.precision != PRECISION_F32;
    bool fits = op->in[0].width <= KV_WIDTH_MAX && op->in[2].width <= KV_WIDTH_MAX;
    return is_rough && fits && c->kern.block_scores && op->in[0].rows >= KV_BLOCK_POS;
}

/* Halves of one block of one head: keys, then values. */
static int64_t block_halves(const struct op *op) {
    return (int64_t)KV_BLOCK_POS * (filled(op->in[0].width) + filled(op->in[2].width));
}

static uint16_t *block_of(const struct rows_job *job, int64_t head, int64_t i) {
    return (uint16_t *)(void *)job->c->op_scratch + (head * n_blocks(job->op) + i) * block_halves(job->op);
}

int64_t cpu_attn_rows_op_floats(const struct cpu *c, const struct op *op) {
    if (cpu_rows_in_half(c, op)) return cpu_rows_half_op_floats(op);
    return in_blocks(c, op) ? (block_halves(op) * n_blocks(op) * op->in[0].heads + 1) / 2 : 0;
}

/* Queries, what they mix, and scores of every row. */
int64_t cpu_attn_rows_floats(const struct cpu *c, const struct op *op) {
    if (cpu_rows_in_half(c, op)) return cpu_rows_half_floats(op);
    if (!in_blocks(c, op)) return op->in[0].rows;
    return QUERIES * ((int64_t)filled(op->in[0].width) + filled(op->in[2].width) + (int64_t)n_blocks(op) * KV_BLOCK_POS);
}

/* Items are blocks of heads. */
static void pack_blocks(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct rows_job *job = ctx;
    struct cpu *c = job->c;
    struct tensor k = job->op->in[1], v = job->op->in[2];
    int64_t blocks = n_blocks(job->op), v_width = filled(v.width);
    uint16_t narrow[KV_WIDTH_MAX];
    for (int64_t item = first; item < last; item++) {
        int64_t h = item / blocks, i = item % blocks;
        uint16_t *keys = block_of(job, h, i), *values = keys + (int64_t)KV_BLOCK_POS * filled(k.width);
        memset(keys, 0, (size_t)block_halves(job->op) * sizeof *keys);
        for (int64_t r = 0; r < KV_BLOCK_POS && i * KV_BLOCK_POS + r < k.rows; r++) {
            c->kern.store_f16(narrow, cpu_row(c, k, i * KV_BLOCK_POS + r) + h * k.head_stride, k.width);
            for (int32_t d = 0; d < k.width; d++) keys[(int64_t)d * KV_BLOCK_POS + r] = narrow[d];
            c->kern.store_f16(values + r * v_width, cpu_row(c, v, i * KV_BLOCK_POS + r) + h * v.head_stride, v.width);
        }
    }
}

/* Weights of one query in place; those of rows that it does not see are 0. Returns their sum. */
static float weigh(const struct kernels *k, const int32_t *span, int32_t begin, int32_t end, float *scores) {
    int32_t from = span[0], n = span[1] - from;
    memset(scores, 0, (size_t)(from - begin) * sizeof *scores);
    memset(scores + span[1] - begin, 0, (size_t)(end - span[1]) * sizeof *scores);
    float *seen = scores + from - begin;
    return k->exp_sum(seen, n, k->max(seen, n, seen[0]));
}

/* Rows [row, row + n) of one head. */
static void attend_block(const struct rows_job *job, int64_t head, int32_t row, int32_t n, float *memory) {
    struct cpu *c = job->c;
    struct tensor q = job->op->in[0], y = job->op->out[0];
    const int32_t *spans = job->step->spans[job->op->arg.attn_rows.set] + 2 * (int64_t)row;
    int32_t width = filled(q.width), v_width = filled(job->op->in[2].width), from = spans[0], to = spans[1];
    for (int32_t i = 1; i < n; i++) {
        from = spans[2 * i] < from ? spans[2 * i] : from;
        to = spans[2 * i + 1] > to ? spans[2 * i + 1] : to;
    }
    int32_t begin = from / KV_BLOCK_POS, end = (to + KV_BLOCK_POS - 1) / KV_BLOCK_POS;
    float *queries = memory, *mixed = queries + QUERIES * width, *scores = mixed + QUERIES * v_width, sums[QUERIES];
    memset(memory, 0, (size_t)(QUERIES * (width + v_width)) * sizeof *memory);
    for (int32_t i = 0; i < n; i++)
        memcpy(queries + (int64_t)i * width, cpu_row(c, q, row + i) + head * q.head_stride, (size_t)q.width * sizeof *queries);
    struct attn_block b = {.width = width,
                           .heads = n,
                           .q = queries,
                           .q_stride = width,
                           .scores_stride = (int64_t)(end - begin) * KV_BLOCK_POS,
                           .scale = job->op->arg.attn_rows.scale};
    for (int32_t i = begin; i < end; i++) {
        b.cache = block_of(job, head, i);
        b.next = block_of(job, head, i + 1 < end ? i + 1 : begin);
        b.scores = scores + (int64_t)(i - begin) * KV_BLOCK_POS;
        c->kern.block_scores(&b);
    }
    for (int32_t i = 0; i < n; i++)
        sums[i] = weigh(&c->kern, spans + 2 * i, begin * KV_BLOCK_POS, end * KV_BLOCK_POS, scores + i * b.scores_stride);
    b.width = v_width, b.out = mixed, b.out_stride = v_width, b.last = KV_BLOCK_POS;
    for (int32_t i = begin; i < end; i++) {
        b.cache = block_of(job, head, i) + (int64_t)KV_BLOCK_POS * width;
        b.next = block_of(job, head, i + 1 < end ? i + 1 : begin);
        b.scores = scores + (int64_t)(i - begin) * KV_BLOCK_POS;
        c->kern.block_mix(&b);
    }
    for (int32_t i = 0; i < n; i++) {
        float *out = cpu_row(c, y, row + i) + head * y.head_stride;
        for (int32_t d = 0; d < y.width; d++) out[d] = mixed[(int64_t)i * v_width + d] / sums[i];
    }
}

/* Items are QUERIES rows of a head. */
static void attend_blocks(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct rows_job *job = ctx;
    int32_t rows = job->op->in[0].rows;
    int64_t each = (rows + QUERIES - 1) / QUERIES;
    for (int64_t item = first; item < last; item++) {
        int32_t row = (int32_t)(item % each) * QUERIES, n = rows - row < QUERIES ? rows - row : QUERIES;
        attend_block(job, item / each, row, n, cpu_thread(job->c, thread));
    }
}

void cpu_run_attn_rows(struct cpu *c, const struct op *op, const struct step *step) {
    struct rows_job job = {c, op, step};
    struct tensor q = op->in[0];
    if (cpu_rows_in_half(c, op)) {
        cpu_run_rows_half(c, op, step);
        return;
    }
    if (!in_blocks(c, op)) {
        pool_run(c->pool, (int64_t)q.rows * q.heads, 0, attend, &job);
        return;
    }
    pool_run(c->pool, (int64_t)n_blocks(op) * q.heads, 0, pack_blocks, &job);
    pool_run(c->pool, (int64_t)((q.rows + QUERIES - 1) / QUERIES) * q.heads, 0, attend_blocks, &job);
}
