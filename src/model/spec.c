/* spec_resolve: one walk over config.json with the family's row beside it. */
#include "model/spec.h"

#include "base/fmath.h"
#include "base/half.h"
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
    {"xielu", ACT_XIELU},         {"swiglu", ACT_SILU},
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
    static const char *const keys[] = {"hidden_activation", "hidden_act"};
    struct str name = cfg_str(&r->cfg, cfg_first(&r->cfg, keys, 2), (struct str){0});
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
    *out = (struct norm_spec){.kind = row->kind, .weight_offset = row->offset, .no_weight = row->no_weight};
    TRY(cfg_num(&r->cfg, cfg_first(&r->cfg, keys, sizeof keys / sizeof *keys), 1e-6, &out->eps, err));
    return out->eps >= 0 ? ERR_OK : err_set(err, ERR_EFORMAT, "%s: the norm's epsilon is negative", r->cfg.file->name);
}

/* Factors that follow from the model's depth, and from its width beside that of a smaller one. */
static int resolve_depth_scales(const struct resolver *r, struct spec *s, struct err *err) {
    float depth, base;
    TRY(cfg_num(&r->cfg, "scale_depth", 0, &depth, err));
    TRY(cfg_num(&r->cfg, "dim_model_base", 0, &base, err));
    if (depth > 0) s->residual_scale = depth / (float)sqrt((double)s->n_layers);
    if (base > 0) s->logit_scale *= base / (float)s->hidden;
    return ERR_OK;
}

static int resolve_scales(const struct resolver *r, struct spec *s, struct err *err) {
    float divisor;
    bool by_root = r->family->flags & FAM_EMBED_SCALE || cfg_bool(&r->cfg, "mup_enabled", false);
    TRY(cfg_num(&r->cfg, "embedding_multiplier", by_root ? sqrt((double)s->hidden) : 1.0, &s->embed_scale, err));
    if (r->family->flags & FAM_EMBED_SCALE_BF16) s->embed_scale = bf16_to_f32(bf16_from_f32((float)sqrt((double)s->hidden)));
    TRY(cfg_num(&r->cfg, "residual_multiplier", 1.0, &s->residual_scale, err));
    TRY(cfg_num(&r->cfg, "final_logit_softcapping", 0, &s->logit_softcap, err));
    TRY(cfg_num(&r->cfg, "logit_scale", 1.0, &s->logit_scale, err));
    TRY(cfg_num(&r->cfg, "logits_scaling", 1.0, &divisor, err));
    if (divisor == 0) return err_set(err, ERR_EFORMAT, "%s: logits_scaling is 0", r->cfg.file->name);
    s->logit_scale /= divisor;
    return resolve_depth_scales(r, s, err);
}

/* Files that list their layers may leave the count out. */
static int resolve_depth(const struct resolver *r, int32_t *out, struct err *err) {
    const struct cfg *c = &r->cfg;
    yyjson_val *types = cfg_get(c, "layer_types");
    if (r->family->flags & FAM_TWO_IN_ONE) {
        TRY(cfg_need(c, "num_hidden_layers", 1, 512, out, err));
        *out *= 2;
        return ERR_OK;
    }
    if (cfg_said(c, "num_hidden_layers") || !yyjson_is_arr(types)) return cfg_need(c, "num_hidden_layers", 1, 1024, out, err);
    *out = (int32_t)yyjson_arr_size(types);
    return *out > 0 && *out <= 1024 ? ERR_OK
                                    : err_set(err, ERR_EFORMAT, "%s: %s has %d entries", c->file->name, cfg_key(c, "layer_types"), *out);
}

static int check_attention(const struct cfg *c, struct err *err) {
    if (cfg_bool(c, "norm_head", false))
        return err_set(err, ERR_EUNSUPPORTED, "%s: norm_head is set: a head of normed rows is not supported", c->file->name);
    if (cfg_bool(c, "use_cla", false))
        return err_set(err, ERR_EUNSUPPORTED, "%s: use_cla is set: its layers share keys across layers, which is not supported",
                       c->file->name);
    return ERR_OK;
}

/* A switch; or, in newer files, where: "all", which no file has that we know, or only between the parts of an image ("vision"). A model beside a
 * tower writes text: there the switch is about the prompt. */
