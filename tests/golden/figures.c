/* Reading golden.safetensors. */
#include "figures.h"

#include <stdio.h>

static int read_file(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    return os_file_read_at(user, data, n, offset, err);
}

int figures_open(struct arena *a, const char *dir, struct figures *out, struct err *err) {
    *out = (struct figures){0};
    const char *path = str_fmt(a, "%s/golden.safetensors", dir).p;
    TRY(os_file_open(path, OS_READ, &out->file, err));
    out->source = (struct st_source){.name = path, .read_at = read_file, .user = out->file};
    int code = os_file_size(out->file, &out->source.size, err);
    if (!code) code = st_open(a, &out->source, &out->st, err);
    if (code) figures_close(out);
    return code;
}

void figures_close(struct figures *f) {
    if (f->file) os_file_close(f->file);
    *f = (struct figures){0};
}

const struct st_tensor *figures_find(const struct figures *f, const char *stem, int k) {
    char name[32];
    snprintf(name, sizeof name, "%s_%d", stem, k);
    for (size_t i = 0; i < f->st.n_tensors; i++)
        if (str_is(f->st.tensors[i].name, name)) return &f->st.tensors[i];
    return NULL;
}

int figures_load(struct arena *a, const struct figures *f, const char *stem, int k, void **out, int32_t *n, struct err *err) {
    const struct st_tensor *t = figures_find(f, stem, k);
    if (!t) return err_set(err, ERR_EFORMAT, "golden.safetensors has no %s_%d", stem, k);
    *out = arena_alloc(a, t->bytes);
    *n = (int32_t)t->n_elements;
    TRY(st_read(&f->st, t, 0, *out, t->bytes, err));
    if (t->dtype == DT_I64) /* narrow in place */
        for (int32_t i = 0; i < *n; i++) ((int32_t *)*out)[i] = (int32_t)((int64_t *)*out)[i];
    return ERR_OK;
}
