/* What all instructions of decode steps share: which ops may join, and how an instruction becomes a launch. */
#include "backend/cuda/decode/decode.h"

static_assert(sizeof(struct k_instr) == K_INSTR_BYTES, "an instruction has its room");

bool cuda_step_small(const struct cuda *c) {
    return !c->exact && !c->no_fuse && !c->borrows && c->gpu->functions[KERNEL_step_run] && c->key.n_rows <= STEP_ROWS;
}

bool step_is_even(struct tensor t) {
    return t.row_stride % 8 == 0 && t.offset % 8 == 0;
}

bool step_is_row_norm(const struct op *op) {
    const struct norm_args *n = &op->arg.norm;
    return op->kind == OP_NORM && op->n_in == 1 && op->in[0].heads == 1 && n->kind == NORM_RMS && !n->bias && !n->per_head &&
           n->gate == GATE_NONE;
}

int step_other_summand(struct tensor y, const struct op *add) {
    if (add->kind != OP_ADD || add->in[0].id == add->in[1].id) return -1;
    for (int i = 0; i < 2; i++) {
        struct tensor t = add->in[i], other = add->in[1 - i];
        if (t.id == y.id && cuda_same_view(t, y) && other.heads == 1 && other.width == y.width && other.rows == y.rows) return 1 - i;
    }
    return -1;
}

int32_t step_count_reads(const struct cuda *c, struct tensor t) {
    const struct oplist *l = &c->base.list;
    if (l->values[t.id - 1].is_output) return -1;
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_ops; i++)
        for (int32_t k = 0; k < l->ops[i].n_in; k++) n += l->ops[i].in[k].id == t.id;
    return n;
}

/* The kernel that runs an instruction by itself. */
static enum kernel_id kernel_of(const struct k_instr *in) {
    const struct k_cache *cache = &in->u.attn.c;
    if (in->kind != K_STEP_ATTN || cache->dtype != K_I8) return KERNEL_step_run;
    return cache->k_width == 64 ? KERNEL_step8_attn_64 : KERNEL_step8_attn_128;
}

bool step_is_instr(enum kernel_id kernel) {
    return kernel == KERNEL_step_run || kernel == KERNEL_step8_attn_64 || kernel == KERNEL_step8_attn_128;
}

void step_emit(struct cuda *c, const struct k_instr *in, const struct step_values *values, unsigned int blocks, size_t shared_bytes) {
    struct k_step_run run = {.barrier = c->counters, .n = 1, .one = *in};
    EMIT(c, kernel_of(in), GRID(blocks, 1, 1), STEP_THREADS, (unsigned int)shared_bytes, run);
    struct step_values *noted = &c->program.values[c->program.n_launches - 1];
    *noted = *values;
    noted->reads = values->y.id == STEP_INNER ? 1 : step_count_reads(c, values->y);
    noted->sum_reads = values->sum.id ? step_count_reads(c, values->sum) - 1 : 0; /* one is the instruction's own */
}

void step_put_norm(struct k_step_linear *a, const struct op *norm) {
    const struct norm_args *n = &norm->arg.norm;
    a->has_norm = 1;
    a->norm = cuda_vec(n->weight);
    a->eps = n->eps;
    a->norm_offset = n->weight_offset;
}

void step_put_residual(const struct cuda *c, struct k_step_linear *a, const struct op *add, int other) {
    struct k_view r = cuda_view(c, add->in[other]);
    a->residual = r.p;
    a->residual_stride = r.row_stride;
    a->residual_scale = other == 0 ? add->arg.add.a_scale : add->arg.add.b_scale;
    a->own_scale = other == 0 ? add->arg.add.b_scale : add->arg.add.a_scale;
}

void step_share_tiles(const struct cuda *c, struct k_step_linear *a, int64_t n_tiles) {
    a->n_tiles = (int32_t)n_tiles;
    a->tiles_each = a->n_tiles / c->gpu->n_sm;
    a->tiles_more = a->n_tiles % c->gpu->n_sm;
}
