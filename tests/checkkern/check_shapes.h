/* tests/shapes.list: dimensions of real models. */
#ifndef MLXCEL_TESTS_CHECK_SHAPES_H
#define MLXCEL_TESTS_CHECK_SHAPES_H

#include "base/str.h"

struct check_shape {
    struct str name;
    int64_t out, in;
};

/* The list, from the folder where the program runs or from the source folder; ends the program where it is not there. */
const struct check_shape *check_shapes(struct arena *a, int32_t *out_n);

#endif
