// Lists as in kernels/one_mixed.cu over a cache of 8 bits. For sm_80 and later.
#define ONE_MIXED
#include "one8.cu"

ONE(one8_mixed_64, WGE, LIST_WARPS, 64)