static int resolve_encoder(const struct resolver *r, struct spec *s, struct err *err) {
    const char *key = "use_bidirectional_attention";
    if (str_is(cfg_str(&r->cfg, key, STR("")), "all"))
        return err_set(err, ERR_EUNSUPPORTED, "%s: %s \"all\" is not supported", r->cfg.file->name, key);
    s->is_prefix = cfg_bool(&r->cfg, key, false) && yyjson_is_obj(json_get(r->cfg.file->root, "vision_config"));
    s->is_encoder = r->family->flags & FAM_ENCODER || (cfg_bool(&r->cfg, key, false) && !s->is_prefix);
    if (s->is_encoder) s->tied = s->untied = false;
    if (s->is_encoder && cfg_bool(&r->cfg, "is_decoder", false))
        return err_set(err, ERR_EUNSUPPORTED, "%s: is_decoder is set: this family runs as an encoder here", r->cfg.file->name);
    if (r->family->flags & FAM_DISTANCES) TRY(cfg_int(&r->cfg, "relative_attention_num_buckets", 32, 1 << 16, 32, &s->n_buckets, err));
    struct str places = cfg_str(&r->cfg, "position_embedding_type", STR("absolute"));
    if (s->is_encoder && r->family->flags & FAM_LEARNED_POSITIONS && !str_is(places, "absolute"))
        return err_set(err, ERR_EUNSUPPORTED, "%s: position_embedding_type \"%.*s\" is not supported", r->cfg.file->name, STR_ARG(places));
    if (!(r->family->flags & FAM_ENCODER)) return ERR_OK;
    TRY(cfg_int(&r->cfg, "type_vocab_size", 0, 1 << 10, 0, &s->n_types, err));
    if (!(r->family->flags & FAM_POSITIONS_BEHIND_PAD)) return ERR_OK;
    TRY(cfg_int(&r->cfg, "pad_token_id", 0, 1 << 24, 0, &s->first_position, err));
    s->context -= ++s->first_position;
    return s->context > 0
               ? ERR_OK
               : err_set(err, ERR_EFORMAT, "%s: max_position_embeddings leaves no position behind pad_token_id", r->cfg.file->name);
}

/* Whether the head is the embedding's matrix. A larger model and its text part may say different things: weights_bind asks the file then. */
static void resolve_tie(const struct cfg *c, struct spec *s) {
    const char *key = cfg_get(c, "tie_embedding") ? "tie_embedding" : "tie_word_embeddings"; /* the former is a dialect's, and counts */
    s->tied = cfg_bool(c, key, false);
    struct str architecture = json_val_str(yyjson_arr_get(config_said(c->file, "architectures"), 0));
    bool has_no_head = str_ends(architecture, STR("Model")) || str_ends(architecture, STR("ForSequenceClassification"));
    s->untied = cfg_said(c, key) && !s->tied && !json_bool(c->file->text, key, false) && !has_no_head;
}

/* The row's, unless a switch says otherwise. */
static int resolve_wiring(const struct resolver *r, struct spec *s, struct err *err) {
    const struct cfg *c = &r->cfg;
    bool is_newer = cfg_bool(c, "new_decoder_architecture", false);
    int32_t n_norms;
    s->wiring = r->family->wiring;
    if (cfg_get(c, "use_parallel_residual")) {
        if (!cfg_bool(c, "use_parallel_residual", true)) s->wiring = WIRE_PRE;
        else if (s->wiring == WIRE_PRE) s->wiring = WIRE_PARALLEL;
    }
    if (cfg_get(c, "parallel_attn")) {
        TRY(cfg_int(c, "num_ln_in_parallel_attn", 1, 2, is_newer ? 2 : 1, &n_norms, err));
        s->wiring = is_newer && n_norms == 2                         ? WIRE_PARALLEL_TWO
                    : is_newer || cfg_bool(c, "parallel_attn", true) ? WIRE_PARALLEL
                                                                     : WIRE_PRE;
    }
    if (cfg_bool(c, "apply_residual_connection_post_layernorm", false)) s->wiring = WIRE_NORM_FIRST;
    if (!cfg_bool(c, "do_layer_norm_before", true)) s->wiring = WIRE_SUM_NORM;
    s->no_final_norm = s->wiring == WIRE_SUM_NORM || cfg_bool(c, "_remove_final_layer_norm", false);
    return ERR_OK;
}

