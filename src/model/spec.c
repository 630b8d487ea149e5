/* spec_resolve: one walk over config.json with the family's row beside it. */
#include "model/spec.h"

#include "base/fmath.h"
#include "model/families.h"
#include "model/mixer.h"

/* ---- activations -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    enum act_kind kind;
} activations[] = {
    {"silu", ACT_SILU},           {"swish", ACT_SILU},
    {"gelu", ACT_GELU},           {"gelu_python", ACT_GELU},
    {"gelu_new", ACT_GELU_TANH},  {"gelu_pytorch_tanh", ACT_GELU_TANH},
    {"gelu_fast", ACT_GELU_TANH}, {"gelu_accurate", ACT_GELU_TANH},
    {"relu", ACT_RELU},           {"relu2", ACT_RELU2},
    {"xielu", ACT_XIELU},
};

int resolve_activation(struct str name, enum act_kind *out, struct err *err) {
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
        if (str_is(name, activations[i].name)) {
            *out = activations[i].kind;
            return ERR_OK;
        }
    return err_set(err, ERR_EUNSUPPORTED, "config.json: activation \"%.*s\" is not supported", STR_ARG(name));
}

/* hidden_activation is the newer name; files that have both keep the older for old programs. */
static int resolve_act(const struct resolver *r, struct act_args *out, struct err *err) {
    struct str name = cfg_str(&r->cfg, "hidden_activation", cfg_str(&r->cfg, "hidden_act", (struct str){0}));
    *out = (struct act_args){.kind = r->family->act ? r->family->act : ACT_SILU, .scale = 1.0f};
    if (out->kind == ACT_CLAMPED_SWIGLU) {
        out->p[0] = 1.702f;
        return cfg_num(&r->cfg, "swiglu_limit", 7.0, &out->p[1], err);
    }
    return name.p ? resolve_activation(name, &out->kind, err) : ERR_OK;
}

/* ---- the model as a whole ----------------------------------------------------------------------------------------- */

static int resolve_norm(const struct resolver *r, struct norm_spec *out, struct err *err) {
    static const char *const keys[] = {"rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"};
    const struct norm_row *row = &r->family->norm;
    *out = (struct norm_spec){
        .kind = row->kind, .weight_offset = row->offset, .no_weight = row->no_weight, .eps = row->eps > 0 ? row->eps : 1e-6f};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (cfg_get(&r->cfg, keys[i])) {
            TRY(cfg_num(&r->cfg, keys[i], 0, &out->eps, err));
            break;
        }
    return out->eps >= 0 ? ERR_OK : err_set(err, ERR_EFORMAT, "%s: the norm's epsilon is negative", r->cfg.file->name);
}

static int resolve_scales(const struct resolver *r, struct spec *s, struct err *err) {
    float divisor;
    TRY(cfg_num(&r->cfg, "embedding_multiplier", r->family->flags & FAM_EMBED_SCALE ? sqrt((double)s->hidden) : 1.0, &s->embed_scale, err));
    TRY(cfg_num(&r->cfg, "residual_multiplier", 1.0, &s->residual_scale, err));
    TRY(cfg_num(&r->cfg, "final_logit_softcapping", 0, &s->logit_softcap, err));
    TRY(cfg_num(&r->cfg, "logit_scale", 1.0, &s->logit_scale, err));
    TRY(cfg_num(&r->cfg, "logits_scaling", 1.0, &divisor, err));
    if (divisor == 0) return err_set(err, ERR_EFORMAT, "%s: logits_scaling is 0", r->cfg.file->name);
    s->logit_scale /= divisor;
    return ERR_OK;
}

/* Files that list their layers may leave the count out. */
static int resolve_depth(const struct cfg *c, int32_t *out, struct err *err) {
    yyjson_val *types = cfg_get(c, "layer_types");
    if (cfg_get(c, "num_hidden_layers") || !yyjson_is_arr(types)) return cfg_need(c, "num_hidden_layers", 1, 1024, out, err);
    *out = (int32_t)yyjson_arr_size(types);
    return *out > 0 && *out <= 1024 ? ERR_OK
                                    : err_set(err, ERR_EFORMAT, "%s: %s has %d entries", c->file->name, cfg_key(c, "layer_types"), *out);
}

/* A switch; or, in newer files, where: "all", or only between the parts of an image ("vision"). */
static int check_causal(const struct cfg *c, struct err *err) {
    const char *key = "use_bidirectional_attention";
    if (!cfg_bool(c, key, false) && !str_is(cfg_str(c, key, STR("")), "all")) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: %s is set: it is an encoder, and does not write text", c->file->name, key);
}

