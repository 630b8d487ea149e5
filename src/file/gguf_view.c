/* The tensors of a GGUF file as a safetensors file would hold them.
 *
 * A view gives each plane a place in a file that does not exist; reads of it are answered row by row out of the real one. Rows are
 * repacked (tensor/block.h), put back in order where the file has those of queries and keys in pairs, and cut out of fused tensors.
 */
#include "file/gguf_arch.h"

#include "tensor/quant.h"

enum { SPAN_BYTES = 1 << 20, PARTS_MAX = 3, HEADS_MAX = 1 << 20 };

/* One plane: how its rows come out of a tensor. */
struct plane {
    const struct gguf_tensor *tensor;
    enum block_plane plane;
    int64_t width;      /* elements of a row */
    int64_t from, rows; /* of the tensor's */
    int64_t heads;      /* rows lie in pairs within each of so many heads; 0: in order */
    float add;          /* to every element of a plain row of f32 */
    size_t row_bytes;
};

struct view {
    struct st_source source;
    struct plane *planes; /* [n_tensors of the view], as its tensors */
    const struct st_tensor *tensors;
    size_t n;
    const char *name;
};

/* ---- reading ------------------------------------------------------------------------------------------------------------ */

/* Where row r lies in the tensor. Within a head, row 2 j of the file is row j of the first half, and 2 j + 1 of the second. */
static int64_t row_at(const struct plane *p, int64_t r) {
    if (!p->heads) return p->from + r;
    int64_t width = p->rows / p->heads, in_head = r % width, half = width / 2;
    return p->from + r - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
}

static size_t stored_row_bytes(const struct plane *p) {
    return (size_t)(p->width / p->tensor->type->n) * p->tensor->type->bytes;
}

static int convert_row(const struct view *v, const struct plane *p, const void *stored, void *out, struct err *err) {
    const struct gguf_tensor *t = p->tensor;
    if (!block_is_plain(t->type)) {
        if (block_plane(t->type, p->plane, stored, p->width, out)) return ERR_OK;
        return err_set(err, ERR_EUNSUPPORTED, "%s: tensor %.*s: a scale of %s is too large for the format that it is computed in", v->name,
                       STR_ARG(t->name), t->type->name);
    }
    memcpy(out, stored, p->row_bytes);
    float *values = out;
    for (int64_t i = 0; p->add != 0 && i < p->width; i++) values[i] += p->add;
    return ERR_OK;
}

/* n rows from row r on, which lie one behind the other in the file, through `stored`. */
static int read_run(const struct view *v, const struct plane *p, int64_t r, int64_t n, unsigned char *stored, unsigned char *out,
                    struct err *err) {
    size_t stride = stored_row_bytes(p);
    TRY(v->source.read_at(v->source.user, stored, stride * (size_t)n, p->tensor->offset + (uint64_t)row_at(p, r) * stride, err));
    for (int64_t i = 0; i < n; i++) TRY(convert_row(v, p, stored + (size_t)i * stride, out + (size_t)i * p->row_bytes, err));
    return ERR_OK;
}

/* Bytes [at, at + n) of a plane. Whole rows go straight to their place, the ends through a row of their own. */
static int read_plane(const struct view *v, const struct plane *p, uint64_t at, unsigned char *to, size_t n, struct err *err) {
    size_t stride = stored_row_bytes(p);
    int64_t most = p->heads || stride > SPAN_BYTES ? 1 : (int64_t)(SPAN_BYTES / (stride ? stride : 1));
    unsigned char *memory = mem_try(stride * (size_t)most + p->row_bytes);
    if (!memory) return err_set(err, ERR_EMEMORY, "%s: no memory for rows of %.*s", v->name, STR_ARG(p->tensor->name));
    unsigned char *row = memory + stride * (size_t)most;
    int code = ERR_OK;
    while (n > 0 && code == ERR_OK) {
        int64_t r = (int64_t)(at / p->row_bytes), whole = (int64_t)(n / p->row_bytes);
        size_t skip = (size_t)(at % p->row_bytes), taken;
        if (skip == 0 && whole > 0) {
            int64_t run = whole < most ? whole : most;
            code = read_run(v, p, r, run, memory, to, err);
            taken = (size_t)run * p->row_bytes;
        } else {
            code = read_run(v, p, r, 1, memory, row, err);
            taken = p->row_bytes - skip < n ? p->row_bytes - skip : n;
            if (code == ERR_OK) memcpy(to, row + skip, taken);
        }
        at += taken, to += taken, n -= taken;
    }
    mem_free(memory);
    return code;
}

