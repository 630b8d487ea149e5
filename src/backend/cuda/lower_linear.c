/* Lowering of matrix products. */
#include "backend/cuda/cuda.h"

static struct k_linear linear_args_of(const struct cuda *c, const struct op *op) {
    const struct linear_args *l = &op->arg.linear;
    return (struct k_linear){
        .w = cuda_weight_args(l->weight),
        .bias = cuda_vec(l->bias),
        .x = cuda_view(c, op->in[0]),
        .y = cuda_view(c, op->out[0]),
        .n_out = l->weight->out,
        .per_head = op->kind == OP_HEAD_LINEAR,
        .k_splits = 1,
    };
}

void lower_linear_ref(struct cuda *c, const struct op *op) {
    struct k_linear a = linear_args_of(c, op);
    EMIT(c, KERNEL_linear_ref, GRID(ceil_div(a.n_out, 8), ceil_div(a.x.rows, 4), a.per_head ? a.x.heads : 1), 256, 0, a);
}
