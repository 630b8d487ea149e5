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

static bool on_bytes(void *user, uint64_t done, uint64_t total) {
    struct lib_download *d = user;
    if (d->progress && d->progress(d->user, MLXCEL_STAGE_DOWNLOAD, done, total)) atomic_store(&d->stop, true);
    return !atomic_load(&d->stop);
}

int lib_store_options(struct arena *a, const mlxcel_store *given, struct lib_download *download, struct store_options *out,
                      struct err *err) {
    mlxcel_store s;
    mlxcel_store_init(&s, sizeof s);
    TRY(lib_options_read(&s, sizeof s, given, "mlxcel_store", err));
    const char *home = os_home_dir();
    download->watch = (struct watch){.tell = on_bytes, .user = download};
    *out = (struct store_options){.models_dir = keep(a, s.models_dir), .watch = &download->watch};
    out->hub = (struct hub_options){.endpoint = s.hub ? keep(a, s.hub) : HUB,
                                    .cacert = keep(a, s.cacert),
                                    .token = keep(a, s.token),
                                    .hf_home = s.hf_home ? keep(a, s.hf_home)
                                               : home    ? str_fmt(a, "%s/.cache/huggingface", home).p
                                                         : NULL,
                                    .offline = s.offline != 0,
                                    .stop = &download->stop};
    return ERR_OK;
}

static int download(struct arena *a, const char *name, const char *revision, const mlxcel_store *given, struct lib_download *d,
                    char **out_path, struct err *err) {
    struct store_options store;
    struct repo_name repo;
    const char *path;
    if (!name) return err_set(err, ERR_EARG, "mlxcel_download: the name is NULL");
    TRY(lib_store_options(a, given, d, &store, err));
    TRY(repo_name_parse(str_of(name), (struct str){0}, &repo, err));
    if (store.hub.offline) return err_set(err, ERR_EARG, "a download and offline = 1 exclude each other");
    struct download_request q = {.repo = &repo, .revision = revision, .quiet = true, .watch = store.watch};
    TRY(store_download(a, &store, &q, &path, err));
    return out_path ? lib_copy_text(str_of(path), out_path, NULL, err) : ERR_OK;
}

int32_t mlxcel_download(const char *name, const char *revision, const mlxcel_store *store, mlxcel_progress_fn progress, void *user,
                        char **out_path, mlxcel_error *error) {
    struct arena a = {0};
    struct err err = {0};
    struct lib_download d = {.progress = progress, .user = user};
    int code = lib_begin(&err);
    if (!code) code = download(&a, name, revision, store, &d, out_path, &err);
    arena_free(&a);
    return lib_result(error, code, &err);
}
