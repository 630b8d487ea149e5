// Pairs of a row of x and one of its choices, sorted by expert: what kernels of many pairs begin with.
#pragma once
#include "common.cuh"

enum { SORT_THREADS = EXPERTS_MAX }; // a thread for each expert

// The sum of x over this thread and those before it; x counts pairs in its low half and tiles in its high one.
static __device__ __forceinline__ uint64_t sum_so_far(uint64_t x, uint64_t *warps) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 1; step < 32; step *= 2) {
        uint64_t before = __shfl_up_sync(FULL, x, step);
        if (lane >= step) x += before;
    }
    if (lane == 31) warps[warp] = x;
    __syncthreads();
    for (int w = 0; w < warp; w++) x += warps[w];
    return x;
}

// Pairs by expert, and the tiles of all experts, of at most tile_pairs: tiles[0] of them, then (expert, first pair, pairs) of each. A thread has
// an expert. The order of an expert's pairs is by chance; no result depends on it. Pairs with experts of other ranks have no place.
static __device__ __forceinline__ int expert_of(const k_experts &a, int pair) {
    int row = pair / a.k, e = a.ids[row * (int)a.ids_stride + pair - row * a.k] - a.first;
    return (unsigned)e < (unsigned)a.n_experts ? e : -1;
}
static __device__ __forceinline__ void sort_pairs(const k_experts &a) {
    __shared__ int count[SORT_THREADS], place[SORT_THREADS];
    __shared__ uint64_t warps[SORT_THREADS / 32];
    int n_pairs = a.x.rows * a.k, t = threadIdx.x, most = a.tile_pairs;
    count[t] = 0;
    __syncthreads();
    for (int i = t; i < n_pairs; i += SORT_THREADS) {
        int e = expert_of(a, i);
        if (e >= 0) atomicAdd(&count[e], 1);
    }
    __syncthreads();
    int mine = count[t], n_tiles = (mine + most - 1) / most, each = n_tiles ? (mine + n_tiles - 1) / n_tiles : 0;
    each = each + 7 < most ? (each + 7) / 8 * 8 : most; // tiles of about the same size
    uint64_t end = sum_so_far((uint64_t)n_tiles << 32 | (uint32_t)mine, warps);
    int at = (int)(uint32_t)end - mine, n = (int)(end >> 32) - n_tiles;
    place[t] = at;
    for (int i = 0, first = 0; i < n_tiles; i++, n++, first += each) {
        a.tiles[1 + 3 * n] = t, a.tiles[2 + 3 * n] = at + first, a.tiles[3 + 3 * n] = mine - first < each ? mine - first : each;
    }
    if (t == SORT_THREADS - 1) a.tiles[0] = (int)(end >> 32);
    __syncthreads();
    for (int i = t; i < n_pairs; i += SORT_THREADS) {
        int e = expert_of(a, i), to = e >= 0 ? atomicAdd(&place[e], 1) : -1;
        if (e >= 0) a.pairs[to] = i;
        a.places[i] = to;
    }
}
