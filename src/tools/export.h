/* A model as a GGUF file. Nothing is rounded: plain weights stay what they are, packed ones become a type of GGUF that holds the same numbers (tensor/block.h),
 * and what has none is refused by name. */
#ifndef MLXCEL_TOOLS_EXPORT_H
#define MLXCEL_TOOLS_EXPORT_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct export_options {
    const char *source, *target; /* target: a file that is not there yet */
    /* Bytes written so far and in all; false gives up. May be NULL. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
};

struct export_result {
    size_t n_tensors;
    uint64_t bytes;
};

int export_gguf(const struct export_options *options, struct export_result *out, struct err *err);

#endif
