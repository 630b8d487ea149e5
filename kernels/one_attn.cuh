// kernels/one.cu: attention of one row. A block takes query heads of one cached head over a run of positions; its warps share positions and
// heads, and their parts are joined by all threads.
#pragma once
#include "one_ring.cuh"

// The numbers that divide attention into items, in one.
static __device__ __forceinline__ int shape_of(const k_step_attn &a) {
    return a.group | a.per_item << 8 | a.sets << 16 | a.splits << 24;
}

static __device__ __forceinline__ part_of part_of_item(const k_step_attn &a, int item, int pos, int first) {
    int pair = item / a.splits, each = (pos - first + a.splits) / a.splits;
    part_of p;
    p.split = item - pair * a.splits;
    p.kv_head = pair / a.sets;
    p.first = (pair - p.kv_head * a.sets) * a.per_item;
    p.n = a.group - p.first < a.per_item ? a.group - p.first : a.per_item;
    p.begin = first + p.split * each, p.end = p.begin + each < pos + 1 ? p.begin + each : pos + 1;
    p.has_own = p.begin <= pos && p.end == pos + 1;
    if (p.has_own) p.end = pos; // its own comes from shared memory
    return p;
}

// What the row's attention needs, once for all layers that ask for the same.
static __device__ __noinline__ void know_row(const k_step_attn &a, shared_head *known, int item) {
    __syncthreads();
    int pos = a.pos[0], place = a.rope_pos[0], seq = a.seq_of[0], first = first_visible(a.window, a.chunk, pos);
    part_of part = part_of_item(a, item, pos, first);
    int begin = part.begin / K_BLOCK;
    const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)seq * a.n_rope_tables + a.table) * a.rope_width;
    for (int i = threadIdx.x; i < a.n_rotated / 2; i += blockDim.x) rope_angle(place, table[i], a.magnitude, &known->cosines[i], &known->sines[i]);
    for (int i = threadIdx.x; i < TABLE_MAX && begin + i <= pos / K_BLOCK; i += blockDim.x)
        known->blocks[i] = a.c.table[(int64_t)seq * a.c.table_stride + begin + i];
    if (threadIdx.x == 0) {
        known->pos = pos, known->seq = seq, known->row = 0, known->first_block = begin;
        known->first_visible = first, known->shape = shape_of(a), known->part = part;
        known->table = a.c.table, known->inv_freq = a.inv_freq ? a.inv_freq : a.step_rope + a.table;
    }
    __syncthreads();
}

static __device__ __noinline__ float position_scale(const k_step_attn &a, int pos) {
    return a.scale * (1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len)));
}

// Queries to shared memory, one warp each; where the row's own position is this block's, its key and value too, as the cache has them, and to
// the cache.
template <int D> static __device__ __forceinline__ void place_head(const k_step_attn &a, const shared_head *known, float *heads, const part_of &part, int pos, int warp, uint32_t *count) {
    enum { E = D / 32 };
    int lane = threadIdx.x % 32, n = part.n, kv_head = part.kv_head;
    bool is_q = warp < n, is_k = warp == n;
    if (!is_q && !part.has_own) return;
    int at = is_q ? (kv_head * a.group + part.first + warp) * (int)a.q_head : kv_head * (int)(is_k ? a.k_head : a.v_head);
    float x[E], *to = heads + (warp + (is_q ? 0 : 1)) * D; // own key and value lie in one row behind the queries
    prepare_head<D>(a, known, to, is_q, is_k, at, known->tag + a.qkv_maker, count, x);
    if (is_q) {
#pragma unroll
        for (int e = 0; e < E; e++) to[lane + 32 * e] = x[e];
        return;
    }
    bf16 *own = (bf16 *)(heads + n * D) + (is_k ? 0 : D);
    bf16 *cached = (bf16 *)(is_k ? a.c.k : a.c.v) + (int64_t)(table_block(a, known, pos / K_BLOCK) * a.c.heads + kv_head) * (K_BLOCK * D) + pos % K_BLOCK * D;
#pragma unroll
    for (int e = 0; e < E; e++) {
        bf16 rounded = __float2bfloat16_rn(x[e]);
        if (part.first == 0) cached[lane + 32 * e] = rounded;
        own[lane + 32 * e] = rounded;
    }
}

// Keys and values of the positions p, p + step, ...; zeros beyond the end, and at the row's own position, which is not in the cache yet.
template <int D, int PER_STEP>
static __device__ __forceinline__ void load_positions(const k_step_attn &a, const shared_head *known, int kv_head, int p, int step, int end, uint4 key[PER_STEP], uint4 value[PER_STEP]) {
    int part = threadIdx.x % (D / 8), heads = a.c.heads, block[PER_STEP];
    const bf16 *keys = (const bf16 *)a.c.k, *values = (const bf16 *)a.c.v;
#pragma unroll
    for (int j = 0; j < PER_STEP; j++) block[j] = p + j * step < end ? table_block(a, known, (p + j * step) / K_BLOCK) : 0;
#pragma unroll
    for (int j = 0; j < PER_STEP; j++) {
        int q = p + j * step;
        int64_t at = (int64_t)(block[j] * heads + kv_head) * (K_BLOCK * D) + q % K_BLOCK * D + part * 8;
        key[j] = value[j] = uint4{0, 0, 0, 0};
        if (q < end) key[j] = *(const uint4 *)(keys + at), value[j] = *(const uint4 *)(values + at);
    }
}

