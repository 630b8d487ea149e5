// kernels/one_latent.cu: latent attention of a row as three instructions of a list. A cached position is one vector of 576 numbers for all heads, whose first 512 are the values.
//
// QUERIES: a head's query times its matrix, a warp two results at a time, and the rope of the rest; what is made is bf16, times the scale of scores. LATENT: a block takes 16 heads and a
// run of positions, in tiles of 32; a quarter of the warps shares eight positions' scores, every warp has one head's softmax and 32 columns of the results. The row's own
// position comes from the product before, and goes to the cache. VALUES: a block joins the runs of a head and multiplies them with 16 rows of its matrix.
//
// All that is there before the step is asked for before the first wait: weights, positions. Which runs a row has depends on its own position.
#pragma once
#include "one_ring.cuh"

enum { LATENT_WORDS = LATENT_WIDTH / 2 }; // of a head's query

struct latent_run {
    int first, n, used; // tiles of this run; runs that have any
    bool own;           // the row's own position is in it
};
static __device__ __forceinline__ int tiles_of_run(const k_step_latent &a, int pos) {
    return (pos / LATENT_TILE + a.splits) / a.splits;
}
static __device__ __forceinline__ int runs_of_row(const k_step_latent &a, int pos) {
    int each = tiles_of_run(a, pos);
    return (pos / LATENT_TILE + each) / each;
}
static __device__ __forceinline__ latent_run run_of_item(const k_step_latent &a, int pos, int split) {
    int each = tiles_of_run(a, pos), tiles = pos / LATENT_TILE + 1, first = split * each, left = tiles - first;
    return latent_run{first, left < each ? left : each, runs_of_row(a, pos), left > 0 && left <= each};
}
// Items begin at the last block, since the first have more tiles of products.
static __device__ __forceinline__ int latent_item() {
    return gridDim.x - 1 - blockIdx.x;
}

// Position, angles, and blocks of the table, once for all layers.
static __device__ __noinline__ void know_latent(const k_step_latent &a, shared_head *head) {
    known_item *known = &head->known[0];
    const float *rope = a.inv_freq ? a.inv_freq : a.step_rope + a.table;
    if ((known->item == 0) & (known->table == a.c.table) & (head->turns[0].inv_freq == rope)) return;
    __syncthreads();
    int pos = a.pos[0], seq = a.seq_of[0], place = a.rope_pos[0];
    int begin = run_of_item(a, pos, latent_item() % a.splits).first * LATENT_TILE / K_BLOCK;
    const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)seq * a.n_rope_tables + a.table) * a.rope_width;
    for (int i = threadIdx.x; i < LATENT_ROPE / 2; i += blockDim.x) rope_angle(place, table[i], a.magnitude, &head->turns[0].cosines[0][i], &head->turns[0].sines[0][i]);
    for (int i = threadIdx.x; i < TABLE_MAX && begin + i <= pos / K_BLOCK; i += blockDim.x) known->blocks[i] = a.c.table[(int64_t)seq * a.c.table_stride + begin + i];
    if (threadIdx.x == 0) {
        known->item = 0, known->pos = pos, known->seq = seq, known->first_block = begin, known->table = a.c.table;
        head->turns[0].inv_freq = rope;
    }
    __syncthreads();
}

static __device__ __forceinline__ bf16 *latent_at(const k_step_latent &a, const known_item *known, int p) {
    int i = p / K_BLOCK, at = i - known->first_block;
    int block = at >= 0 && at < TABLE_MAX ? known->blocks[at] : a.c.table[(int64_t)known->seq * a.c.table_stride + i];
    return (bf16 *)a.c.k + ((int64_t)block * K_BLOCK + p % K_BLOCK) * LATENT_WIDTH;
}

// Two words of a link beside each other.
static __device__ __forceinline__ float2 take_two(const uint64_t *link, uint32_t tag, uint32_t *count) {
    uint4 v = load_tagged2(link);
    for (int polls = 1; (v.y != tag || v.w != tag) && !(is_long(polls) && gave_up(count, polls)); polls++) v = load_tagged2(link);
    return float2{__uint_as_float(v.x), __uint_as_float(v.z)};
}

