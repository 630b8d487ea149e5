// What passes between a part of a decode step and other devices: some values of some kilobytes, in the host's memory. Stopped by one trip over the bus.
#include "common.cuh"

static __device__ __forceinline__ void copy_value(const void *from, void *to, int64_t bytes) {
    int64_t n = bytes / 16;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) ((uint4 *)to)[i] = ((const uint4 *)from)[i];
    for (int64_t i = n * 4 + threadIdx.x; i < bytes / 4; i += blockDim.x) ((uint32_t *)to)[i] = ((const uint32_t *)from)[i];
}

// A block for each value.
extern "C" __global__ void __launch_bounds__(256) pass_in(KARGS(k_pass) a) {
    after_previous();
    copy_value(a.of[blockIdx.x].from, a.of[blockIdx.x].to, a.of[blockIdx.x].bytes);
}

// One block: who finds the word counted up finds the values.
extern "C" __global__ void __launch_bounds__(1024) pass_out(KARGS(k_pass) a) {
    after_previous();
    for (int i = 0; i < a.n; i++) copy_value(a.of[i].from, a.of[i].to, a.of[i].bytes);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x) return;
    *a.count += 1;
    *a.done = *a.count;
}
