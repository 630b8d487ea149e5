/* Folders of models: finding, locking, judging, listing. */
#include "hub/store.h"

#include "base/json.h"
#include "base/log.h"
#include "file/config.h"
#include "file/shards.h"
#include "os/os.h"

#include <stdlib.h>

enum { CONFIG_BYTES_MAX = 16 << 20, LOCK_POLL_MS = 200, DEPTH_MAX = 8 };

/* ---- places ------------------------------------------------------------------------------------------------------------- */

const char *store_models_dir(struct arena *a, const struct store_options *o) {
    if (o->models_dir && o->models_dir[0]) return o->models_dir;
    if (o->home) return str_fmt(a, "%s/models", o->home).p;
    return os_cache_root() ? str_fmt(a, "%s/mlxcel/models", os_cache_root()).p : NULL;
}

const char *store_model_path(struct arena *a, const char *models_dir, const struct repo_name *repo) {
    return str_fmt(a, "%s/%s", models_dir, repo->id).p;
}

static bool is_dir(const char *path) {
    struct os_stat st;
    return os_stat(path, &st, NULL) == ERR_OK && st.is_dir;
}

static bool is_file(const char *path) {
    struct os_stat st;
    return os_stat(path, &st, NULL) == ERR_OK && st.is_file;
}

/* ---- locks -------------------------------------------------------------------------------------------------------------- */

static atomic_bool stop_waiting;

static void on_interrupt(void) {
    atomic_store(&stop_waiting, true);
}

int store_lock_file(const char *path, const char *what, bool wait, struct os_file **out, struct err *err) {
    TRY(os_file_open(path, OS_UPDATE, out, err));
    int code = os_file_lock(*out, false, err);
    if (code == ERR_EBUSY && wait) {
        log_info("another process is working on %s; waiting for it", what);
        atomic_store(&stop_waiting, false);
        os_on_interrupt(on_interrupt);
        while (code == ERR_EBUSY && !atomic_load(&stop_waiting)) {
            os_sleep_ms(LOCK_POLL_MS);
            code = os_file_lock(*out, false, err);
        }
        os_on_interrupt(NULL);
        if (code == ERR_EBUSY) code = err_set(err, ERR_ECANCELLED, "stopped");
    }
    if (code == ERR_EBUSY) err_set(err, ERR_EBUSY, "another process is working on %s; try again when it is done", what);
    if (code) os_file_close(*out);
    return code;
}

int store_lock(struct arena *a, const char *models_dir, const struct repo_name *repo, bool wait, struct os_file **out, struct err *err) {
    const char *path = str_fmt(a, "%s/.locks/%.*s--%.*s", models_dir, STR_ARG(repo->owner), STR_ARG(repo->name)).p;
    int code = os_make_dirs(str_fmt(a, "%s/.locks", models_dir).p, err);
    if (code == ERR_OK) code = store_lock_file(path, repo->id, wait, out, err);
    if (code == ERR_EIO && err) {
        struct err why = *err;
        err_set(err, code, "%.380s; MLXCEL_HOME or --models-dir names another folder", why.msg);
    }
    return code;
}

/* ---- judging ------------------------------------------------------------------------------------------------------------ */

/* By the manifest: the first thing that is wrong, and how many more. */
static int check_manifest(struct arena *a, const char *dir, const struct manifest *m, struct watch *watch, struct err *err) {
    struct err first = {0}, why;
    size_t n_bad = 0;
    for (size_t i = 0; i < m->n_files && watch; i++)
        if (m->files[i].sha256[0]) watch->total += m->files[i].size;
    for (size_t i = 0; i < m->n_files; i++) {
        const struct hub_file *f = &m->files[i];
        int code = hub_file_check(str_fmt(a, "%s/%.*s", dir, STR_ARG(f->name)).p, f, watch, &why);
        if (code == ERR_ECANCELLED) return err_set(err, code, "%s", why.msg);
        if (code == ERR_OK && !m->complete && !m->have[i]) code = err_set(&why, ERR_EFORMAT, "%.*s is not verified yet", STR_ARG(f->name));
        if (code == ERR_ENOTFOUND) err_set(&why, ERR_EFORMAT, "%.*s is missing", STR_ARG(f->name));
        if (code && n_bad++ == 0) first = why;
    }
    if (n_bad == 0) return ERR_OK;
    if (n_bad == 1) return err_set(err, ERR_EFORMAT, "%s", first.msg);
    return err_set(err, ERR_EFORMAT, "%s, and %zu more files are missing or wrong", first.msg, n_bad - 1);
}

