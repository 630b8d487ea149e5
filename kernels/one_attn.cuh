// kernels/one.cu: attention. An item is a row's query heads of one cached head over a run of positions, or one of these heads where runs are few; the warps of its
// block share positions, and sets of heads, and their parts are joined by all threads. One head is computed by plain products, several on the tensor cores
// (tile_attn.cuh). Which positions an item has does not depend on how many rows the step has.
#pragma once
#include "one_ring.cuh"
#ifdef ONE_CACHE_8
#include "step_attn8.cuh"
#endif
#include "tile_attn.cuh"

static_assert(list_parts(SMALL_SHARED) * (128 + 2) <= 2 * list_sums(SMALL_SHARED), "parts lie where a product has its sums");
static_assert(list_parts_of(SMALL_SHARED, 256) * (256 + 2) <= 2 * list_sums(SMALL_SHARED), "likewise");

// The numbers that divide attention into items, in one.
static __device__ __forceinline__ int shape_of(const k_step_attn &a) {
    return a.group | a.single << 8 | a.splits << 16;
}

// So many positions are one run: to join runs takes longer than to read on.
enum { LIST_ALONE = 512 };

// of_row: the item among those of its row. new_from: the first position whose key and value this step makes. A row of few positions has fewer items
// than the others: these have no heads.
static __device__ __forceinline__ part_of part_of_item(const k_step_attn &a, int of_row, int pos, int first, int new_from) {
    part_of p;
    int runs = pos - first < LIST_ALONE ? 1 : (pos - first + LIST_RUN) / LIST_RUN;
    p.splits = runs < a.splits ? runs : a.splits;
    int per_item = p.splits <= a.single ? 1 : a.group, sets = per_item == 1 ? a.group : 1;
    if (per_item > 1) first -= first % TILE_POSITIONS; // runs of whole tiles
    int pair = of_row / p.splits, each = (pos - first + p.splits) / p.splits;
    if (per_item > 1) each = (each + TILE_POSITIONS - 1) / TILE_POSITIONS * TILE_POSITIONS;
    p.split = of_row - pair * p.splits;
    p.kv_head = pair / sets;
    p.first = (pair - p.kv_head * sets) * per_item;
    p.n = p.kv_head < a.c.heads ? per_item : 0;
    p.begin = first + p.split * each, p.end = p.begin + each < pos + 1 ? p.begin + each : pos + 1;
    if (p.end < p.begin) p.end = p.begin; // whole tiles: the last runs may be empty
    int cached = p.end < new_from ? p.end : p.begin > new_from ? p.begin : new_from; // the others come from shared memory
    p.own = p.end > cached ? p.end - cached : 0;
    p.end = cached;
    return p;
}

static __device__ __forceinline__ int items_of_row(const k_step_attn &a) {
    return a.items;
}
static __device__ __forceinline__ const float *rope_of(const k_step_attn &a) {
    return a.inv_freq ? a.inv_freq : a.step_rope + a.table;
}
// Which angles of those that a block keeps.
static __device__ __forceinline__ int i_turns(const k_step_attn &a) {
    return ANGLES > 1 ? a.window > 0 : 0;
}
static __device__ __forceinline__ angles angles_of(const k_step_attn &a, const shared_head *head, int row) {
    const known_angles &of = head->turns[i_turns(a)];
    return angles{of.cosines[row], of.sines[row]};
}

