/* The tower's forward pass as an op list. */
#include "vision/vision_internal.h"

#include "base/fmath.h"

static struct tensor norm(const struct vision *v, struct oplist *l, struct tensor x, const struct bound *w) {
    if (!w->w) return x;
    return op_norm(l, x, &(struct norm_args){.weight = w->w, .bias = w->bias, .kind = v->family->norm, .eps = v->eps});
}

/* To limits that need not lie around 0. */
static struct tensor clip(struct oplist *l, struct tensor x, const struct tower_clip *c) {
    if (c->half <= 0) return x;
    if (c->minus) x = op_mulvec(l, x, &(struct vec_args){.add = c->minus});
    x = op_act(l, x, &(struct act_args){.kind = ACT_CLAMP, .scale = 1.0f, .p = {c->half}});
    return c->plus ? op_mulvec(l, x, &(struct vec_args){.add = c->plus}) : x;
}

static struct tensor linear(struct oplist *l, struct tensor x, const struct tower_matrix *m) {
    x = op_linear(l, clip(l, x, &m->before), &(struct linear_args){m->b.w, m->b.bias, 1});
    return clip(l, x, &m->after);
}

/* n rows behind each other as one; only for dense rows. */
static struct tensor join_rows(struct tensor x, int32_t n) {
    x.rows /= n;
    x.width *= n;
    x.row_stride = x.head_stride = x.width;
    return x;
}

static struct tensor activate(const struct vision *v, struct oplist *l, struct tensor x) {
    const float slope = 1.702f; /* quick_gelu(x) is x * sigmoid(1.702 x) */
    if (!v->is_quick_gelu) return op_act(l, x, &(struct act_args){.kind = v->act, .scale = 1.0f});
    x = op_act(l, x, &(struct act_args){.kind = ACT_NONE, .scale = slope});
    return op_act(l, x, &(struct act_args){.kind = ACT_SILU, .scale = 1.0f / slope});
}

static struct tensor turn(const struct vision *v, struct oplist *l, struct tensor x) {
    enum vision_rope rope = v->family->rope;
    for (int32_t i = 0; i < v->n_ropes; i++) {
        const struct tower_rope *r = &v->ropes[i];
        x = op_rope(l, x,
                    &(struct rope_args){.inv_freq = r->inv_freq,
                                        .kind = rope == VISION_ROPE_PAIRS || rope == VISION_ROPE_MIXED ? ROPE_PAIR : ROPE_HALF,
                                        .first = r->first,
                                        .n_rotated = r->n,
                                        .magnitude = 1.0f,
                                        .axes = r->axes});
    }
    return x;
}

/* Queries or keys by heads. Their norm is of a head, or of all heads together. */
static struct tensor heads(const struct vision *v, struct oplist *l, struct tensor x, const struct bound *n) {
    bool is_whole = n->w && n->w->in != v->head;
    if (is_whole) x = norm(v, l, x, n);
    x = tensor_split_heads(x, v->heads);
    return turn(v, l, is_whole ? x : norm(v, l, x, n));
}

static struct tensor attend(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_block *b) {
    int32_t width = v->heads * v->head;
    float scale = v->family->score_scale > 0 ? v->family->score_scale : 1.0f / (float)sqrt((double)v->head);
    struct tensor all = linear(l, x, &b->qkv), q = all, k = all, values = all;
    if (b->k.b.w) k = linear(l, x, &b->k), values = linear(l, x, &b->v);
    else q = tensor_slice(all, 0, width), k = tensor_slice(all, width, width), values = tensor_slice(all, 2 * width, width);
    q = heads(v, l, q, &b->q_norm), k = heads(v, l, k, &b->k_norm), values = tensor_split_heads(values, v->heads);
    if (v->family->norms_values) values = op_norm(l, values, &(struct norm_args){.kind = NORM_RMS, .eps = v->eps});
    struct attn_rows_args args = {.scale = scale, .set = b->sees_all ? 0 : 1};
    return linear(l, tensor_join_heads(op_attn_rows(l, q, k, values, &args)), &b->out);
}

static struct tensor feed(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_block *b) {
    struct tensor up = linear(l, x, &b->up);
    if (!v->family->is_gated) return linear(l, activate(v, l, up), &b->down);
    struct tensor gate = linear(l, x, &b->gate);
    return linear(l, op_glu(l, gate, up, &(struct act_args){.kind = v->act, .scale = 1.0f}), &b->down);
}

/* x and one half of a block, through the norm and the factor behind that half. */
static struct tensor add(const struct vision *v, struct oplist *l, struct tensor x, struct tensor h, const struct bound *post,
                         const struct bound *scale) {
    h = norm(v, l, h, post);
    if (scale->w) h = op_mulvec(l, h, &(struct vec_args){.mul = scale->w});
    return op_add(l, x, h, NULL);
}