static int check(const char *dir, struct watch *watch, struct err *err) {
    struct arena a = {0};
    struct manifest m;
    struct shard_list shards = {0};
    int code = manifest_load(&a, dir, &m, err);
    if (code == ERR_OK) code = check_manifest(&a, dir, &m, watch, err);
    else if (code == ERR_ENOTFOUND) {
        if (!is_file(str_fmt(&a, "%s/config.json", dir).p)) code = err_set(err, ERR_EFORMAT, "config.json is missing");
        else code = shards_find(&a, dir, &shards, err) ? ERR_EFORMAT : ERR_OK;
        for (size_t i = 0; code == ERR_OK && i < shards.n; i++) {
            struct os_stat st;
            const char *path = str_fmt(&a, "%s/%.*s", dir, STR_ARG(shards.names[i])).p;
            if (os_stat(path, &st, NULL) || st.size == 0)
                code = err_set(err, ERR_EFORMAT, "%.*s is missing or empty", STR_ARG(shards.names[i]));
        }
    }
    arena_free(&a);
    return code;
}

int store_check(const char *dir, struct err *err) {
    return check(dir, NULL, err);
}

int store_verify(const char *dir, struct watch *watch, struct err *err) {
    return check(dir, watch, err);
}

bool store_is_partial(const char *dir) {
    struct arena a = {0};
    struct manifest m;
    bool partial = manifest_load(&a, dir, &m, NULL) == ERR_OK && !m.complete;
    arena_free(&a);
    return partial;
}

void store_touch(const char *dir) {
    struct sb path = {0};
    struct os_file *f;
    sb_fmt(&path, "%s/.mlxcel", dir);
    if (os_make_dirs(path.p, NULL) == ERR_OK) {
        sb_puts(&path, "/used");
        if (os_file_open(path.p, OS_WRITE, &f, NULL) == ERR_OK) {
            os_file_write_at(f, "\n", 1, 0, NULL);
            os_file_close(f);
        }
    }
    sb_free(&path);
}

/* ---- describing --------------------------------------------------------------------------------------------------------- */

static uint64_t dir_bytes(struct arena *a, const char *dir, int depth) {
    struct str *names;
    size_t n;
    uint64_t bytes = 0;
    if (depth > DEPTH_MAX || os_list_dir(a, dir, &names, &n, NULL)) return 0;
    for (size_t i = 0; i < n; i++) {
        struct os_stat st;
        if (str_is(names[i], ".mlxcel") && depth == 0) continue;
        const char *path = str_fmt(a, "%s/%.*s", dir, STR_ARG(names[i])).p;
        if (os_stat(path, &st, NULL)) continue;
        bytes += st.is_dir ? dir_bytes(a, path, depth + 1) : st.size;
    }
    return bytes;
}

uint64_t store_dir_bytes(struct arena *a, const char *dir) {
    return dir_bytes(a, dir, 0);
}

static void describe_config(struct arena *a, const char *dir, struct store_model *out) {
    struct str text, dtype = {0};
    struct config config;
    struct config_shape shape;
    struct quant_config quant = {0};
    char name[32];
    if (os_file_load(a, str_fmt(a, "%s/config.json", dir).p, CONFIG_BYTES_MAX, &text, NULL) ||
        config_parse(a, text, "config.json", &config, NULL))
        return;
    if (config.model_type.p) out->type = str_copy(a, config.model_type);
    if (config_shape(&config, &shape, NULL) == ERR_OK) out->context = shape.context;
    if (quant_config_read(a, &config, &quant, NULL)) return;
    if (quant.present) out->quant = str_copy(a, str_of(format_name(&quant.base, name)));
    else if (quant.foreign.p) out->quant = str_copy(a, quant.foreign);
    else if (config_str(&config, "torch_dtype", (struct str){0}, &dtype, NULL) == ERR_OK && dtype.p) out->quant = str_copy(a, dtype);
    else if (config_str(&config, "dtype", (struct str){0}, &dtype, NULL) == ERR_OK && dtype.p) out->quant = str_copy(a, dtype);
    quant_config_free(&quant);
}

