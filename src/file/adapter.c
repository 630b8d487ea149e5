/* Reading adapters: the two dialects become one list of modules. */
#include "file/adapter.h"

#include "base/json.h"
#include "os/os.h"
#include "tensor/quant.h"

#include <math.h>

enum { CONFIG_BYTES_MAX = 4 << 20, MODULES_MAX = 100000 };

/* What a tensor is to its module, by how its name ends. */
enum part { PART_DOWN, PART_UP, PART_MAGNITUDE };
static const struct ending {
    const char *text;
    enum part part;
    bool is_flipped, is_embedding;
} endings[] = {
    {".lora_A.weight", PART_DOWN, false, false},
    {".lora_B.weight", PART_UP, false, false},
    {".lora_embedding_A", PART_DOWN, false, true},
    {".lora_embedding_B", PART_UP, false, true},
    {".lora_magnitude_vector", PART_MAGNITUDE, false, false},
    {".lora_magnitude_vector.weight", PART_MAGNITUDE, false, false},
    {".lora_a", PART_DOWN, true, false},
    {".lora_b", PART_UP, true, false},
    {".m", PART_MAGNITUDE, true, false},
};

struct reader {
    struct adapter *out;
    yyjson_val *config;
    bool is_peft;
};

/* ---- configuration ------------------------------------------------------------------------------------------------------ */

static int refuse(const struct adapter *a, const char *key, struct err *err) {
    return err_set(err, ERR_EUNSUPPORTED, "%s: adapter_config.json sets %s, which is not supported", a->path, key);
}

static bool is_set(yyjson_val *v) {
    return v && !yyjson_is_null(v) && !yyjson_is_false(v) && !(yyjson_is_arr(v) && yyjson_arr_size(v) == 0) &&
           !(yyjson_is_obj(v) && yyjson_obj_size(v) == 0);
}

static int check_peft(const struct reader *r, struct err *err) {
    static const char *const others[] = {"lora_bias",         "use_qalora",      "layer_replication",       "trainable_token_indices",
                                         "target_parameters", "modules_to_save", "alora_invocation_tokens", "fan_in_fan_out",
                                         "use_bdlora",        "arrow_config"};
    struct str type = json_str(r->config, "peft_type", STR("LORA")), bias = json_str(r->config, "bias", STR("none"));
    if (!str_is(type, "LORA"))
        return err_set(err, ERR_EUNSUPPORTED, "%s: an adapter of the kind %.*s is not supported; LoRA is", r->out->path, STR_ARG(type));
    if (!str_is(bias, "none")) return refuse(r->out, "bias", err);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_set(json_get(r->config, others[i]))) return refuse(r->out, others[i], err);
    return ERR_OK;
}

static int check_mlx(const struct reader *r, struct err *err) {
    struct str type = json_str(r->config, "fine_tune_type", STR("lora"));
    if (str_is(type, "lora") || str_is(type, "dora")) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: fine_tune_type \"%.*s\" is not supported; lora and dora are", r->out->path, STR_ARG(type));
}

/* The value of a pattern that a module's path ends with; PEFT's patterns are expressions, of which plain names are taken. */
static int by_pattern(const struct reader *r, const char *key, struct str path, double *out, struct err *err) {
    yyjson_val *patterns = json_get(r->config, key), *name, *val;
    size_t i, n;
    if (!yyjson_is_obj(patterns)) return ERR_OK;
    yyjson_obj_foreach(patterns, i, n, name, val) {
        struct str s = json_val_str(name);
        for (size_t k = 0; k < s.n; k++)
            if (strchr("*+?()[]{}|^$\\", s.p[k])) return refuse(r->out, key, err);
        bool is_it = str_eq(path, s) || (str_ends(path, s) && path.n > s.n && path.p[path.n - s.n - 1] == '.');
        if (is_it && yyjson_is_num(val)) *out = yyjson_get_num(val);
    }
    return ERR_OK;
}

static int find_scale(const struct reader *r, struct adapter_module *m, struct err *err) {
    double alpha, rank = m->rank;
    if (!r->is_peft) {
        yyjson_val *lora = json_get(r->config, "lora_parameters");
        m->scale = json_num(lora, "scale", json_num(r->config, "scale", NAN));
        if (isnan(m->scale)) return err_set(err, ERR_EFORMAT, "%s: adapter_config.json has no lora_parameters.scale", r->out->path);
    } else {
        alpha = json_num(r->config, "lora_alpha", NAN);
        TRY(by_pattern(r, "alpha_pattern", m->path, &alpha, err));
        m->scale = alpha / (json_bool(r->config, "use_rslora", false) ? sqrt(rank) : rank);
    }
    if (!isfinite(m->scale) || fabs(m->scale) > 1e6)
        return err_set(err, ERR_EFORMAT, "%s: the scale of %.*s is no usable number", r->out->path, STR_ARG(m->path));
    return ERR_OK;
}

