/* Changing the store by hand: rm, prune, import. Each holds the model's lock. */
#include "hub/store.h"

#include "base/log.h"
#include "hub/digest.h"
#include "os/os.h"

enum { COPY_BYTES = 4 << 20 };

static bool is_dir(const char *path) {
    struct os_stat st;
    return os_stat(path, &st, NULL) == ERR_OK && st.is_dir;
}

/* The owner's folder goes with its last model; one that is not empty stays. */
static void remove_owner(struct arena *a, const char *models_dir, const struct repo_name *repo) {
    os_remove(str_fmt(a, "%s/%.*s", models_dir, STR_ARG(repo->owner)).p, NULL);
}

int store_remove(struct arena *a, const char *models_dir, const struct repo_name *repo, struct err *err) {
    struct os_file *lock = NULL;
    const char *path = store_model_path(a, models_dir, repo);
    if (!is_dir(path)) return err_set(err, ERR_ENOTFOUND, "the store has no model %s (%s)", repo->id, models_dir);
    TRY(store_lock(a, models_dir, repo, false, &lock, err));
    int code = os_remove_tree(path, err);
    if (code == ERR_OK) remove_owner(a, models_dir, repo);
    os_file_close(lock);
    return code;
}

/* ---- prune -------------------------------------------------------------------------------------------------------------- */

struct prune_list {
    struct prune_entry *items;
    size_t n, capacity;
};

static void add(struct arena *a, struct prune_list *list, struct prune_entry entry) {
    if (list->n == list->capacity) {
        struct prune_entry *more = arena_new(a, struct prune_entry, list->capacity = list->capacity ? list->capacity * 2 : 16);
        if (list->n) memcpy(more, list->items, list->n * sizeof *more);
        list->items = more;
    }
    list->items[list->n++] = entry;
}

static uint64_t file_bytes(const char *path) {
    struct os_stat st;
    return os_stat(path, &st, NULL) == ERR_OK && st.is_file ? st.size : 0;
}

/* Partial files of a model that is whole otherwise, and files of earlier commits. */
static void add_files(struct arena *a, struct prune_list *list, const struct store_model *m, const char *id) {
    struct str *names;
    size_t n;
    struct manifest manifest;
    const char *own = str_fmt(a, "%s/.mlxcel", m->path).p;
    if (os_list_dir(a, own, &names, &n, NULL) == ERR_OK)
        for (size_t i = 0; i < n; i++) {
            const char *path = str_fmt(a, "%s/%.*s", own, STR_ARG(names[i])).p;
            if (str_ends(names[i], STR(".part")) || str_ends(names[i], STR(".part.log")) || str_ends(names[i], STR(".tmp")))
                add(a, list, (struct prune_entry){str_fmt(a, "partial file of %s", id), path, file_bytes(path), id});
        }
    if (manifest_load(a, m->path, &manifest, NULL)) return;
    for (size_t i = 0; i < manifest.n_stale; i++) {
        const char *path = str_fmt(a, "%s/%.*s", m->path, STR_ARG(manifest.stale[i])).p;
        struct os_stat st;
        if (os_stat(path, &st, NULL) == ERR_OK && st.is_file)
            add(a, list, (struct prune_entry){str_fmt(a, "file of an earlier commit of %s", id), path, st.size, id});
    }
}

/* Folders that an import left behind: OWNER/.NAME.import-PID. */
static void add_imports(struct arena *a, struct prune_list *list, const char *models_dir) {
    struct str *owners, *names;
    size_t n_owners, n_names;
    if (os_list_dir(a, models_dir, &owners, &n_owners, NULL)) return;
    for (size_t i = 0; i < n_owners; i++) {
        const char *dir = str_fmt(a, "%s/%.*s", models_dir, STR_ARG(owners[i])).p;
        if (owners[i].p[0] == '.' || !is_dir(dir) || os_list_dir(a, dir, &names, &n_names, NULL)) continue;
        for (size_t k = 0; k < n_names; k++) {
            size_t dot = str_find(names[k], STR(".import"), 1);
            const char *path = str_fmt(a, "%s/%.*s", dir, STR_ARG(names[k])).p;
            if (names[k].p[0] != '.' || dot == STR_NONE) continue;
            const char *id = str_fmt(a, "%.*s/%.*s", STR_ARG(owners[i]), STR_ARG(str_sub(names[k], 1, dot - 1))).p;
            add(a, list, (struct prune_entry){STR("unfinished import"), path, store_dir_bytes(a, path), id});
        }
    }
}

int store_prune_list(struct arena *a, const char *models_dir, struct prune_entry **out, size_t *out_n, struct err *err) {
    struct store_model *models;
    struct prune_list list = {0};
    size_t n;
    TRY(store_list(a, models_dir, &models, &n, err));
    for (size_t i = 0; i < n; i++) {
        const char *id = str_cstr(a, models[i].id);
        if (models[i].partial) {
            uint64_t bytes = models[i].bytes + store_dir_bytes(a, str_fmt(a, "%s/.mlxcel", models[i].path).p);
            add(a, &list, (struct prune_entry){str_fmt(a, "unfinished download of %s", id), models[i].path, bytes, id});
        } else {
            add_files(a, &list, &models[i], id);
        }
    }
    add_imports(a, &list, models_dir);
    *out = list.items;
    *out_n = list.n;
    return ERR_OK;
}

