/* Short readers over file/config.h: 32-bit numbers with ranges, f32 numbers that must be finite, numbers per layer.
 *
 * A family may use other names for a key, or use a common name for another thing; its renames are applied here, so that
 * the rest of src/model asks by one name. */
#ifndef MLXCEL_MODEL_CFG_H
#define MLXCEL_MODEL_CFG_H

#include "file/config.h"

/* Where the family's file has the value that we ask for as `ours`; NULL: nowhere, whatever the file says. Of several rows for one key the first counts
 * that the file has. */
struct key_name {
    const char *ours, *theirs;
};

struct cfg {
    const struct config *file;   /* with the family's defaults */
    const struct key_name *keys; /* ends with {NULL, NULL}; NULL: none */
};

/* NULL when absent. */
yyjson_val *cfg_get(const struct cfg *c, const char *key);
/* Whether the file itself has the key. */
bool cfg_said(const struct cfg *c, const char *key);
/* config_first by our names. */
const char *cfg_first(const struct cfg *c, const char *const *keys, size_t n);
/* The family's own name of a key, for messages. */
const char *cfg_key(const struct cfg *c, const char *key);

/* An integer in [min, max]; null, or a key that has no default either, gives `absent`. Anything else is an error that names the key. */
int cfg_int(const struct cfg *c, const char *key, int64_t min, int64_t max, int64_t absent, int32_t *out, struct err *err);
/* As cfg_int, but the key must be there. */
int cfg_need(const struct cfg *c, const char *key, int64_t min, int64_t max, int32_t *out, struct err *err);
/* As cfg_int for one layer: a number for all, a list with one per layer, or an entry of per_layer_config. */
int cfg_int_at(const struct cfg *c, const char *key, int32_t layer, int64_t min, int64_t max, int64_t absent, int32_t *out,
               struct err *err);
int cfg_num(const struct cfg *c, const char *key, double absent, float *out, struct err *err);
/* true, or a number other than 0. */
bool cfg_bool(const struct cfg *c, const char *key, bool absent);
struct str cfg_str(const struct cfg *c, const char *key, struct str absent);

/* Lists with one entry per layer. `out` is NULL where the key is absent; a list that is too short is an error. */
int cfg_list(const struct cfg *c, const char *key, int32_t n, yyjson_val **out, struct err *err);
/* Whether a list of layer numbers contains one. */
bool cfg_list_has(const struct cfg *c, const char *key, int32_t layer);

#endif