// N rows of a stack of matrices, this block's part of them, to L2. per: rows are shared out in so many at a time.
static __device__ __forceinline__ void ask_rows(const k_step_latent &a, int64_t n, int per) {
    int64_t first = n / per * blockIdx.x / gridDim.x * per, end = n / per * (blockIdx.x + 1) / gridDim.x * per, bytes = a.w.values_bytes;
#pragma unroll 1
    for (int64_t at = first * bytes + threadIdx.x * 128; at < end * bytes; at += blockDim.x * 128) prefetch_line(a.w.values + at);
    if (a.w.mode != K_AFFINE) return;
    for (int64_t row = first + threadIdx.x; row < end; row += blockDim.x) prefetch_line(a.w.scales + row * a.w.scales_bytes), prefetch_line(a.w.biases + row * a.w.biases_bytes);
}

// ---- queries ----

// Elements 2 i and 2 i + 1 of a vector that is turned; first: of i, or of i and what is half a vector away.
static __device__ __forceinline__ float2 turn_two(const k_step_latent &a, const shared_head *head, int i, float2 own, float2 other) {
    enum { HALF = LATENT_ROPE / 2 };
    const float *c = head->turns[0].cosines[0], *s = head->turns[0].sines[0];
    if (a.rope_kind != ROPE_HALF) return float2{own.x * c[i] - own.y * s[i], own.y * c[i] + own.x * s[i]};
    int at = 2 * i % HALF;
    float sign = 2 * i < HALF ? -1.0f : 1.0f;
    return float2{own.x * c[at] + sign * (other.x * s[at]), own.y * c[at + 1] + sign * (other.y * s[at + 1])};
}

static __device__ __forceinline__ void turn_query(const k_step_latent &a, const shared_head *head, int w, float scale, uint32_t tag, uint32_t q_tag, uint32_t *count) {
    int h = w / (LATENT_ROPE / 2), i = w % (LATENT_ROPE / 2);
    const uint64_t *q = a.q_link + a.q_at + h * (a.nope + LATENT_ROPE) + a.nope;
    float2 own = take_two(q + 2 * i, q_tag, count), other = own;
    if (a.rope_kind == ROPE_HALF) other = take_two(q + (2 * i + LATENT_ROPE / 2) % LATENT_ROPE, q_tag, count);
    float2 y = turn_two(a, head, i, own, other);
    store_tagged(a.y_link + h * LATENT_WORDS + LATENT_VALUES / 2 + i, pack_bf16(y.x * scale, y.y * scale), tag);
}

template <int WARPS> static __device__ __noinline__ void run_queries(const k_instr &in, shared_head *head, uint32_t *count) {
    enum { AT_ONCE = 2 };
    const k_step_latent &a = in.u.latent;
    know_latent(a, head);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, blocks = gridDim.x, b = blockIdx.x, pos = head->known[0].pos;
    int n = a.heads * (LATENT_VALUES / 2), first = (int)((int64_t)n * b / blocks), end = (int)((int64_t)n * (b + 1) / blocks);
    uint32_t tag = head->tag + in.number, q_tag = head->tag + a.q_maker;
    float scale = a.scale * LOG2E;
    if (a.pos_scale_len) scale *= 1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len));
#pragma unroll 1
    for (int base = first + warp; base < end; base += AT_ONCE * WARPS) {
        float sum[AT_ONCE] = {0};
#pragma unroll 1
        for (int k = lane % 16 * 8; k < a.nope; k += 128) {
            float w[AT_ONCE][8];
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int word = base + j * WARPS < end ? base + j * WARPS : base;
                unpack8(a.w, 2 * word + lane / 16, k, w[j]);
            }
#pragma unroll
            for (int j = 0; j < AT_ONCE; j++) {
                int word = base + j * WARPS < end ? base + j * WARPS : base;
                const uint64_t *q = a.q_link + a.q_at + word / (LATENT_VALUES / 2) * (a.nope + LATENT_ROPE) + k;
                uint4 v[4];
                bool there;
                int polls = 0;
                do {
#pragma unroll
                    for (int i = 0; i < 4; i++) v[i] = load_tagged2(q + 2 * i);
                    there = true;
#pragma unroll
                    for (int i = 0; i < 4; i++) there = there && v[i].y == q_tag && v[i].w == q_tag;
                } while (!there && !(is_long(++polls) && gave_up(count, polls)));
#pragma unroll
                for (int i = 0; i < 4; i++) sum[j] = fmaf(__uint_as_float(v[i].z), w[j][2 * i + 1], fmaf(__uint_as_float(v[i].x), w[j][2 * i], sum[j]));
            }
        }
        __syncwarp();
