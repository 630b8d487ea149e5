/* .mlxcel/manifest.json: what a model's folder should hold. */
#include "hub/store.h"

#include "base/json.h"
#include "os/os.h"

enum { MANIFEST_BYTES_MAX = 64 << 20, FILES_MAX = 20000 };

static int read_file(struct arena *a, yyjson_val *entry, const char *path, struct hub_file *out, bool *out_have, struct err *err) {
    struct str name = json_str(entry, "name", (struct str){0}), hash = json_str(entry, "sha256", (struct str){0});
    int64_t size = json_int(entry, "size", -1);
    if (!name.p || !hub_path_safe(name) || size < 0) return err_set(err, ERR_EFORMAT, "%s has an entry that is not a file", path);
    *out = (struct hub_file){.name = str_copy(a, name), .size = (uint64_t)size};
    if (hash.n == 64) memcpy(out->sha256, hash.p, 64);
    *out_have = json_bool(entry, "have", false);
    return ERR_OK;
}

static int read_manifest(struct arena *a, yyjson_val *root, const char *path, struct manifest *out, struct err *err) {
    yyjson_val *files = json_get(root, "files"), *stale = json_get(root, "stale"), *entry;
    size_t i, n;
    if (!yyjson_is_arr(files) || yyjson_arr_size(files) > FILES_MAX || yyjson_arr_size(stale) > FILES_MAX)
        return err_set(err, ERR_EFORMAT, "%s holds no list of files", path);
    out->id = json_str(root, "id", (struct str){0});
    out->revision = json_str(root, "revision", (struct str){0});
    out->commit = json_str(root, "commit", (struct str){0});
    out->complete = json_bool(root, "complete", false);
    out->files = arena_new(a, struct hub_file, yyjson_arr_size(files) + 1);
    out->have = arena_new(a, bool, yyjson_arr_size(files) + 1);
    yyjson_arr_foreach(files, i, n, entry) TRY(read_file(a, entry, path, &out->files[i], &out->have[i], err));
    out->n_files = yyjson_arr_size(files);
    out->stale = arena_new(a, struct str, yyjson_arr_size(stale) + 1);
    yyjson_arr_foreach(stale, i, n, entry) {
        struct str name = json_val_str(entry);
        if (name.p && hub_path_safe(name)) out->stale[out->n_stale++] = str_copy(a, name);
    }
    return ERR_OK;
}

int manifest_load(struct arena *a, const char *dir, struct manifest *out, struct err *err) {
    const char *path = str_fmt(a, "%s/.mlxcel/manifest.json", dir).p;
    struct str text;
    yyjson_val *root;
    *out = (struct manifest){0};
    TRY(os_file_load(a, path, MANIFEST_BYTES_MAX, &text, err));
    TRY(json_parse(a, text, path, JSON_STRICT, &root, err));
    return read_manifest(a, root, path, out, err);
}

static void write_text(struct jsonw *w, const char *key, struct str value) {
    jsonw_key(w, key);
    if (value.p) jsonw_str(w, value);
    else jsonw_null(w);
}

static void write_file(struct jsonw *w, const struct hub_file *f, bool have) {
    jsonw_begin(w, '{');
    write_text(w, "name", f->name);
    jsonw_put_int(w, "size", (int64_t)f->size);
    write_text(w, "sha256", f->sha256[0] ? str_of(f->sha256) : (struct str){0});
    jsonw_put_bool(w, "have", have);
    jsonw_end(w, '}');
}

int manifest_save(const char *dir, const struct manifest *m, struct err *err) {
    struct sb text = {0}, path = {0};
    struct jsonw w = {.out = &text};
    jsonw_begin(&w, '{');
    write_text(&w, "id", m->id);
    write_text(&w, "revision", m->revision);
    write_text(&w, "commit", m->commit);
    jsonw_put_bool(&w, "complete", m->complete);
    jsonw_open(&w, "files", '[');
    for (size_t i = 0; i < m->n_files; i++) write_file(&w, &m->files[i], m->have[i]);
    jsonw_end(&w, ']');
    jsonw_open(&w, "stale", '[');
    for (size_t i = 0; i < m->n_stale; i++) jsonw_str(&w, m->stale[i]);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    sb_putc(&text, '\n');
    sb_fmt(&path, "%s/.mlxcel", dir);
    int code = os_make_dirs(path.p, err);
    sb_puts(&path, "/manifest.json");
    if (code == ERR_OK) code = os_file_save(path.p, sb_str(&text), err);
    sb_free(&text);
    sb_free(&path);
    return code;
}
