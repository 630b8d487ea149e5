/* NEON: panels of plain weights by multiply-adds of four rows. */
#include "backend/cpu/kern_neon.h"

enum { SUMS = 16, ROWS_MAX = 4 };

#include "backend/cpu/kern_plain_tmpl.h"

void kern_neon_plain(struct kernels *k) {
    fill_plain_kernels(k);
}
