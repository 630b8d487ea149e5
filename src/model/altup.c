/* Several residual streams (AltUp): one passes through the layer, and all are predicted before it and corrected after
 * it by small learned mixtures. Streams are the heads of one tensor [rows, n, hidden].
 *
 * Beside the layer's attention runs a low-rank residual path (Laurel), and every layer gets its slice of a second
 * embedding (perlayer.h). */
#include "model/perlayer.h"

#include "base/fmath.h"

/* x with P(X < x) = p for the normal distribution, by bisection. */
static double normal_quantile(double p) {
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (0.5 * (1.0 + m_erf(middle / sqrt(2.0))) < p) low = middle;
        else high = middle;
    }
    return low;
}

static int resolve_cuts(struct resolver *r, struct err *err) {
    yyjson_val *list;
    TRY(cfg_list(&r->cfg, "activation_sparsity_pattern", r->spec->n_layers, &list, err));
    for (int32_t i = 0; i < r->spec->n_layers; i++) {
        double share = i < 10 && r->spec->n_layers > 10 ? 0.95 : 0; /* where the file does not say */
        if (list) share = yyjson_get_num(yyjson_arr_get(list, (size_t)i));
        if (!(share >= 0 && share < 1))
            return err_set(err, ERR_EFORMAT, "%s: activation_sparsity_pattern must be 0 to 1", r->cfg.file->name);
        r->layers[i].is_cut = share > 0;
        r->layers[i].cut = share > 0 ? (float)normal_quantile(share) : 0;
    }
    return ERR_OK;
}

