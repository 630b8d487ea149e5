// Latent attention (one cached vector of 576 numbers for all heads, whose first 512 are the values) over the paged bf16 cache, on the tensor cores,
// for rows of prompts and of decode steps alike. For sm_80 and later.
//
// A block takes one row, 16 query heads, which are the rows of the products, and a run of positions; 32 of them come at a time through two stages of
// shared memory. Every warp computes the scores of eight positions, then 128 columns of the results of all 32. The last block of a row and its heads
// adds up the runs. Reads the visible cache once for 16 heads; stopped by memory for few rows, by the tensor cores for many.
#include "mma.cuh"
#include "soft.cuh"

enum { WARPS = LATENT_WARPS, TILE = LATENT_TILE, HEADS = LATENT_HEADS, WIDTH = LATENT_WIDTH, VALUES = LATENT_VALUES };
enum { COLUMNS = VALUES / WARPS, P_ROOM = LATENT_P_ROOM };
static_assert(TILE == 8 * WARPS && K_BLOCK % TILE == 0, "a warp has eight positions of a tile");

// Element 8 * piece of a row; pieces are exchanged inside groups of eight by the row's low bits.
static __device__ __forceinline__ int piece_at(int row, int piece) {
    return row * WIDTH + ((piece ^ (row & 7)) * 8);
}

// The positions of a block, begin ... end - 1 of tiles first ... first + n - 1.
struct run_of {
    int begin, end, first, n;
};
static __device__ __forceinline__ run_of run_of_split(const k_attn &a, int64_t row, int pos) {
    int begin = first_visible(a.window, a.chunk, pos), end = last_of_row(a, row, pos) + 1, from = begin / TILE, n = (end - 1) / TILE - from + 1;
    int each = (n + a.splits - 1) / a.splits, at = (int)blockIdx.x * each;
    run_of r;
    r.begin = begin, r.end = end, r.first = from + at, r.n = n - at < each ? n - at : each;
    return r;
}

static __device__ __forceinline__ void load_tile(const k_attn &a, bf16 *to, const int32_t *table, const run_of &r, int i) {
    if (i < r.n) {
        int p0 = (r.first + i) * TILE;
        const bf16 *from = (const bf16 *)a.c.k + ((int64_t)table[p0 / K_BLOCK] * K_BLOCK + p0 % K_BLOCK) * WIDTH;
#pragma unroll
        for (int j = 0; j < TILE * (WIDTH / 8) / (WARPS * 32); j++) {
            int e = threadIdx.x + j * WARPS * 32, row = e / (WIDTH / 8), piece = e % (WIDTH / 8);
            copy16(to + piece_at(row, piece), from + (int64_t)e * 8, p0 + row >= r.begin && p0 + row < r.end);
        }
    }
    copy_commit();
}

// Query heads to shared memory, [16][WIDTH]; zeros where there is no head.
static __device__ __forceinline__ void place_queries(const k_attn &a, bf16 *to, int64_t row, int head0, float scale) {
    for (int e = threadIdx.x; e < HEADS * WIDTH / 2; e += WARPS * 32) {
        int h = e / (WIDTH / 2), i = e % (WIDTH / 2) * 2;
        bool there = head0 + h < a.q.heads;
        float x = there ? view_load(a.q, row, head0 + h, i) * scale : 0.0f, y = there ? view_load(a.q, row, head0 + h, i + 1) * scale : 0.0f;
        *(uint32_t *)(to + piece_at(h, i / 8) + i % 8) = pack_bf16(x, y);
    }
}

// Scores of 16 heads with this warp's eight positions; sums of even and odd steps apart.
static __device__ __forceinline__ void scores(float s[4], const bf16 *queries, const bf16 *keys) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float odd[4] = {0};
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] = 0;
#pragma unroll 6
    for (int kk = 0; kk < WIDTH / 16; kk += 2) {
        uint32_t q[4], k[4];
        ldmatrix4(k, keys + piece_at(warp * 8 + lane % 8, kk * 2 + lane / 8));
        ldmatrix4(q, queries + piece_at(lane % 16, kk * 2 + lane / 16));
        mma_bf16(s, q, k[0], k[1]);
        ldmatrix4(q, queries + piece_at(lane % 16, kk * 2 + 2 + lane / 16));
        mma_bf16(odd, q, k[2], k[3]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] += odd[i];
}

// What a warp has: results of COLUMNS columns, of both of a lane's rows the largest score of all warps, and the sum of this warp's weights.
struct seen {
    float o[COLUMNS / 8][4], max[2], sum[2];
};

// Scores become weights, in units of log 2: this warp's columns of p [HEADS][P_ROOM]. tops [WARPS][HEADS].
static __device__ __forceinline__ void soften(float s[4], const run_of &r, int p0, float *tops, bf16 *p, seen &z) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = -INFINITY;
#pragma unroll
        for (int c = 0; c < 2; c++) {
            int at = p0 + warp * 8 + 2 * t + c;
            if (at < r.begin || at >= r.end) s[2 * i + c] = -INFINITY;
            top = fmaxf(top, s[2 * i + c]);
        }
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
        if (t == 0) tops[warp * HEADS + g + i * 8] = top;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = z.max[i];
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, tops[w * HEADS + g + i * 8]);
        float base = top == -INFINITY ? 0.0f : top, keep = exp2f(z.max[i] - base);
        float first = exp2f(s[2 * i] - base), second = exp2f(s[2 * i + 1] - base);
        z.max[i] = top;
        z.sum[i] = z.sum[i] * keep + first + second;
        *(uint32_t *)(p + (g + i * 8) * P_ROOM + warp * 8 + 2 * t) = pack_bf16(first, second);
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++) z.o[j][2 * i] *= keep, z.o[j][2 * i + 1] *= keep;
    }
    __syncthreads();
}

