/* Finding the shards of a folder: by its index, else by their names. */
#include "file/shards.h"

#include "base/log.h"
#include "file/checkpoint.h"
#include "file/limits.h"
#include "os/os.h"

#include <stdlib.h>

#define INDEX_NAME "model.safetensors.index.json"

struct folder {
    struct arena *arena;
    const char *dir;
    struct str *names; /* [n], sorted */
    size_t n;
};

static char upper(char c) {
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

/* CON, NUL, COM1 ... are devices on Windows, with any extension. */
static bool is_device_name(struct str name) {
    static const char *const plain[] = {"CON", "PRN", "AUX", "NUL"}, *const numbered[] = {"COM", "LPT"};
    struct str stem = str_sub(name, 0, str_find_char(name, '.', 0));
    char text[5] = {0};
    if (stem.n < 3 || stem.n > 4) return false;
    for (size_t i = 0; i < stem.n; i++) text[i] = upper(stem.p[i]);
    for (size_t i = 0; i < 4; i++)
        if (stem.n == 3 && strcmp(text, plain[i]) == 0) return true;
    for (size_t i = 0; i < 2; i++)
        if (stem.n == 4 && strncmp(text, numbered[i], 3) == 0 && text[3] >= '0' && text[3] <= '9') return true;
    return false;
}

bool checkpoint_name_safe(struct str name) {
    if (name.n == 0 || name.n > 255 || !utf8_valid(name)) return false;
    for (size_t i = 0; i < name.n; i++)
        if ((unsigned char)name.p[i] < 0x20 || name.p[i] == 0x7F || strchr("/\\:*?\"<>|", name.p[i])) return false;
    char last = name.p[name.n - 1];
    return last != '.' && last != ' ' && !is_device_name(name); /* "." and ".." end in a dot */
}

static int by_name(const void *a, const void *b) {
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static bool has_file(const struct folder *f, struct str name) {
    return f->n && bsearch(&name, f->names, f->n, sizeof *f->names, by_name);
}

static int too_many(const char *where, struct err *err) {
    return err_set(err, ERR_ELIMIT, "%s: more than %d files of weights", where, SHARDS_MAX);
}

/* ---- by the index --------------------------------------------------------------------------------------------- */

/* The distinct shard names of the weight map. */
static int index_names(const struct folder *f, const char *path, yyjson_val *weight_map, struct shard_list *out, struct err *err) {
    struct map seen = {0};
    int code = ERR_OK;
    size_t i, n;
    yyjson_val *key, *val;
    yyjson_obj_foreach(weight_map, i, n, key, val) {
        struct str name = json_val_str(val);
        if (!name.p || !checkpoint_name_safe(name) || !str_ends(name, STR(".safetensors"))) {
            code = err_set(err, ERR_EFORMAT, "%s: tensor %.160s: %.*s is not the name of a .safetensors file in this folder", path,
                           yyjson_get_str(key), (int)(name.n > 80 ? 80 : name.n), name.p ? name.p : "");
            break;
        }
        map_put(&seen, name, NULL);
        if (seen.n <= SHARDS_MAX) continue;
        code = too_many(path, err);
        break;
    }
    out->names = arena_new(f->arena, struct str, seen.n + 1);
    for (i = 0; i < seen.n; i++) out->names[out->n++] = seen.entries[i].key;
    map_free(&seen);
    if (out->n) qsort(out->names, out->n, sizeof *out->names, by_name);
    if (code == ERR_OK && out->n == 0) code = err_set(err, ERR_EFORMAT, "%s: weight_map names no file", path);
    return code;
}

static int read_index(const struct folder *f, struct shard_list *out, struct err *err) {
    const char *path = str_fmt(f->arena, "%s/" INDEX_NAME, f->dir).p;
    struct str text;
    yyjson_val *root;
    TRY(os_file_load(f->arena, path, INDEX_MAX_BYTES, &text, err));
    TRY(json_parse(f->arena, text, path, JSON_LENIENT, &root, err));
    out->index = json_get(root, "weight_map");
    if (!yyjson_is_obj(out->index)) return err_set(err, ERR_EFORMAT, "%s: weight_map is missing", path);
    return index_names(f, path, out->index, out, err);
}

/* ---- by their names ------------------------------------------------------------------------------------------- */

/* "model-00002-of-00005.safetensors" -> 2 of 5. */
static bool parse_numbered(struct str name, int64_t *out_i, int64_t *out_n) {
    size_t of = str_find(name, STR("-of-"), 0);
    if (of == STR_NONE || !str_ends(name, STR(".safetensors"))) return false;
    size_t dash = of;
    while (dash > 0 && name.p[dash - 1] != '-') dash--;
    struct str total = str_sub(name, of + 4, name.n - of - 4 - STR(".safetensors").n);
    return str_to_int64(str_sub(name, dash, of - dash), out_i) && str_to_int64(total, out_n);
}

/* A numbered set must be whole: the first missing one is named. */
static int check_whole(const struct folder *f, const struct shard_list *list, struct err *err) {
    int64_t i, n, its_n;
    bool there[SHARDS_MAX + 1] = {false};
    if (list->n > SHARDS_MAX) return too_many(f->dir, err);
    if (!parse_numbered(list->names[0], &i, &n)) return ERR_OK;
    for (size_t k = 0; k < list->n; k++)
        if (parse_numbered(list->names[k], &i, &its_n) && its_n == n && i >= 0 && i <= SHARDS_MAX) there[i] = true;
    for (int64_t want = 1; want <= n; want++) {
        if (want <= SHARDS_MAX && there[want]) continue;
        return err_set(err, ERR_ENOTFOUND, "%s: shard %lld of %lld is missing (model-%05lld-of-%05lld.safetensors)", f->dir,
                       (long long)want, (long long)n, (long long)want, (long long)n);
    }
    return ERR_OK;
}

static void collect(const struct folder *f, const char *pattern, struct shard_list *out) {
    out->names = arena_new(f->arena, struct str, f->n + 1);
    out->n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (str_glob(str_of(pattern), f->names[i])) out->names[out->n++] = f->names[i];
}

/* A folder without weights usually holds another program's, or a part of a model: say which. */
static int no_weights(const struct folder *f, struct err *err) {
    static const char
        foreign[] = "another program's weights; take a safetensors version",
        pickle[] =
            "a pickle, which can run code when it is opened, so that it never is; take a safetensors version, or write one where you "
            "trust the file: AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW)";
    static const struct {
        const char *pattern, *what;
    } others[] = {
        {"adapter*.safetensors", "an adapter, which has to be merged into its model first"},
        {"consolidated*.safetensors", "weights under other names; take a version for transformers or MLX"},
        {"*.safetensors", "weights of something else"},
        {"*.bin", pickle},
        {"*.pt", pickle},
        {"*.pth", pickle},
        {"*.ckpt", pickle},
        {"*.npz", foreign},
    };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (size_t k = 0; k < f->n; k++)
            if (str_glob(str_of(others[i].pattern), f->names[k]))
                return err_set(err, ERR_EUNSUPPORTED, "%s: no model*.safetensors there, only files such as %.*s (%s)", f->dir,
                               STR_ARG(f->names[k]), others[i].what);
    bool has_config = false;
    for (size_t k = 0; k < f->n; k++) has_config |= str_is(f->names[k], "config.json");
    return err_set(err, ERR_ENOTFOUND,
                   has_config ? "%s: no model*.safetensors there" : "%s: no model there, neither config.json nor model*.safetensors",
                   f->dir);
}

static int find_on_disk(const struct folder *f, struct shard_list *out, struct err *err) {
    *out = (struct shard_list){0};
    collect(f, "model.safetensors", out);
    if (out->n == 0) collect(f, "model*.safetensors", out);
    if (out->n == 0) collect(f, "weights*.safetensors", out); /* early MLX conversions */
    if (out->n == 0) return no_weights(f, err);
    return check_whole(f, out, err);
}

int shards_find(struct arena *a, const char *dir, struct shard_list *out, struct err *err) {
    struct folder f = {.arena = a, .dir = dir};
    *out = (struct shard_list){0};
    TRY(os_list_dir(a, dir, &f.names, &f.n, err));
    if (!has_file(&f, STR(INDEX_NAME))) return find_on_disk(&f, out, err);
    TRY(read_index(&f, out, err));
    for (size_t i = 0; i < out->n; i++) {
        struct str missing = out->names[i];
        if (has_file(&f, missing)) continue;
        if (find_on_disk(&f, out, NULL))
            return err_set(err, ERR_ENOTFOUND, "%s/%.*s is missing, although " INDEX_NAME " names it", dir, STR_ARG(missing));
        log_warn("%s: " INDEX_NAME " names %.*s, which is not there; using the %zu complete shard(s) that are", dir, STR_ARG(missing),
                 out->n);
        break;
    }
    return ERR_OK;
}
