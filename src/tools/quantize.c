/* Writing a quantised checkpoint: shards with their headers, tensors in pieces of rows, config and side files. */
#include "api/model_folder.h"
#include "tools/new_folder.h"
#include "tools/quantize_internal.h"
#include "tools/surgery.h"

#include "base/json.h"
#include "file/plain_view.h"
#include "model/families.h"
#include "os/os.h"
#include "tensor/quant.h"

enum { PIECE_ELEMENTS = 1 << 20 };

struct writer {
    struct arena arena;
    const struct quantize_plan *plan;
    const char *dir; /* the folder that is being written */
    struct os_file **files;
    uint64_t *data_at; /* where each shard's data begins */
    unsigned char *raw, *packed[3];
    float *values, *turned; /* turned: a whole matrix that was stored [in, out] */
    uint64_t done;
};

static struct str shard_name(struct arena *a, int32_t i, int32_t n) {
    return n == 1 ? STR("model.safetensors") : str_fmt(a, "model-%05d-of-%05d.safetensors", i + 1, n);
}

/* ---- headers --------------------------------------------------------------------------------------------------------- */

static void put_plane(struct jsonw *w, const struct quantize_plane *p) {
    jsonw_key_str(w, p->name);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "dtype", str_of(dtype_name(p->dtype)));
    jsonw_open(w, "shape", '[');
    for (int i = 0; i < p->n_dims; i++) jsonw_int(w, p->shape[i]);
    jsonw_end(w, ']');
    jsonw_open(w, "data_offsets", '[');
    jsonw_int(w, (int64_t)p->offset);
    jsonw_int(w, (int64_t)(p->offset + p->bytes));
    jsonw_end(w, ']');
    jsonw_end(w, '}');
}

static void header_text(const struct quantize_plan *p, int32_t i_shard, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_raw(&w, "__metadata__", STR("{\"format\":\"mlx\"}"));
    for (size_t i = 0; i < p->n_items; i++)
        for (int k = 0; k < p->items[i].n_planes; k++)
            if (p->items[i].planes[k].i_shard == i_shard) put_plane(&w, &p->items[i].planes[k]);
    jsonw_end(&w, '}');
    while (out->n % 8) sb_putc(out, ' ');
}

static int open_shards(struct writer *w, struct err *err) {
    int32_t n = w->plan->n_shards;
    w->files = arena_new(&w->arena, struct os_file *, n);
    w->data_at = arena_new(&w->arena, uint64_t, n);
    for (int32_t i = 0; i < n; i++) {
        struct sb header = {0};
        struct str path = str_fmt(&w->arena, "%s/%s", w->dir, shard_name(&w->arena, i, n).p);
        header_text(w->plan, i, &header);
        uint64_t length = header.n;
        w->data_at[i] = sizeof length + length;
        int code = os_file_open(path.p, OS_WRITE, &w->files[i], err);
        if (!code) code = os_file_write_at(w->files[i], &length, sizeof length, 0, err);
        if (!code) code = os_file_write_at(w->files[i], header.p, header.n, sizeof length, err);
        sb_free(&header);
        if (code) return code;
    }
    return ERR_OK;
}

/* ---- tensors --------------------------------------------------------------------------------------------------------- */

static int report(struct writer *w, uint64_t bytes, struct err *err) {
    const struct quantize_options *o = w->plan->options;
    w->done += bytes;
    if (o->progress && !o->progress(o->user, w->done, w->plan->source_bytes)) return err_set(err, ERR_ECANCELLED, "interrupted");
    return ERR_OK;
}

static int write_plane(struct writer *w, const struct quantize_plane *p, const void *data, size_t n, uint64_t at, struct err *err) {
    return os_file_write_at(w->files[p->i_shard], data, n, w->data_at[p->i_shard] + p->offset + at, err);
}

/* n elements as floats in w->values, rounded to the type that they are stored in. */
static int read_floats(struct writer *w, const struct checkpoint_tensor *t, uint64_t first, int64_t n, enum dtype dt, struct err *err) {
    size_t size = (size_t)dtype_bits(t->t->dtype) / 8;
    TRY(checkpoint_read(t, first * size, w->raw, (size_t)n * size, err));
    plain_to_f32(t->t->dtype, w->raw, n, w->values);
    if (dt == t->t->dtype) return ERR_OK;
    plain_from_f32(dt, w->values, n, w->raw);
    plain_to_f32(dt, w->raw, n, w->values);
    return ERR_OK;
}