static int resolve(struct resolver *r, struct err *err) {
    struct streams_spec *s = &r->spec->streams;
    TRY(per_layer_resolve(r, err));
    TRY(cfg_int(&r->cfg, "altup_num_inputs", 2, 64, 4, &s->n, err));
    TRY(cfg_int(&r->cfg, "altup_active_idx", 0, s->n - 1, 0, &s->active, err));
    TRY(cfg_int(&r->cfg, "laurel_rank", 1, 1 << 16, 64, &s->laurel_rank, err));
    s->scale = cfg_bool(&r->cfg, "altup_correct_scale", true);
    return resolve_cuts(r, err);
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

static int bind_each(struct loader *l, enum role role, struct err *err) {
    struct stack_part part = {.role = role, .out = l->spec->hidden};
    return loader_assemble(
        l,
        &(struct matrix_args){
            .into = role, .layer = -1, .parts = &part, .n_parts = 1, .in = l->spec->hidden, .n_experts = l->spec->streams.n - 1},
        err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct streams_spec *s = &l->spec->streams;
    int64_t hidden = l->spec->hidden;
    TRY(per_layer_bind(l, layer, err));
    if (layer < 0) {
        TRY(bind_each(l, ROLE_STREAMS_IN, err));
        return bind_each(l, ROLE_STREAMS_OUT, err);
    }
    TRY(loader_matrix(l, ROLE_STREAM_ROUTER, layer, s->n, hidden, err));
    TRY(loader_vector(l, ROLE_STREAM_ROUTER_NORM, layer, hidden, true, err));
    TRY(loader_matrix(l, ROLE_STREAM_PREDICT, layer, (int64_t)s->n * s->n, s->n, err));
    TRY(loader_matrix(l, ROLE_STREAM_CORRECT, layer, s->n, s->n, err));
    if (s->scale) TRY(loader_vector(l, ROLE_STREAM_SCALE, layer, hidden, true, err));
    TRY(loader_matrix(l, ROLE_LAUREL_IN, layer, s->laurel_rank, hidden, err));
    TRY(loader_matrix(l, ROLE_LAUREL_OUT, layer, hidden, s->laurel_rank, err));
    return loader_vector(l, ROLE_LAUREL_NORM, layer, hidden, true, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static const struct act_args plain = {.kind = ACT_NONE, .scale = 1.0f};

/* One head seen n times. */
static struct tensor repeated(struct tensor x, int32_t n) {
    x.heads = n;
    x.head_stride = 0;
    return x;
}

/* Element k of every one of n runs of `run` elements, as [rows, n, 1]. */
static struct tensor every(struct tensor x, int32_t n, int32_t run, int32_t k) {
    x.offset += k;
    x.heads = n;
    x.head_stride = run;
    x.width = 1;
    return x;
}

/* Heads behind each other: a has m of them, b has n. */
static struct tensor join(const struct pass *p, struct tensor a, struct tensor b) {
    int32_t heads = a.heads + b.heads;
    return tensor_split_heads(op_concat(p->l, tensor_join_heads(a), tensor_join_heads(b)), heads);
}

static struct tensor matched(const struct pass *p, struct tensor x, struct tensor model) {
    return op_norm_gated(p->l, x, repeated(model, x.heads), &(struct norm_args){.kind = NORM_RMS, .gate = GATE_MATCH, .eps = 1e-5f});
}

static struct tensor enter(struct pass *p, struct tensor x) {
    per_layer_enter(p, x);
    struct linear_args w = {.weight = p->m->weights.global[ROLE_STREAMS_IN].w};
    return join(p, x, matched(p, op_head_linear(p->l, repeated(x, p->m->spec.streams.n - 1), &w), x));
}

static struct tensor leave(const struct pass *p, struct tensor x) {
    int32_t n = p->m->spec.streams.n;
    struct linear_args w = {.weight = p->m->weights.global[ROLE_STREAMS_OUT].w};
    struct tensor first = tensor_slice_heads(x, 0, 1);
    struct tensor rest = matched(p, op_head_linear(p->l, tensor_slice_heads(x, 1, n - 1), &w), first), sum = first;
    for (int32_t i = 0; i < n - 1; i++) sum = op_add(p->l, sum, tensor_slice_heads(rest, i, 1), NULL);
    return op_act(p->l, sum, &(struct act_args){.kind = ACT_NONE, .scale = 1.0f / (float)n});
}

static struct tensor modalities(const struct pass *p, struct tensor x) {
    struct act_args shrink = {.kind = ACT_NONE, .scale = 1.0f / (float)p->m->spec.hidden}, squash = {.kind = ACT_TANH, .scale = 1.0f};
    x = op_act(p->l, pass_norm(p, x, &p->w[ROLE_STREAM_ROUTER_NORM]), &shrink);
    return op_act(p->l, pass_linear(p, x, ROLE_STREAM_ROUTER), &squash);
}

/* Every stream plus a mixture of all; the coefficient of stream k in stream i is element i * n + k. */
static struct tensor predict(const struct pass *p, struct tensor x) {
    const struct streams_spec *s = &p->m->spec.streams;
    struct tensor mixture = pass_linear(p, modalities(p, tensor_slice_heads(x, s->active, 1)), ROLE_STREAM_PREDICT), y = x;
    for (int32_t k = 0; k < s->n; k++)
        y = op_add(p->l, y, op_glu(p->l, repeated(tensor_slice_heads(x, k, 1), s->n), every(mixture, s->n, s->n, k), &plain), NULL);
    return y;
}

/* Every stream plus its share (1 + coefficient) of what the layer changed. */
static struct tensor correct(const struct pass *p, struct tensor predicted, struct tensor made) {
    const struct streams_spec *s = &p->m->spec.streams;
    struct tensor shares = every(pass_linear(p, modalities(p, made), ROLE_STREAM_CORRECT), s->n, 1, 0);
    struct tensor change = repeated(op_add(p->l, made, tensor_slice_heads(predicted, s->active, 1), &(struct add_args){1.0f, -1.0f}), s->n);
    struct tensor y = op_add(p->l, predicted, op_glu(p->l, change, shares, &plain), NULL);
    return op_add(p->l, y, change, NULL);
}

/* The layer proper, on the active stream. */
static struct tensor layer(const struct pass *p, struct tensor x) {
    const struct bound *w = p->w;
    float half = (float)(1.0 / sqrt(2.0));
    struct tensor n = pass_norm(p, x, &w[ROLE_MIX_NORM]);
    struct tensor laurel = pass_norm(p, pass_linear(p, pass_linear(p, n, ROLE_LAUREL_IN), ROLE_LAUREL_OUT), &w[ROLE_LAUREL_NORM]);
    struct tensor attended = op_add(p->l, x, pass_norm(p, pass_mix(p, n), &w[ROLE_MIX_POST_NORM]), NULL);
    x = op_add(p->l, attended, op_add(p->l, n, laurel, NULL), &(struct add_args){half, half});
    struct tensor h = feed_forward(p, pass_norm(p, x, &w[ROLE_FFN_NORM]));
    return op_add(p->l, x, pass_norm(p, h, &w[ROLE_FFN_POST_NORM]), NULL);
}

static struct tensor block(const struct pass *p, struct tensor x) {
    const struct streams_spec *s = &p->m->spec.streams;
    struct tensor predicted = predict(p, x);
    struct tensor y = correct(p, predicted, layer(p, tensor_slice_heads(predicted, s->active, 1)));
    struct tensor first = tensor_slice_heads(y, s->active, 1);
    if (s->scale) first = op_mulvec(p->l, first, &(struct vec_args){.mul = p->w[ROLE_STREAM_SCALE].w});
    struct tensor rest = op_add(p->l, tensor_slice_heads(y, 1, s->n - 1), repeated(per_layer_input(p, first), s->n - 1), NULL);
    return join(p, tensor_slice_heads(y, 0, 1), rest);
}

const struct stream altup_stream = {.resolve = resolve, .bind = bind, .enter = enter, .block = block, .leave = leave};