/* Products with embeddings of the distance, from the row's side and from the key's. */
static int resolve_relative(const struct resolver *r, struct spec *s, struct err *err) {
    const struct cfg *c = &r->cfg;
    if (!(r->family->flags & FAM_RELATIVE)) return ERR_OK;
    yyjson_val *types = cfg_get(c, "pos_att_type");
    bool both = yyjson_is_arr(types) ? yyjson_arr_size(types) == 2 : str_find_char(json_val_str(types), '|', 0) != STR_NONE;
    int32_t buckets, kernel;
    TRY(cfg_int(c, "conv_kernel_size", 0, 1 << 20, 0, &kernel, err));
    if (!both || !cfg_bool(c, "relative_attention", false) || !cfg_bool(c, "share_att_key", false) ||
        cfg_bool(c, "position_biased_input", true) || kernel)
        return err_set(
            err, ERR_EUNSUPPORTED,
            "%s: only relative_attention with share_att_key, both kinds of pos_att_type, without position_biased_input and conv_kernel_size is supported",
            c->file->name);
    TRY(cfg_int(c, "max_relative_positions", -1, 1 << 20, -1, &s->relative.reach, err));
    TRY(cfg_int(c, "position_buckets", -1, 1 << 16, -1, &buckets, err));
    if (s->relative.reach < 1) s->relative.reach = s->context;
    s->relative.is_log = buckets > 0;
    s->relative.span = buckets > 0 ? buckets : s->relative.reach;
    s->relative.has_norm = str_find(cfg_str(c, "norm_rel_ebd", STR("none")), STR("layer_norm"), 0) != STR_NONE;
    return ERR_OK;
}

static int resolve_sizes(const struct resolver *r, struct spec *s, struct err *err) {
    const struct cfg *c = &r->cfg;
    TRY(check_attention(c, err));
    TRY(cfg_need(c, "hidden_size", 1, 1 << 20, &s->hidden, err));
    TRY(resolve_depth(r, &s->n_layers, err));
    TRY(cfg_need(c, "vocab_size", 1, 1 << 24, &s->vocab, err));
    TRY(cfg_int(c, "max_position_embeddings", 1, INT32_MAX, 2048, &s->context, err));
    resolve_tie(c, s);
    TRY(cfg_int(c, "word_embed_proj_dim", 1, 1 << 20, s->hidden, &s->embed_width, err));
    s->first_position = r->family->first_position;
    TRY(resolve_encoder(r, s, err));
    TRY(resolve_relative(r, s, err));
    TRY(resolve_wiring(r, s, err));
    TRY(resolve_norm(r, &s->norm, err));
    TRY(resolve_scales(r, s, err));
    return resolve_act(r, &s->act, err);
}

/* ---- attention ---------------------------------------------------------------------------------------------------- */

static int resolve_window(const struct resolver *r, const struct layer_spec *l, struct attn_spec *a, struct err *err) {
    if (l->kind == 'S') TRY(resolve_window_length(&r->cfg, &a->window, err));
    if (l->kind == 'S' && r->spec->is_encoder) a->window = a->window / 2 + 1; /* config.json counts both sides */
    if (l->kind == 'C') return cfg_int(&r->cfg, "attention_chunk_size", 1, INT32_MAX, 8192, &a->chunk, err);
    return ERR_OK;
}

