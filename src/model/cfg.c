/* Short readers over file/config.h. */
#include "model/cfg.h"

static const struct config_range any_float = {-3.4e38, 3.4e38};

const char *cfg_key(const struct cfg *c, const char *key) {
    const struct key_name *first = NULL;
    if (c->file->is_canonical && config_said(c->file, key)) return key;
    for (const struct key_name *k = c->keys; k && k->ours; k++) {
        if (strcmp(k->ours, key) != 0) continue;
        if (k->theirs && config_said(c->file, k->theirs)) return k->theirs;
        if (!first) first = k;
    }
    return first ? first->theirs : key;
}

yyjson_val *cfg_get(const struct cfg *c, const char *key) {
    const char *name = cfg_key(c, key);
    return name ? config_get(c->file, name) : NULL;
}

bool cfg_said(const struct cfg *c, const char *key) {
    const char *name = cfg_key(c, key);
    return name && config_said(c->file, name);
}

const char *cfg_first(const struct cfg *c, const char *const *keys, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (cfg_said(c, keys[i])) return keys[i];
    for (size_t i = 0; i < n; i++)
        if (cfg_get(c, keys[i])) return keys[i];
    return keys[0];
}

int cfg_int(const struct cfg *c, const char *key, int64_t min, int64_t max, int64_t absent, int32_t *out, struct err *err) {
    int64_t value = absent;
    const char *name = cfg_key(c, key);
    if (name) TRY(config_int(c->file, name, (struct config_range){(double)min, (double)max}, absent, &value, err));
    *out = (int32_t)value;
    return ERR_OK;
}

int cfg_need(const struct cfg *c, const char *key, int64_t min, int64_t max, int32_t *out, struct err *err) {
    if (!cfg_get(c, key)) return err_set(err, ERR_EFORMAT, "%s: %s is missing", c->file->name, cfg_key(c, key));
    return cfg_int(c, key, min, max, 0, out, err);
}

static int out_of_range(const struct cfg *c, const char *name, int32_t layer, int64_t min, int64_t max, struct err *err) {
    return err_set(err, ERR_EFORMAT, "%s: %s of layer %d must be %lld to %lld", c->file->name, name, layer, (long long)min, (long long)max);
}

/* The layer's object in per_layer_config, whose keys are numbers with or without leading zeros. */
static yyjson_val *own_config(const struct cfg *c, int32_t layer) {
    yyjson_val *all = config_get(c->file, "per_layer_config"), *key, *v;
    size_t i, n;
    int64_t number;
    if (yyjson_is_obj(all)) yyjson_obj_foreach(all, i, n, key, v) if (str_to_int64(json_val_str(key), &number) && number == layer) return v;
    return NULL;
}

int cfg_int_at(const struct cfg *c, const char *key, int32_t layer, int64_t min, int64_t max, int64_t absent, int32_t *out,
               struct err *err) {
    const char *name = cfg_key(c, key);
    yyjson_val *v = cfg_get(c, key);
    yyjson_val *own = name ? json_get(own_config(c, layer), name) : NULL;
    if (own) v = own;
    else if (!yyjson_is_arr(v)) return cfg_int(c, key, min, max, absent, out, err);
    else v = yyjson_arr_get(v, (size_t)layer);
    int64_t value;
    if (!json_val_int(v, &value) || value < min || value > max) return out_of_range(c, name, layer, min, max, err);
    *out = (int32_t)value;
    return ERR_OK;
}

int cfg_num(const struct cfg *c, const char *key, double absent, float *out, struct err *err) {
    double value = absent;
    const char *name = cfg_key(c, key);
    if (name) TRY(config_num(c->file, name, any_float, absent, &value, err));
    *out = (float)value;
    return ERR_OK;
}

bool cfg_bool(const struct cfg *c, const char *key, bool absent) {
    yyjson_val *v = cfg_get(c, key);
    if (yyjson_is_num(v)) return yyjson_get_num(v) != 0;
    return yyjson_is_bool(v) ? yyjson_get_bool(v) : absent;
}

struct str cfg_str(const struct cfg *c, const char *key, struct str absent) {
    struct str s = json_val_str(cfg_get(c, key));
    return s.p ? s : absent;
}

int cfg_list(const struct cfg *c, const char *key, int32_t n, yyjson_val **out, struct err *err) {
    *out = cfg_get(c, key);
    if (!*out) return ERR_OK;
    if (yyjson_is_arr(*out) && yyjson_arr_size(*out) >= (size_t)n) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "%s: %s must be a list of %d entries, one per layer", c->file->name, cfg_key(c, key), n);
}

bool cfg_list_has(const struct cfg *c, const char *key, int32_t layer) {
    yyjson_val *list = cfg_get(c, key), *v;
    size_t i, n;
    int64_t value;
    if (yyjson_is_arr(list)) yyjson_arr_foreach(list, i, n, v) if (json_val_int(v, &value) && value == layer) return true;
    return false;
}
