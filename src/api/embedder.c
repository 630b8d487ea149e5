/* Reading sentence-transformers' files. */
#include "api/embedder.h"

#include "api/stages.h"

enum { FILE_MAX_BYTES = 1 << 20, PROMPTS_MAX = 256 };

struct reader {
    struct arena *arena;
    const struct checkpoint *checkpoint;
    struct embedder *out;
    struct stages stages;
};

static int load_json(const struct reader *r, const char *name, yyjson_val **out, struct err *err) {
    struct str text;
    *out = NULL;
    if (!checkpoint_file_exists(r->checkpoint, name)) return ERR_OK;
    TRY(checkpoint_file_load(r->arena, r->checkpoint, name, FILE_MAX_BYTES, &text, err));
    return json_parse(r->arena, text, name, JSON_LENIENT, out, err);
}

/* A file of a module's folder, which is one of the model's. */
static int module_file(const struct reader *r, struct str folder, const char *name, const char **out, struct err *err) {
    if (!checkpoint_name_safe(folder)) return err_set(err, ERR_EFORMAT, "modules.json: %.*s is no folder of the model", STR_ARG(folder));
    *out = str_fmt(r->arena, "%.*s/%s", STR_ARG(folder), name).p;
    return ERR_OK;
}

static int module_config(const struct reader *r, struct str folder, const char **out_name, yyjson_val **out, struct err *err) {
    TRY(module_file(r, folder, "config.json", out_name, err));
    TRY(load_json(r, *out_name, out, err));
    return *out ? ERR_OK : err_set(err, ERR_ENOTFOUND, "%s/%s is missing", r->checkpoint->path, *out_name);
}

/* ---- modules ---------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name, *flag; /* newer files have a name, older ones a switch for each */
    enum job_pooling kind;
} modes[] = {
    {"mean", "pooling_mode_mean_tokens", POOL_MEAN},    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", POOL_MEAN_ROOT},
    {"lasttoken", "pooling_mode_lasttoken", POOL_LAST}, {"cls", "pooling_mode_cls_token", POOL_FIRST},
    {"max", "pooling_mode_max_tokens", POOL_MAX},       {"weightedmean", "pooling_mode_weightedmean_tokens", POOL_WEIGHTED},
};

/* Several at once make a longer vector, which nothing here does. */
static int read_pooling(struct reader *r, struct str folder, struct err *err) {
    const char *file = NULL;
    yyjson_val *config;
    TRY(module_config(r, folder, &file, &config, err));
    struct str name = json_str(config, "pooling_mode", (struct str){0});
    int32_t found = -1, n = 0;
    for (int32_t i = 0; i < (int32_t)(sizeof modes / sizeof *modes); i++)
        if (name.p ? str_is(name, modes[i].name) : json_bool(config, modes[i].flag, false)) found = i, n++;
    if (n != 1)
        return err_set(err, ERR_EUNSUPPORTED, "%s: embeddings by pooling \"%.*s\" are not supported", file, name.p ? (int)name.n : 40,
                       name.p  ? name.p
                       : n > 1 ? "several at once"
                               : "unknown");
    r->out->pooling = modes[found].kind;
    r->out->skips_prompt = !json_bool(config, "include_prompt", true);
    return ERR_OK;
}

static int read_dense(struct reader *r, struct str folder, struct err *err) {
    const char *file = NULL, *weights = NULL;
    yyjson_val *config;
    enum act_kind act = ACT_NONE;
    TRY(module_config(r, folder, &file, &config, err));
    struct str input = json_str(config, "module_input_name", STR("sentence_embedding"));
    if (!str_is(input, "sentence_embedding"))
        return err_set(err, ERR_EUNSUPPORTED, "%s: module_input_name \"%.*s\" is not supported", file, STR_ARG(input));
    TRY(stages_act(json_str(config, "activation_function", STR("Tanh")), &act, err));
    TRY(module_file(r, folder, "model.safetensors", &weights, err));
    if (!checkpoint_file_exists(r->checkpoint, weights))
        return err_set(err, ERR_ENOTFOUND, "%s/%s is missing; other files of weights are not read", r->checkpoint->path, weights);
    struct checkpoint c = {0};
    int code = checkpoint_open(str_fmt(r->arena, "%s/%s", r->checkpoint->dir, weights).p, &c, err);
    if (!code) code = stages_dense(&r->stages, &c, "linear", act, err);
    checkpoint_close(&c);
    return code;
}

