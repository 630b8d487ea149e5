// Attention among the rows of a step, as towers of pictures have it, on the tensor cores. For sm_80 and later.
//
// Keys and values become bf16 once, widths filled up to a multiple of 16. A block takes 64 rows of one head; the keys that any of them sees come in blocks
// of 64 through two stages of shared memory. Reads them once per 64 rows, from L2; stopped by the tensor cores and the exponentials.
#include "flash.cuh"

// Grid (rows): all heads of a row.
extern "C" __global__ void attn_rows_pack(KARGS(k_attn_rows) a) {
    int64_t r = blockIdx.x;
    for (int e = threadIdx.x; e < a.k.heads * a.width; e += blockDim.x) {
        int h = e / a.width, i = e % a.width;
        int64_t at = ((int64_t)h * a.k.rows + r) * a.width + i;
        ((bf16 *)a.keys)[at] = __float2bfloat16_rn(i < a.k.width ? view_load(a.k, r, h, i) : 0.0f);
        ((bf16 *)a.values)[at] = __float2bfloat16_rn(i < a.v.width ? view_load(a.v, r, h, i) : 0.0f);
    }
}

template <int D> static __device__ __forceinline__ void load_pair(const k_attn_rows &a, bf16 *stage, int head, int block) {
    int64_t at = ((int64_t)head * a.k.rows + block * KEYS) * D;
    load_block<D>(stage, a.keys, at, block * KEYS, a.k.rows - 1);
    load_block<D>(stage + KEYS * row_room<D>(), a.values, at, block * KEYS, a.k.rows - 1);
}

// The first and the last block of keys that any of a block's rows sees.
static __device__ __forceinline__ span blocks_of(const k_attn_rows &a, int64_t row, int n_rows) {
    int first = a.k.rows, to = 0;
    for (int i = threadIdx.x % 32; i < n_rows; i += 32) first = min(first, a.spans[2 * (row + i)]), to = max(to, a.spans[2 * (row + i) + 1]);
    first = 0x7fffffff - (int)warp_max_u32((uint32_t)(0x7fffffff - first));
    return span{((int)warp_max_u32((uint32_t)to) - 1) / KEYS, first / KEYS};
}

template <int D> static __device__ __forceinline__ void attend(const k_attn_rows &a) {
    enum { STAGE = 2 * KEYS * row_room<D>() };
    DYNAMIC_SHARED(bf16, smem); // two stages of keys and values
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, head = blockIdx.x;
    int64_t row0 = (int64_t)blockIdx.y * ROWS;
    int n_rows = a.q.rows - row0 < ROWS ? (int)(a.q.rows - row0) : ROWS;
    span blocks = blocks_of(a, row0, n_rows), rows[2];
    uint32_t q[q_registers<D>()][4];
    float o[D / 8][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, scale[2] = {a.scale, a.scale};
    load_queries<D>(a.q, q, smem, row0 + warp * 16, n_rows - warp * 16, head);
#pragma unroll
    for (int i = 0; i < D / 8 * 4; i++) ((float *)o)[i] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t row = warp * 16 + g + i * 8;
        rows[i] = row < n_rows ? span{a.spans[2 * (row0 + row) + 1] - 1, a.spans[2 * (row0 + row)]} : span{-1, 0};
    }
    load_pair<D>(a, smem, head, blocks.first);
    copy_commit();
    for (int block = blocks.first, stage = 0; block <= blocks.last; block++, stage ^= 1) {
        if (block < blocks.last) load_pair<D>(a, smem + (stage ^ 1) * STAGE, head, block + 1);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const bf16 *keys = smem + stage * STAGE;
        float s[8][4];
        scores<D>(s, q, smem, keys);
        soften<D>(0, s, rows, scale, block * KEYS, max, sum, o);
        add_values<D>(o, s, keys + KEYS * row_room<D>(), 0);
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int64_t row = warp * 16 + g + i * 8;
        float total = shared_sum(sum[i]);
        if (row >= n_rows) continue;
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            int column = j * 8 + 2 * t;
            if (column >= a.y.width) break; // even widths
            view_store(a.y, row0 + row, head, column, o[j][2 * i] / total);
            view_store(a.y, row0 + row, head, column + 1, o[j][2 * i + 1] / total);
        }
    }
}

// Grid (heads, rows / 64), 128 threads, 2 * 2 * 64 * (d, or d + 8 where that is no multiple of 64) * 2 bytes of shared memory.
#define FLASH_ROWS(d) \
    extern "C" __global__ void __launch_bounds__(warps<d>() * 32) attn_rows_flash_##d(KARGS(k_attn_rows) a) { attend<d>(a); }
FLASH_ROWS(64)
FLASH_ROWS(80)
FLASH_ROWS(96)
FLASH_ROWS(128)
