/* Linear attention with a decay per head as a mixer, and the residual stream of the models that have it: the norm stands
 * before the residual branches off, and both halves of a sum have factors. */
#include "base/fmath.h"
#include "model/recur.h"

static int resolve(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->layers[layer];
    TRY(resolve_attention(r, layer, err));
    r->spec->recur.heads = l->attn.heads;
    r->spec->recur.width = l->attn.k_width;
    return resolve_state(r, (int64_t)l->attn.heads * l->attn.k_width * l->attn.k_width, &l->state, err);
}

/* Slopes fall geometrically over the heads, and linearly over the layers down to almost nothing. */
static int bind_slopes(struct loader *l, int32_t layer, struct err *err) {
    int32_t heads = l->spec->recur.heads;
    float *slopes = arena_new(&l->scratch, float, heads);
    double base = m_pow(2.0, -8.0 / heads), factor = 1.0 - (double)layer / ((double)(l->spec->n_layers - 1) + 1e-5) + 1e-5;
    for (int32_t h = 0; h < heads; h++) slopes[h] = (float)(m_pow(base, h + 1) * factor);
    return loader_constant(l, "slopes", slopes, heads, &loader_slot(l, ROLE_SLOPES, layer)->w, err);
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    int64_t hidden = l->spec->hidden, inner = (int64_t)l->spec->recur.heads * l->spec->recur.width;
    TRY(loader_matrix(l, ROLE_QKV, layer, 3 * inner, hidden, err));
    TRY(loader_matrix(l, ROLE_MIX_OUT_GATE, layer, inner, hidden, err));
    TRY(loader_vector(l, ROLE_MIX_OUT_NORM, layer, inner, true, err));
    TRY(bind_slopes(l, layer, err));
    return loader_matrix(l, ROLE_MIX_OUT, layer, hidden, inner, err);
}

static struct tensor mix(const struct pass *p, struct tensor x) {
    const struct recur_spec *s = &p->m->spec.recur;
    int32_t width = s->width;
    struct tensor qkv = tensor_split_heads(op_act(p->l, pass_linear(p, x, ROLE_QKV), &p->m->spec.act), s->heads); /* [heads, q | k | v] */
    struct lightning_args args = {.slope = p->w[ROLE_SLOPES].w, .state = p->layer->state, .heads = s->heads, .width = width};
    struct tensor y =
        op_lightning(p->l, tensor_slice(qkv, 0, width), tensor_slice(qkv, width, width), tensor_slice(qkv, 2 * width, width), &args);
    struct norm_args norm = {
        .weight = p->w[ROLE_MIX_OUT_NORM].w, .kind = NORM_RMS, .eps = 1e-6f, .gate = GATE_AFTER, .gate_act = ACT_SIGMOID};
    return pass_linear(p, op_norm_gated(p->l, tensor_join_heads(y), pass_linear(p, x, ROLE_MIX_OUT_GATE), &norm), ROLE_MIX_OUT);
}

const struct mixer lightning_mixer = {.name = "lightning attention", .resolve = resolve, .bind = bind, .mix = mix, .is_recurrent = true};

/* ---- the residual stream ------------------------------------------------------------------------------------------ */

static int resolve_sum(const struct cfg *c, const char *alpha, const char *beta, struct add_args *out, struct err *err) {
    TRY(cfg_num(c, alpha, 1.0, &out->a_scale, err));
    return cfg_num(c, beta, 1.0, &out->b_scale, err);
}

static int stream_resolve(struct resolver *r, struct err *err) {
    struct recur_spec *s = &r->spec->recur;
    TRY(resolve_sum(&r->cfg, "full_attn_alpha_factor", "full_attn_beta_factor", &s->full_sum, err));
    TRY(resolve_sum(&r->cfg, "linear_attn_alpha_factor", "linear_attn_beta_factor", &s->linear_sum, err));
    return resolve_sum(&r->cfg, "mlp_alpha_factor", "mlp_beta_factor", &s->ffn_sum, err);
}

static struct tensor block(const struct pass *p, struct tensor x) {
    const struct recur_spec *s = &p->m->spec.recur;
    x = pass_norm(p, x, &p->w[ROLE_MIX_NORM]);
    x = op_add(p->l, x, pass_mix(p, x), p->layer->mixer == MIX_LIGHTNING ? &s->linear_sum : &s->full_sum);
    x = pass_norm(p, x, &p->w[ROLE_FFN_NORM]);
    return op_add(p->l, x, feed_forward(p, x), &s->ffn_sum);
}

const struct stream lightning_stream = {.resolve = stream_resolve, .block = block};