static int view_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    const struct view *v = user;
    unsigned char *to = data;
    size_t low = 0, high = v->n;
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (v->tensors[mid].offset <= offset) low = mid;
        else high = mid;
    }
    for (; n > 0 && low < v->n; low++) {
        const struct st_tensor *t = &v->tensors[low];
        uint64_t at = offset - t->offset;
        if (at >= t->bytes) continue;
        size_t part = t->bytes - at < n ? (size_t)(t->bytes - at) : n;
        TRY(read_plane(v, &v->planes[low], at, to, part, err));
        offset += part, to += part, n -= part;
    }
    return n ? err_set(err, ERR_EIO, "%s: %zu bytes are behind the last tensor", v->name, n) : ERR_OK;
}

/* ---- building ----------------------------------------------------------------------------------------------------------- */

struct builder {
    struct arena *arena;
    const struct gguf_set *set;
    const struct gguf *g;
    struct view *view;
    struct safetensors *out;
    struct st_tensor *tensors;
    struct map *formats;
    struct err *err;
};

/* Rows of a tensor under a name of ours, without ".weight" where it is packed. */
struct part {
    struct str name;
    int64_t from, rows, heads;
};

static void add_plane(struct builder *b, struct str name, enum dtype dtype, int64_t columns, struct plane p) {
    const struct gguf_tensor *t = p.tensor;
    int64_t *shape = arena_new(b->arena, int64_t, GGUF_DIMS_MAX);
    struct st_tensor *out = &b->tensors[b->view->n];
    memcpy(shape, t->shape, sizeof t->shape);
    if (t->n_dims) shape[t->n_dims - 1] = columns;
    if (t->n_dims == 2) shape[0] = p.rows;
    if (t->n_dims == 1) shape[0] = p.rows * columns;
    *out = (struct st_tensor){.name = name, .dtype = dtype, .n_dims = t->n_dims, .shape = shape, .offset = b->out->data_bytes};
    out->n_elements = (uint64_t)p.rows * (uint64_t)columns;
    out->bytes = (uint64_t)p.rows * p.row_bytes;
    b->out->data_bytes += out->bytes;
    b->view->planes[b->view->n++] = p;
}

static struct plane plane_of(const struct gguf_tensor *t, const struct part *part, int64_t width) {
    return (struct plane){.tensor = t, .width = width, .from = part->from, .rows = part->rows, .heads = part->heads};
}

static void add_packed(struct builder *b, const struct gguf_tensor *t, const struct part *part) {
    static const char *const suffixes[N_BLOCK_PLANES] = {".weight", ".scales", ".biases"};
    const struct format *f = &t->type->format;
    int64_t width = t->shape[t->n_dims - 1];
    enum dtype scales = f->mode == QUANT_AFFINE ? f->dtype : DT_U8;
    const size_t bytes[N_BLOCK_PLANES] = {quant_values_bytes(f, width), quant_scales_bytes(f, width), quant_biases_bytes(f, width)};
    for (int i = 0; i < N_BLOCK_PLANES; i++) {
        if (bytes[i] == 0) continue;
        struct plane p = plane_of(t, part, width);
        p.plane = (enum block_plane)i;
        p.row_bytes = bytes[i];
        add_plane(b, str_fmt(b->arena, "%.*s%s", STR_ARG(part->name), suffixes[i]), i == BLOCK_VALUES ? DT_U32 : scales,
                  i == BLOCK_VALUES ? (int64_t)(bytes[i] / 4) : width / f->group, p);
    }
    map_put(b->formats, part->name, NULL)->value.ptr = arena_copy(b->arena, f, sizeof *f);
}

static bool is_norm(struct str name) {
    return str_ends(name, STR("norm.weight"));
}

static int add_plain(struct builder *b, const struct gguf_tensor *t, const struct part *part) {
    enum dtype dtype = t->type->format.dtype;
    int64_t width = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    bool is_cut = part->heads || part->from || part->rows != t->shape[0];
    struct plane p = plane_of(t, part, width);
    if (t->n_dims < 2 && is_cut) p.width = width = 1; /* rows of one element are cut out and put in order as those of matrices are */
    else if (t->n_dims < 2) p.rows = 1;
    if (b->set->arch->flags & GGUF_NORMS_PLUS_ONE && is_norm(t->name)) {
        if (dtype != DT_F32)
            return err_set(b->err, ERR_EUNSUPPORTED, "%s: tensor %.*s is %s, expected F32", b->g->source.name, STR_ARG(t->name),
                           t->type->name);
        p.add = -1.0f;
    }
    p.row_bytes = (size_t)width * t->type->bytes;
    add_plane(b, part->name, dtype, width, p);
    return ERR_OK;
}

static int64_t heads_of(const struct builder *b, const char *key, int64_t absent) {
    int64_t n = absent;
    gguf_to_int(gguf_arch_get(&b->set->parts[0], b->set->arch, key), &n);
    return n > HEADS_MAX ? 0 : n; /* refused like none */
}

static bool has_base(struct str name, const char *base) {
    size_t at = str_find(name, str_of(base), 0);
    return at != STR_NONE && at > 0 && name.p[at - 1] == '.' && (name.n == at + strlen(base) || name.p[at + strlen(base)] == '.');
}