/* ---- modules ------------------------------------------------------------------------------------------------------------ */

static const struct ending *ending_of(const struct reader *r, struct str name) {
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (endings[i].is_flipped == !r->is_peft && str_ends(name, str_of(endings[i].text))) return &endings[i];
    return NULL;
}

static struct adapter_module *module_of(struct adapter *a, struct map *known, struct str path) {
    bool is_new;
    struct map_entry *e = map_put(known, path, &is_new);
    if (!is_new) return e->value.ptr;
    struct adapter_module *m = &a->modules[a->n_modules++];
    m->path = path;
    e->value.ptr = m;
    return m;
}

static int take_tensor(struct reader *r, struct map *known, const struct checkpoint_tensor *t, struct err *err) {
    struct adapter *a = r->out;
    const struct ending *e = ending_of(r, t->t->name);
    static const struct str wrapper = {"base_model.model.", 17};
    if (!e)
        return err_set(err, ERR_EUNSUPPORTED, "%s: %.*s is no part of an adapter that can be computed beside the model", a->path,
                       STR_ARG(t->t->name));
    struct str path = str_sub(t->t->name, 0, t->t->name.n - strlen(e->text));
    if (r->is_peft && str_starts(path, wrapper)) path = str_from(path, wrapper.n);
    struct adapter_module *m = module_of(a, known, path);
    const struct checkpoint_tensor **slots[] = {&m->down, &m->up, &m->magnitude};
    *slots[e->part] = t;
    m->is_flipped = e->is_flipped;
    if (e->part != PART_MAGNITUDE) m->is_embedding |= e->is_embedding;
    if (e->part == PART_MAGNITUDE) a->has_magnitudes = true;
    if (t->t->dtype > DT_BF16) return err_set(err, ERR_EFORMAT, "%s: %.*s is no F32, F16 or BF16", a->path, STR_ARG(t->t->name));
    return ERR_OK;
}

static bool is_matrix(const struct checkpoint_tensor *t) {
    return t && t->t->n_dims == 2 && t->t->shape[0] > 0 && t->t->shape[1] > 0;
}

/* Shapes against each other: what mlx-lm calls an embedding differs by them alone, where down has a row for each token. */
static int finish_module(struct reader *r, struct adapter_module *m, struct err *err) {
    const char *path = r->out->path;
    if (!m->down || !m->up) return err_set(err, ERR_EFORMAT, "%s: %.*s lacks one of its two matrices", path, STR_ARG(m->path));
    if (!is_matrix(m->down) || !is_matrix(m->up))
        return err_set(err, ERR_EUNSUPPORTED, "%s: %.*s is no pair of matrices (adapters of stacked experts are not supported)", path,
                       STR_ARG(m->path));
    const int64_t *d = m->down->t->shape, *u = m->up->t->shape;
    int64_t rank = m->is_flipped ? d[1] : d[0], of_up = m->is_flipped ? u[0] : u[1];
    m->in = m->is_flipped ? d[0] : d[1];
    m->out = m->is_flipped ? u[1] : u[0];
    if (rank != of_up || rank > ADAPTER_RANK_MAX)
        return err_set(err, ERR_EFORMAT, "%s: %.*s has ranks %lld and %lld; they must be equal and at most %d", path, STR_ARG(m->path),
                       (long long)rank, (long long)of_up, ADAPTER_RANK_MAX);
    m->rank = (int32_t)rank;
    if (!r->is_peft && (str_ends(m->path, STR("embed_tokens")) || str_ends(m->path, STR("wte")))) m->is_embedding = m->goes_to_head = true;
    if (m->magnitude && m->is_embedding)
        return err_set(err, ERR_EUNSUPPORTED, "%s: magnitudes of embeddings (%.*s) are not supported", path, STR_ARG(m->path));
    if (m->magnitude && m->magnitude->t->n_elements != (uint64_t)m->out)
        return err_set(err, ERR_EFORMAT, "%s: %.*s has %lld outputs and another number of magnitudes", path, STR_ARG(m->path),
                       (long long)m->out);
    return find_scale(r, m, err);
}

