#ifndef MLXCEL_TESTS_KERN_TILES_IN_C_H
#define MLXCEL_TESTS_KERN_TILES_IN_C_H

#include "backend/cpu/kern.h"

void kern_tiles_in_c(struct kernels *k); /* over kern_vnni and kern_vnni_nested */

#endif
