/* Opening a model: its shards, the table of all tensors, its config files. */
#include "file/checkpoint.h"

#include "base/log.h"
#include "file/builtin.h"
#include "file/gguf_open.h"
#include "file/kind.h"
#include "file/limits.h"
#include "file/packed.h"
#include "file/shards.h"
#include "os/os.h"
#include "tensor/quant.h"

static int file_read_at(void *user, void *data, size_t n, uint64_t offset, struct err *err) {
    return os_file_read_at(user, data, n, offset, err);
}

static int open_shard(struct checkpoint *c, const char *path, struct checkpoint_shard *shard, struct err *err) {
    uint64_t size;
    TRY(os_file_open(path, OS_READ, &shard->file, err));
    TRY(os_file_size(shard->file, &size, err));
    struct st_source source = {.name = path, .size = size, .read_at = file_read_at, .user = shard->file};
    return st_open(&c->arena, &source, &shard->st, err);
}

static int open_builtin(struct checkpoint *c, struct err *err) {
    struct str *bytes = arena_new(&c->arena, struct str, 1);
    builtin_file(STR("model.safetensors"), bytes);
    c->path = BUILTIN_NAME;
    c->shards = arena_new(&c->arena, struct checkpoint_shard, 1);
    c->n_shards = 1;
    c->shards[0].name = "model.safetensors";
    struct st_source source = st_source_memory(BUILTIN_NAME, bytes);
    return st_open(&c->arena, &source, &c->shards[0].st, err);
}

/* ---- the table of all tensors --------------------------------------------------------------------------------- */

/* The weight map of an index (NULL: there is none), by name as soon as somebody asks. */
struct owners {
    yyjson_val *index;
    struct map by_name;
};

/* The shard that the index names for a tensor; {NULL, 0} when it names none. */
static struct str owner_of(struct owners *o, struct str tensor) {
    size_t i, n;
    yyjson_val *key, *val;
    bool is_new;
    if (o->index && o->by_name.n == 0) yyjson_obj_foreach(o->index, i, n, key, val) {
            struct map_entry *e = map_put(&o->by_name, json_val_str(key), &is_new);
            if (is_new) e->value.ptr = val;
        }
    return json_val_str(map_get_ptr(&o->by_name, tensor));
}

/* Two shards hold the same name: the index says which counts; without one nobody can know. */
static int settle_twice(struct checkpoint *c, struct checkpoint_tensor *first, struct checkpoint_tensor second, struct owners *owners,
                        struct err *err) {
    struct str name = second.t->name, owner = owner_of(owners, name);
    if (owner.p && str_is(owner, first->shard->name)) return ERR_OK;
    if (owner.p && str_is(owner, second.shard->name)) {
        *first = second;
        return ERR_OK;
    }
    return err_set(err, ERR_EFORMAT, "%s: tensor %.*s is in both %s and %s", c->path, (int)(name.n > 160 ? 160 : name.n), name.p,
                   first->shard->name, second.shard->name);
}

static int fill_table(struct checkpoint *c, struct owners *owners, struct err *err) {
    for (size_t s = 0; s < c->n_shards; s++) {
        const struct checkpoint_shard *shard = &c->shards[s];
        for (size_t i = 0; i < shard->st.n_tensors; i++) {
            struct checkpoint_tensor tensor = {&shard->st.tensors[i], shard};
            bool is_new;
            struct map_entry *e = map_put(&c->by_name, tensor.t->name, &is_new);
            if (!is_new) {
                TRY(settle_twice(c, &c->tensors[e->value.i], tensor, owners, err));
                continue;
            }
            e->value.i = (int64_t)c->n_tensors;
            c->tensors[c->n_tensors++] = tensor;
        }
    }
    for (size_t i = 0; i < c->n_tensors; i++) c->total_bytes += c->tensors[i].t->bytes;
    return ERR_OK;
}

/* `index` is the weight map, or NULL. */
static int build_table(struct checkpoint *c, yyjson_val *index, struct err *err) {
    struct owners owners = {.index = index};
    size_t n_tensors = 0;
    for (size_t s = 0; s < c->n_shards; s++) n_tensors += c->shards[s].st.n_tensors;
    c->tensors = arena_new(&c->arena, struct checkpoint_tensor, n_tensors + 1);
    int code = fill_table(c, &owners, err);
    map_free(&owners.by_name);
    return code;
}