/* The whole matrix into w->turned, [rows, width], through w->values that hold n_piece elements. */
static int turn_matrix(struct writer *w, const struct quantize_item *item, int64_t n_piece, struct err *err) {
    int64_t total = item->rows * item->width;
    w->turned = mem_try((size_t)total * sizeof(float));
    if (!w->turned) return err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(item->path));
    for (int64_t first = 0; first < total; first += n_piece) {
        int64_t n = total - first < n_piece ? total - first : n_piece;
        TRY(read_floats(w, item->sources[0], (uint64_t)first, n, item->format.dtype, err));
        for (int64_t i = first; i < first + n; i++) w->turned[i % item->rows * item->width + i / item->rows] = w->values[i - first];
    }
    return ERR_OK;
}

static int quantize_rows(struct writer *w, const struct quantize_item *item, size_t i_source, int64_t row, int64_t n, struct err *err) {
    const struct format *f = &item->format;
    const size_t bytes[3] = {quant_values_bytes(f, item->width), quant_scales_bytes(f, item->width), quant_biases_bytes(f, item->width)};
    const float *values = item->is_turned ? w->turned + row * item->width : w->values;
    if (!item->is_turned) TRY(read_floats(w, item->sources[i_source], (uint64_t)(row * item->width), n * item->width, f->dtype, err));
    for (int64_t r = 0; r < n; r++)
        quant_pack(f, values + r * item->width, item->width, w->packed[0] + (size_t)r * bytes[0], w->packed[1] + (size_t)r * bytes[1],
                   bytes[2] ? w->packed[2] + (size_t)r * bytes[2] : NULL);
    uint64_t at = i_source * (uint64_t)item->rows + (uint64_t)row;
    for (int k = 0; k < item->n_planes; k++) TRY(write_plane(w, &item->planes[k], w->packed[k], (size_t)n * bytes[k], at * bytes[k], err));
    return report(w, (uint64_t)(n * item->width * dtype_bits(item->sources[i_source]->t->dtype) / 8), err);
}

static int quantize_item(struct writer *w, const struct quantize_item *item, struct err *err) {
    int64_t most = PIECE_ELEMENTS / item->width;
    if (most < 1) most = 1;
    if (most > item->rows) most = item->rows;
    size_t n = (size_t)(most * item->width);
    w->raw = mem_try(n * sizeof(float));
    w->values = mem_try(n * sizeof(float));
    for (int k = 0; k < 3; k++) w->packed[k] = mem_try(n * 2);
    bool has_memory = w->raw && w->values && w->packed[0] && w->packed[1] && w->packed[2];
    int code = has_memory ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(item->path));
    if (!code && item->is_turned) code = turn_matrix(w, item, (int64_t)n, err);
    for (size_t s = 0; s < item->n_sources && !code; s++)
        for (int64_t row = 0; row < item->rows && !code; row += most)
            code = quantize_rows(w, item, s, row, item->rows - row < most ? item->rows - row : most, err);
    mem_free(w->raw);
    mem_free(w->values);
    for (int k = 0; k < 3; k++) mem_free(w->packed[k]);
    mem_free(w->turned);
    w->turned = NULL;
    return code;
}

/* A plain matrix, turned. */
static int copy_turned(struct writer *w, const struct quantize_item *item, struct err *err) {
    size_t size = (size_t)dtype_bits(item->format.dtype) / 8;
    w->raw = mem_alloc(PIECE_ELEMENTS * sizeof(float));
    w->values = mem_alloc(PIECE_ELEMENTS * sizeof(float));
    int code = turn_matrix(w, item, PIECE_ELEMENTS, err);
    int64_t total = item->rows * item->width;
    for (int64_t first = 0; first < total && !code; first += PIECE_ELEMENTS) {
        int64_t n = total - first < PIECE_ELEMENTS ? total - first : PIECE_ELEMENTS;
        plain_from_f32(item->format.dtype, w->turned + first, n, w->raw);
        code = write_plane(w, &item->planes[0], w->raw, (size_t)n * size, (uint64_t)first * size, err);
    }
    if (!code) code = report(w, item->sources[0]->t->bytes, err);
    mem_free(w->raw);
    mem_free(w->values);
    mem_free(w->turned);
    w->turned = NULL;
    return code;
}

