/* What a model is, from its headers and config alone: no weight is read. */
#ifndef MLXCEL_TOOLS_INSPECT_H
#define MLXCEL_TOOLS_INSPECT_H

#include "base/str.h"
#include "vision/vision.h"

struct inspect_tensor {
    struct str name;
    const char *dtype;
    int n_dims;
    const int64_t *shape; /* [n_dims] */
    uint64_t bytes;
};

struct inspect {
    const char *path;
    bool has_config;                /* else what only config.json says is unknown: packed values cannot be told from plain ones */
    struct str model_type;          /* {NULL, 0}: unknown */
    uint64_t parameters;            /* weights as the model sees them: packed values unpacked, scales and biases not counted */
    const char *quant_mode;         /* NULL: not quantised */
    bool has_tower;                 /* for pictures */
    const char *tower;              /* its name; NULL: it is not run here */
    struct vision_outline pictures; /* its sizes, where there is a name; without layers: `no_pictures` says why pictures are not taken */
    struct err no_pictures;
    bool is_known;                   /* this program runs the type */
    int64_t quant_bits, quant_group; /* 0: not stated */
    size_t n_quant_overrides;        /* paths with a format of their own */
    struct inspect_tensor *tensors;  /* [n_tensors], by file and place */
    size_t n_tensors, n_shards;
    uint64_t weights_bytes;
    int64_t context; /* 0: unknown */
    bool has_kv;
    uint64_t kv_bytes; /* keys and values of one sequence over the whole context, in bfloat16 */
    int64_t n_layers, n_heads, n_kv_heads, head_dim, hidden, vocab; /* 0: unknown */
};

/* path NULL: the built-in model. Everything lives in the arena. */
int inspect_model(struct arena *a, const char *path, struct inspect *out, struct err *err);

/* The CPU's name, its threads and instruction sets, and where each kernel comes from. */
void inspect_kernels(struct sb *out);

#endif
