/* Sets of kernels whose instructions this processor may not have, in plain C. */
#ifndef MLXCEL_TESTS_KERN_IN_C_H
#define MLXCEL_TESTS_KERN_IN_C_H

#include "backend/cpu/kern.h"

void kern_avxvnni_in_c(struct kernels *k); /* over kern_avx2 */
void kern_tiles_in_c(struct kernels *k);   /* over kern_vnni and kern_vnni_nested */

#endif
