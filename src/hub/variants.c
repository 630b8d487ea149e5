/* The GGUF files of a model's folder: each is a model of its own, called OWNER/NAME:VARIANT. */
#include "hub/store.h"

#include "os/os.h"

struct walk {
    struct arena *a;
    struct store_variant *p;
    size_t n, capacity;
    bool has_others; /* weights of another kind */
};

static void add(struct walk *w, const char *path) {
    if (w->n == w->capacity) {
        struct store_variant *more = arena_new(w->a, struct store_variant, w->capacity = w->capacity ? w->capacity * 2 : 8);
        if (w->n) memcpy(more, w->p, w->n * sizeof *more);
        w->p = more;
    }
    struct str stem = hub_gguf_stem(hub_last_part(str_of(path)));
    size_t from = stem.n;
    while (from > 0 && stem.p[from - 1] != '-' && stem.p[from - 1] != '.') from--;
    w->p[w->n++] = (struct store_variant){.tag = str_copy(w->a, str_from(stem, from)), .path = path};
}

static void look(struct walk *w, const char *dir, bool below) {
    struct str *names;
    size_t n;
    struct os_stat st;
    if (os_list_dir(w->a, dir, &names, &n, NULL)) return;
    for (size_t i = 0; i < n; i++) {
        const char *path = str_fmt(w->a, "%s/%.*s", dir, STR_ARG(names[i])).p;
        w->has_others |= below && str_ends(names[i], STR(".safetensors"));
        if (hub_file_is_gguf(names[i])) add(w, path);
    }
    for (size_t i = 0; i < n && below; i++) {
        const char *path = str_fmt(w->a, "%s/%.*s", dir, STR_ARG(names[i])).p;
        if (names[i].p[0] != '.' && os_stat(path, &st, NULL) == ERR_OK && st.is_dir) look(w, path, false);
    }
}

size_t store_variants(struct arena *a, const char *dir, struct store_variant **out) {
    struct walk w = {.a = a};
    look(&w, dir, true);
    *out = w.p;
    return w.has_others ? 0 : w.n;
}

const char *store_find_variant(struct arena *a, const char *dir, struct str variant) {
    struct walk w = {.a = a};
    look(&w, dir, true);
    for (size_t i = 0; i < w.n; i++)
        if (hub_file_is_variant(str_of(w.p[i].path), variant)) return w.p[i].path;
    return NULL;
}

/* ---- removal ------------------------------------------------------------------------------------------------------------ */

/* The files of a variant, all its parts, out of the folder and out of its manifest. */
static int remove_files(struct arena *a, const char *dir, struct str variant, struct err *err) {
    struct manifest m;
    size_t n_left = 0;
    TRY(manifest_load(a, dir, &m, err));
    for (size_t i = 0; i < m.n_files; i++) {
        if (!hub_file_is_variant(m.files[i].name, variant)) {
            m.have[n_left] = m.have[i];
            m.files[n_left++] = m.files[i];
            continue;
        }
        const char *path = str_fmt(a, "%s/%.*s", dir, STR_ARG(m.files[i].name)).p;
        int code = os_remove(path, err);
        if (code && code != ERR_ENOTFOUND) return code;
        size_t slash = str_find_char(m.files[i].name, '/', 0);
        if (slash != STR_NONE)
            os_remove(str_fmt(a, "%s/%.*s", dir, (int)slash, m.files[i].name.p).p, NULL); /* where nothing else lies in it */
    }
    m.n_files = n_left;
    return manifest_save(dir, &m, err);
}

int store_remove_variant(struct arena *a, const char *models_dir, const struct repo_name *repo, struct err *err) {
    struct os_file *lock = NULL;
    struct store_variant *variants;
    const char *dir = store_model_path(a, models_dir, repo);
    const char *path = store_find_variant(a, dir, repo->variant);
    if (!path) return err_set(err, ERR_ENOTFOUND, "the store has no %s:%.*s (%s)", repo->id, STR_ARG(repo->variant), models_dir);
    if (store_variants(a, dir, &variants) == 1) return store_remove(a, models_dir, repo, err); /* its last one */
    TRY(store_lock(a, models_dir, repo, false, &lock, err));
    int code = remove_files(a, dir, repo->variant, err);
    os_file_close(lock);
    return code;
}
