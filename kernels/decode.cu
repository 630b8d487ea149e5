// Attention of decode rows over the paged bf16 cache, split along the positions so that a long context fills the GPU.
//
// A block takes one row, one cached head and a run of positions; every query head of the group uses the keys and values while they are in
// registers. D / 8 lanes share a position, 16 bytes each. Blocks of a row are combined by attn_combine. Reads the visible cache once; stopped
// by memory, and by latency at short contexts.
#include "mma.cuh"

enum { WARPS = 8 };
#define LOG2E 1.4426950408889634f

// G query heads at one position: scores over the D / 8 lanes that share it.
template <int D, int G> static __device__ __forceinline__ void score(const k_attn &a, const float q[G][8], uint4 key, bool there, float s[G]) {
    float k[8];
    floats_of(key, k);
#pragma unroll
    for (int h = 0; h < G; h++) {
        float dot = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) dot = fmaf(q[h][i], k[i], dot);
#pragma unroll
        for (int step = D / 16; step > 0; step /= 2) dot += __shfl_xor_sync(FULL, dot, step);
        if (a.softcap > 0) dot = a.softcap * tanhf(dot / a.softcap);
        s[h] = there ? dot : -INFINITY;
    }
}

// Eight elements of a query head; even: they lie at a multiple of 16 bytes.
static __device__ __forceinline__ void load_query(const k_view &v, int64_t at, bool even, float out[8]) {
    if (even) {
        load8(v.p, v.dtype, at, out);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = load_as_f32(v.p, v.dtype, at + i);
}

// Partial results: [rows][heads][splits][D + 2], acc, max, sum.
template <int D, int G> static __device__ __forceinline__ void attend(const k_attn &a, float *smem) {
    enum { LANES = D / 8, AT_ONCE = 32 / LANES, SPAN = WARPS * AT_ONCE };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, split = blockIdx.x, kv_head = blockIdx.y, part = lane % LANES;
    int64_t r = blockIdx.z;
    int pos = a.pos[r], first = first_visible(a.window, a.chunk, pos), n = pos - first + 1;
    int per_split = (n + a.splits - 1) / a.splits, begin = first + split * per_split, end = begin + per_split < pos + 1 ? begin + per_split : pos + 1;
    const int32_t *table = a.c.table + (int64_t)a.seq_of[r] * a.c.table_stride;
    float q[G][8], acc[G][8], max[G], sum[G], scale = query_scale(a, pos);
    bool even = a.q.row_stride % 8 == 0 && a.q.head_stride % 8 == 0 && (uint64_t)a.q.p % 16 == 0;
    int64_t from = r * a.q.row_stride + (int64_t)kv_head * a.group * a.q.head_stride + part * 8;
#pragma unroll
    for (int h = 0; h < G; h++) load_query(a.q, from + (h < a.group ? h : 0) * a.q.head_stride, even, q[h]); // heads that are not there are never stored
#pragma unroll
    for (int h = 0; h < G; h++) {
        max[h] = -INFINITY, sum[h] = 0;
#pragma unroll
        for (int i = 0; i < 8; i++) acc[h][i] = 0, q[h][i] *= scale;
    }
    for (int p = begin + warp * AT_ONCE + lane / LANES; p - lane / LANES < end; p += SPAN) {
        bool there = p < end;
        int64_t at = there ? (((int64_t)table[p / K_BLOCK] * a.c.heads + kv_head) * K_BLOCK + p % K_BLOCK) * D + part * 8 : 0;
        uint4 key = *(const uint4 *)((const bf16 *)a.c.k + at), value = *(const uint4 *)((const bf16 *)a.c.v + at);
        float s[G], v[8];
        score<D, G>(a, q, key, there, s);
        floats_of(value, v);
#pragma unroll
        for (int h = 0; h < G; h++) {
            float top = fmaxf(max[h], s[h]);
            float keep = top == -INFINITY ? 1.0f : exp2f((max[h] - top) * LOG2E), w = there ? exp2f((s[h] - top) * LOG2E) : 0.0f;
            max[h] = top;
            sum[h] = fmaf(sum[h], keep, w);
#pragma unroll
            for (int i = 0; i < 8; i++) acc[h][i] = fmaf(acc[h][i], keep, there ? w * v[i] : 0.0f);
        }
    }
    // Positions beside each other in this warp, by shuffles; then warps, through shared memory: [G][WARPS][D + 2].
#pragma unroll
    for (int h = 0; h < G; h++) {
#pragma unroll
        for (int x = LANES; x < 32; x *= 2) {
            float other = __shfl_xor_sync(FULL, max[h], x), top = fmaxf(max[h], other), base = top == -INFINITY ? 0.0f : top;
            float keep = exp2f((max[h] - base) * LOG2E), take = exp2f((other - base) * LOG2E);
            max[h] = top;
            sum[h] = sum[h] * keep + __shfl_xor_sync(FULL, sum[h], x) * take;
#pragma unroll
            for (int i = 0; i < 8; i++) acc[h][i] = acc[h][i] * keep + __shfl_xor_sync(FULL, acc[h][i], x) * take;
        }
        float *to = smem + (h * WARPS + warp) * (D + 2);
        if (lane < LANES) {
#pragma unroll
            for (int i = 0; i < 8; i++) to[part * 8 + i] = acc[h][i];
        }
        if (lane == 0) to[D] = max[h], to[D + 1] = sum[h];
    }
    __syncthreads();
    for (int e = threadIdx.x; e < a.group * D; e += WARPS * 32) {
        int h = e / D, i = e % D, head = kv_head * a.group + h;
        const float *from = smem + h * WARPS * (D + 2);
        float tops[WARPS], top = -INFINITY, total = 0, x = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, tops[w] = from[w * (D + 2) + D]);
        float base = top == -INFINITY ? 0.0f : top;
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            float keep = exp2f((tops[w] - base) * LOG2E);
            total = fmaf(from[w * (D + 2) + D + 1], keep, total);
            x = fmaf(from[w * (D + 2) + i], keep, x);
        }
        if (a.splits == 1) {
            if (a.sinks) {
                float with = fmaxf(top, a.sinks[head]), keep = exp2f((top - with) * LOG2E);
                total = total * keep + exp2f((a.sinks[head] - with) * LOG2E);
                x *= keep;
            }
            view_store(a.y, r, head, i, x / total);
        } else {
            float *to = a.partial + ((r * a.q.heads + head) * a.splits + split) * (D + 2);
            to[i] = x;
            if (i == 0) to[D] = top, to[D + 1] = total;
        }
    }
}