static int read_normalize(struct reader *r, struct str folder, struct err *err) {
    (void)folder;
    return stages_unit(&r->stages, err);
}

static int read_nothing(struct reader *r, struct str folder, struct err *err) {
    (void)r;
    return folder.n == 0 ? ERR_OK
                         : err_set(err, ERR_EUNSUPPORTED, "modules.json: the model lies in the folder %.*s; use that one", STR_ARG(folder));
}

static const struct {
    const char *type;
    int (*read)(struct reader *r, struct str folder, struct err *err);
} modules[] = {{".Transformer", read_nothing}, {".Pooling", read_pooling}, {".Dense", read_dense}, {".Normalize", read_normalize}};

static int read_module(struct reader *r, yyjson_val *module, struct err *err) {
    struct str type = json_str(module, "type", STR("")), path = json_str(module, "path", STR(""));
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (str_ends(type, str_of(modules[i].type))) return modules[i].read(r, path, err);
    return err_set(err, ERR_EUNSUPPORTED, "modules.json: embeddings with the layer \"%.*s\" are not supported", STR_ARG(type));
}

/* ---- what belongs to the text ------------------------------------------------------------------------------------------ */

static int read_prompts(struct reader *r, struct err *err) {
    static const char file[] = "config_sentence_transformers.json";
    struct embedder *e = r->out;
    yyjson_val *config, *prompts, *key, *value;
    size_t i, n;
    TRY(load_json(r, file, &config, err));
    prompts = json_get(config, "prompts");
    if (yyjson_obj_size(prompts) > PROMPTS_MAX) return err_set(err, ERR_ELIMIT, "%s: more than %d prompts", file, PROMPTS_MAX);
    e->prompts = arena_new(r->arena, struct embed_prompt, yyjson_obj_size(prompts) + 1);
    struct str usual = json_str(config, "default_prompt_name", (struct str){0});
    yyjson_obj_foreach(prompts, i, n, key, value) {
        if (!yyjson_is_str(value)) continue;
        if (str_eq(json_val_str(key), usual)) e->i_usual = e->n_prompts;
        e->prompts[e->n_prompts++] = (struct embed_prompt){json_val_str(key), json_val_str(value)};
    }
    if (usual.p && e->i_usual < 0)
        return err_set(err, ERR_EFORMAT, "%s: default_prompt_name \"%.*s\" is none of its prompts", file, STR_ARG(usual));
    return ERR_OK;
}

static int read_limits(struct reader *r, struct err *err) {
    static const char file[] = "sentence_bert_config.json";
    yyjson_val *config;
    int64_t n;
    TRY(load_json(r, file, &config, err));
    if (json_bool(config, "do_lower_case", false))
        return err_set(err, ERR_EUNSUPPORTED,
                       "%s: do_lower_case is not supported; a tokenizer that lowers case by itself needs no such switch", file);
    if (json_val_int(json_get(config, "max_seq_length"), &n) && n > 0 && n < INT32_MAX) r->out->max_tokens = (int32_t)n;
    return ERR_OK;
}

static int read_all(struct reader *r, struct err *err) {
    yyjson_val *list, *module;
    size_t i, n;
    TRY(load_json(r, "modules.json", &list, err));
    if (!list) return checkpoint_file_exists(r->checkpoint, "1_Pooling/config.json") ? read_pooling(r, STR("1_Pooling"), err) : ERR_OK;
    TRY(read_prompts(r, err));
    TRY(read_limits(r, err));
    yyjson_arr_foreach(list, i, n, module) TRY(read_module(r, module, err));
    return ERR_OK;
}

int embedder_read(struct arena *a, const struct checkpoint *c, int32_t hidden, struct embedder *out, struct err *err) {
    struct reader r = {.arena = a, .checkpoint = c, .out = out, .stages = {.arena = a, .width = hidden, .widest = hidden}};
    *out = (struct embedder){.pooling = POOL_MEAN, .width = hidden, .i_usual = -1};
    TRY(read_all(&r, err));
    bool is_plain = true;
    for (int32_t i = 0; i < r.stages.n; i++) is_plain &= r.stages.list[i].kind == STAGE_UNIT;
    out->width = r.stages.width;
    if (is_plain) return ERR_OK;
    if (r.stages.list[r.stages.n - 1].kind != STAGE_UNIT) TRY(stages_unit(&r.stages, err));
    out->head = stages_head(&r.stages);
    return ERR_OK;
}
