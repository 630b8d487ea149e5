/* The GPU's kernels against the CPU's reference. */
#ifndef MLXCEL_TESTS_CHECK_CUDA_H
#define MLXCEL_TESTS_CHECK_CUDA_H

#include <stdbool.h>
#include <stdint.h>

extern bool check_verbose; /* print cases that pass, too */

/* The i-th of every n cases: several processes share the work. */
struct check_part {
    int32_t i, n;
};

/* Cases whose name contains `only` (NULL: all); quick: fewer and smaller. The number of the exit status. */
int check_cuda(const char *only, bool quick, struct check_part part);
/* Every kernel that can run a product, timed on products of real models; JSON. */
int sweep_cuda(const char *only, bool quick);
/* The default precision of the CPU on the products of tests/shapes.list. */
int check_cpu_shapes(const char *only);

#endif