#pragma unroll
        for (int j = 0; j < AT_ONCE; j++) {
#pragma unroll
            for (int step = 8; step > 0; step /= 2) sum[j] += __shfl_xor_sync(FULL, sum[j], step);
            float next = __shfl_xor_sync(FULL, sum[j], 16);
            int word = base + j * WARPS;
            if (lane == 0 && word < end) store_tagged(a.y_link + word / (LATENT_VALUES / 2) * LATENT_WORDS + word % (LATENT_VALUES / 2), pack_bf16(sum[j] * scale, next * scale), tag);
        }
    }
    n = a.heads * (LATENT_ROPE / 2), first = (int)((int64_t)n * b / blocks), end = (int)((int64_t)n * (b + 1) / blocks);
    for (int w = first + lane; w < end && warp == WARPS - 1; w += 32) turn_query(a, head, w, scale, tag, q_tag, count);
}

// ---- attention ----

// Element 8 * piece of a row in shared memory; pieces are exchanged inside groups of eight by the row's low bits.
static __device__ __forceinline__ int piece_at(int row, int piece) {
    return row * LATENT_WIDTH + ((piece ^ (row & 7)) * 8);
}

// Cached positions of a tile; zeros behind the last. The row's own place is left as it is.
template <int WARPS> static __device__ __forceinline__ void load_tile(const k_step_latent &a, const known_item *known, bf16 *tile, int p0) {
    enum { PIECES = LATENT_WIDTH / 8 };
    const bf16 *from = latent_at(a, known, p0);
#pragma unroll 5
    for (int e = threadIdx.x; e < LATENT_TILE * PIECES; e += WARPS * 32) {
        int p = p0 + e / PIECES;
        if (p != known->pos) copy16(tile + piece_at(e / PIECES, e % PIECES), p < known->pos ? from + (int64_t)e * 8 : from, p < known->pos);
    }
    copy_commit();
}

// The row's own position by one warp: lane l has elements 64 j + 2 l and one more.
static __device__ __forceinline__ void place_own(const k_step_latent &a, const shared_head *head, bf16 *row, int at_row, bf16 *cached, uint32_t tag, uint32_t *count) {
    enum { PARTS = LATENT_WIDTH / 64, NORMED = LATENT_VALUES / 64 };
    int lane = threadIdx.x % 32;
    float2 x[PARTS], w[NORMED];
    float square = 0;
#pragma unroll
    for (int j = 0; j < NORMED; j++) w[j] = a.norm ? *(const float2 *)(a.norm + 64 * j + 2 * lane) : float2{1.0f - a.norm_offset, 1.0f - a.norm_offset};
#pragma unroll
    for (int j = 0; j < PARTS; j++) x[j] = take_two(a.kv_link + a.kv_at + 64 * j + 2 * lane, tag, count);
    __syncwarp();
#pragma unroll
    for (int j = 0; j < NORMED; j++) square = fmaf(x[j].y, x[j].y, fmaf(x[j].x, x[j].x, square));
    float scale = 1.0f / sqrtf(warp_sum(square) / (float)LATENT_VALUES + a.eps);
#pragma unroll
    for (int j = 0; j < NORMED; j++) x[j].x *= scale * (w[j].x + a.norm_offset), x[j].y *= scale * (w[j].y + a.norm_offset);
    float2 &last = x[PARTS - 1], other;
    other.x = __shfl_xor_sync(FULL, last.x, 16), other.y = __shfl_xor_sync(FULL, last.y, 16);
    last = turn_two(a, head, lane, last, other);
#pragma unroll
    for (int j = 0; j < PARTS; j++) {
        int e = 64 * j + 2 * lane;
        uint32_t both = pack_bf16(x[j].x, x[j].y);
        *(uint32_t *)(row + piece_at(at_row, e / 8) + e % 8) = both;
        if (cached) *(uint32_t *)(cached + e) = both;
    }
}

