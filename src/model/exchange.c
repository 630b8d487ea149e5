/* A memory by head as a mixer: of what it holds at one key, a part is taken out; then a value comes in at another key. It decays by channel of the key. Every input
 * is a position mixed with the one before, and all numbers that steer the memory are made by two narrow matrices each. Behind the first layer, values are mixed
 * with those of the first. */
#include "model/families.h"
#include "model/recur.h"

#include <math.h>

/* The most that a step forgets: e^(-1/2) in the exponent. */
static const float rate = -0.6065306597126334f;

/* The layer's states: the position before, the memory, the position before of the feed-forward. */
static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct spec *s = r->spec;
    int32_t state;
    yyjson_val *attn = cfg_get(&r->cfg, "attn");
    if (attn && !yyjson_is_null(attn))
        return err_set(err, ERR_EUNSUPPORTED, "%s: attn: layers of attention are not supported here", r->cfg.file->name);
    TRY(cfg_int(&r->cfg, "head_dim", 1, 4096, 64, &s->recur.width, err));
    if (s->hidden % s->recur.width)
        return err_set(err, ERR_EFORMAT, "%s: hidden_size %d is no multiple of head_dim %d", r->cfg.file->name, s->hidden, s->recur.width);
    s->recur.heads = s->hidden / s->recur.width;
    s->recur.out_eps = s->norm.eps * (float)s->recur.width;
    TRY(resolve_state(r, s->hidden, &r->layers[layer].state, err));
    TRY(resolve_state(r, (int64_t)s->hidden * s->recur.width, &state, err));
    return resolve_state(r, s->hidden, &state, err);
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

/* What counts of the position itself; the file has what counts of the one before. */
static int bind_shift(struct loader *l, enum role role, int32_t layer, struct err *err) {
    int32_t n = l->spec->hidden;
    float *share = arena_new(&l->scratch, float, n);
    TRY(loader_values(l, role, layer, "", n, share, err));
    for (int32_t i = 0; i < n; i++) share[i] = 1.0f - share[i];
    return loader_constant(l, "shift", share, n, &loader_slot(l, role, layer)->w, err);
}

/* The rows of the first matrix are as many as the file has. */
static int bind_narrow(struct loader *l, enum role down, enum role up, int32_t layer, struct err *err) {
    struct str path;
    struct tensor_info t;
    if (!loader_find(l, down, layer, &path) || !loader_tensor_values(l, path, -1, &t)) return loader_missing(l, down, layer, err);
    int64_t hidden = l->spec->hidden, rank = t.shape[0];
    TRY(loader_matrix(l, down, layer, rank, hidden, err));
    return loader_matrix(l, up, layer, hidden, rank, err);
}

/* Keys times 1 + (share - 1) * k_a, which is share * k_a + (1 - k_a). */
static int bind_key_share(struct loader *l, int32_t layer, struct err *err) {
    int32_t n = l->spec->hidden;
    struct bound *b = loader_slot(l, ROLE_KEY_SHARE, layer);
    float *mul = arena_new(&l->scratch, float, 2 * n), *add = mul + n;
    TRY(loader_values(l, ROLE_KEY_SHARE, layer, "", n, mul, err));
    for (int32_t i = 0; i < n; i++) add[i] = 1.0f - mul[i];
    float *kept = arena_new(l->arena, float, n); /* the scratch is emptied between weights */
    memcpy(kept, add, (size_t)n * sizeof *kept);
    TRY(loader_constant(l, "keys", mul, n, &b->w, err));
    return loader_constant(l, "keys", kept, n, &b->bias, err);
}

