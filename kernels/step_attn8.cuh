// Decode steps of one row: attention over a cache of 8 bits (attn8.cuh) as an instruction of lists (one8.cu). A block takes all query heads of a
// cached head, at most eight, and a run of units of positions; its warps take units in turn, and one of them the row's own position, whose key and value
// come from shared memory. All lines of the run are asked for before the queries are there.
#pragma once
#include "attn8.cuh"
#include "step.cuh"

struct item8 {
    int kv_head, split, first, n; // n units from `first` on have positions that are in the cache
    bool has_own;
};
static __device__ __forceinline__ item8 item8_of(const k_step_attn &a, int item, int pos) {
    int from = first_visible(a.window, a.chunk, pos) / ATTN8_UNIT, end = pos / ATTN8_UNIT + 1, each = (end - from + a.splits - 1) / a.splits;
    item8 it;
    it.kv_head = item / a.splits, it.split = item - it.kv_head * a.splits;
    it.first = from + it.split * each;
    int last = it.first + each < end ? it.first + each : end, cached = (pos + ATTN8_UNIT - 1) / ATTN8_UNIT;
    it.has_own = it.first < end && last == end;
    it.n = (last < cached ? last : cached) - it.first;
    if (it.n < 0) it.n = 0;
    return it;
}

// The row's own key and value in shared memory: codes of the key, words with codes of the value, their scales.
template <int D> struct own8 {
    unsigned char key[D];
    uint32_t value[D];
    float scale[2];
};
template <int D> static __device__ __forceinline__ void load_own_keys(keys8<D, 1> &k, const own8<D> &own) {
    int lane = threadIdx.x % 32;
    k.scale[0] = float4{own.scale[0], 0, 0, 0};
#pragma unroll
    for (int m = 0; m < D / 64; m++) {
        k.code[0][m] = k.code[1][m] = uint4{0, 0, 0, 0};
        if (lane < 4) k.code[0][m] = *(const uint4 *)(own.key + 64 * m + 16 * lane);
    }
}
template <int D, int J> static __device__ __forceinline__ void load_own_values(values8<J> &v, const own8<D> &own, int first) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int j = 0; j < J; j++) {
        v.code[0][j] = v.code[1][j] = uint4{0, 0, 0, 0};
        if (lane % 4 == 0) v.code[0][j] = *(const uint4 *)(own.value + 32 * (first + j) + lane);
    }
}

// Vector i of an item: a query, then the key, then the value. The last two go to the cache as well.
template <int D, class KNOWN>
static __device__ __forceinline__ void place_head8(const k_step_attn &a, const KNOWN *known, angles by, unsigned char *queries, own8<D> &own, float *room, const item8 &it, int i, float scale, uint32_t tag, uint32_t *count) {
    enum { E = D / 32 };
    bool is_q = i < a.group, is_k = i == a.group;
    if (!is_q && !it.has_own) return;
    int lane = threadIdx.x % 32, pos = known->pos;
    int at = is_q ? (it.kv_head * a.group + i) * (int)a.q_head : it.kv_head * (int)(is_k ? a.k_head : a.v_head);
    float x[E];
    prepare_head<D>(a, by, room + i * D, is_q, is_k, at, tag, count, x);
    turn_lanes<E>(x, D);
    if (is_q) {
        put_query8<D>(queries, i, x, scale);
        return;
    }
    int codes[E];
    float one = kv8_codes<E>(x, D, codes);
#pragma unroll
    for (int e = 0; e < E; e++) {
        if (is_k) own.key[32 * e + lane] = (unsigned char)codes[e];
        else own.value[32 * e + lane] = (unsigned char)codes[e];
    }
    if (lane == 0) own.scale[is_k ? 0 : 1] = one;
    kv8_store<E>(kv8_block(a.c, !is_k, table_block(a, known, pos / K_BLOCK), it.kv_head), codes, one, D, pos % K_BLOCK, !is_k);
}

// A head's result to who reads it; from: its first element.
template <int D> static __device__ __forceinline__ void store_head8(const k_step_attn &a, head8<D / 32> &h, int head, uint32_t tag) {
    enum { N = D / 32 };
    int at = head * D + N * (int)(threadIdx.x % 32);
    finish8<N>(h, a.sinks ? a.sinks + head : NULL);
#pragma unroll
    for (int i = 0; i < N; i++) {
        if (a.y) store_f32(a.y, a.y_dtype, at + i, h.x[i]);
        if (a.y_link && a.y_dtype == K_F32) store_tagged(a.y_link + at + i, __float_as_uint(h.x[i]), tag);
        if (a.y_link && a.y_dtype != K_F32 && i % 2 == 0) store_tagged(a.y_link + (at + i) / 2, pack_bf16(h.x[i], h.x[i + 1]), tag);
    }
}

