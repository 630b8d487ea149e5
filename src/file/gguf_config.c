/* Metadata of a GGUF file as config.json, with the keys that the table of families calls its own (struct config, is_canonical). */
#include "file/gguf_arch.h"

#include "base/half.h"
#include "base/json.h"
#include "tensor/quant.h"

#include <stdio.h>

enum { FACTORS_MAX = 1 << 16 };

static const struct gguf_word common[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.scale", "attention_multiplier"},
    {"attention.clamp_kqv", "clip_qkv"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"logit_scale", "logit_scale"},
    {"residual_scale", "residual_multiplier"},
    {"embedding_scale", "embedding_multiplier"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"expert_weights_norm", "norm_topk_prob"},
    {"expert_group_count", "n_group"},
    {"expert_group_used_count", "topk_group"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"use_parallel_residual", "use_parallel_residual"},
    /* read elsewhere in this file */
    {"attention.sliding_window_pattern", NULL},
    {"attention.value_length", NULL},
    {"attention.key_length_mla", NULL},
    {"attention.value_length_mla", NULL},
    {"rope.dimension_count", NULL},
    {"rope.scale_linear", NULL},
    {"rope.scaling.type", NULL},
    {"rope.scaling.factor", NULL},
    {"rope.scaling.attn_factor", NULL},
    {"rope.scaling.original_context_length", NULL},
    {"rope.scaling.finetuned", NULL},
    {"rope.scaling.yarn_attn_factor", NULL},
    {"rope.scaling.yarn_beta_fast", NULL},
    {"rope.scaling.yarn_beta_slow", NULL},
    {"rope.scaling.yarn_log_multiplier", NULL},
    {"expert_gating_func", NULL},
    {"attention.causal", NULL},
    /* nothing that a computation needs */
    {"vocab_size", NULL},
    {"tensor_data_layout", NULL},
    {NULL, NULL},
};

/* ---- architectures ------------------------------------------------------------------------------------------------------ */

int gguf_arch_of(const struct gguf *g, const struct gguf_arch **out, struct err *err) {
    struct str name;
    if (!gguf_to_str(gguf_get(g, STR("general.architecture")), &name))
        return err_set(err, ERR_EFORMAT, "%s: general.architecture is missing", g->source.name);
    for (int32_t i = 0; i < gguf_arch_count; i++)
        if (str_is(name, gguf_arch_table[i].name)) {
            *out = &gguf_arch_table[i];
            return ERR_OK;
        }
    struct sb known = {0};
    for (int32_t i = 0; i < gguf_arch_count; i++) sb_fmt(&known, "%s%s", i ? ", " : "", gguf_arch_table[i].name);
    err_set(err, ERR_EUNSUPPORTED, "%s: GGUF files of the architecture \"%.*s\" are not read; known are %s", g->source.name,
            (int)(name.n > 40 ? 40 : name.n), name.p, known.p);
    sb_free(&known);
    return ERR_EUNSUPPORTED;
}

const struct gguf_value *gguf_arch_get(const struct gguf *g, const struct gguf_arch *arch, const char *key) {
    char name[128];
    int n = snprintf(name, sizeof name, "%s.%s", arch->name, key);
    return gguf_get(g, str_n(name, (size_t)n));
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf_set *s, struct str name, const struct gguf **out_part) {
    for (size_t p = 0; p < s->n_parts; p++)
        for (size_t i = 0; i < s->parts[p].n_tensors; i++)
            if (str_eq(s->parts[p].tensors[i].name, name)) {
                *out_part = &s->parts[p];
                return &s->parts[p].tensors[i];
            }
    return NULL;
}

/* ---- writing ------------------------------------------------------------------------------------------------------------ */

struct writer {
    struct gguf_set *set;
    const struct gguf *g; /* the part with the metadata */
    const struct gguf_arch *arch;
    struct jsonw w;
    struct map written; /* keys of config.json */
    struct err *err;
};

static const struct gguf_value *get(const struct writer *c, const char *key) {
    return gguf_arch_get(c->g, c->arch, key);
}

static bool number_of(const struct writer *c, const char *key, double *out) {
    return gguf_to_num(get(c, key), out);
}

/* False: written before. */
static bool begin_key(struct writer *c, const char *key) {
    bool is_new;
    map_put(&c->written, str_of(key), &is_new);
    if (is_new) jsonw_key(&c->w, key);
    return is_new;
}

