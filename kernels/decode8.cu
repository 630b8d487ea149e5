// Attention of decode rows over the paged cache of 8 bits, split along the positions so that a long context fills the GPU. For sm_80 and later.
//
// A block takes one row, up to eight query heads of one cached head and a run of positions; its warps take units of 32 of them in turn (attn8.cuh), the next
// unit's keys and values on their way to registers while one is multiplied. The last block of a row and head to come adds up the runs. Reads the visible
// cache once for eight query heads; stopped by memory, and by latency at short contexts.
#include "attn8.cuh"

enum { WARPS = ATTN8_WARPS };

// The units of a block: those of the row's visible positions that are its own.
struct run_of {
    int first, end; // units
};
static __device__ __forceinline__ run_of run_of_split(const k_attn &a, int first, int pos) {
    int from = first / ATTN8_UNIT, last = pos / ATTN8_UNIT + 1, each = (last - from + a.splits - 1) / a.splits, at = from + (int)blockIdx.x * each;
    return run_of{at, at + each < last ? at + each : last};
}

// A warp's way through its units: cache blocks of the next 32 are known.
struct walk8 {
    const unsigned char *k, *v;
    const int32_t *table;
    int32_t id;      // lane l: of the cache block of unit known + WARPS * l
    int known, end;
    int64_t stride;  // bytes from a cache block to the next
};
static __device__ __forceinline__ int64_t block_at(walk8 &w, int unit) {
    if (unit - w.known >= 32 * WARPS) {
        int mine = unit + WARPS * (int)(threadIdx.x % 32);
        w.known = unit;
        w.id = w.table[(mine < w.end ? mine : w.end - 1) * ATTN8_UNIT / K_BLOCK];
    }
    return __shfl_sync(FULL, w.id, (unit - w.known) / WARPS) * w.stride;
}

// Query heads to shared memory, a warp each in turn.
template <int D> static __device__ __forceinline__ void place_queries(const k_attn &a, unsigned char *queries, int64_t r, int first_head, int n, float scale) {
    for (int h = threadIdx.x / 32; h < n; h += WARPS) {
        float x[D / 32];
#pragma unroll
        for (int i = 0; i < D / 32; i++) x[i] = view_load(a.q, r, first_head + h, i * 32 + threadIdx.x % 32);
        turn_lanes<D / 32>(x, D);
        put_query8<D>(queries, h, x, scale);
    }
}

template <int D> static __device__ __forceinline__ void store_head8(const k_attn &a, int64_t r, int head, head8<D / 32> &h) {
    enum { N = D / 32 };
    finish8<N>(h, a.sinks ? a.sinks + head : NULL);
#pragma unroll
    for (int i = 0; i < N; i++) view_store(a.y, r, head, N * (threadIdx.x % 32) + i, h.x[i]);
}

// Parts of the warps, then of the runs, which the last block to come adds up in order.
template <int D> static __device__ __forceinline__ void finish(const k_attn &a, const float *parts, int64_t r, int first_head, int n) {
    enum { PART = attn8_part(D) };
    __shared__ uint32_t is_last;
    int n_heads = a.c.heads * a.group;
    float *partial = a.partial + (r * n_heads + first_head) * a.splits * PART;
    head8<D / 32> head;
    for (int h = threadIdx.x / 32; h < n; h += WARPS) {
        join8<D, false>(head, parts + h * WARPS * PART, WARPS);
        if (a.splits == 1) store_head8<D>(a, r, first_head + h, head);
        else put_part8<D>(partial + (h * a.splits + blockIdx.x) * PART, head);
    }
    if (a.splits == 1) return;
    if (!is_last_block(a.counters + r * gridDim.y + blockIdx.y, a.splits, &is_last)) return;
    for (int h = threadIdx.x / 32; h < n; h += WARPS) {
        join8<D, true>(head, partial + h * a.splits * PART, a.splits);
        store_head8<D>(a, r, first_head + h, head);
    }
}