static int resolve_sizes(const struct resolver *r, struct spec *s, struct err *err) {
    const struct cfg *c = &r->cfg;
    TRY(check_causal(c, err));
    TRY(cfg_need(c, "hidden_size", 1, 1 << 20, &s->hidden, err));
    TRY(resolve_depth(c, &s->n_layers, err));
    TRY(cfg_need(c, "vocab_size", 1, 1 << 24, &s->vocab, err));
    TRY(cfg_int(c, "max_position_embeddings", 1, INT32_MAX, 2048, &s->context, err));
    const char *tie = cfg_get(c, "tie_embedding") ? "tie_embedding" : "tie_word_embeddings"; /* the former is a dialect's, and counts */
    s->tied = cfg_bool(c, tie, r->family->flags & FAM_TIED);
    s->untied = cfg_get(c, tie) && !s->tied;
    s->wiring = r->family->wiring;
    if (cfg_get(c, "use_parallel_residual")) {
        if (!cfg_bool(c, "use_parallel_residual", true)) s->wiring = WIRE_PRE;
        else if (s->wiring == WIRE_PRE) s->wiring = WIRE_PARALLEL;
    }
    TRY(resolve_norm(r, &s->norm, err));
    TRY(resolve_scales(r, s, err));
    return resolve_act(r, &s->act, err);
}

/* ---- which layer is what ------------------------------------------------------------------------------------------ */

/* The letter of the family's pattern that is one of (or none of) `letters`. */
static char letter_among(const char *pattern, const char *letters, bool among, char absent) {
    for (; *pattern; pattern++)
        if ((strchr(letters, *pattern) != NULL) == among) return *pattern;
    return absent;
}

/* A name of layer_types as a letter: what the name leaves open, the family's pattern says. */
static int letter_of(const struct resolver *r, struct str type, char *out, struct err *err) {
    const char *pattern = r->family->pattern ? r->family->pattern : "F";
    if (str_is(type, "full_attention") || str_is(type, "attention")) *out = letter_among(pattern, "FLH", true, 'F');
    else if (str_is(type, "sliding_attention")) *out = 'S';
    else if (str_is(type, "chunked_attention")) *out = 'C';
    else if (str_is(type, "linear_attention") || (r->family->recur.layer_type && str_is(type, r->family->recur.layer_type)))
        *out = letter_among(pattern, "FSCLH-", false, 0);
    else if (str_is(type, "mlp")) *out = '-';
    else if (str_is(type, "moe")) *out = 'E';
    else *out = 0;
    if (*out) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: layer type \"%.*s\" is not supported", r->cfg.file->name, STR_ARG(type));
}

/* sliding_window_pattern: every nth layer is a full one; or letters, L for local and G for global. */
static char letter_by_period(const struct cfg *c, int32_t layer, char usual) {
    yyjson_val *v = cfg_get(c, "sliding_window_pattern");
    int64_t n;
    struct str s = json_val_str(v);
    if (json_val_int(v, &n) && n > 0) return (layer + 1) % n ? 'S' : 'F';
    if (s.n) return s.p[(size_t)layer % s.n] == 'L' ? 'S' : 'F';
    return usual;
}

/* Hybrid models without layer_types: a string of letters, a period, or a list of the layers with attention. */
static char letter_of_hybrid(const struct resolver *r, int32_t layer, char usual) {
    const struct cfg *c = &r->cfg;
    const char *pattern = r->family->pattern ? r->family->pattern : "F";
    char recurrent = letter_among(pattern, "FSCLH-E", false, 0);
    struct str letters = json_val_str(cfg_get(c, "hybrid_override_pattern"));
    int64_t period, offset = 0;
    if (!recurrent) return usual;
    if ((size_t)layer < letters.n) return letters.p[layer] == '*' ? 'F' : letters.p[layer];
    if (yyjson_is_arr(cfg_get(c, "full_attn_idxs"))) return cfg_list_has(c, "full_attn_idxs", layer) ? 'F' : recurrent;
    if (json_val_int(cfg_get(c, "full_attention_interval"), &period) && period > 0) return (layer + 1) % period ? recurrent : 'F';
    if (!json_val_int(cfg_get(c, "attn_layer_period"), &period) || period < 1) return usual;
    json_val_int(cfg_get(c, "attn_layer_offset"), &offset);
    return layer % period == offset ? 'F' : recurrent;
}

