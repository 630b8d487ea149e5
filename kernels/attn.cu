// Causal attention over the paged cache, the reference rows: any head width up to 576, window, chunks, soft cap, sinks, slopes, values inside keys.
//
// One block per (query head, row); its warps take positions in turn and keep a running softmax each, combined at the end in a fixed order.
// A row's result depends on its own positions alone. Reads the visible keys and values once per query head; stopped by latency.
#include "common.cuh"

enum { WARPS = 8, AT_ONCE = 4 };

template <typename T> static __device__ __forceinline__ float cached(const void *p, int64_t i);
template <> __device__ __forceinline__ float cached<float>(const void *p, int64_t i) { return ((const float *)p)[i]; }
template <> __device__ __forceinline__ float cached<bf16>(const void *p, int64_t i) { return __bfloat162float(((const bf16 *)p)[i]); }

// The softmax of the keys seen so far: largest score, sum of weights, weighted values (this lane's elements).
template <int N> struct running {
    float max, sum, acc[N];
};

// What a head's slope adds to the score of position p; the last visible position is the row's own.
static __device__ __forceinline__ float slope_bias(const k_attn &a, float slope, int p, int last) {
    return a.slopes_in_bf16 ? a.scale * __bfloat162float(__float2bfloat16_rn(slope * (float)p)) : slope * (float)(p - last);
}

// Scores of the positions p, p + WARPS, ...: AT_ONCE of them, so that their loads and sums overlap. -INFINITY beyond the end.
template <typename T, int N>
static __device__ __forceinline__ void scores_of(const k_attn &a, const float q[N], const int32_t *table, int kv_head, int p, int last, float scale, float slope, float out[AT_ONCE]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        int at = p + j * WARPS;
        float dot = 0;
        if (at <= last) {
            int64_t base = (((int64_t)table[at / K_BLOCK] * a.c.heads + kv_head) * K_BLOCK + at % K_BLOCK) * a.c.k_width;
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i * 32 + lane < a.c.k_width) dot = fmaf(q[i], cached<T>(a.c.k, base + i * 32 + lane), dot);
        }
        out[j] = dot;
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        float s = warp_sum(out[j]) * scale;
        if (a.softcap > 0) s = a.softcap * tanhf(s / a.softcap);
        if (a.slopes) s += slope_bias(a, slope, p + j * WARPS, last);
        out[j] = p + j * WARPS <= last ? s : -INFINITY;
    }
}

template <typename T, int N>
static __device__ __forceinline__ void take(const k_attn &a, running<N> &run, const int32_t *table, int kv_head, int p, int last, const float s[AT_ONCE]) {
    int lane = threadIdx.x % 32;
    float max = run.max;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) max = fmaxf(max, s[j]);
    float keep = expf(run.max - max);
    run.max = max;
    run.sum *= keep;
#pragma unroll
    for (int i = 0; i < N; i++) run.acc[i] *= keep;
    const void *values = a.c.v ? a.c.v : a.c.k;
    int stride = a.c.v ? a.c.v_width : a.c.k_width;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        int at = p + j * WARPS;
        if (at > last) break;
        float w = expf(s[j] - max);
        run.sum += w;
        int64_t base = (((int64_t)table[at / K_BLOCK] * a.c.heads + kv_head) * K_BLOCK + at % K_BLOCK) * stride;
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i * 32 + lane < a.y.width) run.acc[i] = fmaf(w, cached<T>(values, base + i * 32 + lane), run.acc[i]);
    }
}

// The warps' results, one after the other, through shared memory.
template <int N> static __device__ __forceinline__ void combine(const k_attn &a, const running<N> &run, int64_t r, int head, float *smem) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float *maxima = smem, *sums = smem + WARPS, *acc = smem + 2 * WARPS; // acc [WARPS][N * 32]
    if (lane == 0) maxima[warp] = run.max, sums[warp] = run.sum;
#pragma unroll
    for (int i = 0; i < N; i++) acc[(warp * N + i) * 32 + lane] = run.acc[i];
    __syncthreads();
    float max = a.sinks ? a.sinks[head] : -INFINITY, sum = 0;
    for (int w = 0; w < WARPS; w++) max = fmaxf(max, maxima[w]);
    for (int w = 0; w < WARPS; w++) sum += sums[w] * expf(maxima[w] - max);
    if (a.sinks) sum += expf(a.sinks[head] - max);
    for (int i = threadIdx.x; i < a.y.width; i += blockDim.x) {
        float x = 0;
        for (int w = 0; w < WARPS; w++) x += acc[w * N * 32 + i] * expf(maxima[w] - max);
        view_store(a.y, r, head, i, x / sum);
    }
}

template <typename T, int N> static __device__ __forceinline__ void attend(const k_attn &a, float *smem) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.x;
    int64_t r = a.first_row + blockIdx.y;
    int pos = a.pos[r], kv_head = head / a.group, first = first_visible(a.window, a.chunk, pos);
    const int32_t *table = a.c.table + (int64_t)a.seq_of[r] * a.c.table_stride;
    float q[N], scale = query_scale(a, pos), slope = a.slopes ? a.slopes[head] : 0.0f;
    running<N> run = {-INFINITY, 0, {0}};
#pragma unroll
    for (int i = 0; i < N; i++) q[i] = i * 32 + lane < a.c.k_width ? view_load(a.q, r, head, i * 32 + lane) : 0.0f;
    for (int p = first + warp; p <= pos; p += WARPS * AT_ONCE) {
        float s[AT_ONCE];
        scores_of<T, N>(a, q, table, kv_head, p, pos, scale, slope, s);
        take<T, N>(a, run, table, kv_head, p, pos, s);
    }
    if (run.max == -INFINITY) run.max = -3.0e38f; // a warp without keys: its weights become zeros, not NaN
    combine<N>(a, run, r, head, smem);
}

#define ATTN_REF(type, label, n)                                                                                        \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) attn_ref_##label##_##n(KARGS(k_attn) a) { \
        __shared__ float smem[2 * WARPS + WARPS * (n)];                                                                 \
        attend<type, (n) / 32>(a, smem);                                                                                \
    }
ATTN_REF(float, f32, 64)
ATTN_REF(float, f32, 128)
ATTN_REF(float, f32, 256)
ATTN_REF(float, f32, 576)
ATTN_REF(bf16, bf16, 64)
ATTN_REF(bf16, bf16, 128)
ATTN_REF(bf16, bf16, 256)
ATTN_REF(bf16, bf16, 576)
