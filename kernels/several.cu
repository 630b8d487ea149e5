// The same of five to eight rows.
#define ONE_ROWS 8
#include "rows_list.cuh"

static_assert(ONE_ROWS == LIST_ROWS, "the host counts with as many");

ROWS_LIST(several_4_64, W4, 64)
ROWS_LIST(several_4_128, W4, 128)
ROWS_LIST(several_48_64, W48, 64)
ROWS_LIST(several_48_128, W48, 128)
