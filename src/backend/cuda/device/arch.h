/* Compute capabilities and the images that run on them.
 *
 * (1) Machine code for X.y runs on X.z with z >= y, on no other major. (2) Code with the suffix 'a' runs on exactly its own
 * capability. (3) PTX for X.y is compiled by the driver for anything at or above X.y. (4) Chips of the Tegra line (8.7, 8.8,
 * 11.0) do not run the desktop chips' machine code, although the numbers suggest it. Shared with tools/kernelc. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_ARCH_H
#define MLXCEL_BACKEND_CUDA_DEVICE_ARCH_H

#include "base/str.h"

#include <stdbool.h>

struct cuda_arch {
    int number;  /* 10 * major + minor: 75, 90, 120 */
    char suffix; /* 'a', 'f', or 0 */
};

/* "89", "9.0", "90a", "sm_120"; false when it is none. */
bool cuda_arch_parse(struct str text, struct cuda_arch *out);
void cuda_arch_format(struct cuda_arch arch, char out[16]); /* "90a" */

/* Whether machine code for `image` runs on a device. */
bool cuda_arch_runs(struct cuda_arch image, int device);
/* Index of the best of n images for a device (highest number, suffix before none), or -1. */
int cuda_arch_pick(const struct cuda_arch *images, int n, int device);

#endif
