// Decode steps of one row: attention over a cache of 8 bits (tile_attn8.cuh) as an instruction of lists (one8.cu). A block takes all query heads of a
// cached head, at most eight, and a run of units of positions; its warps take units in turn, of one of two sets of heads where there are more than four. The row's own key and value
// come from shared memory. All lines of the run are asked for before the queries are there; to load the first ones to registers would take these from the products.
#pragma once
#include "parts8.cuh"
#include "step.cuh"
#include "tile_attn8.cuh"

// The part of an item: begin and end are units; own: whether the last of them has the row's own position.
static __device__ __forceinline__ part_of part8_of_item(const k_step_attn &a, int item, int pos, int first) {
    int from = first / ATTN8_UNIT, end = pos / ATTN8_UNIT + 1, each = (end - from + a.splits - 1) / a.splits;
    part_of p;
    p.kv_head = item / a.splits, p.split = item - p.kv_head * a.splits, p.splits = a.splits;
    p.first = 0, p.n = a.group;
    p.begin = min(from + p.split * each, end), p.end = min(p.begin + each, end);
    p.own = p.begin < p.end && p.end == end;
    return p;
}

template <class KNOWN> static __device__ __forceinline__ int units8(const KNOWN *known) {
    return known->part.end - known->part.begin;
}

// Vector i of an item: a query, then the key, then the value. The last two go to the cache as well.
template <int D, class KNOWN>
static __device__ __forceinline__ void place_head8(const k_step_attn &a, const KNOWN *known, angles by, unsigned char *queries, own8<D> &own, float *room, int i, float scale, uint32_t tag, uint32_t *count) {
    enum { E = D / 32 };
    bool is_q = i < a.group, is_k = i == a.group;
    if (!is_q && !known->part.own) return;
    int lane = threadIdx.x % 32, pos = known->pos;
    int at = is_q ? (known->part.kv_head * a.group + i) * (int)a.q_head : known->part.kv_head * (int)(is_k ? a.k_head : a.v_head);
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
    for (int e = 0; e < E; e++) (is_k ? own.key : own.value)[32 * e + lane] = (unsigned char)codes[e];
    if (lane == 0) own.scale[is_k ? 0 : 1] = one;
    kv8_store<E>(kv8_block(a.c, !is_k, table_block(a, known, pos / K_BLOCK), known->part.kv_head), codes, one, D, pos % K_BLOCK, !is_k);
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
template <int WARPS, int D, class KNOWN> static __device__ __forceinline__ void finish_item8(const k_step_attn &a, KNOWN *known, const float *parts, int n_parts, uint32_t tag) {
    enum { PART = attn8_part(D) };
    int warp = threadIdx.x / 32, first_head = known->part.kv_head * a.group;
    float *partial = a.partial + (int64_t)first_head * a.splits * PART;
    head8<D / 32> head;
    if (warp < a.group) {
        join8<D, false>(head, parts + warp * n_parts * PART, n_parts);
        if (a.splits == 1) store_head8<D>(a, head, first_head + warp, tag);
        else put_part8<D>(partial + (warp * a.splits + known->part.split) * PART, head);
    }
    if (a.splits == 1) return;
    if (!is_last_block(a.counters + known->part.kv_head, a.splits, &known->last) || warp >= a.group) return;
    join8<D, true>(head, partial + warp * a.splits * PART, a.splits);
    store_head8<D>(a, head, first_head + warp, tag);
}

// From the cache's first byte to the block of unit i.
template <int D, class KNOWN> static __device__ __forceinline__ int64_t block_at8(const k_step_attn &a, const KNOWN *known, int i) {
    return (int64_t)(table_block(a, known, (known->part.begin + i) * ATTN8_UNIT / K_BLOCK) * a.c.heads + known->part.kv_head) * kv8_block_bytes(D);
}

// Units [from, to) of an item are on their way to L2. A unit's codes are 32 times D bytes.
template <int WARPS, int D, class KNOWN> static __device__ __forceinline__ void ask_units8(const k_step_attn &a, const KNOWN *known, int from, int to) {
#pragma unroll 1
    for (int i = from + (int)threadIdx.x / 32; i < to && i < units8(known); i += WARPS) {
        int64_t at = block_at8<D>(a, known, i) + (known->part.begin + i) % 2 * ATTN8_UNIT * D + threadIdx.x % 32 * D;
        prefetch_line((const unsigned char *)a.c.k + at);
        prefetch_line((const unsigned char *)a.c.v + at);
    }
}
// As many are asked for while the product before runs: one for each warp.
template <int WARPS, int D, class KNOWN> static __device__ __forceinline__ void ask_item(const k_step_attn &a, const KNOWN *known) {
    if (known->item < 0 || known->table != a.c.table) return;
    ask_units8<WARPS, D>(a, known, 0, WARPS);
}

// Scores of a unit with their scales; positions from p0 on that the row does not see get no weight.
static __device__ __forceinline__ void scale_scores8(float s[4], float factor, const float2 scale[2], float softcap, int p0, int begin, int end, bool has_head) {
    int first = p0 + 2 * ((int)threadIdx.x % 32 / 4);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        s[e] *= factor * (e % 2 ? scale[e / 2].y : scale[e / 2].x);
        if (softcap > 0) s[e] = softcap * LOG2E * tanhf(s[e]);
    }
    if (has_head && p0 >= begin && p0 + ATTN8_UNIT <= end) return;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        int p = first + e / 2 * 16 + e % 2;
        if (!has_head || p < begin || p >= end) s[e] = -INFINITY;
    }
}

