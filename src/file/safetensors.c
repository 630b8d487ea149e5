/* Reading safetensors headers. The rules were taken from the behaviour of the reference library; tests/file compares the
 * two on some hundreds of damaged headers. Where it says more than the format's description:
 * - white space around the object is fine, anything else is not; nesting deeper than 127 is refused;
 * - a name that occurs twice counts once, the last time; __metadata__ and the three fields may not occur twice;
 * - unknown fields are ignored; a tensor may be the array [dtype, shape, data_offsets], a dtype the object {"F32": null};
 * - tensors without bytes may stand anywhere between others, as long as they begin where one ends;
 * - shapes are multiplied from the left, so that [0, 2^40, 2^40] is fine and [2^40, 2^40, 0] is not. */
#include "file/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <yyjson.h>

#include "base/json.h"
#include "base/map.h"
#include "file/limits.h"

enum { MAX_DEPTH = 127 };

struct reader {
    struct arena *arena;
    struct safetensors *st;
    struct str text;  /* the header */
    uint64_t data_at; /* where the tensors' bytes begin */
    struct map seen;  /* index into tensors by name */
    struct err *err;
};

#define FAIL(r, ...) err_set_at((r)->err, ERR_EFORMAT, (r)->st->source.name, __VA_ARGS__)
#define FAIL_TENSOR(r, name, fmt, ...) FAIL((r), "tensor %.*s: " fmt, (int)((name).n > 200 ? 200 : (name).n), (name).p, __VA_ARGS__)

/* ---- the header's bytes --------------------------------------------------------------------------------------- */

static uint64_t read_u64(const unsigned char *p) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | p[i];
    return value;
}

static const struct str pointer_mark = {"version https://git-lfs", 23};

bool st_is_pointer(struct str file) {
    return file.n < 1024 && str_starts(file, pointer_mark);
}

/* Read only where the length of the header cannot be one. */
static bool source_is_pointer(const struct st_source *s) {
    char head[64];
    size_t n = s->size < sizeof head ? (size_t)s->size : sizeof head;
    return s->size < 1024 && s->read_at(s->user, head, n, 0, NULL) == ERR_OK && st_is_pointer(str_n(head, n));
}

/* Leaves the header in r->text, in heap memory that the caller frees. */
static int read_header(struct reader *r, char **out_memory) {
    const struct st_source *s = &r->st->source;
    unsigned char prefix[8];
    *out_memory = NULL;
    if (s->size < sizeof prefix) return FAIL(r, "%llu bytes are too few for a safetensors file", (unsigned long long)s->size);
    TRY(s->read_at(s->user, prefix, sizeof prefix, 0, r->err));
    uint64_t n = read_u64(prefix);
    if (n > ST_HEADER_MAX && source_is_pointer(s)) return FAIL(r, ST_POINTER_TEXT);
    if (n > ST_HEADER_MAX)
        return FAIL(r, "no safetensors file: its header would have %llu bytes, and 100 MB are allowed; download it again",
                    (unsigned long long)n);
    if (n > s->size - sizeof prefix)
        return FAIL(r, "header of %llu bytes does not fit the file of %llu", (unsigned long long)n, (unsigned long long)s->size);
    if (n == 0) return FAIL(r, "header is empty");
    char *memory = *out_memory = mem_try((size_t)n);
    if (!memory) return err_set(r->err, ERR_EMEMORY, "%s: no memory for a header of %llu bytes", s->name, (unsigned long long)n);
    TRY(s->read_at(s->user, memory, (size_t)n, sizeof prefix, r->err));
    r->text = str_n(memory, (size_t)n);
    r->data_at = sizeof prefix + n;
    if (json_depth(r->text) > MAX_DEPTH) return FAIL(r, "header is nested deeper than %d", MAX_DEPTH);
    if (json_value_count(r->text) > ST_VALUES_MAX) return FAIL(r, "header has more than %d numbers and names", ST_VALUES_MAX);
    return ERR_OK;
}

/* ---- one tensor ----------------------------------------------------------------------------------------------- */

struct fields {
    yyjson_val *dtype, *shape, *offsets;
};

