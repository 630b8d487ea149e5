/* JSON: yyjson's parser over our arenas, small readers with defaults, and a writer for output of any length.
 *
 * A parsed document lives as long as its arena; nobody frees a JSON value. Reading is by yyjson's own accessors
 * (yyjson_obj_get, yyjson_arr_foreach ...) or by the helpers below, which never fail: they return the default when the
 * key is absent or has another type. Use json_need_* where a missing key must be an error.
 */
#ifndef MLXCEL_BASE_JSON_H
#define MLXCEL_BASE_JSON_H

#include "base/str.h"

#include <yyjson.h>

enum json_flags {
    JSON_STRICT = 0,
    JSON_LENIENT = 1,     /* NaN and Infinity literals, as Python writes them into config.json */
    JSON_RAW_NUMBERS = 2, /* numbers stay text (yyjson_is_raw), with all of their digits */
};

/* name stands in messages: "config.json: line 3, column 7: ...". The text is copied. */
int json_parse(struct arena *a, struct str text, const char *name, enum json_flags flags, yyjson_val **out_root, struct err *err);

/* All take obj == NULL or a non-object and then answer as if the key were absent. */
yyjson_val *json_get(yyjson_val *obj, const char *key);
yyjson_val *json_given(yyjson_val *obj, const char *key); /* null counts as absent */
struct str json_str(yyjson_val *obj, const char *key, struct str absent);
int64_t json_int(yyjson_val *obj, const char *key, int64_t absent); /* whole floats (1e6, 64.0) count */
double json_num(yyjson_val *obj, const char *key, double absent);
bool json_bool(yyjson_val *obj, const char *key, bool absent);
struct str json_val_str(yyjson_val *val); /* {NULL, 0} for anything but a string */
bool json_val_int(yyjson_val *val, int64_t *out);

/* Writing: commas and quoting are ours, nesting is the caller's. Strings are escaped and invalid UTF-8 replaced. */
struct jsonw {
    struct sb *out;
    bool need_comma;
};

void jsonw_begin(struct jsonw *w, char bracket); /* '{' or '[' */
void jsonw_end(struct jsonw *w, char bracket);   /* '}' or ']' */
void jsonw_key(struct jsonw *w, const char *key);
void jsonw_key_str(struct jsonw *w, struct str key);
void jsonw_str(struct jsonw *w, struct str value);
void jsonw_int(struct jsonw *w, int64_t value);
void jsonw_num(struct jsonw *w, double value);   /* shortest form that reads back equal; NaN and infinities as null */
void jsonw_fixed(struct jsonw *w, double value); /* seven places behind the point at most, and fast */
void jsonw_bool(struct jsonw *w, bool value);
void jsonw_null(struct jsonw *w);
void jsonw_raw(struct jsonw *w, struct str json);         /* already JSON */
void jsonw_val(struct jsonw *w, yyjson_val *val);         /* a parsed value, as it was */
void jsonw_val_lenient(struct jsonw *w, yyjson_val *val); /* with NaN and Infinity, which are no JSON */
/* A key with its value; open: with an object or a list, which jsonw_end ends. */
void jsonw_open(struct jsonw *w, const char *key, char bracket);
void jsonw_put_str(struct jsonw *w, const char *key, struct str value);
void jsonw_put_int(struct jsonw *w, const char *key, int64_t value);
void jsonw_put_num(struct jsonw *w, const char *key, double value);
void jsonw_put_bool(struct jsonw *w, const char *key, bool value);
void jsonw_put_null(struct jsonw *w, const char *key);
void jsonw_put_raw(struct jsonw *w, const char *key, struct str json);
/* JSON that was written here without white space, over several lines. */
void json_pretty(struct str json, struct sb *out);
/* How deep brackets are nested in a text, valid or not: to be asked before a text from outside is parsed and walked. */
size_t json_depth(struct str text);
/* At least as many as the text holds of numbers, strings, lists and objects: each takes 16 bytes once it is parsed. */
size_t json_value_count(struct str text);

void json_quote(struct sb *out, struct str value);

#endif