static void warn_stale(const struct checkpoint *c, yyjson_val *index) {
    size_t i, n, n_missing = 0;
    const char *first = NULL;
    yyjson_val *key, *val;
    yyjson_obj_foreach(index, i, n, key, val) {
        if (checkpoint_find(c, json_val_str(key))) continue;
        if (n_missing++ == 0) first = yyjson_get_str(key);
    }
    if (n_missing)
        log_warn("%s: model.safetensors.index.json names %zu tensor(s) that its shards do not hold, such as %.160s", c->path, n_missing,
                 first);
}

static int open_folder(struct checkpoint *c, const struct shard_list *found, struct err *err) {
    const struct shard_list list = *found;
    c->shards = arena_new(&c->arena, struct checkpoint_shard, list.n);
    for (size_t i = 0; i < list.n; i++) {
        c->shards[i].name = str_cstr(&c->arena, list.names[i]);
        c->n_shards = i + 1;
        TRY(open_shard(c, str_fmt(&c->arena, "%s/%s", c->dir, c->shards[i].name).p, &c->shards[i], err));
    }
    TRY(build_table(c, list.index, err));
    if (list.index) warn_stale(c, list.index);
    return ERR_OK;
}

/* ---- GGUF ----------------------------------------------------------------------------------------------------- */

static int open_part(struct checkpoint *c, const char *path, size_t i, struct err *err) {
    struct checkpoint_shard *shard = &c->shards[i];
    uint64_t size;
    TRY(os_file_open(path, OS_READ, &shard->file, err));
    TRY(os_file_size(shard->file, &size, err));
    struct st_source source = {.name = path, .size = size, .read_at = file_read_at, .user = shard->file};
    return gguf_open(&c->arena, &source, &c->gguf->parts[i], err);
}

/* What most of the packed matrices have, for those who want to know one. */
static void find_usual_format(struct quant_config *q) {
    enum { KINDS = 32 };
    const struct format *kinds[KINDS];
    size_t counts[KINDS] = {0}, n = 0, best = 0;
    q->present = q->overrides.n > 0;
    for (size_t i = 0; i < q->overrides.n; i++) {
        const struct format *f = q->overrides.entries[i].value.ptr;
        size_t k = 0;
        while (k < n && memcmp(kinds[k], f, sizeof *f) != 0) k++;
        if (k == KINDS) continue;
        if (k == n) kinds[n++] = f;
        if (++counts[k] > best) best = counts[k], q->base = *f;
    }
}

/* All parts of the model that has the file `name` in the folder. */
static int open_gguf(struct checkpoint *c, const char *dir, struct str name, struct err *err) {
    size_t n;
    gguf_part_name(&c->arena, name, 0, &n);
    if (n > SHARDS_MAX) return err_set(err, ERR_ELIMIT, "%s: more than %d files of weights", c->path, SHARDS_MAX);
    struct gguf_set *s = c->gguf = arena_new(&c->arena, struct gguf_set, 1);
    s->parts = arena_new(&c->arena, struct gguf, n);
    c->shards = arena_new(&c->arena, struct checkpoint_shard, n);
    c->dir = NULL; /* everything is in the file */
    for (size_t i = 0; i < n; i++) {
        c->shards[i].name = str_cstr(&c->arena, gguf_part_name(&c->arena, name, i, &n));
        c->n_shards = s->n_parts = i + 1;
        TRY(open_part(c, str_fmt(&c->arena, "%s/%s", dir, c->shards[i].name).p, i, err));
    }
    TRY(gguf_check_parts(s, err));
    TRY(gguf_arch_of(&s->parts[0], &s->arch, err));
    TRY(gguf_config(&c->arena, s, err));
    for (size_t i = 0; i < n; i++) TRY(gguf_view(&c->arena, s, i, &c->quant.overrides, &c->shards[i].st, err));
    find_usual_format(&c->quant);
    return build_table(c, NULL, err);
}

static bool is_gguf(const char *path) {
    struct os_file *file;
    uint64_t size;
    if (os_file_open(path, OS_READ, &file, NULL)) return false;
    bool answer = os_file_size(file, &size, NULL) == ERR_OK &&
                  gguf_is(&(struct st_source){.name = path, .size = size, .read_at = file_read_at, .user = file});
    os_file_close(file);
    return answer;
}

/* ---- opening -------------------------------------------------------------------------------------------------- */

