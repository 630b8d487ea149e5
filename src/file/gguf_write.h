/* The header of a GGUF file that is written: metadata, then tensors, which get their places in the order in which they are added. */
#ifndef MLXCEL_FILE_GGUF_WRITE_H
#define MLXCEL_FILE_GGUF_WRITE_H

#include "file/gguf.h"

struct gguf_writer {
    struct sb meta, tensors;
    uint64_t n_meta, n_tensors;
    uint64_t data_bytes; /* of the tensors, each filled up to GGUF_ALIGNMENT */
};

enum { GGUF_ALIGNMENT = 32 };

void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, double value);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_put_string(struct gguf_writer *w, const char *key, struct str value);
/* An array: n elements follow by gguf_add_*. */
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_type of, uint64_t n);
void gguf_add_string(struct gguf_writer *w, struct str value);
void gguf_add_i32(struct gguf_writer *w, int32_t value);
void gguf_add_f32(struct gguf_writer *w, float value);

/* shape: the outermost first. Returns where it lies behind the header. */
uint64_t gguf_put_tensor(struct gguf_writer *w, struct str name, const struct block_type *type, int n_dims, const int64_t *shape);
/* The whole header, filled up to where the first tensor begins. */
void gguf_header(const struct gguf_writer *w, struct sb *out);
void gguf_writer_free(struct gguf_writer *w);

#endif