static int read_modules(struct reader *r, struct err *err) {
    struct adapter *a = r->out;
    struct map known = {0};
    int code = ERR_OK;
    if (a->file.n_tensors == 0 || a->file.n_tensors > MODULES_MAX)
        return err_set(err, ERR_EFORMAT, "%s holds %zu tensors", a->path, a->file.n_tensors);
    a->modules = arena_new(&a->file.arena, struct adapter_module, a->file.n_tensors);
    for (size_t i = 0; i < a->file.n_tensors && !code; i++) code = take_tensor(r, &known, &a->file.tensors[i], err);
    map_free(&known);
    for (size_t i = 0; i < a->n_modules && !code; i++) code = finish_module(r, &a->modules[i], err);
    return code;
}

int adapter_read(struct adapter *a, struct str config, bool is_peft, struct err *err) {
    struct arena scratch = {0};
    struct reader r = {.out = a, .is_peft = is_peft};
    int code = json_parse(&scratch, config, "adapter_config.json", JSON_STRICT, &r.config, err);
    if (!code && !yyjson_is_obj(r.config)) code = err_set(err, ERR_EFORMAT, "%s: adapter_config.json is no JSON object", a->path);
    if (!code) code = is_peft ? check_peft(&r, err) : check_mlx(&r, err);
    if (!code) code = read_modules(&r, err);
    arena_free(&scratch);
    return code;
}

static int open_all(struct arena *scratch, struct adapter *a, struct err *err) {
    struct str text;
    struct os_stat st;
    const char *peft = str_fmt(scratch, "%s/adapter_model.safetensors", a->path).p;
    const char *mlx = str_fmt(scratch, "%s/adapters.safetensors", a->path).p;
    bool is_peft = os_stat(peft, &st, NULL) == ERR_OK;
    if (!is_peft && os_stat(mlx, &st, NULL)) {
        if (os_stat(a->path, &st, NULL) == ERR_OK && st.is_file)
            return err_set(err, ERR_EARG, "%s is a file; give the adapter's folder, with its settings in JSON", a->path);
        return err_set(err, ERR_ENOTFOUND, "%s holds neither adapter_model.safetensors (PEFT) nor adapters.safetensors (mlx-lm)", a->path);
    }
    TRY(os_file_load(scratch, str_fmt(scratch, "%s/adapter_config.json", a->path).p, CONFIG_BYTES_MAX, &text, err));
    TRY(checkpoint_open(is_peft ? peft : mlx, &a->file, err));
    return adapter_read(a, text, is_peft, err);
}

int adapter_open(const char *path, struct adapter *out, struct err *err) {
    struct arena scratch = {0};
    *out = (struct adapter){.path = path};
    int code = open_all(&scratch, out, err);
    arena_free(&scratch);
    if (code) adapter_close(out);
    return code;
}

void adapter_close(struct adapter *a) {
    checkpoint_close(&a->file);
    *a = (struct adapter){0};
}

struct adapter_module *adapter_find(const struct adapter *a, struct str path) {
    for (size_t i = 0; i < a->n_modules; i++) {
        struct str p = a->modules[i].path;
        if (str_eq(p, path) || (str_ends(p, path) && p.p[p.n - path.n - 1] == '.')) return &a->modules[i];
    }
    return NULL;
}

/* ---- numbers ------------------------------------------------------------------------------------------------------------ */

/* A tensor as f32, turned over where asked. */
static int read_f32(const struct checkpoint_tensor *t, int64_t rows, int64_t columns, bool turns, float *out, struct err *err) {
    int64_t n = rows * columns;
    float *values = mem_try((size_t)n * sizeof *values);
    void *raw = mem_try((size_t)t->t->bytes + 1);
    int code = values && raw ? checkpoint_read(t, 0, raw, (size_t)t->t->bytes, err)
                             : err_set(err, ERR_EMEMORY, "no memory for %.*s", STR_ARG(t->t->name));
    if (!code) plain_to_f32(t->t->dtype, raw, n, values);
    for (int64_t i = 0; i < rows && !code; i++)
        for (int64_t k = 0; k < columns; k++) out[turns ? k * rows + i : i * columns + k] = values[i * columns + k];
    mem_free(raw);
    mem_free(values);
    return code;
}

int adapter_read_down(const struct adapter_module *m, float *out, struct err *err) {
    const int64_t *s = m->down->t->shape;
    return read_f32(m->down, s[0], s[1], m->is_flipped != m->is_embedding, out, err);
}

int adapter_read_up(const struct adapter_module *m, float *out, struct err *err) {
    const int64_t *s = m->up->t->shape;
    TRY(read_f32(m->up, s[0], s[1], m->is_flipped, out, err));
    for (int64_t i = 0; i < m->out * m->rank; i++) out[i] *= (float)m->scale;
    return ERR_OK;
}

int adapter_read_magnitude(const struct adapter_module *m, float *out, struct err *err) {
    return read_f32(m->magnitude, 1, m->out, false, out, err);
}