/* Splits "a/b/c" into its folder and its name. */
static void split_path(struct arena *a, struct str path, const char **out_dir, struct str *out_name) {
    size_t cut = path.n;
    while (cut > 0 && path.p[cut - 1] != '/' && path.p[cut - 1] != '\\') cut--;
    *out_name = str_from(path, cut);
    *out_dir = cut == 0 ? "." : cut == 1 ? "/" : str_cstr(a, str_sub(path, 0, cut - 1));
}

static int open_single(struct checkpoint *c, struct err *err) {
    struct str name;
    split_path(&c->arena, str_of(c->path), &c->dir, &name);
    if (is_gguf(c->path)) return open_gguf(c, c->dir, name, err);
    TRY(file_kind_check(c->path, err));
    c->shards = arena_new(&c->arena, struct checkpoint_shard, 1);
    c->n_shards = 1;
    c->shards[0].name = str_cstr(&c->arena, name);
    TRY(open_shard(c, c->path, &c->shards[0], err));
    TRY(build_table(c, NULL, err));
    if (!str_starts(name, STR("model"))) c->dir = NULL; /* the config beside it is some model's, not this file's */
    return ERR_OK;
}

/* Weights of ours, else a GGUF file. */
static int open_dir(struct checkpoint *c, struct err *err) {
    struct shard_list list;
    struct str name;
    struct err why;
    int code = shards_find(&c->arena, c->dir, &list, &why);
    if (code == ERR_OK) return open_folder(c, &list, err);
    int found = gguf_find(&c->arena, c->dir, &name, err);
    if (found == ERR_OK) return open_gguf(c, c->dir, name, err);
    if (found == ERR_EFORMAT) return found;
    if (err) *err = why;
    return code;
}

static int load_config(struct checkpoint *c, const char *name, bool *out_has, struct config *out, struct err *err) {
    struct str text;
    *out_has = checkpoint_file_exists(c, name);
    if (!*out_has) return ERR_OK;
    TRY(checkpoint_file_load(&c->arena, c, name, 0, &text, err));
    const char *where = c->gguf  ? c->path
                        : c->dir ? str_fmt(&c->arena, "%s/%s", c->dir, name).p
                                 : str_fmt(&c->arena, BUILTIN_NAME ", %s", name).p;
    return config_parse(&c->arena, text, where, out, err);
}

/* Matrices that another program quantised as MLX would have written them. Why that cannot be matters only to those who want them. */
static void show_packed(struct checkpoint *c) {
    struct err why = {0};
    if (packed_open(c, &why)) c->quant.refusal = str_copy(&c->arena, str_of(why.msg));
    else if (c->packed) find_usual_format(&c->quant);
}

static int open_all(struct checkpoint *c, const char *path, struct err *err) {
    if (!path) {
        TRY(open_builtin(c, err));
        TRY(build_table(c, NULL, err));
    } else {
        struct str clean = str_of(path);
        while (clean.n > 1 && (clean.p[clean.n - 1] == '/' || clean.p[clean.n - 1] == '\\')) clean.n--;
        c->path = c->dir = str_cstr(&c->arena, clean);
        struct os_stat st;
        TRY(os_stat(c->path, &st, err));
        TRY(st.is_dir ? open_dir(c, err) : open_single(c, err));
    }
    TRY(load_config(c, "config.json", &c->has_config, &c->config, err));
    TRY(load_config(c, "generation_config.json", &c->has_generation, &c->generation, err));
    c->config.is_canonical = c->gguf != NULL;
    if (!c->has_config || c->gguf) return ERR_OK;
    TRY(quant_config_read(&c->arena, &c->config, &c->quant, err));
    if (c->quant.foreign.p) show_packed(c);
    return ERR_OK;
}

int checkpoint_open(const char *path, struct checkpoint *out, struct err *err) {
    *out = (struct checkpoint){0};
    int code = open_all(out, path, err);
    if (code) checkpoint_close(out);
    return code;
}

void checkpoint_close(struct checkpoint *c) {
    quant_config_free(&c->quant);
    packed_close(c->packed);
    map_free(&c->by_name);
    for (size_t i = 0; c->gguf && i < c->gguf->n_parts; i++) gguf_close(&c->gguf->parts[i]);
    for (size_t i = 0; i < c->n_shards; i++) os_file_close(c->shards[i].file);
    arena_free(&c->arena);
    *c = (struct checkpoint){0};
}