static __device__ __forceinline__ void add_values(const bf16 *p, const bf16 *values, seen &z) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int kk = 0; kk < TILE / 16; kk++) {
        uint32_t w[4];
        ldmatrix4(w, p + lane % 16 * P_ROOM + kk * 16 + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++) {
            uint32_t v[4];
            ldmatrix4_trans(v, values + piece_at(kk * 16 + lane / 8 % 2 * 8 + lane % 8, warp * (COLUMNS / 8) + j * 2 + lane / 16));
            mma_bf16(z.o[2 * j], w, v[0], v[1]);
            mma_bf16(z.o[2 * j + 1], w, v[2], v[3]);
        }
    }
}

// The runs of a row and its heads, which the last block to come adds up in order.
static __device__ __forceinline__ void join_runs(const k_attn &a, const float *partial, int64_t row, int head0) {
    __shared__ uint32_t is_last;
    if (!is_last_block(a.counters + row * gridDim.y + blockIdx.y, a.splits, &is_last)) return;
    for (int e = threadIdx.x; e < HEADS * VALUES; e += WARPS * 32) {
        int h = e / VALUES, i = e % VALUES;
        if (head0 + h >= a.q.heads) return;
        softened s = join<true>(partial + (int64_t)h * a.splits * (VALUES + 2), a.splits, VALUES, i);
        view_store(a.y, row, head0 + h, i, s.x / s.sum);
    }
}

// Results, or this run's part of them: partial is [rows][heads][splits][VALUES + 2].
static __device__ __forceinline__ void finish(const k_attn &a, seen &z, float *sums, int64_t row, int head0) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    float *partial = a.partial + (row * a.q.heads + head0) * a.splits * (VALUES + 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float sum = z.sum[i];
        sum += __shfl_xor_sync(FULL, sum, 1);
        sum += __shfl_xor_sync(FULL, sum, 2);
        if (t == 0) sums[warp * HEADS + g + i * 8] = sum;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int h = g + i * 8;
        if (head0 + h >= a.q.heads) continue;
        float total = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) total += sums[w * HEADS + h];
        float *to = partial + ((int64_t)h * a.splits + blockIdx.x) * (VALUES + 2);
#pragma unroll
        for (int j = 0; j < COLUMNS / 8; j++) {
            int at = warp * COLUMNS + j * 8 + 2 * t;
            if (a.splits > 1) {
                to[at] = z.o[j][2 * i], to[at + 1] = z.o[j][2 * i + 1];
            } else {
                view_store(a.y, row, head0 + h, at, z.o[j][2 * i] / total);
                view_store(a.y, row, head0 + h, at + 1, z.o[j][2 * i + 1] / total);
            }
        }
        if (a.splits > 1 && warp == 0 && t == 0) to[VALUES] = z.max[i], to[VALUES + 1] = total;
    }
    if (a.splits > 1) join_runs(a, partial, row, head0);
}

// Grid (splits, sixteens of query heads, rows). Shared memory: latent_shared_bytes.
extern "C" __global__ void __launch_bounds__(WARPS * 32) attn_latent(KARGS(k_attn) a) {
    DYNAMIC_SHARED(bf16, smem);
    bf16 *queries = smem, *tiles = smem + HEADS * WIDTH, *p = tiles + 2 * TILE * WIDTH;
    float *tops = (float *)(p + HEADS * P_ROOM);
    int64_t row = blockIdx.z;
    int head0 = blockIdx.y * HEADS;
    after_previous();
    int pos = a.pos[row];
    run_of r = run_of_split(a, row, pos);
    const int32_t *table = a.c.table + (int64_t)a.seq_of[row] * a.c.table_stride;
    seen z;
#pragma unroll
    for (int i = 0; i < 2; i++) z.max[i] = -INFINITY, z.sum[i] = 0;
#pragma unroll
    for (int j = 0; j < COLUMNS / 8; j++) z.o[j][0] = z.o[j][1] = z.o[j][2] = z.o[j][3] = 0;
    load_tile(a, tiles, table, r, 0);
    place_queries(a, queries, row, head0, query_scale(a, pos) * LOG2E);
    for (int i = 0; i < r.n; i++) {
        bf16 *tile = tiles + i % 2 * TILE * WIDTH;
        load_tile(a, tiles + (i + 1) % 2 * TILE * WIDTH, table, r, i + 1);
        copy_wait<1>();
        __syncthreads();
        float s[4];
        scores(s, queries, tile);
        soften(s, r, (r.first + i) * TILE, tops, p, z);
        add_values(p, tile, z);
        __syncthreads();
    }
    copy_wait<0>();
    finish(a, z, tops, row, head0);
}
