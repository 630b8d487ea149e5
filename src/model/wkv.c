/* The weighed mean of all values so far as a mixer, and a feed-forward with a gate; both read each position mixed with the one before, channel by channel.
 *
 * The reference halves its stream every rescale_every layers, and the matrices that add to it. That changes nothing but the eps of the norms, which stand here as
 * those of the whole stream. */
#include "base/fmath.h"
#include "model/families.h"
#include "model/recur.h"

/* The layer's states: the position before, the sums, the position before of the feed-forward. */
static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct spec *s = r->spec;
    int32_t state, period;
    TRY(cfg_int(&r->cfg, "attention_hidden_size", 1, 1 << 20, s->hidden, &s->recur.inner, err));
    TRY(cfg_int(&r->cfg, "intermediate_size", 1, 1 << 24, (int64_t)s->hidden * 4, &r->layers[layer].inner, err));
    TRY(cfg_int(&r->cfg, "rescale_every", INT32_MIN, 1 << 20, 0, &period, err));
    s->recur.rescale_every = period > 0 ? period : 0;
    TRY(resolve_state(r, s->hidden, &r->layers[layer].state, err));
    TRY(resolve_state(r, 3 * (int64_t)s->recur.inner, &state, err));
    return resolve_state(r, s->hidden, &state, err);
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

static int bind_rate(struct loader *l, int32_t layer, struct err *err) {
    int32_t n = l->spec->recur.inner;
    float *rate = arena_new(&l->scratch, float, n);
    TRY(loader_values(l, ROLE_WKV_RATE, layer, "", n, rate, err));
    for (int32_t i = 0; i < n; i++) rate[i] = m_expf(rate[i]);
    return loader_constant(l, "rate", rate, n, &loader_slot(l, ROLE_WKV_RATE, layer)->w, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    static const enum role shifts[] = {ROLE_SHIFT_K, ROLE_SHIFT_V, ROLE_SHIFT_R};
    int64_t hidden = l->spec->hidden, inner = l->spec->recur.inner;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) TRY(loader_vector(l, shifts[i], layer, hidden, true, err));
    TRY(bind_rate(l, layer, err));
    TRY(loader_vector(l, ROLE_WKV_FIRST, layer, inner, true, err));
    TRY(loader_matrix(l, ROLE_WKV_K, layer, inner, hidden, err));
    TRY(loader_matrix(l, ROLE_WKV_V, layer, inner, hidden, err));
    TRY(loader_matrix(l, ROLE_WKV_R, layer, inner, hidden, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, hidden, inner, err);
}

/* The feed-forward. */
static int bind_stream(struct loader *l, int32_t layer, struct err *err) {
    static const enum role shifts[] = {ROLE_FFN_SHIFT_K, ROLE_FFN_SHIFT_R, ROLE_FFN_NORM};
    if (layer < 0) return recur_shift_bind(l, layer, err);
    int64_t hidden = l->spec->hidden, wide = l->spec->layers[layer].inner;
    for (size_t i = 0; i < sizeof shifts / sizeof *shifts; i++) TRY(loader_vector(l, shifts[i], layer, hidden, true, err));
    TRY(loader_matrix(l, ROLE_UP, layer, wide, hidden, err));
    TRY(loader_matrix(l, ROLE_FFN_RECEPTANCE, layer, hidden, hidden, err));
    return loader_matrix(l, ROLE_DOWN, layer, hidden, wide, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static const struct act_args sigmoid = {.kind = ACT_SIGMOID, .scale = 1.0f};

static struct tensor mix(const struct pass *p, struct tensor x) {
    struct shifted s = recur_shift(p, x, 0);
    struct tensor k = pass_linear_wide(p, recur_mixed(p, s, ROLE_SHIFT_K), ROLE_WKV_K),
                  v = pass_linear(p, recur_mixed(p, s, ROLE_SHIFT_V), ROLE_WKV_V);
    struct tensor r = pass_linear(p, recur_mixed(p, s, ROLE_SHIFT_R), ROLE_WKV_R);
    struct wkv_args args = {.rate = p->w[ROLE_WKV_RATE].w, .first = p->w[ROLE_WKV_FIRST].w, .state = p->layer->state + 1};
    return pass_linear(p, op_glu(p->l, r, op_wkv(p->l, k, v, &args), &sigmoid), ROLE_MIX_OUT);
}

const struct mixer wkv_mixer = {.name = "weighed mean", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};

static struct tensor gated_ffn(const struct pass *p, struct tensor x) {
    struct shifted s = recur_shift(p, x, 2);
    struct tensor in = recur_mixed(p, s, ROLE_FFN_SHIFT_K), k;
    if (p->w[ROLE_DOWN].w) {
        k = op_act(p->l, pass_linear_wide(p, in, ROLE_UP), &(struct act_args){.kind = ACT_RELU2, .scale = 1.0f});
        k = pass_linear(p, k, ROLE_DOWN);
    } else {
        k = pass_nothing(p, in);
    }
    k = pass_sum(p, k);
    return op_glu(p->l, pass_linear(p, recur_mixed(p, s, ROLE_FFN_SHIFT_R), ROLE_FFN_RECEPTANCE), k, &sigmoid);
}

/* How often the reference has halved its stream before a layer. */
static int32_t halvings(const struct spec *s, int64_t layer) {
    return s->recur.rescale_every ? (int32_t)(layer / s->recur.rescale_every) : 0;
}

static struct tensor norm(const struct pass *p, struct tensor x, enum role role) {
    const struct spec *s = &p->m->spec;
    float eps = ldexpf(s->norm.eps, 2 * halvings(s, p->layer - s->layers));
    return op_norm(p->l, x, &(struct norm_args){.weight = p->w[role].w, .bias = p->w[role].bias, .kind = NORM_LAYER, .eps = eps});
}

static struct tensor block(const struct pass *p, struct tensor x) {
    x = op_add(p->l, x, pass_mix(p, norm(p, x, ROLE_MIX_NORM)), NULL);
    return op_add(p->l, x, gated_ffn(p, norm(p, x, ROLE_FFN_NORM)), NULL);
}

static struct tensor leave(const struct pass *p, struct tensor x) {
    int32_t n = halvings(&p->m->spec, p->m->spec.n_layers);
    return n ? op_act(p->l, x, &(struct act_args){.kind = ACT_NONE, .scale = ldexpf(1.0f, -n)}) : x;
}

const struct stream wkv_stream = {.bind = bind_stream, .block = block, .leave = leave};
