/* Launches, and what the kernels of several ops are told: views, weights, activations, the cache. */
#include "backend/cuda/lower/lower.h"

#include <assert.h>

void cuda_program_reserve(struct program *p, int32_t n_launches) {
    if (p->launches_capacity >= n_launches) return;
    p->launches = mem_realloc(p->launches, (size_t)n_launches * sizeof *p->launches);
    p->values = mem_realloc(p->values, (size_t)n_launches * sizeof *p->values);
    p->launches_capacity = n_launches;
}

void cuda_emit(struct cuda *c, enum kernel_id kernel, const unsigned int grid[3], unsigned int threads, unsigned int shared_bytes,
               const void *args, size_t args_bytes) {
    struct program *p = &c->program;
    if (grid[0] == 0 || grid[1] == 0 || grid[2] == 0) return;
    if (p->n_launches == p->launches_capacity) {
        cuda_program_reserve(p, p->launches_capacity ? p->launches_capacity * 2 : 1024);
    }
    size_t at = (p->args_used + 63) / 64 * 64;
    if (at + args_bytes > p->args_capacity) {
        p->args_capacity = (at + args_bytes) * 2 + (1 << 16);
        p->args = mem_realloc(p->args, p->args_capacity);
    }
    memcpy(p->args + at, args, args_bytes);
    p->args_used = at + args_bytes;
    int32_t op = p->n_launches ? p->launches[p->n_launches - 1].op : 0;
    p->launches[p->n_launches++] = (struct launch){kernel, {grid[0], grid[1], grid[2]}, threads, shared_bytes, at, op, false};
}

CUdeviceptr cuda_op_scratch(struct cuda *c, size_t *used, size_t bytes) {
    size_t at = *used;
    *used = (at + bytes + 255) / 256 * 256;
    if (*used > c->op_scratch_need) c->op_scratch_need = *used;
    return c->op_scratch + at;
}

/* ---- arguments ---------------------------------------------------------------------------------------------------- */

struct k_view cuda_view(const struct cuda *c, struct tensor t) {
    if (!tensor_is(t)) return (struct k_view){0};
    bool half = c->base.list.values[t.id - 1].dtype == DT_BF16;
    return (struct k_view){
        .p = c->scratch + (uint64_t)c->plan.offsets[t.id - 1] + (uint64_t)t.offset * (half ? 2 : 4),
        .row_stride = t.row_stride,
        .head_stride = t.head_stride,
        .dtype = half ? K_BF16 : K_F32,
        .heads = t.heads,
        .width = t.width,
        .rows = t.rows,
    };
}

struct k_weight cuda_weight_args(const struct weight *w) {
    return w ? ((const struct cuda_weight *)w->packed)->k : (struct k_weight){0};
}

CUdeviceptr cuda_vec(const struct weight *w) {
    return w ? ((const struct cuda_weight *)w->packed)->k.values : 0;
}

static_assert((int)K_BLOCK == (int)KV_BLOCK && sizeof(struct k_seq) == sizeof(struct step_seq), "the step block");

struct k_act cuda_act(const struct act_args *a) {
    return (struct k_act){(int32_t)a->kind, a->scale, {a->p[0], a->p[1], a->p[2], a->p[3]}};
}

CUdeviceptr cuda_step_array(const struct cuda *c, size_t offset) {
    return c->step_block + offset;
}

bool cuda_turns_by_axes(const struct cuda *c, const struct rope_args *r) {
    return r->axes && !(c->key.decode_only && !c->key.gives);
}

CUdeviceptr cuda_rope_pos(const struct cuda *c, const struct rope_args *r) {
    return cuda_step_array(c, r->axes ? c->at.places : c->at.pos);
}

struct k_cache cuda_cache(const struct cuda *c, struct kv_ref kv) {
    const struct cuda_kv_class *k = &c->kv[kv.kv_class];
    bool is_lent = cuda_is_lent(c, kv);
    CUdeviceptr keys = is_lent ? k->guest_k : k->k, values = is_lent ? k->guest_v : k->v;
    size_t blocks = is_lent ? 0 : (size_t)kv.index * (size_t)k->shape.n_blocks;
    return (struct k_cache){
        .k = keys + blocks * cuda_kv_block_bytes(c, &k->shape, k->shape.k_width),
        .v = values ? values + blocks * cuda_kv_block_bytes(c, &k->shape, k->shape.v_width) : 0,
        .table = cuda_step_array(c, c->at.tables[kv.kv_class]),
        .table_stride = c->at.table_stride,
        .heads = k->shape.heads,
        .k_width = k->shape.k_width,
        .v_width = k->shape.v_width,
        .dtype = cuda_kv_dtype(c, &k->shape),
    };
}

struct k_view cuda_bf16_input(struct cuda *c, struct k_view x, int64_t width, size_t *used) {
    int64_t filled = (width + 7) / 8 * 8;
    if (x.dtype == K_BF16 && x.row_stride % 8 == 0 && x.p % 16 == 0 && filled == width) return x;
    struct k_view dense = x;
    dense.heads = 1;
    dense.width = (int32_t)width;
    struct k_view to = dense;
    to.p = cuda_op_scratch(c, used, (size_t)x.rows * (size_t)filled * 2);
    to.dtype = K_BF16;
    to.row_stride = filled;
    to.width = (int32_t)filled;
    struct k_elem a = {.a = dense, .y = to};
    EMIT(c, KERNEL_elem_convert, GRID(ceil_div(filled, 256), x.rows, 1), 256, 0, a);
    return to;
}

struct k_view cuda_bf16_heads(struct cuda *c, struct k_view x, size_t *used) {
    struct k_view to = x;
    int64_t row = (int64_t)x.heads * x.width;
    to.p = cuda_op_scratch(c, used, (size_t)x.rows * (size_t)row * 2);
    to.dtype = K_BF16, to.head_stride = x.width, to.row_stride = row;
    struct k_elem a = {.a = x, .y = to};
    EMIT(c, KERNEL_elem_convert, GRID(ceil_div(row, 256), x.rows, 1), 256, 0, a);
    return to;
}