/* ---- reading -------------------------------------------------------------------------------------------------- */

const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *c, struct str name) {
    int64_t i = map_get_int(&c->by_name, name, -1);
    return i < 0 ? NULL : &c->tensors[i];
}

int checkpoint_read(const struct checkpoint_tensor *t, uint64_t at, void *data, size_t n, struct err *err) {
    return st_read(&t->shard->st, t->t, at, data, n, err);
}

static const struct checkpoint_tensor *find_part(const struct checkpoint *c, struct str path, const char *part) {
    struct sb name = {0};
    sb_put(&name, path);
    sb_puts(&name, part);
    const struct checkpoint_tensor *t = checkpoint_find(c, sb_str(&name));
    sb_free(&name);
    return t;
}

int checkpoint_weight(const struct checkpoint *c, struct str path, struct checkpoint_weight *out, struct err *err) {
    *out = (struct checkpoint_weight){.values = find_part(c, path, ".weight")};
    if (!out->values) return err_set(err, ERR_ENOTFOUND, "%s: tensor %.*s.weight is missing", c->path, STR_ARG(path));
    const struct st_tensor *w = out->values->t;
    struct format format = {0};
    enum quant_answer answer = (enum quant_answer)quant_lookup(&c->quant, path, &format);
    out->scales = answer == QUANT_IS_PLAIN ? NULL : find_part(c, path, ".scales");
    if (answer == QUANT_IS_DECLARED && !out->scales)
        return err_set(err, ERR_EFORMAT, "%s: tensor %.*s.scales is missing, although %s declares it quantised", c->path, STR_ARG(path),
                       c->config.name);
    if (!out->scales) {
        out->format = (struct format){.mode = QUANT_NONE, .dtype = w->dtype};
        out->width = w->n_dims ? w->shape[w->n_dims - 1] : 1;
        return ERR_OK;
    }
    out->biases = find_part(c, path, ".biases");
    out->format = format;
    return quant_verify(c->path, w, out->scales->t, out->biases ? out->biases->t : NULL, &out->format, &out->width, err);
}

int checkpoint_weight_row(const struct checkpoint_weight *w, int64_t r, float *out, struct err *err) {
    const struct format *f = &w->format;
    const struct checkpoint_tensor *planes[] = {w->values, w->scales, w->biases};
    const size_t bytes[] = {quant_values_bytes(f, w->width), quant_scales_bytes(f, w->width), quant_biases_bytes(f, w->width)};
    unsigned char *at[3] = {0};
    if (f->mode == QUANT_NONE && f->dtype > DT_BF16)
        return err_set(err, ERR_EUNSUPPORTED, "%.*s is %s, expected F32, F16 or BF16", STR_ARG(w->values->t->name), dtype_name(f->dtype));
    unsigned char *raw = mem_try(bytes[0] + bytes[1] + bytes[2] + 1), *to = raw;
    int code = raw ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(w->values->t->name));
    for (int i = 0; i < 3 && !code; to += bytes[i++]) {
        if (bytes[i] == 0) continue;
        at[i] = to;
        code = checkpoint_read(planes[i], (uint64_t)r * bytes[i], to, bytes[i], err);
    }
    if (!code) quant_unpack(f, &(struct quant_row){at[0], at[1], at[2]}, 0, w->width, out);
    mem_free(raw);
    return code;
}

struct st_tensor checkpoint_weight_plain(struct arena *a, const struct checkpoint_weight *w, uint64_t offset) {
    struct st_tensor t = *w->values->t;
    if (t.n_dims) {
        int64_t *shape = arena_copy(a, t.shape, (size_t)t.n_dims * sizeof *shape), stored = shape[t.n_dims - 1];
        shape[t.n_dims - 1] = w->width;
        t.n_elements = stored ? t.n_elements / (uint64_t)stored * (uint64_t)w->width : 0;
        t.shape = shape;
    }
    t.dtype = DT_F32;
    t.offset = offset;
    t.bytes = t.n_elements * sizeof(float);
    return t;
}