static void put_num(struct writer *c, const char *key, double value) {
    if (begin_key(c, key)) jsonw_num(&c->w, value);
}

static void put_scalar(struct jsonw *w, const struct gguf_value *v) {
    int64_t i;
    double f = 0;
    if (v->type == GGUF_STRING) jsonw_str(w, v->bytes);
    else if (v->type == GGUF_BOOL) jsonw_bool(w, gguf_to_int(v, &i) && i);
    else if (gguf_to_int(v, &i)) jsonw_int(w, i);
    else {
        gguf_to_num(v, &f);
        jsonw_num(w, f);
    }
}

static void put_value(struct writer *c, const char *key, const struct gguf_value *v) {
    if (!begin_key(c, key)) return;
    if (v->type != GGUF_ARRAY) {
        put_scalar(&c->w, v);
        return;
    }
    struct gguf_value item;
    uint64_t at = 0;
    jsonw_begin(&c->w, '[');
    while (gguf_next(v, &at, &item)) put_scalar(&c->w, &item);
    jsonw_end(&c->w, ']');
}

/* Every word of the list for a key; false when it has none. */
static bool put_words(struct writer *c, const struct gguf_word *words, struct str key, const struct gguf_value *v) {
    bool known = false;
    for (; words && words->theirs; words++) {
        if (!str_is(key, words->theirs)) continue;
        known = true;
        if (words->ours) put_value(c, words->ours, v);
    }
    return known;
}

/* A key that nobody here knows could change what the model computes. */
static int put_keys(struct writer *c) {
    struct str prefix = str_of(c->arch->name);
    for (size_t i = 0; i < c->g->n_meta; i++) {
        const struct gguf_meta *m = &c->g->meta[i];
        if (!str_starts(m->key, prefix) || m->key.n <= prefix.n || m->key.p[prefix.n] != '.') continue;
        struct str key = str_from(m->key, prefix.n + 1);
        if (!put_words(c, c->arch->keys, key, &m->value) && !put_words(c, common, key, &m->value))
            return err_set(c->err, ERR_EUNSUPPORTED, "%s: the key %.*s is not known here, and could change what the model computes",
                           c->g->source.name, (int)(m->key.n > 100 ? 100 : m->key.n), m->key.p);
    }
    return ERR_OK;
}

/* ---- what follows from several keys --------------------------------------------------------------------------------------- */

static double first_number(const struct gguf_value *v, double absent) {
    struct gguf_value item;
    uint64_t at = 0;
    double out = absent;
    if (v && v->type == GGUF_ARRAY) {
        if (gguf_next(v, &at, &item)) gguf_to_num(&item, &out);
    } else gguf_to_num(v, &out);
    return out;
}

/* Widths of latent attention: of a head's keys without and with rope, and of its values. */
static void put_latent(struct writer *c) {
    double rope = 0, keys = 0, values = 0;
    number_of(c, "rope.dimension_count", &rope);
    if (!number_of(c, "attention.key_length_mla", &keys)) number_of(c, "attention.key_length", &keys);
    if (!number_of(c, "attention.value_length_mla", &values)) number_of(c, "attention.value_length", &values);
    put_num(c, "qk_rope_head_dim", rope);
    put_num(c, "qk_nope_head_dim", keys - rope);
    put_num(c, "v_head_dim", values);
}

static int put_heads(struct writer *c) {
    double heads = first_number(get(c, "attention.head_count"), 0), width = 0, rope = 0, rank, layers = 0, head;
    number_of(c, "embedding_length", &width);
    number_of(c, "block_count", &layers);
    if (!(heads >= 1) || !(width >= 1))
        return err_set(c->err, ERR_EFORMAT, "%s: %s.attention.head_count or %s.embedding_length is missing", c->g->source.name,
                       c->arch->name, c->arch->name);
    put_num(c, "num_key_value_heads", heads); /* where the file has none */
    if (number_of(c, "attention.kv_lora_rank", &rank)) {
        put_latent(c);
        return ERR_OK;
    }
    if (!number_of(c, "attention.key_length", &head)) head = (double)(int64_t)(width / heads);
    put_num(c, "head_dim", head);
    if (number_of(c, "rope.dimension_count", &rope) && rope != head && head > 0) put_num(c, "partial_rotary_factor", rope / head);
    if (c->arch->depth_with_own_scale && layers == c->arch->depth_with_own_scale) put_num(c, "query_pre_attn_scalar", width / heads);
    return ERR_OK;
}