/* As it is, or cast. */
static int copy_item(struct writer *w, const struct quantize_item *item, struct err *err) {
    uint64_t at = 0;
    w->raw = mem_alloc(PIECE_ELEMENTS * 4);
    w->values = mem_alloc(PIECE_ELEMENTS * sizeof(float));
    int code = ERR_OK;
    for (size_t s = 0; s < item->n_sources && !code; s++) {
        const struct checkpoint_tensor *t = item->sources[s];
        bool casts = item->format.dtype != t->t->dtype;
        uint64_t size = casts ? (uint64_t)dtype_bits(t->t->dtype) / 8 : 1, total = casts ? t->t->n_elements : t->t->bytes;
        for (uint64_t first = 0; first < total && !code; first += PIECE_ELEMENTS) {
            size_t n = total - first < PIECE_ELEMENTS ? (size_t)(total - first) : PIECE_ELEMENTS, out_bytes = n;
            if (casts) {
                code = read_floats(w, t, first, (int64_t)n, item->format.dtype, err);
                plain_from_f32(item->format.dtype, w->values, (int64_t)n, w->raw);
                out_bytes = n * (size_t)dtype_bits(item->format.dtype) / 8;
            } else {
                code = checkpoint_read(t, first, w->raw, n, err);
            }
            if (!code) code = write_plane(w, &item->planes[0], w->raw, out_bytes, at, err);
            if (!code) code = report(w, n * size, err);
            at += out_bytes;
        }
    }
    mem_free(w->raw);
    mem_free(w->values);
    return code;
}

/* ---- side files ------------------------------------------------------------------------------------------------------ */

static int save_pretty(const char *path, struct str json, struct err *err) {
    struct sb out = {0};
    json_pretty(json, &out);
    int code = os_file_save(path, sb_str(&out), err);
    sb_free(&out);
    return code;
}

static void put_format(struct jsonw *w, const struct format *f) {
    jsonw_put_int(w, "group_size", f->group);
    jsonw_put_int(w, "bits", f->bits);
    jsonw_put_str(w, "mode", str_of(quant_mode_name(f->mode)));
}

static struct str quantization_text(struct arena *a, const struct quantize_plan *p) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    put_format(&w, &p->base);
    for (size_t i = 0; i < p->n_items; i++) {
        const struct quantize_item *item = &p->items[i];
        if (!item->is_special || item->format.mode == QUANT_NONE) continue;
        jsonw_key_str(&w, item->path);
        jsonw_begin(&w, '{');
        put_format(&w, &item->format);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, '}');
    struct str text = str_copy(a, sb_str(&out));
    sb_free(&out);
    return text;
}

struct entry {
    struct str key;
    yyjson_val *val; /* NULL: the quantisation */
};

