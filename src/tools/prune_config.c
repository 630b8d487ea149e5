/* The config of a model without some of its parts: numbers, lists with an entry per layer, lists of layers, formats by path. */
#include "base/json.h"
#include "model/families.h"
#include "tools/prune_internal.h"

enum { VALUES_MAX = 8 };

/* A number that changes. */
struct new_number {
    const char *key; /* the family's; "a.b" is b of the object a */
    int64_t (*at)(const struct prune *p, int32_t layer);
    int64_t number; /* where at is NULL, or no list */
    bool is_put;
};

struct writer {
    const struct prune *p;
    const struct config *config;
    struct cfg cfg;
    struct jsonw json;
    struct new_number values[VALUES_MAX];
    int32_t n_values;
};

static const struct layer_spec *layer_of(const struct prune *p, int32_t i) {
    return &p->model.spec.layers[i];
}

static int64_t heads_at(const struct prune *p, int32_t layer) {
    return p->layers[layer].n_heads;
}

static int64_t kv_at(const struct prune *p, int32_t layer) {
    return p->layers[layer].n_kv;
}

static int64_t inner_at(const struct prune *p, int32_t layer) {
    return (int64_t)p->layers[layer].n_inner * (p->model.spec.family->flags & FAM_INNER_HALVED ? 2 : 1);
}

static void change(struct writer *w, const char *ours, int64_t (*at)(const struct prune *, int32_t), int64_t number) {
    const char *key = cfg_key(&w->cfg, ours);
    if (key) w->values[w->n_values++] = (struct new_number){.key = key, .at = at, .number = number};
}

/* ---- which numbers change ---------------------------------------------------------------------------------------------- */

/* Numbers of layers: how many there are, how many before something begins. */
static void change_depth(struct writer *w) {
    static const char *const bounds[] = {"first_k_dense_replace", "max_window_layers"};
    const struct prune *p = w->p;
    int64_t number, borrowers = 0;
    change(w, "num_hidden_layers", NULL, p->n_left);
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (json_val_int(cfg_get(&w->cfg, bounds[i]), &number) && number > 0)
            change(w, bounds[i], NULL, number > p->model.spec.n_layers ? number : prune_number(p, number));
    for (int32_t i = 0; i < p->model.spec.n_layers; i++) borrowers += layer_of(p, i)->borrows_kv && !p->layers[i].goes;
    if (cfg_said(&w->cfg, "num_kv_shared_layers")) change(w, "num_kv_shared_layers", NULL, borrowers);
}

static void change_heads(struct writer *w) {
    static const char *const kv_keys[] = {"num_key_value_heads", "num_attention_groups"};
    const struct prune *p = w->p;
    int32_t i = 0;
    while (p->layers[i].goes || !p->layers[i].heads) i++;
    const char *kv = cfg_first(&w->cfg, kv_keys, 2);
    change(w, "num_attention_heads", heads_at, p->layers[i].n_heads);
    if (cfg_said(&w->cfg, kv) || p->layers[i].n_kv != p->layers[i].n_heads) change(w, kv, kv_at, p->layers[i].n_kv);
    if (!cfg_said(&w->cfg, "head_dim")) change(w, "head_dim", NULL, layer_of(p, i)->attn.k_width);
}

static void change_inner(struct writer *w) {
    int32_t i = 0;
    while (w->p->layers[i].goes || !w->p->layers[i].inner) i++;
    change(w, "intermediate_size", inner_at, inner_at(w->p, i));
}

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

