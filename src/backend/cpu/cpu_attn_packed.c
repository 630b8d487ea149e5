/* The cache of 8 or 4 bits: writing positions, and what attention (cpu_attn_half.c) asks of it chunk by chunk.
 *
 * One block of one head of one layer is 64 scales and then the codes (kern_kv_tmpl.h). No vector is ever put together again:
 * kernels multiply whole numbers with codes as they lie.
 */
#include "backend/cpu/cpu_attn.h"

#include <assert.h>

static_assert((int)KV_WIDTH_MAX == (int)KV_PACKED_WIDTH_MAX, "backend_kv_check goes by it");

/* ---- writing ------------------------------------------------------------------------------------------------------ */

struct write_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
    const int32_t *runs; /* [n + 1] first rows */
};

/* A key's codes lie by fours, a row of positions apart: a cache line each. */
static void put_key(unsigned char *codes, const uint8_t *from, int32_t width, int32_t bits, int32_t at) {
    codes += 4 * at;
    for (int32_t d = 0; d < width; d += 32 / bits, codes += 4 * KV_BLOCK) {
        if (bits == 8) memcpy(codes, from + d, 4);
        else
            for (int32_t i = 0; i < 4; i++) codes[i] = (unsigned char)(from[d + i] | from[d + 4 + i] << 4);
    }
}

/* Of 4 bits, two positions share a byte: whoever writes one keeps the other. */
static void put_value(unsigned char *codes, const uint8_t *from, int32_t width, int32_t bits, int32_t at) {
    codes += (int64_t)(at / (32 / bits)) * 4 * width + at % 4;
    int32_t shift = at % 8 < 4 ? 0 : 4;
    for (int32_t d = 0; d < width; d++, codes += 4)
        *codes = bits == 8 ? from[d] : (unsigned char)((*codes & 240 >> shift) | from[d] << shift);
}

static void write_row(const struct write_job *job, bool values, int32_t row, int32_t head, unsigned char *block) {
    const struct cpu_kv_class *cls = &job->c->kv[job->op->arg.kv.kv.kv_class];
    struct tensor x = job->op->in[values];
    uint8_t codes[KV_WIDTH_MAX];
    int32_t at = job->step->pos[row] % KV_BLOCK;
    float scale = job->c->kern.kv_store(cpu_row(job->c, x, row) + head * x.head_stride, x.width, cls->bits, codes);
    ((float *)(void *)block)[at] = scale;
    (values ? put_value : put_key)(block + KV_SCALE_BYTES, codes, x.width, cls->bits, at);
}

/* One key head of one run. */
static void write_heads(void *ctx, int64_t first, int64_t last, int32_t thread) {
    (void)thread;
    const struct write_job *job = ctx;
    struct kv_ref kv = job->op->arg.kv.kv;
    const struct cpu_kv_class *cls = &job->c->kv[kv.kv_class];
    int32_t heads = cls->shape.heads;
    for (int64_t item = first; item < last; item++) {
        int32_t r = job->runs[item / heads], end = job->runs[item / heads + 1], h = (int32_t)(item % heads), pos = job->step->pos[r];
        int32_t block = block_of(job->step, kv.kv_class, job->step->seq_of[r], pos / KV_BLOCK);
        unsigned char *keys = block_at(cls, false, kv, block, h), *values = block_at(cls, true, kv, block, h);
        for (int32_t d = 0; d < cls->shape.k_width * cls->bits / 32; d++) /* stores wait for one another: all are asked for first */
            __builtin_prefetch(keys + KV_SCALE_BYTES + ((int64_t)d * KV_BLOCK + pos % KV_BLOCK) * 4, 1);
        for (; r < end; r++) {
            write_row(job, false, r, h, keys);
            write_row(job, true, r, h, values);
        }
    }
}

void cpu_kv_write_packed(struct cpu *c, const struct op *op, const struct step *step) {
    int32_t *runs = (int32_t *)c->op_scratch, n = cpu_write_runs(op, step, runs);
    struct write_job job = {c, op, step, runs};
    pool_run(c->pool, (int64_t)n * c->kv[op->arg.kv.kv.kv_class].shape.heads, 1, write_heads, &job);
}

/* ---- reading ------------------------------------------------------------------------------------------------------ */

void cpu_packed_queries(const struct block_job *job, const struct block_item *it, struct kv_query *out) {
    struct tensor x = job->op->in[0];
    for (int32_t i = 0; i < it->n_queries; i++)
        job->c->kern.kv_query(cpu_row(job->c, x, it->row + i / it->n_heads) + (it->head + i % it->n_heads) * x.head_stride, x.width,
                              &out[i]);
}

void cpu_packed_scores(const struct block_job *job, const struct block_item *it, const struct block_memory *m, int32_t first,
                       int32_t last) {
    const struct cpu_kv_class *cls = block_class(job);
    struct kv_block b = {
        .width = cls->shape.k_width, .bits = cls->bits, .heads = it->n_queries, .q = (const struct kv_query *)(void *)m->q};
    b.scale = cpu_query_scale(&job->op->arg.attn, job->step->pos[it->row]);
    b.scores_stride = (int64_t)it->blocks * KV_BLOCK;
    for (int32_t i = first; i < last; i++) {
        b.cache = block_in(job, it, false, i);
        cpu_walk_step(m->walk, b.ask);
        b.scores = m->scores + (int64_t)(i % it->blocks) * KV_BLOCK;
        job->c->kern.kv_scores(&b);
    }
}

void cpu_packed_mix(const struct block_job *job, const struct block_item *it, const struct block_memory *m, const int32_t (*range)[2],
                    int32_t first, int32_t last, float *out, int64_t out_stride) {
    const struct cpu_kv_class *cls = block_class(job);
    struct kv_block b = {.width = cls->shape.v_width, .bits = cls->bits, .heads = it->n_queries, .out = out, .out_stride = out_stride};
    int32_t inside[QUERIES][2];
    b.scores_stride = (int64_t)it->blocks * KV_BLOCK;
    b.range = inside;
    for (int32_t i = first; i < last; i++) {
        for (int32_t q = 0; q < it->n_queries; q++) {
            int32_t from = range[q][0] - i * KV_BLOCK, to = range[q][1] - i * KV_BLOCK;
            inside[q][0] = from > 0 ? from : 0;
            inside[q][1] = to < KV_BLOCK ? to : KV_BLOCK;
        }
        b.cache = block_in(job, it, true, i);
        cpu_walk_step(m->walk, b.ask);
        b.scores = m->scores + (int64_t)(i % it->blocks) * KV_BLOCK;
        job->c->kern.kv_mix(&b);
    }
}
