// Lists of one row (kernels/one.cu) with experts of mxfp4, in short groups or with biases, beside other weights of 4 and 8 bits. For sm_80 and later.
#define ONE_MIXED
#include "one.cu"

ONE(one_mixed_64, WGE, LIST_WARPS, 64)