/* Lists whose entries are numbers of layers. */
static bool lists_layers(struct str key) {
    static const char *const keys[] = {"mlp_only_layers", "moe_layers", "full_attn_idxs", "cross_attention_layers", "attn_layer_indices"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (str_is(key, keys[i])) return true;
    return false;
}

static bool is_per_layer(const struct prune *p, struct str key, yyjson_val *val) {
    bool is_other =
        str_ends(key, STR("_id")) || str_ends(key, STR("_ids")) || str_ends(key, STR("_multipliers")) || str_is(key, "architectures");
    return yyjson_is_arr(val) && (int64_t)yyjson_arr_size(val) == p->model.spec.n_layers && !is_other;
}

static void put_layer_numbers(struct writer *w, yyjson_val *list) {
    yyjson_val *val;
    size_t i, n;
    int64_t number;
    jsonw_begin(&w->json, '[');
    yyjson_arr_foreach(list, i, n, val) {
        bool is_layer = json_val_int(val, &number) && number >= 0 && number < w->p->model.spec.n_layers;
        if (!is_layer) jsonw_val_lenient(&w->json, val);
        else if (!w->p->layers[number].goes) jsonw_int(&w->json, prune_number(w->p, number));
    }
    jsonw_end(&w->json, ']');
}

static void put_list(struct writer *w, yyjson_val *list, const struct new_number *v) {
    yyjson_val *val;
    size_t i, n;
    jsonw_begin(&w->json, '[');
    yyjson_arr_foreach(list, i, n, val) {
        if (w->p->layers[i].goes) continue;
        int64_t number = v && v->at ? v->at(w->p, (int32_t)i) : 0;
        if (number > 0) jsonw_int(&w->json, number);
        else jsonw_val_lenient(&w->json, val);
    }
    jsonw_end(&w->json, ']');
}

/* Formats by path, among other keys. */
static void put_formats(struct writer *w, yyjson_val *formats) {
    yyjson_val *key, *val;
    size_t i, n;
    jsonw_begin(&w->json, '{');
    yyjson_obj_foreach(formats, i, n, key, val) {
        struct str name = prune_name(w->p, w->p->arena, json_val_str(key));
        if (!name.p) continue;
        jsonw_key_str(&w->json, name);
        jsonw_val_lenient(&w->json, val);
    }
    jsonw_end(&w->json, '}');
}

static struct new_number *value_of(struct writer *w, struct str path) {
    for (int32_t i = 0; i < w->n_values; i++)
        if (str_is(path, w->values[i].key)) return &w->values[i];
    return NULL;
}

static bool leads_to_value(const struct writer *w, struct str path) {
    for (int32_t i = 0; i < w->n_values; i++) {
        struct str key = str_of(w->values[i].key);
        if (key.n > path.n && str_starts(key, path) && key.p[path.n] == '.') return true;
    }
    return false;
}

static void put_object(struct writer *w, yyjson_val *obj, struct str before);

static void put_value(struct writer *w, struct str key, yyjson_val *val, struct str before) {
    struct str path = before.n ? str_fmt(w->p->arena, "%.*s.%.*s", STR_ARG(before), STR_ARG(key)) : key;
    struct new_number *v = value_of(w, path);
    bool is_format = str_is(key, "quantization") || str_is(key, "quantization_config");
    if (v) v->is_put = true;
    if (val == w->config->text) put_object(w, val, (struct str){0});
    else if (is_format && yyjson_is_obj(val)) put_formats(w, val);
    else if (yyjson_is_obj(val) && leads_to_value(w, path)) put_object(w, val, path);
    else if (yyjson_is_arr(val) && lists_layers(key)) put_layer_numbers(w, val);
    else if (is_per_layer(w->p, key, val)) put_list(w, val, v);
    else if (v) jsonw_int(&w->json, v->number);
    else jsonw_val_lenient(&w->json, val);
}

static void put_object(struct writer *w, yyjson_val *obj, struct str before) {
    yyjson_val *key, *val;
    size_t i, n;
    bool is_last = obj == (w->config->text ? w->config->text : w->config->root);
    jsonw_begin(&w->json, '{');
    yyjson_obj_foreach(obj, i, n, key, val) {
        jsonw_key_str(&w->json, json_val_str(key));
        put_value(w, json_val_str(key), val, before);
    }
    for (int32_t k = 0; k < w->n_values && is_last; k++) { /* what the file did not say; a key that the top has is changed there */
        struct new_number *v = &w->values[k];
        if (v->is_put || config_said(w->config, v->key) || strchr(v->key, '.')) continue;
        jsonw_put_int(&w->json, v->key, v->number);
    }
    jsonw_end(&w->json, '}');
}

void prune_config(const struct prune *p, const struct config *c, struct sb *out) {
    struct writer w = {.p = p, .config = c, .cfg = {c, p->model.spec.family->keys}, .json = {.out = out}};
    if (p->n_left < p->model.spec.n_layers) change_depth(&w);
    if (p->cuts_heads) change_heads(&w);
    if (p->cuts_inner) change_inner(&w);
    put_object(&w, c->root, (struct str){0});
}