// What an item needs, once for all layers that ask for the same; so the angles of all rows.
static __device__ __noinline__ void know_item(const k_step_attn &a, shared_head *head, known_item *known, int item) {
    __syncthreads();
    known_angles &turns = head->turns[i_turns(a)];
    int row = ROWS > 1 ? item / items_of_row(a) : 0;
    int pos = a.pos[row], seq = a.seq_of[row], first = first_visible(a.window, a.chunk, pos), new_from = pos;
    for (int r = row - 1; r >= 0 && a.seq_of[r] == seq; r--) new_from--;
#ifdef ONE_CACHE_8
    part_of part = part8_of_item(a, item, pos, first);
    int begin = part.begin * ATTN8_UNIT / K_BLOCK;
#else
    part_of part = part_of_item(a, item - row * items_of_row(a), pos, first, new_from);
    int begin = part.begin / K_BLOCK;
#endif
    for (int i = threadIdx.x; i < a.rows * a.n_rotated / 2; i += blockDim.x) {
        int r = ROWS > 1 ? i / (a.n_rotated / 2) : 0, k = i - r * (a.n_rotated / 2);
        const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)a.seq_of[r] * a.n_rope_tables + a.table) * a.rope_width;
        rope_angle(a.rope_pos[r], table[k], a.magnitude, &turns.cosines[r][k], &turns.sines[r][k]);
    }
    for (int i = threadIdx.x; i < TABLE_MAX && begin + i <= pos / K_BLOCK; i += blockDim.x)
        known->blocks[i] = a.c.table[(int64_t)seq * a.c.table_stride + begin + i];
    if (threadIdx.x == 0) {
        known->item = item, known->row = row, known->pos = pos, known->seq = seq, known->first_block = begin;
        known->first_visible = first, known->shape = shape_of(a), known->part = part, known->table = a.c.table;
        turns.inv_freq = rope_of(a);
    }
    __syncthreads();
}

static __device__ __noinline__ float position_scale(const k_step_attn &a, int pos) {
    return a.scale * (1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len)));
}

// From the first row's numbers to this one's, in the link or in memory.
static __device__ __forceinline__ int row_at(const k_step_attn &a, int row, int64_t stride) {
    return ROWS > 1 ? row * (a.qkv_link ? a.qkv_row : (int)stride) : 0;
}

// Vector i of an item to shared memory: a query, or the key or value of one of its own positions as the cache has them. The row's own go to the cache as well.
// heads: queries, then a row for the key and value of each own position, then room to turn keys.
// SINGLE: queries as they are; else in bf16 terms, times the scale.
template <int D, bool SINGLE>
static __device__ __forceinline__ void place_head(const k_step_attn &a, const shared_head *head, const known_item *known, const part_of &part, int pos, float *heads, int i, float scale, uint32_t *count) {
    enum { E = D / 32 };
    int lane = threadIdx.x % 32, n = part.n, kv_head = part.kv_head, j = (i - n) / 2;
    bool is_q = i < n, is_k = (i - n) % 2 == 0;
    int p = is_q ? pos : part.end + j, row = ROWS > 1 ? known->row - (pos - p) : 0;
    int at = is_q ? (kv_head * a.group + part.first + i) * (int)a.q_head : kv_head * (int)(is_k ? a.k_head : a.v_head);
    float x[E], *to = heads + (is_q ? i : n + part.own + j) * D;
    at += row_at(a, row, is_q ? a.q_row : is_k ? a.k_row : a.v_row);
    prepare_head<D>(a, angles_of(a, head, row), to, is_q, is_k, at, head->tag + a.qkv_maker, count, x);
    if (is_q && !SINGLE) put_query<D>((bf16 *)heads, i, x, scale);
    if (is_q && SINGLE) {
#pragma unroll
        for (int e = 0; e < E; e++) to[lane + 32 * e] = x[e];
    }
    if (is_q) return;
    bf16 *own = (bf16 *)(heads + (n + j) * D) + (is_k ? 0 : D);
    bool writes = part.first == 0 && p == pos;
    bf16 *cached = (bf16 *)(is_k ? a.c.k : a.c.v) + (int64_t)(table_block(a, known, p / K_BLOCK) * a.c.heads + kv_head) * (K_BLOCK * D) + p % K_BLOCK * D;
#pragma unroll
    for (int e = 0; e < E; e++) {
        bf16 rounded = __float2bfloat16_rn(x[e]);
        if (writes) cached[lane + 32 * e] = rounded;
        own[lane + 32 * e] = rounded;
    }
}

