/* The view over quantised matrices: each gets the planes that a safetensors file of MLX would have, at places of a file that does not exist. A matrix is
 * repacked as a whole when one of its planes is read, since some layouts have its rows as columns; a few of them are kept, as those of one
 * layer are read by turns. */
#include "file/packed.h"

#include "base/half.h"
#include "base/log.h"
#include "os/os.h"
#include "tensor/quant.h"

#include <math.h>

enum { KEPT = 8, PLANES = 3 };

/* A matrix in our format. */
struct kept {
    const struct packed_matrix *matrix; /* NULL: free */
    unsigned char *planes[PLANES];
    uint64_t used; /* the larger, the later */
};

struct packed_view {
    struct checkpoint_shard shard;
    struct packed_list list;
    const struct packed_matrix **owners; /* [n_tensors of the shard] */
    int *planes;                         /* which plane each is */
    struct os_mutex *lock;
    struct kept kept[KEPT];
    uint64_t clock;
};

/* ---- repacking ------------------------------------------------------------------------------------------------------------------ */

static void plane_bytes(const struct packed_matrix *m, size_t out[PLANES]) {
    const struct format *f = &m->format;
    out[0] = quant_values_bytes(f, m->in);
    out[1] = quant_scales_bytes(f, m->in);
    out[2] = quant_biases_bytes(f, m->in);
}

static int64_t group_of(const struct packed_matrix *m, const int32_t *order, int64_t k) {
    return order ? order[k] : k / m->group;
}

/* A row of plain numbers, rounded to what the quantiser's own unpacking gives. */
static void plain_row(const struct packed_matrix *m, const struct packed_numbers *n, int64_t r, const int32_t *order, float *row) {
    for (int64_t k = 0; k < m->in; k++) {
        int64_t i = r * m->in + k, g = r * m->n_groups + group_of(m, order, k);
        if (n->values) row[k] = n->values[i];
        else if (m->kind->is_fp) row[k] = (m->bits == 4 ? f4e2m1_values[n->codes[i]] : f8e4m3_to_f32(n->codes[i])) * n->scales[g];
        else row[k] = ((float)n->codes[i] - n->zeros[g]) * n->scales[g];
    }
}

static bool put_scale(enum dtype dt, float v, unsigned char *plane, int64_t i) {
    float back;
    size_t size = (size_t)dtype_bits(dt) / 8;
    plain_from_f32(dt, &v, 1, plane + (size_t)i * size);
    plain_to_f32(dt, plane + (size_t)i * size, 1, &back);
    return back == v || v != v;
}

/* False: a number is too large for the type of the scales. */
static bool packed_row(const struct packed_matrix *m, const struct packed_numbers *n, int64_t r, struct kept *out,
                       const size_t bytes[PLANES]) {
    const struct format *f = &m->format;
    unsigned char *at[PLANES];
    bool fits = true;
    for (int i = 0; i < PLANES; i++) at[i] = out->planes[i] ? out->planes[i] + (size_t)r * bytes[i] : NULL;
    quant_put_codes(f, n->codes + r * m->in, m->in, at[0]);
    for (int64_t i = 0; i < m->in / f->group; i++) {
        int64_t g = r * m->n_groups + i * f->group / m->group;
        float scale = n->scales[g];
        if (f->mode == QUANT_MXFP4) at[1][i] = (unsigned char)(scale < 0x1p-126f ? 0 : scale != scale ? 255 : (int)ilogbf(scale) + 127);
        else fits &= put_scale(format_scale_dtype(f), scale, at[1], i);
        if (at[2]) fits &= put_scale(f->dtype, -n->zeros[g] * scale, at[2], i);
    }
    return fits;
}