static int resolve_kinds(struct resolver *r, struct err *err) {
    struct spec *s = r->spec;
    const char *pattern = r->family->pattern ? r->family->pattern : "F";
    yyjson_val *types;
    int32_t first_window = INT32_MAX, window;
    TRY(cfg_int(&r->cfg, "sliding_window", 0, INT32_MAX, 0, &window, err));
    TRY(cfg_list(&r->cfg, "layer_types", s->n_layers, &types, err));
    if (cfg_bool(&r->cfg, "use_sliding_window", false)) TRY(cfg_int(&r->cfg, "max_window_layers", 0, 1 << 20, 28, &first_window, err));
    for (int32_t i = 0; i < s->n_layers; i++) {
        struct layer_spec *l = &s->layers[i];
        l->kind = letter_by_period(&r->cfg, i, i >= first_window ? 'S' : pattern[(size_t)i % strlen(pattern)]);
        l->kind = letter_of_hybrid(r, i, l->kind);
        if (types) TRY(letter_of(r, json_val_str(yyjson_arr_get(types, (size_t)i)), &l->kind, err));
        if (l->kind == 'S' && window == 0) l->kind = 'F';
        l->mixer = mixer_of(l->kind);
        if (l->mixer == N_MIXERS || !mixer_table[l->mixer])
            return err_set(err, ERR_EUNSUPPORTED, "%s: layer %d is of kind '%c', which is not supported", r->cfg.file->name, i, l->kind);
        if (r->family->flags & FAM_ONE_HALF && l->mixer != MIX_NONE) l->ffn = FFN_NONE;
    }
    return ERR_OK;
}

/* ---- attention ---------------------------------------------------------------------------------------------------- */

static bool has_windows(const struct resolver *r) {
    for (int32_t i = 0; i < r->spec->n_layers; i++)
        if (r->spec->layers[i].kind == 'S' || r->spec->layers[i].kind == 'C') return true;
    return false;
}

static int resolve_window(const struct resolver *r, const struct layer_spec *l, struct attn_spec *a, struct err *err) {
    if (l->kind == 'S') return cfg_int(&r->cfg, "sliding_window", 0, INT32_MAX, 0, &a->window, err);
    if (l->kind == 'C') return cfg_int(&r->cfg, "attention_chunk_size", 1, INT32_MAX, 8192, &a->chunk, err);
    return ERR_OK;
}

/* Whether a layer's queries and keys are rotated. */
static int layer_has_rope(const struct resolver *r, int32_t layer, bool *out, struct err *err) {
    const struct attn_row *row = &r->family->attn;
    yyjson_val *list = cfg_get(&r->cfg, "no_rope_layers");
    int32_t interval;
    int64_t flag;
    bool is_empty = yyjson_is_arr(list) && yyjson_arr_size(list) == 0; /* as if it were not there */
    if (!is_empty) TRY(cfg_list(&r->cfg, "no_rope_layers", r->spec->n_layers, &list, err));
    TRY(cfg_int(&r->cfg, "no_rope_layer_interval", 1, 1 << 20, 0, &interval, err));
    *out = !row->no_rope && (!row->rope_if_named || str_is(cfg_str(&r->cfg, "position_embedding_type", (struct str){0}), "rope"));
    if (row->nope && has_windows(r) && strchr(row->nope, r->spec->layers[layer].kind)) *out = false;
    if (list && !is_empty) *out = json_val_int(yyjson_arr_get(list, (size_t)layer), &flag) && flag;
    else if (interval && (layer + 1) % interval == 0) *out = false;
    return ERR_OK;
}

static int resolve_score_scale(const struct resolver *r, int32_t layer, struct attn_spec *a, struct err *err) {
    float scalar;
    TRY(cfg_num(&r->cfg, "query_pre_attn_scalar", a->k_width, &scalar, err));
    if (!(scalar > 0)) return err_set(err, ERR_EFORMAT, "%s: query_pre_attn_scalar must be above 0", r->cfg.file->name);
    double usual = cfg_bool(&r->cfg, "scale_attn_weights", true) ? 1.0 / sqrt((double)scalar) : 1.0;
    if (cfg_bool(&r->cfg, "scale_attn_by_inverse_layer_idx", false)) usual /= layer + 1;
    TRY(cfg_num(&r->cfg, "attention_multiplier", usual, &a->scale, err));
    TRY(cfg_num(&r->cfg, "attn_logit_softcapping", 0, &a->softcap, err));
    return cfg_num(&r->cfg, "clip_qkv", 0, &a->clip, err);
}

