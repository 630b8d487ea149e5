// What both kernels of decode steps have, step.cu and one.cu. HEAD is their shared memory's head, which holds what attention asks for again in
// every layer: blocks of the table from one on, cosines and sines.
#pragma once
#include "mma.cuh"
#include "sync.cuh"

enum { TABLE_MAX = 64, PAIRS_MAX = 128 };

#define LOG2E 1.4426950408889634f

template <class HEAD> static __device__ __forceinline__ int table_block(const k_step_attn &a, const HEAD *known, int i) {
    int at = i - known->first_block;
    if (at >= 0 && at < TABLE_MAX) return known->blocks[at];
    return a.c.table[(int64_t)known->seq * a.c.table_stride + i];
}

// A part of a head, or pairs of neighbours.
template <class HEAD> static __device__ __forceinline__ void rotate_head(const k_step_attn &a, const HEAD *known, float *x) {
    int lane = threadIdx.x % 32, half = a.n_rotated / 2;
    for (int i = lane; i < half; i += 32) {
        float c = known->cosines[i], s = known->sines[i];
        int u = a.rope_first + (a.rope_kind == 1 ? i : 2 * i), v = u + (a.rope_kind == 1 ? half : 1);
        float x0 = x[u], x1 = x[v];
        x[u] = x0 * c - x1 * s;
        x[v] = x1 * c + x0 * s;
    }
    __syncwarp();
}

struct softened {
    float x, max, sum;
};

// Element i of n parts of a softmax, [n][d + 2], in order; OTHERS: other blocks wrote them.
template <bool OTHERS> static __device__ __forceinline__ softened join(const float *from, int n, int d, int i) {
    softened s = {0, -INFINITY, 0};
#pragma unroll 4
    for (int w = 0; w < n; w++) s.max = fmaxf(s.max, OTHERS ? load_shared_by_blocks(from + w * (d + 2) + d) : from[w * (d + 2) + d]);
    float base = s.max == -INFINITY ? 0.0f : s.max;
#pragma unroll 4
    for (int w = 0; w < n; w++) {
        const float *part = from + w * (d + 2);
        float keep = exp2f((OTHERS ? load_shared_by_blocks(part + d) : part[d]) - base);
        s.sum = fmaf(OTHERS ? load_shared_by_blocks(part + d + 1) : part[d + 1], keep, s.sum);
        s.x = fmaf(OTHERS ? load_shared_by_blocks(part + i) : part[i], keep, s.x);
    }
    return s;
}

// One more score, which has no value.
static __device__ __forceinline__ void add_sink(softened &s, float score) {
    float sink = score * LOG2E, top = fmaxf(s.max, sink), keep = exp2f(s.max - top);
    s.sum = s.sum * keep + exp2f(sink - top);
    s.x *= keep;
}

// ---- attention of a warp: D / 8 lanes share a position, each with eight elements ----

// Warps share positions and query heads.
struct shares {
    int n_warps, i_warp, set; // warps with the same heads, this one among them; which heads
};

// Part `part` of the warp's queries, from [heads][D], and nothing seen yet.
template <int D, int HEADS>
static __device__ __forceinline__ void begin_heads(const float *heads, const shares &w, int group, int part, float scale, float q[HEADS][8], float acc[HEADS][8], float max[HEADS], float sum[HEADS]) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        max[h] = -INFINITY, sum[h] = 0;
        bool there = w.set * HEADS + h < group;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            acc[h][i] = 0;
            q[h][i] = there ? heads[(w.set * HEADS + h) * D + part * 8 + i] * scale : 0.0f;
        }
    }
}