// Keys and values of the positions p, p + step, ...; zeros beyond the end, also at own positions, which are not in the cache yet.
template <int D, int PER_STEP>
static __device__ __forceinline__ void load_positions(const k_step_attn &a, const known_item *known, int kv_head, int p, int step, int end, uint4 key[PER_STEP], uint4 value[PER_STEP]) {
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

#ifndef ONE_CACHE_8
// The first keys and values of an item, on their way to L2 while the product before it runs.
template <int WARPS, int D> static __device__ __forceinline__ void ask_item(const k_step_attn &a, const known_item *known) {
    enum { LINES = D / 64, MOST = 256 };
    const part_of part = known->part;
    int n = part.end - part.begin < MOST ? part.end - part.begin : MOST;
    if (known->item < 0 || known->table != a.c.table || part.first) return; // another item has the other heads of the same keys
#pragma unroll 1
    for (int e = threadIdx.x; e < n * 2 * LINES; e += blockDim.x) {
        int p = part.begin + e / (2 * LINES), line = e % (2 * LINES);
        const bf16 *from = (const bf16 *)(line / LINES ? a.c.v : a.c.k);
        prefetch_line(from + (int64_t)(table_block(a, known, p / K_BLOCK) * a.c.heads + part.kv_head) * (K_BLOCK * D) + p % K_BLOCK * D + line % LINES * 64);
    }
}
#endif

// A score that is twice the hyperbolic tangent's argument.
static __device__ __forceinline__ float capped(float x, float softcap) {
    return softcap * LOG2E * (1.0f - __fdividef(2.0f, 1.0f + __expf(x)));
}

// The item's one query head over this warp's positions from p on; the first keys and values are loaded. parts: [n_warps][D + 2]. Scores are in units of log 2.
template <int D, int PER_STEP>
static __device__ __forceinline__ void attend_single(const k_step_attn &a, const float *heads, float *parts, const known_item *known, int p, float scale, const shares &w, uint4 key[PER_STEP], uint4 value[PER_STEP]) {
    enum { LANES = D / 8, BESIDE = 32 / LANES };
    const part_of &of = known->part;
    int lane = threadIdx.x % 32, part = lane % LANES, step = w.n_warps * BESIDE, end = of.end, stop = end + of.own, kv_head = of.kv_head;
    const bf16 *mine = (const bf16 *)(heads + D);
    float q[1][8], acc[1][8], max[1], sum[1], softcap = a.softcap;
    scale *= softcap > 0 ? 2.0f / softcap : LOG2E;
    begin_heads<D, 1>(heads, w, 1, part, scale, q, acc, max, sum);
    while (p - lane / LANES < stop) { // any lane of this warp
        float s[PER_STEP];
#pragma unroll
        for (int j = 0; j < PER_STEP; j++) {
            int at = p + j * step;
            if (at >= end && at < stop) key[j] = *(const uint4 *)(mine + (at - end) * 2 * D + part * 8), value[j] = *(const uint4 *)(mine + (at - end) * 2 * D + D + part * 8);
            float k[8], dot = 0, more = 0;
            floats_of(key[j], k);
#pragma unroll
            for (int i = 0; i < 4; i++) dot = fmaf(q[0][i], k[i], dot), more = fmaf(q[0][i + 4], k[i + 4], more);
            s[j] = dot + more;
        }
#pragma unroll
        for (int x = LANES / 2; x > 0; x /= 2) // all positions side by side
#pragma unroll
            for (int i = 0; i < PER_STEP; i++) s[i] += __shfl_xor_sync(FULL, s[i], x);
#pragma unroll
        for (int i = 0; i < PER_STEP; i++) {
            if (softcap > 0) s[i] = capped(s[i], softcap);
            if (p + i * step >= stop) s[i] = -INFINITY;
        }
        add_positions<1, PER_STEP>(s, value, [](int) { return false; }, max, sum, acc);
        p += PER_STEP * step;
        if (p - lane / LANES < stop) load_positions<D, PER_STEP>(a, known, kv_head, p, step, end, key, value);
    }
#pragma unroll
    for (int x = LANES; x < 32; x *= 2) { // positions beside each other in this warp
        float other_max = __shfl_xor_sync(FULL, max[0], x), top = fmaxf(max[0], other_max), base = top == -INFINITY ? 0.0f : top;
        float keep = exp2f(max[0] - base), take = exp2f(other_max - base);
        max[0] = top;
        sum[0] = sum[0] * keep + __shfl_xor_sync(FULL, sum[0], x) * take;
#pragma unroll
        for (int i = 0; i < 8; i++) acc[0][i] = acc[0][i] * keep + __shfl_xor_sync(FULL, acc[0][i], x) * take;
    }
    if (lane < LANES) keep_head<D>(parts, w, 0, part, max[0], sum[0], acc[0]);
}

// From the cache's first element to a tile's, which lies in one cache block; the same for keys and values.
template <int D> static __device__ __forceinline__ int64_t tile_at(const k_step_attn &a, const known_item *known, int p) {
    return ((int64_t)(table_block(a, known, p / K_BLOCK) * a.c.heads + known->part.kv_head) * K_BLOCK + p % K_BLOCK) * D;
}

// Scores of a lane's positions from p on; no weight for those that are not seen.
static __device__ __forceinline__ void mask_scores(float s[2], int p, int first, int stop, bool has_head) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int position = p + first_key_row() + 2 * i;
        if (!has_head || position < first || position >= stop) s[i] = -INFINITY;
    }
}

