/* The model store: ROOT/OWNER/NAME, one folder per model, as any tool would lay it out, plus .mlxcel/ inside.
 *
 * (1) .mlxcel/manifest.json says which commit the files are of, with sizes and hashes, and whether the download was finished. A folder
 *     without one (put there by hand) is a model too; it is judged by its files.
 * (2) ROOT/.locks/OWNER--NAME is held by whoever changes a model; locks are never removed.
 * (3) The Hugging Face cache is read, never written.
 */
#ifndef MLXCEL_HUB_STORE_H
#define MLXCEL_HUB_STORE_H

#include "hub/hub.h"

struct os_file;

struct store_options {
    struct hub_options hub;
    const char *models_dir; /* NULL: models in `home` */
    const char *home;       /* NULL: mlxcel in the user's cache folder */
    const char *owner;      /* of models that are named without one; NULL: they need one */
    const char *hf_cache;   /* models of the hub's own tools; NULL: hub in their home */
    struct watch *watch;    /* of what store_resolve downloads, instead of standard error; NULL: nobody */
};

/* The folder of models. NULL: unknown. */
const char *store_models_dir(struct arena *a, const struct store_options *o);

struct manifest {
    struct str id, revision, commit; /* {NULL, 0}: imported */
    bool complete;
    struct hub_file *files;
    bool *have; /* [n_files] in place and right */
    size_t n_files;
    struct str *stale; /* names of an earlier commit that this one no longer has */
    size_t n_stale;
};
/* ERR_ENOTFOUND when there is none. */
int manifest_load(struct arena *a, const char *dir, struct manifest *out, struct err *err);
int manifest_save(const char *dir, const struct manifest *m, struct err *err);

const char *store_model_path(struct arena *a, const char *models_dir, const struct repo_name *repo);
/* Waits (saying so) while another process holds it; closing the file releases it. */
int store_lock(struct arena *a, const char *models_dir, const struct repo_name *repo, bool wait, struct os_file **out, struct err *err);
int store_lock_file(const char *path, const char *what, bool wait, struct os_file **out, struct err *err);

/* Whether a model's files are all there. ERR_EFORMAT: the message says what is missing or wrong. */
int store_check(const char *dir, struct err *err);
/* The same, and every file whose sha256 is known is read and compared. ERR_ECANCELLED: the watch ended it. */
int store_verify(const char *dir, struct watch *watch, struct err *err);
/* Whether a download of it was begun and not finished. */
bool store_is_partial(const char *dir);
/* Notes that a model was used now. */
void store_touch(const char *dir);

struct store_model {
    struct str id;
    const char *path;
    uint64_t bytes;   /* of its files */
    struct str quant; /* "affine 4-bit g64", "bf16", "" unknown */
    struct str type;  /* model_type */
    int64_t context;  /* 0: unknown */
    int64_t used_ns;  /* since 1970 */
    struct str revision, commit;
    struct str problem; /* {NULL, 0}: it is whole */
    bool partial, imported;
    bool wrong; /* the problem is a sha256: only a download that verifies notices */
};
/* Everything about one folder. */
int store_describe(struct arena *a, const char *dir, struct str id, struct store_model *out, struct err *err);
/* What brings a model back to what it should be: the hub, or the folder that it was imported from. */
const char *store_repair(struct arena *a, const struct store_model *m);
/* All models, by name. A store that does not exist is empty. */
int store_list(struct arena *a, const char *models_dir, struct store_model **out, size_t *out_n, struct err *err);

int store_remove(struct arena *a, const char *models_dir, const struct repo_name *repo, struct err *err);

/* One of the GGUF files in a model's folder, the first of its parts. */
struct store_variant {
    struct str tag; /* the end of its name: "Q4_K_M" */
    const char *path;
};
/* Those of a folder, and of the folders in it; 0 where the model has weights of another kind. */
size_t store_variants(struct arena *a, const char *dir, struct store_variant **out);
/* The file whose name ends like the variant; NULL: none. */
const char *store_find_variant(struct arena *a, const char *dir, struct str variant);
/* The files of repo->variant; with the last one the whole model goes. */
int store_remove_variant(struct arena *a, const char *models_dir, const struct repo_name *repo, struct err *err);

/* What could go: unfinished downloads, files of earlier commits, left-overs of imports. */
struct prune_entry {
    struct str what;
    const char *path;
    uint64_t bytes;
    const char *models_id; /* its lock is taken before it goes; NULL: none */
};
int store_prune_list(struct arena *a, const char *models_dir, struct prune_entry **out, size_t *out_n, struct err *err);
int store_prune(struct arena *a, const char *models_dir, const struct prune_entry *e, struct err *err);

/* Copies a folder of a model into the store, with the sha256 of every file in the manifest. ERR_ECANCELLED: the watch ended it, and
 * nothing is left. */
struct import_request {
    const char *from;
    const struct repo_name *repo;
    struct watch *watch;
};
int store_import(struct arena *a, const char *models_dir, const struct import_request *q, struct err *err);

/* A snapshot in the Hugging Face cache that holds the whole model; NULL: none. */
const char *store_find_hf(struct arena *a, const struct store_options *o, const struct repo_name *repo, const char *revision);

/* Size of a folder's files, .mlxcel left out. */
uint64_t store_dir_bytes(struct arena *a, const char *dir);

/* ---- downloads and names (resolve.c) ------------------------------------------------------------------------------------- */

struct download_request {
    const struct repo_name *repo;
    const char *revision;  /* NULL: main */
    const char *local_dir; /* NULL: the store */
    const struct str *globs;
    size_t n_globs;
    bool verify, quiet;
    bool no_wait;        /* ERR_EBUSY where another one works on the model */
    struct watch *watch; /* as fetch_options has it */
};
/* *out_path: the folder, in the arena. */
int store_download(struct arena *a, const struct store_options *o, const struct download_request *q, const char **out_path,
                   struct err *err);

/* What people type for a model, in full: OWNER/NAME as it is; else a stored model by its last part (in any case, and "NAME:4bit" for NAME-4bit),
 * else a short name (short_names.h), else the text as it is, for the default owner. Several stored models with that last part are ERR_EARG. */
int store_expand(struct arena *a, const struct store_options *o, struct str text, struct str *out, struct err *err);

/* What -m says: a path that exists, a model of the store, one of the Hugging Face cache, else a download. *out_name is the model's name
 * for people: OWNER/NAME, or the path. */
int store_resolve(struct arena *a, const struct store_options *o, const char *model, const char **out_path, const char **out_name,
                  struct err *err);

#endif
