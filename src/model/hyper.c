/* Several residual streams side by side, as heads of one tensor [rows, n, hidden]. A branch reads a weighed sum of them, and what it makes is added to each with a
 * weight of its own; both weights come of the streams themselves. A last weighed sum goes to the head. */
#include "model/families.h"

static int resolve(struct resolver *r, struct err *err) {
    struct streams_spec *s = &r->spec->streams;
    TRY(cfg_int(&r->cfg, "hc_mult", 1, 64, 4, &s->n, err));
    TRY(cfg_num(&r->cfg, "hc_eps", 1e-6, &s->eps, err));
    return cfg_num(&r->cfg, "hc_magnitude", 2.0, &s->magnitude, err);
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

/* y = mul * x + add, with n elements of each of the parts. */
static int bind_map(struct loader *l, struct bound *out, const float *mul, const float *add, int32_t n, struct err *err) {
    TRY(loader_constant(l, "streams", mul, n, &out->w, err));
    return loader_constant(l, "streams", add, n, &out->bias, err);
}

/* The matrix of `parts` weights for each stream, and the factor and the summand of each. */
static int bind_weights(struct loader *l, enum role fn, enum role map, int32_t layer, int32_t parts, struct err *err) {
    int32_t n = l->spec->streams.n;
    float *scale = arena_new(l->arena, float, parts), *mul = arena_new(l->arena, float, parts *n),
          *add = arena_new(l->arena, float, parts *n);
    TRY(loader_matrix(l, fn, layer, (int64_t)parts * n, (int64_t)n * l->spec->hidden, err));
    TRY(loader_values(l, map, layer, "_scale", parts, scale, err));
    TRY(loader_values(l, map, layer, "_base", (int64_t)parts * n, add, err));
    for (int32_t i = 0; i < parts * n; i++) mul[i] = scale[i / n];
    return bind_map(l, loader_slot(l, map, layer), mul, add, parts * n, err);
}

/* The same with weights of every stream for every other: a factor for reading, for adding, for mixing. */
static int bind_blend(struct loader *l, enum role fn, enum role map, int32_t layer, struct err *err) {
    int32_t n = l->spec->streams.n, all = (2 + n) * n;
    float scale[3], *mul = arena_new(l->arena, float, all), *add = arena_new(l->arena, float, all);
    TRY(loader_matrix(l, fn, layer, all, (int64_t)n * l->spec->hidden, err));
    TRY(loader_values(l, map, layer, "_scale", 3, scale, err));
    TRY(loader_values(l, map, layer, "_base", all, add, err));
    for (int32_t i = 0; i < all; i++) mul[i] = scale[i < n ? 0 : i < 2 * n ? 1 : 2];
    return bind_map(l, loader_slot(l, map, layer), mul, add, all, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct streams_spec *s = &l->spec->streams;
    if (layer >= 0 && s->blends) {
        TRY(bind_blend(l, ROLE_HYPER_MIX, ROLE_HYPER_MIX_MAP, layer, err));
        return bind_blend(l, ROLE_HYPER_FFN, ROLE_HYPER_FFN_MAP, layer, err);
    }
    if (layer >= 0) {
        TRY(bind_weights(l, ROLE_HYPER_MIX, ROLE_HYPER_MIX_MAP, layer, 2, err));
        return bind_weights(l, ROLE_HYPER_FFN, ROLE_HYPER_FFN_MAP, layer, 2, err);
    }
    float *gain = arena_new(l->arena, float, 2 * s->n), *eps = arena_new(l->arena, float, 2 * s->n);
    for (int32_t i = 0; i < 2 * s->n; i++) gain[i] = i < s->n ? 1.0f : s->magnitude, eps[i] = i < s->n || !s->blends ? s->eps : 0;
    TRY(bind_map(l, loader_slot(l, ROLE_HYPER_GAIN, -1), gain, eps, 2 * s->n, err));
    TRY(bind_map(l, loader_slot(l, ROLE_HYPER_HEAD_GAIN, -1), gain, eps, s->n, err));
    return bind_weights(l, ROLE_HYPER_HEAD, ROLE_HYPER_HEAD_MAP, -1, 1, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static const struct act_args plain = {.kind = ACT_NONE, .scale = 1.0f}, sigmoid = {.kind = ACT_SIGMOID, .scale = 1.0f};

static struct tensor mapped(const struct pass *p, struct tensor x, const struct bound *map) {
    return op_mulvec(p->l, x, &(struct vec_args){.mul = map->w, .add = map->bias});
}

/* gain * sigmoid(map(fn(streams))) + eps; wide: all that follows hangs on it. */
static struct tensor weights_of(const struct pass *p, struct tensor x, const struct bound *fn, const struct bound *map,
                                const struct bound *gain) {
    struct tensor flat = op_norm(p->l, tensor_join_heads(x), &(struct norm_args){.kind = NORM_RMS, .eps = p->m->spec.norm.eps});
    struct tensor y = mapped(p, op_linear(p->l, flat, &(struct linear_args){.weight = fn->w, .wide = 1}), map);
    return mapped(p, op_act(p->l, y, &sigmoid), gain);
}

static struct tensor weighed_sum(const struct pass *p, struct tensor x, struct tensor weights) {
    struct tensor parts = op_glu(p->l, x, tensor_split_heads(weights, x.heads), &plain), sum = tensor_slice_heads(parts, 0, 1);
    for (int32_t i = 1; i < x.heads; i++) sum = op_add(p->l, sum, tensor_slice_heads(parts, i, 1), NULL);
    return sum;
}

static struct tensor enter(struct pass *p, struct tensor x) {
    struct tensor all = x;
    for (int32_t i = 1; i < p->m->spec.streams.n; i++) all = op_concat(p->l, all, x);
    return tensor_split_heads(all, p->m->spec.streams.n);
}

typedef struct tensor branch_fn(const struct pass *p, struct tensor x);

static struct tensor half(const struct pass *p, struct tensor x, branch_fn *branch, enum role fn, enum role norm) {
    int32_t n = x.heads;
    struct tensor w = weights_of(p, x, &p->w[fn], &p->w[fn + 1], &p->m->weights.global[ROLE_HYPER_GAIN]);
    struct tensor made = branch(p, pass_norm(p, weighed_sum(p, x, tensor_slice(w, 0, n)), &p->w[norm]));
    made.heads = n, made.head_stride = 0; /* seen once for each stream */
    return op_add(p->l, x, op_glu(p->l, made, tensor_split_heads(tensor_slice(w, n, n), n), &plain), NULL);
}

static struct tensor block(const struct pass *p, struct tensor x) {
    x = half(p, x, pass_mix, ROLE_HYPER_MIX, ROLE_MIX_NORM);
    return half(p, x, feed_forward, ROLE_HYPER_FFN, ROLE_FFN_NORM);
}

static struct tensor leave(const struct pass *p, struct tensor x) {
    const struct bound *g = p->m->weights.global;
    return weighed_sum(p, x, weights_of(p, x, &g[ROLE_HYPER_HEAD], &g[ROLE_HYPER_HEAD_MAP], &g[ROLE_HYPER_HEAD_GAIN]));
}

/* ---- streams that are mixed with each other, too --------------------------------------------------------------------- */

static int resolve_blend(struct resolver *r, struct err *err) {
    struct streams_spec *s = &r->spec->streams;
    s->blends = true;
    TRY(cfg_int(&r->cfg, "hc_sinkhorn_iters", 1, 1000, 20, &s->rounds, err));
    TRY(resolve(r, err));
    if (s->n <= BLEND_STREAMS_MAX) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: hc_mult is %d; up to %d streams are supported", r->cfg.file->name, s->n, BLEND_STREAMS_MAX);
}

static struct tensor blended(const struct pass *p, struct tensor x, branch_fn *branch, enum role fn, enum role norm) {
    const struct streams_spec *s = &p->m->spec.streams;
    int32_t n = x.heads;
    struct tensor flat = op_norm(p->l, tensor_join_heads(x), &(struct norm_args){.kind = NORM_RMS, .eps = p->m->spec.norm.eps});
    struct tensor w = mapped(p, op_linear(p->l, flat, &(struct linear_args){.weight = p->w[fn].w, .wide = 1}), &p->w[fn + 1]);
    struct tensor factors = mapped(p, op_act(p->l, tensor_slice(w, 0, 2 * n), &sigmoid), &p->m->weights.global[ROLE_HYPER_GAIN]);
    struct tensor made = branch(p, pass_norm(p, weighed_sum(p, x, tensor_slice(factors, 0, n)), &p->w[norm]));
    return op_blend(p->l, x, tensor_slice(w, 2 * n, n * n), made, tensor_slice(factors, n, n),
                    &(struct blend_args){.rounds = s->rounds, .eps = s->eps});
}

static struct tensor block_blend(const struct pass *p, struct tensor x) {
    x = blended(p, x, pass_mix, ROLE_HYPER_MIX, ROLE_MIX_NORM);
    return blended(p, x, feed_forward, ROLE_HYPER_FFN, ROLE_FFN_NORM);
}

const struct stream blend_stream = {.resolve = resolve_blend, .bind = bind, .enter = enter, .block = block_blend, .leave = leave};
const struct stream hyper_stream = {.resolve = resolve, .bind = bind, .enter = enter, .block = block, .leave = leave};
