// What both kernels of decode steps have, step.cu and one.cu. KNOWN holds what attention asks for again in every layer: the sequence, and blocks of
// its table from one on.
#pragma once
#include "mma.cuh"
#include "soft.cuh"

enum { TABLE_MAX = 64, PAIRS_MAX = 128 };

// Cosines and sines of a row's position.
struct angles {
    const float *cosines, *sines;
};

template <class KNOWN> static __device__ __forceinline__ int table_block(const k_step_attn &a, const KNOWN *known, int i) {
    int at = i - known->first_block;
    if (at >= 0 && at < TABLE_MAX) return known->blocks[at];
    return a.c.table[(int64_t)known->seq * a.c.table_stride + i];
}

// A part of a head, or pairs of neighbours.
static __device__ __forceinline__ void rotate_head(const k_step_attn &a, angles by, float *x) {
    int lane = threadIdx.x % 32, half = a.n_rotated / 2;
    for (int i = lane; i < half; i += 32) {
        float c = by.cosines[i], s = by.sines[i];
        int u = a.rope_first + (a.rope_kind == ROPE_HALF ? i : 2 * i), v = u + (a.rope_kind == ROPE_HALF ? half : 1);
        float x0 = x[u], x1 = x[v];
        x[u] = x0 * c - x1 * s;
        x[v] = x1 * c + x0 * s;
    }
    __syncwarp();
}

// A head's vector as attention wants it, lane l its elements 32 e + l: a query, a key (is_k) or a value. It lies `at` elements behind the first of its kind, in memory or
// in the link, where its words have the tag. to: room for D floats.
template <int D> static __device__ __forceinline__ void prepare_head(const k_step_attn &a, angles by, float *to, bool is_q, bool is_k, int at, uint32_t tag, uint32_t *count, float x[D / 32]) {
    enum { E = D / 32 };
    int lane = threadIdx.x % 32;
    const float *weight = is_q ? a.q_norm : a.k_norm;
    bool norms = is_q ? a.has_q_norm : is_k && a.has_k_norm, turns = (is_q || is_k) && a.rope_kind != ROPE_NONE, whole_head = a.rope_kind == ROPE_HALF && a.n_rotated == D;
    float w[E];
#pragma unroll
    for (int e = 0; e < E; e++) w[e] = norms && weight ? weight[lane + 32 * e] : 0;
    if (a.qkv_link) {
        const uint64_t *link = a.qkv_link + (is_q ? a.q_at : is_k ? a.k_at : a.v_at) + at;
        bool there;
        int polls = 0;
        do {
            uint2 word[E];
            there = true;
#pragma unroll
            for (int e = 0; e < E; e++) word[e] = load_tagged(link + lane + 32 * e);
#pragma unroll
            for (int e = 0; e < E; e++) x[e] = __uint_as_float(word[e].x);
            if (is_long(++polls) && gave_up(count, polls)) break;
#pragma unroll
            for (int e = 0; e < E; e++) there = there && word[e].y == tag;
        } while (!in_all_lanes(there));
    } else {
        const float *from = (is_q ? a.q : is_k ? a.k : a.v) + at;
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = from[lane + 32 * e];
    }
    if (norms) {
        float square = 0, offset = !weight ? 1.0f : is_q ? a.q_offset : a.k_offset;
#pragma unroll
        for (int e = 0; e < E; e++) square = fmaf(x[e], x[e], square);
        float scale = rsqrtf(warp_sum(square) / (float)D + (is_q ? a.q_eps : a.k_eps));
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = x[e] * scale * (w[e] + offset);
    }
    if (turns && whole_head) {
#pragma unroll
        for (int e = 0; e < E / 2; e++) {
            float c = by.cosines[lane + 32 * e], s = by.sines[lane + 32 * e], x0 = x[e], x1 = x[e + E / 2];
            x[e] = x0 * c - x1 * s;
            x[e + E / 2] = x1 * c + x0 * s;
        }
    }
    if (turns && !whole_head) {
#pragma unroll
        for (int e = 0; e < E; e++) to[lane + 32 * e] = x[e];
        __syncwarp();
        rotate_head(a, by, to);
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = to[lane + 32 * e];
        __syncwarp();
    }
}

// ---- products ----

// A unit of bf16 or f16 weights times x: elements 0 to 31 of k are added to `first`, the others to `second`. slot: this lane's 16 bytes of its first piece; v and
// w: this lane's x of the two halves.
template <bool F16> static __device__ __forceinline__ void multiply_plain_unit(float first[4], float second[4], const unsigned char *slot, const uint32_t v[4], const uint32_t w[4]) {
    uint32_t codes[4], more[4], low[4], high[4];
    *(uint4 *)codes = *(const uint4 *)slot, *(uint4 *)more = *(const uint4 *)(slot + 512);
    *(uint4 *)low = *(const uint4 *)(slot + 1024), *(uint4 *)high = *(const uint4 *)(slot + 1536);
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const uint32_t a[4] = {codes[2 * m], low[2 * m], codes[2 * m + 1], low[2 * m + 1]};
        const uint32_t b[4] = {more[2 * m], high[2 * m], more[2 * m + 1], high[2 * m + 1]};
        if (F16) mma_f16(first, a, v[2 * m], v[2 * m + 1]), mma_f16(second, b, w[2 * m], w[2 * m + 1]);
        else mma_bf16(first, a, v[2 * m], v[2 * m + 1]), mma_bf16(second, b, w[2 * m], w[2 * m + 1]);
    }
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

// The softmax of a warp's heads goes on with N more positions: s [HEADS][N] are their scores, in units of log 2. is_gone(j): no lane of the warp has the
// j-th.
template <int HEADS, int N, class GONE>
static __device__ __forceinline__ void add_positions(const float *s, const uint4 *value, GONE is_gone, float max[HEADS], float sum[HEADS], float acc[HEADS][8]) {
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
        float top = max[h];
#pragma unroll
        for (int j = 0; j < N; j++) top = fmaxf(top, s[h * N + j]);
        float base = top == -INFINITY ? 0.0f : top, keep = exp2f(max[h] - base);
        max[h] = top;
        sum[h] *= keep;
#pragma unroll
        for (int i = 0; i < 8; i++) acc[h][i] *= keep;
#pragma unroll
        for (int j = 0; j < N; j++) {
            if (is_gone(j)) continue;
            float weight = exp2f(s[h * N + j] - base), v[8];
            sum[h] += weight;
            floats_of(value[j], v);
#pragma unroll
            for (int i = 0; i < 8; i++) acc[h][i] = fmaf(weight, v[i], acc[h][i]);
        }
    }
}

// What a warp made of a head, to parts [heads][n_warps][D + 2]: this lane's eight elements, and the largest score and the sum.
template <int D> static __device__ __forceinline__ void keep_head(float *parts, const shares &w, int head, int part, float max, float sum, const float acc[8]) {
    float *to = parts + (head * w.n_warps + w.i_warp) * (D + 2);
#pragma unroll
    for (int i = 0; i < 8; i++) to[part * 8 + i] = acc[i];
    if (part == 0) to[D] = max, to[D + 1] = sum;
}
