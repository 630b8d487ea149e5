// What both kernels of decode steps have, step.cu and one.cu. HEAD is their shared memory's head, which holds what attention asks for again in
// every layer: blocks of the table from one on, cosines and sines.
#pragma once
#include "mma.cuh"
#include "soft.cuh"

enum { TABLE_MAX = 64, PAIRS_MAX = 128 };

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