static int pack_rows(const struct packed_matrix *m, const struct packed_numbers *n, struct kept *out, struct err *err) {
    size_t bytes[PLANES];
    unsigned char *order = NULL;
    float *row = m->format.mode == QUANT_NONE ? mem_try((size_t)m->in * sizeof *row) : NULL;
    plane_bytes(m, bytes);
    if (m->format.mode == QUANT_NONE && !row) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(m->path));
    int code = m->is_scattered ? packed_read_bytes(m->parts[PACKED_ORDER], &order, err) : ERR_OK;
    for (int64_t r = 0; r < m->rows && !code; r++) {
        if (row) {
            plain_row(m, n, r, (const int32_t *)(const void *)order, row);
            plain_from_f32(m->format.dtype, row, m->in, out->planes[0] + (size_t)r * bytes[0]);
        } else if (!packed_row(m, n, r, out, bytes)) {
            code = err_set(err, ERR_EUNSUPPORTED, "%.*s: a scale is too large for the format that it is computed in", STR_ARG(m->path));
        }
    }
    mem_free(order);
    mem_free(row);
    return code;
}

static void free_numbers(struct packed_numbers *n) {
    mem_free(n->codes);
    mem_free(n->scales);
    mem_free(n->zeros);
    mem_free(n->values);
}

static void free_kept(struct kept *k) {
    for (int i = 0; i < PLANES; i++) mem_free(k->planes[i]);
    *k = (struct kept){0};
}

static int load(const struct packed_matrix *m, struct kept *out, struct err *err) {
    size_t n = (size_t)(m->rows * m->in), groups = (size_t)(m->rows * m->n_groups), bytes[PLANES];
    struct packed_numbers numbers = {0};
    bool has_memory = true;
    plane_bytes(m, bytes);
    for (int i = 0; i < PLANES; i++)
        if (bytes[i]) has_memory &= (out->planes[i] = mem_try(bytes[i] * (size_t)m->rows)) != NULL;
    if (m->nested) has_memory &= (numbers.values = mem_try(n * sizeof(float))) != NULL;
    else {
        has_memory &= (numbers.codes = mem_try(n)) != NULL && (numbers.scales = mem_try(groups * sizeof(float))) != NULL &&
                      (numbers.zeros = mem_try(groups * sizeof(float))) != NULL;
    }
    int code = has_memory ? m->kind->load(m, &numbers, err) : err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(m->path));
    if (!code) code = pack_rows(m, &numbers, out, err);
    free_numbers(&numbers);
    if (code) free_kept(out);
    else out->matrix = m;
    return code;
}

/* ---- reading -------------------------------------------------------------------------------------------------------------------- */

static int get(struct packed_view *v, const struct packed_matrix *m, const struct kept **out, struct err *err) {
    struct kept *oldest = &v->kept[0];
    for (int i = 0; i < KEPT; i++) {
        struct kept *k = &v->kept[i];
        if (k->matrix == m) {
            k->used = ++v->clock;
            *out = k;
            return ERR_OK;
        }
        if (k->used < oldest->used) oldest = k;
    }
    free_kept(oldest);
    oldest->used = ++v->clock;
    *out = oldest;
    return load(m, oldest, err);
}

static int view_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    struct packed_view *v = user;
    const struct st_tensor *tensors = v->shard.st.tensors;
    size_t low = st_at(&v->shard.st, offset);
    const struct kept *k;
    if (offset < tensors[low].offset || n > tensors[low].bytes || offset - tensors[low].offset > tensors[low].bytes - n)
        return err_set(err, ERR_EIO, "%s: %zu bytes are in no tensor", v->shard.name, n);
    os_mutex_lock(v->lock);
    int code = get(v, v->owners[low], &k, err);
    if (!code && n) memcpy(data, k->planes[v->planes[low]] + (offset - tensors[low].offset), n);
    os_mutex_unlock(v->lock);
    return code;
}

/* ---- the table ------------------------------------------------------------------------------------------------------------------ */

