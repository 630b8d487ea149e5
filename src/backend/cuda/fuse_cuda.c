/* Several ops in one launch. What lies between them is used by nobody else and never stored.
 *
 * The list itself stays as it is: values that a fused launch skips keep their place in the plan. But a launch reads everything while it
 * writes, so before planning the inputs of a group are kept alive to the group's end (cuda_fuse_lives). */
#include "backend/cuda/cuda.h"

/* ---- a product and its gate ---------------------------------------------------------------------------------------- */

static bool is_gate(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    if (i + 1 >= l->n_ops || l->ops[i].kind != OP_LINEAR) return false;
    const struct op *linear = &l->ops[i], *glu = &l->ops[i + 1];
    return cuda_is_halves(linear, glu) && cuda_read_only_by(c, linear->out[0], i + 1) &&
           (qmv_fits(c, linear) || cuda_wqmm_fits(c, linear) || qmm_fits(c, linear) || gemm_glu_fits(c, linear, glu));
}

/* ---- norms, rope and cache ------------------------------------------------------------------------------------------ */

static struct k_qkv qkv_args(const struct cuda *c, const struct op *q_rope, const struct op *write) {
    const struct rope_args *r = &q_rope->arg.rope;
    return (struct k_qkv){
        .c = cuda_cache(c, write->arg.kv.kv),
        .v = cuda_view(c, write->in[1]),
        .y = cuda_view(c, q_rope->out[0]),
        .inv_freq = cuda_vec(r->inv_freq),
        .step_rope = cuda_step_array(c, c->at.rope),
        .pos = cuda_step_array(c, c->at.pos),
        .seq_of = cuda_step_array(c, c->at.seq_of),
        .kind = (int32_t)r->kind,
        .first = r->first,
        .n_rotated = r->n_rotated,
        .table = r->table,
        .n_rope_tables = c->n_rope_tables,
        .rope_width = c->rope_width,
        .magnitude = r->magnitude,
    };
}

/* Queries, then keys: the ops of their norms (-1: none) and ropes; the op that writes the cache. */
struct qkv {
    int32_t norms[2], ropes[2], write;
};

static bool is_weighted(const struct cuda *c, int32_t norm) {
    return norm < 0 || c->base.list.ops[norm].arg.norm.weight;
}

/* Ops of the group that begins at op i; 0: none does. */
static int32_t find_qkv(const struct cuda *c, int32_t i, struct qkv *g) {
    const struct oplist *l = &c->base.list;
    struct tensor q, k;
    int32_t at = cuda_take_place(c, i, &g->norms[0], &g->ropes[0], &q);
    at = cuda_take_place(c, at, &g->norms[1], &g->ropes[1], &k);
    if (at >= l->n_ops || g->ropes[0] < 0 || g->ropes[1] < 0 || l->ops[at].kind != OP_KV_WRITE) return 0;
    if ((g->norms[0] < 0) != (g->norms[1] < 0) || !is_weighted(c, g->norms[0]) || !is_weighted(c, g->norms[1])) return 0;
    const struct op *write = &l->ops[at];
    const struct rope_args *r = &l->ops[g->ropes[0]].arg.rope;
    const struct kv_class *kv = &c->layout.classes[write->arg.kv.kv.kv_class];
    if (memcmp(r, &l->ops[g->ropes[1]].arg.rope, sizeof *r) != 0 || write->n_in != 2 || kv->k_width > 256 || kv->v_width > 256) return 0;
    if (!cuda_same_view(write->in[0], k) || !cuda_read_only_by(c, k, at)) return 0;
    if (q.width != kv->k_width || k.width != kv->k_width || k.heads != kv->heads || write->in[1].heads != kv->heads) return 0;
    g->write = at;
    return at + 1 - i;
}

/* parts: of the product that made queries, keys and values, where nobody has added them up; else NULL. */
static void lower_qkv(struct cuda *c, const struct qkv *g, const struct k_linear *parts) {
    const struct op *ops = c->base.list.ops;
    struct k_qkv a = qkv_args(c, &ops[g->ropes[0]], &ops[g->write]);
    bool normed = g->norms[0] >= 0;
    a.q = cuda_view(c, ops[normed ? g->norms[0] : g->ropes[0]].in[0]);
    a.k = cuda_view(c, ops[normed ? g->norms[1] : g->ropes[1]].in[0]);
    if (normed) {
        const struct norm_args *q = &ops[g->norms[0]].arg.norm, *k = &ops[g->norms[1]].arg.norm;
        a.q_norm = cuda_vec(q->weight), a.q_eps = q->eps, a.q_offset = q->weight_offset;
        a.k_norm = cuda_vec(k->weight), a.k_eps = k->eps, a.k_offset = k->weight_offset;
    }
    if (parts) {
        a.n_parts = parts->k_splits;
        a.part_stride = (int64_t)parts->x.rows * parts->w.out;
        a.q.p = parts->partial + (a.q.p - parts->y.p);
        a.k.p = parts->partial + (a.k.p - parts->y.p);
        a.v.p = parts->partial + (a.v.p - parts->y.p);
    }
    EMIT(c, KERNEL_qkv_rope_write, GRID(ceil_div(a.q.heads + 2 * a.c.heads, 4), a.q.rows, 1), 128, 0, a);
}

