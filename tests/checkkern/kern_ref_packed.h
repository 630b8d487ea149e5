/* The packed kernels in plain C: what quant_row and panel of every instruction set are held against. */
#ifndef MLXCEL_TESTS_KERN_REF_PACKED_H
#define MLXCEL_TESTS_KERN_REF_PACKED_H

#include "backend/cpu/kern.h"

void kern_ref_packed(struct kernels *k);

#endif
