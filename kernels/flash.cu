// Attention of prompt rows over the paged bf16 cache, on the tensor cores. For sm_80 and later.
//
// A block takes 64 rows of one sequence and one query head, 16 rows per warp; blocks of 64 cached positions come through two stages of shared
// memory, and the softmax runs along with them, so that no score leaves the registers. Reads the visible cache once per 64 rows and query
// head, mostly from L2; stopped by the tensor cores and the exponentials.
#include "mma.cuh"

enum { ROWS = FLASH_ROWS, KEYS = K_BLOCK };
#define LOG2E 1.4426950408889634f

// Results of a wide head are shared by two warps, 128 columns each; both compute its scores.
template <int D> static __device__ __forceinline__ constexpr int columns() {
    return D > 128 ? 128 : D;
}
template <int D> static __device__ __forceinline__ constexpr int warps() {
    return 4 * D / columns<D>();
}

// Queries of a wide head do not fit beside its results: they wait in shared memory.
template <int D> static __device__ __forceinline__ constexpr int q_registers() {
    return D > 128 ? 1 : D / 16;
}

// 16-byte piece of a row of D elements; pieces are exchanged inside groups of eight by the row's low bits.
template <int D> static __device__ __forceinline__ int piece_at(int row, int piece) {
    return row * D + ((piece ^ (row & 7)) * 8);
}

// One cached block of keys or values; positions beyond `last` become zeros.
template <int D> static __device__ __forceinline__ void load_block(bf16 *to, const void *cache, int64_t block_at, int p0, int last) {
#pragma unroll
    for (int i = 0; i < KEYS * (D / 8) / (warps<D>() * 32); i++) {
        int e = threadIdx.x + i * warps<D>() * 32, row = e / (D / 8), piece = e % (D / 8);
        copy16(to + piece_at<D>(row, piece), (const bf16 *)cache + block_at + (int64_t)row * D + piece * 8, p0 + row <= last);
    }
}

template <int D> static __device__ __forceinline__ void load_pair(const k_attn &a, bf16 *stage, const int32_t *table, int kv_head, int block, int last) {
    int64_t at = ((int64_t)table[block] * a.c.heads + kv_head) * K_BLOCK * D;
    load_block<D>(stage, a.c.k, at, block * KEYS, last);
    load_block<D>(stage + KEYS * D, a.c.v, at, block * KEYS, last);
}

// Scores of 16 rows with 64 keys.
template <int D> static __device__ __forceinline__ void scores(float s[8][4], uint32_t q[q_registers<D>()][4], const bf16 *queries, const bf16 *keys) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int i = 0; i < 32; i++) ((float *)s)[i] = 0;
#pragma unroll(D > 128 ? 4 : D / 16)
    for (int kk = 0; kk < D / 16; kk++) {
        if (D > 128) ldmatrix4(q[0], queries + piece_at<D>(warp * 16 + lane % 16, kk * 2 + lane / 16));
#pragma unroll
        for (int j = 0; j < 4; j++) { // 16 keys: columns k 0-7 and 8-15 of the first eight, then of the second
            uint32_t k[4];
            ldmatrix4(k, keys + piece_at<D>(j * 16 + lane / 16 * 8 + lane % 8, kk * 2 + lane / 8 % 2));
            mma_bf16(s[2 * j], q[D > 128 ? 0 : kk], k[0], k[1]);
            mma_bf16(s[2 * j + 1], q[D > 128 ? 0 : kk], k[2], k[3]);
        }
    }
}

struct span {
    int pos, first; // of a row: it sees positions first ... pos; pos < first where there is no row
};

// Scores become weights, in place; o, max and sum follow a new maximum. i = 0, 1: this lane's two rows.
template <int D>
static __device__ __forceinline__ void soften(const k_attn &a, float s[8][4], const span rows[2], const float scale[2], int p0, float max[2], float sum[2], float o[columns<D>() / 8][4]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = max[i];
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) {
                int p = p0 + j * 8 + 2 * t + c;
                float x = s[j][2 * i + c] * scale[i];
                if (a.softcap > 0) x = a.softcap * tanhf(x / a.softcap);
                x = p >= rows[i].first && p <= rows[i].pos ? x * LOG2E : -INFINITY;
                s[j][2 * i + c] = x;
                top = fmaxf(top, x);
            }
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
        float base = top == -INFINITY ? 0.0f : top, keep = exp2f(max[i] - base), total = 0;
        max[i] = top;
#pragma unroll
        for (int j = 0; j < 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++) total += s[j][2 * i + c] = exp2f(s[j][2 * i + c] - base);
        sum[i] = fmaf(sum[i], keep, total);
#pragma unroll
        for (int j = 0; j < columns<D>() / 8; j++) o[j][2 * i] *= keep, o[j][2 * i + 1] *= keep;
    }
}

