/* Rows and columns that stay, at places of a file that does not exist. */
#include "file/cut_view.h"

struct part {
    const struct checkpoint_tensor *from;
    int64_t *rows;                  /* [of the new tensor] where they lie in the old one */
    const bool *columns;            /* NULL: all stay */
    size_t element, stored, stride; /* bytes of an element, of an old row, of a new one */
};

struct view {
    struct checkpoint_shard shard;
    struct part *parts; /* [n_tensors of the shard] */
};

/* Rows that lie behind each other from row r on, as far as n bytes reach. */
static int64_t run_of(const struct part *p, int64_t r, int64_t n_rows, size_t bytes) {
    int64_t m = 1;
    while (r + m < n_rows && (size_t)m * p->stored < bytes && p->rows[r + m] == p->rows[r] + m) m++;
    return m;
}

static void pick_columns(const struct part *p, const unsigned char *row, unsigned char *out) {
    for (size_t i = 0; i * p->element < p->stored; i++) {
        if (p->columns[i]) continue;
        memcpy(out, row + i * p->element, p->element);
        out += p->element;
    }
}

static int read_part(const struct part *p, int64_t n_rows, uint64_t at, unsigned char *to, size_t n, unsigned char *row, struct err *err) {
    while (n > 0) {
        int64_t r = (int64_t)(at / p->stride);
        size_t skip = (size_t)(at % p->stride), take = p->stride - skip;
        if (!p->columns) take = (size_t)run_of(p, r, n_rows, skip + n) * p->stored - skip;
        if (take > n) take = n;
        if (!p->columns) {
            TRY(checkpoint_read(p->from, (uint64_t)p->rows[r] * p->stored + skip, to, take, err));
        } else {
            TRY(checkpoint_read(p->from, (uint64_t)p->rows[r] * p->stored, row, p->stored, err));
            pick_columns(p, row, row + p->stored);
            memcpy(to, row + p->stored + skip, take);
        }
        at += take, to += take, n -= take;
    }
    return ERR_OK;
}

static int view_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    const struct view *v = user;
    size_t i = st_at(&v->shard.st, offset);
    const struct part *p = &v->parts[i];
    const struct st_tensor *t = &v->shard.st.tensors[i];
    unsigned char *row = mem_try(2 * p->stored + 1);
    if (!row) return err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(t->name));
    int code = read_part(p, (int64_t)(t->bytes / p->stride), offset - t->offset, data, n, row, err);
    mem_free(row);
    return code;
}

static int64_t count_left(const bool *gone, int64_t n) {
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++) left += !gone || !gone[i];
    return left;
}

static int add_part(struct checkpoint *c, struct view *v, const struct checkpoint_tensor *from, const struct cut_tensor *cut,
                    struct err *err) {
    const struct st_tensor *old = from->t;
    struct safetensors *st = &v->shard.st;
    struct part *p = &v->parts[st->n_tensors];
    if (old->n_dims < 1 || old->n_dims > 2)
        return err_set(err, ERR_EUNSUPPORTED, "%s: %.*s has %d dimensions, and parts are taken out of one or two", c->path,
                       STR_ARG(old->name), old->n_dims);
    int64_t n_rows = old->shape[0], width = old->n_dims == 2 ? old->shape[1] : 1;
    int64_t *shape = arena_new(&c->arena, int64_t, 2), rows = shape[0] = count_left(cut->rows, n_rows);
    shape[1] = count_left(cut->columns, width);
    *p = (struct part){.from = from, .columns = cut->columns, .element = (size_t)dtype_bits(old->dtype) / 8};
    p->stored = (size_t)width * p->element;
    p->stride = (size_t)shape[1] * p->element;
    if (rows == 0 || p->stride == 0) return err_set(err, ERR_EARG, "%s: nothing would be left of %.*s", c->path, STR_ARG(old->name));
    p->rows = arena_new(&c->arena, int64_t, rows);
    for (int64_t i = 0, k = 0; i < n_rows; i++)
        if (!cut->rows || !cut->rows[i]) p->rows[k++] = i;
    st->tensors[st->n_tensors] = (struct st_tensor){.name = cut->name,
                                                    .dtype = old->dtype,
                                                    .n_dims = old->n_dims,
                                                    .shape = shape,
                                                    .n_elements = (uint64_t)(rows * shape[1]),
                                                    .offset = st->data_bytes,
                                                    .bytes = (uint64_t)rows * p->stride};
    st->data_bytes += (uint64_t)rows * p->stride;
    st->n_tensors++;
    return ERR_OK;
}

int cut_view(struct checkpoint *c, const struct cut_tensor *cuts, struct err *err) {
    struct view *v = arena_new(&c->arena, struct view, 1);
    struct safetensors *st = &v->shard.st;
    struct checkpoint_tensor *tensors = arena_new(&c->arena, struct checkpoint_tensor, c->n_tensors + 1);
    size_t n = 0;
    v->shard.name = c->path;
    st->tensors = arena_new(&c->arena, struct st_tensor, c->n_tensors + 1);
    v->parts = arena_new(&c->arena, struct part, c->n_tensors + 1);
    for (size_t i = 0; i < c->n_tensors; i++) {
        if (!cuts[i].name.p) continue;
        if (cuts[i].rows || cuts[i].columns) {
            TRY(add_part(c, v, &c->tensors[i], &cuts[i], err));
            tensors[n++] = (struct checkpoint_tensor){&st->tensors[st->n_tensors - 1], &v->shard};
            continue;
        }
        struct st_tensor *renamed = arena_copy(&c->arena, c->tensors[i].t, sizeof *renamed);
        renamed->name = cuts[i].name;
        tensors[n++] = (struct checkpoint_tensor){renamed, c->tensors[i].shard};
    }
    st->source = (struct st_source){.name = c->path, .size = st->data_bytes, .read_at = view_read_at, .user = v};
    checkpoint_set_table(c, tensors, n);
    return ERR_OK;
}
