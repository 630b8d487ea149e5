// Between the blocks of one launch: tagged words, a barrier, a count of those that are done, and weights on their way to L2. The emulator runs
// block after block, so that nobody can wait there: every instruction is a launch of its own.
//
// A tagged word is a result and, above it, the tag of the step that made it, written in one piece: who finds the tag has the result, without
// a barrier, a fence or a second trip to L2.
//
// Waits end. One that lasts POLLS_MAX trips to L2, about a second (Windows resets a GPU after two), is for a block that is not on the GPU beside
// the others: a fault of ours, or somebody keeps multiprocessors for himself. Who finds that goes on with what is there, all others follow, and
// the launch ends; the host has a word for it.
#pragma once
#include "common.cuh"

// Compute capabilities 8.6, 8.9 and 12.x have 99 KB of shared memory for a block: rings of weights are shorter, which is enough for the quarter of
// bandwidth that a multiprocessor has there. Tests have the same on other GPUs. The host goes by the size (cuda_has_small_shared).
#if defined(MLXCEL_SMALL_SHARED) || (defined(__CUDA_ARCH__) && (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200))
#define SMALL_SHARED 1
#else
#define SMALL_SHARED 0
#endif

#ifdef MLXCEL_EMULATE
enum { POLLS_MAX = 4, POLLS_LOOK = 2 };
#else
enum { POLLS_MAX = 1 << 21, POLLS_LOOK = 1 << 10 };
#endif

// Polls are counted, and gave_up is asked now and then. It is out of line: code inside a wait is code between a result and what is made of it.
static __device__ __forceinline__ bool is_long(int polls) {
    return polls % POLLS_LOOK == 0;
}
static __device__ __noinline__ bool gave_up(uint32_t *count, int polls) {
    volatile uint32_t *flag = count + COUNTERS_GAVE_UP;
    if (polls >= POLLS_MAX) {
        *flag = 1;
        **(volatile uint32_t *const *)(count + COUNTERS_HOST) = 1;
    }
    return *flag != 0;
}

#ifdef MLXCEL_EMULATE
static inline void grid_barrier(uint32_t *, uint32_t) {}
static inline bool grid_leave(uint32_t *count, uint32_t tags) {
    if (threadIdx.x || blockIdx.x != gridDim.x - 1) return false;
    count[COUNTERS_TAG] += tags;
    return true;
}
static inline void prefetch_lines(const void *, int64_t) {}
static inline void prefetch_line(const void *) {}
static inline uint32_t count_around(uint32_t *p, uint32_t last) {
    uint32_t old = *p;
    *p = old >= last ? 0 : old + 1;
    return old;
}
static inline void store_tagged(uint64_t *p, uint32_t x, uint32_t tag) {
    *p = (uint64_t)tag << 32 | x;
}
static inline uint2 load_tagged(const uint64_t *p) {
    return uint2{(uint32_t)*p, (uint32_t)(*p >> 32)};
}
static inline uint4 load_tagged2(const uint64_t *p) {
    uint2 a = load_tagged(p), b = load_tagged(p + 1);
    return uint4{a.x, a.y, b.x, b.y};
}
static inline void order_stores() {}
static inline void store_words(void *p, uint2 x) {
    memcpy(p, &x, sizeof x);
}
static inline void store_words(void *p, uint4 x) {
    memcpy(p, &x, sizeof x);
}
static inline uint2 load_words2(const void *p) {
    uint2 x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline uint4 load_words4(const void *p) {
    uint4 x;
    memcpy(&x, p, sizeof x);
    return x;
}
static inline bool in_all_lanes(bool x) {
    int all = x;
    for (int step = 16; step > 0; step /= 2) all &= __shfl_xor_sync(FULL, all, step);
    return all;
}
static inline float load_shared_by_blocks(const float *p) {
    return *p;
}
static inline float2 load_two_by_blocks(const float *p) {
    return float2{p[0], p[1]};
}
#else

// Waits until `arrivals` blocks have come here since the launch began; what they wrote before is then visible to all.
static __device__ __forceinline__ void grid_barrier(uint32_t *count, uint32_t arrivals) {
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(count) : "memory");
        uint32_t now;
        int polls = 0;
        do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(count) : "memory");
        while ((int32_t)(now - arrivals) < 0 && !(is_long(++polls) && gave_up(count, polls)));
    }
    __syncthreads();
}

