// Lists of one row (kernels/one.cu) of models that norm what a product made before it is added to the residual, or that have heads of 256. Weights of 4 bits in groups of 64 or more.
// For sm_80 and later.
//
// Such a norm needs no instruction. The next product reads what the one before made, and the residual, and every block adds them up as it makes its x; one block for each unit stores
// the sum for the product that adds to it next. That is a meeting of the block's warps more, where another instruction would be a trip of all results through L2.
#define ONE_POST
#include "one.cu"

ONE(one_post_64, W4P, LIST_WARPS, 64)
ONE(one_post_128, W4P, LIST_WARPS, 128)
ONE(one_post_256, W4P, LIST_WARPS, 256)
