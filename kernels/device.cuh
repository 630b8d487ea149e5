// What kernels use more than once. C-like CUDA: templates over types and sizes, no classes, no library.
#pragma once
#include <stdint.h>

// The sum over a block, in every thread. scratch has room for 32 floats; blockDim.x is a multiple of 32, at most 1,024.
static __device__ __forceinline__ float block_sum(float x, float *scratch) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    float total = lane < n_warps ? scratch[lane] : 0.0f;
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    __syncthreads();
    return total;
}
