// What the start-up check of a device runs: a kernel whose result shows that images, launches, shared memory and copies work.
#include "device.cuh"

// out[i] = a * in[i] + (sum of the block's indices), so that a wrong launch shape shows in every element.
extern "C" __global__ void probe_axpy(const float *in, float a, float *out, int64_t n) {
    __shared__ float sums[32];
    float sum = block_sum((float)threadIdx.x, sums);
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = fmaf(a, in[i], sum);
}

// One word that says which code is running: 10 * capability of the image.
extern "C" __global__ void probe_arch(int *out) {
#if defined(__CUDA_ARCH__)
    if (threadIdx.x == 0) *out = __CUDA_ARCH__;
#endif
}