/* The source's config with the quantisation, by name, as mlx-lm leaves it. */
static int write_config(struct writer *w, const struct checkpoint *c, struct err *err) {
    static const char *const left_out[] = {"_name_or_path", "vision_config", "quantization", "quantization_config"};
    yyjson_val *root = c->config.root, *key, *val;
    size_t i, max, n = 0;
    bool keeps = w->plan->formats && !w->plan->is_plain, writes = !w->plan->formats; /* the source's own quantisation; that of the plan */
    struct entry *entries = arena_new(&w->arena, struct entry, yyjson_obj_size(root) + 3);
    yyjson_obj_foreach(root, i, max, key, val) {
        bool stays = true;
        size_t n_out = sizeof left_out / sizeof *left_out - (keeps ? 2 : 0);
        for (size_t k = 0; k < n_out; k++) stays = stays && !str_is(json_val_str(key), left_out[k]);
        if (stays) entries[n++] = (struct entry){json_val_str(key), val};
    }
    yyjson_val *eos = c->has_generation ? json_get(c->generation.root, "eos_token_id") : NULL;
    for (i = 0; i < n && eos; i++) /* the generation config is nearer to what the model does */
        if (str_is(entries[i].key, "eos_token_id")) break;
    if (eos && !yyjson_is_null(eos)) {
        entries[i] = (struct entry){STR("eos_token_id"), eos};
        if (i == n) n++;
    }
    if (writes) {
        entries[n++].key = STR("quantization");
        entries[n++].key = STR("quantization_config");
    }
    for (i = 1; i < n; i++) /* few keys */
        for (size_t k = i; k > 0 && str_cmp(entries[k - 1].key, entries[k].key) > 0; k--) {
            struct entry t = entries[k];
            entries[k] = entries[k - 1];
            entries[k - 1] = t;
        }
    struct str quantization = quantization_text(&w->arena, w->plan);
    struct sb out = {0};
    struct jsonw json = {.out = &out};
    jsonw_begin(&json, '{');
    for (i = 0; i < n; i++) {
        jsonw_key_str(&json, entries[i].key);
        if (entries[i].val) jsonw_val_lenient(&json, entries[i].val);
        else jsonw_raw(&json, quantization);
    }
    jsonw_end(&json, '}');
    int code = save_pretty(str_fmt(&w->arena, "%s/config.json", w->dir).p, sb_str(&out), err);
    sb_free(&out);
    return code;
}

static int write_index(struct writer *w, struct err *err) {
    const struct quantize_plan *p = w->plan;
    struct sb out = {0};
    struct jsonw json = {.out = &out};
    jsonw_begin(&json, '{');
    jsonw_open(&json, "metadata", '{');
    jsonw_put_int(&json, "total_size", (int64_t)p->target_bytes);
    jsonw_put_int(&json, "total_parameters", (int64_t)p->n_parameters);
    jsonw_end(&json, '}');
    jsonw_open(&json, "weight_map", '{');
    for (size_t i = 0; i < p->n_items; i++)
        for (int k = 0; k < p->items[i].n_planes; k++) {
            jsonw_key_str(&json, p->items[i].planes[k].name);
            jsonw_str(&json, shard_name(&w->arena, p->items[i].planes[k].i_shard, p->n_shards));
        }
    jsonw_end(&json, '}');
    jsonw_end(&json, '}');
    int code = save_pretty(str_fmt(&w->arena, "%s/model.safetensors.index.json", w->dir).p, sb_str(&out), err);
    sb_free(&out);
    return code;
}

/* Those that a GGUF file holds as metadata. */
static int make_side_files(struct writer *w, const struct checkpoint *c, struct err *err) {
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "generation_config.json"};
    struct str text;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!checkpoint_file_exists(c, names[i])) continue;
        TRY(checkpoint_file_load(&w->arena, c, names[i], 0, &text, err));
        TRY(os_file_save(str_fmt(&w->arena, "%s/%s", w->dir, names[i]).p, text, err));
    }
    return ERR_OK;
}

