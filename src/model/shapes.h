/* Dimensions of well-known checkpoints: what `synth` and `--shape` make up models from. */
#ifndef MLXCEL_MODEL_SHAPES_H
#define MLXCEL_MODEL_SHAPES_H

#include "base/str.h"

/* What a layer consists of where it is not the usual block: tensors, with ".weight" behind the names of matrices and norms. */
enum {
    PART_NORM = 1,     /* a norm's weight of `in` elements */
    PART_VECTOR = 2,   /* `in` elements by their bare name */
    PART_BIAS = 4,     /* a matrix has a bias */
    PART_PLAIN = 8,    /* a matrix is never quantised */
    PART_MXFP4 = 16,   /* a matrix is stored like that whatever the bits are */
    PART_EXPERTS = 32, /* one for each expert, in one tensor */
    PART_FIRST = 64,   /* only in the first, dense layers */
    PART_REST = 128    /* only behind them */
};
struct shape_part {
    const char *name;
    int32_t out, in;
    uint32_t flags;
};

struct model_shape {
    const char *name, *type;
    int32_t layers, hidden, inner, heads, kv_heads, head_dim, vocab, context;
    float theta;
    bool tied, head_norms;
    const char *rope_scaling; /* JSON, or NULL */
    struct {
        int32_t n, used, inner;
    } experts;                      /* in place of the dense block, if n is not 0 */
    const struct shape_part *parts; /* of a layer; the last has no name. NULL: the usual block */
    const char *config;             /* further members of config.json, or NULL */
    int32_t dense_layers;           /* in front of those with experts */
    bool norms_add_one;
};

extern const struct model_shape model_shapes[];
extern const int32_t model_n_shapes;

/* NULL and an error that lists all names when there is none. */
const struct model_shape *model_shape_find(struct str name, struct err *err);

#endif
