/* Finding a tokenizer's files and handing their bytes to text/. */
#include "api/text_tools.h"

#include "file/checkpoint.h"
#include "file/limits.h"
#include "os/os.h"

static bool is_tokenizer_name(struct str name) {
    return str_is(name, "tokenizer.model") || str_is(name, "spiece.model") || str_is(name, "tiktoken.model") ||
           str_is(name, "tekken.json") || str_ends(name, STR(".tiktoken"));
}

/* The tokenizer's file in a folder, in the order of preference; NULL with an error when there is none. */
static const char *find_file(struct arena *a, const char *dir, struct err *err) {
    struct os_stat st;
    struct str *names;
    size_t n;
    const char *path = str_cstr(a, str_fmt(a, "%s/tokenizer.json", dir));
    if (os_stat(path, &st, NULL) != ERR_ENOTFOUND) return path;
    if (os_list_dir(a, dir, &names, &n, err)) return NULL;
    for (size_t i = 0; i < n; i++)
        if (is_tokenizer_name(names[i])) return str_cstr(a, str_fmt(a, "%s/%.*s", dir, STR_ARG(names[i])));
    err_set(err, ERR_ENOTFOUND, "%s: no tokenizer.json, tokenizer.model, tekken.json or .tiktoken file in this folder", dir);
    return NULL;
}

/* tokenizer_config.json beside the file; empty when there is none. */
static int load_config(struct arena *a, const char *file, struct str *out, struct err *err) {
    struct str path = str_of(file);
    size_t end = path.n;
    while (end > 0 && path.p[end - 1] != '/' && path.p[end - 1] != '\\') end--;
    *out = (struct str){"", 0};
    const char *config = str_cstr(a, str_fmt(a, "%.*stokenizer_config.json", (int)end, path.p));
    struct os_stat st;
    if (os_stat(config, &st, NULL) == ERR_ENOTFOUND) return ERR_OK;
    return os_file_load(a, config, CONFIG_MAX_BYTES, out, err);
}

static int open_built_in(struct arena *a, struct tok **out, struct err *err) {
    struct checkpoint c = {0};
    struct str json, config = {"", 0};
    int code = checkpoint_open(NULL, &c, err);
    if (!code) code = checkpoint_file_load(a, &c, "tokenizer.json", 0, &json, err);
    if (!code && checkpoint_file_exists(&c, "tokenizer_config.json"))
        code = checkpoint_file_load(a, &c, "tokenizer_config.json", 0, &config, err);
    if (!code) code = tok_load_json(out, json, config, err);
    checkpoint_close(&c);
    return code;
}

static int open_path(struct arena *a, const char *path, struct tok **out, struct err *err) {
    struct os_stat st;
    struct str file, config;
    TRY(os_stat(path, &st, err));
    if (st.is_dir && !(path = find_file(a, path, err))) return err->code;
    TRY(os_file_load(a, path, TOKENIZER_MAX_BYTES, &file, err));
    if (st_is_pointer(file)) return err_set(err, ERR_EFORMAT, "%s is " ST_POINTER_TEXT, path);
    TRY(load_config(a, path, &config, err));
    if (tok_load_any(out, file, config, err)) return err_prefix(err, "%s", path);
    return ERR_OK;
}

int text_tokenizer_open(const char *path, struct tok **out, struct err *err) {
    struct arena a = {0};
    struct err own;
    *out = NULL;
    int code = path ? open_path(&a, path, out, err ? err : &own) : open_built_in(&a, out, err);
    arena_free(&a);
    return code;
}
