// Lists of quantised weights (kernels/one.cu) for two to LIST_ROWS rows, of several sequences or of one. For sm_80 and later.
#define ONE_ROWS 4
#include "one.cu"

static_assert(ONE_ROWS == LIST_ROWS, "the host counts with as many");

ONE(few_4_64, W4, LIST_WARPS, 64)
ONE(few_4_128, W4, LIST_WARPS, 128)
ONE(few_48_64, W48, LIST_WARPS, 64)
ONE(few_48_128, W48, LIST_WARPS, 128)
