/* Plain NEON: the float kernels at four lanes. */
#include "backend/cpu/kern_neon.h"

enum { CHAINS = 4, SCORE_HEADS = 8, SCORE_SUMS = 16, MIX_HEADS = 8 };

#include "backend/cpu/kern_tmpl.h"

void kern_neon(struct kernels *k) {
    fill_float_kernels(k);
    k->isa = "neon";
}
