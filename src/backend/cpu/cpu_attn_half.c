/* Attention over a half-precision cache.
 *
 * Keys lie transposed inside a block, so that scores of 64 positions are one vector sum; values lie row by row. A work
 * item is one row of the batch and up to HEADS heads that share keys: a block is read from memory once for all of them.
 * Positions are added in ascending order; a row sees its own history only.
 */
#include "backend/cpu/cpu.h"

#include "base/fmath.h"

enum { HEADS = 8 };

bool cpu_kv_half_fits(const struct cpu *c, const struct kv_class *k) {
    if (!c->kern.block_scores || c->base.precision == PRECISION_EXACT || c->base.precision == PRECISION_F32) return false;
    return k->k_width % 16 == 0 && k->v_width % 16 == 0 && k->v_width > 0;
}

static uint16_t *block_at(const struct cpu_kv_class *k, void *base, int32_t width, struct kv_ref kv, int32_t block, int32_t head) {
    return (uint16_t *)base + (((int64_t)kv.index * k->shape.n_blocks + block) * k->shape.heads + head) * KV_BLOCK * width;
}

static int32_t block_of(const struct step *step, int32_t kv_class, int32_t seq, int32_t i) {
    return step->tables[kv_class][(int64_t)seq * step->table_capacity + i];
}

struct write_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
};

/* One key head of one row. A key's elements go to as many cache lines: the threads share the misses. */
static void write_heads(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct write_job *job = ctx;
    struct cpu *c = job->c;
    struct kv_ref kv = job->op->arg.kv.kv;
    const struct cpu_kv_class *cls = &c->kv[kv.kv_class];
    struct tensor k = job->op->in[0], v = job->op->in[1];
    int32_t k_width = cls->shape.k_width, v_width = cls->shape.v_width, heads = cls->shape.heads;
    for (int64_t i = first; i < last; i++) {
        int32_t r = (int32_t)(i / heads), h = (int32_t)(i % heads), pos = job->step->pos[r], at = pos % KV_BLOCK;
        int32_t block = block_of(job->step, kv.kv_class, job->step->seq_of[r], pos / KV_BLOCK);
        uint16_t narrow[256], *keys = block_at(cls, cls->k, k_width, kv, block, h);
        const float *key = cpu_row(c, k, r) + h * k.head_stride;
        for (int32_t d = 0; d < k_width; d += 256) {
            int32_t n = k_width - d < 256 ? k_width - d : 256;
            c->kern.store_f16(narrow, key + d, n);
            for (int32_t j = 0; j < n; j++) keys[(int64_t)(d + j) * KV_BLOCK + at] = narrow[j];
        }
        c->kern.store_f16(block_at(cls, cls->v, v_width, kv, block, h) + (int64_t)at * v_width, cpu_row(c, v, r) + h * v.head_stride,
                          v_width);
    }
}

void cpu_kv_write_half(struct cpu *c, const struct op *op, const struct step *step) {
    struct write_job job = {c, op, step};
    pool_run(c->pool, (int64_t)op->in[0].rows * c->kv[op->arg.kv.kv.kv_class].shape.heads, 1, write_heads, &job);
}

struct half_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
    int32_t per_kv; /* query heads that share a key head */
    int32_t parts;  /* work items per key head */
};

/* What one item works on. */
struct half_item {
    int32_t row, seq, pos, first; /* first visible position */
    int32_t kv_head, head, n_heads;
    float *scores; /* [n_heads][stride] from block first/64 on */
    int64_t stride;
};

static void item_scores(const struct half_job *job, const struct half_item *it) {
    const struct attn_args *a = &job->op->arg.attn;
    const struct cpu_kv_class *cls = &job->c->kv[a->kv.kv_class];
    struct tensor q = job->op->in[0];
    struct attn_block b = {.width = cls->shape.k_width,
                           .heads = it->n_heads,
                           .q = cpu_row(job->c, q, it->row) + it->head * q.head_stride,
                           .q_stride = q.head_stride,
                           .scores_stride = it->stride,
                           .scale = cpu_query_scale(a, it->pos)};
    int32_t origin = it->first / KV_BLOCK;
    for (int32_t i = origin; i <= it->pos / KV_BLOCK; i++) {
        b.cache = block_at(cls, cls->k, cls->shape.k_width, a->kv, block_of(job->step, a->kv.kv_class, it->seq, i), it->kv_head);
        b.scores = it->scores + (int64_t)(i - origin) * KV_BLOCK;
        job->c->kern.block_scores(&b);
    }
}

