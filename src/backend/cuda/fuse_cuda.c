/* Several ops in one launch. What lies between them is used by nobody else and never stored.
 *
 * Groups are found once, before values get their places, and lowered from what was found then. The list itself stays as it is: values that a
 * group skips keep their place in the plan. */
#include "backend/cuda/cuda.h"

/* ---- a product and its gate ---------------------------------------------------------------------------------------- */

static bool is_gate(const struct cuda *c, int32_t i) {
    const struct oplist *l = &c->base.list;
    if (i + 1 >= l->n_ops || l->ops[i].kind != OP_LINEAR) return false;
    const struct op *linear = &l->ops[i], *glu = &l->ops[i + 1];
    return cuda_is_halves(linear, glu) && cuda_read_only_by(c, linear->out[0], i + 1) &&
           (qmv_fits(c, linear) || cuda_wqmm_fits(c, linear) || qmm_fits(c, linear) || gemm_bytes_glu_fits(c, linear, glu) ||
            gemm_glu_fits(c, linear, glu));
}

/* ---- norms, rope and cache ------------------------------------------------------------------------------------------ */

static struct k_qkv qkv_args(const struct cuda *c, const struct op *q_rope, const struct op *write) {
    const struct rope_args *r = &q_rope->arg.rope;
    return (struct k_qkv){
        .c = cuda_cache(c, write->arg.kv.kv),
        .v = cuda_view(c, write->in[1]),
        .y = cuda_view(c, q_rope->out[0]),
        .pos = cuda_step_array(c, c->at.pos),
        .rope_pos = cuda_rope_pos(c, r),
        .seq_of = cuda_step_array(c, c->at.seq_of),
        ROPE_FIELDS(c, r),
    };
}

static bool is_weighted(const struct cuda *c, int32_t norm) {
    return norm < 0 || c->base.list.ops[norm].arg.norm.weight;
}

/* Ops of the group that begins at op i; 0: none does. */
static int32_t find_qkv(const struct cuda *c, int32_t i, struct cuda_qkv *g) {
    int32_t n = cuda_find_qkv(c, i, g);
    if (!n || (g->norms[0] < 0) != (g->norms[1] < 0) || !is_weighted(c, g->norms[0]) || !is_weighted(c, g->norms[1])) return 0;
    const struct kv_class *kv = &c->layout.classes[c->base.list.ops[g->write].arg.kv.kv.kv_class];
    bool fits = kv->k_width <= 256 && kv->v_width <= 256 && g->q.width == kv->k_width && g->from[1].width == kv->k_width &&
                g->from[1].heads == kv->heads && g->from[2].heads == kv->heads;
    return fits ? n : 0;
}

/* parts: the product that made queries, keys and values, where its parts are still to be added; else NULL. */
static struct k_qkv qkv_of(const struct cuda *c, const struct cuda_qkv *g, const struct k_linear *parts) {
    const struct op *ops = c->base.list.ops;
    struct k_qkv a = qkv_args(c, &ops[g->ropes[0]], &ops[g->write]);
    bool normed = g->norms[0] >= 0;
    a.q = cuda_view(c, g->from[0]);
    a.k = cuda_view(c, g->from[1]);
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
    return a;
}