// The query heads of this warp over the positions of this block, begin ... end - 1, and the row's own; the first keys and values are loaded.
// parts: [heads][n_warps][D + 2]. Scores are in units of log 2.
template <int D, int HEADS, int PER_STEP>
static __device__ __forceinline__ void attend(const k_step_attn &a, const float *heads, float *parts, const shared_head *known, int group, int kv_head, int pos, bool own, int p, int end, float scale, const shares &w,
                                              uint4 key[PER_STEP], uint4 value[PER_STEP]) {
    enum { LANES = D / 8, BESIDE = 32 / LANES };
    int lane = threadIdx.x % 32, part = lane % LANES, step = w.n_warps * BESIDE, stop = end + (own ? 1 : 0);
    const bf16 *mine = (const bf16 *)(heads + group * D);
    float q[HEADS][8], acc[HEADS][8], max[HEADS], sum[HEADS], softcap = a.softcap;
    scale *= softcap > 0 ? 2.0f / softcap : LOG2E;
    begin_heads<D, HEADS>(heads, w, group, part, scale, q, acc, max, sum);
    while (p - lane / LANES < stop) { // any lane of this warp
        float s[HEADS * PER_STEP];
#pragma unroll
        for (int j = 0; j < PER_STEP; j++) {
            int at = p + j * step;
            if (own && at == pos) key[j] = *(const uint4 *)(mine + part * 8), value[j] = *(const uint4 *)(mine + D + part * 8);
            float k[8];
            floats_of(key[j], k);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float dot = 0, more = 0;
#pragma unroll
                for (int i = 0; i < 4; i++) dot = fmaf(q[h][i], k[i], dot), more = fmaf(q[h][i + 4], k[i + 4], more);
                s[h * PER_STEP + j] = dot + more;
            }
        }
#pragma unroll
        for (int x = LANES / 2; x > 0; x /= 2) // all positions side by side
#pragma unroll
            for (int i = 0; i < HEADS * PER_STEP; i++) s[i] += __shfl_xor_sync(FULL, s[i], x);
        if (softcap > 0) {
#pragma unroll
            for (int i = 0; i < HEADS * PER_STEP; i++) // tanh
                s[i] = softcap * LOG2E * (1.0f - __fdividef(2.0f, 1.0f + __expf(s[i])));
        }
#pragma unroll
        for (int i = 0; i < HEADS * PER_STEP; i++) {
            int at = p + i % PER_STEP * step;
            if (at >= end && !(own && at == pos)) s[i] = -INFINITY;
        }
        add_positions<HEADS, PER_STEP>(s, value, [](int) { return false; }, max, sum, acc);
        p += PER_STEP * step;
        if (p - lane / LANES < stop) load_positions<D, PER_STEP>(a, known, kv_head, p, step, end, key, value);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int x = LANES; x < 32; x *= 2) { // positions beside each other in this warp
            float other_max = __shfl_xor_sync(FULL, max[h], x), top = fmaxf(max[h], other_max), base = top == -INFINITY ? 0.0f : top;
            float keep = exp2f(max[h] - base), take = exp2f(other_max - base);
            max[h] = top;
            sum[h] = sum[h] * keep + __shfl_xor_sync(FULL, sum[h], x) * take;
#pragma unroll
            for (int i = 0; i < 8; i++) acc[h][i] = acc[h][i] * keep + __shfl_xor_sync(FULL, acc[h][i], x) * take;
        }
        if (w.set * HEADS + h < group && lane < LANES) keep_head<D>(parts, w, w.set * HEADS + h, part, max[h], sum[h], acc[h]);
    }
}

// Everything but the usual end of attention: runs of several blocks, joined by the last of them to come; sinks; results that lie in memory as
// they are. joined: [heads][D + 2] of this block.
template <int D> static __device__ __noinline__ void store_heads(const k_step_attn &a, shared_head *head, const float *joined, int first_head, int n, int split, int counter, uint32_t tag) {
    int splits = a.splits;
    float *partial = a.partial + (int64_t)first_head * splits * (D + 2);
    __syncthreads();
    if (splits > 1) {
        for (int e = threadIdx.x; e < n * (D + 2); e += blockDim.x) partial[(e / (D + 2) * splits + split) * (D + 2) + e % (D + 2)] = joined[e];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            head->last = count_around(a.counters + counter, (uint32_t)splits - 1) == (uint32_t)splits - 1;
            __threadfence();
        }
        __syncthreads();
        if (!head->last) return;
    }
