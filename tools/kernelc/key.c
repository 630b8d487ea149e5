/* Hashing a source with all that it includes by quotes. Headers in angle brackets belong to the toolkit and the host compiler, whose
 * versions are hashed instead. */
#include "key.h"

#include "base/sha256.h"

#include <stdio.h>

enum { MAX_SOURCE_BYTES = 16 << 20, MAX_DEPTH = 32 };

struct scan {
    struct arena *a;
    const char *folder;
    struct map *files;
    struct sha256 *hash;
    struct err *err;
};

static void hash_text(struct sha256 *h, const char *text) {
    sha256_update(h, text, strlen(text) + 1);
}

/* The file named by an #include "..." line. */
static bool included(struct str line, struct str *out) {
    line = str_trim(line);
    if (!str_starts(line, STR("#"))) return false;
    line = str_trim(str_from(line, 1));
    if (!str_starts(line, STR("include"))) return false;
    line = str_trim(str_from(line, 7));
    size_t end = line.n > 1 && line.p[0] == '"' ? str_find_char(line, '"', 1) : STR_NONE;
    if (end == STR_NONE) return false;
    *out = str_sub(line, 1, end - 1);
    return true;
}

/* Beside the including file first, then in the kernels' folder and in the program's sources, as the compiler looks. NULL: not ours. */
static const char *resolve(struct scan *s, const char *from, struct str name) {
    struct os_stat st;
    const char *beside = path_join(s->a, path_parent(s->a, from), str_cstr(s->a, name));
    const char *places[] = {beside, path_join(s->a, s->folder, str_cstr(s->a, name)),
                            path_join(s->a, path_join(s->a, s->folder, SOURCES), str_cstr(s->a, name))};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (os_stat(places[i], &st, NULL) == 0 && st.is_file) return places[i];
    return NULL;
}

static int scan_file(struct scan *s, const char *path, int depth) {
    struct str text, rest, line, name;
    bool is_new;
    map_put(s->files, str_of(path), &is_new);
    if (!is_new) return 0;
    if (depth > MAX_DEPTH) return err_set(s->err, ERR_EFORMAT, "%s: includes are nested more than %d deep", path, MAX_DEPTH);
    TRY(os_file_load(s->a, path, MAX_SOURCE_BYTES, &text, s->err));
    sha256_update(s->hash, &text.n, sizeof text.n);
    sha256_update(s->hash, text.p, text.n);
    rest = text;
    while (str_split_next(&rest, '\n', &line)) {
        const char *found = included(line, &name) ? resolve(s, path, name) : NULL;
        if (found) TRY(scan_file(s, found, depth + 1));
    }
    return 0;
}

int key_of(struct arena *a, const char *file, const struct args_list *flags, const struct build_args *args, struct key *out,
           struct err *err) {
    struct sha256 hash;
    unsigned char digest[32];
    char hex[65], host[64];
    sha256_init(&hash);
    hash_text(&hash, "kernelc 1");
    hash_text(&hash, args->toolkit->version_text);
    snprintf(host, sizeof host, "%s %d", args->host->kind, args->host->version);
    hash_text(&hash, host);
    for (int i = 0; i < flags->n; i++) hash_text(&hash, flags->v[i]);
    struct scan s = {.a = a, .folder = args->list->folder, .files = &out->files, .hash = &hash, .err = err};
    TRY(scan_file(&s, path_join(a, args->list->folder, file), 0));
    sha256_final(&hash, digest);
    sha256_hex(digest, hex);
    snprintf(out->text, sizeof out->text, "%.*s", KEY_CHARS, hex);
    return 0;
}