// A tile's lines are on their way to L2.
template <int D> static __device__ __forceinline__ void ask_tile(const k_step_attn &a, const known_item *known, int p) {
    int64_t at = tile_at<D>(a, known, p);
    prefetch_lines((const bf16 *)a.c.k + at, TILE_POSITIONS * D * 2);
    prefetch_lines((const bf16 *)a.c.v + at, TILE_POSITIONS * D * 2);
}

// A set of query heads over this warp's tiles from position p on; x has the first keys. Keys and values come from L2 through the same few registers, part after part, which is enough for
// sixteen warps; tiles are asked for ASK_TILES turns before. parts: [heads][n_warps][D + 2].
enum { ASK_TILES = 3 };
template <int D> static __device__ __forceinline__ void attend_tiles(const k_step_attn &a, const float *heads, float *parts, const known_item *known, int p, const shares &w, tile_part &x) {
    enum { PARTS = D / 64 };
    int step = w.n_warps * TILE_POSITIONS, end = known->part.end, stop = end + known->part.own, head = w.set * SET_HEADS + threadIdx.x % 4;
    const bf16 *queries = (const bf16 *)heads + w.set * (2 * SET_HEADS * D);
    tile_seen<D> z;
    begin_tiles<D>(z);
#pragma unroll 1
    for (; p < stop; p += step) {
        int there = end - p, n_own = known->part.own, n = known->part.n;
        bool is_last = there < TILE_POSITIONS;
        const bf16 *own = (const bf16 *)(heads + n * D);
        int64_t at = there > 0 ? tile_at<D>(a, known, p) : 0;
        float sums[4] = {0}, s[2];
        uint32_t weights[2];
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            if (i > 0 && there > 0) load_keys<D>(x, (const bf16 *)a.c.k + at, there, i);
            if (is_last) take_own_keys<D>(x, own, there, n_own, i);
            add_scores<D>(sums, queries, x, i);
        }
        if (there > 0) load_values<D>(x, (const bf16 *)a.c.v + at, there, 0);
        if (p + ASK_TILES * step < end) ask_tile<D>(a, known, p + ASK_TILES * step);
        s[0] = sums[0] + sums[1], s[1] = sums[2] + sums[3];
        if (a.softcap > 0) s[0] = capped(s[0], a.softcap), s[1] = capped(s[1], a.softcap);
        if (is_last || p < known->first_visible || n % SET_HEADS) mask_scores(s, p, known->first_visible, stop, head < n);
        tile_soften<D>(z, s, weights);
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            if (i > 0 && there > 0) load_values<D>(x, (const bf16 *)a.c.v + at, there, i);
            if (is_last) take_own_values<D>(x, own, there, n_own, i);
            add_values<D>(z, weights, x, i);
        }
        if (there > step) load_keys<D>(x, (const bf16 *)a.c.k + tile_at<D>(a, known, p + step), there - step, 0);
    }
    keep_tiles<D>(head < known->part.n ? parts + (head * w.n_warps + w.i_warp) * (D + 2) : NULL, z);
}