static void add_planes(struct packed_view *v, struct arena *a, const struct packed_matrix *m) {
    static const char *const suffixes[PLANES] = {".weight", ".scales", ".biases"};
    struct safetensors *st = &v->shard.st;
    const struct format *f = &m->format;
    size_t bytes[PLANES];
    plane_bytes(m, bytes);
    for (int i = 0; i < PLANES; i++) {
        if (bytes[i] == 0) continue;
        int64_t *shape = arena_new(a, int64_t, m->n_dims);
        struct st_tensor *t = &st->tensors[st->n_tensors];
        memcpy(shape, m->shape, (size_t)m->n_dims * sizeof *shape);
        if (f->mode != QUANT_NONE) shape[m->n_dims - 1] = i == 0 ? (int64_t)bytes[0] / 4 : m->in / f->group;
        *t = (struct st_tensor){
            .name = str_fmt(a, "%.*s%s", STR_ARG(m->path), suffixes[i]), .n_dims = m->n_dims, .shape = shape, .offset = st->data_bytes};
        t->dtype = f->mode == QUANT_NONE ? f->dtype : i == 0 ? DT_U32 : format_scale_dtype(f);
        t->n_elements = (uint64_t)m->rows * (uint64_t)shape[m->n_dims - 1];
        t->bytes = (uint64_t)m->rows * bytes[i];
        st->data_bytes += t->bytes;
        v->owners[st->n_tensors] = m;
        v->planes[st->n_tensors++] = i;
    }
}

static void build(struct packed_view *v, struct checkpoint *c) {
    struct arena *a = &c->arena;
    size_t most = PLANES * v->list.n + 1;
    v->shard.name = c->path;
    v->shard.st.tensors = arena_new(a, struct st_tensor, most);
    v->owners = arena_new(a, const struct packed_matrix *, most);
    v->planes = arena_new(a, int, most);
    for (size_t i = 0; i < v->list.n; i++) add_planes(v, a, &v->list.matrices[i]);
    v->shard.st.source = (struct st_source){.name = c->path, .size = v->shard.st.data_bytes, .read_at = view_read_at, .user = v};
}

/* The table without the tensors that were taken, and with the view's. */
static void replace(struct packed_view *v, struct checkpoint *c) {
    struct checkpoint_tensor *tensors = arena_new(&c->arena, struct checkpoint_tensor, c->n_tensors + v->shard.st.n_tensors + 1);
    size_t n = 0;
    for (size_t i = 0; i < c->n_tensors; i++)
        if (!map_find(&v->list.taken, c->tensors[i].t->name)) tensors[n++] = c->tensors[i];
    for (size_t i = 0; i < v->shard.st.n_tensors; i++) tensors[n++] = (struct checkpoint_tensor){&v->shard.st.tensors[i], &v->shard};
    checkpoint_set_table(c, tensors, n);
    for (size_t i = 0; i < v->list.n; i++) {
        const struct packed_matrix *m = &v->list.matrices[i];
        if (m->format.mode != QUANT_NONE)
            map_put(&c->quant.overrides, m->path, NULL)->value.ptr = arena_copy(&c->arena, &m->format, sizeof m->format);
    }
}

int packed_open(struct checkpoint *c, struct err *err) {
    struct packed_view *v = arena_new(&c->arena, struct packed_view, 1);
    int code = packed_find(c, &c->arena, &v->list, err);
    if (code || v->list.n == 0) {
        packed_list_free(&v->list);
        return code;
    }
    build(v, c);
    replace(v, c);
    v->lock = os_mutex_create();
    c->packed = v;
    c->quant.is_repacked = true;
    if (v->list.n_unpacked)
        log_info("%s: %zu of %zu matrices are unpacked, since no packed format holds their numbers; they take more memory than their files",
                 c->path, v->list.n_unpacked, v->list.n);
    return ERR_OK;
}

void packed_close(struct packed_view *v) {
    if (!v) return;
    for (int i = 0; i < KEPT; i++) free_kept(&v->kept[i]);
    packed_list_free(&v->list);
    os_mutex_destroy(v->lock);
}
