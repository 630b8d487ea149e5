/* A model in one GGUF file or in several parts: finding them, and what they hold in place of a folder's files. */
#include "file/gguf_open.h"

#include "base/log.h"
#include "file/limits.h"
#include "os/os.h"

#include <stdio.h>

bool gguf_split_name(struct str name, struct str *out_stem, int64_t *out_n) {
    enum { TAIL = 20 }; /* "-00002-of-00005.gguf" */
    int64_t i;
    if (name.n <= TAIL || !str_ends(name, STR(".gguf"))) return false;
    struct str tail = str_from(name, name.n - TAIL);
    *out_stem = str_sub(name, 0, name.n - TAIL);
    return tail.p[0] == '-' && str_eq(str_sub(tail, 6, 4), STR("-of-")) && str_to_int64(str_sub(tail, 1, 5), &i) &&
           str_to_int64(str_sub(tail, 10, 5), out_n) && i >= 1 && i <= *out_n;
}

struct str gguf_part_name(struct arena *a, struct str name, size_t i_part, size_t *out_n) {
    struct str stem;
    int64_t n = 1;
    if (!gguf_split_name(name, &stem, &n)) {
        *out_n = 1;
        return name;
    }
    *out_n = (size_t)n;
    return str_fmt(a, "%.*s-%05zu-of-%05lld.gguf", STR_ARG(stem), i_part + 1, (long long)n);
}

/* The model of a folder: one file, or the parts of one. Image projectors lie beside some. */
int gguf_find(struct arena *a, const char *dir, struct str *out, struct err *err) {
    struct str *names, first = {0};
    size_t n, n_parts, n_files = 0;
    TRY(os_list_dir(a, dir, &names, &n, err));
    for (size_t i = 0; i < n; i++) {
        if (!str_ends(names[i], STR(".gguf")) || str_starts(names[i], STR("mmproj"))) continue;
        if (!str_eq(gguf_part_name(a, names[i], 0, &n_parts), names[i])) continue; /* counted with its first part */
        if (n_files++ == 0) first = names[i];
        else if (n_files == 2)
            err_set(err, ERR_EFORMAT, "%s: holds several GGUF files, such as %.*s and %.*s; name one of them", dir, STR_ARG(first),
                    STR_ARG(names[i]));
    }
    *out = first;
    if (n_files == 0) return err_set(err, ERR_ENOTFOUND, "%s: no .gguf file there", dir);
    return n_files == 1 ? ERR_OK : ERR_EFORMAT;
}

int gguf_check_parts(const struct gguf_set *s, struct err *err) {
    for (size_t i = 0; i < s->n_parts; i++) {
        int64_t count = (int64_t)s->n_parts, place = (int64_t)i;
        gguf_to_int(gguf_get(&s->parts[i], STR("split.count")), &count);
        gguf_to_int(gguf_get(&s->parts[i], STR("split.no")), &place);
        if ((count > 1 || s->n_parts > 1) && (count != (int64_t)s->n_parts || place != (int64_t)i))
            return err_set(err, ERR_EFORMAT, "%s: says that it is part %lld of %lld, its name %zu of %zu", s->parts[i].source.name,
                           (long long)place + 1, (long long)count, i + 1, s->n_parts);
    }
    return ERR_OK;
}

/* ---- files that a folder would have --------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*make)(const struct gguf *g, struct sb *out, struct err *err);
} made[] = {
    {"tokenizer.json", gguf_tokenizer},
    {"tokenizer_config.json", gguf_tokenizer_config},
    {"generation_config.json", gguf_generation_config},
};

bool gguf_file_exists(const struct gguf_set *s, const char *name) {
    if (strcmp(name, "config.json") == 0) return true;
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (strcmp(name, made[i].name) == 0) return gguf_get(&s->parts[0], STR("tokenizer.ggml.tokens")) != NULL;
    return false;
}

int gguf_file_make(struct arena *a, const struct gguf_set *s, const char *name, struct str *out, struct err *err) {
    if (strcmp(name, "config.json") == 0) {
        *out = str_copy(a, s->config);
        return ERR_OK;
    }
    for (size_t i = 0; i < sizeof made / sizeof *made && gguf_file_exists(s, name); i++) {
        if (strcmp(name, made[i].name) != 0) continue;
        struct sb text = {0};
        int code = made[i].make(&s->parts[0], &text, err);
        if (code == ERR_OK) *out = str_copy(a, sb_str(&text));
        sb_free(&text);
        return code;
    }
    return err_set(err, ERR_ENOTFOUND, "%s has no %s", s->parts[0].source.name, name);
}
