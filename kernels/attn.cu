// Attention over the paged cache, the reference rows: any head width up to 576 (of 8 bits: 256), both ways, window, chunks, soft cap, sinks, slopes, values inside keys.
//
// One block per (query head, row); its warps take positions in turn and keep a running softmax each, combined at the end in a fixed order.
// A row's result depends on its own positions alone. Reads the visible keys and values once per query head; stopped by latency.
#include "kv8.cuh"

enum { WARPS = 8, AT_ONCE = 4 };

template <typename T> static __device__ __forceinline__ float cached(const void *p, int64_t i);
template <> __device__ __forceinline__ float cached<float>(const void *p, int64_t i) { return ((const float *)p)[i]; }
template <> __device__ __forceinline__ float cached<bf16>(const void *p, int64_t i) { return __bfloat162float(((const bf16 *)p)[i]); }

// A key or value in the cache.
template <typename T> struct vector {
    const void *p;
    int64_t base;
    __device__ __forceinline__ float at(int i) const { return cached<T>(p, base + i); }
    __device__ __forceinline__ float times_scale(float x) const { return x; }
};
template <> struct vector<int8_t> {
    const int8_t *p;
    int step;
    float scale;
    __device__ __forceinline__ float at(int i) const { return (float)p[i * step]; }
    __device__ __forceinline__ float times_scale(float x) const { return x * scale; }
};
template <typename T> static __device__ __forceinline__ vector<T> vector_of(const k_cache &c, bool values, int block, int head, int at) {
    int width = values ? c.v_width : c.k_width;
    return vector<T>{values ? c.v : c.k, (((int64_t)block * c.heads + head) * K_BLOCK + at) * width};
}
template <> __device__ __forceinline__ vector<int8_t> vector_of<int8_t>(const k_cache &c, bool values, int block, int head, int at) {
    int width = values ? c.v_width : c.k_width;
    unsigned char *from = kv8_block(c, values, block, head);
    return vector<int8_t>{(const int8_t *)from + (values ? kv8_value_at(width, at) : kv8_key_at(width, at)), values ? 4 : 1, kv8_scales(from, width)[at]};
}
template <typename T> static __device__ __forceinline__ constexpr bool is_turned() {
    return sizeof(T) == 1;
}

// The softmax of the keys seen so far: largest score, sum of weights, weighted values (this lane's elements).
template <int N> struct running {
    float max, sum, acc[N];
};

// What a head's slope, or its table of distances, adds to the score of position p.
static __device__ __forceinline__ float place_bias(const k_attn &a, float slope, int p, int pos) {
    if (a.distances) return a.distances[(int64_t)(min(max(p - pos, -a.farthest), a.farthest) + a.farthest) * a.q.heads + blockIdx.x];
    return a.slopes_in_bf16 ? a.scale * __bfloat162float(__float2bfloat16_rn(slope * (float)p)) : slope * (float)(p - pos);
}

// What a row looks at: n positions from `first` on, or those that were picked.
struct seen {
    const int32_t *picks; // NULL: all
    int first, n, pos;    // pos: the row's own
    int every = 1;        // the last of every so many
    __device__ __forceinline__ int at(int i) const { return picks ? picks[i] : first + (i + 1) * every - 1; }
};

// Scores of the positions of number p, p + WARPS, ...: AT_ONCE of them, so that their loads and sums overlap. -INFINITY beyond the end.
template <typename T, int N>
static __device__ __forceinline__ void scores_of(const k_attn &a, const float q[N], const int32_t *table, int kv_head, int p, const seen &v, float scale, float slope, float out[AT_ONCE]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        float dot = 0;
        if (p + j * WARPS < v.n) {
            int at = v.at(p + j * WARPS);
            vector<T> key = vector_of<T>(a.c, false, table[at / K_BLOCK], kv_head, at % K_BLOCK);
#pragma unroll
            for (int i = 0; i < N; i++)
                if (i * 32 + lane < a.c.k_width) dot = fmaf(q[i], key.at(i * 32 + lane), dot);
            dot = key.times_scale(dot);
        }
        out[j] = dot;
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        float s = warp_sum(out[j]) * scale;
        if (a.softcap > 0) s = a.softcap * tanhf(s / a.softcap);
        if ((a.slopes || a.distances) && p + j * WARPS < v.n) s += place_bias(a, slope, v.at(p + j * WARPS), v.pos);
        out[j] = p + j * WARPS < v.n ? s : -INFINITY;
    }
}