int store_prune(struct arena *a, const char *models_dir, const struct prune_entry *e, struct err *err) {
    struct repo_name repo;
    struct os_file *lock = NULL;
    TRY(repo_name_parse(str_of(e->models_id), (struct str){0}, &repo, err));
    TRY(store_lock(a, models_dir, &repo, false, &lock, err));
    int code = os_remove_tree(e->path, err);
    if (code == ERR_OK) remove_owner(a, models_dir, &repo);
    os_file_close(lock);
    return code;
}

/* ---- import ------------------------------------------------------------------------------------------------------------- */

/* Reads a file once: what is written is what is hashed. */
static int copy_file(const char *from, const char *to, struct hub_file *file, struct watch *watch, struct err *err) {
    struct os_file *in = NULL, *out = NULL;
    struct sha256 hash;
    char *piece = mem_alloc(COPY_BYTES);
    int code = os_file_open(from, OS_READ, &in, err);
    if (code == ERR_OK) code = os_file_open(to, OS_WRITE, &out, err);
    digest_begin(&hash);
    for (uint64_t at = 0; at < file->size && code == ERR_OK;) {
        size_t n = file->size - at < COPY_BYTES ? (size_t)(file->size - at) : COPY_BYTES;
        code = os_file_read_at(in, piece, n, at, err);
        if (code == ERR_OK) sha256_update(&hash, piece, n);
        if (code == ERR_OK) code = os_file_write_at(out, piece, n, at, err);
        if (code == ERR_OK) code = watch_add(watch, n, err);
        at += n;
    }
    if (code == ERR_OK) code = os_file_sync(out, err);
    digest_end(&hash, file->sha256);
    os_file_close(in);
    os_file_close(out);
    mem_free(piece);
    return code;
}

/* The files of a folder that make a model, with their sizes. */
static int list_files(struct arena *a, const char *from, struct manifest *m, uint64_t *out_bytes, struct err *err) {
    struct str *names;
    size_t n;
    TRY(os_list_dir(a, from, &names, &n, err));
    m->files = arena_new(a, struct hub_file, n + 1);
    m->have = arena_new(a, bool, n + 1);
    for (size_t i = 0; i < n; i++) {
        struct os_stat st;
        if (!hub_file_wanted(names[i]) || !hub_path_safe(names[i])) continue;
        TRY(os_stat(str_fmt(a, "%s/%.*s", from, STR_ARG(names[i])).p, &st, err));
        if (!st.is_file) continue;
        m->have[m->n_files] = true;
        m->files[m->n_files++] = (struct hub_file){.name = names[i], .size = st.size};
        *out_bytes += st.size;
    }
    return ERR_OK;
}

static int copy_all(struct arena *a, const struct import_request *q, const char *to, struct manifest *m, struct err *err) {
    TRY(os_make_dirs(to, err));
    for (size_t i = 0; i < m->n_files; i++) {
        struct str name = m->files[i].name;
        TRY(copy_file(str_fmt(a, "%s/%.*s", q->from, STR_ARG(name)).p, str_fmt(a, "%s/%.*s", to, STR_ARG(name)).p, &m->files[i], q->watch,
                      err));
    }
    return manifest_save(to, m, err);
}

static int import_locked(struct arena *a, const char *models_dir, const struct import_request *q, struct err *err) {
    const struct repo_name *repo = q->repo;
    struct manifest m = {.id = str_of(repo->id), .complete = true};
    uint64_t need = 0, room;
    char x[32], y[32];
    const char *to = store_model_path(a, models_dir, repo);
    const char *temp = str_fmt(a, "%s/%.*s/.%.*s.import-%d", models_dir, STR_ARG(repo->owner), STR_ARG(repo->name), os_process_id()).p;
    struct os_stat st;
    if (!is_dir(q->from) && os_stat(q->from, &st, NULL) == ERR_OK)
        return err_set(err, ERR_EARG, "%s is a file; give the model's folder, with its config.json and tokenizer", q->from);
    if (!is_dir(q->from)) return err_set(err, ERR_ENOTFOUND, "there is no folder %s", q->from);
    if (is_dir(to)) return err_set(err, ERR_EARG, "the store has %s already; mlxcel rm %s first", repo->id, repo->id);
    int code = store_check(q->from, err);
    if (code) return err_set(err, code, "%s is no whole model: %s", q->from, str_cstr(a, str_of(err ? err->msg : "")));
    TRY(list_files(a, q->from, &m, &need, err));
    if (os_disk_free(models_dir, &room, NULL) == ERR_OK && room < need)
        return err_set(err, ERR_EIO, "%s needs %s, but the disk of %s has %s free", q->from, hub_size_text(need, x), models_dir,
                       hub_size_text(room, y));
    if (q->watch) q->watch->total = need;
    code = copy_all(a, q, temp, &m, err);
    if (code == ERR_OK) code = os_rename(temp, to, err);
    if (code) os_remove_tree(temp, NULL);
    if (code) remove_owner(a, models_dir, repo);
    return code;
}

int store_import(struct arena *a, const char *models_dir, const struct import_request *q, struct err *err) {
    struct os_file *lock = NULL;
    TRY(store_lock(a, models_dir, q->repo, false, &lock, err));
    int code = import_locked(a, models_dir, q, err);
    os_file_close(lock);
    return code;
}
