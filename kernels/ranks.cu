// What ranks do together: sums of the parts that they have, and parts behind each other. Every rank launches the same kernels in the same order, each on
// its own GPU or all on one; a block works with the blocks of the same number on the other ranks and waits for those alone.
//
// A rank's numbers reach the others through desks (layout.h): memory of each rank that all others can read and write, over NVLink or PCIe, or memory of the
// host where GPUs cannot. A round is one exchange; rounds count from 1 on over all launches (a.rounds). What a rank puts on a desk in round i lies there until
// round i + 2: who begins round i + 2 has seen all others begin round i + 1, and they did so when their kernels of round i had ended.
//
// Sums are formed in the order of ranks: all get the same bits, and the same ones every time.
#include "common.cuh"

// ---- words that ranks see of each other ----

#ifdef MLXCEL_EMULATE
static inline void store_word(uint64_t *p, uint64_t x) { __atomic_store_n(p, x, __ATOMIC_RELEASE); }
static inline uint64_t load_word(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline void store_flag(uint32_t *p, uint32_t x) { __atomic_store_n(p, x, __ATOMIC_RELEASE); }
static inline uint32_t load_flag(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
static inline float load_shown(const float *p) { return *p; }
static inline void show_all() {}
static inline void pause() { emu_pause(); }
enum { LOOKS_MAX = 1 << 22 };
#else
static __device__ __forceinline__ void store_word(uint64_t *p, uint64_t x) { asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(x) : "memory"); }
static __device__ __forceinline__ uint64_t load_word(const uint64_t *p) {
    uint64_t x;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(x) : "l"(p) : "memory");
    return x;
}
static __device__ __forceinline__ void store_flag(uint32_t *p, uint32_t x) { asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
static __device__ __forceinline__ uint32_t load_flag(const uint32_t *p) {
    uint32_t x;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    return x;
}
// Past the caches: another GPU has written it.
static __device__ __forceinline__ float load_shown(const float *p) {
    float x;
    asm volatile("ld.relaxed.sys.global.f32 %0, [%1];" : "=f"(x) : "l"(p) : "memory");
    return x;
}
static __device__ __forceinline__ void show_all() { __threadfence_system(); }
static __device__ __forceinline__ void pause() {}
enum { LOOKS_MAX = 1 << 25 }; // half a minute over PCIe: a rank may be late, but it comes, or its process says that it will not
#endif
enum { LOOKS_ASK = 1 << 10 };

// Whether to wait on. Nobody waits for ever: the host of a rank that has failed sets the word, and so does who has waited too long.
static __device__ __forceinline__ bool waits_on(const uint32_t *counters, int looks) {
    volatile uint32_t *gave_up = *(volatile uint32_t *const *)(counters + COUNTERS_HOST);
    if (looks >= LOOKS_MAX) *gave_up = 1;
    return *gave_up == 0;
}

// ---- desks ----

static __device__ __forceinline__ uint32_t *flag_at(unsigned char *desk, int rank, int block) {
    return (uint32_t *)(desk + DESK_FLAGS) + rank * DESK_BLOCKS + block;
}
static __device__ __forceinline__ uint64_t *word_at(unsigned char *desk, uint32_t round, int rank, int64_t i) {
    return (uint64_t *)(desk + DESK_WORDS) + ((round % 2) * RANKS_MAX + rank) * (int64_t)DESK_FEW + i;
}
static __device__ __forceinline__ float *slot_at(unsigned char *desk, uint32_t round, int block) {
    return (float *)(desk + DESK_SLOTS) + ((int64_t)(round % 2) * DESK_BLOCKS + block) * DESK_SLOT;
}

// The round before the first of this launch. The last block to leave counts the launch's rounds.
static __device__ __forceinline__ void leave(const k_ranks &a, uint32_t n_rounds) {
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (atomicAdd(a.rounds + 1, 1u) != gridDim.x - 1) return;
    a.rounds[1] = 0;
    a.rounds[0] += n_rounds;
}

// What this block has put into its own slot is shown to all, and so is theirs to it.
static __device__ __forceinline__ void meet(const k_ranks &a, uint32_t round) {
    show_all();
    __syncthreads();
    int r = threadIdx.x;
    if (r < a.n) {
        store_flag(flag_at(a.desks[r], a.rank, blockIdx.x), round);
        const uint32_t *flag = flag_at(a.desks[a.rank], r, blockIdx.x);
        for (int looks = 1; (int32_t)(load_flag(flag) - round) < 0 && (looks % LOOKS_ASK || waits_on(a.counters, looks)); looks++) pause();
    }
    __syncthreads();
}

// A number to every desk, with the round's number in the same word: who finds that has the number.
static __device__ __forceinline__ void tell(const k_ranks &a, uint32_t round, int64_t i, uint32_t x) {
    for (int r = 0; r < a.n; r++) store_word(word_at(a.desks[r], round, a.rank, i), (uint64_t)round << 32 | x);
}
static __device__ __forceinline__ uint32_t hear(const k_ranks &a, uint32_t round, int rank, int64_t i) {
    const uint64_t *p = word_at(a.desks[a.rank], round, rank, i);
    uint64_t x = load_word(p);
    for (int looks = 1; (uint32_t)(x >> 32) != round && (looks % LOOKS_ASK || waits_on(a.counters, looks)); looks++) pause(), x = load_word(p);
    return (uint32_t)x;
}

// ---- sums ----

// Up to DESK_FEW numbers, as decode steps have: one trip to the others.
extern "C" __global__ void __launch_bounds__(RANKS_THREADS) ranks_sum_few(KARGS(k_ranks) a) {
    uint32_t round = a.rounds[0] + 1;
    int first = blockIdx.x * RANKS_THREADS + threadIdx.x, all = gridDim.x * RANKS_THREADS;
    for (int i = first; i < a.total; i += all) tell(a, round, i, __float_as_uint(a.in[i]));
    for (int i = first; i < a.total; i += all) {
        float sum = __uint_as_float(hear(a, round, 0, i));
        for (int r = 1; r < a.n; r++) sum += __uint_as_float(hear(a, round, r, i));
        a.out[i] = sum;
    }
    leave(a, 1);
}

// Any number of them, DESK_SLOT for each block in a round.
extern "C" __global__ void __launch_bounds__(RANKS_THREADS) ranks_sum_many(KARGS(k_ranks) a) {
    uint32_t before = a.rounds[0], n_rounds = (uint32_t)a.n_rounds;
    for (uint32_t k = 1; k <= n_rounds; k++) {
        int64_t first = ((int64_t)(k - 1) * gridDim.x + blockIdx.x) * DESK_SLOT;
        int n = (int)(a.total - first < DESK_SLOT ? a.total - first : DESK_SLOT);
        float *own = slot_at(a.desks[a.rank], before + k, blockIdx.x);
        for (int i = threadIdx.x; i < n; i += RANKS_THREADS) own[i] = a.in[first + i];
        meet(a, before + k);
        for (int i = threadIdx.x; i < n; i += RANKS_THREADS) {
            float sum = load_shown(slot_at(a.desks[0], before + k, blockIdx.x) + i);
            for (int r = 1; r < a.n; r++) sum += load_shown(slot_at(a.desks[r], before + k, blockIdx.x) + i);
            a.out[first + i] = sum;
        }
    }
    leave(a, n_rounds);
}

// ---- parts behind each other ----

// [rows, whole] of parts [rows, width of each rank]. First all hear how wide the parts are.
extern "C" __global__ void __launch_bounds__(RANKS_THREADS) ranks_gather(KARGS(k_ranks) a) {
    __shared__ int64_t starts[RANKS_MAX + 1];
    uint32_t before = a.rounds[0], n_rounds = (uint32_t)a.n_rounds;
    if (threadIdx.x == 0) {
        if (blockIdx.x == 0) tell(a, before + 1, 0, (uint32_t)a.width);
        starts[0] = 0;
        for (int r = 0; r < a.n; r++) starts[r + 1] = starts[r] + hear(a, before + 1, r, 0);
    }
    __syncthreads();
    int64_t from = starts[a.rank], to = starts[a.rank + 1];
    int a_row = (int)((a.whole + DESK_SLOT - 1) / DESK_SLOT); // slots of a row
    for (uint32_t k = 1; k <= n_rounds; k++) {
        int slot = (int)(k - 1) * gridDim.x + blockIdx.x, row = slot / a_row, first = slot % a_row * DESK_SLOT;
        int n = slot < a.total ? (int)(a.whole - first < DESK_SLOT ? a.whole - first : DESK_SLOT) : 0;
        float *own = slot_at(a.desks[a.rank], before + k, blockIdx.x);
        for (int i = threadIdx.x; i < n; i += RANKS_THREADS)
            if (first + i >= from && first + i < to) own[i] = a.in[row * a.in_stride + first + i - from];
        meet(a, before + k);
        for (int i = threadIdx.x, r = 0; i < n; i += RANKS_THREADS) {
            while (r + 1 < a.n && first + i >= starts[r + 1]) r++;
            a.out[row * a.out_stride + first + i] = load_shown(slot_at(a.desks[r], before + k, blockIdx.x) + i);
        }
    }
    leave(a, n_rounds);
}