// Grid (splits, cached heads, rows), 256 threads.
#define DECODE(d, g)                                                                                              \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) attn_decode_##d##_##g(KARGS(k_attn) a) {             \
        DYNAMIC_SHARED(float, smem); /* [g][WARPS][d + 2] */                                                      \
        attend<d, g>(a, smem);                                                                                    \
    }
DECODE(64, 1)
DECODE(64, 2)
DECODE(64, 4)
DECODE(64, 8)
DECODE(128, 1)
DECODE(128, 2)
DECODE(128, 4)
DECODE(128, 8)
DECODE(256, 1)
DECODE(256, 2)
DECODE(256, 4)
DECODE(256, 8)

// The splits of a (head, row) in order. Grid (heads, rows), one thread per element of the width.
extern "C" __global__ void attn_combine(KARGS(k_attn) a) {
    int64_t r = blockIdx.y;
    int head = blockIdx.x, d = a.y.width;
    const float *from = a.partial + (r * a.q.heads + head) * a.splits * (d + 2);
    float top = a.sinks ? a.sinks[head] : -INFINITY, total, x = 0;
    for (int s = 0; s < a.splits; s++) top = fmaxf(top, from[s * (d + 2) + d]);
    total = a.sinks ? exp2f((a.sinks[head] - top) * LOG2E) : 0.0f;
    for (int s = 0; s < a.splits; s++) {
        float keep = exp2f((from[s * (d + 2) + d] - top) * LOG2E);
        total = fmaf(from[s * (d + 2) + d + 1], keep, total);
        x = fmaf(from[s * (d + 2) + threadIdx.x], keep, x);
    }
    view_store(a.y, r, head, threadIdx.x, x / total);
}