// A head's query by its warp, as bf16 pairs.
static __device__ __forceinline__ void place_query(const k_step_latent &a, bf16 *queries, int head0, uint32_t tag, uint32_t *count) {
    enum { POLLS = (LATENT_WORDS + 63) / 64 };
    int lane = threadIdx.x % 32, h = threadIdx.x / 32;
    bool there = head0 + h < a.heads;
    const uint64_t *link = a.x_link + (int64_t)(head0 + h) * LATENT_WORDS;
    uint4 v[POLLS];
#pragma unroll
    for (int j = 0; j < POLLS; j++) {
        v[j] = uint4{0, tag, 0, tag};
        if (there && 64 * j + 2 * lane < LATENT_WORDS) v[j] = load_tagged2(link + 64 * j + 2 * lane);
    }
    for (int polls = 1;; polls++) {
        bool all = true;
#pragma unroll
        for (int j = 0; j < POLLS; j++) all = all && v[j].y == tag && v[j].w == tag;
        if (in_all_lanes(all)) break;
#pragma unroll
        for (int j = 0; j < POLLS; j++)
            if (v[j].y != tag || v[j].w != tag) v[j] = load_tagged2(link + 64 * j + 2 * lane);
        if (is_long(polls) && gave_up(count, polls)) break;
    }
#pragma unroll
    for (int j = 0; j < POLLS; j++) {
        int e = 128 * j + 4 * lane;
        if (e < LATENT_WIDTH) *(uint2 *)(queries + piece_at(h, e / 8) + e % 8) = uint2{v[j].x, v[j].z};
    }
}

// Scores of 16 heads with eight positions, a quarter of the elements: to parts [quarters][heads][LATENT_SCORE_ROOM].
static __device__ __forceinline__ void score_tile(const bf16 *queries, const bf16 *tile, float *parts) {
    enum { STEPS = LATENT_WIDTH / 32 };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, eight = warp % 4, share = warp / LATENT_SHARES;
    float s[4] = {0}, odd[4] = {0};
#pragma unroll 1
    for (int i = share * STEPS / LATENT_SHARES; i < (share + 1) * STEPS / LATENT_SHARES; i++) {
        uint32_t q[4], k[4];
        ldmatrix4(k, tile + piece_at(eight * 8 + lane % 8, i * 4 + lane / 8));
        ldmatrix4(q, queries + piece_at(lane % 16, i * 4 + lane / 16));
        mma_bf16(s, q, k[0], k[1]);
        ldmatrix4(q, queries + piece_at(lane % 16, i * 4 + 2 + lane / 16));
        mma_bf16(odd, q, k[2], k[3]);
    }
    float *to = parts + (share * LATENT_HEADS + g) * LATENT_SCORE_ROOM + eight * 8 + 2 * t;
    to[0] = s[0] + odd[0], to[1] = s[1] + odd[1];
    to[8 * LATENT_SCORE_ROOM] = s[2] + odd[2], to[8 * LATENT_SCORE_ROOM + 1] = s[3] + odd[3];
}

// A warp's head goes on with the tile, a position in each lane: weights as bf16, and what becomes of those before.
static __device__ __forceinline__ void soften_tile(const float *parts, bf16 *p, float *keeps, int position, int pos, float &max, float &sum) {
    int lane = threadIdx.x % 32, h = threadIdx.x / 32;
    float s = 0;
#pragma unroll
    for (int i = 0; i < LATENT_SHARES; i++) s += parts[(i * LATENT_HEADS + h) * LATENT_SCORE_ROOM + lane];
    if (position + lane > pos) s = -INFINITY;
    float top = fmaxf(max, warp_max(s)), base = top == -INFINITY ? 0.0f : top, keep = exp2f(max - base), weight = exp2f(s - base);
    max = top;
    sum = sum * keep + warp_sum(weight);
    p[h * LATENT_P_ROOM + lane] = __float2bfloat16_rn(weight);
    if (lane == 0) keeps[h] = keep;
}

