/* The residual stream of models whose layers have attention and a state space side by side, each with fixed factors on
 * what goes in and what comes out. A file converted for MLX has most factors in its weights already. */
#include "model/families.h"
#include "model/recur.h"

static int resolve_list(const struct cfg *c, const char *key, int32_t n, float *out, struct err *err) {
    yyjson_val *list = cfg_get(c, key);
    for (int32_t i = 0; i < n; i++) out[i] = 1.0f;
    if (!list || yyjson_is_null(list)) return ERR_OK;
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) != (size_t)n)
        return err_set(err, ERR_EFORMAT, "%s: %s must be a list of %d numbers", c->file->name, key, n);
    for (int32_t i = 0; i < n; i++) out[i] = (float)yyjson_get_num(yyjson_arr_get(list, (size_t)i));
    return ERR_OK;
}

static int resolve(struct resolver *r, struct err *err) {
    struct spec *s = r->spec;
    struct hybrid_spec *h = &s->hybrid;
    const struct cfg *c = &r->cfg;
    float key;
    TRY(cfg_num(c, "key_multiplier", 1.0, &key, err));
    TRY(cfg_num(c, "attention_in_multiplier", 1.0, &h->attn_in, err));
    TRY(cfg_num(c, "attention_out_multiplier", 1.0, &h->attn_out, err));
    TRY(cfg_num(c, "ssm_in_multiplier", 1.0, &h->ssm_in, err));
    TRY(cfg_num(c, "ssm_out_multiplier", 1.0, &h->ssm_out, err));
    TRY(resolve_list(c, "mlp_multipliers", 2, h->ffn, err));
    TRY(resolve_list(c, "ssm_multipliers", 5, h->ssm, err));
    for (int32_t i = 0; i < s->n_layers; i++) {
        r->layers[i].attn.scale *= key; /* keys count in the scores alone */
        r->layer = i;
        TRY(ssd_mixer.resolve(r, i, err));
    }
    return ERR_OK;
}

/* The factor of every row of the state space's input projection, as one vector. */
static int bind_factors(struct loader *l, int32_t layer, struct err *err) {
    const struct hybrid_spec *h = &l->spec->hybrid;
    const struct recur_spec *s = &l->spec->recur;
    int32_t states = s->groups * s->state_width, runs[] = {s->inner, s->inner, states, states, s->heads}, n = 0;
    float *factors = arena_new(&l->scratch, float, 2 * s->inner + 2 * states + s->heads);
    bool any = false;
    for (int32_t i = 0; i < 5; i++) {
        for (int32_t k = 0; k < runs[i]; k++) factors[n++] = h->ssm[i];
        any |= h->ssm[i] != 1.0f;
    }
    return any ? loader_constant(l, "factors", factors, n, &loader_slot(l, ROLE_MIX_IN_SCALE, layer)->w, err) : ERR_OK;
}

static int settle(struct loader *l, struct spec *spec, struct err *err) {
    (void)err;
    if (!recur_conv_is_mlx(l, 0)) return ERR_OK;
    spec->hybrid = (struct hybrid_spec){.attn_in = 1, .attn_out = 1, .ssm_in = 1, .ssm_out = 1, .ffn = {1, 1}, .ssm = {1, 1, 1, 1, 1}};
    if (spec->tied) spec->logit_scale /= spec->embed_scale; /* the shared table holds the embedding's factor */
    else spec->logit_scale = 1.0f;
    spec->embed_scale = 1.0f;
    return ERR_OK;
}

static int bind(struct loader *l, int32_t layer, struct err *err) {
    if (layer < 0) return ERR_OK;
    TRY(bind_factors(l, layer, err));
    return loader_bind_mixer(l, &ssd_mixer, layer, err);
}

static struct tensor scaled(const struct pass *p, struct tensor x, float scale) {
    return scale == 1.0f ? x : op_act(p->l, x, &(struct act_args){.kind = ACT_NONE, .scale = scale});
}

static struct tensor gated_ffn(const struct pass *p, struct tensor x) {
    float scale = p->m->spec.hybrid.ffn[0];
    if (scale == 1.0f) return feed_forward(p, x);
    struct tensor gate, up;
    if (!p->w[ROLE_DOWN].w) return pass_sum(p, pass_nothing(p, x));
    if (p->w[ROLE_GATE_UP].w) {
        struct tensor both = pass_linear(p, x, ROLE_GATE_UP);
        gate = tensor_slice(both, 0, both.width / 2);
        up = tensor_slice(both, both.width / 2, both.width / 2);
    } else {
        gate = pass_linear(p, x, ROLE_GATE);
        up = pass_linear(p, x, ROLE_UP);
    }
    return pass_sum(p, pass_linear(p, op_glu(p->l, scaled(p, gate, scale), up, &p->m->spec.act), ROLE_DOWN));
}

static struct tensor block(const struct pass *p, struct tensor x) {
    const struct hybrid_spec *h = &p->m->spec.hybrid;
    struct tensor n = pass_norm(p, x, &p->w[ROLE_MIX_NORM]);
    struct tensor space = pass_mix_part(p, &ssd_mixer, scaled(p, n, h->ssm_in));
    struct tensor attended = pass_mix_part(p, &attention_mixer, scaled(p, n, h->attn_in));
    x = op_add(p->l, x, pass_sum(p, op_add(p->l, space, attended, &(struct add_args){h->ssm_out, h->attn_out})), NULL);
    return op_add(p->l, x, gated_ffn(p, pass_norm(p, x, &p->w[ROLE_FFN_NORM])), &(struct add_args){1.0f, h->ffn[1]});
}

const struct stream hybrid_stream = {.resolve = resolve, .settle = settle, .bind = bind, .block = block};
