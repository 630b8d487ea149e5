/* The attention mixer: projections, optional norms of queries and keys, rope, the cache, the output projection. */
#include "model/forward.h"

/* q, k and v as [rows, heads, width] views, from one stacked weight or from three. */
static void project(const struct pass *p, struct tensor x, struct tensor *q, struct tensor *k, struct tensor *v) {
    const struct attn_spec *a = &p->layer->attn;
    const struct bound *w = p->w;
    int32_t q_width = a->heads * a->k_width, k_width = a->kv_heads * a->k_width, v_width = a->kv_heads * a->v_width;
    if (w[ROLE_QKV].w) {
        struct tensor all = op_linear(p->l, x, &(struct linear_args){w[ROLE_QKV].w, w[ROLE_QKV].bias});
        *q = tensor_slice(all, 0, q_width);
        *k = tensor_slice(all, q_width, k_width);
        *v = tensor_slice(all, q_width + k_width, v_width);
    } else {
        *q = op_linear(p->l, x, &(struct linear_args){w[ROLE_Q].w, w[ROLE_Q].bias});
        *k = op_linear(p->l, x, &(struct linear_args){w[ROLE_K].w, w[ROLE_K].bias});
        *v = op_linear(p->l, x, &(struct linear_args){w[ROLE_V].w, w[ROLE_V].bias});
    }
    *q = tensor_split_heads(*q, a->heads);
    *k = tensor_split_heads(*k, a->kv_heads);
    *v = tensor_split_heads(*v, a->kv_heads);
}

static struct tensor qk_norm(const struct pass *p, struct tensor x, const struct bound *w) {
    const struct norm_spec *n = &p->m->spec.norm;
    struct norm_args args = {.weight = w->w, .bias = w->bias, .kind = n->kind, .eps = n->eps, .weight_offset = n->weight_offset};
    if (p->layer->attn.qk_norm == QK_NONE) return x;
    if (p->layer->attn.qk_norm == QK_FULL) return tensor_split_heads(op_norm(p->l, tensor_join_heads(x), &args), x.heads);
    args.per_head = p->layer->attn.qk_norm == QK_PER_HEAD;
    return op_norm(p->l, x, &args);
}

static struct rope_args rope_args_of(const struct rope_spec *r) {
    return (struct rope_args){.inv_freq = r->bound, .kind = r->kind, .first = r->first, .n_rotated = r->n_rotated, .magnitude = r->magnitude, .table = r->table};
}

struct tensor mix_attention(const struct pass *p, struct tensor x) {
    const struct attn_spec *a = &p->layer->attn;
    struct attn_args attn = {.kv = p->layer->kv, .scale = a->scale, .softcap = a->softcap, .window = a->window, .chunk = a->chunk, .v_width = a->v_width};
    struct tensor q, k, v;
    project(p, x, &q, &k, &v);
    q = qk_norm(p, q, &p->w[ROLE_Q_NORM]);
    k = qk_norm(p, k, &p->w[ROLE_K_NORM]);
    if (a->rope >= 0) {
        struct rope_args rope = rope_args_of(&p->m->spec.ropes[a->rope]);
        q = op_rope(p->l, q, &rope);
        k = op_rope(p->l, k, &rope);
    }
    op_kv_write(p->l, k, v, p->layer->kv);
    struct tensor mixed = tensor_join_heads(op_attn(p->l, q, &attn));
    return op_linear(p->l, mixed, &(struct linear_args){p->w[ROLE_O].w, p->w[ROLE_O].bias});
}