// Everything but the usual end of attention: runs of several blocks, joined by the last of them to come; sinks; results that lie in memory as
// they are. joined: [heads][D + 2] of this block.
template <int D> static __device__ __noinline__ void store_heads(const k_step_attn &a, known_item *known, const float *joined, uint32_t tag) {
    const part_of &part = known->part;
    int splits = part.splits, n = part.n, n_heads = a.group * a.c.heads, first_head = part.kv_head * a.group + part.first;
    int counter = known->row * n_heads + first_head;
    float *partial = a.partial + ((int64_t)known->row * n_heads + first_head) * a.splits * (D + 2);
    __syncthreads();
    if (splits > 1) {
        for (int e = threadIdx.x; e < n * (D + 2); e += blockDim.x) partial[(e / (D + 2) * splits + part.split) * (D + 2) + e % (D + 2)] = joined[e];
        if (!is_last_block(a.counters + counter, splits, &known->last)) return;
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
        if (a.y) store_f32(a.y, a.y_dtype, known->row * a.y_row + at, x);
        at += known->row * n_heads * D;
        if (!a.y_link) continue;
        if (a.y_dtype == K_F32) store_tagged(a.y_link + at, __float_as_uint(x), tag);
        else if (i % 2 == 0) store_tagged(a.y_link + at / 2, pack_bf16(x, next), tag);
    }
}

// Whether what is known of the item is what this attention asks for. All at once: && would ask for one after the other.
static __device__ __forceinline__ bool knows_item(const k_step_attn &a, const shared_head *head, const known_item *known, int item) {
    return (known->item == item) & (known->table == a.c.table) & (head->turns[i_turns(a)].inv_freq == rope_of(a)) & (known->shape == shape_of(a)) &
           (known->first_visible == first_visible(a.window, a.chunk, known->pos));
}

