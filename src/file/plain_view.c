/* Rows of packed matrices as floats, at places of a file that does not exist. */
#include "file/plain_view.h"

struct view {
    struct checkpoint_shard shard;
    struct checkpoint_weight *weights; /* [n_tensors of the shard] */
};

static int read_row(void *user, size_t i, int64_t r, float *out, struct err *err) {
    const struct view *v = user;
    return checkpoint_weight_row(&v->weights[i], r, out, err);
}

static int view_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    struct view *v = user;
    return checkpoint_view_rows(&v->shard.st, read_row, v, offset, data, n, err);
}

/* Whether a tensor is the values of a packed matrix. */
static int is_packed(const struct checkpoint *c, const struct checkpoint_tensor *t, struct checkpoint_weight *out, bool *answer,
                     struct err *err) {
    *answer = false;
    if (t->t->dtype != DT_U32 || t->t->n_dims < 2 || !str_ends(t->t->name, STR(".weight"))) return ERR_OK;
    TRY(checkpoint_weight(c, str_sub(t->t->name, 0, t->t->name.n - STR(".weight").n), out, err));
    *answer = out->scales != NULL;
    return ERR_OK;
}

int plain_view(struct checkpoint *c, struct map *out_formats, struct err *err) {
    struct view *v = arena_new(&c->arena, struct view, 1);
    struct safetensors *st = &v->shard.st;
    struct checkpoint_weight w;
    v->shard.name = c->path;
    st->tensors = arena_new(&c->arena, struct st_tensor, c->n_tensors + 1);
    v->weights = arena_new(&c->arena, struct checkpoint_weight, c->n_tensors + 1);
    for (size_t i = 0; i < c->n_tensors; i++) {
        bool packed;
        TRY(is_packed(c, &c->tensors[i], &w, &packed, err));
        if (!packed) continue;
        struct str name = w.values->t->name;
        map_put(out_formats, str_sub(name, 0, name.n - STR(".weight").n), NULL)->value.ptr =
            arena_copy(&c->arena, &w.format, sizeof w.format);
        st->tensors[st->n_tensors] = checkpoint_weight_plain(&c->arena, &w, st->data_bytes);
        st->data_bytes += st->tensors[st->n_tensors].bytes;
        v->weights[st->n_tensors++] = w;
    }
    st->source = (struct st_source){.name = c->path, .size = st->data_bytes, .read_at = view_read_at, .user = v};
    checkpoint_replace(c, &v->shard);
    return ERR_OK;
}