static int64_t last_used(struct arena *a, const char *dir) {
    static const char *const names[] = {".mlxcel/used", ".mlxcel/manifest.json", "config.json"};
    struct os_stat st;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (os_stat(str_fmt(a, "%s/%s", dir, names[i]).p, &st, NULL) == ERR_OK) return st.mtime_ns;
    return 0;
}

int store_describe(struct arena *a, const char *dir, struct str id, struct store_model *out, struct err *err) {
    struct manifest m;
    struct err why = {0};
    if (!is_dir(dir)) return err_set(err, ERR_ENOTFOUND, "%s is no folder", dir);
    *out = (struct store_model){.id = id, .path = dir, .bytes = dir_bytes(a, dir, 0), .used_ns = last_used(a, dir), .quant = STR("")};
    describe_config(a, dir, out);
    if (manifest_load(a, dir, &m, NULL) == ERR_OK) {
        out->partial = !m.complete;
        out->revision = m.revision;
        out->commit = m.commit;
        out->imported = m.complete && !m.commit.p;
    }
    if (store_check(dir, &why)) out->problem = str_copy(a, str_of(why.msg));
    return ERR_OK;
}

const char *store_repair(struct arena *a, const struct store_model *m) {
    if (m->imported) return str_fmt(a, "mlxcel rm %.*s, then mlxcel import once more", STR_ARG(m->id)).p;
    return str_fmt(a, "mlxcel download %s%.*s", m->wrong ? "--verify " : "", STR_ARG(m->id)).p;
}

int store_list(struct arena *a, const char *models_dir, struct store_model **out, size_t *out_n, struct err *err) {
    struct str *owners, *names;
    size_t n_owners, n_names, capacity = 0;
    *out = NULL;
    *out_n = 0;
    int code = os_list_dir(a, models_dir, &owners, &n_owners, err);
    if (code == ERR_ENOTFOUND) return ERR_OK;
    TRY(code);
    for (size_t i = 0; i < n_owners; i++) {
        const char *dir = str_fmt(a, "%s/%.*s", models_dir, STR_ARG(owners[i])).p;
        if (owners[i].p[0] == '.' || !is_dir(dir) || os_list_dir(a, dir, &names, &n_names, NULL)) continue;
        for (size_t k = 0; k < n_names; k++) {
            const char *path = str_fmt(a, "%s/%.*s", dir, STR_ARG(names[k])).p;
            if (names[k].p[0] == '.' || !is_dir(path)) continue;
            if (*out_n == capacity) {
                struct store_model *more = arena_new(a, struct store_model, capacity = capacity ? capacity * 2 : 16);
                if (*out_n) memcpy(more, *out, *out_n * sizeof *more);
                *out = more;
            }
            struct str id = str_fmt(a, "%.*s/%.*s", STR_ARG(owners[i]), STR_ARG(names[k]));
            if (store_describe(a, path, id, &(*out)[*out_n], NULL) == ERR_OK) ++*out_n;
        }
    }
    return ERR_OK;
}

/* ---- the Hugging Face cache --------------------------------------------------------------------------------------------- */

const char *store_find_hf(struct arena *a, const struct store_options *o, const struct repo_name *repo, const char *revision) {
    enum { REF_BYTES_MAX = 256 };
    struct str commit;
    const char *cache = o->hf_cache;
    if (!cache && o->hub.hf_home) cache = str_fmt(a, "%s/hub", o->hub.hf_home).p;
    if (!cache) return NULL;
    const char *dir = str_fmt(a, "%s/models--%.*s--%.*s", cache, STR_ARG(repo->owner), STR_ARG(repo->name)).p;
    if (!hub_path_safe(str_of(revision)) || os_file_load(a, str_fmt(a, "%s/refs/%s", dir, revision).p, REF_BYTES_MAX, &commit, NULL))
        return NULL;
    commit = str_trim(commit);
    if (!hub_path_safe(commit)) return NULL;
    const char *snapshot = str_fmt(a, "%s/snapshots/%.*s", dir, STR_ARG(commit)).p;
    return is_dir(snapshot) && store_check(snapshot, NULL) == ERR_OK ? snapshot : NULL;
}
