/* Lists whose products have groups of 16 or 32 elements (kernels/one.cu, the kind WG): sizes on which host and kernel must agree.
 *
 * A unit of 64 elements then has two or four runs of scales and biases, and its size is a matter of the product. A place of a ring holds two units of both tiles of
 * a pair where they fit, else one. Beside the scales of x stand four sums for each unit, of 16 elements each: biases are multiplied with them. */
#ifndef MLXCEL_BACKEND_CUDA_SHARED_LIST_GROUPS_H
#define MLXCEL_BACKEND_CUDA_SHARED_LIST_GROUPS_H

#include "backend/cuda/shared/layout.h"

enum { GROUPS_PLACE = 2560, GROUPS_SUMS = 4, GROUPS_SUMS_BYTES = GROUPS_SUMS * 4 };

/* The largest unit has codes of 8 bits in groups of 16. */
KFN bool groups_place_holds_all(void) {
    return 2 * tile_unit_bytes(8, 16) <= GROUPS_PLACE;
}
KFN int groups_chunk_units(int unit_bytes, bool is_small) {
    return !is_small && 4 * unit_bytes <= GROUPS_PLACE ? 2 : 1;
}

#endif