static int get_fields(struct reader *r, struct str name, yyjson_val *val, struct fields *out) {
    *out = (struct fields){0};
    if (yyjson_is_arr(val)) {
        if (yyjson_arr_size(val) != 3) return FAIL_TENSOR(r, name, "has %zu parts, expected 3", yyjson_arr_size(val));
        *out = (struct fields){yyjson_arr_get(val, 0), yyjson_arr_get(val, 1), yyjson_arr_get(val, 2)};
        return ERR_OK;
    }
    if (!yyjson_is_obj(val)) return FAIL_TENSOR(r, name, "is not an object but %s", yyjson_get_type_desc(val));
    size_t i, n;
    yyjson_val *key, *field;
    yyjson_obj_foreach(val, i, n, key, field) {
        yyjson_val **slot = yyjson_equals_str(key, "dtype")          ? &out->dtype
                            : yyjson_equals_str(key, "shape")        ? &out->shape
                            : yyjson_equals_str(key, "data_offsets") ? &out->offsets
                                                                     : NULL;
        if (slot && *slot) return FAIL_TENSOR(r, name, "%s stands twice", yyjson_get_str(key));
        if (slot) *slot = field;
    }
    const char *missing = !out->dtype ? "dtype" : !out->shape ? "shape" : !out->offsets ? "data_offsets" : NULL;
    return missing ? FAIL_TENSOR(r, name, "%s is missing", missing) : ERR_OK;
}

static int get_dtype(struct reader *r, struct str name, yyjson_val *val, enum dtype *out) {
    if (yyjson_is_obj(val)) {
        yyjson_obj_iter it = yyjson_obj_iter_with(val);
        yyjson_val *key = yyjson_obj_size(val) == 1 ? yyjson_obj_iter_next(&it) : NULL;
        val = key && yyjson_is_null(yyjson_obj_iter_get_val(key)) ? key : NULL;
    }
    if (!yyjson_is_str(val)) return FAIL_TENSOR(r, name, "dtype is %s, expected a name", yyjson_get_type_desc(val));
    struct str text = str_n(yyjson_get_str(val), yyjson_get_len(val));
    if (!dtype_parse(text, out)) return FAIL_TENSOR(r, name, "unknown dtype %.*s", (int)(text.n > 40 ? 40 : text.n), text.p);
    return ERR_OK;
}

static int get_shape(struct reader *r, yyjson_val *val, struct st_tensor *t) {
    if (!yyjson_is_arr(val)) return FAIL_TENSOR(r, t->name, "shape is %s, expected an array", yyjson_get_type_desc(val));
    size_t i, n = yyjson_arr_size(val);
    if (n > ST_DIMS_MAX) return FAIL_TENSOR(r, t->name, "shape has %zu dimensions, at most %d are read", n, ST_DIMS_MAX);
    int64_t *shape = arena_try(r->arena, (n ? n : 1) * sizeof *shape);
    if (!shape) return err_set(r->err, ERR_EMEMORY, "%s: no memory for a shape of %zu dimensions", r->st->source.name, n);
    yyjson_val *dim;
    size_t product = 1;
    yyjson_arr_foreach(val, i, n, dim) {
        if (!yyjson_is_uint(dim) || yyjson_get_uint(dim) > INT64_MAX)
            return FAIL_TENSOR(r, t->name, "dimension %zu is not a whole number from 0 to 2^63-1", i);
        shape[i] = (int64_t)yyjson_get_uint(dim);
        if (size_mul(product, (size_t)shape[i], &product)) return FAIL_TENSOR(r, t->name, "the product of its %zu dimensions overflows", n);
    }
    t->n_dims = (int)n;
    t->shape = shape;
    t->n_elements = product;
    return ERR_OK;
}

