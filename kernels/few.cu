// Decode steps of two to four rows with quantised weights, of several sequences or of one: a list of instructions in one launch, as kernels/one.cu. For sm_80 and later.
#define ONE_ROWS 4
#include "rows_list.cuh"

static_assert(ONE_ROWS == LIST_FEW, "the host counts with as many");

ROWS_LIST(few_4_64, W4, 64)
ROWS_LIST(few_4_128, W4, 128)
ROWS_LIST(few_48_64, W48, 64)
ROWS_LIST(few_48_128, W48, 128)
