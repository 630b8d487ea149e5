/* AVX2 with FMA and F16C: panels of plain weights by multiply-adds of eight rows. */
#include "backend/cpu/kern_avx2.h"

enum { SUMS = 8, ROWS_MAX = 4 };

#include "backend/cpu/kern_plain_tmpl.h"

void kern_avx2_plain(struct kernels *k) {
    fill_plain_kernels(k);
}