static int get_offsets(struct reader *r, yyjson_val *val, struct st_tensor *t) {
    yyjson_val *begin = yyjson_arr_get(val, 0), *end = yyjson_arr_get(val, 1);
    if (yyjson_arr_size(val) != 2 || !yyjson_is_uint(begin) || !yyjson_is_uint(end))
        return FAIL_TENSOR(r, t->name, "data_offsets are not %s", "two whole numbers");
    t->offset = yyjson_get_uint(begin); /* from the start of the data until every tensor is known */
    if (yyjson_get_uint(end) < t->offset)
        return FAIL_TENSOR(r, t->name, "ends at %llu before it begins at %llu", (unsigned long long)yyjson_get_uint(end),
                           (unsigned long long)t->offset);
    t->bytes = yyjson_get_uint(end) - t->offset;
    return ERR_OK;
}

static int get_tensor(struct reader *r, struct str name, yyjson_val *val, struct st_tensor *out) {
    struct fields f;
    *out = (struct st_tensor){.name = name};
    TRY(get_fields(r, name, val, &f));
    TRY(get_dtype(r, name, f.dtype, &out->dtype));
    TRY(get_shape(r, f.shape, out));
    return get_offsets(r, f.offsets, out);
}

/* ---- all of them ---------------------------------------------------------------------------------------------- */

static int get_meta(struct reader *r, yyjson_val *val) {
    size_t i, n = yyjson_obj_size(val);
    if (yyjson_is_null(val)) return ERR_OK;
    if (!yyjson_is_obj(val)) return FAIL(r, "__metadata__ is %s, expected an object", yyjson_get_type_desc(val));
    r->st->meta = arena_try(r->arena, (n ? n : 1) * sizeof *r->st->meta);
    if (!r->st->meta) return err_set(r->err, ERR_EMEMORY, "%s: no memory for %zu entries of metadata", r->st->source.name, n);
    yyjson_val *key, *value;
    yyjson_obj_foreach(val, i, n, key, value) {
        struct str k = str_n(yyjson_get_str(key), yyjson_get_len(key));
        if (!yyjson_is_str(value)) return FAIL(r, "__metadata__: %.*s is not a string", (int)(k.n > 100 ? 100 : k.n), k.p);
        r->st->meta[r->st->n_meta++] =
            (struct st_meta){str_copy(r->arena, k), str_copy(r->arena, str_n(yyjson_get_str(value), yyjson_get_len(value)))};
    }
    return ERR_OK;
}

static int get_all(struct reader *r, yyjson_val *root) {
    struct safetensors *st = r->st;
    size_t i, n = yyjson_obj_size(root);
    bool seen_meta = false;
    if (!yyjson_is_obj(root)) return FAIL(r, "header is %s, expected an object", yyjson_get_type_desc(root));
    st->tensors = arena_try(r->arena, (n ? n : 1) * sizeof *st->tensors);
    if (!st->tensors) return err_set(r->err, ERR_EMEMORY, "%s: no memory for %zu tensors", st->source.name, n);
    yyjson_val *key, *val;
    yyjson_obj_foreach(root, i, n, key, val) {
        struct str name = str_n(yyjson_get_str(key), yyjson_get_len(key));
        if (str_is(name, "__metadata__")) {
            if (seen_meta) return FAIL(r, "__metadata__ stands twice");
            seen_meta = true;
            TRY(get_meta(r, val));
            continue;
        }
        name = str_copy(r->arena, name);
        struct st_tensor t;
        TRY(get_tensor(r, name, val, &t));
        bool is_new;
        struct map_entry *e = map_put(&r->seen, name, &is_new);
        if (is_new) e->value.i = (int64_t)st->n_tensors++;
        st->tensors[e->value.i] = t;
    }
    return ERR_OK;
}

static int by_place(const void *a, const void *b) {
    const struct st_tensor *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return str_cmp(x->name, y->name);
}

