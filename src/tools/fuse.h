/* Adapters added to the weights of a model: a new folder that needs them no more. */
#ifndef MLXCEL_TOOLS_FUSE_H
#define MLXCEL_TOOLS_FUSE_H

#include "tools/quantize.h"

struct fuse_adapter {
    const char *path;
    float scale;
};

struct fuse_options {
    const char *source, *target;
    const struct fuse_adapter *adapters;
    int32_t n_adapters;
    const char *surgery; /* a file of edits (surgery.h); NULL: none */
    bool dequantize;     /* everything plain; else matrices that were quantised are quantised again in their own format */
    bool (*progress)(void *user, uint64_t done, uint64_t total); /* as in quantize_options */
    void *user;
};

struct fuse_result {
    uint64_t target_bytes;
    size_t n_fused; /* matrices */
};

int fuse_run(const struct fuse_options *options, struct fuse_result *out, struct err *err);

#endif