static int resolve_score_scale(const struct resolver *r, int32_t layer, struct attn_spec *a, struct err *err) {
    float scalar;
    TRY(cfg_num(&r->cfg, "query_pre_attn_scalar", a->k_width / attn_inputs(r->family), &scalar, err));
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

/* Sliding layers may have other numbers of heads. */
static int resolve_window_heads(const struct resolver *r, int32_t layer, struct attn_spec *a, struct err *err) {
    int32_t factor = r->family->attn.window_kv ? r->family->attn.window_kv : 1;
    a->heads = (int32_t)json_int(cfg_get(&r->cfg, "attention_other_setting"), "num_attention_heads", a->heads); /* a dialect's */
    TRY(cfg_int_at(&r->cfg, "window_heads", layer, 1, 65536, a->heads, &a->heads, err));
    return cfg_int_at(&r->cfg, "window_kv_heads", layer, 1, 65536, (int64_t)a->kv_heads * factor, &a->kv_heads, err);
}

static int resolve_heads(const struct resolver *r, int32_t layer, struct attn_spec *a, struct err *err) {
    static const char *const kv_keys[] = {"num_key_value_heads", "num_attention_groups"};
    const struct cfg *c = &r->cfg;
    TRY(cfg_int_at(c, "num_attention_heads", layer, 1, 65536, 0, &a->heads, err));
    if (a->heads == 0) return err_set(err, ERR_EFORMAT, "%s: %s is missing", c->file->name, cfg_key(c, "num_attention_heads"));
    TRY(cfg_int_at(c, cfg_first(c, kv_keys, 2), layer, 1, 65536, a->heads, &a->kv_heads, err));
    if (cfg_get(c, "multi_query") && !cfg_bool(c, "new_decoder_architecture", false))
        a->kv_heads = cfg_bool(c, "multi_query", true) ? 1 : a->heads;
    if (r->layers[layer].kind == 'S' && !cfg_get(c, "per_layer_config")) TRY(resolve_window_heads(r, layer, a, err));
    TRY(cfg_int_at(c, "head_dim", layer, 1, 4096, 0, &a->k_width, err));
    if (r->layers[layer].kind == 'F' && spec_has_windows(r->spec) &&
        !cfg_get(c, "per_layer_config")) { /* full layers may have wider heads, and fewer */
        TRY(cfg_int(c, "global_head_dim", 1, 4096, a->k_width, &a->k_width, err));
        if (cfg_bool(c, "attention_k_eq_v", false)) TRY(cfg_int(c, "num_global_key_value_heads", 1, 65536, a->kv_heads, &a->kv_heads, err));
    }
    int32_t width = r->spec->hidden * attn_inputs(r->family);
    if (a->k_width == 0 && width % a->heads)
        return err_set(err, ERR_EFORMAT, "%s: hidden_size %d is no multiple of num_attention_heads %d, and head_dim is missing",
                       c->file->name, r->spec->hidden, a->heads);
    if (a->k_width == 0) a->k_width = width / a->heads;
    if (a->heads % a->kv_heads)
        return err_set(err, ERR_EFORMAT, "%s: num_attention_heads %d is no multiple of num_key_value_heads %d", c->file->name, a->heads,
                       a->kv_heads);
    if (a->k_width % 2) return err_set(err, ERR_EFORMAT, "%s: head_dim %d is odd", c->file->name, a->k_width);
    TRY(cfg_int(c, "value_head_dim", 1, 4096, a->k_width, &a->v_width, err));
    TRY(cfg_num(c, "attention_value_scale", 1.0, &a->v_scale, err));
    a->v_is_k = r->layers[layer].kind == 'F' && cfg_bool(c, "attention_k_eq_v", false);
    return ERR_OK;
}

int resolve_attention(struct resolver *r, int32_t layer, struct err *err) {
    struct layer_spec *l = &r->layers[layer];
    struct attn_spec *a = &l->attn;
    const struct attn_row *row = &r->family->attn;
    bool rope;
    TRY(resolve_heads(r, layer, a, err));
    TRY(resolve_window(r, l, a, err));
    TRY(resolve_score_scale(r, layer, a, err));
    if (r->spec->relative.span) a->scale /= (float)sqrt(3.0); /* three sums */
    a->qk_norm = row->qk_switch && !cfg_bool(&r->cfg, row->qk_switch, false) ? QK_NONE : row->qk_norm;
    a->rope = -1;
    a->gate = row->gate;
    a->v_norm = row->v_norm;
    a->qk_norm_last = row->qk_norm_last;
    a->slopes_in_bf16 = row->slopes == SLOPES_IN_BF16;
    a->has_slopes = row->slopes && cfg_bool(&r->cfg, "alibi", row->slopes == SLOPES_ALWAYS);
    TRY(resolve_has_rope(r, layer, &rope, err));
    rope = rope && !a->has_slopes;
    if (rope) TRY(resolve_rope(r, layer, a->k_width, ROPE_SHARE, &a->rope, err));
    if (row->qk_norm_bare && !rope) a->qk_norm = QK_NONE;
    return resolve_temperature(r, a, err);
}

static bool rope_eq(const struct rope_spec *a, const struct rope_spec *b) {
    return a->scaling == b->scaling && a->n_rotated == b->n_rotated && a->theta == b->theta && a->magnitude == b->magnitude &&
           a->factor == b->factor && a->original_len == b->original_len &&
           memcmp(a->inv_freq, b->inv_freq, (size_t)(a->n_rotated / 2) * sizeof *a->inv_freq) == 0;
}

/* The parameters of a layer type; a sliding layer's own table where neither the file nor the family shares one. */
static int rope_params(const struct resolver *r, int32_t layer, int32_t width, struct config_rope *out, struct err *err) {
    const char *layer_type = r->layers[layer].kind == 'S' ? "sliding_attention" : "full_attention";
    TRY(config_rope(r->cfg.file, &(struct rope_ask){layer_type, layer, 10000.0}, out, err));
    int32_t rotary;
    TRY(cfg_int(&r->cfg, "rotary_dim", 1, 1 << 16, 0, &rotary, err));
    if (rotary && out->partial == 1.0) out->partial = (double)rotary / width; /* an older name of the share */
    if (!r->family->attn.local_rope || out->is_nested || strcmp(layer_type, "sliding_attention") != 0) return ERR_OK;
    float local;
    TRY(cfg_num(&r->cfg, "rope_local_base_freq", out->theta, &local, err));
    *out = (struct config_rope){.type = STR("default"), .theta = (double)local, .partial = out->partial, .factor = 1};
    return ERR_OK;
}

int resolve_rope(struct resolver *r, int32_t layer, int32_t width, enum rope_part part, int32_t *out_index, struct err *err) {
    struct spec *s = r->spec;
    const struct attn_row *row = &r->family->attn;
    struct config_rope params;
    struct rope_spec table = {.kind = row->rope ? row->rope : ROPE_HALF};
    TRY(rope_params(r, layer, width, &params, err));
    if (part == ROPE_WHOLE) params.partial = 1.0;
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
            *out = (struct kv_ref){i, r->spec->is_encoder ? 0 : k->n_layers++}; /* a text is one step: its layers take turns */
            r->kv_layers[i][out->index] = r->layer;
            return ERR_OK;
        }
    }
    if (kv->n_classes == KV_CLASSES_MAX)
        return err_set(err, ERR_EUNSUPPORTED, "the model has more than %d kinds of KV cache", KV_CLASSES_MAX);
    *out = (struct kv_ref){kv->n_classes, 0};
    r->kv_layers[kv->n_classes] = arena_new(r->arena, int32_t, 2 * r->spec->n_layers); /* a layer has at most two of a class */
    r->kv_layers[kv->n_classes][0] = r->layer;
    kv->classes[kv->n_classes] = *want;
    kv->classes[kv->n_classes].layers = r->kv_layers[kv->n_classes];
    kv->classes[kv->n_classes++].n_layers = 1;
    return ERR_OK;
}

