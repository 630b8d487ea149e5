/* The devices of this machine that a model can run on. */
#ifndef MLXCEL_API_MACHINE_H
#define MLXCEL_API_MACHINE_H

#include "base/str.h"

struct machine_device {
    char name[32];         /* "cpu", "cuda:0" */
    char description[224]; /* for people; of one that cannot be used, why */
    bool is_usable;
    uint64_t total_bytes, free_bytes; /* of memory; 0: unknown */
};

/* The CPU is number 0; false behind the last one. Opens the driver of GPUs. */
bool machine_device_get(size_t index, struct machine_device *out);

#endif