// Parts of the warps; then those of the runs, which the last block to come adds up in order.
template <int WARPS, int D, class KNOWN> static __device__ __forceinline__ void finish_item8(const k_step_attn &a, KNOWN *known, const float *parts, const item8 &it, int n_parts, uint32_t tag) {
    enum { PART = attn8_part(D) };
    int warp = threadIdx.x / 32, first_head = it.kv_head * a.group;
    float *partial = a.partial + (int64_t)first_head * a.splits * PART;
    head8<D / 32> head;
    if (warp < a.group) {
        join8<D, false>(head, parts + warp * n_parts * PART, n_parts);
        if (a.splits == 1) store_head8<D>(a, head, first_head + warp, tag);
        else put_part8<D>(partial + (warp * a.splits + it.split) * PART, head);
    }
    if (a.splits == 1) return;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        known->last = count_around(a.counters + it.kv_head, (uint32_t)a.splits - 1) == (uint32_t)a.splits - 1;
        __threadfence();
    }
    __syncthreads();
    if (!known->last || warp >= a.group) return;
    join8<D, true>(head, partial + warp * a.splits * PART, a.splits);
    store_head8<D>(a, head, first_head + warp, tag);
}

// One item, by a block of at least eight warps. room: attn8_item_bytes. The row is known. made: tag of queries, keys and values in their link; tag: of the result.
template <int WARPS, int D, class KNOWN> static __device__ __forceinline__ void run_item8(const k_step_attn &a, KNOWN *known, angles by, unsigned char *room, int item, uint32_t made, uint32_t tag, uint32_t *count) {
    enum { PIECE = 2 };
    static_assert(WARPS >= ATTN8_HEADS && sizeof(own8<D>) <= 2 * D * 4, "a warp for each head; its room");
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pos = known->pos, seen_from = first_visible(a.window, a.chunk, pos);
    const item8 it = item8_of(a, item, pos);
    unsigned char *queries = room;
    own8<D> &own = *(own8<D> *)(room + attn8_query_bytes(D));
    float *parts = (float *)(room + attn8_query_bytes(D) + 2 * D * 4);
    int n_items = it.n + it.has_own, n_parts = n_items < WARPS ? n_items : WARPS;
    const unsigned char *keys = (const unsigned char *)a.c.k + it.kv_head * kv8_block_bytes(D), *values = (const unsigned char *)a.c.v + it.kv_head * kv8_block_bytes(D);
    int64_t stride = a.c.heads * kv8_block_bytes(D);
    auto block_of = [&](int i) { return table_block(a, known, (it.first + i) * ATTN8_UNIT / K_BLOCK) * stride; };
#pragma unroll 1
    for (int i = warp; i < it.n; i += WARPS) { // a unit's codes are 32 times D bytes
        int64_t at = block_of(i) + (it.first + i) % 2 * ATTN8_UNIT * D + lane * D;
        prefetch_line(keys + at);
        prefetch_line(values + at);
    }
    float scale = a.scale * (a.softcap > 0 ? 1.0f / a.softcap : LOG2E);
    if (a.pos_scale_len) scale *= 1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len));
#pragma unroll 1
    for (int i = warp; i < a.group + 2; i += WARPS) place_head8<D>(a, known, by, queries, own, parts, it, i, scale, made, count);
    __syncthreads();
    queries8<D, false> q;
    seen8<D> z;
    take_queries8<D>(q, queries, a.group);
    begin8<D>(z);
#pragma unroll 1
    for (int i = warp; i < n_items; i += WARPS) {
        float s[8];
        uint32_t weights[4];
        keys8<D, 1> k;
        values8<PIECE> v;
        float4 scales[2] = {{own.scale[1], 0, 0, 0}, {0, 0, 0, 0}};
        bool is_own = i == it.n;
        int p0 = is_own ? pos : (it.first + i) * ATTN8_UNIT;
        int64_t block = is_own ? 0 : block_of(i);
        const unsigned char *from = values + block;
        if (!is_own) load_scales8<D, 2>(scales, from, (it.first + i) % 2 * ATTN8_UNIT);
#pragma unroll
        for (int h = 0; h < 2; h++) { // the own position is in the first half
            if (is_own) load_own_keys<D>(k, own);
            else load_keys8<D>(k, keys + block, (it.first + i) % 2 * ATTN8_UNIT + 16 * h);
            scores8<D>(s + 4 * h, q, k);
        }
        float one = soften8<D>(z, s, scales, a.softcap, p0, is_own ? pos : seen_from, is_own ? pos + 1 : pos, weights);
#pragma unroll
        for (int j = 0; j < D / 32; j += PIECE) {
            if (is_own) load_own_values<D>(v, own, j);
            else load_values8<D>(v, from, (it.first + i) % 2, j);
            add_values8<D>(z, weights, v, one, j);
        }
    }
    __syncthreads(); // parts begin where vectors were prepared
    if (warp < n_parts) keep_parts8<D>(parts, a.group, n_parts, warp, z);
    __syncthreads();
    finish_item8<WARPS, D>(a, known, parts, it, n_parts, tag);
}
