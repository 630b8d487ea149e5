/* Wide products (linear_args.wide) keep more of their input than bf16 does. Here x is split into two bf16 terms whose sum has 16 bits of it, and the
 * product is computed for twice the rows, by whichever kernel takes that many; the weight is still read once. The list is rewritten before it is
 * planned: TERMS, the product without its bias, TERMS_SUM. A product that cannot be split stays wide and runs in f32. */
#include "backend/cuda/lower/lower.h"

/* Whether the op is split here; the kernel for batches (lower_batch.c) makes the terms by itself, the one for bytes (lower_bytes.c) keeps enough without. */
static bool is_split(const struct cuda *c, const struct op *op) {
    return op->kind == OP_LINEAR && op->arg.linear.wide && cuda_rows_are_even(op->arg.linear.weight) && !cuda_wqmm_takes_terms(c, op) &&
           !cuda_bytes_takes_wide(c, op);
}

/* The terms of an op's input. Where the last TERMS op read the same input, its result is used again. */
static struct tensor terms_of(struct oplist *l, const struct op *op, struct op *last) {
    struct tensor x = op->in[0];
    if (last->kind == OP_TERMS && cuda_same_view(last->in[0], x)) return last->out[0];
    *last = (struct op){.kind = OP_TERMS, .layer = op->layer, .n_in = 1, .n_out = 1, .in = {x}};
    last->out[0] = oplist_value(l, x, 2 * x.rows, DT_BF16);
    l->ops[l->n_ops++] = *last;
    return last->out[0];
}

static void split(struct oplist *l, struct op op, struct op *last) {
    struct tensor y = op.out[0], x = terms_of(l, &op, last);
    struct op sum = {.kind = OP_TERMS_SUM, .layer = op.layer, .n_in = 1, .n_out = 1, .out = {y}, .arg.linear = op.arg.linear};
    op.in[0] = x;
    op.out[0] = sum.in[0] = oplist_value(l, y, 2 * y.rows, DT_F32);
    op.arg.linear.bias = NULL;
    op.arg.linear.wide = 0;
    l->ops[l->n_ops++] = op;
    l->ops[l->n_ops++] = sum;
}

bool cuda_split_wide(struct cuda *c) {
    struct oplist *l = &c->base.list;
    int32_t n = l->n_ops, more = 0, n_products = 0;
    if (c->exact || !c->gpu->functions[KERNEL_gemm_bf16]) return false;
    for (int32_t i = 0; i < n; i++) {
        more += is_split(c, &l->ops[i]) ? 2 : 0;
        n_products += l->ops[i].kind == OP_LINEAR;
    }
    if (more == 0) return false;
    if (n + more > l->ops_capacity) {
        l->ops_capacity = n + more;
        l->ops = mem_realloc(l->ops, (size_t)l->ops_capacity * sizeof *l->ops);
    }
    memmove(l->ops + more, l->ops,
            (size_t)n *
                sizeof *l->ops); /* then rewritten from the front: the ops that are still to be read stay ahead of those that are written */
    struct op last = {0};
    l->n_ops = 0;
    for (int32_t i = more; i < more + n; i++) {
        struct op op = l->ops[i];
        if (is_split(c, &op)) split(l, op, &last);
        else l->ops[l->n_ops++] = op;
    }
    oplist_renumber(l);
    return more > n_products;
}
