/* One GGUF file: a header of metadata and descriptions of tensors, then their bytes. Versions 2 and 3, little-endian.
 *
 * (1) Nothing from the header is used before it was checked against the real size of the file.
 * (2) gguf_open reads the header only, and keeps it: keys, names and values point into it. Tensor bytes come by positioned reads later.
 * (3) The header and the map of keys live until gguf_close, the rest in the arena given to gguf_open.
 */
#ifndef MLXCEL_FILE_GGUF_H
#define MLXCEL_FILE_GGUF_H

#include "base/map.h"
#include "file/safetensors.h"
#include "tensor/block.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    N_GGUF_TYPES
};

/* A value as it lies in the header. */
struct gguf_value {
    enum gguf_type type, of; /* of: what the elements of an array are */
    uint64_t n;              /* elements of an array */
    struct str bytes;        /* of a number; what a string says; the elements of an array behind one another */
};

struct gguf_meta {
    struct str key;
    struct gguf_value value;
};

enum { GGUF_DIMS_MAX = 4 };

struct gguf_tensor {
    struct str name;
    const struct block_type *type;
    int n_dims;
    int64_t shape[GGUF_DIMS_MAX]; /* the outermost first, as elsewhere here; in the file it is the other way round */
    uint64_t n_elements;
    uint64_t offset; /* of the first byte, from the start of the file */
    uint64_t bytes;
};

struct gguf {
    struct st_source source;
    unsigned char *header;
    struct gguf_meta *meta; /* [n_meta] */
    size_t n_meta;
    struct map by_key; /* index into meta */
    struct gguf_tensor *tensors;
    size_t n_tensors;
};

int gguf_open(struct arena *a, const struct st_source *source, struct gguf *out, struct err *err);
void gguf_close(struct gguf *g); /* zeroed is fine */
/* Whether a file begins as one. */
bool gguf_is(const struct st_source *source);

/* NULL when absent. */
const struct gguf_value *gguf_get(const struct gguf *g, struct str key);
/* False when the value is NULL or of another kind. Numbers of any width count; a bool is 0 or 1. */
bool gguf_to_int(const struct gguf_value *v, int64_t *out);
bool gguf_to_num(const struct gguf_value *v, double *out);
bool gguf_to_str(const struct gguf_value *v, struct str *out);
/* The elements of an array, one after the other: at begins at 0. False behind the last, and for what is no array. */
bool gguf_next(const struct gguf_value *array, uint64_t *at, struct gguf_value *out);

#endif