template <typename T, int N>
static __device__ __forceinline__ void take(const k_attn &a, running<N> &run, const int32_t *table, int kv_head, int p, const seen &v, const float s[AT_ONCE]) {
    int lane = threadIdx.x % 32;
    float max = run.max;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) max = fmaxf(max, s[j]);
    float keep = expf(run.max - max);
    run.max = max;
    run.sum *= keep;
#pragma unroll
    for (int i = 0; i < N; i++) run.acc[i] *= keep;
#pragma unroll
    for (int j = 0; j < AT_ONCE; j++) {
        if (p + j * WARPS >= v.n) break;
        int at = v.at(p + j * WARPS);
        float w = expf(s[j] - max);
        run.sum += w;
        vector<T> value = vector_of<T>(a.c, a.c.v != NULL, table[at / K_BLOCK], kv_head, at % K_BLOCK);
        w = value.times_scale(w);
#pragma unroll
        for (int i = 0; i < N; i++)
            if (i * 32 + lane < a.y.width) run.acc[i] = fmaf(w, value.at(i * 32 + lane), run.acc[i]);
    }
}

// A head's result of a cache of 8 bits: turned back by one warp. x: this thread's element; threads beyond the width have none.
template <int N> static __device__ __forceinline__ void store_turned(const k_attn &a, int64_t r, int head, float x, float *smem) {
    float y[N];
    __syncthreads();
    if ((int)threadIdx.x < a.y.width) smem[threadIdx.x] = x;
    __syncthreads();
    if (threadIdx.x >= 32) return;
#pragma unroll
    for (int i = 0; i < N; i++) y[i] = i * 32 + (int)threadIdx.x < a.y.width ? smem[i * 32 + threadIdx.x] : 0.0f;
    turn_lanes<N>(y, turn_size(a.y.width));
#pragma unroll
    for (int i = 0; i < N; i++)
        if (i * 32 + (int)threadIdx.x < a.y.width) view_store(a.y, r, head, i * 32 + threadIdx.x, y[i]);
}

// The warps' results, one after the other, through shared memory.
template <typename T, int N> static __device__ __forceinline__ void combine(const k_attn &a, const running<N> &run, int64_t r, int head, float *smem) {
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
    float x = 0;
    for (int i = threadIdx.x; i < a.y.width; i += blockDim.x) {
        x = 0;
        for (int w = 0; w < WARPS; w++) x += acc[w * N * 32 + i] * expf(maxima[w] - max);
        if (!is_turned<T>()) view_store(a.y, r, head, i, x / sum);
    }
    if (is_turned<T>()) store_turned<N>(a, r, head, x / sum, smem);
}

// The last position that a row sees: its own, or where both ways are seen one behind it.
static __device__ __forceinline__ int last_visible(const k_attn &a, int64_t r, int pos) {
    if (!a.both_ways) return last_of_row(a, r, pos);
    k_seq seq = a.seqs[a.seq_of[r]];
    int end = seq.pos + seq.n_rows - 1;
    return a.window > 0 && a.window - 1 < end - pos ? pos + a.window - 1 : end;
}

template <typename T, int N> static __device__ __forceinline__ void attend(const k_attn &a, float *smem) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.x;
    int64_t r = a.first_row + blockIdx.y;
    int pos = a.pos[r], kv_head = head / a.group, first = first_visible(a.window, a.chunk, pos);
    seen v = {a.picks ? a.picks + r * a.picks_stride : 0, first, last_visible(a, r, pos) - first + 1, pos};
    if (a.picks && v.n > a.n_picks) v.n = a.n_picks;
    const int32_t *table = a.c.table + (int64_t)a.seq_of[r] * a.c.table_stride;
    float q[N], scale = query_scale(a, pos), slope = a.slopes ? a.slopes[head] : 0.0f;
    running<N> run = {-INFINITY, 0, {0}};