static struct tensor merge_norm(const struct vision *v, struct oplist *l, struct tensor x, const struct bound *w) {
    const struct norm_row_of_merger *n = &v->family->merge_norm;
    if (!w->w && !v->family->is_merge_norm_bare) return x;
    return op_norm(l, x,
                   &(struct norm_args){.weight = w->w,
                                       .bias = w->bias,
                                       .kind = v->family->pools ? n->kind
                                               : w->bias        ? NORM_LAYER
                                                                : v->family->norm,
                                       .eps = v->merge_eps,
                                       .weight_offset = n->offset});
}

/* A token as the mean of its patches. */
static struct tensor pool(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_merger *m) {
    x = op_pool_rows(l, x, v->merge * v->merge);
    if (v->family->is_pool_scaled) x = op_act(l, x, &(struct act_args){.kind = ACT_NONE, .scale = (float)sqrt((double)v->hidden)});
    if (m->shift.w) x = op_mulvec(l, op_mulvec(l, x, &(struct vec_args){.add = m->shift.w}), &(struct vec_args){.mul = m->stretch.w});
    return merge_norm(v, l, x, &m->norm);
}

static struct tensor merge(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_merger *m) {
    int32_t each = v->merge * v->merge;
    struct act_args act = {.kind = v->merge_act, .scale = 1.0f};
    if (v->family->pools) x = pool(v, l, x, m);
    else x = m->norms_joined ? merge_norm(v, l, join_rows(x, each), &m->norm) : join_rows(merge_norm(v, l, x, &m->norm), each);
    if (m->join.b.w) x = linear(l, x, &m->join);
    if (m->in.b.w) x = op_act(l, merge_norm(v, l, linear(l, x, &m->in), &m->mid_norm), &act);
    if (m->mid.b.w) x = op_act(l, linear(l, x, &m->mid), &act);
    if (m->gate.b.w) x = op_glu(l, linear(l, x, &m->gate), linear(l, x, &m->up), &(struct act_args){.kind = v->act, .scale = 1.0f});
    return linear(l, x, &m->out);
}

/* Patches to rows, with their positions. */
static struct tensor enter(const struct vision *v, struct oplist *l) {
    struct tensor none = {0};
    bool is_after = v->family->has_positions_after;
    struct given_args positions = {.set = 1, .width = v->hidden, .adds = 1};
    struct tensor x = op_given(l, none, &(struct given_args){.width = 3 * v->frames * v->patch * v->patch});
    x = linear(l, x, &v->patches);
    if (v->positions && !is_after) x = op_given(l, x, &positions);
    x = norm(v, l, x, &v->pre_norm);
    if (v->family->global) x = op_given(l, x, &(struct given_args){.set = 2, .width = v->hidden}); /* padding is 0 */
    return v->positions && is_after ? op_given(l, x, &positions) : x;
}

/* States that are taken behind `done` blocks go beside those that were taken before. */
static struct tensor tap(const struct vision *v, struct oplist *l, struct tensor x, int32_t done, struct tensor taken) {
    for (int32_t k = 0; k < v->n_taps; k++)
        if (v->taps[k] == done) taken = tensor_is(taken) ? op_concat(l, taken, x) : x;
    return taken;
}

static struct tensor block(const struct vision *v, struct oplist *l, struct tensor x, const struct tower_block *b) {
    x = add(v, l, x, attend(v, l, norm(v, l, x, &b->norm1), b), &b->post1, &b->scale1);
    return add(v, l, x, feed(v, l, norm(v, l, x, &b->norm2), b), &b->post2, &b->scale2);
}

/* Blocks behind the others, then states of those beside theirs; rows of the tiles alone. */
static struct tensor leave_tiles(const struct vision *v, struct oplist *l, struct tensor x, struct tensor taken) {
    x = op_given(l, norm(v, l, x, &v->post_norm), &(struct given_args){.set = 3, .width = v->hidden, .adds = 1});
    for (int32_t i = 0; i < v->tiled.n_global; i++) {
        l->layer = v->layers + i;
        x = block(v, l, x, &v->blocks[v->layers + i]);
    }
    l->layer = -1;
    x = tensor_is(taken) ? op_concat(l, x, taken) : x;
    return tensor_slice_rows(x, 0, v->tiled.cells * v->tiled.tiles);
}

void tower_forward(const struct vision *v, struct oplist *l, struct tensor *out_sets) {
    struct tensor x = enter(v, l), taken = tap(v, l, x, 0, (struct tensor){0});
    for (int32_t i = 0; i < v->layers; i++) {
        const struct tower_block *b = &v->blocks[i];
        l->layer = i;
        x = block(v, l, x, b);
        for (int32_t k = 1; k < v->n_mergers; k++)
            if (v->deep_at[k] == i) out_sets[k] = merge(v, l, x, &v->mergers[k]);
        taken = tap(v, l, x, i + 1, taken);
    }
    l->layer = -1;
    if (v->family->global) x = leave_tiles(v, l, x, taken);
    else x = norm(v, l, taken, &v->post_norm);
    if (v->class_row && !v->family->global) x = tensor_slice_rows(x, v->family->is_class_last ? 0 : 1, x.rows - 1);
    out_sets[0] = merge(v, l, x, &v->mergers[0]);
    for (int32_t k = 0; k < v->n_mergers; k++) oplist_output(l, out_sets[k]);
}
