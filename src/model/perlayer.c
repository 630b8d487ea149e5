/* The residual stream of models that feed every layer a slice of a second, narrow embedding of the token, and that may
 * have experts beside the dense feed-forward. */
#include "model/perlayer.h"

#include "base/fmath.h"

int per_layer_resolve(struct resolver *r, struct err *err) {
    struct per_layer_spec *s = &r->spec->per_layer;
    TRY(cfg_int(&r->cfg, "hidden_size_per_layer_input", 0, 1 << 16, 0, &s->width, err));
    TRY(cfg_int(&r->cfg, "vocab_size_per_layer_input", 1, 1 << 24, r->spec->vocab, &s->vocab, err));
    s->has_experts = cfg_bool(&r->cfg, "enable_moe_block", false);
    if (cfg_bool(&r->cfg, "use_double_wide_mlp", false))
        for (int32_t i = 0; i < r->spec->n_layers; i++)
            if (r->layers[i].borrows_kv) r->layers[i].inner *= 2;
    return s->has_experts ? resolve_experts(r, err) : ERR_OK;
}

/* ---- binding ------------------------------------------------------------------------------------------------------ */

static int bind_beside(struct loader *l, int32_t layer, struct err *err) {
    int64_t hidden = l->spec->hidden;
    TRY(ffn_bind_experts(l, layer, err));
    TRY(loader_vector(l, ROLE_BESIDE_ROUTER_SCALE, layer, hidden, true, err));
    TRY(loader_vector(l, ROLE_BESIDE_NORM, layer, hidden, true, err));
    TRY(loader_vector(l, ROLE_BESIDE_POST_NORM, layer, hidden, true, err));
    return loader_vector(l, ROLE_DENSE_POST_NORM, layer, hidden, true, err);
}

int per_layer_bind(struct loader *l, int32_t layer, struct err *err) {
    const struct per_layer_spec *s = &l->spec->per_layer;
    int64_t hidden = l->spec->hidden, all = (int64_t)l->spec->n_layers * s->width;
    if (layer >= 0 && s->has_experts) TRY(bind_beside(l, layer, err));
    if (layer >= 0) TRY(loader_vector(l, ROLE_LAYER_SCALE, layer, 1, false, err));
    if (s->width == 0) return ERR_OK;
    if (layer < 0) {
        TRY(loader_matrix(l, ROLE_EMBED_PER_LAYER, -1, s->vocab, all, err));
        TRY(loader_matrix(l, ROLE_PER_LAYER_IN, -1, all, hidden, err));
        return loader_vector(l, ROLE_PER_LAYER_IN_NORM, -1, s->width, true, err);
    }
    TRY(loader_matrix(l, ROLE_PER_LAYER_GATE, layer, s->width, hidden, err));
    TRY(loader_matrix(l, ROLE_PER_LAYER_OUT, layer, hidden, s->width, err));
    return loader_vector(l, ROLE_PER_LAYER_NORM, layer, hidden, true, err);
}

/* ---- forward ------------------------------------------------------------------------------------------------------ */

static struct tensor scaled(const struct pass *p, struct tensor x, double scale) {
    return op_act(p->l, x, &(struct act_args){.kind = ACT_NONE, .scale = (float)scale});
}

struct tensor per_layer_enter(struct pass *p, struct tensor x) {
    const struct spec *s = &p->m->spec;
    const struct bound *g = p->m->weights.global;
    if (s->per_layer.width == 0) return x;
    struct tensor own = pass_embed(p, &g[ROLE_EMBED_PER_LAYER], &(struct embed_args){.scale = (float)sqrt((double)s->per_layer.width)});
    struct tensor seen = scaled(p, op_linear(p->l, x, &(struct linear_args){.weight = g[ROLE_PER_LAYER_IN].w, .wide = s->wide}),
                                1.0 / sqrt((double)s->hidden));
    seen = pass_norm(p, tensor_split_heads(seen, s->n_layers), &g[ROLE_PER_LAYER_IN_NORM]);
    float half = (float)(1.0 / sqrt(2.0));
    p->extra = op_add(p->l, seen, tensor_split_heads(own, s->n_layers), &(struct add_args){half, half});
    return x;
}

struct tensor per_layer_input(const struct pass *p, struct tensor x) {
    struct tensor slice = tensor_slice_heads(p->extra, (int32_t)(p->layer - p->m->spec.layers), 1);
    x = op_glu(p->l, pass_linear(p, x, ROLE_PER_LAYER_GATE), slice, &p->m->spec.act);
    return pass_norm(p, pass_linear(p, x, ROLE_PER_LAYER_OUT), &p->w[ROLE_PER_LAYER_NORM]);
}

/* Dense and routed feed-forward of the same input, each with norms of its own. */
static struct tensor both_ffns(const struct pass *p, struct tensor x) {
    const struct norm_spec *n = &p->m->spec.norm;
    struct tensor dense = pass_norm(p, feed_forward(p, pass_norm(p, x, &p->w[ROLE_FFN_NORM])), &p->w[ROLE_DENSE_POST_NORM]);
    struct tensor routed =
        op_norm(p->l, x, &(struct norm_args){.weight = p->w[ROLE_BESIDE_ROUTER_SCALE].w, .kind = NORM_RMS, .eps = n->eps});
    struct tensor logits = pass_linear(p, scaled(p, routed, 1.0 / sqrt((double)p->m->spec.hidden)), ROLE_ROUTER);
    struct tensor y = pass_experts(p, pass_norm(p, x, &p->w[ROLE_BESIDE_NORM]), logits);
    return op_add(p->l, dense, pass_norm(p, y, &p->w[ROLE_BESIDE_POST_NORM]), NULL);
}

static struct tensor block(const struct pass *p, struct tensor x) {
    const struct bound *w = p->w;
    struct tensor h = pass_mix(p, pass_norm(p, x, &w[ROLE_MIX_NORM]));
    x = op_add(p->l, x, pass_norm(p, h, &w[ROLE_MIX_POST_NORM]), NULL);
    h = p->m->spec.per_layer.has_experts ? both_ffns(p, x) : feed_forward(p, pass_norm(p, x, &w[ROLE_FFN_NORM]));
    x = op_add(p->l, x, pass_norm(p, h, &w[ROLE_FFN_POST_NORM]), NULL);
    if (p->m->spec.per_layer.width) x = op_add(p->l, x, per_layer_input(p, x), NULL);
    return w[ROLE_LAYER_SCALE].w ? op_mulvec(p->l, x, &(struct vec_args){.mul = w[ROLE_LAYER_SCALE].w}) : x;
}

const struct stream per_layer_stream = {.resolve = per_layer_resolve, .bind = per_layer_bind, .enter = per_layer_enter, .block = block};