#pragma unroll
    for (int i = 0; i < N; i++) q[i] = i * 32 + lane < a.c.k_width ? view_load(a.q, r, head, i * 32 + lane) : 0.0f;
    if (is_turned<T>()) turn_lanes<N>(q, turn_size(a.c.k_width));
    for (int p = warp; p < v.n; p += WARPS * AT_ONCE) {
        float s[AT_ONCE];
        scores_of<T, N>(a, q, table, kv_head, p, v, scale, slope, s);
        take<T, N>(a, run, table, kv_head, p, v, s);
    }
    if (run.max == -INFINITY) run.max = -3.0e38f; // a warp without keys: its weights become zeros, not NaN
    combine<T, N>(a, run, r, head, smem);
}

#define ATTN_REF(type, label, n)                                                                                        \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 1) attn_ref_##label##_##n(KARGS(k_attn) a) { \
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
ATTN_REF(int8_t, i8, 64)
ATTN_REF(int8_t, i8, 128)
ATTN_REF(int8_t, i8, 256)

// ---- with products for distances: the row's table and the key's have a column for each ----

template <typename T> static __device__ __forceinline__ void attend_relative(const k_attn_relative &x, float *smem) {
    enum { N = 8 };
    const k_attn &a = x.a;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.x;
    int64_t r = blockIdx.y;
    int pos = a.pos[r], kv_head = head / a.group, first = first_visible(a.window, a.chunk, pos);
    k_seq seq = a.seqs[a.seq_of[r]];
    seen v = {0, first, last_visible(a, r, pos) - first + 1, pos};
    const int32_t *table = a.c.table + (int64_t)a.seq_of[r] * a.c.table_stride;
    float q[N];
    running<N> run = {-INFINITY, 0, {0}};
#pragma unroll
    for (int i = 0; i < N; i++) q[i] = i * 32 + lane < a.c.k_width ? view_load(a.q, r, head, i * 32 + lane) : 0.0f;
    for (int p = warp; p < v.n; p += WARPS * AT_ONCE) {
        float s[AT_ONCE];
        scores_of<T, N>(a, q, table, kv_head, p, v, a.scale, 0.0f, s);
        for (int j = 0; j < AT_ONCE && p + j * WARPS < v.n; j++) {
            int at = v.at(p + j * WARPS), column = (int)x.buckets[min(max(at - pos, -a.farthest), a.farthest) + a.farthest];
            s[j] += a.scale * (view_load(x.by_row, r, head, column) + view_load(x.by_key, seq.row + at - seq.pos, head, column));
        }
        take<T, N>(a, run, table, kv_head, p, v, s);
    }
    if (run.max == -INFINITY) run.max = -3.0e38f;
    combine<T, N>(a, run, r, head, smem);
}

#define ATTN_RELATIVE(type, label)                                                                              \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) attn_relative_##label(KARGS(k_attn_relative) a) { \
        __shared__ float smem[2 * WARPS + WARPS * 256];                                                        \
        attend_relative<type>(a, smem);                                                                        \
    }
ATTN_RELATIVE(float, f32)
ATTN_RELATIVE(bf16, bf16)

// ---- with entries of a second cache behind those of the window ----

template <typename T, int N> static __device__ __forceinline__ void attend_seen(const k_attn &a, const float q[N], int64_t r, const seen &v, running<N> &run) {
    const int32_t *table = a.c.table + (int64_t)a.seq_of[r] * a.c.table_stride;
    for (int p = threadIdx.x / 32; p < v.n; p += WARPS * AT_ONCE) {
        float s[AT_ONCE];
        scores_of<T, N>(a, q, table, 0, p, v, a.scale, 0.0f, s);
        take<T, N>(a, run, table, 0, p, v, s);
    }
}

template <typename T> static __device__ __forceinline__ void attend_more(const k_attn_more &x, float *smem) {
    enum { N = 16 };
    k_attn a = x.a;
    int lane = threadIdx.x % 32, head = blockIdx.x;
    int64_t r = blockIdx.y;
    int pos = a.pos[r], first = first_visible(a.window, 0, pos);
    seen own = {0, first, pos - first + 1, pos}, more = {a.picks ? a.picks + r * a.picks_stride : 0, 0, (pos + 1) / x.every, pos, x.every};
    if (a.picks) more.n = min(more.n, a.n_picks);
    float q[N];
    running<N> run = {-INFINITY, 0, {0}};
#pragma unroll
    for (int i = 0; i < N; i++) q[i] = i * 32 + lane < a.c.k_width ? view_load(a.q, r, head, i * 32 + lane) : 0.0f;
    attend_seen<T, N>(a, q, r, own, run);
    a.c = x.more;
    attend_seen<T, N>(a, q, r, more, run);
    if (run.max == -INFINITY) run.max = -3.0e38f;
    combine<T, N>(a, run, r, head, smem);
}

