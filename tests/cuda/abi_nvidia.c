/* NVIDIA's side: the same rows from cuda.h where a toolkit is installed, and a check that each function of driver.def has exactly the
 * signature that cuda.h declares for its symbol. A difference there does not compile. */
#include "abi.h"

#ifdef HAVE_CUDA_H
#include <cuda.h>

typedef unsigned long long CUflags64;

#define CUDA_FN(need, since, name, symbol, arguments) \
    _Static_assert(_Generic(&symbol, CUresult(CUDAAPI *) arguments : 1, default : 0), #symbol " has another signature in cuda.h");
#include "backend/cuda/device/driver.def"
#undef CUDA_FN

const struct abi_row abi_nvidia[] = {
#include "abi_rows.inc"
    {NULL, 0}};
#else
const struct abi_row abi_nvidia[] = {{NULL, 0}};
#endif
