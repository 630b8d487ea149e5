/* Reading GGUF headers. A header is read in pieces that grow until it is whole: nothing in it says how long it is. */
#include "file/gguf.h"

#include "base/half.h"
#include "file/limits.h"

enum { FIRST_PIECE = 1 << 20, ALIGNMENT = 32, DEPTH_MAX = 4, KEY_SHOWN = 120 };

/* A reader of the header's bytes that are here. `cut` tells that more were needed. */
struct reader {
    struct arena *arena;
    struct gguf *g;
    const unsigned char *p;
    size_t n, at;
    bool cut;
    struct err *err;
};

#define FAIL(r, ...) err_set_at((r)->err, ERR_EFORMAT, (r)->g->source.name, __VA_ARGS__)
#define SHOWN(s) (int)((s).n > KEY_SHOWN ? KEY_SHOWN : (s).n), (s).p
#define FAIL_TENSOR(r, t, fmt, ...) FAIL((r), "tensor %.*s: " fmt, SHOWN((t)->name), __VA_ARGS__)

/* ---- numbers and strings -------------------------------------------------------------------------------------------------- */

static int take(struct reader *r, uint64_t n, struct str *out) {
    if (n > r->n - r->at) {
        r->cut = r->n < r->g->source.size;
        return FAIL(r, "the file ends inside its header");
    }
    *out = str_n((const char *)r->p + r->at, (size_t)n);
    r->at += (size_t)n;
    return ERR_OK;
}

static uint64_t little(struct str bytes) {
    uint64_t value = 0;
    for (size_t i = bytes.n; i-- > 0;) value = value << 8 | (unsigned char)bytes.p[i];
    return value;
}

static int take_u32(struct reader *r, uint32_t *out) {
    struct str bytes = {0};
    TRY(take(r, 4, &bytes));
    *out = (uint32_t)little(bytes);
    return ERR_OK;
}

static int take_u64(struct reader *r, uint64_t *out) {
    struct str bytes = {0};
    TRY(take(r, 8, &bytes));
    *out = little(bytes);
    return ERR_OK;
}

static int take_string(struct reader *r, struct str *out) {
    uint64_t n = 0;
    TRY(take_u64(r, &n));
    return take(r, n, out);
}

/* ---- metadata ------------------------------------------------------------------------------------------------------------- */

/* Bytes of a number; 0 for strings and arrays. */
static const uint8_t widths[N_GGUF_TYPES] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

static int take_type(struct reader *r, struct str key, enum gguf_type *out) {
    uint32_t type = 0;
    TRY(take_u32(r, &type));
    if (type >= N_GGUF_TYPES) return FAIL(r, "%.*s has values of the unknown type %u", SHOWN(key), type);
    *out = (enum gguf_type)type;
    return ERR_OK;
}

static int take_array(struct reader *r, struct str key, int depth, struct gguf_value *out);

/* Moves behind n elements. */
static int skip_elements(struct reader *r, struct str key, int depth, const struct gguf_value *array) {
    struct str bytes = {0};
    struct gguf_value inner;
    size_t total;
    if (widths[array->of]) {
        if (array->n > SIZE_MAX || size_mul((size_t)array->n, widths[array->of], &total))
            return FAIL(r, "%.*s: the size of its array overflows", SHOWN(key));
        return take(r, total, &bytes);
    }
    for (uint64_t i = 0; i < array->n; i++) TRY(array->of == GGUF_STRING ? take_string(r, &bytes) : take_array(r, key, depth + 1, &inner));
    return ERR_OK;
}

static int take_array(struct reader *r, struct str key, int depth, struct gguf_value *out) {
    if (depth > DEPTH_MAX) return FAIL(r, "%.*s has arrays nested deeper than %d", SHOWN(key), DEPTH_MAX);
    TRY(take_type(r, key, &out->of));
    TRY(take_u64(r, &out->n));
    size_t from = r->at;
    TRY(skip_elements(r, key, depth, out));
    out->bytes = str_n((const char *)r->p + from, r->at - from);
    return ERR_OK;
}

static int take_value(struct reader *r, struct str key, struct gguf_value *out) {
    *out = (struct gguf_value){0};
    TRY(take_type(r, key, &out->type));
    if (out->type == GGUF_ARRAY) return take_array(r, key, 1, out);
    return out->type == GGUF_STRING ? take_string(r, &out->bytes) : take(r, widths[out->type], &out->bytes);
}

