// What the towers of pictures need besides the text model's ops: rows that the host gives, means of rows, and attention among the rows of a step, the
// reference rows.
#include "common.cuh"

// Grid (elements / 256, rows).
extern "C" __global__ void given(KARGS(k_given) a) {
    int64_t r = blockIdx.y;
    int i = blockIdx.x * 256 + threadIdx.x, at = a.at[r];
    if (i >= a.y.width) return;
    float x = a.x.p && (at < 0 || a.adds) ? view_load(a.x, r, 0, i) : 0.0f;
    view_store(a.y, r, 0, i, at < 0 ? x : a.adds ? x + a.numbers[(int64_t)at * a.y.width + i] : a.numbers[(int64_t)at * a.y.width + i]);
}

// Grid (elements / 256, rows of the result): added in their order.
extern "C" __global__ void pool_rows(KARGS(k_pool_rows) a) {
    int64_t r = blockIdx.y;
    int e = blockIdx.x * 256 + threadIdx.x;
    if (e >= a.y.heads * a.y.width) return;
    int h = e / a.y.width, i = e % a.y.width;
    float sum = view_load(a.x, r * a.n, h, i);
    for (int k = 1; k < a.n; k++) sum += view_load(a.x, r * a.n + k, h, i);
    view_store(a.y, r, h, i, sum / (float)a.n);
}

// ---- attention: a warp per row. The warps of a block walk the same keys side by side, so that all but the first find them in L1. Everything is f32 here. ----

enum { WARPS = 8, AT_ONCE = 4 };

static __device__ __forceinline__ const float *head_of(const k_view &v, int64_t row, int head) {
    return (const float *)v.p + row * v.row_stride + head * v.head_stride;
}

template <int N> static __device__ __forceinline__ void attend(const k_attn_rows &a) {
    int lane = threadIdx.x % 32, head = blockIdx.x;
    int64_t r = (int64_t)blockIdx.y * WARPS + threadIdx.x / 32;
    if (r >= a.q.rows) return;
    int from = a.spans[2 * r], to = a.spans[2 * r + 1];
    float q[N], acc[N], top = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < N; i++) q[i] = i * 32 + lane < a.q.width ? head_of(a.q, r, head)[i * 32 + lane] : 0.0f, acc[i] = 0;
    for (int p = from; p < to; p += AT_ONCE) {
        float s[AT_ONCE], max = top;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            const float *key = head_of(a.k, min(p + j, to - 1), head);
            float dot = 0;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i * 32 + lane < a.k.width) dot = fmaf(q[i], key[i * 32 + lane], dot);
            s[j] = p + j < to ? warp_sum(dot) * a.scale : -INFINITY;
            max = fmaxf(max, s[j]);
        }
        float keep = expf(top - max);
        top = max, sum *= keep;
#pragma unroll
        for (int i = 0; i < N; i++) acc[i] *= keep;
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
            if (p + j >= to) break;
            const float *value = head_of(a.v, p + j, head);
            float w = expf(s[j] - max);
            sum += w;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i * 32 + lane < a.v.width) acc[i] = fmaf(w, value[i * 32 + lane], acc[i]);
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i * 32 + lane < a.y.width) view_store(a.y, r, head, i * 32 + lane, acc[i] / sum);
}

// Grid (heads, rows / 8).
extern "C" __global__ void __launch_bounds__(WARPS * 32) attn_rows_128(KARGS(k_attn_rows) a) { attend<4>(a); }
extern "C" __global__ void __launch_bounds__(WARPS * 32) attn_rows_256(KARGS(k_attn_rows) a) { attend<8>(a); }
