/* Questions about neighbouring ops of the list: which op reads a value, and which ops form a known pattern. */
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

/* An optional norm of heads at op j, then a rope of its result. Returns the index of the op behind them, 0 where there is no rope. *out: the rope's
 * result. */
static int32_t find_norm_rope(const struct cuda *c, int32_t j, int32_t *norm, int32_t *rope, struct tensor *out) {
    const struct oplist *l = &c->base.list;
    *norm = j < l->n_ops && is_head_norm(&l->ops[j]) ? j++ : -1;
    *rope = j;
    if (j >= l->n_ops || l->ops[j].kind != OP_ROPE || l->ops[j].arg.rope.shift || cuda_turns_by_axes(c, &l->ops[j].arg.rope)) return 0;
    if (*norm >= 0) {
        struct tensor normed = l->ops[*norm].out[0];
        if (!cuda_same_view(l->ops[j].in[0], normed) || !cuda_read_only_by(c, normed, j)) return 0;
    }
    *out = l->ops[j].out[0];
    return j + 1;
}

int32_t cuda_find_qkv(const struct cuda *c, int32_t i, struct cuda_qkv *out) {
    const struct oplist *l = &c->base.list;
    struct tensor k;
    int32_t j = find_norm_rope(c, i, &out->norms[0], &out->ropes[0], &out->q);
    if (j) j = find_norm_rope(c, j, &out->norms[1], &out->ropes[1], &k);
    if (!j || j >= l->n_ops || l->ops[j].kind != OP_KV_WRITE || l->ops[j].n_in != 2) return 0;
    if (memcmp(&l->ops[out->ropes[0]].arg.rope, &l->ops[out->ropes[1]].arg.rope, sizeof(struct rope_args)) != 0) return 0;
    if (!cuda_same_view(l->ops[j].in[0], k) || !cuda_read_only_by(c, k, j)) return 0;
    out->write = j;
    for (int n = 0; n < 2; n++) out->from[n] = l->ops[out->norms[n] >= 0 ? out->norms[n] : out->ropes[n]].in[0];
    out->from[2] = l->ops[j].in[1];
    return j + 1 - i;
}

/* Whether a product may round its input to bf16. The router's product may not; a wide one may in a list for kernels/one.cu, which keeps 16 bits. */
bool cuda_may_round(const struct cuda *c, const struct op *op) {
    const struct oplist *l = &c->base.list;
    return !c->exact && op->kind == OP_LINEAR && (!op->arg.linear.wide || c->one_list) &&
           l->ops[l->values[op->out[0].id - 1].last_op].kind != OP_ROUTE;
}