#define ATTN_MORE(type, label)                                                                          \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) attn_more_##label(KARGS(k_attn_more) a) { \
        __shared__ float smem[2 * WARPS + WARPS * 512];                                                \
        attend_more<type>(a, smem);                                                                    \
    }
ATTN_MORE(float, f32)
ATTN_MORE(bf16, bf16)

// ---- picking positions: a block per row keeps the best `keys` so far and sorts the next as many in behind them ----

// A number that sorts like (score, then the earlier position); no number counts as the smallest score.
static __device__ __forceinline__ uint64_t pick_key(float score, int p) {
    uint32_t bits = score == score ? __float_as_uint(score == 0 ? 0.0f : score) : 0xff800000u;
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (0xffffffffu - (uint32_t)p);
}

// n, a power of two, the largest first.
static __device__ __forceinline__ void sort_down(uint64_t *x, int n) {
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
                int low = 2 * step * (i / step) + i % step, high = low + step;
                uint64_t a = x[low], b = x[high];
                if ((a < b) == ((low & size) == 0)) x[low] = b, x[high] = a;
            }
        }
    __syncthreads();
}

// One position's score, by a warp.
template <typename T> static __device__ __forceinline__ float pick_score(const k_pick &a, const float *q, const float *w, int64_t base) {
    int lane = threadIdx.x % 32, n = a.c.k_width;
    float key[8], sum = 0; // widths up to 256
#pragma unroll
    for (int i = 0; i < 8; i++) key[i] = i * 32 + lane < n ? cached<T>(a.c.k, base + i * 32 + lane) : 0.0f;
    for (int h = 0; h < a.q.heads; h++) {
        float dot = 0;
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i * 32 + lane < n) dot = fmaf(q[h * n + i * 32 + lane], key[i], dot);
        sum += w[h] * fmaxf(warp_sum(dot), 0.0f);
    }
    return sum;
}

template <typename T> static __device__ __forceinline__ void pick(const k_pick &a, uint64_t *best) {
    float *q = (float *)(best + 2 * a.keys), *w = q + a.q.heads * a.q.width;
    int64_t r = blockIdx.y;
    int n = (a.pos[r] + 1) / a.every, warp = threadIdx.x / 32;
    int32_t *out = a.y + r * a.y_stride;
    const int32_t *table = a.c.table + (int64_t)a.seq_of[r] * a.c.table_stride;
    if (n <= a.k) {
        for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = (i + 1) * a.every - 1;
        return;
    }
    for (int i = threadIdx.x; i < a.q.heads * a.q.width; i += blockDim.x) q[i] = view_load(a.q, r, i / a.q.width, i % a.q.width);
    for (int i = threadIdx.x; i < a.q.heads; i += blockDim.x) w[i] = view_load(a.w, r, 0, i);
    for (int i = threadIdx.x; i < a.keys; i += blockDim.x) best[i] = 0;
    __syncthreads();
    for (int from = 0; from < n; from += a.keys) {
        for (int i = warp; i < a.keys; i += WARPS) {
            int p = (from + i + 1) * a.every - 1;
            uint64_t key = 0;
            if (from + i < n) key = pick_key(pick_score<T>(a, q, w, ((int64_t)table[p / K_BLOCK] * a.c.heads * K_BLOCK + p % K_BLOCK) * a.c.k_width), p);
            if (threadIdx.x % 32 == 0) best[a.keys + i] = key;
        }
        sort_down(best, 2 * a.keys);
    }
    for (int i = threadIdx.x; i < a.k; i += blockDim.x) out[i] = (int32_t)(0xffffffffu - (uint32_t)best[i]);
}

// Grid (1, rows), shared memory 2 * keys * 8 + heads * (width + 1) * 4 bytes.
extern "C" __global__ void __launch_bounds__(WARPS * 32) pick_f32(KARGS(k_pick) a) {
    DYNAMIC_SHARED(uint64_t, best);
    pick<float>(a, best);
}
extern "C" __global__ void __launch_bounds__(WARPS * 32) pick_bf16(KARGS(k_pick) a) {
    DYNAMIC_SHARED(uint64_t, best);
    pick<bf16>(a, best);
}