int resolve_state(struct resolver *r, int64_t elements, int32_t *out_index, struct err *err) {
    struct kv_layout *kv = &r->spec->kv;
    if (kv->n_states == STATES_MAX) return err_set(err, ERR_EUNSUPPORTED, "the model has more than %d recurrent states", STATES_MAX);
    kv->states[kv->n_states] = (struct state_class){.elements = elements, .layer = r->layer};
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

/* A model around a text model may put a head of its own on it, which knows nothing of the text model's factors. */
static bool has_bare_head(const struct config *c) {
    struct config top = {.name = c->name, .root = c->root, .text_type = c->model_type};
    const struct alias *alias;
    return c->text && family_of(&top, &alias, NULL) && alias && alias->has_bare_head;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

int spec_resolve(struct arena *a, const struct config *config, struct spec *out, struct err *err) {
    *out = (struct spec){0};
    if (!config->text_type.p) return err_set(err, ERR_EFORMAT, "%s: model_type is missing", config->name);
    const struct alias *alias;
    out->family = family_of(config, &alias, err);
    if (!out->family) return err->code;
    const char *defaults = alias && alias->defaults ? alias->defaults : out->family->defaults;
    struct config with_defaults = *config;
    struct resolver r = {.arena = a, .cfg = {&with_defaults, out->family->keys}, .family = out->family, .spec = out};
    if (defaults) TRY(json_parse(a, str_of(defaults), out->family->type, JSON_LENIENT, &with_defaults.defaults, err));
    TRY(resolve_sizes(&r, out, err));
    out->layers = r.layers = arena_new(a, struct layer_spec, out->n_layers);
    TRY(resolve_kinds(&r, err));
    TRY(resolve_ffn(&r, err));
    for (r.layer = 0; r.layer < out->n_layers; r.layer++) TRY(mixer_table[out->layers[r.layer].mixer]->resolve(&r, r.layer, err));
    TRY(stretch_context(&r, out, err));
    if (out->kv.n_classes == 0 && !cfg_get(&r.cfg, "max_position_embeddings")) out->context = 1 << 20; /* nothing grows with the length */
    out->stream = out->family->stream;
    if (out->stream && out->stream->resolve) TRY(out->stream->resolve(&r, err));
    if (has_bare_head(config)) out->logit_scale = 1.0f, out->logit_softcap = 0.0f;
    out->wide = out->moe.n_experts > 0;
    out->attn_inputs = attn_inputs(out->family);
    return ERR_OK;
}

int32_t spec_longest(const struct spec *s, int32_t wanted) {
    int32_t longest = s->context;
    for (int32_t i = 0; i < s->n_ropes; i++)
        if (s->ropes[i].scaling == SCALE_DYNAMIC && wanted > longest) longest = wanted;
    return longest;
}
