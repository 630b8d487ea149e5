/* Reading the description of a checkpoint. */
#include "described.h"

#include "os/os.h"

#include <stdlib.h>

static bool described_find(void *user, struct str name, struct tensor_info *out) {
    const struct tensor_info *t = map_get_ptr(&((struct described *)user)->tensors, name);
    if (t) *out = *t;
    return t != NULL;
}

static int described_read(void *user, const struct tensor_info *t, uint64_t offset, void *dst, size_t n, struct err *err) {
    (void)user, (void)err;
    memset(dst, 0, n);
    for (size_t i = 0; t->dtype == DT_I64 && i < n / 8; i++) { /* of a table: different ones in each row */
        int64_t value = (int64_t)(offset / 8 + i) % t->shape[t->n_dims - 1];
        memcpy((char *)dst + i * 8, &value, sizeof value);
    }
    return ERR_OK;
}

static int described_format(void *user, struct str path, struct format *out, struct err *err) {
    if (quant_lookup(&((struct described *)user)->quant, path, out) != QUANT_IS_PLAIN) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "%.*s has scales, but config.json declares no quantisation for it", STR_ARG(path));
}

static int read_tensor(struct arena *a, struct described *d, struct str name, yyjson_val *v, struct err *err) {
    struct tensor_info *t = arena_new(a, struct tensor_info, 1);
    size_t i, n;
    yyjson_val *item;
    t->name = name;
    if (!dtype_parse(json_val_str(yyjson_arr_get_first(v)), &t->dtype))
        return err_set(err, ERR_EFORMAT, "%.*s: no such type", STR_ARG(name));
    yyjson_arr_foreach(v, i, n, item) if (i > 0 && i <= TENSOR_DIMS) t->shape[t->n_dims++] = yyjson_get_sint(item);
    map_put(&d->tensors, name, NULL)->value.ptr = t;
    return ERR_OK;
}

int described_load(struct arena *a, const char *path, struct described *d, struct err *err) {
    *d = (struct described){.store = {.find = described_find, .read = described_read, .format = described_format, .user = d}};
    struct str text;
    yyjson_val *root, *key, *v;
    size_t i, n;
    TRY(os_file_load(a, path, 0, &text, err));
    TRY(json_parse(a, text, path, JSON_LENIENT, &root, err));
    char *config = yyjson_val_write(json_get(root, "config"), YYJSON_WRITE_ALLOW_INF_AND_NAN, NULL);
    if (!config) return err_set(err, ERR_EFORMAT, "%s has no config", path);
    int code = config_parse(a, str_of(config), "config.json", &d->config, err);
    free(config);
    TRY(code);
    TRY(quant_config_read(a, &d->config, &d->quant, err));
    yyjson_obj_foreach(json_get(root, "tensors"), i, n, key, v) TRY(read_tensor(a, d, json_val_str(key), v, err));
    return ERR_OK;
}

void described_free(struct described *d) {
    map_free(&d->tensors);
    quant_config_free(&d->quant);
}