template <int D> static __device__ __forceinline__ void attend(const k_attn &a, unsigned char *queries, float *parts) {
    enum { IS_WIDE = D > 128, PIECE = IS_WIDE ? D / 64 : D / 32 }; // keys and values of a wide head do not fit into registers at once
    int warp = threadIdx.x / 32, sets = (a.group + ATTN8_HEADS - 1) / ATTN8_HEADS, kv_head = blockIdx.y / sets, from = blockIdx.y % sets * ATTN8_HEADS;
    int n = a.group - from < ATTN8_HEADS ? a.group - from : ATTN8_HEADS;
    int64_t row = blockIdx.z;
    let_next_begin();
    int pos = a.pos[row], first = first_visible(a.window, a.chunk, pos);
    run_of run = run_of_split(a, first, pos);
    int unit = run.first + warp;
    walk8 w = {(const unsigned char *)a.c.k + kv_head * kv8_block_bytes(D), (const unsigned char *)a.c.v + kv_head * kv8_block_bytes(D),
               a.c.table + (int64_t)a.seq_of[row] * a.c.table_stride, 0, unit - 32 * WARPS, run.end, a.c.heads * kv8_block_bytes(D)};
    keys8<D, 2> k;
    values8<PIECE> v;
    float4 scales[2];
    bool has_new = run.first + WARPS > pos / ATTN8_UNIT; // the row's own position, which the kernel before writes, is among the first
    if (has_new) await_previous();
    if (unit < run.end) {
        int64_t at = block_at(w, unit);
        load_keys8<D>(k, w.k + at, unit % 2 * ATTN8_UNIT);
        if (!IS_WIDE) load_values8<D>(v, w.v + at, unit % 2, 0);
    }
    if (!has_new) await_previous();
    place_queries<D>(a, queries, row, kv_head * a.group + from, n, query_scale(a, pos) * (a.softcap > 0 ? 1.0f / a.softcap : LOG2E));
    __syncthreads();
    queries8<D, D == 64> q;
    take_queries8<D>(q, queries, n);
    seen8<D> z;
    begin8<D>(z);
#pragma unroll 1
    for (; unit < run.end; unit += WARPS) {
        float s[8];
        uint32_t weights[4];
        int next = unit + WARPS;
        int64_t here = block_at(w, unit), at = next < run.end ? block_at(w, next) : 0;
        load_scales8<D, 2>(scales, w.v + here, unit % 2 * ATTN8_UNIT);
        scores8<D>(s, q, k);
        if (IS_WIDE) load_values8<D>(v, w.v + here, unit % 2, 0);
        else if (next < run.end) load_keys8<D>(k, w.k + at, next % 2 * ATTN8_UNIT);
        float one = soften8<D>(z, s, scales, a.softcap, unit * ATTN8_UNIT, first, pos + 1, weights);
        add_values8<D>(z, weights, v, one, 0);
        if (IS_WIDE) {
            load_values8<D>(v, w.v + here, unit % 2, PIECE);
            add_values8<D>(z, weights, v, one, D / 32 - PIECE);
        }
        if (next >= run.end) break;
        if (IS_WIDE) load_keys8<D>(k, w.k + at, next % 2 * ATTN8_UNIT);
        else load_values8<D>(v, w.v + at, next % 2, 0);
    }
    keep_parts8<D>(parts, n, WARPS, warp, z);
    __syncthreads();
    finish<D>(a, parts, row, kv_head * a.group + from, n);
}

// Grid (splits, cached heads times sets of eight query heads, rows).
#define DECODE8(d, blocks)                                                                          \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, blocks) attn8_##d(KARGS(k_attn) a) {   \
        alignas(16) __shared__ unsigned char queries[attn8_query_bytes(d)];                         \
        alignas(16) __shared__ float parts[ATTN8_HEADS * WARPS * attn8_part(d)];                    \
        attend<d>(a, queries, parts);                                                               \
    }
DECODE8(64, 4)
DECODE8(128, 2)
DECODE8(256, 1)
