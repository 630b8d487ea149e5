/* Tensors and the file: each matrix finds the smallest type that holds its numbers, by trying; then all are written in one pass. */
#include "tools/export.h"

#include "api/model_folder.h"
#include "os/os.h"
#include "tensor/quant.h"
#include "tools/export_internal.h"

#include <stdio.h>

struct item {
    struct str theirs;
    struct checkpoint_weight w;
    const struct block_type *type;
    int64_t rows;
    int64_t heads; /* rows are put in pairs within each of so many; 0: as they are */
    bool is_vector;
    uint64_t at;
};

struct job {
    struct export *e;
    const struct export_options *o;
    struct item *items;
    size_t n_items;
    struct os_file *file;
    uint64_t header_bytes, done;
    struct err *err;
};

/* ---- rows -------------------------------------------------------------------------------------------------------------- */

/* The row that lies at place r of the file: within a head, those of both halves by turns. */
static int64_t row_at(const struct item *t, int64_t r) {
    if (!t->heads) return r;
    int64_t width = t->rows / t->heads, in_head = r % width;
    return r - in_head + in_head % 2 * (width / 2) + in_head / 2;
}

struct planes {
    unsigned char *memory;
    size_t bytes[3];
    struct quant_row row;
};

static int planes_open(const struct item *t, struct planes *out, struct err *err) {
    const struct format *f = &t->w.format;
    *out =
        (struct planes){.bytes = {quant_values_bytes(f, t->w.width), quant_scales_bytes(f, t->w.width), quant_biases_bytes(f, t->w.width)}};
    out->memory = mem_try(out->bytes[0] + out->bytes[1] + out->bytes[2] + 1);
    return out->memory ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(t->w.values->t->name));
}

static int planes_read(const struct item *t, int64_t r, struct planes *p, struct err *err) {
    const struct checkpoint_tensor *from[] = {t->w.values, t->w.scales, t->w.biases};
    unsigned char *at = p->memory;
    const void **to[] = {&p->row.values, &p->row.scales, &p->row.biases};
    for (int i = 0; i < 3; at += p->bytes[i++]) {
        if (!p->bytes[i]) continue;
        TRY(checkpoint_read(from[i], (uint64_t)r * p->bytes[i], at, p->bytes[i], err));
        *to[i] = at;
    }
    return ERR_OK;
}

static size_t row_bytes(const struct item *t) {
    return (size_t)(t->w.width / t->type->n) * t->type->bytes;
}

/* Whether all rows have their numbers in t->type. */
static int fits(const struct item *t, bool *out, struct err *err) {
    struct planes p;
    *out = t->w.width % t->type->n == 0;
    if (!*out) return ERR_OK;
    TRY(planes_open(t, &p, err));
    unsigned char *blocks = mem_try(row_bytes(t) + 1);
    int code = blocks ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(t->theirs));
    for (int64_t r = 0; r < t->rows && *out && !code; r++) {
        code = planes_read(t, r, &p, err);
        if (!code) *out = block_join(t->type, &t->w.format, &p.row, t->w.width, blocks);
    }
    mem_free(blocks);
    mem_free(p.memory);
    return code;
}

static int choose_type(const struct export *e, struct item *t, struct err *err) {
    const struct format *f = &t->w.format;
    char name[32];
    bool is_found = false;
    if (f->mode == QUANT_NONE) {
        t->type = f->dtype <= DT_BF16 ? block_named(t->is_vector ? "F32" : dtype_name(f->dtype)) : NULL;
        return t->type ? ERR_OK
                       : err_set(err, ERR_EUNSUPPORTED, "%s: %.*s is %s, expected F32, F16 or BF16", e->c.path,
                                 STR_ARG(t->w.values->t->name), dtype_name(f->dtype));
    }
    for (int i = 0; !is_found && (t->type = block_for(f, i)) != NULL; i++) TRY(fits(t, &is_found, err));
    if (is_found) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED,
                   "%s: %.*s is %s, whose numbers no type of GGUF holds; mlxcel fuse --dequantize makes a plain model of it", e->c.path,
                   STR_ARG(t->w.values->t->name), format_name(f, name));
}

/* ---- tensors ----------------------------------------------------------------------------------------------------------- */

