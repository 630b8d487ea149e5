/* Fusion: each rule looks at neighbouring ops, replaces them by one, and leaves every value's meaning unchanged. */
#include "backend/fuse.h"

/* ADD then NORM of the sum: one pass over the row computes both. */
static bool fuse_add_norm(struct op *first, const struct op *second) {
    if (first->kind != OP_ADD || second->kind != OP_NORM || second->n_in != 1) return false;
    struct tensor sum = first->out[0], x = second->in[0];
    if (x.id != sum.id || x.heads != 1 || sum.heads != 1 || x.width != sum.width || x.offset != 0) return false;
    struct add_args scales = first->arg.add;
    first->kind = OP_ADD_NORM;
    first->arg.norm = second->arg.norm;
    first->arg.norm.a_scale = scales.a_scale;
    first->arg.norm.b_scale = scales.b_scale;
    first->out[1] = second->out[0];
    first->n_out = 2;
    return true;
}

void fuse_list(struct oplist *l) {
    int32_t n = 0;
    for (int32_t i = 0; i < l->n_ops; i++) {
        l->ops[n] = l->ops[i];
        if (i + 1 < l->n_ops && fuse_add_norm(&l->ops[n], &l->ops[i + 1])) i++;
        n++;
    }
    l->n_ops = n;
    oplist_renumber(l);
}
