// Attention of a decode row whose positions are runs, each of a block of its own: what the blocks made of their runs becomes results, of lists (kernels/one.cu, few.cu, one8.cu).
//
// A block's part of a head is D + 2 tagged words (sync.cuh): results, the largest score, the sum of weights. Every block of the runs stores its parts and joins some slices of the results, of
// 32 elements each, by a warp that asks for all parts at once. So nobody counts, and the join is one trip through L2. Where blocks may not wait for each other, the last of
// them to come joins all slices, in the same order.
#pragma once
#include "soft.cuh"

// Parts of an item's heads: [heads][splits][D + 2].
template <int D, class KNOWN> static __device__ __forceinline__ uint64_t *parts_of_item(const k_step_attn &a, const KNOWN *known) {
    int head = known->row * a.group * a.c.heads + known->part.kv_head * a.group + known->part.first;
    return (a.part_link ? a.part_link : (uint64_t *)a.partial) + (int64_t)head * a.splits * (D + 2);
}

// Element i of an item's head h, by all lanes of a warp, which have elements beside each other.
template <int D, class KNOWN> static __device__ __forceinline__ void store_element(const k_step_attn &a, const KNOWN *known, int h, int i, softened s, uint32_t tag) {
    int n_heads = a.group * a.c.heads, head = known->part.kv_head * a.group + known->part.first + h, at = head * D + i;
    if (a.sinks) add_sink(s, a.sinks[head]);
    float x = __fdividef(s.x, s.sum), next = __shfl_down_sync(FULL, x, 1);
    if (a.y) store_f32(a.y, a.y_dtype, known->row * a.y_row + at, x);
    at += known->row * n_heads * D;
    if (!a.y_link) return;
    if (a.y_dtype == K_F32) store_tagged(a.y_link + at, __float_as_uint(x), tag);
    else if (i % 2 == 0) store_tagged(a.y_link + at / 2, pack_bf16(x, next), tag);
}

// This lane's element i of n parts of a head. Those of 16 runs are asked for at once, again and again until all are there.
template <int D> static __device__ __forceinline__ softened join_parts(const uint64_t *parts, int n, int i, uint32_t tag, bool waits, uint32_t *count) {
    enum { AT_ONCE = 16 };
    int lane = threadIdx.x % 32;
    softened s = {0, -INFINITY, 0};
#pragma unroll 1
    for (int first = 0; first < n; first += AT_ONCE, parts += AT_ONCE * (D + 2)) {
        uint2 x[AT_ONCE];
        uint4 of; // of part `lane`: the largest score, and the sum
        bool there;
        int polls = 0, here = n - first;
        do {
            of = uint4{__float_as_uint(-INFINITY), tag, 0, tag};
            if (lane < AT_ONCE && lane < here) of = load_tagged2(parts + lane * (D + 2) + D);
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                x[j] = uint2{0, tag};
                if (j < here) x[j] = load_tagged(parts + j * (D + 2) + i);
            }
            there = of.y == tag && of.w == tag;
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) there = there && x[j].y == tag;
        } while (waits && !in_all_lanes(there) && !(is_long(++polls) && gave_up(count, polls)));
        float max = __uint_as_float(of.x), top = fmaxf(s.max, warp_max(max)), base = top == -INFINITY ? 0.0f : top;
        float factor = exp2f(max - base), keep = exp2f(s.max - base);
        s.max = top;
        s.sum = s.sum * keep + warp_sum(__uint_as_float(of.z) * factor);
        s.x *= keep;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) s.x = fmaf(__uint_as_float(x[j].x), __shfl_sync(FULL, factor, j), s.x);
    }
    return s;
}

// All threads come here when their block has stored its parts.
template <int D, class KNOWN> static __device__ __forceinline__ void join_runs(const k_step_attn &a, KNOWN *known, uint32_t tag, uint32_t *count) {
    const part_of part = known->part;
    const uint64_t *parts = parts_of_item<D>(a, known);
    bool waits = a.part_link != NULL;
    int first = part.split, step = part.splits;
    if (!waits) {
        int counter = known->row * a.group * a.c.heads + part.kv_head * a.group + part.first;
        if (!is_last_block(a.counters + counter, part.splits, &known->last)) return;
        first = 0, step = 1;
    }
#pragma unroll 1
    for (int slice = first + (int)threadIdx.x / 32 * step; slice < part.n * (D / 32); slice += (int)blockDim.x / 32 * step) {
        int h = slice / (D / 32), i = slice % (D / 32) * 32 + (int)threadIdx.x % 32;
        softened s = join_parts<D>(parts + h * part.splits * (D + 2), part.splits, i, tag, waits, count);
        store_element<D>(a, known, h, i, s, tag);
    }
}