// 32 columns of all heads.
static __device__ __forceinline__ void add_tile(float o[4][4], const bf16 *tile, const bf16 *p, const float *keeps) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float low = keeps[lane / 4], high = keeps[lane / 4 + 8];
#pragma unroll
    for (int j = 0; j < 4; j++) o[j][0] *= low, o[j][1] *= low, o[j][2] *= high, o[j][3] *= high;
#pragma unroll
    for (int kk = 0; kk < LATENT_TILE / 16; kk++) {
        uint32_t w[4];
        ldmatrix4(w, p + lane % 16 * LATENT_P_ROOM + kk * 16 + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            uint32_t v[4];
            ldmatrix4_trans(v, tile + piece_at(kk * 16 + lane / 8 % 2 * 8 + lane % 8, warp * 4 + j * 2 + lane / 16));
            mma_bf16(o[2 * j], w, v[0], v[1]);
            mma_bf16(o[2 * j + 1], w, v[2], v[3]);
        }
    }
}

static __device__ __forceinline__ void store_run(const k_step_latent &a, const float o[4][4], int head0, int split, float max, float sum, uint32_t tag) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (head0 + g + 8 * i >= a.heads) continue;
        uint64_t *to = a.y_link + ((int64_t)(head0 + g + 8 * i) * a.splits + split) * LATENT_PART + warp * 32 + 2 * t;
#pragma unroll
        for (int j = 0; j < 4; j++) store_words(to + j * 8, uint4{__float_as_uint(o[j][2 * i]), tag, __float_as_uint(o[j][2 * i + 1]), tag});
    }
    uint64_t *of_head = a.y_link + ((int64_t)(head0 + warp) * a.splits + split) * LATENT_PART + LATENT_VALUES;
    if (lane == 0 && head0 + warp < a.heads) store_words(of_head, uint4{__float_as_uint(max), tag, __float_as_uint(sum), tag});
}

// queries: [16][576]; tile: [32][576]; scratch: parts of scores, weights, what becomes of the sums.
template <int WARPS> static __device__ __noinline__ void run_latent(const k_instr &in, shared_head *head, unsigned char *queries_at, unsigned char *tile_at, unsigned char *scratch, uint32_t *count) {
    static_assert(WARPS == LATENT_HEADS && WARPS == LATENT_SHARES * (LATENT_TILE / 8) && WARPS * 32 == LATENT_VALUES && LATENT_TILE == 32, "how warps share a tile");
    const k_step_latent &a = in.u.latent;
    know_latent(a, head);
    const known_item *known = &head->known[0];
    int item = latent_item(), split = item % a.splits, head0 = item / a.splits * LATENT_HEADS, pos = known->pos;
    const latent_run r = run_of_item(a, pos, split);
    if (head0 >= a.heads || r.n <= 0) return;
    bf16 *queries = (bf16 *)queries_at, *tile = (bf16 *)tile_at;
    float *parts = (float *)scratch, *keeps = parts + LATENT_SHARES * LATENT_HEADS * LATENT_SCORE_ROOM, o[4][4] = {{0}}, max = -INFINITY, sum = 0;
    bf16 *p = (bf16 *)(keeps + LATENT_HEADS);
    load_tile<WARPS>(a, known, tile, r.first * LATENT_TILE);
    place_query(a, queries, head0, head->tag + in.number - 1, count);
#pragma unroll 1
    for (int i = 0; i < r.n; i++) {
        int p0 = (r.first + i) * LATENT_TILE;
        if (i > 0) {
            __syncthreads();
            load_tile<WARPS>(a, known, tile, p0);
        }
        if (r.own && i + 1 == r.n && threadIdx.x / 32 == WARPS - 1) place_own(a, head, tile, pos - p0, head0 ? NULL : latent_at(a, known, pos), head->tag + a.kv_maker, count);
        copy_wait<0>();
        __syncthreads();
        if (i + 1 < r.n && threadIdx.x / 32 == 0) prefetch_lines(latent_at(a, known, p0 + LATENT_TILE), LATENT_TILE * LATENT_WIDTH * 2);
        score_tile(queries, tile, parts);
        __syncthreads();
        soften_tile(parts, p, keeps, p0, pos, max, sum);
        __syncthreads();
        add_tile(o, tile, p, keeps);
    }
    store_run(a, o, head0, split, max, sum, head->tag + in.number);
}

