/* The gated linear recurrence as a mixer: two branches, one through an activation, the other through a convolution and the recurrence, whose gates are
 * products by head; their product goes out. */
#include "model/families.h"
#include "model/recur.h"

#include "base/fmath.h"

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct recur_spec *s = &r->spec->recur;
    const struct cfg *c = &r->cfg;
    int32_t taps, state;
    TRY(cfg_need(c, "num_attention_heads", 1, 65536, &s->heads, err));
    TRY(cfg_int(c, "lru_width", 1, 1 << 20, r->spec->hidden, &s->inner, err));
    TRY(cfg_int(c, "conv1d_width", 2, 64, 4, &taps, err));
    if (s->inner % s->heads)
        return err_set(err, ERR_EFORMAT, "%s: lru_width %d is no multiple of num_attention_heads %d", c->file->name, s->inner, s->heads);
    TRY(recur_conv_resolve(r, layer, s->inner, taps, err));
    return resolve_state(r, s->inner, &state, err);
}

/* [heads, in, out] in the file, and a bias. */
static int bind_gate(struct loader *l, enum role gate, enum role bias, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    int32_t width = s->inner / s->heads;
    struct stack_part part = {.role = gate, .out = width};
    struct matrix_args a = {
        .into = gate, .layer = layer, .parts = &part, .n_parts = 1, .in = width, .n_experts = s->heads, .is_transposed = true};
    TRY(loader_assemble(l, &a, err));
    return loader_vector(l, bias, layer, s->inner, true, err);
}

/* What multiplies the gate in the exponent. */
static int bind_rate(struct loader *l, int32_t layer, struct err *err) {
    int32_t n = l->spec->recur.inner;
    float *rate = arena_new(&l->scratch, float, n);
    TRY(loader_values(l, ROLE_LRU_RATE, layer, "", n, rate, err));
    for (int32_t i = 0; i < n; i++) rate[i] = rate[i] > 20.0f ? rate[i] : (float)m_log(1.0 + m_exp((double)rate[i]));
    return loader_constant(l, "rate", rate, n, &loader_slot(l, ROLE_LRU_RATE, layer)->w, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    int64_t hidden = l->spec->hidden, inner = l->spec->recur.inner;
    TRY(loader_matrix(l, ROLE_LRU_X, layer, inner, hidden, err));
    TRY(loader_matrix(l, ROLE_LRU_Y, layer, inner, hidden, err));
    TRY(recur_conv_bind(l, layer, inner, err));
    TRY(bind_gate(l, ROLE_LRU_IN_GATE, ROLE_LRU_IN_BIAS, layer, err));
    TRY(bind_gate(l, ROLE_LRU_OWN_GATE, ROLE_LRU_OWN_BIAS, layer, err));
    TRY(bind_rate(l, layer, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, hidden, inner, err);
}

static struct tensor gate(const struct pass *p, struct tensor x, enum role weight, enum role bias) {
    struct tensor y =
        op_head_linear(p->l, tensor_split_heads(x, p->m->spec.recur.heads), &(struct linear_args){.weight = p->w[weight].w, .wide = 1});
    return op_mulvec(p->l, tensor_join_heads(y), &(struct vec_args){.add = p->w[bias].w});
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    struct tensor y = pass_linear(p, x, ROLE_LRU_Y);
    x = recur_conv(p, pass_linear_wide(p, x, ROLE_LRU_X), ACT_NONE);
    struct tensor in = gate(p, x, ROLE_LRU_IN_GATE, ROLE_LRU_IN_BIAS), own = gate(p, x, ROLE_LRU_OWN_GATE, ROLE_LRU_OWN_BIAS);
    x = op_lru(p->l, x, in, own, &(struct lru_args){.rate = p->w[ROLE_LRU_RATE].w, .state = p->layer->state + 1});
    return pass_linear(p, op_glu(p->l, y, x, &p->m->spec.act), ROLE_MIX_OUT);
}

const struct mixer lru_mixer = {.name = "linear recurrence", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};
