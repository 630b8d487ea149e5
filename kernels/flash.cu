// Attention of prompt rows over the paged bf16 cache, on the tensor cores. For sm_80 and later.
//
// A block takes 64 rows of one sequence and one query head, 16 rows per warp; blocks of 64 cached positions come through two stages of shared
// memory, and the softmax runs along with them, so that no score leaves the registers. Reads the visible cache once per 64 rows and query
// head, mostly from L2; stopped by the tensor cores and the exponentials.
#include "flash.cuh"
#include "sync.cuh"

// Elements of a stage's keys, and of its values.
template <int D> static __device__ __forceinline__ constexpr int stage_room() {
    return KEYS * row_room<D>();
}

// Where a block has little shared memory, wide heads have one stage: the next keys come while values are added, the next values during the scores.
template <int D> static __device__ __forceinline__ constexpr bool has_one_stage() {
    return SMALL_SHARED && D > 128;
}

template <int D> static __device__ __forceinline__ void load_pair(const k_attn &a, bf16 *stage, const int32_t *table, int kv_head, int block, int last) {
    int64_t at = ((int64_t)table[block] * a.c.heads + kv_head) * K_BLOCK * D;
    load_block<D>(stage, a.c.k, at, block * KEYS, last);
    load_block<D>(stage + stage_room<D>(), a.c.v, at, block * KEYS, last);
}

// Keys or values alone, and nothing behind the last block.
template <int D>
static __device__ __forceinline__ void load_half(bf16 *to, const void *from, const k_attn &a, const int32_t *table, int kv_head, int block, int last, int last_block) {
    if (block <= last_block) load_block<D>(to, from, ((int64_t)table[block] * a.c.heads + kv_head) * K_BLOCK * D, block * KEYS, last);
    copy_commit();
}

// The last position that any of a tile's rows sees.
static __device__ __forceinline__ int last_of_tile(const k_attn &a, int64_t row, int n_rows, int pos0) {
    int last = pos0 + n_rows - 1;
    if (!a.until) return last;
    for (int i = threadIdx.x % 32; i < n_rows; i += 32) last = max(last, a.until[row + i]);
    return (int)warp_max_u32((uint32_t)last);
}

template <int D> static __device__ __forceinline__ void attend(const k_attn &a) {
    DYNAMIC_SHARED(bf16, smem); // two stages of keys and values, then the queries of wide heads
    bf16 *queries = smem + (has_one_stage<D>() ? 2 : 4) * stage_room<D>();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4, head = blockIdx.x, kv_head = head / a.group;
    int column = threadIdx.x / 128 * columns<D>();
    k_seq seq = a.seqs[a.tiles[2 * blockIdx.y]];
    int from = a.tiles[2 * blockIdx.y + 1], n_rows = seq.n_rows - from < ROWS ? seq.n_rows - from : ROWS;
    const int32_t *table = a.c.table + (int64_t)a.tiles[2 * blockIdx.y] * a.c.table_stride;
    int pos0 = seq.pos + from, last = last_of_tile(a, seq.row + from, n_rows, pos0), block = first_visible(a.window, a.chunk, pos0) / KEYS, last_block = last / KEYS;
    int64_t r0 = (int64_t)seq.row + from + warp * 16;
    uint32_t q[q_registers<D>()][4];
    float o[columns<D>() / 8][4], max[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0}, scale[2];
    span rows[2];
    load_queries<D>(a.q, q, queries, r0, n_rows - warp * 16, head);
#pragma unroll
    for (int i = 0; i < columns<D>() / 8 * 4; i++) ((float *)o)[i] = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = warp * 16 + g + i * 8, pos = pos0 + row;
        rows[i] = row < n_rows ? span{last_of_row(a, seq.row + from + row, pos), first_visible(a.window, a.chunk, pos)} : span{-1, 0};
        scale[i] = query_scale(a, pos);
    }
    if (has_one_stage<D>()) {
        bf16 *keys = smem, *values = smem + stage_room<D>();
        load_half<D>(keys, a.c.k, a, table, kv_head, block, last, last_block);
        load_half<D>(values, a.c.v, a, table, kv_head, block, last, last_block);
        for (; block <= last_block; block++) {
            float s[8][4];
            copy_wait<1>();
            __syncthreads();
            scores<D>(s, q, queries, keys);
            __syncthreads();
            load_half<D>(keys, a.c.k, a, table, kv_head, block + 1, last, last_block);
            soften<D>(a.softcap, s, rows, scale, block * KEYS, max, sum, o);
            copy_wait<1>();
            __syncthreads();
            add_values<D>(o, s, values, column);
            __syncthreads();
            load_half<D>(values, a.c.v, a, table, kv_head, block + 1, last, last_block);
        }
    } else {
        load_pair<D>(a, smem, table, kv_head, block, last);
        copy_commit();
        for (int stage = 0; block <= last_block; block++, stage ^= 1) {
            if (block < last_block) load_pair<D>(a, smem + (stage ^ 1) * 2 * stage_room<D>(), table, kv_head, block + 1, last);
            copy_commit();
            copy_wait<1>();
            __syncthreads();
            const bf16 *keys = smem + stage * 2 * stage_room<D>();
            float s[8][4];
            scores<D>(s, q, queries, keys);
            soften<D>(a.softcap, s, rows, scale, block * KEYS, max, sum, o);
            add_values<D>(o, s, keys + stage_room<D>(), column);
            __syncthreads();
        }
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = warp * 16 + g + i * 8;
        float total = shared_sum(sum[i]);
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

// Grid (query heads, tiles), 128 threads (256 for D = 256). Shared memory: flash_shared_bytes, or flash_narrow_bytes with one stage.
#define FLASH(d) \
    extern "C" __global__ void __launch_bounds__(warps<d>() * 32) attn_flash_##d(KARGS(k_attn) a) { attend<d>(a); }
FLASH(64)
FLASH(80)
FLASH(96)
FLASH(128)
FLASH(256)
