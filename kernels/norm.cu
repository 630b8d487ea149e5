// Norms, gated or not, and the sum of two rows with its norm. Rows are read two or three times, from the caches after the first.
#include "common.cuh"

// The gate of element i of head h: its own split into heads may differ.
static __device__ __forceinline__ float norm_gate(const k_norm &a, int64_t r, int h, int i) {
    int e = h * a.y.width + i;
    return act(a.gate_act, view_load(a.b, r, e / a.b.width, e % a.b.width), 0);
}

// What is normed: the input, the input times its gate, or the scaled sum of two inputs.
static __device__ __forceinline__ float norm_input(const k_norm &a, int64_t r, int h, int i) {
    float x = view_load(a.x, r, h, i);
    if (a.is_add) return x * a.a_scale + view_load(a.b, r, h, i) * a.b_scale;
    return a.gate == GATE_BEFORE ? x * norm_gate(a, r, h, i) : x;
}

static __device__ __forceinline__ void norm_store(const k_norm &a, int64_t r, int h, int i, float x, float scale) {
    int64_t at = a.per_head ? (int64_t)h * a.y.width + i : i;
    float y = x * scale;
    if (a.weight) y *= a.weight[at] + a.weight_offset;
    if (a.bias) y += a.bias[at];
    if (a.gate == GATE_AFTER) y *= norm_gate(a, r, h, i);
    view_store(a.y, r, h, i, y);
}

// What is left of x when its mean, square deviation and the gate's square are known: kinds that share no weights with the others.
static __device__ __forceinline__ void rare_store(const k_norm &a, int64_t r, int h, int i, float mean, float square, float gate_square) {
    float x = norm_input(a, r, h, i);
    if (a.kind == NORM_CUT) view_store(a.y, r, h, i, fmaxf(x - mean - a.cut * sqrtf(square), 0.0f));
    else view_store(a.y, r, h, i, x * sqrtf(gate_square) / sqrtf(fmaxf(square, a.eps)));
}

// One block per (head, row).
extern "C" __global__ void norm_block(KARGS(k_norm) a) {
    after_previous();
    __shared__ float scratch[32];
    int64_t r = blockIdx.y;
    int h = blockIdx.x, n = a.y.width;
    float mean = 0, square = 0;
    if (a.kind != NORM_RMS) {
        float sum = 0;
        for (int i = threadIdx.x; i < n; i += blockDim.x) sum += norm_input(a, r, h, i);
        mean = block_sum(sum, scratch) / (float)n;
    }
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        float x = norm_input(a, r, h, i);
        if (a.is_add) view_store(a.sum, r, h, i, x);
        square = fmaf(x - mean, x - mean, square);
    }
    square = block_sum(square, scratch) / (float)n;
    if (a.kind == NORM_CUT || a.gate == GATE_MATCH) {
        float other = 0;
        for (int i = threadIdx.x; i < n && a.gate == GATE_MATCH; i += blockDim.x) other = fmaf(view_load(a.b, r, h, i), view_load(a.b, r, h, i), other);
        other = block_sum(other, scratch) / (float)n;
        for (int i = threadIdx.x; i < n; i += blockDim.x) rare_store(a, r, h, i, mean, square, other);
        return;
    }
    float scale = 1.0f / sqrtf(square + a.eps);
    for (int i = threadIdx.x; i < n; i += blockDim.x) norm_store(a, r, h, i, norm_input(a, r, h, i) - mean, scale);
}

// RMS of a long row of f32, with the sum or without, also of a product in parts, read once, 16 bytes per lane: one block of 256 threads, up to 8,192 elements.
extern "C" __global__ void __launch_bounds__(256) norm_row4(KARGS(k_norm) a) {
    enum { PARTS = 8, THREADS = 256 };
    __shared__ float scratch[32];
    let_next_begin();
    int64_t r = blockIdx.x;
    int n = a.y.width / 4;
    float4 x[PARTS], w[PARTS];
    float square = 0, offset = a.weight ? a.weight_offset : 0;
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        int at = threadIdx.x + i * THREADS;
        if (at >= n) break;
        w[i] = a.weight ? ((const float4 *)a.weight)[at] : float4{1, 1, 1, 1};
    }
    await_previous(); // the norm's weight is nobody's result
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        int at = threadIdx.x + i * THREADS;
        if (at >= n) break;
        const float *from = (const float *)a.x.p + r * a.x.row_stride + 4 * at;
        float4 b = a.is_add ? ((const float4 *)((const float *)a.b.p + r * a.b.row_stride))[at] : float4{0, 0, 0, 0};
        x[i] = a.n_parts ? parts_sum4(from, a.n_parts, a.part_stride) : *(const float4 *)from;
        if (a.is_add) {
            x[i] = float4{x[i].x * a.a_scale + b.x * a.b_scale, x[i].y * a.a_scale + b.y * a.b_scale, x[i].z * a.a_scale + b.z * a.b_scale, x[i].w * a.a_scale + b.w * a.b_scale};
            ((float4 *)((float *)a.sum.p + r * a.sum.row_stride))[at] = x[i];
        }
        square = fmaf(x[i].x, x[i].x, fmaf(x[i].y, x[i].y, fmaf(x[i].z, x[i].z, fmaf(x[i].w, x[i].w, square))));
    }
    float scale = 1.0f / sqrtf(block_sum(square, scratch) / (float)a.y.width + a.eps);
#pragma unroll
    for (int i = 0; i < PARTS; i++) {
        int at = threadIdx.x + i * THREADS;
        if (at >= n) break;
        float4 y = float4{x[i].x * scale * (w[i].x + offset), x[i].y * scale * (w[i].y + offset), x[i].z * scale * (w[i].z + offset), x[i].w * scale * (w[i].w + offset)};
        int64_t to = r * a.y.row_stride + 4 * at;
        if (a.y.dtype == K_F32) *(float4 *)((float *)a.y.p + to) = y;
        else *(uint2 *)((bf16 *)a.y.p + to) = uint2{pack_bf16(y.x, y.y), pack_bf16(y.z, y.w)};
    }
}

// One warp per (head, row), for the narrow norms of queries and keys.
extern "C" __global__ void norm_warp(KARGS(k_norm) a) {
    after_previous();
    int lane = threadIdx.x % 32, n = a.y.width;
    int64_t item = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, r = item / a.y.heads;
    int h = (int)(item % a.y.heads);
    if (r >= a.y.rows) return;
    float mean = 0, square = 0;
    if (a.kind != NORM_RMS) {
        float sum = 0;
        for (int i = lane; i < n; i += 32) sum += norm_input(a, r, h, i);
        mean = warp_sum(sum) / (float)n;
    }
    for (int i = lane; i < n; i += 32) {
        float x = norm_input(a, r, h, i) - mean;
        square = fmaf(x, x, square);
    }
    square = warp_sum(square) / (float)n;
    if (a.kind == NORM_CUT || a.gate == GATE_MATCH) {
        float other = 0;
        for (int i = lane; i < n && a.gate == GATE_MATCH; i += 32) other = fmaf(view_load(a.b, r, h, i), view_load(a.b, r, h, i), other);
        other = warp_sum(other) / (float)n;
        for (int i = lane; i < n; i += 32) rare_store(a, r, h, i, mean, square, other);
        return;
    }
    float scale = 1.0f / sqrtf(square + a.eps);
    for (int i = lane; i < n; i += 32) norm_store(a, r, h, i, norm_input(a, r, h, i) - mean, scale);
}