static bool is_part(struct str name) {
    return str_ends(name, STR(".scales")) || str_ends(name, STR(".biases")) || str_ends(name, STR("rotary_emb.inv_freq"));
}

static int64_t heads_of(const struct export *e, struct str theirs) {
    if (!(e->arch->flags & GGUF_PAIRED)) return 0;
    if (str_find(theirs, STR(".attn_q."), 0) != STR_NONE) return e->shape.n_heads;
    return str_find(theirs, STR(".attn_k."), 0) != STR_NONE ? e->shape.n_kv_heads : 0;
}

static int fill_item(const struct export *e, const struct checkpoint_tensor *from, struct str theirs, struct item *t, struct err *err) {
    struct str name = from->t->name;
    *t = (struct item){.theirs = theirs, .heads = heads_of(e, theirs), .is_vector = from->t->n_dims == 1};
    if (from->t->n_dims < 1 || from->t->n_dims > 2)
        return err_set(err, ERR_EUNSUPPORTED, "%s: %.*s has %d dimensions, expected 1 or 2", e->c.path, STR_ARG(name), from->t->n_dims);
    if (t->is_vector || !str_ends(name, STR(".weight")))
        t->w =
            (struct checkpoint_weight){.format = {.dtype = from->t->dtype}, .values = from, .width = from->t->shape[from->t->n_dims - 1]};
    else TRY(checkpoint_weight(&e->c, str_sub(name, 0, name.n - STR(".weight").n), &t->w, err));
    t->rows = t->is_vector ? t->w.width : from->t->shape[0];
    if (t->heads && (t->rows % t->heads || t->rows / t->heads % 2))
        return err_set(err, ERR_EFORMAT, "%s: %.*s has %lld rows, which are not those of %lld heads", e->c.path, STR_ARG(name),
                       (long long)t->rows, (long long)t->heads);
    return choose_type(e, t, err);
}

static int plan(struct job *j) {
    struct export *e = j->e;
    struct map names = {0};
    const struct gguf_set set = {.arch = e->arch};
    yyjson_val *tied = config_get(&e->c.config, "tie_word_embeddings");
    int code = ERR_OK;
    gguf_their_names(&e->arena, &set, e->shape.n_layers, &names);
    j->items = arena_new(&e->arena, struct item, e->c.n_tensors + 1);
    for (size_t i = 0; i < e->c.n_tensors && !code; i++) {
        const struct checkpoint_tensor *from = &e->c.tensors[i];
        if (is_part(from->t->name) || (yyjson_get_bool(tied) && str_is(from->t->name, "lm_head.weight"))) continue;
        const struct map_entry *found = map_find(&names, from->t->name);
        struct item *t = &j->items[j->n_items];
        code = found ? fill_item(e, from, str_of(found->value.ptr), t, j->err)
                     : err_set(j->err, ERR_EUNSUPPORTED, "%s: tensor %.*s has no name in GGUF files of %s models", e->c.path,
                               STR_ARG(from->t->name), e->arch->name);
        if (code) break;
        t->at = gguf_put_tensor(&e->w, t->theirs, t->type, t->is_vector ? 1 : 2, (const int64_t[]){t->rows, t->w.width});
        j->n_items++;
    }
    map_free(&names);
    return code;
}

/* ---- writing ----------------------------------------------------------------------------------------------------------- */

static int put(struct job *j, const void *data, size_t n, uint64_t at) {
    TRY(os_file_write_at(j->file, data, n, j->header_bytes + at, j->err));
    j->done += n;
    if (j->o->progress && !j->o->progress(j->o->user, j->done, j->e->w.data_bytes)) return err_set(j->err, ERR_ECANCELLED, "interrupted");
    return ERR_OK;
}

/* A vector as f32. */
static int write_vector(struct job *j, const struct item *t) {
    size_t n = (size_t)t->rows;
    float *values = mem_try(2 * n * sizeof *values + 1);
    if (!values) return err_set(j->err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->theirs));
    int code = checkpoint_weight_row(&t->w, 0, values, j->err);
    for (size_t i = 0; i < n && !code; i++) values[n + i] = values[row_at(t, (int64_t)i)];
    if (!code) code = put(j, values + n, n * sizeof *values, t->at);
    mem_free(values);
    return code;
}