// The last block to leave sets both counters back for the next launch, whose tags are others. True in its first thread.
static __device__ __forceinline__ bool grid_leave(uint32_t *count, uint32_t tags) {
    if (threadIdx.x || atomicAdd(count + 1, 1u) != gridDim.x - 1) return false;
    count[0] = count[1] = 0;
    count[COUNTERS_TAG] += tags;
    return true;
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

static __device__ __forceinline__ void prefetch_line(const void *p) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// Counts to `last`, then from 0 again. What the block wrote before its threads met is visible to who counts after it.
static __device__ __forceinline__ uint32_t count_around(uint32_t *p, uint32_t last) {
    uint32_t old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(last) : "memory");
    return old;
}

static __device__ __forceinline__ void store_tagged(uint64_t *p, uint32_t x, uint32_t tag) {
    uint64_t word = (uint64_t)tag << 32 | x;
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(word) : "memory");
}
// A word: its result and its tag. Two words beside each other, the first at a multiple of 16 bytes.
static __device__ __forceinline__ uint2 load_tagged(const uint64_t *p) {
    uint64_t v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return uint2{(uint32_t)v, (uint32_t)(v >> 32)};
}
static __device__ __forceinline__ uint4 load_tagged2(const uint64_t *p) {
    uint64_t v, w;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0,%1}, [%2];" : "=l"(v), "=l"(w) : "l"(p) : "memory");
    return uint4{(uint32_t)v, (uint32_t)(v >> 32), (uint32_t)w, (uint32_t)(w >> 32)};
}
// Words without tags, for other blocks: each pair is written in one piece, and read in one.
static __device__ __forceinline__ void store_words(void *p, uint2 x) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"((uint64_t)x.y << 32 | x.x) : "memory");
}
static __device__ __forceinline__ void store_words(void *p, uint4 x) {
    asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(p), "l"((uint64_t)x.y << 32 | x.x), "l"((uint64_t)x.w << 32 | x.z) : "memory");
}
static __device__ __forceinline__ uint2 load_words2(const void *p) {
    return load_tagged((const uint64_t *)p);
}
static __device__ __forceinline__ uint4 load_words4(const void *p) {
    return load_tagged2((const uint64_t *)p);
}
static __device__ __forceinline__ bool in_all_lanes(bool x) {
    return __all_sync(FULL, x);
}

// What the block wrote before is visible to who sees what it writes behind this.
static __device__ __forceinline__ void order_stores() {
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// What other blocks of this launch wrote: past L1.
static __device__ __forceinline__ float load_shared_by_blocks(const float *p) {
    return __ldcg(p);
}
static __device__ __forceinline__ float2 load_two_by_blocks(const float *p) {
    return __ldcg((const float2 *)p);
}
#endif

// A word that is mostly there long before it is asked for.
static __device__ __noinline__ uint32_t wait_tagged(const uint64_t *p, uint32_t tag, uint32_t *count) {
    uint2 word = load_tagged(p);
    for (int polls = 1; word.y != tag && !(is_long(polls) && gave_up(count, polls)); polls++) word = load_tagged(p);
    return word.x;
}

// All threads of a block come here when it has written its part for the others: true in the last of n blocks to come, which sees what all of them wrote, past L1. flag: in shared memory.
static __device__ __forceinline__ bool is_last_block(uint32_t *counter, int n, uint32_t *flag) {
    __syncthreads();
    if (threadIdx.x == 0) *flag = count_around(counter, (uint32_t)n - 1) == (uint32_t)n - 1;
    __syncthreads();
    return *flag != 0;
}