/* In order of place, each begins where the one before it ended, holds what its shape says, and the last ends the file. */
static int check_places(struct reader *r) {
    struct safetensors *st = r->st;
    uint64_t at = 0, data_bytes = st->source.size - r->data_at;
    qsort(st->tensors, st->n_tensors, sizeof *st->tensors, by_place);
    for (size_t i = 0; i < st->n_tensors; i++) {
        struct st_tensor *t = &st->tensors[i];
        if (t->offset != at)
            return FAIL_TENSOR(r, t->name, "begins at %llu, expected %llu (%s)", (unsigned long long)t->offset, (unsigned long long)at,
                               t->offset > at ? "a hole in the data" : "tensors overlap");
        size_t bits;
        if (size_mul((size_t)t->n_elements, (size_t)dtype_bits(t->dtype), &bits))
            return FAIL_TENSOR(r, t->name, "%s size overflows", dtype_name(t->dtype));
        if (bits % 8)
            return FAIL_TENSOR(r, t->name, "%llu elements of %s do not end at a byte", (unsigned long long)t->n_elements,
                               dtype_name(t->dtype));
        char shape[80];
        if (bits / 8 != t->bytes)
            return FAIL_TENSOR(r, t->name, "%s %s takes %zu bytes, data_offsets say %llu", dtype_name(t->dtype),
                               st_shape_text(t, shape, sizeof shape), bits / 8, (unsigned long long)t->bytes);
        if (t->bytes > data_bytes - at)
            return FAIL_TENSOR(r, t->name, "ends at %llu, after the file's end at %llu", (unsigned long long)(r->data_at + at + t->bytes),
                               (unsigned long long)st->source.size);
        at += t->bytes;
        t->offset += r->data_at;
    }
    if (at != data_bytes) return FAIL(r, "%llu bytes after the last tensor", (unsigned long long)(data_bytes - at));
    st->data_bytes = at;
    return ERR_OK;
}

int st_open(struct arena *a, const struct st_source *source, struct safetensors *out, struct err *err) {
    struct reader r = {.arena = a, .st = out, .err = err};
    char *memory;
    yyjson_doc *doc = NULL;
    *out = (struct safetensors){.source = *source};
    int code = read_header(&r, &memory);
    if (code) goto out;
    yyjson_read_err bad = {0};
    doc = yyjson_read_opts(memory, r.text.n, YYJSON_READ_NOFLAG, NULL, &bad);
    if (!doc) {
        code = FAIL(&r, "header, byte %zu: %s", bad.pos, bad.msg);
        goto out;
    }
    code = get_all(&r, yyjson_doc_get_root(doc));
    if (code == ERR_OK) code = check_places(&r);
out:
    yyjson_doc_free(doc);
    mem_free(memory);
    map_free(&r.seen);
    if (code) *out = (struct safetensors){0};
    return code;
}

int st_read(const struct safetensors *st, const struct st_tensor *t, uint64_t at, void *data, size_t n, struct err *err) {
    if (at > t->bytes || n > t->bytes - at)
        return err_set(err, ERR_EARG, "%s: tensor %.*s: %zu bytes from %llu are beyond its %llu", st->source.name, STR_ARG(t->name), n,
                       (unsigned long long)at, (unsigned long long)t->bytes);
    return st->source.read_at(st->source.user, data, n, t->offset + at, err);
}

static int memory_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    const struct str *bytes = user;
    if (offset > bytes->n || n > bytes->n - offset)
        return err_set(err, ERR_EIO, "read of %zu bytes at %llu is beyond the %zu in memory", n, (unsigned long long)offset, bytes->n);
    memcpy(data, bytes->p + offset, n);
    return ERR_OK;
}

struct st_source st_source_memory(const char *name, struct str *bytes) {
    return (struct st_source){.name = name, .size = bytes->n, .read_at = memory_read_at, .user = bytes};
}

const char *st_shape_text(const struct st_tensor *t, char *out, size_t out_bytes) {
    size_t n = (size_t)snprintf(out, out_bytes, "[");
    for (int i = 0; i < t->n_dims && n < out_bytes; i++)
        n += (size_t)snprintf(out + n, out_bytes - n, "%s%lld", i ? ", " : "", (long long)t->shape[i]);
    if (n < out_bytes) snprintf(out + n, out_bytes - n, "]");
    return out;
}

size_t st_at(const struct safetensors *st, uint64_t offset) {
    size_t low = 0, high = st->n_tensors;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (st->tensors[middle].offset <= offset) low = middle;
        else high = middle;
    }
    return low;
}