// ---- results ----

// The runs of a head, joined: x [512]. factors: a number of each run.
template <int WARPS> static __device__ __forceinline__ void join_runs(const k_step_latent &a, int runs, int h, float *x, float *factors, uint32_t tag, uint32_t *count) {
    enum { AT_ONCE = 4 };
    const uint64_t *from = a.x_link + (int64_t)h * a.splits * LATENT_PART;
    int lane = threadIdx.x % 32, i = threadIdx.x;
    uint2 v[AT_ONCE];
#pragma unroll
    for (int s = 0; s < AT_ONCE; s++)
        if (s < runs) v[s] = load_tagged(from + s * LATENT_PART + i);
    __syncthreads(); // x of the head before is read
    if (i < 32) {
        float max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (lane + 32 * j >= runs) continue;
            float2 both = take_two(from + (lane + 32 * j) * LATENT_PART + LATENT_VALUES, tag, count);
            max[j] = both.x, sum[j] = both.y;
        }
        __syncwarp();
        float top = warp_max(fmaxf(max[0], max[1])), first = exp2f(max[0] - top), second = exp2f(max[1] - top);
        float all = 1.0f / warp_sum(sum[0] * first + sum[1] * second);
        factors[lane] = first * all, factors[lane + 32] = second * all;
    }
    __syncthreads();
    float y = 0;
#pragma unroll 1
    for (int base = 0; base < runs; base += AT_ONCE) {
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++)
            if (base > 0 && base + s < runs) v[s] = load_tagged(from + (base + s) * LATENT_PART + i);
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++) {
            if (base + s >= runs) continue;
            if (v[s].y != tag) v[s].x = wait_tagged(from + (base + s) * LATENT_PART + i, tag, count);
            y = fmaf(__uint_as_float(v[s].x), factors[base + s], y);
        }
    }
    x[i] = y;
    __syncthreads();
}

template <int WARPS> static __device__ __noinline__ void run_values(const k_instr &in, shared_head *head, float *room, uint32_t *count) {
    static_assert(WARPS * 32 == LATENT_VALUES && WARPS == TILE_ROWS && LATENT_RUNS_MAX == 64, "a thread for each column, a warp for each result");
    const k_step_latent &a = in.u.latent;
    know_latent(a, head);
    float *x = room, *factors = x + LATENT_VALUES;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = a.heads * a.v_width / TILE_ROWS, joined = -1, runs = runs_of_row(a, head->known[0].pos);
    int first = (int)((int64_t)n * blockIdx.x / gridDim.x), end = (int)((int64_t)n * (blockIdx.x + 1) / gridDim.x);
    uint32_t tag = head->tag + in.number;
#pragma unroll 1
    for (int tile = first; tile < end; tile++) {
        int row = tile * TILE_ROWS + warp, h = tile * TILE_ROWS / a.v_width;
        float w[2][8], sum = 0;
        unpack8(a.w, row, lane * 8, w[0]);
        unpack8(a.w, row, lane * 8 + 256, w[1]);
        if (h != joined) join_runs<WARPS>(a, runs, h, x, factors, tag - 1, count);
        joined = h;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const float4 y = *(const float4 *)(x + half * 256 + lane * 8), z = *(const float4 *)(x + half * 256 + lane * 8 + 4);
            const float v[8] = {y.x, y.y, y.z, y.w, z.x, z.y, z.z, z.w};
#pragma unroll
            for (int i = 0; i < 8; i++) sum = fmaf(w[half][i], v[i], sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) store_tagged(a.y_link + row, __float_as_uint(sum), tag);
    }
}
