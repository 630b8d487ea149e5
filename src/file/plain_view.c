/* Rows of packed matrices as floats, at places of a file that does not exist. */
#include "file/plain_view.h"

#include "tensor/quant.h"

struct matrix {
    struct checkpoint_weight w;
    int64_t rows;
};

struct view {
    struct checkpoint_shard shard;
    struct matrix *matrices; /* [n_tensors of the shard] */
};

static int read_row(const struct matrix *m, int64_t row, unsigned char *raw, float *out, struct err *err) {
    const struct format *f = &m->w.format;
    const struct checkpoint_tensor *planes[] = {m->w.values, m->w.scales, m->w.biases};
    const size_t bytes[] = {quant_values_bytes(f, m->w.width), quant_scales_bytes(f, m->w.width), quant_biases_bytes(f, m->w.width)};
    unsigned char *at[3] = {0};
    for (int i = 0; i < 3; i++) {
        if (bytes[i] == 0) continue;
        TRY(checkpoint_read(planes[i], (uint64_t)row * bytes[i], raw, bytes[i], err));
        at[i] = raw;
        raw += bytes[i];
    }
    quant_unpack(f, &(struct quant_row){at[0], at[1], at[2]}, 0, m->w.width, out);
    return ERR_OK;
}

/* Bytes [at, at + n) of a matrix in f32. */
static int read_matrix(const struct matrix *m, uint64_t at, unsigned char *to, size_t n, struct err *err) {
    size_t row_bytes = (size_t)m->w.width * sizeof(float);
    unsigned char *raw = mem_try(format_row_bytes(&m->w.format, (size_t)m->w.width) + row_bytes);
    if (!raw) return err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(m->w.values->t->name));
    float *row = mem_try(row_bytes);
    int code = row ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(m->w.values->t->name));
    while (n > 0 && !code) {
        size_t skip = (size_t)(at % row_bytes), part = row_bytes - skip < n ? row_bytes - skip : n;
        code = read_row(m, (int64_t)(at / row_bytes), raw, row, err);
        if (!code) memcpy(to, (const unsigned char *)row + skip, part);
        at += part, to += part, n -= part;
    }
    mem_free(row);
    mem_free(raw);
    return code;
}

static int view_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    const struct view *v = user;
    const struct safetensors *st = &v->shard.st;
    size_t low = 0, high = st->n_tensors;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (st->tensors[middle].offset <= offset) low = middle;
        else high = middle;
    }
    return read_matrix(&v->matrices[low], offset - st->tensors[low].offset, data, n, err);
}

static struct str path_of(struct str name) {
    return str_sub(name, 0, name.n - STR(".weight").n);
}

/* Whether a tensor is the values of a packed matrix. */
static int is_packed(const struct checkpoint *c, const struct checkpoint_tensor *t, struct checkpoint_weight *out, bool *answer,
                     struct err *err) {
    *answer = false;
    if (t->t->dtype != DT_U32 || t->t->n_dims < 2 || !str_ends(t->t->name, STR(".weight"))) return ERR_OK;
    TRY(checkpoint_weight(c, path_of(t->t->name), out, err));
    *answer = out->scales != NULL;
    return ERR_OK;
}

static void add(struct view *v, struct arena *a, const struct checkpoint_weight *w) {
    struct safetensors *st = &v->shard.st;
    struct st_tensor *t = &st->tensors[st->n_tensors];
    int64_t *shape = arena_copy(a, w->values->t->shape, (size_t)w->values->t->n_dims * sizeof *shape);
    *t = *w->values->t;
    shape[t->n_dims - 1] = w->width;
    t->n_elements = t->n_elements / (uint64_t)w->values->t->shape[t->n_dims - 1] * (uint64_t)w->width;
    t->dtype = DT_F32;
    t->shape = shape;
    t->offset = st->data_bytes;
    t->bytes = t->n_elements * sizeof(float);
    st->data_bytes += t->bytes;
    v->matrices[st->n_tensors++] = (struct matrix){*w, (int64_t)(t->n_elements / (uint64_t)w->width)};
}

int plain_view(struct checkpoint *c, struct map *out_formats, struct err *err) {
    struct view *v = arena_new(&c->arena, struct view, 1);
    struct checkpoint_tensor *tensors = arena_new(&c->arena, struct checkpoint_tensor, c->n_tensors + 1), *old = c->tensors;
    struct checkpoint_weight w;
    struct map beside = {0};
    size_t n = 0;
    int code = ERR_OK;
    v->shard.name = c->path;
    v->shard.st.tensors = arena_new(&c->arena, struct st_tensor, c->n_tensors + 1);
    v->matrices = arena_new(&c->arena, struct matrix, c->n_tensors + 1);
    for (size_t i = 0; i < c->n_tensors && !code; i++) {
        bool packed;
        code = is_packed(c, &old[i], &w, &packed, err);
        if (code || !packed) continue;
        map_put(&beside, w.scales->t->name, NULL);
        if (w.biases) map_put(&beside, w.biases->t->name, NULL);
        map_put(&beside, w.values->t->name, NULL)->value.i = (int64_t)v->shard.st.n_tensors + 1;
        map_put(out_formats, path_of(w.values->t->name), NULL)->value.ptr = arena_copy(&c->arena, &w.format, sizeof w.format);
        add(v, &c->arena, &w);
    }
    for (size_t i = 0; i < c->n_tensors && !code; i++) {
        int64_t at = map_get_int(&beside, old[i].t->name, -1);
        if (at > 0) tensors[n++] = (struct checkpoint_tensor){&v->shard.st.tensors[at - 1], &v->shard};
        else if (at < 0) tensors[n++] = old[i];
    }
    map_free(&beside);
    if (code) return code;
    v->shard.st.source = (struct st_source){.name = c->path, .size = v->shard.st.data_bytes, .read_at = view_read_at, .user = v};
    map_free(&c->by_name);
    c->by_name = (struct map){0};
    c->tensors = tensors;
    c->n_tensors = n;
    for (size_t i = 0; i < n; i++) map_put(&c->by_name, tensors[i].t->name, NULL)->value.i = (int64_t)i;
    return ERR_OK;
}
