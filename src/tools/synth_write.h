/* A made-up model as a folder on disk: config, safetensors, and the built-in model's tokenizer. */
#ifndef MLXCEL_TOOLS_SYNTH_WRITE_H
#define MLXCEL_TOOLS_SYNTH_WRITE_H

#include "base/str.h"

struct synth_write_options {
    struct str shape;
    int32_t n_layers; /* 0: all */
    int32_t bits;
    bool f16;
    uint64_t seed;
    const char *dir;
    bool (*progress)(void *user, uint64_t done, uint64_t total); /* may be NULL; false: stop */
    void *user;
};

/* The folder must not exist or be empty; it appears when it is complete. */
int synth_write(const struct synth_write_options *options, struct err *err);

#endif
