/* A model as it lies on disk: a folder, a single .safetensors or .gguf file, or the model inside the program.
 *
 * (1) Opening reads headers and the two config files; tensor bytes are read later, by checkpoint_read, from any thread.
 * (2) Shards: those of model.safetensors.index.json; when that names a file which is not there but the shards on disk
 *     are a complete set, those, with a warning; without an index model.safetensors, else model*.safetensors.
 * (3) Names from an index never leave the folder.
 * (4) A GGUF file looks like any other model here: its tensors have the names and planes that a safetensors file would have, and its
 *     config.json and tokenizer files are made of its metadata.
 * (5) So do matrices that other programs quantised (packed.h).
 */
#ifndef MLXCEL_FILE_CHECKPOINT_H
#define MLXCEL_FILE_CHECKPOINT_H

#include "base/map.h"
#include "file/config.h"
#include "file/safetensors.h"

struct os_file;
struct gguf_set;
struct packed_view;

struct checkpoint_shard {
    const char *name;     /* of the file, without its folder */
    struct os_file *file; /* NULL for the built-in model */
    struct safetensors st;
};

struct checkpoint_tensor {
    const struct st_tensor *t; /* name, dtype, shape, bytes */
    const struct checkpoint_shard *shard;
};

struct checkpoint {
    struct arena arena;
    const char *path; /* as it was asked for; for messages */
    const char *dir;  /* where the side files lie; NULL for the built-in model */
    struct checkpoint_shard *shards;
    size_t n_shards;
    struct checkpoint_tensor *tensors; /* [n_tensors], by shard and place */
    size_t n_tensors;
    struct map by_name;   /* index into tensors */
    uint64_t total_bytes; /* of all tensors */
    bool has_config;      /* else config is zeroed */
    struct config config;
    bool has_generation;
    struct config generation;
    struct quant_config quant;
    struct gguf_set *gguf;      /* NULL: safetensors */
    struct packed_view *packed; /* NULL: nothing is repacked as it is read */
};

/* path NULL: the built-in model. */
int checkpoint_open(const char *path, struct checkpoint *out, struct err *err);
void checkpoint_close(struct checkpoint *c); /* zeroed is fine */

const struct checkpoint_tensor *checkpoint_find(const struct checkpoint *c, struct str name); /* NULL when absent */
/* n bytes of the tensor, from byte `at` of it. */
int checkpoint_read(const struct checkpoint_tensor *t, uint64_t at, void *data, size_t n, struct err *err);

/* A matrix with its format: PATH.weight, and PATH.scales, PATH.biases where the config declares a quantisation that the
 * tensors bear out. ERR_ENOTFOUND when there is no PATH.weight. */
struct checkpoint_weight {
    struct format format;
    const struct checkpoint_tensor *values, *scales, *biases; /* scales, biases: NULL where there are none */
    int64_t width;                                            /* elements along the last dimension, unpacked */
};
int checkpoint_weight(const struct checkpoint *c, struct str path, struct checkpoint_weight *out, struct err *err);
/* Row r of all its rows as f32. Plain types other than F32, F16, BF16 are an error. */
int checkpoint_weight_row(const struct checkpoint_weight *w, int64_t r, float *out, struct err *err);

/* ---- views: tensors that are made of others as they are read ---------------------------------------------------- */

/* The tensor that a matrix is as plain f32, at an offset of a view's. */
struct st_tensor checkpoint_weight_plain(struct arena *a, const struct checkpoint_weight *w, uint64_t offset);
/* Row r of tensor i of a view, as f32. */
typedef int checkpoint_row_fn(void *user, size_t i, int64_t r, float *out, struct err *err);
/* Bytes [offset, offset + n) of a view whose tensors are plain f32, row by row; n is within one tensor. */
int checkpoint_view_rows(const struct safetensors *view, checkpoint_row_fn *read_row, void *user, uint64_t offset, void *data, size_t n,
                         struct err *err);
/* The table of all tensors is this one from now on. */
void checkpoint_set_table(struct checkpoint *c, struct checkpoint_tensor *tensors, size_t n);
/* The view's tensors take the places of those of the same name; scales and biases of those go. */
void checkpoint_replace(struct checkpoint *c, const struct checkpoint_shard *view);

/* A side file such as tokenizer.json: from the folder, or from the program. ERR_ENOTFOUND when absent; ERR_ELIMIT when it is larger than
 * max_bytes, 0 standing for what files of that name may have (limits.h). */
int checkpoint_file_load(struct arena *a, const struct checkpoint *c, const char *name, uint64_t max_bytes, struct str *out,
                         struct err *err);
bool checkpoint_file_exists(const struct checkpoint *c, const char *name);

/* Whether a file name from outside is one plain name on every system: no separators, drives, "..", device names. */
bool checkpoint_name_safe(struct str name);

#endif