/* Queries that grow with the position: by a scaling's own key on every layer, or on the layers without rope. */
static int resolve_temperature(const struct resolver *r, struct attn_spec *a, struct err *err) {
    if (a->rope >= 0) {
        a->pos_scale_beta = r->spec->ropes[a->rope].pos_scale_beta;
        a->pos_scale_len = r->spec->ropes[a->rope].pos_scale_len;
        return ERR_OK;
    }
    if (!cfg_bool(&r->cfg, "attn_temperature_tuning", false)) return ERR_OK;
    a->pos_scale_first = 1;
    TRY(cfg_int(&r->cfg, "floor_scale", 1, INT32_MAX, 8192, &a->pos_scale_len, err));
    return cfg_num(&r->cfg, "attn_scale", 0.1, &a->pos_scale_beta, err);
}

static int resolve_heads(const struct resolver *r, int32_t layer, struct attn_spec *a, struct err *err) {
    const struct cfg *c = &r->cfg;
    TRY(cfg_int_at(c, "num_attention_heads", layer, 1, 65536, 0, &a->heads, err));
    if (a->heads == 0) return err_set(err, ERR_EFORMAT, "%s: %s is missing", c->file->name, cfg_key(c, "num_attention_heads"));
    TRY(cfg_int_at(c, "num_key_value_heads", layer, 1, 65536, a->heads, &a->kv_heads, err));
    TRY(cfg_int_at(c, "head_dim", layer, 1, 4096, 0, &a->k_width, err));
    if (r->spec->layers[layer].kind == 'F' && has_windows(r) &&
        !cfg_get(c, "per_layer_config")) { /* full layers may have wider heads, and fewer */
        TRY(cfg_int(c, "global_head_dim", 1, 4096, a->k_width, &a->k_width, err));
        if (cfg_bool(c, "attention_k_eq_v", false)) TRY(cfg_int(c, "num_global_key_value_heads", 1, 65536, a->kv_heads, &a->kv_heads, err));
    }
    if (a->k_width == 0 && r->spec->hidden % a->heads)
        return err_set(err, ERR_EFORMAT, "%s: hidden_size %d is no multiple of num_attention_heads %d, and head_dim is missing",
                       c->file->name, r->spec->hidden, a->heads);
    if (a->k_width == 0) a->k_width = r->spec->hidden / a->heads;
    if (a->heads % a->kv_heads)
        return err_set(err, ERR_EFORMAT, "%s: num_attention_heads %d is no multiple of num_key_value_heads %d", c->file->name, a->heads,
                       a->kv_heads);
    if (a->k_width % 2) return err_set(err, ERR_EFORMAT, "%s: head_dim %d is odd", c->file->name, a->k_width);
    a->v_width = a->k_width;
    a->v_is_k = r->spec->layers[layer].kind == 'F' && cfg_bool(c, "attention_k_eq_v", false);
    return ERR_OK;
}

int resolve_attention(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->spec->layers[layer];
    struct attn_spec *a = &l->attn;
    const struct attn_row *row = &r->family->attn;
    bool rope;
    TRY(resolve_heads(r, layer, a, err));
    TRY(resolve_window(r, l, a, err));
    TRY(resolve_score_scale(r, layer, a, err));
    a->qk_norm = row->qk_switch && !cfg_bool(&r->cfg, row->qk_switch, false) ? QK_NONE : row->qk_norm;
    a->rope = -1;
    TRY(layer_has_rope(r, layer, &rope, err));
    if (rope) TRY(resolve_rope(r, l->kind == 'S' ? "sliding_attention" : "full_attention", a->k_width, &a->rope, err));
    if (row->qk_norm_bare && !rope) a->qk_norm = QK_NONE;
    return resolve_temperature(r, a, err);
}

static bool rope_eq(const struct rope_spec *a, const struct rope_spec *b) {
    return a->scaling == b->scaling && a->n_rotated == b->n_rotated && a->theta == b->theta && a->magnitude == b->magnitude &&
           a->factor == b->factor && a->original_len == b->original_len &&
           memcmp(a->inv_freq, b->inv_freq, (size_t)(a->n_rotated / 2) * sizeof *a->inv_freq) == 0;
}

/* The parameters of a layer type; a sliding layer's own table where neither the file nor the family shares one. */
static int rope_params(const struct resolver *r, const char *layer_type, struct config_rope *out, struct err *err) {
    const struct attn_row *row = &r->family->attn;
    double theta = row->theta > 0 ? (double)row->theta : 10000.0;
    TRY(config_rope(r->cfg.file, layer_type, theta, out, err));
    if (!out->has_partial && row->partial > 0) out->partial = (double)row->partial;
    bool nested = json_get(config_get(r->cfg.file, "rope_parameters"), layer_type) != NULL;
    if (!row->local_rope || nested || strcmp(layer_type, "sliding_attention") != 0) return ERR_OK;
    float local;
    TRY(cfg_num(&r->cfg, "rope_local_base_freq", row->local_theta > 0 ? (double)row->local_theta : out->theta, &local, err));
    *out = (struct config_rope){.type = STR("default"), .theta = (double)local, .partial = out->partial, .factor = 1};
    return ERR_OK;
}

