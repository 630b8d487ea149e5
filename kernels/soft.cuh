// Softmaxes whose parts are added up: by warps, runs of positions, blocks. Scores are in units of log 2.
#pragma once
#include "sync.cuh"

#define LOG2E 1.4426950408889634f

// Small numbers become 0.
static __device__ __forceinline__ float exp2_fast(float x) {
#ifdef MLXCEL_EMULATE
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

struct softened {
    float x, max, sum;
};

// Element i of n parts of a softmax, [n][d + 2], in order; OTHERS: other blocks wrote them. Eight are asked for at once: each is a trip to L2.
template <bool OTHERS> static __device__ __forceinline__ softened join(const float *from, int n, int d, int i) {
    enum { AT_ONCE = 8 };
    softened s = {0, -INFINITY, 0};
#pragma unroll 1
    for (int first = 0; first < n; first += AT_ONCE) {
        float x[AT_ONCE], top = s.max;
        float2 of[AT_ONCE]; // the largest score, and the sum
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const float *part = from + (first + j) * (d + 2);
            x[j] = 0, of[j] = float2{-INFINITY, 0};
            if (first + j < n) x[j] = OTHERS ? load_shared_by_blocks(part + i) : part[i], of[j] = OTHERS ? load_two_by_blocks(part + d) : *(const float2 *)(part + d);
        }
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) top = fmaxf(top, of[j].x);
        float base = top == -INFINITY ? 0.0f : top, keep = exp2f(s.max - base);
        s.max = top, s.sum *= keep, s.x *= keep;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            float factor = exp2f(of[j].x - base);
            s.sum = fmaf(of[j].y, factor, s.sum);
            s.x = fmaf(x[j], factor, s.x);
        }
    }
    return s;
}

// One more score, which has no value.
static __device__ __forceinline__ void add_sink(softened &s, float score) {
    float sink = score * LOG2E, top = fmaxf(s.max, sink), keep = exp2f(s.max - top);
    s.sum = s.sum * keep + exp2f(sink - top);
    s.x *= keep;
}
