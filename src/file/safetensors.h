/* One safetensors file: eight bytes of header length, a JSON header, then the tensors' bytes without gaps.
 *
 * Accepts and rejects what the reference library (safetensors 0.8) does, with two exceptions: a dimension beyond 2^63-1,
 * which only a tensor without elements could have, is refused, and so is what exceeds the limits of limits.h.
 *
 * (1) Nothing from the header is used before it was checked against the real size of the file.
 * (2) st_open reads the header only. Tensor bytes come by positioned reads into the caller's memory, so that a file cut
 *     while it is being read is an error and not a fault, and can be replaced on Windows.
 * (3) Everything lives in the arena given to st_open, but the name map: st_close.
 */
#ifndef MLXCEL_FILE_SAFETENSORS_H
#define MLXCEL_FILE_SAFETENSORS_H

#include "tensor/dtype.h"

/* Where the bytes come from: a file, or memory for the built-in model. */
struct st_source {
    const char *name; /* in messages */
    uint64_t size;
    /* Exactly n bytes from offset, or an error that names the source. */
    int (*read_at)(void *user, void *data, size_t n, uint64_t offset, struct err *err);
    void *user;
};

struct st_tensor {
    struct str name;
    enum dtype dtype;
    int n_dims;
    const int64_t *shape; /* [n_dims] */
    uint64_t n_elements;
    uint64_t offset; /* of the first byte, from the start of the file */
    uint64_t bytes;
};

struct st_meta {
    struct str key, value;
};

struct safetensors {
    struct st_source source;
    struct st_tensor *tensors; /* [n_tensors], by place in the file */
    size_t n_tensors;
    struct st_meta *meta; /* [n_meta], __metadata__ */
    size_t n_meta;
    uint64_t data_bytes; /* of all tensors */
};

enum { ST_HEADER_MAX = 100 * 1000 * 1000 }; /* the reference's */

/* What it finds lies in the arena; the source stays the caller's. On failure *out is zeroed. */
int st_open(struct arena *a, const struct st_source *source, struct safetensors *out, struct err *err);
/* n bytes of the tensor, from byte `at` of it. */
int st_read(const struct safetensors *st, const struct st_tensor *t, uint64_t at, void *data, size_t n, struct err *err);

/* The tensor that holds the byte at an offset, of a file that has any: the last one that begins there or before. */
size_t st_at(const struct safetensors *st, uint64_t offset);

/* A source over memory that outlives it. */
struct st_source st_source_memory(const char *name, struct str *bytes);

/* What a clone without Git LFS has in place of a large file: its hash and size, as a few lines of text. */
bool st_is_pointer(struct str file);
#define ST_POINTER_TEXT "a Git LFS pointer, not the file itself: run git lfs pull in its folder, or download the model again"

/* "[2, 64]" into out, cut when it does not fit. */
const char *st_shape_text(const struct st_tensor *t, char *out, size_t out_bytes);

#endif