static int take_meta(struct reader *r, uint64_t n) {
    struct gguf *g = r->g;
    g->meta = arena_try(r->arena, ((size_t)n + 1) * sizeof *g->meta);
    if (!g->meta) return err_set(r->err, ERR_EMEMORY, "%s: no memory for %llu keys", g->source.name, (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_meta *m = &g->meta[i];
        bool is_new;
        TRY(take_string(r, &m->key));
        if (!utf8_valid(m->key)) return FAIL(r, "key %llu is not UTF-8", (unsigned long long)i);
        TRY(take_value(r, m->key, &m->value));
        struct map_entry *e = map_put(&g->by_key, m->key, &is_new);
        if (!is_new) return FAIL(r, "%.*s stands twice", SHOWN(m->key));
        e->value.i = (int64_t)i;
        g->n_meta++;
    }
    return ERR_OK;
}

/* ---- tensors -------------------------------------------------------------------------------------------------------------- */

static int take_shape(struct reader *r, struct gguf_tensor *t) {
    uint32_t n_dims = 0;
    size_t product = 1;
    TRY(take_u32(r, &n_dims));
    if (n_dims > GGUF_DIMS_MAX) return FAIL_TENSOR(r, t, "has %u dimensions, at most %d are read", n_dims, GGUF_DIMS_MAX);
    t->n_dims = (int)n_dims;
    for (int i = t->n_dims; i-- > 0;) {
        uint64_t n = 0;
        TRY(take_u64(r, &n));
        if (n > INT64_MAX || n > SIZE_MAX || size_mul(product, (size_t)n, &product))
            return FAIL_TENSOR(r, t, "the product of its %u dimensions overflows", n_dims);
        t->shape[i] = (int64_t)n;
    }
    t->n_elements = product;
    return ERR_OK;
}

static int take_tensor(struct reader *r, struct gguf_tensor *t) {
    uint32_t type = 0;
    TRY(take_string(r, &t->name));
    if (t->name.n == 0 || !utf8_valid(t->name)) return FAIL(r, "a tensor's name is empty or not UTF-8");
    TRY(take_shape(r, t));
    TRY(take_u32(r, &type));
    t->type = block_find(type);
    if (!t->type) return FAIL_TENSOR(r, t, "type %u is not known", type);
    int64_t width = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    if (width % t->type->n)
        return FAIL_TENSOR(r, t, "rows of %lld elements are no multiple of the %d in a block of %s", (long long)width, t->type->n,
                           t->type->name);
    size_t total;
    if (size_mul((size_t)(t->n_elements / t->type->n), t->type->bytes, &total))
        return FAIL_TENSOR(r, t, "%s size overflows", t->type->name);
    t->bytes = total;
    return take_u64(r, &t->offset);
}

static int take_tensors(struct reader *r, uint64_t n) {
    struct gguf *g = r->g;
    g->tensors = arena_try(r->arena, ((size_t)n + 1) * sizeof *g->tensors);
    if (!g->tensors) return err_set(r->err, ERR_EMEMORY, "%s: no memory for %llu tensors", g->source.name, (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++, g->n_tensors++) TRY(take_tensor(r, &g->tensors[i]));
    return ERR_OK;
}

/* The bytes begin at the next multiple of the alignment; each tensor at one behind that. */
static int place_tensors(struct reader *r) {
    struct gguf *g = r->g;
    int64_t alignment = ALIGNMENT;
    const struct gguf_value *said = gguf_get(g, STR("general.alignment"));
    if (said && (!gguf_to_int(said, &alignment) || alignment < 1 || alignment > 1 << 20 || (alignment & (alignment - 1))))
        return FAIL(r, "general.alignment is not a power of two up to 2^20");
    uint64_t begin = (r->at + (uint64_t)alignment - 1) / (uint64_t)alignment * (uint64_t)alignment, size = g->source.size;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        if (t->offset % (uint64_t)alignment)
            return FAIL_TENSOR(r, t, "begins at %llu, which is no multiple of %lld", (unsigned long long)t->offset, (long long)alignment);
        if (t->bytes && (begin > size || t->offset > size - begin || t->bytes > size - begin - t->offset))
            return FAIL_TENSOR(r, t, "its %llu bytes at %llu are behind the end of the file, which has %llu: the file is cut short",
                               (unsigned long long)t->bytes, (unsigned long long)(begin + t->offset), (unsigned long long)size);
        t->offset += begin;
    }
    return ERR_OK;
}

/* ---- the whole -------------------------------------------------------------------------------------------------------------- */

static int take_counts(struct reader *r, uint64_t *out_tensors, uint64_t *out_keys) {
    struct str magic = {0};
    uint32_t version = 0;
    TRY(take(r, 4, &magic));
    if (!str_eq(magic, STR("GGUF"))) return FAIL(r, "no GGUF file");
    TRY(take_u32(r, &version));
    if (version == 2u << 24 || version == 3u << 24) return FAIL(r, "a big-endian GGUF file; take a little-endian one");
    if (version != 2 && version != 3) return FAIL(r, "GGUF version %u, known are 2 and 3; convert the model again", version);
    TRY(take_u64(r, out_tensors));
    TRY(take_u64(r, out_keys));
    if (*out_tensors > GGUF_TENSORS_MAX)
        return FAIL(r, "%llu tensors, at most %d are read", (unsigned long long)*out_tensors, GGUF_TENSORS_MAX);
    if (*out_keys > GGUF_KEYS_MAX) return FAIL(r, "%llu keys, at most %d are read", (unsigned long long)*out_keys, GGUF_KEYS_MAX);
    return ERR_OK;
}

static int parse(struct reader *r) {
    uint64_t n_tensors = 0, n_keys = 0;
    TRY(take_counts(r, &n_tensors, &n_keys));
    TRY(take_meta(r, n_keys));
    TRY(take_tensors(r, n_tensors));
    return place_tensors(r);
}

static int load_piece(struct gguf *g, size_t n, struct err *err) {
    const struct st_source *s = &g->source;
    g->header = mem_try(n + 1);
    if (!g->header) return err_set(err, ERR_EMEMORY, "%s: no memory for a header of %zu bytes", s->name, n);
    return s->read_at(s->user, g->header, n, 0, err);
}

int gguf_open(struct arena *a, const struct st_source *source, struct gguf *out, struct err *err) {
    for (uint64_t piece = FIRST_PIECE;; piece *= 4) {
        *out = (struct gguf){.source = *source};
        struct reader r = {.arena = a, .g = out, .n = (size_t)(source->size < piece ? source->size : piece), .err = err};
        int code = load_piece(out, r.n, err);
        r.p = out->header;
        if (code == ERR_OK) code = parse(&r);
        if (code == ERR_OK) return ERR_OK;
        if (r.cut && piece >= GGUF_HEADER_MAX) FAIL(&r, "its header has more than %d MiB", GGUF_HEADER_MAX >> 20);
        gguf_close(out);
        if (!r.cut || piece >= GGUF_HEADER_MAX) return code;
    }
}

void gguf_close(struct gguf *g) {
    map_free(&g->by_key);
    mem_free(g->header);
    *g = (struct gguf){0};
}

bool gguf_is(const struct st_source *source) {
    char magic[4];
    return source->size >= sizeof magic && source->read_at(source->user, magic, sizeof magic, 0, NULL) == ERR_OK &&
           memcmp(magic, "GGUF", 4) == 0;
}

/* ---- values ------------------------------------------------------------------------------------------------------------------ */

const struct gguf_value *gguf_get(const struct gguf *g, struct str key) {
    int64_t i = map_get_int(&g->by_key, key, -1);
    return i < 0 ? NULL : &g->meta[i].value;
}

bool gguf_to_int(const struct gguf_value *v, int64_t *out) {
    if (!v || !widths[v->type] || v->type == GGUF_F32 || v->type == GGUF_F64) return false;
    uint64_t u = little(v->bytes);
    if (v->type == GGUF_U64 && u > INT64_MAX) return false;
    bool is_signed = v->type == GGUF_I8 || v->type == GGUF_I16 || v->type == GGUF_I32;
    uint64_t sign = is_signed ? UINT64_C(1) << (8 * v->bytes.n - 1) : 0;
    *out = v->type == GGUF_BOOL ? u != 0 : (int64_t)((u ^ sign) - sign);
    return true;
}

bool gguf_to_num(const struct gguf_value *v, double *out) {
    int64_t i;
    if (!v || !widths[v->type]) return false;
    if (v->type == GGUF_F32) *out = (double)f32_from_bits((uint32_t)little(v->bytes));
    else if (v->type == GGUF_F64) memcpy(out, v->bytes.p, 8);
    else if (gguf_to_int(v, &i)) *out = (double)i;
    else return false;
    return true;
}

bool gguf_to_str(const struct gguf_value *v, struct str *out) {
    if (!v || v->type != GGUF_STRING) return false;
    *out = v->bytes;
    return true;
}

bool gguf_next(const struct gguf_value *array, uint64_t *at, struct gguf_value *out) {
    if (!array || array->type != GGUF_ARRAY || array->of == GGUF_ARRAY || *at >= array->bytes.n) return false;
    size_t from = (size_t)*at, n = widths[array->of];
    if (array->of == GGUF_STRING) {
        n = (size_t)little(str_sub(array->bytes, from, 8)); /* checked when the header was read */
        from += 8;
    }
    *out = (struct gguf_value){.type = array->of, .bytes = str_sub(array->bytes, from, n)};
    *at = from + n;
    return true;
}
