// Lists of one row (kernels/one.cu) with latent attention and experts. For sm_80 and later.
#define ONE_LATENT
#include "one.cu"

ONE(one_latent, W4E, LIST_WARPS, 64)
