/* spec_resolve: one walk over config.json with the family's row beside it. */
#include "model/spec.h"

#include "base/fmath.h"
#include "model/families.h"

static const struct {
    const char *name;
    enum act_kind kind;
} activations[] = {
    {"silu", ACT_SILU},           {"swish", ACT_SILU},         {"gelu", ACT_GELU},      {"gelu_new", ACT_GELU_TANH}, {"gelu_pytorch_tanh", ACT_GELU_TANH},
    {"gelu_fast", ACT_GELU_TANH}, {"relu", ACT_RELU},          {"relu2", ACT_RELU2},    {"xielu", ACT_XIELU},        {"quick_gelu", ACT_NONE},
};

static int resolve_activation(const struct config *config, const struct family *f, struct act_args *out, struct err *err) {
    struct str name = cfg_str(config, "hidden_act", cfg_str(config, "hidden_activation", cfg_str(config, "activation_function", (struct str){0})));
    *out = (struct act_args){.kind = f->act ? f->act : ACT_SILU, .scale = 1.0f};
    if (!name.p) return ERR_OK;
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (str_is(name, activations[i].name) && activations[i].kind) {
            out->kind = activations[i].kind;
            return ERR_OK;
        }
    return err_set(err, ERR_EUNSUPPORTED, "config.json: activation \"%.*s\" is not supported", STR_ARG(name));
}

static int resolve_sizes(const struct config *config, struct spec *s, struct err *err) {
    TRY(cfg_need(config, "hidden_size", 1, 1 << 20, &s->hidden, err));
    TRY(cfg_need(config, "num_hidden_layers", 1, 1024, &s->n_layers, err));
    TRY(cfg_need(config, "vocab_size", 1, 1 << 24, &s->vocab, err));
    TRY(cfg_int(config, "max_position_embeddings", 1, INT32_MAX, 2048, &s->context, err));
    s->norm = (struct norm_spec){.kind = s->family->norm, .weight_offset = s->family->norm_offset};
    TRY(cfg_num(config, "rms_norm_eps", 1e-6, &s->norm.eps, err));
    s->tied = cfg_bool(config, "tie_word_embeddings", s->family->flags & FAM_TIED);
    s->embed_scale = s->logit_scale = s->residual_scale = 1.0f;
    s->wiring = s->family->wiring;
    return resolve_activation(config, s->family, &s->act, err);
}

static int resolve_attention(const struct config *config, struct spec *s, struct attn_spec *a, struct err *err) {
    TRY(cfg_need(config, "num_attention_heads", 1, 65536, &a->heads, err));
    TRY(cfg_int(config, "num_key_value_heads", 1, 65536, a->heads, &a->kv_heads, err));
    TRY(cfg_int(config, "head_dim", 1, 4096, s->hidden / a->heads, &a->k_width, err));
    if (a->heads % a->kv_heads)
        return err_set(err, ERR_EFORMAT, "config.json: num_attention_heads %d is no multiple of num_key_value_heads %d", a->heads, a->kv_heads);
    if (a->k_width % 2) return err_set(err, ERR_EFORMAT, "config.json: head_dim %d is odd", a->k_width);
    a->v_width = a->k_width;
    a->scale = 1.0f / (float)sqrt((double)a->k_width);
    a->qk_norm = s->family->qk_norm;
    return ERR_OK;
}

static int resolve_rope(struct arena *a, const struct config *config, struct spec *s, int32_t head_dim, struct err *err) {
    struct rope_spec *r = &s->ropes[0];
    struct config_rope params;
    TRY(config_rope(config, NULL, 10000.0, &params, err));
    r->kind = s->family->rope ? s->family->rope : ROPE_HALF;
    TRY(rope_resolve(a, config, &params, head_dim, r, err));
    s->n_ropes = 1;
    if (r->scaling == SCALE_DYNAMIC || r->scaling == SCALE_LONGROPE) r->table = s->n_rope_tables++;
    return ERR_OK;
}

/* The class of a layer's keys and values, made when it is new. */
static int place_kv(struct spec *s, struct layer_spec *l, struct err *err) {
    const struct attn_spec *a = &l->attn;
    struct kv_class want = {.heads = a->kv_heads, .k_width = a->k_width, .v_width = a->v_width, .window = a->window};
    for (int32_t i = 0; i < s->kv.n_classes; i++) {
        struct kv_class *k = &s->kv.classes[i];
        if (k->heads == want.heads && k->k_width == want.k_width && k->v_width == want.v_width && k->window == want.window) {
            l->kv = (struct kv_ref){i, k->n_layers++};
            return ERR_OK;
        }
    }
    if (s->kv.n_classes == KV_CLASSES_MAX) return err_set(err, ERR_EUNSUPPORTED, "the model has more than %d kinds of KV cache", KV_CLASSES_MAX);
    l->kv = (struct kv_ref){s->kv.n_classes, 0};
    want.n_layers = 1;
    s->kv.classes[s->kv.n_classes++] = want;
    return ERR_OK;
}

int spec_resolve(struct arena *a, const struct config *config, struct spec *out, struct err *err) {
    *out = (struct spec){0};
    if (!config->text_type.p) return err_set(err, ERR_EFORMAT, "%s: model_type is missing", config->name);
    out->family = family_find(config->text_type, err);
    if (!out->family) return err->code;
    TRY(resolve_sizes(config, out, err));
    struct attn_spec attn = {0};
    int32_t inner;
    TRY(resolve_attention(config, out, &attn, err));
    TRY(resolve_rope(a, config, out, attn.k_width, err));
    TRY(cfg_need(config, "intermediate_size", 1, 1 << 24, &inner, err));
    out->layers = arena_new(a, struct layer_spec, out->n_layers);
    for (int32_t i = 0; i < out->n_layers; i++) {
        out->layers[i] = (struct layer_spec){.mixer = MIX_ATTENTION, .ffn = out->family->ffn, .attn = attn, .inner = inner};
        TRY(place_kv(out, &out->layers[i], err));
    }
    return ERR_OK;
}
