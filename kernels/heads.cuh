// Heads of queries and keys between the projection and attention: their norm and rope, a warp for a head.
#pragma once
#include "common.cuh"

// A warp's head, and what it needs of the row and the model, which no kernel makes: cosines and sines of pairs, the norm's weights. A lane reads of
// the last two what it wrote itself.
template <int WIDTH> struct head_of {
    float4 x[WIDTH / 4];
    float2 turn[WIDTH / 2];
    float weight[WIDTH];
};

template <int WIDTH> static __device__ __forceinline__ void know_weight(head_of<WIDTH> &h, const float *weight, float offset, int n) {
    for (int i = threadIdx.x % 32; weight && i < n; i += 32) h.weight[i] = weight[i] + offset;
}

template <int WIDTH> static __device__ __forceinline__ void know_angles(const k_qkv &a, head_of<WIDTH> &h, int64_t r) {
    int lane = threadIdx.x % 32, pos = a.rope_pos[r];
    const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)a.seq_of[r] * a.n_rope_tables + a.table) * a.rope_width;
#pragma unroll 1
    for (int i = lane; i < a.n_rotated / 2; i += 32) rope_angle(pos, table[i], a.magnitude, &h.turn[i].x, &h.turn[i].y);
}

// The head as the product left it; of widths that are multiples of four where it lies in parts.
template <int WIDTH> static __device__ __forceinline__ void load_head(const k_qkv &a, head_of<WIDTH> &h, const k_view &from, int64_t r, int head, int n) {
    int lane = threadIdx.x % 32;
    float *x = (float *)h.x;
    if (a.n_parts)
        for (int i = lane * 4; i < n; i += 128) *(float4 *)(x + i) = parts_sum4((const float *)from.p + r * from.row_stride + head * from.head_stride + i, a.n_parts, a.part_stride);
    else
        for (int i = lane; i < n; i += 32) x[i] = view_load(from, r, head, i);
    __syncwarp();
}

template <int WIDTH> static __device__ __forceinline__ void norm_head(head_of<WIDTH> &h, int n, float eps) {
    int lane = threadIdx.x % 32;
    float square = 0, *x = (float *)h.x;
    for (int i = lane; i < n; i += 32) square = fmaf(x[i], x[i], square);
    float scale = 1.0f / sqrtf(warp_sum(square) / (float)n + eps);
    for (int i = lane; i < n; i += 32) x[i] = x[i] * scale * h.weight[i];
    __syncwarp();
}

template <int WIDTH> static __device__ __forceinline__ void rotate_head(const k_qkv &a, head_of<WIDTH> &h) {
    int lane = threadIdx.x % 32, half = a.n_rotated / 2;
    float *x = (float *)h.x;
    for (int i = lane; i < half; i += 32) {
        int u = a.first + (a.kind == ROPE_HALF ? i : 2 * i), v = u + (a.kind == ROPE_HALF ? half : 1);
        float x0 = x[u], x1 = x[v], c = h.turn[i].x, s = h.turn[i].y;
        x[u] = x0 * c - x1 * s;
        x[v] = x1 * c + x0 * s;
    }
    __syncwarp();
}