/* A row of f32 as a list. */
static int put_factors(struct writer *c, const char *key, const struct gguf *part, const struct gguf_tensor *t) {
    if (t->type->format.dtype != DT_F32 || !block_is_plain(t->type) || t->n_elements > FACTORS_MAX)
        return err_set(c->err, ERR_EFORMAT, "%s: tensor %.*s is not a short row of F32", part->source.name, STR_ARG(t->name));
    float *values = mem_alloc((size_t)t->bytes + 1);
    int code = part->source.read_at(part->source.user, values, (size_t)t->bytes, t->offset, c->err);
    if (code == ERR_OK) {
        jsonw_open(&c->w, key, '[');
        for (uint64_t i = 0; i < t->n_elements; i++) jsonw_num(&c->w, (double)values[i]);
        jsonw_end(&c->w, ']');
    }
    mem_free(values);
    return code;
}

static void put_rope_number(struct writer *c, const char *key, const char *theirs, double factor) {
    double value;
    if (number_of(c, theirs, &value)) jsonw_put_num(&c->w, key, value * factor);
}

/* One table for all lengths, or one for short texts and one for long ones; as tensors. */
static int put_rope_tensors(struct writer *c, bool *out_has) {
    const struct gguf *part;
    const struct gguf_tensor *all = gguf_find_tensor(c->set, STR("rope_freqs.weight"), &part), *t;
    *out_has = true;
    if (all) {
        jsonw_put_str(&c->w, "rope_type", STR("factors"));
        return put_factors(c, "factors", part, all);
    }
    t = gguf_find_tensor(c->set, STR("rope_factors_short.weight"), &part);
    if (!t) t = gguf_find_tensor(c->set, STR("blk.0.rope_factors_short.weight"), &part);
    *out_has = t != NULL;
    if (!t) return ERR_OK;
    jsonw_put_str(&c->w, "rope_type", STR("longrope"));
    put_rope_number(c, "attention_factor", "rope.scaling.attn_factor", 1);
    TRY(put_factors(c, "short_factor", part, t));
    t = gguf_find_tensor(c->set, STR("rope_factors_long.weight"), &part);
    if (!t) t = gguf_find_tensor(c->set, STR("blk.0.rope_factors_long.weight"), &part);
    if (!t) return err_set(c->err, ERR_EFORMAT, "%s: rope_factors_long.weight is missing", c->g->source.name);
    return put_factors(c, "long_factor", part, t);
}

static int put_rope(struct writer *c) {
    struct str type = STR("none");
    double linear;
    bool has;
    gguf_to_str(get(c, "rope.scaling.type"), &type);
    put_num(c, "rope_theta", 10000); /* where the file has none */
    jsonw_open(&c->w, "rope_scaling", '{');
    TRY(put_rope_tensors(c, &has));
    put_rope_number(c, "original_max_position_embeddings", "rope.scaling.original_context_length", 1);
    put_rope_number(c, "factor", "rope.scaling.factor", 1);
    if (!has && str_is(type, "none") && number_of(c, "rope.scale_linear", &linear) && linear != 1) {
        type = STR("linear");
        jsonw_put_num(&c->w, "factor", linear);
    }
    if (!has) jsonw_put_str(&c->w, "rope_type", str_is(type, "none") ? STR("default") : type);
    if (!has && str_is(type, "yarn")) {
        put_rope_number(c, "beta_fast", "rope.scaling.yarn_beta_fast", 1);
        put_rope_number(c, "beta_slow", "rope.scaling.yarn_beta_slow", 1);
        put_rope_number(c, "attention_factor", "rope.scaling.yarn_attn_factor", 1);
        put_rope_number(c, "mscale", "rope.scaling.yarn_log_multiplier", 10);
        put_rope_number(c, "mscale_all_dim", "rope.scaling.yarn_log_multiplier", 10);
        if (c->arch->flags & GGUF_YARN_UNCUT) jsonw_put_bool(&c->w, "truncate", false);
    }
    jsonw_end(&c->w, '}');
    return ERR_OK;
}

