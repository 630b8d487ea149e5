/* What ops of the list have to do with each other: who reads what, and which stand together. */
#include "backend/cuda/lower/lower.h"

bool cuda_read_only_by(const struct cuda *c, struct tensor t, int32_t j) {
    const struct oplist *l = &c->base.list;
    const struct value *v = &l->values[t.id - 1];
    if (v->is_output || v->last_op != j) return false;
    for (int32_t i = v->first_op + 1; i < j; i++)
        for (int32_t k = 0; k < l->ops[i].n_in; k++)
            if (l->ops[i].in[k].id == t.id) return false;
    return true;
}

bool cuda_same_view(struct tensor a, struct tensor b) {
    return a.id == b.id && a.offset == b.offset && a.heads == b.heads && a.width == b.width && a.row_stride == b.row_stride &&
           a.head_stride == b.head_stride;
}

bool cuda_is_halves(const struct op *linear, const struct op *glu) {
    if (glu->kind != OP_GLU) return false;
    struct tensor both = linear->out[0], gate = glu->in[0], up = glu->in[1];
    return gate.id == both.id && up.id == both.id && gate.heads == 1 && up.heads == 1 && gate.offset == 0 && up.offset == gate.width &&
           up.width == gate.width && both.width == 2 * gate.width;
}

static bool is_head_norm(const struct op *op) {
    const struct norm_args *n = &op->arg.norm;
    return op->kind == OP_NORM && op->n_in == 1 && n->kind == NORM_RMS && !n->bias && !n->per_head && n->gate == GATE_NONE;
}

int32_t cuda_take_place(const struct cuda *c, int32_t j, int32_t *norm, int32_t *rope, struct tensor *t) {
    const struct oplist *l = &c->base.list;
    *norm = *rope = -1;
    *t = (struct tensor){0};
    if (j < l->n_ops && is_head_norm(&l->ops[j])) {
        *t = l->ops[j].out[0];
        *norm = j++;
    }
    bool follows = j < l->n_ops && l->ops[j].kind == OP_ROPE &&
                   (!tensor_is(*t) || (cuda_same_view(l->ops[j].in[0], *t) && cuda_read_only_by(c, *t, j)));
    if (follows) {
        *t = l->ops[j].out[0];
        *rope = j++;
    }
    return j;
}

/* Products that may round their input to bf16: not the router's, and not wide ones, unless a list keeps 16 bits of it. */
bool cuda_may_round(const struct cuda *c, const struct op *op) {
    const struct oplist *l = &c->base.list;
    return !c->exact && op->kind == OP_LINEAR && (!op->arg.linear.wide || c->one_list) &&
           l->ops[l->values[op->out[0].id - 1].last_op].kind != OP_ROUTE;
}