// Parts of the warps become the item's results. DTYPE: of the usual ones; SINKS: which may have sinks.
template <int WARPS, int D, int DTYPE, bool SINKS> static __device__ __forceinline__ void join_warps(const k_instr &in, shared_head *head, known_item *known, float *heads, const float *parts, int n_warps) {
    const k_step_attn &a = in.u.attn;
    const part_of part = known->part;
    int first_head = part.kv_head * a.group + part.first, row_head = ROWS > 1 ? known->row * a.group * a.c.heads : 0, lane = threadIdx.x % WARPS; // as many lanes as warps share an element
    uint32_t tag = head->tag + in.number;
    bool usual = part.splits == 1 && a.y_link && !a.y && (SINKS || !a.sinks) && a.y_dtype == DTYPE;
    bool there = lane < n_warps;
#pragma unroll 1
    for (int h = 0; h < part.n; h++) {
        const float *from = parts + (h * n_warps + lane) * (D + 2);
        float mine = there ? from[D] : -INFINITY, max = mine, x[D / 32], sink = 0;
        if (SINKS && a.sinks) sink = a.sinks[first_head + h] * LOG2E;
#pragma unroll
        for (int step = WARPS / 2; step > 0; step /= 2) max = fmaxf(max, __shfl_xor_sync(FULL, max, step));
        float keep = there ? exp2f(mine - (max == -INFINITY ? 0.0f : max)) : 0.0f, sum = sum_lanes<WARPS>(there ? from[D + 1] * keep : 0.0f);
#pragma unroll
        for (int j = 0; j < D / 32; j++) x[j] = sum_lanes<WARPS>(there ? from[threadIdx.x / WARPS + j * 32] * keep : 0.0f);
        if (usual) {
            uint64_t *to = a.y_link + ((row_head + first_head + h) * D + (int)threadIdx.x / WARPS) / (DTYPE == K_F32 ? 1 : 2);
            float factor = 1.0f;
            if (SINKS && a.sinks) { // add_sink
                float top = fmaxf(max, sink);
                factor = exp2f(max - top);
                sum = sum * factor + exp2f(sink - top);
            }
            factor = __fdividef(factor, sum);
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
    if (!usual) store_heads<D>(a, known, heads, tag);
}

// One item that is known. parts: list_parts_of * (D + 2) floats. One head of it:
template <int WARPS, int D, int DTYPE, bool SINKS> static __device__ __forceinline__ void run_single(const k_instr &in, shared_head *head, known_item *known, float *heads, float *parts, uint32_t *count) {
    enum { PER_STEP = 4, BESIDE = 256 / D };
    const k_step_attn &a = in.u.attn;
    const part_of part = known->part;
    int warp = threadIdx.x / 32, p = part.begin + warp * BESIDE + threadIdx.x % 32 / (D / 8);
    float scale = a.pos_scale_len ? position_scale(a, known->pos) : a.scale;
    uint4 key[PER_STEP], value[PER_STEP];
    load_positions<D, PER_STEP>(a, known, part.kv_head, p, WARPS * BESIDE, part.end, key, value);
#pragma unroll 1
    for (int i = warp; i < 1 + 2 * part.own; i += WARPS) place_head<D, true>(a, head, known, part, known->pos, heads, i, scale, count);
    __syncthreads();
    attend_single<D, PER_STEP>(a, heads, parts, known, p, scale, shares{WARPS, warp, 0}, key, value);
    __syncthreads();
    join_warps<WARPS, D, DTYPE, SINKS>(in, head, known, heads, parts, WARPS);
}

// Several heads:
template <int WARPS, int D, int DTYPE, bool SINKS> static __device__ __forceinline__ void run_several(const k_instr &in, shared_head *head, known_item *known, float *heads, float *parts, uint32_t *count) {
    const k_step_attn &a = in.u.attn;
    const part_of part = known->part;
    int warp = threadIdx.x / 32, n_sets = (part.n + SET_HEADS - 1) / SET_HEADS, n_warps = list_parts_of(SMALL_SHARED, D) / SET_HEADS / n_sets;
    const shares w = {n_warps, warp / n_sets, warp % n_sets};
    int p = part.begin + w.i_warp * TILE_POSITIONS, step = n_warps * TILE_POSITIONS;
    float scale = (a.pos_scale_len ? position_scale(a, known->pos) : a.scale) * (a.softcap > 0 ? 2.0f / a.softcap : LOG2E);
    tile_part x;
    if (p < part.end && w.i_warp < n_warps) {
        load_keys<D>(x, (const bf16 *)a.c.k + tile_at<D>(a, known, p), part.end - p, 0);
#pragma unroll 1
        for (int i = 1; i < ASK_TILES && w.set == 0 && p + i * step < part.end; i++) ask_tile<D>(a, known, p + i * step);
    } else clear(x);
#pragma unroll 1
    for (int i = warp; i < part.n + 2 * part.own; i += WARPS) place_head<D, false>(a, head, known, part, known->pos, heads, i, scale, count);
    __syncthreads();
    if (w.i_warp < n_warps) attend_tiles<D>(a, heads, parts, known, p, w, x);
    __syncthreads();
    join_warps<WARPS, D, DTYPE, SINKS>(in, head, known, heads, parts, n_warps);
}

// What is known of the item that a row's attention has here.
static __device__ __forceinline__ known_item *known_of(shared_head *head, const k_step_attn &a) {
#ifdef ONE_WINDOWS
    if (a.window > 0) return &head->windowed;
#endif
    return &head->known[0];
}

#ifndef ONE_CACHE_8
template <int KIND, int WARPS, int D> static __device__ __forceinline__ void run_list_item(const k_instr &in, shared_head *head, known_item *known, float *heads, float *parts, int item, uint32_t *count) {
    enum { DTYPE = has_experts<KIND>() ? K_F32 : K_BF16 };
    if (!knows_item(in.u.attn, head, known, item)) know_item(in.u.attn, head, known, item);
    if (known->part.n == 1) run_single<WARPS, D, DTYPE, KIND == WGE>(in, head, known, heads, parts, count);
    else if (known->part.n) run_several<WARPS, D, DTYPE, KIND == WGE>(in, head, known, heads, parts, count);
}
#endif
