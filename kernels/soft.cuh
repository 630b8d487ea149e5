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