static int bind_own(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    float *values = arena_new(&l->scratch, float, l->spec->hidden);
    TRY(loader_values(l, ROLE_KEY_OWN, layer, "", l->spec->hidden, values, err));
    struct weight_source shape = {.name = "own", .format = {.dtype = DT_F32}, .n_experts = s->heads, .out = 1, .in = s->width};
    return loader_made(l, &shape, values, &loader_slot(l, ROLE_KEY_OWN, layer)->w, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    static const enum role shifts[] = {ROLE_SHIFT_R, ROLE_SHIFT_W, ROLE_SHIFT_K, ROLE_SHIFT_V, ROLE_SHIFT_A, ROLE_SHIFT_G},
                           squares[] = {ROLE_WKV_R, ROLE_WKV_K, ROLE_WKV_V, ROLE_MIX_OUT};
    int64_t hidden = l->spec->hidden;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) TRY(bind_shift(l, shifts[i], layer, err));
    for (size_t i = 0; i < sizeof squares / sizeof *squares; i++) TRY(loader_matrix(l, squares[i], layer, hidden, hidden, err));
    TRY(bind_narrow(l, ROLE_RATE_DOWN, ROLE_RATE_UP, layer, err));
    TRY(bind_narrow(l, ROLE_SHARE_DOWN, ROLE_SHARE_UP, layer, err));
    TRY(bind_narrow(l, ROLE_DELTA_Z_DOWN, ROLE_DELTA_Z_UP, layer, err));
    if (layer > 0) TRY(bind_narrow(l, ROLE_FIRST_DOWN, ROLE_FIRST_UP, layer, err));
    TRY(loader_vector(l, ROLE_KEY_AT, layer, hidden, true, err));
    TRY(loader_vector(l, ROLE_MIX_OUT_NORM, layer, hidden, true, err));
    TRY(bind_key_share(l, layer, err));
    return bind_own(l, layer, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static const struct act_args plain = {.kind = ACT_NONE, .scale = 1.0f}, sigmoid = {.kind = ACT_SIGMOID, .scale = 1.0f},
                             tanh_act = {.kind = ACT_TANH, .scale = 1.0f};

/* Wide: all of these go into the memory, or steer it. */
static struct tensor narrow(const struct pass *p, struct tensor x, enum role down, enum role up, const struct act_args *between) {
    x = pass_linear_wide(p, x, down);
    return pass_linear_wide(p, between ? op_act(p->l, x, between) : x, up);
}

/* Of length 1, head by head. */
static struct tensor unit(const struct pass *p, struct tensor x) {
    const struct recur_spec *s = &p->m->spec.recur;
    return op_norm(p->l, tensor_split_heads(x, s->heads),
                   &(struct norm_args){.weight = p->m->weights.global[ROLE_UNIT].w, .kind = NORM_RMS, .eps = 1e-14f / (float)s->width});
}

static struct tensor values_of(const struct pass *p, struct tensor x) {
    struct tensor v = pass_linear_wide(p, x, ROLE_WKV_V);
    if (!p->w[ROLE_FIRST_DOWN].w) return *p->beside = v;
    struct tensor share = op_act(p->l, narrow(p, x, ROLE_FIRST_DOWN, ROLE_FIRST_UP, NULL), &sigmoid);
    struct tensor change = op_add(p->l, *p->beside, v, &(struct add_args){1.0f, -1.0f});
    return op_add(p->l, v, op_glu(p->l, change, share, &plain), NULL);
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct recur_spec *t = &p->m->spec.recur;
    struct shifted s = recur_shift(p, x, 0);
    struct tensor r = pass_linear_wide(p, recur_mixed(p, s, ROLE_SHIFT_R), ROLE_WKV_R);
    struct tensor w = narrow(p, recur_mixed(p, s, ROLE_SHIFT_W), ROLE_RATE_DOWN, ROLE_RATE_UP, &tanh_act);
    struct tensor k = pass_linear_wide(p, recur_mixed(p, s, ROLE_SHIFT_K), ROLE_WKV_K);
    struct tensor v = tensor_split_heads(values_of(p, recur_mixed(p, s, ROLE_SHIFT_V)), t->heads);
    struct tensor share = op_act(p->l, narrow(p, recur_mixed(p, s, ROLE_SHIFT_A), ROLE_SHARE_DOWN, ROLE_SHARE_UP, NULL), &sigmoid);
    struct tensor gate = narrow(p, recur_mixed(p, s, ROLE_SHIFT_G), ROLE_DELTA_Z_DOWN, ROLE_DELTA_Z_UP, &sigmoid);
    struct tensor at = unit(p, op_mulvec(p->l, k, &(struct vec_args){.mul = p->w[ROLE_KEY_AT].w}));
    k = op_glu(p->l, k, op_mulvec(p->l, share, &(struct vec_args){p->w[ROLE_KEY_SHARE].w, p->w[ROLE_KEY_SHARE].bias}), &plain);
    const struct tensor in[] = {tensor_split_heads(r, t->heads),    tensor_split_heads(w, t->heads), tensor_split_heads(k, t->heads), v, at,
                                tensor_split_heads(share, t->heads)};
    struct tensor y = op_exchange(p->l, in, &(struct exchange_args){.rate = rate, .state = p->layer->state + 1});
    const struct bound *norm = &p->w[ROLE_MIX_OUT_NORM];
    y = op_norm(p->l, y, &(struct norm_args){.weight = norm->w, .bias = norm->bias, .kind = NORM_LAYER, .eps = t->out_eps, .per_head = 1});
    struct tensor own =
        op_head_linear(p->l, op_glu(p->l, in[0], in[2], &plain), &(struct linear_args){.weight = p->w[ROLE_KEY_OWN].w, .wide = 1});
    y = tensor_join_heads(op_add(p->l, y, op_glu(p->l, v, own, &plain), NULL));
    return pass_linear(p, op_glu(p->l, y, gate, &plain), ROLE_MIX_OUT);
}

const struct mixer exchange_mixer = {.name = "memory with exchange", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};

/* ---- the stream: the feed-forward reads mixed positions, too ------------------------------------------------------- */

static int bind_stream(struct loader *l, int32_t layer, struct err *err) {
    int32_t n = l->spec->recur.width;
    if (layer >= 0) return bind_shift(l, ROLE_FFN_SHIFT_K, layer, err);
    TRY(recur_shift_bind(l, layer, err));
    float *unit = arena_new(&l->scratch, float, n);
    for (int32_t i = 0; i < n; i++) unit[i] = 1.0f / (float)sqrt((double)n);
    return loader_constant(l, "unit", unit, n, &loader_slot(l, ROLE_UNIT, -1)->w, err);
}

static struct tensor block(const struct pass *p, struct tensor x) {
    x = op_add(p->l, x, pass_mix(p, pass_norm(p, x, &p->w[ROLE_MIX_NORM])), NULL);
    struct shifted s = recur_shift(p, pass_norm(p, x, &p->w[ROLE_FFN_NORM]), 2);
    return op_add(p->l, x, feed_forward(p, recur_mixed(p, s, ROLE_FFN_SHIFT_K)), NULL);
}

const struct stream exchange_stream = {.bind = bind_stream, .block = block};
