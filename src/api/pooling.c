/* Reading modules.json and 1_Pooling/config.json. */
#include "api/pooling.h"

enum { FILE_MAX_BYTES = 1 << 20 };

static const struct {
    const char *name, *flag; /* newer files have a name, older ones a switch for each */
    int kind;                /* -1: not supported here */
} modes[] = {
    {"mean", "pooling_mode_mean_tokens", POOL_MEAN},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", POOL_MEAN}, /* another length, the same direction */
    {"lasttoken", "pooling_mode_lasttoken", POOL_LAST},
    {"cls", "pooling_mode_cls_token", -1},
    {"max", "pooling_mode_max_tokens", -1},
    {"weightedmean", "pooling_mode_weightedmean_tokens", -1},
};

static int load_json(struct arena *a, const struct checkpoint *c, const char *name, yyjson_val **out, struct err *err) {
    struct str text;
    *out = NULL;
    if (!checkpoint_file_exists(c, name)) return ERR_OK;
    TRY(checkpoint_file_load(a, c, name, FILE_MAX_BYTES, &text, err));
    return json_parse(a, text, name, JSON_LENIENT, out, err);
}

/* Several at once make a longer vector, which nothing here does. */
static int read_mode(const char *file, yyjson_val *config, enum job_pooling *out, struct err *err) {
    struct str name = json_str(config, "pooling_mode", (struct str){0});
    int32_t found = -1, n = 0;
    for (int32_t i = 0; i < (int32_t)(sizeof modes / sizeof *modes); i++)
        if (name.p ? str_is(name, modes[i].name) : json_bool(config, modes[i].flag, false)) found = i, n++;
    if (n == 1 && modes[found].kind >= 0) {
        *out = (enum job_pooling)modes[found].kind;
        return ERR_OK;
    }
    return err_set(err, ERR_EUNSUPPORTED, "%s: embeddings by pooling \"%.*s\" are not supported; mean and lasttoken are", file,
                   name.p ? (int)name.n : 40,
                   name.p   ? name.p
                   : n > 1  ? "several at once"
                   : n == 1 ? modes[found].name
                            : "unknown");
}

static int read_pooling(struct arena *a, const struct checkpoint *c, struct str folder, enum job_pooling *out, struct err *err) {
    if (!checkpoint_name_safe(folder)) return err_set(err, ERR_EFORMAT, "modules.json: %.*s is no folder of the model", STR_ARG(folder));
    const char *file = str_fmt(a, "%.*s/config.json", STR_ARG(folder)).p;
    yyjson_val *config;
    TRY(load_json(a, c, file, &config, err));
    return config ? read_mode(file, config, out, err) : err_set(err, ERR_ENOTFOUND, "%s/%s is missing", c->path, file);
}

/* A prompt that every text gets unless the caller says otherwise. */
static int check_prompt(struct arena *a, const struct checkpoint *c, struct err *err) {
    static const char file[] = "config_sentence_transformers.json";
    yyjson_val *config;
    TRY(load_json(a, c, file, &config, err));
    struct str name = json_str(config, "default_prompt_name", (struct str){0});
    if (!name.p || json_str(json_get(config, "prompts"), str_cstr(a, name), STR("")).n == 0) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "%s: default_prompt_name \"%.*s\" is not supported", file, STR_ARG(name));
}

int pooling_read(struct arena *a, const struct checkpoint *c, enum job_pooling *out, struct err *err) {
    yyjson_val *modules, *module;
    size_t i, n;
    *out = POOL_MEAN;
    TRY(load_json(a, c, "modules.json", &modules, err));
    if (!modules) return checkpoint_file_exists(c, "1_Pooling/config.json") ? read_pooling(a, c, STR("1_Pooling"), out, err) : ERR_OK;
    TRY(check_prompt(a, c, err));
    yyjson_arr_foreach(modules, i, n, module) {
        struct str type = json_str(module, "type", STR("")), path = json_str(module, "path", STR(""));
        if (str_ends(type, STR(".Pooling"))) TRY(read_pooling(a, c, path, out, err));
        else if (!str_ends(type, STR(".Transformer")) && !str_ends(type, STR(".Normalize")))
            return err_set(err, ERR_EUNSUPPORTED, "modules.json: embeddings with the layer \"%.*s\" are not supported", STR_ARG(type));
    }
    return ERR_OK;
}
