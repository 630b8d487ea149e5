// Between the blocks of one launch: a barrier, a count of those that are done, and weights on their way to L2. The emulator runs block after
// block, so that it has no barrier: there every instruction is a launch of its own.
#pragma once
#include "common.cuh"

#ifdef MLXCEL_EMULATE
static inline void grid_barrier(uint32_t *, uint32_t) {}
static inline void grid_leave(uint32_t *) {}
static inline void prefetch_lines(const void *, int64_t) {}
static inline uint32_t count_one(uint32_t *p) {
    return (*p)++;
}
static inline float load_shared_by_blocks(const float *p) {
    return *p;
}
#else

// Waits until `arrivals` blocks have come here since the launch began; what they wrote before is then visible to all.
static __device__ __forceinline__ void grid_barrier(uint32_t *count, uint32_t arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
        uint32_t now;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
        while ((int32_t)(now - arrivals) < 0);
    }
    __syncthreads();
}

// The last block to leave sets both counters back for the next launch.
static __device__ __forceinline__ void grid_leave(uint32_t *count) {
    if (threadIdx.x == 0 && atomicAdd(count + 1, 1u) == gridDim.x - 1) count[0] = count[1] = 0;
}

// One warp asks for n bytes, a multiple of 16, from a multiple of 16 on.
static __device__ __forceinline__ void prefetch_lines(const void *from, int64_t n) {
    const unsigned char *p = (const unsigned char *)from;
#if __CUDA_ARCH__ >= 900
    enum { PIECE = 4096 };
    for (int64_t at = threadIdx.x % 32 * (int64_t)PIECE; at < n; at += 32 * PIECE) {
        uint32_t bytes = (uint32_t)(n - at < PIECE ? n - at : PIECE);
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p + at), "r"(bytes));
    }
#else
    for (int64_t at = threadIdx.x % 32 * 128; at < n; at += 32 * 128) asm volatile("prefetch.global.L2 [%0];" ::"l"(p + at));
#endif
}

static __device__ __forceinline__ uint32_t count_one(uint32_t *p) {
    return atomicAdd(p, 1u);
}

// What other blocks of this launch wrote: past L1.
static __device__ __forceinline__ float load_shared_by_blocks(const float *p) {
    return __ldcg(p);
}
#endif