/* Softmax weights of one head in place; returns their sum. */
static float item_softmax(const struct half_job *job, const struct half_item *it, int32_t h) {
    const struct attn_args *a = &job->op->arg.attn;
    const struct kernels *k = &job->c->kern;
    float *s = it->scores + h * it->stride + it->first % KV_BLOCK, sink = a->sinks ? cpu_vec(a->sinks)[it->head + h] : -INFINITY,
          max = sink;
    int32_t n = it->pos - it->first + 1;
    if (a->softcap > 0) k->act(s, n, &(struct act_args){.kind = ACT_SOFTCAP, .p = {a->softcap}});
    for (int32_t i = 0; i < n; i++)
        if (s[i] > max) max = s[i];
    float sum = k->exp_sum(s, n, max);
    return a->sinks ? sum + m_expf(sink - max) : sum;
}

static void item_mix(const struct half_job *job, const struct half_item *it) {
    const struct attn_args *a = &job->op->arg.attn;
    const struct cpu_kv_class *cls = &job->c->kv[a->kv.kv_class];
    struct tensor y = job->op->out[0];
    struct attn_block b = {.width = cls->shape.v_width,
                           .heads = it->n_heads,
                           .scores_stride = it->stride,
                           .out = cpu_row(job->c, y, it->row) + it->head * y.head_stride,
                           .out_stride = y.head_stride};
    int32_t origin = it->first / KV_BLOCK;
    for (int32_t h = 0; h < it->n_heads; h++) memset(b.out + h * b.out_stride, 0, (size_t)y.width * sizeof(float));
    for (int32_t i = origin; i <= it->pos / KV_BLOCK; i++) {
        b.cache = block_at(cls, cls->v, cls->shape.v_width, a->kv, block_of(job->step, a->kv.kv_class, it->seq, i), it->kv_head);
        b.scores = it->scores + (int64_t)(i - origin) * KV_BLOCK;
        b.first = i == origin ? it->first % KV_BLOCK : 0;
        b.last = i == it->pos / KV_BLOCK ? it->pos % KV_BLOCK + 1 : KV_BLOCK;
        job->c->kern.block_mix(&b);
    }
}

static void run_item(const struct half_job *job, struct half_item *it) {
    struct tensor y = job->op->out[0];
    float sums[HEADS];
    item_scores(job, it);
    for (int32_t h = 0; h < it->n_heads; h++) sums[h] = item_softmax(job, it, h);
    item_mix(job, it);
    for (int32_t h = 0; h < it->n_heads; h++) {
        float *out = cpu_row(job->c, y, it->row) + (it->head + h) * y.head_stride, inverse = 1.0f / sums[h];
        for (int32_t i = 0; i < y.width; i++) out[i] *= inverse;
    }
}

static void items(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct half_job *job = ctx;
    const struct attn_args *a = &job->op->arg.attn;
    int32_t kv_heads = job->c->kv[a->kv.kv_class].shape.heads;
    for (int64_t i = first; i < last; i++) {
        int32_t part = (int32_t)(i % job->parts), kv_head = (int32_t)(i / job->parts % kv_heads),
                row = (int32_t)(i / job->parts / kv_heads);
        struct half_item it = {.row = row, .seq = job->step->seq_of[row], .pos = job->step->pos[row], .kv_head = kv_head};
        it.first = cpu_first_visible(a, it.pos);
        it.head = kv_head * job->per_kv + part * HEADS;
        it.n_heads = job->per_kv - part * HEADS < HEADS ? job->per_kv - part * HEADS : HEADS;
        it.scores = cpu_thread(job->c, thread);
        it.stride = (int64_t)(it.pos / KV_BLOCK - it.first / KV_BLOCK + 1) * KV_BLOCK;
        run_item(job, &it);
    }
}

int64_t cpu_attn_half_floats(const struct cpu *c, const struct op *op) {
    int32_t per_kv = op->in[0].heads / c->layout.classes[op->arg.attn.kv.kv_class].heads;
    return (int64_t)(per_kv < HEADS ? per_kv : HEADS) * (c->layout.max_context + 2 * KV_BLOCK);
}

void cpu_attn_half(struct cpu *c, const struct op *op, const struct step *step) {
    struct half_job job = {.c = c, .op = op, .step = step};
    int32_t kv_heads = c->kv[op->arg.attn.kv.kv_class].shape.heads;
    job.per_kv = op->in[0].heads / kv_heads;
    job.parts = (job.per_kv + HEADS - 1) / HEADS;
    pool_run(c->pool, (int64_t)op->in[0].rows * kv_heads * job.parts, 1, items, &job);
}