/* The parts of a tensor: itself, or q, k and v. */
static int parts_of(const struct builder *b, const struct gguf_tensor *t, struct part out[PARTS_MAX], int *out_n) {
    const struct gguf_arch *arch = b->set->arch;
    int64_t rows = t->n_dims == 1 ? t->shape[0] : t->n_dims ? (int64_t)(t->n_elements / (uint64_t)t->shape[t->n_dims - 1]) : 1;
    int64_t heads = heads_of(b, "attention.head_count", 0), kv_heads = heads_of(b, "attention.head_count_kv", heads);
    *out_n = 1;
    out[0] = (struct part){.name = gguf_our_name(b->arena, b->set, t->name), .rows = rows};
    bool is_q = has_base(t->name, "attn_q"), is_k = has_base(t->name, "attn_k");
    if (arch->flags & GGUF_PAIRED && (is_q || is_k)) {
        int64_t n = is_q ? heads : kv_heads;
        if (n < 1 || rows % n || rows / n % 2)
            return err_set(b->err, ERR_EFORMAT, "%s: tensor %.*s has %lld rows, which are not those of %lld heads", b->g->source.name,
                           STR_ARG(t->name), (long long)rows, (long long)n);
        out[0].heads = n;
    }
    if (!(arch->flags & GGUF_SPLIT_QKV) || !has_base(t->name, "attn_qkv")) return ERR_OK;
    if (heads < 1 || kv_heads < 1 || rows % (heads + 2 * kv_heads))
        return err_set(b->err, ERR_EFORMAT, "%s: tensor %.*s has %lld rows, which are not those of %lld and twice %lld heads",
                       b->g->source.name, STR_ARG(t->name), (long long)rows, (long long)heads, (long long)kv_heads);
    static const char *const letters[] = {"q", "k", "v"};
    struct str whole = out[0].name;
    size_t at = str_find(whole, STR("qkv_proj"), 0);
    int64_t width = rows / (heads + 2 * kv_heads), from = 0;
    if (at == STR_NONE) return ERR_OK; /* something else of that name */
    for (int i = 0; i < PARTS_MAX; i++) {
        int64_t n = (i == 0 ? heads : kv_heads) * width;
        out[i] = (struct part){.from = from, .rows = n};
        out[i].name = str_fmt(b->arena, "%.*s%s%.*s", (int)at, whole.p, letters[i], STR_ARG(str_from(whole, at + 3)));
        from += n;
    }
    *out_n = PARTS_MAX;
    return ERR_OK;
}

static bool is_rope(struct str name) {
    return str_find(name, STR("rope_freqs"), 0) != STR_NONE || str_find(name, STR("rope_factors_"), 0) != STR_NONE;
}

static int add_tensor(struct builder *b, const struct gguf_tensor *t) {
    struct part parts[PARTS_MAX];
    int n;
    if (is_rope(t->name) || t->n_elements == 0) return ERR_OK; /* in config.json */
    TRY(parts_of(b, t, parts, &n));
    for (int i = 0; i < n; i++) {
        if (block_is_plain(t->type)) {
            TRY(add_plain(b, t, &parts[i]));
            continue;
        }
        if (t->n_dims < 2 || !str_ends(parts[i].name, STR(".weight")))
            return err_set(b->err, ERR_EUNSUPPORTED, "%s: tensor %.*s is a vector of %s, expected F32, F16 or BF16", b->g->source.name,
                           STR_ARG(t->name), t->type->name);
        parts[i].name.n -= STR(".weight").n;
        add_packed(b, t, &parts[i]);
    }
    return ERR_OK;
}

int gguf_view(struct arena *a, const struct gguf_set *s, size_t part, struct map *formats, struct safetensors *out, struct err *err) {
    const struct gguf *g = &s->parts[part];
    struct view *v = arena_new(a, struct view, 1);
    size_t most = PARTS_MAX * N_BLOCK_PLANES * g->n_tensors + 1;
    struct builder b = {.arena = a, .set = s, .g = g, .view = v, .out = out, .formats = formats, .err = err};
    b.tensors = arena_try(a, most * sizeof *b.tensors);
    *v = (struct view){.source = g->source, .tensors = b.tensors, .name = g->source.name};
    v->planes = arena_try(a, most * sizeof *v->planes);
    if (!b.tensors || !v->planes) return err_set(err, ERR_EMEMORY, "%s: no memory for %zu tensors", v->name, g->n_tensors);
    *out = (struct safetensors){.tensors = b.tensors};
    for (size_t i = 0; i < g->n_tensors; i++) TRY(add_tensor(&b, &g->tensors[i]));
    out->n_tensors = v->n;
    out->source = (struct st_source){.name = v->name, .size = out->data_bytes, .read_at = view_read_at, .user = v};
    return ERR_OK;
}
