/* A memory with exponential gates as a mixer (mLSTM): queries read what keys and values wrote, divided by what the keys add up to. */
#include "model/families.h"
#include "model/recur.h"

#include <math.h>

/* Part of the stream's width, as a whole number of heads. */
static int width_of(const struct resolver *r, const char *key, double usual, int32_t *out, struct err *err) {
    const struct spec *s = r->spec;
    float factor;
    TRY(cfg_num(&r->cfg, key, usual, &factor, err));
    double n = (double)factor * s->hidden;
    if (!(n >= 1 && n < 1 << 20) || (int32_t)n % s->recur.heads)
        return err_set(err, ERR_EFORMAT, "%s: %s %g of hidden_size %d does not divide by num_heads %d", r->cfg.file->name, key,
                       (double)factor, s->hidden, s->recur.heads);
    *out = (int32_t)n / s->recur.heads;
    return ERR_OK;
}

/* The feed-forward is so many times as wide as the stream, rounded up. */
static int resolve_inner(struct resolver *r, int32_t *out, struct err *err) {
    float factor;
    int32_t multiple;
    TRY(cfg_num(&r->cfg, "ffn_proj_factor", 2.667, &factor, err));
    TRY(cfg_int(&r->cfg, "ffn_round_up_to_multiple_of", 1, 1 << 20, 64, &multiple, err));
    double n = floor(((double)factor * r->spec->hidden + multiple - 1) / multiple) * multiple;
    if (!(n >= 1 && n < 1 << 24))
        return err_set(err, ERR_EFORMAT, "%s: ffn_proj_factor %g is out of range", r->cfg.file->name, (double)factor);
    *out = (int32_t)n;
    return ERR_OK;
}

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct recur_spec *s = &r->spec->recur;
    TRY(cfg_need(&r->cfg, "num_heads", 1, 65536, &s->heads, err));
    TRY(width_of(r, "qk_dim_factor", 0.5, &s->k_width, err));
    TRY(width_of(r, "v_dim_factor", 1.0, &s->width, err));
    s->inner = s->heads * s->width;
    TRY(cfg_num(&r->cfg, "gate_soft_cap", 15.0, &s->gate_cap, err));
    TRY(cfg_num(&r->cfg, "eps", 1e-6, &s->out_eps, err));
    TRY(resolve_inner(r, &r->layers[layer].inner, err));
    return resolve_state(r, (int64_t)s->heads * s->k_width * (s->width + 1) + s->heads, &r->layers[layer].state, err);
}

/* Rows [from, from + n) of a tensor of `of` rows that has several, or a tensor of its own. */
struct piece {
    enum role own, fused;
    int64_t from, n, of;
};

static int bind_piece(struct loader *l, int32_t layer, const struct piece *x, struct err *err) {
    int64_t hidden = l->spec->hidden;
    if (!loader_has(l, x->fused, layer)) return loader_matrix(l, x->own, layer, x->n, hidden, err);
    struct stack_part part = {.role = x->fused, .out = x->n, .from = x->from, .of = x->of, .as = x->own};
    return loader_assemble(l, &(struct matrix_args){.into = x->own, .layer = layer, .parts = &part, .n_parts = 1, .in = hidden}, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    const struct recur_spec *s = &l->spec->recur;
    int64_t k = (int64_t)s->heads * s->k_width, v = s->inner, all = 2 * k + 2 * v, gates = 2 * (int64_t)s->heads;
    const struct piece pieces[] = {
        {ROLE_DELTA_Q, ROLE_DELTA_QKVZ, 0, k, all},        {ROLE_DELTA_K, ROLE_DELTA_QKVZ, k, k, all},
        {ROLE_DELTA_V, ROLE_DELTA_QKVZ, 2 * k, v, all},    {ROLE_DELTA_Z, ROLE_DELTA_QKVZ, 2 * k + v, v, all},
        {ROLE_DELTA_B, ROLE_DELTA_BA, 0, s->heads, gates}, {ROLE_DELTA_A, ROLE_DELTA_BA, s->heads, s->heads, gates}};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) TRY(bind_piece(l, layer, &pieces[i], err));
    TRY(loader_vector(l, ROLE_MIX_OUT_NORM, layer, s->inner, true, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, l->spec->hidden, s->inner, err);
}

static struct tensor gate(const struct pass *p, struct tensor x, enum role role) {
    float cap = p->m->spec.recur.gate_cap;
    x = pass_linear_wide(p, x, role);
    return cap > 0 ? op_act(p->l, x, &(struct act_args){.kind = ACT_SOFTCAP, .scale = 1.0f, .p = {cap}}) : x;
}

static struct tensor heads_of(const struct pass *p, struct tensor x, enum role role) {
    return tensor_split_heads(pass_linear_wide(p, x, role), p->m->spec.recur.heads);
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct recur_spec *s = &p->m->spec.recur;
    struct mlstm_args args = {.scale = 1.0f / (float)sqrt((double)s->k_width), .eps = s->out_eps, .state = p->layer->state};
    struct tensor q = heads_of(p, x, ROLE_DELTA_Q), k = heads_of(p, x, ROLE_DELTA_K), v = heads_of(p, x, ROLE_DELTA_V);
    struct tensor in = gate(p, x, ROLE_DELTA_B), forget = gate(p, x, ROLE_DELTA_A);
    struct tensor y = op_mlstm(p->l, q, k, v, in, forget, &args);
    const struct bound *norm = &p->w[ROLE_MIX_OUT_NORM];
    y = op_norm(p->l, y,
                &(struct norm_args){.weight = norm->w, .bias = norm->bias, .kind = NORM_LAYER, .eps = p->m->spec.norm.eps, .per_head = 1});
    struct tensor out = pass_linear(p, x, ROLE_DELTA_Z);
    return pass_linear(p, op_glu(p->l, out, tensor_join_heads(y), &(struct act_args){.kind = ACT_SIGMOID, .scale = 1.0f}), ROLE_MIX_OUT);
}

const struct mixer mlstm_mixer = {.name = "gated memory", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};
