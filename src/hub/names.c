/* The rules for names. Everything from the network passes hub_path_safe before it becomes part of a path. */
#include "hub/names.h"

#include "file/checkpoint.h"
#include "file/gguf_open.h"

#include <stdio.h>

enum { PART_BYTES_MAX = 96, PATH_BYTES_MAX = 800, PATH_PARTS_MAX = 16 };

/* ---- repositories ------------------------------------------------------------------------------------------------------- */

static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The hub's own rule, less the names that are devices on Windows. */
static bool part_ok(struct str s) {
    if (s.n == 0 || s.n > PART_BYTES_MAX || !checkpoint_name_safe(s)) return false;
    for (size_t i = 0; i < s.n; i++) {
        if (!is_word(s.p[i]) && s.p[i] != '-' && s.p[i] != '.') return false;
        if (i && s.p[i] == s.p[i - 1] && (s.p[i] == '.' || s.p[i] == '-')) return false;
    }
    return is_word(s.p[0]) && is_word(s.p[s.n - 1]);
}

/* Where the colon of "OWNER/NAME:VARIANT" stands; STR_NONE: nowhere. */
static size_t variant_at(struct str text) {
    size_t slash = str_find_char(text, '/', 0), colon = slash == STR_NONE ? STR_NONE : str_find_char(text, ':', slash);
    return colon == STR_NONE || !part_ok(str_from(text, colon + 1)) ? STR_NONE : colon;
}

/* A word that is called like a file: nobody's model is meant, but a file that is not there. */
static bool is_file_name(struct str word) {
    static const char *const endings[] = {".safetensors", ".gguf", ".json", ".bin", ".pt", ".pth", ".onnx", ".zip", ".gz", ".txt"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (str_ends(word, str_of(endings[i]))) return true;
    return false;
}

bool repo_name_likely(struct str text) {
    struct str rest = str_sub(text, 0, variant_at(text)), owner, name;
    if (!str_split_next(&rest, '/', &owner)) return false;
    if (!str_split_next(&rest, '/', &name)) return part_ok(owner) && !is_file_name(owner);
    return !str_split_next(&rest, '/', &rest) && part_ok(owner) && part_ok(name);
}

bool repo_name_is_url(struct str text) {
    return str_starts(text, STR("https://")) || str_starts(text, STR("http://"));
}

int repo_name_parse(struct str text, struct str default_owner, struct repo_name *out, struct err *err) {
    size_t slash = str_find_char(text, '/', 0);
    struct str owner = slash == STR_NONE ? default_owner : str_sub(text, 0, slash);
    struct str name = slash == STR_NONE ? text : str_from(text, slash + 1);
    if (repo_name_is_url(text))
        return err_set(err, ERR_EARG, "\"%.*s\" is an address; give the model's name alone, OWNER/NAME (another hub is named by --hub)",
                       STR_ARG(str_sub(text, 0, 120)));
    if (!part_ok(owner) || !part_ok(name))
        return err_set(err, ERR_EARG, "\"%.*s\" is no model name; names are OWNER/NAME of letters, digits, -, _ and .",
                       STR_ARG(str_sub(text, 0, 120)));
    snprintf(out->id, sizeof out->id, "%.*s/%.*s", STR_ARG(owner), STR_ARG(name));
    out->owner = str_n(out->id, owner.n);
    out->name = str_n(out->id + owner.n + 1, name.n);
    out->variant = (struct str){0};
    return ERR_OK;
}

int repo_name_parse_variant(struct str text, struct str default_owner, struct repo_name *out, struct err *err) {
    size_t colon = repo_name_is_url(text) ? STR_NONE : variant_at(text);
    TRY(repo_name_parse(str_sub(text, 0, colon), default_owner, out, err));
    if (colon == STR_NONE) return ERR_OK;
    struct str tag = str_from(text, colon + 1);
    if (tag.n >= sizeof out->tag) return err_set(err, ERR_EARG, "\"%.*s\" names no variant of a model", STR_ARG(str_sub(text, 0, 120)));
    memcpy(out->tag, tag.p, tag.n);
    out->variant = str_n(out->tag, tag.n);
    return ERR_OK;
}

/* ---- files -------------------------------------------------------------------------------------------------------------- */

static char lower(char c) {
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool hub_same_ignoring_case(struct str a, struct str b) {
    if (a.n != b.n) return false;
    for (size_t i = 0; i < a.n; i++)
        if (lower(a.p[i]) != lower(b.p[i])) return false;
    return true;
}

bool hub_path_safe(struct str path) {
    struct str rest = path, part;
    int n_parts = 0;
    if (path.n == 0 || path.n > PATH_BYTES_MAX || path.p[path.n - 1] == '/') return false;
    while (str_split_next(&rest, '/', &part)) {
        if (++n_parts > PATH_PARTS_MAX || !checkpoint_name_safe(part)) return false;
        if (part.p[0] == ' ' || (part.n >= 7 && hub_same_ignoring_case(str_sub(part, 0, 7), STR(".mlxcel")))) return false;
    }
    return true;
}

struct str hub_last_part(struct str path) {
    size_t from = path.n;
    while (from > 0 && path.p[from - 1] != '/' && path.p[from - 1] != '\\') from--;
    return str_from(path, from);
}

bool hub_file_wanted(struct str path) {
    static const char *const top[] = {"*.safetensors", "*.json",     "*.jinja",    "*.tiktoken",
                                      "*.model",       "vocab*.txt", "merges.txt", "*token*.txt"};
    static const char *const below[] = {"*_Pooling/config.json", "chat_templates/*.jinja", "additional_chat_templates/*.jinja"};
    static const char *const never[] = {"*.bin.index.json", "*.onnx*.json", "training_args*", "trainer_state.json", "*.gguf"};
    struct str name = hub_last_part(path);
    if (name.n == 0 || name.p[0] == '.') return false;
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++)
        if (str_glob(str_of(never[i]), name)) return false;
    if (name.n == path.n)
        for (size_t i = 0; i < sizeof top / sizeof top[0]; i++)
            if (str_glob(str_of(top[i]), path)) return true;
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++)
        if (str_glob(str_of(below[i]), path)) return true;
    return false;
}

struct str hub_gguf_stem(struct str path) {
    struct str stem;
    int64_t n;
    if (gguf_split_name(path, &stem, &n)) return stem;
    return str_ends(path, STR(".gguf")) ? str_sub(path, 0, path.n - STR(".gguf").n) : path;
}

bool hub_file_is_gguf(struct str path) {
    if (!str_ends(path, STR(".gguf")) || str_starts(hub_last_part(path), STR("mmproj"))) return false;
    struct str part = str_from(path, hub_gguf_stem(path).n);
    return str_is(part, ".gguf") || str_starts(part, STR("-00001-of-"));
}

bool hub_file_is_variant(struct str path, struct str variant) {
    struct str stem = hub_gguf_stem(hub_last_part(path));
    if (!str_ends(path, STR(".gguf")) || str_starts(stem, STR("mmproj")) || stem.n < variant.n) return false;
    size_t at = stem.n - variant.n;
    return hub_same_ignoring_case(str_from(stem, at), variant) && (at == 0 || strchr("-._", stem.p[at - 1]));
}

bool hub_file_is_copy(struct str path) {
    return str_glob(STR("consolidated*.safetensors"), path);
}

const char *hub_size_text(uint64_t bytes, char out[32]) {
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    int i = 0;
    for (; value >= 999.5 && i < 5; i++) value /= 1000;
    snprintf(out, 32, i == 0 ? "%.0f %s" : value < 99.95 ? "%.1f %s" : "%.0f %s", value, units[i]);
    return out;
}