static int write_matrix(struct job *j, const struct item *t) {
    struct planes p;
    size_t stride = row_bytes(t);
    TRY(planes_open(t, &p, j->err));
    unsigned char *blocks = mem_try(stride + 1);
    int code = blocks ? ERR_OK : err_set(j->err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(t->theirs));
    for (int64_t r = 0; r < t->rows && !code; r++) {
        code = planes_read(t, row_at(t, r), &p, j->err);
        bool is_packed = t->w.format.mode != QUANT_NONE;
        if (!code && is_packed) block_join(t->type, &t->w.format, &p.row, t->w.width, blocks);
        if (!code) code = put(j, is_packed ? (const void *)blocks : p.row.values, stride, t->at + (uint64_t)r * stride);
    }
    mem_free(blocks);
    mem_free(p.memory);
    return code;
}

static int write_file(struct job *j, const char *path) {
    struct sb header = {0};
    uint64_t factors_at = 0, n_factors = (uint64_t)j->e->shape.head_dim / 2;
    if (j->e->rope_factors)
        factors_at = gguf_put_tensor(&j->e->w, STR("rope_freqs.weight"), block_named("F32"), 1, (const int64_t[]){(int64_t)n_factors});
    gguf_header(&j->e->w, &header);
    j->header_bytes = header.n;
    int code = os_file_open(path, OS_WRITE, &j->file, j->err);
    if (!code) code = os_file_write_at(j->file, header.p, header.n, 0, j->err);
    sb_free(&header);
    for (size_t i = 0; i < j->n_items && !code; i++) code = (j->items[i].is_vector ? write_vector : write_matrix)(j, &j->items[i]);
    if (!code && j->e->rope_factors) code = put(j, j->e->rope_factors, n_factors * sizeof(float), factors_at);
    const unsigned char zero = 0; /* the last tensor is filled up, too */
    uint64_t end = j->header_bytes + j->e->w.data_bytes;
    struct os_stat is;
    if (!code) code = os_stat(path, &is, j->err);
    if (!code && is.size < end) code = os_file_write_at(j->file, &zero, 1, end - 1, j->err);
    os_file_close(j->file);
    return code;
}

static int check_target(const char *target, struct err *err) {
    struct os_stat is;
    if (os_stat(target, &is, NULL) == ERR_OK) return err_set(err, ERR_EARG, "%s is there already", target);
    return ERR_OK;
}

static int open_source(struct export *e, const char *source, struct err *err) {
    TRY(model_folder_open(source, &e->c, err));
    if (e->c.gguf) return err_set(err, ERR_EARG, "%s is a GGUF file already", source);
    if (!e->c.has_config || !e->c.dir) return err_set(err, ERR_EARG, "%s is no model folder with a config.json", source);
    if (e->c.quant.refusal.p) return err_set(err, ERR_EUNSUPPORTED, "%.*s", STR_ARG(e->c.quant.refusal));
    TRY(export_meta_arch(e, err));
    TRY(config_shape(&e->c.config, &e->shape, err));
    if (e->shape.n_kv_heads == 0) e->shape.n_kv_heads = e->shape.n_heads;
    if (e->shape.head_dim == 0 && e->shape.n_heads > 0) e->shape.head_dim = e->shape.hidden / e->shape.n_heads;
    return ERR_OK;
}

int export_gguf(const struct export_options *o, struct export_result *out, struct err *err) {
    struct export e = {0};
    struct job j = {.e = &e, .o = o, .err = err};
    struct str part = {0};
    int code = check_target(o->target, err);
    if (!code) code = open_source(&e, o->source, err);
    if (!code) code = export_meta(&e, err);
    if (!code) code = export_tokens(&e, err);
    if (!code) code = plan(&j);
    if (!code) {
        part = str_fmt(&e.arena, "%s.part", o->target);
        code = write_file(&j, part.p);
        if (!code) code = os_rename(part.p, o->target, err);
        if (code) os_remove(part.p, NULL);
    }
    *out = (struct export_result){j.n_items, j.header_bytes + e.w.data_bytes};
    gguf_writer_free(&e.w);
    checkpoint_close(&e.c);
    arena_free(&e.arena);
    return code;
}