#pragma unroll 1
    for (int e = threadIdx.x; e < n * D; e += blockDim.x) {
        int h = e / D, i = e % D;
        softened s = {joined[h * (D + 2) + i], joined[h * (D + 2) + D], joined[h * (D + 2) + D + 1]};
        if (splits > 1) s = join<true>(partial + h * splits * (D + 2), splits, D, i);
        if (a.sinks) add_sink(s, a.sinks[first_head + h]);
        float x = __fdividef(s.x, s.sum);
        float next = __shfl_down_sync(FULL, x, 1);
        int at = first_head * D + e;
        if (a.y) store_f32(a.y, a.y_dtype, at, x);
        if (!a.y_link) continue;
        if (a.y_dtype == K_F32) store_tagged(a.y_link + at, __float_as_uint(x), tag);
        else if (i % 2 == 0) store_tagged(a.y_link + at / 2, pack_bf16(x, next), tag);
    }
}

// Whether what is known of the row is what this attention asks for.
static __device__ __forceinline__ bool knows_row(const k_step_attn &a, const shared_head *head) {
    const float *rope = a.inv_freq ? a.inv_freq : a.step_rope + a.table; // all at once: && would ask for one after the other
    return (head->row == 0) & (head->table == a.c.table) & (head->inv_freq == rope) & (head->shape == shape_of(a)) &
           (head->first_visible == first_visible(a.window, a.chunk, head->pos));
}

// One item: query heads of a cached head, a run of positions. DTYPE: of the usual result.
template <int WARPS, int D, int HEADS, int DTYPE> static __device__ __forceinline__ void run_item(const k_instr &in, shared_head *head, float *heads, int item, uint32_t *count) {
    enum { PER_STEP = HEADS == 1 ? 4 : 2 };
    const k_step_attn &a = in.u.attn;
    float *parts = heads + (a.per_item + 2) * D;
    if (!knows_row(a, head)) know_row(a, head, item);
    const part_of part = head->part;
    int pos = head->pos, warp = threadIdx.x / 32, n_sets = HEADS == 1 ? 1 : (part.n + 1) / 2, share = 0x080b1020 >> (n_sets - 1) * 8 & 63; // 32 / n_sets
    const shares w = n_sets == 1 ? shares{WARPS, warp, 0} : shares{WARPS * share / 32, warp * share / 32, warp - warp * share / 32 * n_sets};
    int step = w.n_warps * (256 / D), p = part.begin + w.i_warp * (256 / D) + threadIdx.x % 32 / (D / 8);
    float scale = a.pos_scale_len ? position_scale(a, pos) : a.scale;
    uint4 key[PER_STEP], value[PER_STEP];
    load_positions<D, PER_STEP>(a, head, part.kv_head, w.i_warp < w.n_warps ? p : part.end, step, part.end, key, value);
#pragma unroll 1
    for (int i = warp; i < part.n + 2; i += WARPS) place_head<D>(a, head, heads, part, pos, i, count);
    __syncthreads();
    if (w.i_warp < w.n_warps) attend<D, HEADS, PER_STEP>(a, heads, parts, head, part.n, part.kv_head, pos, part.has_own, p, part.end, scale, w, key, value);
    __syncthreads();
    int first_head = part.kv_head * a.group + part.first, lane = threadIdx.x % WARPS; // as many lanes as warps share an element
    uint32_t tag = head->tag + in.number;
    bool usual = a.splits == 1 && a.y_link && !a.y && !a.sinks && a.y_dtype == DTYPE;
    bool there = lane < w.n_warps;
#pragma unroll 1
    for (int h = 0; h < part.n; h++) {
        const float *from = parts + (h * w.n_warps + lane) * (D + 2);
        float mine = there ? from[D] : -INFINITY, max = mine, x[D / 32];
#pragma unroll
        for (int step = WARPS / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(FULL, max, step));
        float keep = there ? exp2f(mine - (max == -INFINITY ? 0.0f : max)) : 0.0f, sum = sum_lanes<WARPS>(there ? from[D + 1] * keep : 0.0f);
#pragma unroll
        for (int j = 0; j < D / 32; j++) x[j] = sum_lanes<WARPS>(there ? from[threadIdx.x / WARPS + j * 32] * keep : 0.0f);
        if (usual) {
            uint64_t *to = a.y_link + ((first_head + h) * D + (int)threadIdx.x / WARPS) / (DTYPE == K_F32 ? 1 : 2);
            float factor = __fdividef(1.0f, sum);
            bool stores = lane == 0 && threadIdx.x / WARPS % 2 == 0;
#pragma unroll
            for (int j = 0; j < D / 32; j++) {
                if (DTYPE == K_F32) {
                    if (lane == 0) store_tagged(to + j * 32, __float_as_uint(x[j] * factor), tag);
                    continue;
                }
                float y = x[j] * factor, next = __shfl_down_sync(FULL, y, WARPS);
                if (stores) store_tagged(to + j * 16, pack_bf16(y, next), tag);
            }
        } else if (lane == 0) {
            float *to = heads + h * (D + 2);
#pragma unroll
            for (int j = 0; j < D / 32; j++) to[threadIdx.x / WARPS + j * 32] = x[j];
            if (threadIdx.x == 0) to[D] = max, to[D + 1] = sum;
        }
    }
    if (!usual) store_heads<D>(a, head, heads, first_head, part.n, part.split, part.kv_head * a.sets + part.first / a.per_item, tag);
}
