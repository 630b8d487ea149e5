/* Models on this machine and on the hub. */
#include "lib/lib_internal.h"

#define HUB "https://huggingface.co"

void mlxcel_store_init(mlxcel_store *store, size_t struct_size) {
    mlxcel_store full = {0};
    lib_options_write(store, struct_size, &full, sizeof full);
}

static const char *keep(struct arena *a, const char *text) {
    return text ? str_cstr(a, str_of(text)) : NULL;
}

int lib_store_options(struct arena *a, const mlxcel_store *given, struct watch *watch, struct store_options *out, struct err *err) {
    mlxcel_store s;
    mlxcel_store_init(&s, sizeof s);
    TRY(lib_options_read(&s, sizeof s, given, "mlxcel_store", err));
    const char *home = os_home_dir();
    *out = (struct store_options){.models_dir = keep(a, s.models_dir)};
    out->hub = (struct hub_options){.endpoint = s.hub ? keep(a, s.hub) : HUB,
                                    .cacert = keep(a, s.cacert),
                                    .token = keep(a, s.token),
                                    .hf_home = s.hf_home ? keep(a, s.hf_home)
                                               : home    ? str_fmt(a, "%s/.cache/huggingface", home).p
                                                         : NULL,
                                    .offline = s.offline != 0,
                                    .watch = watch};
    return ERR_OK;
}

struct listener {
    mlxcel_progress_fn fn;
    void *user;
};

static bool on_bytes(void *user, uint64_t done, uint64_t total) {
    struct listener *l = user;
    return !l->fn || l->fn(l->user, MLXCEL_STAGE_DOWNLOAD, done, total) == 0;
}

static int download(struct arena *a, const char *name, const char *revision, const mlxcel_store *given, struct listener *l, char **out_path,
                    struct err *err) {
    struct watch watch = {.step = on_bytes, .user = l};
    struct store_options store;
    struct repo_name repo;
    const char *path;
    if (!name) return err_set(err, ERR_EARG, "mlxcel_download: the name is NULL");
    TRY(lib_store_options(a, given, &watch, &store, err));
    TRY(repo_name_parse(str_of(name), (struct str){0}, &repo, err));
    if (store.hub.offline) return err_set(err, ERR_EARG, "a download and offline = 1 exclude each other");
    struct download_request q = {.repo = &repo, .revision = revision, .quiet = true};
    TRY(store_download(a, &store, &q, &path, err));
    return out_path ? lib_copy_text(str_of(path), out_path, NULL, err) : ERR_OK;
}

int32_t mlxcel_download(const char *name, const char *revision, const mlxcel_store *store, mlxcel_progress_fn progress, void *user,
                        char **out_path, mlxcel_error *error) {
    struct arena a = {0};
    struct err err = {0};
    struct listener l = {progress, user};
    int code = lib_begin(&err);
    if (!code) code = download(&a, name, revision, store, &l, out_path, &err);
    arena_free(&a);
    return lib_result(error, code, &err);
}