template <int D> static __device__ __forceinline__ void add_values(float o[columns<D>() / 8][4], const float s[8][4], const bf16 *values, int first) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        const uint32_t w[4] = {pack_bf16(s[2 * kk][0], s[2 * kk][1]), pack_bf16(s[2 * kk][2], s[2 * kk][3]), pack_bf16(s[2 * kk + 1][0], s[2 * kk + 1][1]),
                               pack_bf16(s[2 * kk + 1][2], s[2 * kk + 1][3])};
#pragma unroll
        for (int j = 0; j < columns<D>() / 16; j++) { // 16 columns of the values
            uint32_t v[4];
            ldmatrix4_trans(v, values + piece_at<D>(kk * 16 + lane / 8 % 2 * 8 + lane % 8, first / 8 + j * 2 + lane / 16));
            mma_bf16(o[2 * j], w, v[0], v[1]);
            mma_bf16(o[2 * j + 1], w, v[2], v[3]);
        }
    }
}

// Queries of this warp's 16 rows, rounded to bf16.
template <int D>
static __device__ __forceinline__ void load_queries(const k_attn &a, uint32_t q[q_registers<D>()][4], bf16 *queries, int64_t r0, int n_rows, int head) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = g + i % 2 * 8, column = kk * 16 + i / 2 * 8 + 2 * t;
            bool there = row < n_rows;
            uint32_t pair = there ? pack_bf16(view_load(a.q, r0 + row, head, column), view_load(a.q, r0 + row, head, column + 1)) : 0u;
            if (D > 128) *(uint32_t *)(queries + piece_at<D>(warp * 16 + row, column / 8) + column % 8) = pair;
            else q[D > 128 ? 0 : kk][i] = pair;
        }
    __syncthreads();
}

template <int D> static __device__ __forceinline__ void attend(const k_attn &a) {
    DYNAMIC_SHARED(bf16, smem); // two stages of keys and values, then the queries of wide heads
    bf16 *queries = smem + 4 * KEYS * D;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4, head = blockIdx.x, kv_head = head / a.group;
    int column = threadIdx.x / 128 * columns<D>();
    k_seq seq = a.seqs[a.tiles[2 * blockIdx.y]];
    int from = a.tiles[2 * blockIdx.y + 1], n_rows = seq.n_rows - from < ROWS ? seq.n_rows - from : ROWS;
    const int32_t *table = a.c.table + (int64_t)a.tiles[2 * blockIdx.y] * a.c.table_stride;
    int pos0 = seq.pos + from, last = pos0 + n_rows - 1, block = first_visible(a.window, a.chunk, pos0) / KEYS, last_block = last / KEYS;
    int64_t r0 = (int64_t)seq.row + from + warp * 16;
    uint32_t q[q_registers<D>()][4];
    float o[columns<D>() / 8][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, scale[2];
    span rows[2];
    load_queries<D>(a, q, queries, r0, n_rows - warp * 16, head);
#pragma unroll
    for (int i = 0; i < columns<D>() / 8 * 4; i++) ((float *)o)[i] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = warp * 16 + g + i * 8, pos = pos0 + row;
        rows[i] = row < n_rows ? span{pos, first_visible(a.window, a.chunk, pos)} : span{-1, 0};
        scale[i] = query_scale(a, pos);
    }
    load_pair<D>(a, smem, table, kv_head, block, last);
    copy_commit();
    for (int stage = 0; block <= last_block; block++, stage ^= 1) {
        if (block < last_block) load_pair<D>(a, smem + (stage ^ 1) * 2 * KEYS * D, table, kv_head, block + 1, last);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const bf16 *keys = smem + stage * 2 * KEYS * D;
        float s[8][4];
        scores<D>(s, q, queries, keys);
        soften<D>(a, s, rows, scale, block * KEYS, max, sum, o);
        add_values<D>(o, s, keys + KEYS * D, column);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = warp * 16 + g + i * 8;
        float total = sum[i];
        total += __shfl_xor_sync(FULL, total, 1);
        total += __shfl_xor_sync(FULL, total, 2);
        if (row >= n_rows) continue;
        float keep = 1.0f;
        if (a.sinks) {
            float sink = a.sinks[head] * LOG2E, top = fmaxf(max[i], sink);
            keep = exp2f(max[i] - top);
            total = total * keep + exp2f(sink - top);
        }
#pragma unroll
        for (int j = 0; j < columns<D>() / 8; j++) {
            view_store(a.y, seq.row + from + row, head, column + j * 8 + 2 * t, o[j][2 * i] * keep / total);
            view_store(a.y, seq.row + from + row, head, column + j * 8 + 2 * t + 1, o[j][2 * i + 1] * keep / total);
        }
    }
}

// Grid (query heads, tiles), 128 threads (256 for D = 256), 4 * 64 * D * 2 bytes of shared memory, 5 * 64 * D * 2 for D = 256.
#define FLASH(d) \
    extern "C" __global__ void __launch_bounds__(warps<d>() * 32) attn_flash_##d(KARGS(k_attn) a) { attend<d>(a); }
FLASH(64)
FLASH(128)
FLASH(256)
