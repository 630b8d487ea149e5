/* Several ops in one launch. What lies between them is used by nobody else and never stored.
 *
 * The list itself stays as it is: values that a fused launch skips keep their place in the plan. But a launch reads everything while it
 * writes, so before planning the inputs of a group are kept alive to the group's end (cuda_fuse_lives). */
#include "backend/cuda/cuda.h"

/* Whether op j is the only reader of t. */
static bool read_only_by(const struct cuda *c, struct tensor t, int32_t j) {
    const struct oplist *l = &c->base.list;
    const struct value *v = &l->values[t.id - 1];
    if (v->is_output || v->last_op != j) return false;
    for (int32_t i = v->first_op + 1; i < j; i++)
        for (int32_t k = 0; k < l->ops[i].n_in; k++)
            if (l->ops[i].in[k].id == t.id) return false;
    return true;
}

static bool same_view(struct tensor a, struct tensor b) {
    return a.id == b.id && a.offset == b.offset && a.heads == b.heads && a.width == b.width && a.row_stride == b.row_stride &&
           a.head_stride == b.head_stride;
}

/* ---- a product and its gate ---------------------------------------------------------------------------------------- */

static bool is_gate(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    if (i + 1 >= l->n_ops || l->ops[i].kind != OP_LINEAR || l->ops[i + 1].kind != OP_GLU) return false;
    const struct op *linear = &l->ops[i], *glu = &l->ops[i + 1];
    struct tensor both = linear->out[0], gate = glu->in[0], up = glu->in[1];
    bool halves = gate.id == both.id && up.id == both.id && gate.heads == 1 && up.heads == 1 && gate.offset == 0 &&
                  up.offset == gate.width && up.width == gate.width && both.width == 2 * gate.width;
    return halves && read_only_by(c, both, i + 1) && (qmv_fits(c, linear) || qmm_fits(c, linear));
}

/* ---- norms, rope and cache ------------------------------------------------------------------------------------------ */

static bool plain_norm(const struct op *op) {
    const struct norm_args *n = &op->arg.norm;
    return op->kind == OP_NORM && op->n_in == 1 && n->kind == NORM_RMS && n->weight && !n->bias && !n->per_head && n->gate == GATE_NONE;
}

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

/* Where the ropes of a group that begins at op i stand: i itself, or i + 2 behind two norms; -1 where there is no such group. */
static int32_t qkv_at(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    bool normed = i + 4 < l->n_ops && plain_norm(&l->ops[i]) && plain_norm(&l->ops[i + 1]);
    int32_t at = normed ? i + 2 : i;
    if (at + 2 >= l->n_ops || l->ops[at].kind != OP_ROPE || l->ops[at + 1].kind != OP_ROPE || l->ops[at + 2].kind != OP_KV_WRITE) return -1;
    const struct op *q = &l->ops[at], *k = &l->ops[at + 1], *write = &l->ops[at + 2];
    const struct kv_class *kv = &c->layout.classes[write->arg.kv.kv.kv_class];
    if (memcmp(&q->arg.rope, &k->arg.rope, sizeof q->arg.rope) != 0 || write->n_in != 2 || kv->k_width > 256 || kv->v_width > 256)
        return -1;
    if (!same_view(write->in[0], k->out[0]) || !read_only_by(c, k->out[0], at + 2)) return -1;
    if (q->in[0].width != kv->k_width || k->in[0].width != kv->k_width || k->in[0].heads != kv->heads || write->in[1].heads != kv->heads)
        return -1;
    if (!normed) return at;
    bool chained = same_view(q->in[0], l->ops[i].out[0]) && same_view(k->in[0], l->ops[i + 1].out[0]) && read_only_by(c, q->in[0], at) &&
                   read_only_by(c, k->in[0], at + 1);
    return chained ? at : -1;
}

static void lower_qkv(struct cuda *c, int32_t i, int32_t at) {
    const struct op *ops = c->base.list.ops;
    struct k_qkv a = qkv_args(c, &ops[at], &ops[at + 2]);
    a.q = cuda_view(c, ops[i].in[0]);
    a.k = cuda_view(c, ops[i + 1].in[0]);
    if (at > i) {
        const struct norm_args *q = &ops[i].arg.norm, *k = &ops[i + 1].arg.norm;
        a.q_norm = cuda_vec(q->weight), a.q_eps = q->eps, a.q_offset = q->weight_offset;
        a.k_norm = cuda_vec(k->weight), a.k_eps = k->eps, a.k_offset = k->weight_offset;
    }
    EMIT(c, KERNEL_qkv_rope_write, GRID(ceil_div(a.q.heads + 2 * a.c.heads, 4), a.q.rows, 1), 128, 0, a);
}

/* ---- groups -------------------------------------------------------------------------------------------------------- */

/* Ops of the group that begins at op i; 0: none does. */
static int32_t group_size(const struct cuda *c, int32_t i) {
    if (is_gate(c, i)) return 2;
    int32_t at = qkv_at(c, i);
    return at < 0 ? 0 : at + 3 - i;
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
    if (is_gate(c, i)) {
        lower_linear_glu(c, &c->base.list.ops[i], &c->base.list.ops[i + 1]);
        return 2;
    }
    int32_t at = qkv_at(c, i);
    if (at < 0) return 0;
    lower_qkv(c, i, at);
    return at + 3 - i;
}
