// Attention over a cache of 8 bits: parts of a softmax, made by warps or blocks, become a head's result. Parts of a head are attn8_part(D) floats each: results, the largest score, the
// sum of weights.
#pragma once
#include "kv8.cuh"
#include "soft.cuh"

// A head's softmax, by a warp: lane l has elements N l ... N l + N - 1.
template <int N> struct head8 {
    float x[N], max, sum;
};

// N floats of a part; OTHERS: other blocks wrote them.
template <int N, bool OTHERS> static __device__ __forceinline__ void load_run(const float *from, float x[N]) {
#pragma unroll
    for (int i = 0; i < N; i += 2) {
        float2 two = OTHERS ? load_two_by_blocks(from + i) : *(const float2 *)(from + i);
        x[i] = two.x, x[i + 1] = two.y;
    }
}

template <int D, bool OTHERS> static __device__ __forceinline__ void join8(head8<D / 32> &h, const float *parts, int n) {
    enum { N = D / 32, PART = attn8_part(D) };
    int lane = threadIdx.x % 32;
    h.max = -INFINITY, h.sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++) h.x[i] = 0;
#pragma unroll 1
    for (int first = 0; first < n; first += 32) { // mostly once
        int here = n - first < 32 ? n - first : 32;
        float own[2] = {-INFINITY, 0};
        if (lane < here) load_run<2, OTHERS>(parts + (first + lane) * PART + D, own);
        float top = fmaxf(h.max, warp_max(own[0])), base = top == -INFINITY ? 0.0f : top, factor = exp2f(own[0] - base), keep = exp2f(h.max - base);
        h.max = top;
        h.sum = h.sum * keep + warp_sum(own[1] * factor);
#pragma unroll
        for (int i = 0; i < N; i++) h.x[i] *= keep;
#pragma unroll 4
        for (int p = 0; p < here; p++) { // trips to L2
            float x[N], by = __shfl_sync(FULL, factor, p);
            load_run<N, OTHERS>(parts + (first + p) * PART + N * lane, x);
#pragma unroll
            for (int i = 0; i < N; i++) h.x[i] = fmaf(x[i], by, h.x[i]);
        }
    }
}

template <int D> static __device__ __forceinline__ void put_part8(float *to, const head8<D / 32> &h) {
    enum { N = D / 32 };
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < N; i += 2) *(float2 *)(to + N * lane + i) = float2{h.x[i], h.x[i + 1]};
    if (lane == 0) *(float2 *)(to + D) = float2{h.max, h.sum};
}

// The softmax's end, and the matrix back. sink: one more score, NULL: there is none.
template <int N> static __device__ __forceinline__ void finish8(head8<N> &h, const float *sink) {
    softened s = {1.0f, h.max, h.sum};
    if (sink) add_sink(s, *sink);
    float factor = s.x / s.sum;
#pragma unroll
    for (int i = 0; i < N; i++) h.x[i] *= factor;
    turn_runs<N>(h.x);
}
