/* Dimensions of well-known checkpoints: what `synth` and `--shape` make up models from. */
#ifndef MLXCEL_MODEL_SHAPES_H
#define MLXCEL_MODEL_SHAPES_H

#include "base/str.h"

struct model_shape {
    const char *name, *type;
    int32_t layers, hidden, inner, heads, kv_heads, head_dim, vocab, context;
    float theta;
    bool tied, head_norms;
    const char *rope_scaling; /* JSON, or NULL */
    struct {
        int32_t n, used, inner;
    } experts; /* in place of the dense block, if n is not 0 */
};

extern const struct model_shape model_shapes[];
extern const int32_t model_n_shapes;

/* NULL and an error that lists all names when there is none. */
const struct model_shape *model_shape_find(struct str name, struct err *err);

#endif
