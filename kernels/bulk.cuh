// Barriers in shared memory, and copies of many bytes that one thread asks for: instructions of sm_90 and later.
//
// A phase of a barrier ends when all have arrived and all bytes that were announced have come.
#pragma once
#include "common.cuh"

#if !defined(MLXCEL_EMULATE) && __CUDA_ARCH__ >= 900
#define HAS_BULK 1

static __device__ __forceinline__ void barrier_init(uint32_t at, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
static __device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
static __device__ __forceinline__ void barrier_expect(uint32_t at, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void barrier_arrive(uint32_t at) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
static __device__ __forceinline__ void barrier_wait(uint32_t at, int phase) {
    uint32_t done;
    do
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(done) : "r"(at), "r"(phase) : "memory");
    while (!done);
}

// What this thread has stored in shared memory may be read by products of a warpgroup and by copies.
static __device__ __forceinline__ void stores_before_products() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Both addresses and the count are multiples of 16.
static __device__ __forceinline__ void copy_bulk(uint32_t to, const void *from, int bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}
#endif
