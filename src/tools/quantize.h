/* Quantising a checkpoint: a folder of plain weights in, a folder of MLX's packed ones out, the bytes that mlx-lm's converter
 * writes. Matrices of GGUF files, and of folders that another program quantised, are unpacked as they are read.
 *
 * (1) Tensor after tensor in pieces of rows: memory does not depend on the model.
 * (2) Everything is written into a folder beside the target, which gets its name when it is complete.
 * (3) What is quantised: matrices (PATH.weight of two dimensions, experts stacked) whose width is a multiple of the group; not
 *     norms, convolutions, and routers with a correction bias. Other routers keep 8 bits, as mlx-lm has it.
 */
#ifndef MLXCEL_TOOLS_QUANTIZE_H
#define MLXCEL_TOOLS_QUANTIZE_H

#include "tensor/dtype.h"

struct quantize_override {
    struct str glob; /* of paths such as model.layers.0.mlp.down_proj */
    int32_t bits;    /* affine, in the same group where that can be; 16: left plain */
};

struct quantize_options {
    const char *source, *target;
    struct format format;                      /* mode, bits and group; 0 for what the mode usually has */
    const struct quantize_override *overrides; /* the first match counts */
    size_t n_overrides;
    const char *surgery; /* a file of edits that come first (surgery.h); NULL: none */
    /* Bytes read so far and in all; false gives up. May be NULL. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
};

struct quantize_result {
    uint64_t source_bytes, target_bytes;
    double bits_per_weight;
    size_t n_quantized, n_plain; /* tensors */
};

int quantize_run(const struct quantize_options *options, struct quantize_result *out, struct err *err);

#endif
