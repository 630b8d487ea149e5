/* AVX-512: panels of plain weights by multiply-adds of sixteen rows. */
#include "backend/cpu/kern_avx512.h"

enum { SUMS = 16, ROWS_MAX = 8 };

#include "backend/cpu/kern_plain_tmpl.h"

void kern_avx512_plain(struct kernels *k) {
    fill_plain_kernels(k);
}