/* Tokenizer, template, generation config and the like; never weights. */
static int copy_side_files(struct writer *w, const struct checkpoint *c, struct err *err) {
    static const char *const kinds[] = {"*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "LICENSE*"};
    static const char *const ours[] = {"config.json", "model.safetensors.index.json"};
    struct str *names, text;
    size_t n;
    if (c->gguf) return make_side_files(w, c, err);
    TRY(os_list_dir(&w->arena, c->dir, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        bool wanted = false;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) wanted = wanted || str_glob(str_of(kinds[k]), names[i]);
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++) wanted = wanted && !str_is(names[i], ours[k]);
        if (!wanted || str_ends(names[i], STR(".index.json"))) continue;
        struct arena a = {0};
        struct os_stat stat;
        const char *from = str_fmt(&a, "%s/%.*s", c->dir, STR_ARG(names[i])).p, *to = str_fmt(&a, "%s/%.*s", w->dir, STR_ARG(names[i])).p;
        int code = os_stat(from, &stat, err);
        if (!code && stat.is_file) {
            code = os_file_load(&a, from, 0, &text, err);
            if (!code) code = os_file_save(to, text, err);
        }
        arena_free(&a);
        if (code) return code;
    }
    return ERR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

static int write_all(struct writer *w, const struct checkpoint *c, struct err *err) {
    TRY(open_shards(w, err));
    for (size_t i = 0; i < w->plan->n_items; i++) {
        const struct quantize_item *item = &w->plan->items[i];
        if (item->format.mode != QUANT_NONE) TRY(quantize_item(w, item, err));
        else TRY(item->is_turned ? copy_turned(w, item, err) : copy_item(w, item, err));
    }
    for (int32_t i = 0; i < w->plan->n_shards; i++) TRY(os_file_sync(w->files[i], err));
    TRY(write_index(w, err));
    TRY(copy_side_files(w, c, err));
    return write_config(w, c, err);
}

static void close_files(struct writer *w) {
    for (int32_t i = 0; w->files && i < w->plan->n_shards; i++) os_file_close(w->files[i]);
    w->files = NULL;
}

int quantize_write(const struct checkpoint *c, const struct quantize_plan *p, struct err *err) {
    struct writer w = {.plan = p};
    struct new_folder folder;
    int code = new_folder_begin(&w.arena, p->options->target, &folder, err);
    if (!code) {
        w.dir = folder.dir;
        code = write_all(&w, c, err);
        close_files(&w);
        code = new_folder_end(&folder, code, err);
    }
    arena_free(&w.arena);
    return code;
}

/* config.json of a GGUF file has the keys of our table; a folder has those of its family. */
static int check_keys(const struct checkpoint *c, struct err *err) {
    const struct alias *alias;
    const struct family *family = family_of(&c->config, &alias, err);
    if (!family) return ERR_EUNSUPPORTED;
    for (const struct key_name *k = family->keys; k && k->ours; k++)
        if ((!k->theirs || strcmp(k->ours, k->theirs) != 0) && config_said(&c->config, k->ours))
            return err_set(err, ERR_EUNSUPPORTED,
                           "%s: a folder of %s has other keys in its config.json than a GGUF file tells; quantise the safetensors version",
                           c->path, family->title);
    return ERR_OK;
}

int quantize_open(const char *source, struct checkpoint *c, struct map *out_formats, struct err *err) {
    TRY(model_folder_open(source, c, err));
    if (!c->has_config || (!c->dir && !c->gguf)) return err_set(err, ERR_EARG, "%s is no model folder with a config.json", source);
    if (c->quant.refusal.p) return err_set(err, ERR_EUNSUPPORTED, "%.*s", STR_ARG(c->quant.refusal));
    if (c->gguf) TRY(check_keys(c, err));
    return out_formats && (c->gguf || c->quant.is_repacked) ? plain_view(c, out_formats, err) : ERR_OK;
}

int quantize_run(const struct quantize_options *o, struct quantize_result *out, struct err *err) {
    struct checkpoint c = {0};
    struct quantize_plan p = {0};
    TRY(new_folder_check(o->target, err));
    struct map formats = {0};
    struct surgery surgery = {0};
    struct fused_view *view = NULL;
    int code = quantize_open(o->source, &c, &formats, err);
    map_free(&formats); /* of what was packed before: everything is plain now */
    formats = (struct map){0};
    if (!code && o->surgery) code = surgery_open(&c.arena, o->surgery, &surgery, err);
    if (!code && o->surgery) code = surgery_apply(&surgery, &c, &formats, &view, err);
    if (!code) code = quantize_plan_make(&c, o, &p, err);
    if (!code) code = quantize_write(&c, &p, err);
    if (!code) {
        *out = (struct quantize_result){.source_bytes = p.source_bytes, .target_bytes = p.target_bytes};
        out->bits_per_weight = p.n_parameters ? (double)p.target_bytes * 8 / (double)p.n_parameters : 0;
        for (size_t i = 0; i < p.n_items; i++) *(p.items[i].format.mode == QUANT_NONE ? &out->n_plain : &out->n_quantized) += 1;
    }
    quantize_plan_free(&p);
    fused_view_close(view);
    surgery_close(&surgery);
    map_free(&formats);
    checkpoint_close(&c);
    return code;
}
