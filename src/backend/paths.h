/* Which kernels a step takes: the share of what it reads that goes through reference rows, of a backend that has several kernels for an op.
 *
 * A reference row is right and slow: it computes one row after the other in f32, and is what is left where no better kernel takes an op's shape.
 * Bytes are those of weights and of the cache; of experts, those that the rows of the step can choose at most. */
#ifndef MLXCEL_BACKEND_PATHS_H
#define MLXCEL_BACKEND_PATHS_H

#include <stdint.h>

enum { STEP_PATHS_MAX = 12 };

struct step_path {
    const char *op, *row; /* of an op, and of the table's row that runs it */
    uint64_t bytes;
};

struct step_paths {
    uint64_t bytes, slow_bytes;
    int32_t n_launches;                    /* of the step; instructions that follow each other are one */
    struct step_path slow[STEP_PATHS_MAX]; /* [n_slow], those of one op and row together; what has no room is only in slow_bytes */
    int32_t n_slow;
};

/* Milliseconds of launches, and of those that reference rows made: of prompt steps and of decode steps. */
struct step_times {
    double prompt[2], decode[2];
};

#endif
