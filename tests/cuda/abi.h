/* The comparison of our declarations of the driver's interface with NVIDIA's: rows made from abi.def on both sides. */
#ifndef MLXCEL_TESTS_CUDA_ABI_H
#define MLXCEL_TESTS_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

struct abi_row {
    const char *what;
    int64_t value;
};

extern const struct abi_row abi_ours[], abi_nvidia[]; /* a row without a name ends them; abi_nvidia is empty without cuda.h */

#endif
