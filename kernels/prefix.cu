// Attention of decode rows over cached blocks with which several sequences begin, on the tensor cores: those blocks are read once for many rows. What
// each row sees behind them is for kernels/decode.cu, which adds both up. For sm_80 and later.
//
// A block takes one cached head, a run of the common blocks, and 64 queries, the heads of its group of one row after the other; 16 queries per warp. The
// rest is as in kernels/flash.cu. Stopped by the tensor cores.
#include "flash.cuh"
#include "soft.cuh"

// Query i of a block's tile: which row and which head of the group; row -1: there is none.
struct query_of {
    int row, head;
};
static __device__ __forceinline__ query_of query_at(const k_attn &a, int i) {
    int at = (int)blockIdx.z * ROWS + i, r = at / a.group;
    return query_of{r < a.sharing[0] ? a.sharing[2 + r] : -1, (int)blockIdx.y * a.group + at - r * a.group};
}

// Queries of this warp, rounded to bf16.
template <int D> static __device__ __forceinline__ void load_shared_queries(const k_attn &a, uint32_t q[D / 16][4], const query_of of[2]) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int column = kk * 16 + i / 2 * 8 + 2 * t;
            const query_of &x = of[i % 2];
            q[kk][i] = x.row < 0 ? 0u : pack_bf16(view_load(a.q, x.row, x.head, column), view_load(a.q, x.row, x.head, column + 1));
        }
}

template <int D> static __device__ __forceinline__ void load_pair(const k_attn &a, bf16 *stage, const int32_t *table, int block) {
    int64_t at = ((int64_t)table[block] * a.c.heads + blockIdx.y) * K_BLOCK * D;
    load_block<D>(stage, a.c.k, at, 0, KEYS);
    load_block<D>(stage + KEYS * row_room<D>(), a.c.v, at, 0, KEYS);
}

// Scores become weights, in place; o, max and sum follow a new maximum. All queries see all keys. factor: to exponents of 2. max: of scores before it.
template <int D> static __device__ __forceinline__ void soften_all(float softcap, float s[8][4], const float factor[2], float max[2], float sum[2], float o[D / 8][4]) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = max[i], total = 0;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float &x = s[j / 2][2 * i + j % 2];
            if (softcap > 0) x = tanhf(x * factor[i]);
            top = fmaxf(top, x);
        }
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
        float by = softcap > 0 ? softcap * LOG2E : factor[i], base = top * by, keep = exp2_fast(fmaf(max[i], by, -base));
        max[i] = top;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float &x = s[j / 2][2 * i + j % 2];
            x = exp2_fast(fmaf(x, by, -base));
            total += x;
        }
        sum[i] = fmaf(sum[i], keep, total);
#pragma unroll
        for (int j = 0; j < D / 8; j++) o[j][2 * i] *= keep, o[j][2 * i + 1] *= keep;
    }
}

// What the run gives for this lane's two queries: results that are not divided yet, the largest score, the sum of weights.
template <int D> static __device__ __forceinline__ void keep_run(const k_attn &a, const query_of of[2], const float o[D / 8][4], const float factor[2], const float max[2], const float sum[2]) {
    int t = threadIdx.x % 4, splits = a.splits + a.shared_splits;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float total = shared_sum(sum[i]);
        if (of[i].row < 0) continue;
        float *to = a.partial + (((int64_t)of[i].row * a.c.heads * a.group + of[i].head) * splits + blockIdx.x) * (D + 2);
#pragma unroll
        for (int j = 0; j < D / 8; j++) *(float2 *)(to + j * 8 + 2 * t) = float2{o[j][2 * i], o[j][2 * i + 1]};
        if (t == 0) to[D] = total > 0 ? max[i] * (a.softcap > 0 ? a.softcap * LOG2E : factor[i]) : -INFINITY, to[D + 1] = total; // a run may be empty
    }
}

template <int D> static __device__ __forceinline__ void attend(const k_attn &a) {
    enum { STAGE = 2 * KEYS * row_room<D>() };
    DYNAMIC_SHARED(bf16, smem); // two stages of keys and values
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_blocks = a.sharing[1] / KEYS;
    int each = (n_blocks + a.shared_splits - 1) / a.shared_splits, block = blockIdx.x * each, end = block + each < n_blocks ? block + each : n_blocks;
    const int32_t *table = a.c.table + (int64_t)a.seq_of[a.sharing[2]] * a.c.table_stride;
    let_next_begin();
    if ((int)blockIdx.z * ROWS >= a.sharing[0] * a.group) end = block; // more rows than share the blocks
    if (block < end) load_pair<D>(a, smem, table, block);
    copy_commit();
    await_previous();
    query_of of[2];
    uint32_t q[D / 16][4];
    float o[D / 8][4], max[2] = {-1e30f, -1e30f}, sum[2] = {0, 0}, factor[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        of[i] = query_at(a, warp * 16 + lane / 4 + i * 8);
        factor[i] = of[i].row < 0 ? 0.0f : query_scale(a, a.pos[of[i].row]) * (a.softcap > 0 ? 1.0f / a.softcap : LOG2E);
    }
    load_shared_queries<D>(a, q, of);
#pragma unroll
    for (int i = 0; i < D / 8 * 4; i++) ((float *)o)[i] = 0;
    for (int stage = 0; block < end; block++, stage ^= 1) {
        if (block + 1 < end) load_pair<D>(a, smem + (stage ^ 1) * STAGE, table, block + 1);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const bf16 *keys = smem + stage * STAGE;
        float s[8][4];
        scores<D>(s, q, smem, keys);
        soften_all<D>(a.softcap, s, factor, max, sum, o);
        add_values<D>(o, s, keys + KEYS * row_room<D>(), 0);
        __syncthreads();
    }
    keep_run<D>(a, of, o, factor, max, sum);
}

// Grid (shared splits, cached heads, tiles of 64 queries), 128 threads, flash_shared_bytes of shared memory.
#define PREFIX(d) \
    extern "C" __global__ void __launch_bounds__(128, 3) attn_prefix_##d(KARGS(k_attn) a) { attend<d>(a); }
PREFIX(64)
PREFIX(128)
