/* Reading config.json: dialects are folded here, so that nobody above sees more than one form. */
#include "file/config.h"

#include "file/limits.h"

#include <math.h>
#include <stdio.h>

static const char *const text_parts[] = {"text_config", "language_config", "llm_config"};
static const char *const top_keys[] = {"quantization",  "quantization_config", "tie_word_embeddings",
                                       "architectures", "model_type",          "eos_token_id"};

/* Objects that are read as a whole or not at all. */
static bool is_table(yyjson_val *key) {
    static const char *const names[] = {"quantization", "quantization_config", "id2label", "label2id"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (yyjson_equals_str(key, names[i])) return true;
    return false;
}

/* Objects of a size that can be searched through for every key of every layer. */
static int check_keys(yyjson_val *obj, const char *name, struct err *err) {
    size_t i, n, most = yyjson_obj_size(obj);
    yyjson_val *key, *val;
    yyjson_obj_foreach(obj, i, n, key, val) {
        if (!is_table(key) && yyjson_obj_size(val) > most) most = yyjson_obj_size(val);
    }
    if (most <= CONFIG_KEYS_MAX) return ERR_OK;
    return err_set(err, ERR_ELIMIT, "%s: an object of %zu keys, at most %d are read", name, most, CONFIG_KEYS_MAX);
}

int config_parse(struct arena *a, struct str text, const char *name, struct config *out, struct err *err) {
    *out = (struct config){.name = name};
    TRY(json_parse(a, text, name, JSON_LENIENT, &out->root, err));
    if (!yyjson_is_obj(out->root)) return err_set(err, ERR_EFORMAT, "%s: %s, expected an object", name, yyjson_get_type_desc(out->root));
    for (size_t i = 0; i < sizeof text_parts / sizeof *text_parts && !out->text; i++) {
        yyjson_val *part = json_get(out->root, text_parts[i]);
        if (yyjson_is_obj(part)) out->text = part;
    }
    TRY(check_keys(out->root, name, err));
    if (out->text) TRY(check_keys(out->text, name, err));
    out->model_type = json_str(out->root, "model_type", (struct str){0});
    out->text_type = json_str(out->text, "model_type", out->model_type);
    if (!out->model_type.p) out->model_type = out->text_type;
    return ERR_OK;
}

/* A dot in a key stands between an object and what it holds. */
static yyjson_val *inside(yyjson_val *obj, const char *key) {
    const char *dot = strchr(key, '.');
    if (!dot || !yyjson_is_obj(obj)) return json_get(obj, key);
    return inside(yyjson_obj_getn(obj, key, (size_t)(dot - key)), dot + 1);
}

static yyjson_val *present(yyjson_val *obj, const char *key) {
    yyjson_val *v = inside(obj, key);
    return yyjson_is_null(v) ? NULL : v;
}

yyjson_val *config_said(const struct config *c, const char *key) {
    bool top_first = false;
    for (size_t i = 0; i < sizeof top_keys / sizeof *top_keys; i++) top_first |= strcmp(key, top_keys[i]) == 0;
    yyjson_val *v = present(c->instead, key);
    if (!v) v = present(top_first ? c->root : c->text, key);
    return v ? v : present(top_first ? c->text : c->root, key);
}

yyjson_val *config_get(const struct config *c, const char *key) {
    yyjson_val *v = config_said(c, key);
    if (v || !c->defaults) return v;
    bool is_null = inside(c->text ? c->text : c->root, key) != NULL;
    v = present(c->defaults, key);
    return is_null && !yyjson_is_ctn(v) ? NULL : v;
}

const char *config_first(const struct config *c, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (config_said(c, keys[i])) return keys[i];
    for (size_t i = 0; i < n; i++)
        if (config_get(c, keys[i])) return keys[i];
    return keys[0];
}

/* ---- typed access --------------------------------------------------------------------------------------------- */

/* A value for a message: numbers and short strings as they are, the rest by its type. */
static const char *value_text(yyjson_val *v, char out[64]) {
    int64_t i;
    if (json_val_int(v, &i)) snprintf(out, 64, "%lld", (long long)i);
    else if (yyjson_is_num(v)) snprintf(out, 64, "%g", yyjson_get_num(v));
    else if (yyjson_is_str(v)) snprintf(out, 64, "\"%.40s\"", yyjson_get_str(v));
    else if (yyjson_is_bool(v)) snprintf(out, 64, "%s", yyjson_get_bool(v) ? "true" : "false");
    else snprintf(out, 64, "an %s", yyjson_get_type_desc(v));
    return out;
}

/* A value and where it stands: "config.json: rope_parameters.factor", or just the key where `where` is NULL. */
struct spot {
    const char *file, *where, *key;
    yyjson_val *v;
};

static int out_of_range(const struct spot *s, const char *what, struct config_range range, struct err *err) {
    char text[64];
    return err_set(err, ERR_EFORMAT, "%s: %s%s%s is %s, expected %s%.15g to %.15g", s->file, s->where ? s->where : "", s->where ? "." : "",
                   s->key, value_text(s->v, text), what, range.min, range.max);
}

static int take_int(struct spot s, struct config_range range, int64_t *out, struct err *err) {
    int64_t value;
    if (!json_val_int(s.v, &value) || (double)value < range.min || (double)value > range.max) return out_of_range(&s, "", range, err);
    *out = value;
    return ERR_OK;
}

static int take_num(struct spot s, struct config_range range, double *out, struct err *err) {
    double value = yyjson_get_num(s.v);
    if (!yyjson_is_num(s.v) || !isfinite(value) || value < range.min || value > range.max)
        return out_of_range(&s, "a number from ", range, err);
    *out = value;
    return ERR_OK;
}

int config_int(const struct config *c, const char *key, struct config_range range, int64_t absent, int64_t *out, struct err *err) {
    yyjson_val *v = config_get(c, key);
    *out = absent;
    return v ? take_int((struct spot){c->name, NULL, key, v}, range, out, err) : ERR_OK;
}

int config_num(const struct config *c, const char *key, struct config_range range, double absent, double *out, struct err *err) {
    yyjson_val *v = config_get(c, key);
    *out = absent;
    return v ? take_num((struct spot){c->name, NULL, key, v}, range, out, err) : ERR_OK;
}

int config_str(const struct config *c, const char *key, struct str absent, struct str *out, struct err *err) {
    yyjson_val *v = config_get(c, key);
    char text[64];
    *out = absent;
    if (!v) return ERR_OK;
    if (!yyjson_is_str(v)) return err_set(err, ERR_EFORMAT, "%s: %s is %s, expected a string", c->name, key, value_text(v, text));
    *out = json_val_str(v);
    return ERR_OK;
}

int config_ints(struct arena *a, const struct config *c, const char *key, struct config_range range, size_t most, int64_t **out,
                size_t *out_n, struct err *err) {
    yyjson_val *v = config_get(c, key), *item;
    *out = NULL;
    *out_n = 0;
    if (!v) return ERR_OK;
    size_t i, n = yyjson_is_arr(v) ? yyjson_arr_size(v) : 1;
    if (n > most) return err_set(err, ERR_ELIMIT, "%s: %s lists %zu numbers, at most %zu are read", c->name, key, n, most);
    int64_t *list = arena_try(a, (n ? n : 1) * sizeof *list);
    if (!list) return err_set(err, ERR_EMEMORY, "%s: no memory for the %zu numbers of %s", c->name, n, key);
    if (!yyjson_is_arr(v)) {
        TRY(take_int((struct spot){c->name, NULL, key, v}, range, list, err));
    } else {
        yyjson_arr_foreach(v, i, n, item) TRY(take_int((struct spot){c->name, NULL, key, item}, range, &list[i], err));
    }
    *out = list;
    *out_n = n;
    return ERR_OK;
}

int config_part_int(const struct config_part *p, const char *key, struct config_range range, int64_t absent, int64_t *out,
                    struct err *err) {
    yyjson_val *v = present(p->obj, key);
    *out = absent;
    return v ? take_int((struct spot){p->file, p->where, key, v}, range, out, err) : ERR_OK;
}

int config_part_num(const struct config_part *p, const char *key, struct config_range range, double absent, double *out, struct err *err) {
    yyjson_val *v = present(p->obj, key);
    *out = absent;
    return v ? take_num((struct spot){p->file, p->where, key, v}, range, out, err) : ERR_OK;
}

/* ---- the shape of a decoder ----------------------------------------------------------------------------------- */

/* Synonyms, the usual name first: GPT-2 and its descendants have their own. A list has one number per layer: 0 then. */
static int int_of(const struct config *c, const char *const *keys, struct config_range range, int64_t *out, struct err *err) {
    *out = 0;
    for (; *keys; keys++)
        if (config_get(c, *keys)) return yyjson_is_arr(config_get(c, *keys)) ? ERR_OK : config_int(c, *keys, range, 0, out, err);
    return ERR_OK;
}

int config_shape(const struct config *c, struct config_shape *out, struct err *err) {
    const struct {
        const char *keys[5];
        struct config_range range;
        int64_t *out;
    } rows[] = {
        {{"num_hidden_layers", "n_layer", "n_layers", "num_layers"}, {1, 4096}, &out->n_layers},
        {{"num_attention_heads", "n_head", "n_heads"}, {1, 65536}, &out->n_heads},
        {{"num_key_value_heads", "num_kv_heads", "multi_query_group_num"}, {1, 65536}, &out->n_kv_heads},
        {{"head_dim"}, {1, 65536}, &out->head_dim},
        {{"hidden_size", "n_embd", "d_model", "dim"}, {1, 1 << 24}, &out->hidden},
        {{"intermediate_size", "ffn_dim", "n_inner"}, {0, 1 << 28}, &out->intermediate},
        {{"vocab_size"}, {1, 1 << 28}, &out->vocab},
        {{"max_position_embeddings", "n_positions", "seq_length", "model_max_length"}, {1, 1 << 30}, &out->context},
    };
    *out = (struct config_shape){0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) TRY(int_of(c, rows[i].keys, rows[i].range, rows[i].out, err));
    if (!out->n_kv_heads && !config_get(c, "num_key_value_heads")) out->n_kv_heads = out->n_heads;
    if (!out->head_dim && out->n_heads) {
        if (out->hidden % out->n_heads)
            return err_set(err, ERR_EFORMAT, "%s: hidden_size %lld is not a multiple of num_attention_heads %lld, and head_dim is missing",
                           c->name, (long long)out->hidden, (long long)out->n_heads);
        out->head_dim = out->hidden / out->n_heads;
    }
    return out->context ? config_stretch(c, &out->context, err) : ERR_OK;
}

/* ---- rotary embedding ----------------------------------------------------------------------------------------- */

/* rope_parameters nested by layer type has objects as values and no rope_type of its own. */
static yyjson_val *nested_rope(yyjson_val *params, const char *layer_type) {
    yyjson_val *v = present(params, layer_type ? layer_type : "full_attention");
    return yyjson_is_obj(v) ? v : NULL;
}

static int read_rope_object(const struct config *c, const char *where, yyjson_val *obj, struct config_rope *out, struct err *err) {
    out->raw = obj;
    out->type = json_str(obj, "rope_type", json_str(obj, "type", out->type));
    const struct config_part part = {c->name, where, obj};
    TRY(config_part_num(&part, "rope_theta", (struct config_range){1e-6, 1e15}, out->theta, &out->theta, err));
    TRY(config_part_num(&part, "partial_rotary_factor", (struct config_range){0, 1}, out->partial, &out->partial, err));
    TRY(config_part_num(&part, "factor", (struct config_range){1e-6, 1e9}, out->factor, &out->factor, err));
    return config_part_num(&part, "original_max_position_embeddings", (struct config_range){1, 1 << 30}, out->original_context,
                           &out->original_context, err);
}

/* A number, or a list with one per layer. */
static int num_at(const struct config *c, const char *key, int32_t layer, struct config_range range, double *out, struct err *err) {
    yyjson_val *v = config_get(c, key);
    if (!yyjson_is_arr(v)) return config_num(c, key, range, *out, out, err);
    return take_num((struct spot){c->name, NULL, key, yyjson_arr_get(v, (size_t)layer)}, range, out, err);
}

/* The flat keys that older files have; GPT-NeoX has names of its own. */
static int read_flat_rope(const struct config *c, int32_t layer, struct config_rope *out, struct err *err) {
    static const char *const thetas[] = {"rope_theta", "rotary_emb_base", "attn_config.rope_theta", "global_rope_theta"},
                             *const partials[] = {"partial_rotary_factor", "rotary_pct", "rope_pct", "partial_rotary_factors"};
    TRY(num_at(c, config_first(c, thetas, 4), layer, (struct config_range){1e-6, 1e15}, &out->theta, err));
    TRY(num_at(c, config_first(c, partials, 4), layer, (struct config_range){0, 1}, &out->partial, err));
    return config_num(c, "original_max_position_embeddings", (struct config_range){1, 1 << 30}, 0, &out->original_context, err);
}

/* The object with the parameters: the file's, in either dialect, before the default's. NULL: there is none. */
static yyjson_val *rope_object(const struct config *c, const char **out_where) {
    static const char *const keys[] = {"rope_parameters", "rope_scaling"};
    for (size_t i = 0; i < 2; i++)
        if (yyjson_is_obj(config_said(c, *out_where = keys[i]))) return config_said(c, keys[i]);
    return present(c->defaults, *out_where = keys[0]);
}

int config_rope(const struct config *c, const struct rope_ask *ask, struct config_rope *out, struct err *err) {
    const char *layer_type = ask->layer_type;
    *out = (struct config_rope){.type = STR("default"), .theta = ask->theta, .partial = 1, .factor = 1};
    TRY(read_flat_rope(c, ask->layer, out, err));
    const char *where;
    yyjson_val *params = rope_object(c, &where), *nested = nested_rope(params, layer_type);
    out->is_nested = nested != NULL;
    if (nested) return read_rope_object(c, where, nested, out, err);
    bool is_flat = strcmp(where, "rope_parameters") != 0 || !params;
    if (is_flat && layer_type && strcmp(layer_type, "sliding_attention") == 0 && config_get(c, "rope_local_base_freq"))
        return config_num(c, "rope_local_base_freq", (struct config_range){1e-6, 1e15}, 0, &out->theta, err);
    return params ? read_rope_object(c, where, params, out, err) : ERR_OK;
}

int config_stretch(const struct config *c, int64_t *context, struct err *err) {
    struct config_rope rope;
    TRY(config_rope(c, &(struct rope_ask){.layer_type = "full_attention", .theta = 10000}, &rope, err));
    double reach = rope.factor * (rope.original_context > 0 ? rope.original_context : (double)*context);
    if (str_is(rope.type, "yarn") && reach > (double)*context && reach <= INT32_MAX) *context = (int64_t)reach;
    return ERR_OK;
}

/* ---- end of sequence ------------------------------------------------------------------------------------------ */

int config_eos_ids(struct arena *a, const struct config *config, const struct config *generation, int64_t **out, size_t *out_n,
                   struct err *err) {
    int64_t *lists[2] = {NULL, NULL};
    size_t n[2] = {0, 0};
    struct config_range range = {0, INT32_MAX};
    if (generation) TRY(config_ints(a, generation, "eos_token_id", range, EOS_IDS_MAX, &lists[0], &n[0], err));
    TRY(config_ints(a, config, "eos_token_id", range, EOS_IDS_MAX, &lists[1], &n[1], err));
    int64_t *all = arena_new(a, int64_t, n[0] + n[1] + 1);
    size_t n_all = 0;
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < n[l]; i++) {
            size_t k = 0;
            while (k < n_all && all[k] != lists[l][i]) k++;
            if (k == n_all) all[n_all++] = lists[l][i];
        }
    *out = all;
    *out_n = n_all;
    return ERR_OK;
}