int resolve_rope(struct resolver *r, const char *layer_type, int32_t width, int32_t *out_index, struct err *err) {
    struct spec *s = r->spec;
    const struct attn_row *row = &r->family->attn;
    struct config_rope params;
    struct rope_spec table = {.kind = row->rope ? row->rope : ROPE_HALF};
    TRY(rope_params(r, layer_type, &params, err));
    TRY(rope_resolve(r->arena, &r->cfg, &params, width, &table, err));
    for (*out_index = 0; *out_index < s->n_ropes; ++*out_index)
        if (rope_eq(&s->ropes[*out_index], &table)) return ERR_OK;
    if (s->n_ropes == ROPE_TABLES_MAX)
        return err_set(err, ERR_EUNSUPPORTED, "%s: more than %d kinds of rope", r->cfg.file->name, ROPE_TABLES_MAX);
    if (table.scaling == SCALE_DYNAMIC || table.scaling == SCALE_LONGROPE) table.table = s->n_rope_tables++;
    s->ropes[s->n_ropes++] = table;
    return ERR_OK;
}

/* ---- caches ------------------------------------------------------------------------------------------------------- */

int resolve_kv(struct resolver *r, const struct kv_class *want, struct kv_ref *out, struct err *err) {
    struct kv_layout *kv = &r->spec->kv;
    for (int32_t i = 0; i < kv->n_classes; i++) {
        struct kv_class *k = &kv->classes[i];
        if (k->heads == want->heads && k->k_width == want->k_width && k->v_width == want->v_width && k->window == want->window) {
            *out = (struct kv_ref){i, k->n_layers++};
            return ERR_OK;
        }
    }
    if (kv->n_classes == KV_CLASSES_MAX)
        return err_set(err, ERR_EUNSUPPORTED, "the model has more than %d kinds of KV cache", KV_CLASSES_MAX);
    *out = (struct kv_ref){kv->n_classes, 0};
    kv->classes[kv->n_classes] = *want;
    kv->classes[kv->n_classes++].n_layers = 1;
    return ERR_OK;
}

int resolve_state(struct resolver *r, int64_t elements, int32_t *out_index, struct err *err) {
    struct kv_layout *kv = &r->spec->kv;
    if (kv->n_states == STATES_MAX) return err_set(err, ERR_EUNSUPPORTED, "the model has more than %d recurrent states", STATES_MAX);
    kv->states[kv->n_states].elements = elements;
    *out_index = kv->n_states++;
    return ERR_OK;
}

/* Learned positions end where their table does. */
static int stretch_context(const struct resolver *r, struct spec *s, struct err *err) {
    int64_t context = s->context;
    if (s->n_ropes == 0) return ERR_OK;
    TRY(config_stretch(r->cfg.file, &context, err));
    s->context = (int32_t)context;
    return ERR_OK;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

int spec_resolve(struct arena *a, const struct config *config, struct spec *out, struct err *err) {
    *out = (struct spec){0};
    if (!config->text_type.p) return err_set(err, ERR_EFORMAT, "%s: model_type is missing", config->name);
    out->family = family_find(config->text_type, err);
    if (!out->family) return err->code;
    struct resolver r = {.arena = a, .cfg = {config, out->family->keys, out->family->defaults}, .family = out->family, .spec = out};
    TRY(resolve_sizes(&r, out, err));
    out->layers = arena_new(a, struct layer_spec, out->n_layers);
    TRY(resolve_kinds(&r, err));
    TRY(resolve_ffn(&r, err));
    for (int32_t i = 0; i < out->n_layers; i++) TRY(mixer_table[out->layers[i].mixer]->resolve(&r, i, err));
    TRY(stretch_context(&r, out, err));
    if (out->kv.n_classes == 0 && !cfg_get(&r.cfg, "max_position_embeddings")) out->context = 1 << 20; /* nothing grows with the length */
    const struct stream *stream = out->family->stream;
    if (stream && stream->resolve) TRY(stream->resolve(&r, err));
    out->wide = out->per_layer.has_experts;
    for (int32_t i = 0; i < out->n_layers; i++) out->wide |= out->layers[i].ffn == FFN_EXPERTS;
    return ERR_OK;
}