// A set of query heads over the units of a warp. Keys and values come from L2 through the same few registers, step after step. parts: [heads][n_parts][attn8_part(D)].
template <int D, class KNOWN>
static __device__ __forceinline__ void attend8(const k_step_attn &a, const KNOWN *known, const own8<D> &own, unsigned char *queries, float *parts, const shares &w, int n_parts) {
    enum { STEPS = D / 64 };
    int head = w.set * SET_HEADS + threadIdx.x % 4;
    bool has_head = head < a.group;
    seen_tiles8<D> z;
    begin_tiles8<D>(z);
#pragma unroll 1
    for (int i = w.i_warp; i < units8(known); i += w.n_warps) {
        int64_t block = block_at8<D>(a, known, i);
        const unsigned char *keys = (const unsigned char *)a.c.k + block, *values = (const unsigned char *)a.c.v + block;
        int half = (known->part.begin + i) % 2, p0 = (known->part.begin + i) * ATTN8_UNIT, at = known->part.own && i == units8(known) - 1 ? known->pos - p0 : -1;
        float s[4];
        float2 scale[2];
        uint32_t weights[2];
        step8 x;
        load_scales8<D>(scale, keys, half);
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            load_keys8<D>(x, keys, half, j);
            if (at >= 0) take_own_key8<D>(x, own, at, j);
            tile_scores8<D>(s + 2 * j, queries + w.set * (2 * SET_HEADS * D), x, 0);
            if (STEPS == 1) tile_scores8<D>(s + 2, queries + w.set * (2 * SET_HEADS * D), x, 2);
        }
        load_values8<D>(x, values, half, 0);
        if (at >= 0) take_own_scale8(scale, own.scale[0], at);
        scale_scores8(s, query_factors<D>(queries)[has_head ? head : 0], scale, a.softcap, p0, known->first_visible, known->pos + 1, has_head);
        load_scales8<D>(scale, values, half);
        if (at >= 0) take_own_scale8(scale, own.scale[1], at);
        float one = tile_soften8<D>(z, s, scale, weights);
#pragma unroll
        for (int j = 0; j < STEPS; j++) {
            if (j) load_values8<D>(x, values, half, j);
            if (at >= 0) take_own_value8<D>(x, own, at, j);
            add_values8<D>(z, weights, x, one, j);
        }
    }
    keep_tiles8<D>(has_head ? parts + (head * n_parts + w.i_warp) * attn8_part(D) : NULL, z);
}

// One item, by a block of at least eight warps. room: attn8_item_bytes; parts: list_parts * attn8_part(D) floats. The row is known. made: tag of queries, keys and values in their link; tag: of the result.
template <int WARPS, int D, class KNOWN>
static __device__ __forceinline__ void run_item8(const k_step_attn &a, KNOWN *known, angles by, unsigned char *room, float *parts, uint32_t made, uint32_t tag, uint32_t *count) {
    static_assert(WARPS >= ATTN8_HEADS && attn8_query_bytes(D) + sizeof(own8<D>) <= attn8_item_bytes(D), "a warp for each head; their room");
    static_assert(list_parts(SMALL_SHARED) * attn8_part(D) <= 2 * list_sums(SMALL_SHARED), "parts lie where a product has its sums");
    int warp = threadIdx.x / 32, pos = known->pos, n_sets = (a.group + SET_HEADS - 1) / SET_HEADS, n_warps = list_parts(SMALL_SHARED) / SET_HEADS / n_sets;
    const shares w = {n_warps, warp / n_sets, warp % n_sets};
    own8<D> &own = *(own8<D> *)(room + attn8_query_bytes(D));
    int n_parts = min(units8(known), n_warps);
    ask_units8<WARPS, D>(a, known, 0, units8(known));
    float factor = a.scale * (a.softcap > 0 ? 1.0f / a.softcap : LOG2E);
    if (a.pos_scale_len) factor *= 1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len));
#pragma unroll 1
    for (int i = warp; i < a.group + 2; i += WARPS) place_head8<D>(a, known, by, room, own, parts, i, factor, made, count);
    __syncthreads();
    if (w.i_warp < n_parts) attend8<D>(a, known, own, room, parts, w, n_parts);
    __syncthreads();
    finish_item8<WARPS, D>(a, known, parts, n_parts, tag);
}