/* ---- products whose parts along k are added up by who reads them ------------------------------------------------------ */

static bool leaves_parts(const struct cuda *c, int32_t i) {
    const struct op *op = &c->base.list.ops[i];
    return op->kind == OP_LINEAR && !op->arg.linear.bias && op->out[0].row_stride == op->arg.linear.weight->out && cuda_wqmm_fits(c, op);
}

static bool is_parts_norm(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    if (i + 1 >= l->n_ops || !leaves_parts(c, i) || !cuda_norm_takes_parts(c, &l->ops[i + 1])) return false;
    struct tensor y = l->ops[i].out[0];
    const struct op *norm = &l->ops[i + 1];
    return cuda_read_only_by(c, y, i + 1) && (cuda_same_view(y, norm->in[0]) != cuda_same_view(y, norm->in[1]));
}

/* Ops of the product at i and what makes queries, keys and values of it; 0: something else is there. */
static int32_t find_parts_qkv(const struct cuda *c, int32_t i, struct qkv *g) {
    const struct oplist *l = &c->base.list;
    if (i + 1 >= l->n_ops || !leaves_parts(c, i)) return 0;
    int32_t n = find_qkv(c, i + 1, g), id = l->ops[i].out[0].id;
    if (!n || l->values[id - 1].is_output || l->values[id - 1].last_op > i + n) return 0;
    const struct kv_class *kv = &c->layout.classes[l->ops[g->write].arg.kv.kv.kv_class];
    if (kv->k_width % 4 || kv->v_width % 4) return 0;
    for (int32_t k = 0; k < 2; k++)
        if (l->ops[g->norms[k] >= 0 ? g->norms[k] : g->ropes[k]].in[0].id != id) return 0;
    return l->ops[g->write].in[1].id == id ? n + 1 : 0;
}

static void lower_parts_qkv(struct cuda *c, int32_t i, const struct qkv *g) {
    const struct op *op = &c->base.list.ops[i];
    struct k_linear a = cuda_linear_args(c, op);
    cuda_emit_wqmm(c, op, &a);
    lower_qkv(c, g, &a);
}

/* ---- groups -------------------------------------------------------------------------------------------------------- */

/* Ops of the group that begins at op i; 0: none does. */
static int32_t group_size(const struct cuda *c, int32_t i) {
    int32_t n = cuda_step_size(c, i);
    if (n) return n;
    if (is_gate(c, i) || is_parts_norm(c, i)) return 2;
    struct qkv g;
    n = find_parts_qkv(c, i, &g);
    return n ? n : find_qkv(c, i, &g);
}

void cuda_fuse_lives(struct cuda *c) {
    struct oplist *l = &c->base.list;
    if (c->exact || c->no_fuse) return;
    for (int32_t i = 0, n; i < l->n_ops; i += n ? n : 1) {
        n = group_size(c, i);
        for (int32_t j = i; j < i + n; j++)
            for (int32_t k = 0; k < l->ops[j].n_in; k++) {
                struct value *v = &l->values[l->ops[j].in[k].id - 1];
                if (v->first_op < i && v->last_op < i + n - 1) v->last_op = i + n - 1;
            }
    }
}

int32_t cuda_lower_fused(struct cuda *c, int32_t i) {
    if (c->exact || c->no_fuse) return 0;
    int32_t n = cuda_step_size(c, i);
    if (n) {
        cuda_step_lower(c, i);
        return n;
    }
    if (is_gate(c, i)) {
        lower_linear_glu(c, &c->base.list.ops[i], &c->base.list.ops[i + 1]);
        return 2;
    }
    if (is_parts_norm(c, i)) {
        cuda_lower_parts_norm(c, &c->base.list.ops[i], &c->base.list.ops[i + 1]);
        return 2;
    }
    struct qkv g;
    n = find_parts_qkv(c, i, &g);
    if (n) {
        lower_parts_qkv(c, i, &g);
        return n;
    }
    n = find_qkv(c, i, &g);
    if (n) lower_qkv(c, &g, NULL);
    return n;
}
