/* Attention over a cache in blocks: what its files share (cpu_attn_half.c, cpu_attn_packed.c). */
#ifndef MLXCEL_BACKEND_CPU_CPU_ATTN_H
#define MLXCEL_BACKEND_CPU_CPU_ATTN_H

#include "backend/cpu/cpu.h"

#include <stdatomic.h>

enum { QUERIES = KV_HEADS_MAX };

struct block_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
    int32_t per_kv, parts; /* query heads that share a key head; items that they make */
    int32_t n_groups;
    const int32_t *groups; /* [n_groups + 1] first rows: runs of rows of one sequence, taken together */
    int32_t n_chunks;      /* 0: an item walks all its chunks; else the most that an item has, and each is a job of its own */
    int64_t n_units;       /* items, or their chunks */
    float *partials;       /* [items][n_chunks][QUERIES][partial_floats] */
    _Atomic int32_t *left; /* [items] chunks to be done */
};

/* Some rows of one sequence and some heads of each. */
struct block_item {
    int32_t row, n_rows, seq;
    int32_t kv_head, head, n_heads, n_queries;
    int32_t blocks;                  /* of a chunk */
    int32_t first_chunk, last_chunk; /* that any of the rows sees */
};

/* Blocks as they will be read, a few ahead of the kernels: keys of a chunk, its values, the next chunk, and then what this
 * thread will probably do next. */
struct block_walk {
    const struct block_job *job;
    struct block_item it;
    int64_t unit;
    int32_t chunk, first, last, i; /* blocks of the chunk; the one that comes next */
    bool values;
    const unsigned char *ahead[KV_ASKS]; /* after the block at hand */
    size_t bytes[KV_ASKS];               /* of each */
};

/* Scratch memory of a thread. */
struct block_memory {
    struct block_walk *walk;
    float *q;      /* [QUERIES][k_width], or QUERIES of struct kv_query */
    float *scores; /* [QUERIES][chunk positions] */
    float *part;   /* [QUERIES][partial_floats] */
    float *state;  /* [QUERIES][partial_floats] */
};

static inline const struct cpu_kv_class *block_class(const struct block_job *job) {
    return &job->c->kv[job->op->arg.attn.kv.kv_class];
}

static inline size_t block_bytes(const struct cpu_kv_class *k, bool values) {
    int32_t width = values ? k->shape.v_width : k->shape.k_width;
    return k->bits ? kv_block_size(width, k->bits) : (size_t)KV_BLOCK * (size_t)width * sizeof(uint16_t);
}
static inline unsigned char *block_at(const struct cpu_kv_class *k, bool values, struct kv_ref kv, int32_t block, int32_t head) {
    int64_t index = ((int64_t)kv.index * k->shape.n_blocks + block) * k->shape.heads + head;
    return (unsigned char *)(values ? k->v : k->k) + (size_t)index * block_bytes(k, values);
}

/* Block i of a sequence. */
static inline int32_t block_of(const struct step *step, int32_t kv_class, int32_t seq, int32_t i) {
    return step->tables[kv_class][(int64_t)seq * step->table_capacity + i];
}

/* Block i of an item's key head. */
static inline const unsigned char *block_in(const struct block_job *job, const struct block_item *it, bool values, int32_t i) {
    struct kv_ref kv = job->op->arg.attn.kv;
    return block_at(block_class(job), values, kv, block_of(job->step, kv.kv_class, it->seq, i), it->kv_head);
}
/* The walk goes on by a block: what is asked for while it is read. */
void cpu_walk_step(struct block_walk *w, const unsigned char **ask);

/* Rows of one sequence that follow one another inside half a block: WRITE_RUN positions of a key's element are one cache
 * line. Fills runs [n + 1] with first rows, returns n. */
enum { WRITE_RUN = 32 };
int32_t cpu_write_runs(const struct op *op, const struct step *step, int32_t *runs);

/* The cache of 8 or 4 bits: queries of an item; scores of blocks [first, last) of a chunk; their mix into out. Positions in
 * `range` are the sequence's. */
void cpu_packed_queries(const struct block_job *job, const struct block_item *it, struct kv_query *out);
void cpu_packed_scores(const struct block_job *job, const struct block_item *it, const struct block_memory *m, int32_t first, int32_t last);
void cpu_packed_mix(const struct block_job *job, const struct block_item *it, const struct block_memory *m, const int32_t (*range)[2],
                    int32_t first, int32_t last, float *out, int64_t out_stride);

#endif