static void emit_qkv(struct cuda *c, const struct cuda_qkv *g, const struct k_linear *parts) {
    struct k_qkv a = qkv_of(c, g, parts);
    EMIT(c, a.c.dtype == K_I8 ? KERNEL_qkv8_rope_write : KERNEL_qkv_rope_write, GRID(ceil_div(a.q.heads + 2 * a.c.heads, 4), a.q.rows, 1),
         128, 0, a);
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

/* The number of ops of the group: the product at i, and cuda_find_qkv's ops behind it that read its result; 0: there is none. */
static int32_t find_parts_qkv(const struct cuda *c, int32_t i, struct cuda_qkv *g) {
    const struct oplist *l = &c->base.list;
    if (i + 1 >= l->n_ops || !leaves_parts(c, i)) return 0;
    int32_t n = find_qkv(c, i + 1, g), id = l->ops[i].out[0].id;
    if (!n || l->values[id - 1].is_output || l->values[id - 1].last_op > i + n) return 0;
    const struct kv_class *kv = &c->layout.classes[l->ops[g->write].arg.kv.kv.kv_class];
    if (kv->k_width % 4 || kv->v_width % 4) return 0;
    return g->from[0].id == id && g->from[1].id == id && g->from[2].id == id ? n + 1 : 0;
}

/* The same with the attention behind them, whose blocks make their heads themselves. */
static int32_t find_parts_attn(const struct cuda *c, int32_t i, struct cuda_qkv *g) {
    const struct oplist *l = &c->base.list;
    int32_t n = find_parts_qkv(c, i, g), attn = i + n;
    if (!n || attn >= l->n_ops || l->ops[attn].kind != OP_ATTN || !cuda_attn_takes_parts(c, &l->ops[attn])) return 0;
    const struct op *op = &l->ops[attn];
    bool same_cache = memcmp(&op->arg.attn.kv, &l->ops[g->write].arg.kv.kv, sizeof op->arg.attn.kv) == 0;
    return same_cache && cuda_same_view(op->in[0], g->q) && cuda_read_only_by(c, g->q, attn) ? n + 1 : 0;
}

/* ---- groups -------------------------------------------------------------------------------------------------------- */

static int32_t group_experts(const struct cuda *c, struct cuda_group *g) {
    return step_experts_find(c, g->first, &g->of.experts);
}
static void lower_group_experts(struct cuda *c, const struct cuda_group *g) {
    step_experts_lower(c, &g->of.experts);
}

static int32_t group_product(const struct cuda *c, struct cuda_group *g) {
    return step_product_find(c, g->first, &g->of.product);
}
static void lower_group_product(struct cuda *c, const struct cuda_group *g) {
    step_product_lower(c, &g->of.product);
}

static int32_t group_attention(const struct cuda *c, struct cuda_group *g) {
    return step_attention_find(c, g->first, &g->of.attention);
}
static void lower_group_attention(struct cuda *c, const struct cuda_group *g) {
    step_attention_lower(c, &g->of.attention);
}

static int32_t group_latent(const struct cuda *c, struct cuda_group *g) {
    return step_latent_find(c, g->first, &g->of.latent);
}
static void lower_group_latent(struct cuda *c, const struct cuda_group *g) {
    step_latent_lower(c, &g->of.latent);
}

static int32_t group_gate(const struct cuda *c, struct cuda_group *g) {
    return is_gate(c, g->first) ? 2 : 0;
}
static void lower_group_gate(struct cuda *c, const struct cuda_group *g) {
    lower_linear_glu(c, &c->base.list.ops[g->first], &c->base.list.ops[g->first + 1]);
}

static int32_t group_parts_norm(const struct cuda *c, struct cuda_group *g) {
    return is_parts_norm(c, g->first) ? 2 : 0;
}
static void lower_group_parts_norm(struct cuda *c, const struct cuda_group *g) {
    cuda_lower_parts_norm(c, &c->base.list.ops[g->first], &c->base.list.ops[g->first + 1]);
}

static int32_t group_parts_qkv(const struct cuda *c, struct cuda_group *g) {
    return find_parts_qkv(c, g->first, &g->of.qkv);
}
static void lower_group_parts_qkv(struct cuda *c, const struct cuda_group *g) {
    const struct op *op = &c->base.list.ops[g->first];
    struct k_linear a = cuda_linear_args(c, op);
    size_t used = 0;
    cuda_emit_wqmm(c, op, &a, &used);
    emit_qkv(c, &g->of.qkv, &a);
}

static int32_t group_parts_attn(const struct cuda *c, struct cuda_group *g) {
    return find_parts_attn(c, g->first, &g->of.qkv);
}
static void lower_group_parts_attn(struct cuda *c, const struct cuda_group *g) {
    const struct op *ops = c->base.list.ops, *op = &ops[g->first];
    struct k_linear a = cuda_linear_args(c, op);
    size_t used = 0;
    cuda_emit_wqmm(c, op, &a, &used);
    struct k_qkv heads = qkv_of(c, &g->of.qkv, &a);
    cuda_lower_parts_attn(c, &ops[g->first + g->n - 1], &heads, &used);
}

static int32_t group_qkv(const struct cuda *c, struct cuda_group *g) {
    return find_qkv(c, g->first, &g->of.qkv);
}
static void lower_group_qkv(struct cuda *c, const struct cuda_group *g) {
    emit_qkv(c, &g->of.qkv, NULL);
}

/* The kinds of groups, best first. find: the number of ops of the group that begins at g->first, 0 for none. */
static const struct group_kind {
    int32_t (*find)(const struct cuda *c, struct cuda_group *g);
    void (*lower)(struct cuda *c, const struct cuda_group *g);
} group_kinds[] = {
    {group_experts, lower_group_experts},       {group_latent, lower_group_latent},       {group_product, lower_group_product},
    {group_attention, lower_group_attention},   {group_gate, lower_group_gate},           {group_parts_norm, lower_group_parts_norm},
    {group_parts_attn, lower_group_parts_attn}, {group_parts_qkv, lower_group_parts_qkv}, {group_qkv, lower_group_qkv},
};

static int32_t find_group(const struct cuda *c, struct cuda_group *g) {
    for (size_t i = 0; i < sizeof group_kinds / sizeof *group_kinds; i++) {
        g->kind = &group_kinds[i];
        g->n = g->kind->find(c, g);
        if (g->n) return g->n;
    }
    return 0;
}

/* A group's launch may read any input after it wrote a result, so the inputs live to the group's end; so does what its first op makes, which a later launch of it may
 * read beside others. */
static void extend_lives(struct oplist *l, const struct cuda_group *g) {
    int32_t last = g->first + g->n - 1;
    for (int32_t j = g->first; j <= last; j++)
        for (int32_t k = 0; k < l->ops[j].n_in; k++) {
            struct value *v = &l->values[l->ops[j].in[k].id - 1];
            if (v->first_op <= g->first && v->last_op < last) v->last_op = last;
        }
}

void cuda_find_groups(struct cuda *c) {
    struct oplist *l = &c->base.list;
    c->n_groups = 0;
    if (c->exact || c->no_fuse || c->forced) return;
    if (c->groups_capacity < l->n_ops) {
        c->groups_capacity = 2 * l->n_ops;
        c->groups = mem_realloc(c->groups, (size_t)c->groups_capacity * sizeof *c->groups);
    }
    for (int32_t i = 0, n; i < l->n_ops; i += n) {
        struct cuda_group *g = &c->groups[c->n_groups];
        *g = (struct cuda_group){.first = i};
        n = cuda_op_is_empty(&l->ops[i]) ? 0 : find_group(c, g);
        if (n) {
            extend_lives(l, g);
            c->n_groups++;
        } else n = 1;
    }
}

void cuda_lower_group(struct cuda *c, const struct cuda_group *g) {
    g->kind->lower(c, g);
}
