/* Finding a tokenizer's files and handing their bytes to text/. */
#include "api/tokenizer_files.h"

#include "file/gguf_open.h"
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

/* From a model that is no folder: the built-in one, or one in a file that has everything. */
static int open_inside(struct arena *a, const struct checkpoint *c, struct tok **out, struct err *err) {
    struct str file, config = {"", 0};
    TRY(checkpoint_file_load(a, c, "tokenizer.json", 0, &file, err));
    if (checkpoint_file_exists(c, "tokenizer_config.json")) TRY(checkpoint_file_load(a, c, "tokenizer_config.json", 0, &config, err));
    return tok_load_json(out, file, config, err) ? err_prefix(err, "%s", c->path) : ERR_OK;
}

static int open_model(struct arena *a, const char *path, struct tok **out, struct err *err) {
    struct checkpoint c = {0};
    int code = checkpoint_open(path, &c, err);
    if (!code) code = open_inside(a, &c, out, err);
    checkpoint_close(&c);
    return code;
}

int text_tokenizer_of(const struct checkpoint *c, struct tok **out, struct err *err) {
    struct arena a = {0};
    *out = NULL;
    int code = c->dir ? text_tokenizer_open(c->dir, out, err) : open_inside(&a, c, out, err);
    arena_free(&a);
    return code;
}

static int open_path(struct arena *a, const char *path, struct tok **out, struct err *err) {
    struct os_stat st;
    struct str file, config;
    TRY(os_stat(path, &st, err));
    if (!st.is_dir && str_ends(str_of(path), STR(".gguf"))) return open_model(a, path, out, err);
    const char *folder = path;
    if (st.is_dir && !(path = find_file(a, folder, err))) {
        struct str name;
        return gguf_find(a, folder, &name, NULL) == ERR_OK ? open_model(a, folder, out, err) : err->code;
    }
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
    int code = path ? open_path(&a, path, out, err ? err : &own) : open_model(&a, NULL, out, err);
    arena_free(&a);
    return code;
}