static int put_vocabulary(struct writer *c) {
    const struct gguf *part;
    const struct gguf_tensor *t = gguf_find_tensor(c->set, STR("token_embd.weight"), &part);
    int64_t id;
    if (!t || t->n_dims != 2) return err_set(c->err, ERR_EFORMAT, "%s: tensor token_embd.weight is missing", c->g->source.name);
    jsonw_put_int(&c->w, "vocab_size", t->shape[0]);
    jsonw_put_bool(&c->w, "tie_word_embeddings", !gguf_find_tensor(c->set, STR("output.weight"), &part));
    if (gguf_to_int(gguf_get(c->g, STR("tokenizer.ggml.bos_token_id")), &id)) jsonw_put_int(&c->w, "bos_token_id", id);
    return ERR_OK;
}

/* The routers' scores: 1 softmax, 2 sigmoid, 3 softmax over those that were chosen. */
static int put_type(struct writer *c) {
    const struct gguf_arch *arch = c->arch;
    int64_t gate = 0;
    c->set->has_experts = first_number(get(c, "expert_count"), 0) > 0;
    if (c->set->has_experts) gguf_to_int(get(c, "expert_gating_func"), &gate);
    if (gate < 0 || gate > 3)
        return err_set(c->err, ERR_EUNSUPPORTED, "%s: %s.expert_gating_func %lld is not known", c->g->source.name, arch->name,
                       (long long)gate);
    const struct gguf *part;
    for (int64_t i = 0; gate == 0 && arch->sigmoid_type && i < 8; i++) { /* files that do not say it: only sigmoids have this bias */
        char name[48];
        snprintf(name, sizeof name, "blk.%lld.exp_probs_b.bias", (long long)i);
        if (gguf_find_tensor(c->set, str_of(name), &part)) gate = 2;
    }
    const char *type = c->set->has_experts && arch->moe_type ? arch->moe_type : arch->type;
    jsonw_put_str(&c->w, "model_type", str_of(gate == 2 && arch->sigmoid_type ? arch->sigmoid_type : type));
    if (gate == 2) jsonw_put_str(&c->w, "score_function", STR("sigmoid"));
    if (first_number(get(c, "expert_group_count"), 0) > 1) jsonw_put_str(&c->w, "topk_method", STR("group_limited_greedy"));
    return ERR_OK;
}

/* Which layers have the window: a period, or a switch for each. */
static void put_windows(struct writer *c) {
    const struct gguf_value *v = get(c, "attention.sliding_window_pattern");
    struct gguf_value item;
    uint64_t at = 0;
    int64_t slides;
    if (!v) return;
    if (v->type != GGUF_ARRAY) {
        put_value(c, "sliding_window_pattern", v);
        return;
    }
    jsonw_open(&c->w, "layer_types", '[');
    while (gguf_next(v, &at, &item))
        jsonw_str(&c->w, gguf_to_int(&item, &slides) && slides ? STR("sliding_attention") : STR("full_attention"));
    jsonw_end(&c->w, ']');
}

/* Rows of the table see what is before them; a file may be of an encoder made from such a model. */
static int check_causal(const struct writer *c) {
    int64_t is_causal;
    if (!gguf_to_int(get(c, "attention.causal"), &is_causal) || is_causal) return ERR_OK;
    return err_set(c->err, ERR_EUNSUPPORTED, "%s: %s.attention.causal is false; encoders are not read from GGUF files", c->g->source.name,
                   c->arch->name);
}

static int put_all(struct writer *c) {
    jsonw_begin(&c->w, '{');
    TRY(check_causal(c));
    TRY(put_type(c));
    put_windows(c);
    TRY(put_vocabulary(c));
    TRY(put_keys(c));
    TRY(put_heads(c));
    TRY(put_rope(c));
    if (c->arch->config) jsonw_raw(&c->w, str_of(c->arch->config));
    jsonw_end(&c->w, '}');
    return ERR_OK;
}

int gguf_config(struct arena *a, struct gguf_set *s, struct err *err) {
    struct sb text = {0};
    struct writer c = {.set = s, .g = &s->parts[0], .arch = s->arch, .w = {.out = &text}, .err = err};
    int code = put_all(&c);
    if (code == ERR_OK) s->config = str_copy(a, sb_str(&text));
    map_free(&c.written);
    sb_free(&text);
    return code;
}