int checkpoint_view_rows(const struct safetensors *view, checkpoint_row_fn *read_row, void *user, uint64_t offset, void *data, size_t n,
                         struct err *err) {
    size_t i = st_at(view, offset);
    const struct st_tensor *t = &view->tensors[i];
    size_t row_bytes = (size_t)(t->n_dims ? t->shape[t->n_dims - 1] : 1) * sizeof(float);
    uint64_t at = offset - t->offset;
    float *row = mem_try(row_bytes + 1);
    int code = row ? ERR_OK : err_set(err, ERR_EMEMORY, "no memory for a row of %.*s", STR_ARG(t->name));
    for (unsigned char *to = data; n > 0 && !code;) {
        size_t skip = (size_t)(at % row_bytes), part = row_bytes - skip < n ? row_bytes - skip : n;
        code = read_row(user, i, (int64_t)(at / row_bytes), row, err);
        if (!code) memcpy(to, (const unsigned char *)row + skip, part);
        at += part, to += part, n -= part;
    }
    mem_free(row);
    return code;
}

void checkpoint_set_table(struct checkpoint *c, struct checkpoint_tensor *tensors, size_t n) {
    map_free(&c->by_name);
    c->by_name = (struct map){0};
    c->tensors = tensors;
    c->n_tensors = n;
    c->total_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        map_put(&c->by_name, tensors[i].t->name, NULL)->value.i = (int64_t)i;
        c->total_bytes += tensors[i].t->bytes;
    }
}

void checkpoint_replace(struct checkpoint *c, const struct checkpoint_shard *view) {
    struct arena scratch = {0};
    struct map changed = {0}; /* what goes: 0; what is replaced: 1 + where */
    struct checkpoint_tensor *tensors = arena_new(&c->arena, struct checkpoint_tensor, c->n_tensors + 1); /* the view reads the old ones */
    size_t n = 0;
    for (size_t i = 0; i < view->st.n_tensors; i++) {
        struct str name = view->st.tensors[i].name;
        map_put(&changed, name, NULL)->value.i = (int64_t)i + 1;
        if (!str_ends(name, STR(".weight"))) continue;
        map_put(&changed, str_fmt(&scratch, "%.*s.scales", (int)name.n - 7, name.p), NULL);
        map_put(&changed, str_fmt(&scratch, "%.*s.biases", (int)name.n - 7, name.p), NULL);
    }
    for (size_t i = 0; i < c->n_tensors; i++) {
        int64_t at = map_get_int(&changed, c->tensors[i].t->name, -1);
        if (at > 0) tensors[n++] = (struct checkpoint_tensor){&view->st.tensors[at - 1], view};
        else if (at < 0) tensors[n++] = c->tensors[i];
    }
    map_free(&changed);
    arena_free(&scratch);
    checkpoint_set_table(c, tensors, n);
}

static uint64_t limit_of(struct str name) {
    bool is_tokenizer = str_is(name, "tokenizer.json") || str_ends(name, STR(".model")) || str_ends(name, STR(".tiktoken"));
    return is_tokenizer ? TOKENIZER_MAX_BYTES : CONFIG_MAX_BYTES;
}

int checkpoint_file_load(struct arena *a, const struct checkpoint *c, const char *name, uint64_t max_bytes, struct str *out,
                         struct err *err) {
    if (c->gguf) return gguf_file_make(a, c->gguf, name, out, err);
    if (max_bytes == 0) max_bytes = limit_of(str_of(name));
    if (c->dir) {
        TRY(os_file_load(a, str_fmt(a, "%s/%s", c->dir, name).p, max_bytes, out, err));
        return st_is_pointer(*out) ? err_set(err, ERR_EFORMAT, "%s/%s is " ST_POINTER_TEXT, c->dir, name) : ERR_OK;
    }
    if (c->path && strcmp(c->path, BUILTIN_NAME) == 0 && builtin_file(str_of(name), out)) return ERR_OK;
    return err_set(err, ERR_ENOTFOUND, "%s has no %s", c->path, name);
}

bool checkpoint_file_exists(const struct checkpoint *c, const char *name) {
    struct str bytes;
    struct os_stat st;
    if (c->gguf) return gguf_file_exists(c->gguf, name);
    if (!c->dir) return strcmp(c->path, BUILTIN_NAME) == 0 && builtin_file(str_of(name), &bytes);
    struct sb path = {0};
    sb_fmt(&path, "%s/%s", c->dir, name);
    bool found = os_stat(path.p, &st, NULL) != ERR_ENOTFOUND; /* what cannot be read is refused when it is loaded */
    sb_free(&path);
    return found;
}
