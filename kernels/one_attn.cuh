// kernels/one.cu: attention. An item is a row's query heads of one cached head over a run of positions; the warps of its block share positions and
// heads, and their parts are joined by all threads. Which positions an item has does not depend on how many rows the step has.
#pragma once
#include "one_ring.cuh"

// The numbers that divide attention into items, in one.
static __device__ __forceinline__ int shape_of(const k_step_attn &a) {
    return a.group | a.single << 8 | a.splits << 16;
}

// of_row: the item among those of its row. new_from: the first position whose key and value this step makes. A row of few positions has fewer items
// than the others: these have no heads.
static __device__ __forceinline__ part_of part_of_item(const k_step_attn &a, int of_row, int pos, int first, int new_from) {
    part_of p;
    int runs = (pos - first + LIST_RUN) / LIST_RUN;
    p.splits = runs < a.splits ? runs : a.splits;
    int per_item = p.splits <= a.single ? 1 : a.group, sets = per_item == 1 ? a.group : 1;
    int pair = of_row / p.splits, each = (pos - first + p.splits) / p.splits;
    p.split = of_row - pair * p.splits;
    p.kv_head = pair / sets;
    p.first = (pair - p.kv_head * sets) * per_item;
    p.n = p.kv_head < a.c.heads ? per_item : 0;
    p.begin = first + p.split * each, p.end = p.begin + each < pos + 1 ? p.begin + each : pos + 1;
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
static __device__ __forceinline__ angles angles_of(const shared_head *head, int row) {
    return angles{head->cosines[row], head->sines[row]};
}

// What an item needs, once for all layers that ask for the same; so the angles of all rows.
static __device__ __noinline__ void know_item(const k_step_attn &a, shared_head *head, known_item *known, int item) {
    __syncthreads();
    int row = ROWS > 1 ? item / items_of_row(a) : 0;
    int pos = a.pos[row], seq = a.seq_of[row], first = first_visible(a.window, a.chunk, pos), new_from = pos;
    for (int r = row - 1; r >= 0 && a.seq_of[r] == seq; r--) new_from--;
    part_of part = part_of_item(a, item - row * items_of_row(a), pos, first, new_from);
    int begin = part.begin / K_BLOCK;
    for (int i = threadIdx.x; i < a.rows * a.n_rotated / 2; i += blockDim.x) {
        int r = ROWS > 1 ? i / (a.n_rotated / 2) : 0, k = i - r * (a.n_rotated / 2);
        const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)a.seq_of[r] * a.n_rope_tables + a.table) * a.rope_width;
        rope_angle(a.rope_pos[r], table[k], a.magnitude, &head->cosines[r][k], &head->sines[r][k]);
    }
    for (int i = threadIdx.x; i < TABLE_MAX && begin + i <= pos / K_BLOCK; i += blockDim.x)
        known->blocks[i] = a.c.table[(int64_t)seq * a.c.table_stride + begin + i];
    if (threadIdx.x == 0) {
        known->item = item, known->row = row, known->pos = pos, known->seq = seq, known->first_block = begin;
        known->first_visible = first, known->shape = shape_of(a), known->part = part, known->table = a.c.table;
        head->inv_freq = rope_of(a);
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
template <int D> static __device__ __forceinline__ void place_head(const k_step_attn &a, const shared_head *head, const known_item *known, const part_of &part, int pos, float *heads, int i, uint32_t *count) {
    enum { E = D / 32 };
    int lane = threadIdx.x % 32, n = part.n, kv_head = part.kv_head, j = (i - n) / 2;
    bool is_q = i < n, is_k = (i - n) % 2 == 0;
    int p = is_q ? pos : part.end + j, row = ROWS > 1 ? known->row - (pos - p) : 0;
    int at = is_q ? (kv_head * a.group + part.first + i) * (int)a.q_head : kv_head * (int)(is_k ? a.k_head : a.v_head);
    float x[E], *to = heads + (is_q ? i : n + part.own + j) * D;
    at += row_at(a, row, is_q ? a.q_row : is_k ? a.k_row : a.v_row);
    prepare_head<D>(a, angles_of(head, row), to, is_q, is_k, at, head->tag + a.qkv_maker, count, x);
    if (is_q) {
#pragma unroll
        for (int e = 0; e < E; e++) to[lane + 32 * e] = x[e];
        return;
    }
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

// Positions that come FAR turns later are on their way to L2: a turn is shorter than a trip to memory. The lanes of a position share its lines.
enum { FAR = 4 };
template <int D, int PER_STEP> static __device__ __forceinline__ void prefetch_positions(const k_step_attn &a, const known_item *known, int kv_head, int p, int step, int end) {
    enum { LINES = D / 64 };
    int part = threadIdx.x % (D / 8), j = part / (2 * LINES), q = p + j * step;
    if (j >= PER_STEP || q >= end) return;
    const bf16 *from = (const bf16 *)(part / LINES % 2 ? a.c.v : a.c.k);
    prefetch_line(from + (int64_t)(table_block(a, known, q / K_BLOCK) * a.c.heads + kv_head) * (K_BLOCK * D) + q % K_BLOCK * D + part % LINES * 64);
}

// The first keys and values of an item, on their way to L2 while the product before it runs.
template <int D> static __device__ __forceinline__ void prefetch_item(const k_step_attn &a, const known_item *known) {
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

// The query heads of this warp over the item's positions from p on; the first keys and values are loaded.
// parts: [heads][n_warps][D + 2]. Scores are in units of log 2.
template <int D, int HEADS, int PER_STEP>
static __device__ __forceinline__ void attend(const k_step_attn &a, const float *heads, float *parts, const known_item *known, int group, int kv_head, int p, int end, int own, float scale, const shares &w,
                                              uint4 key[PER_STEP], uint4 value[PER_STEP]) {
    enum { LANES = D / 8, BESIDE = 32 / LANES };
    int lane = threadIdx.x % 32, part = lane % LANES, step = w.n_warps * BESIDE, stop = end + own;
    const bf16 *mine = (const bf16 *)(heads + group * D);
    float q[HEADS][8], acc[HEADS][8], max[HEADS], sum[HEADS], softcap = a.softcap;
    scale *= softcap > 0 ? 2.0f / softcap : LOG2E;
    begin_heads<D, HEADS>(heads, w, group, part, scale, q, acc, max, sum);
    while (p - lane / LANES < stop) { // any lane of this warp
        float s[HEADS * PER_STEP];
#pragma unroll
        for (int j = 0; j < PER_STEP; j++) {
            int at = p + j * step;
            if (at >= end && at < stop) key[j] = *(const uint4 *)(mine + (at - end) * 2 * D + part * 8), value[j] = *(const uint4 *)(mine + (at - end) * 2 * D + D + part * 8);
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
            if (at >= stop) s[i] = -INFINITY;
        }
        add_positions<HEADS, PER_STEP>(s, value, [](int) { return false; }, max, sum, acc);
        p += PER_STEP * step;
        if (w.set == 0 && p - lane / LANES + FAR * PER_STEP * step < end) prefetch_positions<D, PER_STEP>(a, known, kv_head, p + FAR * PER_STEP * step, step, end);
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
template <int D> static __device__ __noinline__ void store_heads(const k_step_attn &a, known_item *known, const float *joined, uint32_t tag) {
    const part_of &part = known->part;
    int splits = part.splits, n = part.n, n_heads = a.group * a.c.heads, first_head = part.kv_head * a.group + part.first;
    int counter = known->row * n_heads + first_head;
    float *partial = a.partial + ((int64_t)known->row * n_heads + first_head) * a.splits * (D + 2);
    __syncthreads();
    if (splits > 1) {
        for (int e = threadIdx.x; e < n * (D + 2); e += blockDim.x) partial[(e / (D + 2) * splits + part.split) * (D + 2) + e % (D + 2)] = joined[e];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            known->last = count_around(a.counters + counter, (uint32_t)splits - 1) == (uint32_t)splits - 1;
            __threadfence();
        }
        __syncthreads();
        if (!known->last) return;
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
    return (known->item == item) & (known->table == a.c.table) & (head->inv_freq == rope_of(a)) & (known->shape == shape_of(a)) &
           (known->first_visible == first_visible(a.window, a.chunk, known->pos));
}

// One item that is known. DTYPE: of the usual result.
template <int WARPS, int D, int HEADS, int DTYPE> static __device__ __forceinline__ void run_item(const k_instr &in, shared_head *head, known_item *known, float *heads, uint32_t *count) {
    enum { PER_STEP = HEADS == 1 ? 4 : 2 };
    const k_step_attn &a = in.u.attn;
    float *parts = heads + (a.group + 2 * ROWS) * D;
    const part_of part = known->part;
    int pos = known->pos, warp = threadIdx.x / 32, n_sets = HEADS == 1 ? 1 : (part.n + 1) / 2, share = 0x080b1020 >> (n_sets - 1) * 8 & 63; // 32 / n_sets
    const shares w = n_sets == 1 ? shares{WARPS, warp, 0} : shares{WARPS * share / 32, warp * share / 32, warp - warp * share / 32 * n_sets};
    int step = w.n_warps * (256 / D), p = part.begin + w.i_warp * (256 / D) + threadIdx.x % 32 / (D / 8);
    float scale = a.pos_scale_len ? position_scale(a, pos) : a.scale;
    uint4 key[PER_STEP], value[PER_STEP];
    load_positions<D, PER_STEP>(a, known, part.kv_head, w.i_warp < w.n_warps ? p : part.end, step, part.end, key, value);
#pragma unroll 1
    for (int i = warp; i < part.n + 2 * part.own; i += WARPS) place_head<D>(a, head, known, part, pos, heads, i, count);
    __syncthreads();
    if (w.i_warp < w.n_warps) attend<D, HEADS, PER_STEP>(a, heads, parts, known, part.n, part.kv_head, p, part.end, part.own, scale, w, key, value);
    __syncthreads();
    int first_head = part.kv_head * a.group + part.first, row_head = ROWS > 1 ? known->row * a.group * a.c.heads : 0, lane = threadIdx.x % WARPS; // as many lanes as warps share an element
    uint32_t tag = head->tag + in.number;
    bool usual = part.splits == 1 && a.y_link && !a.y && !a.sinks && a.y_dtype == DTYPE;
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
            uint64_t *to = a.y_link + ((row_head + first_head + h) * D + (int)threadIdx.x / WARPS) / (DTYPE == K_F32 ? 1 : 2);
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
    if (!usual) store_heads<D>(a, known, heads, tag);
}
