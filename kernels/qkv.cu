// Between the projection and attention, in one launch: norms of queries and keys, rope, and the new keys and values into the cache.
//
// One warp per head and row, the head in shared memory while its pairs are rotated. Reads the projection, whole or in parts along k, once, writes queries and cache once;
// stopped by the launch at few rows, by memory at many.
#include "heads.cuh"
#include "kv8.cuh"

enum { WARPS = 4, WIDTH_MAX = 256 };

// The head to a cache of 8 bits.
template <int N> static __device__ __forceinline__ void store_head8(const k_qkv &a, const float *x, bool is_value, int block, int head, int n, int pos) {
    float y[N];
#pragma unroll
    for (int i = 0; i < N; i++) y[i] = i * 32 + (int)threadIdx.x % 32 < n ? x[i * 32 + threadIdx.x % 32] : 0.0f;
    kv8_turn_store<N>(kv8_block(a.c, is_value, block, head), y, n, pos % K_BLOCK, is_value);
}

template <bool IS_8> static __device__ __forceinline__ void rope_write(const k_qkv &a, head_of<WIDTH_MAX> *heads) {
    let_next_begin();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, item = blockIdx.x * WARPS + warp;
    int64_t r = blockIdx.y;
    bool is_q = item < a.q.heads, is_k = !is_q && item < a.q.heads + a.c.heads;
    int head = is_q ? item : is_k ? item - a.q.heads : item - a.q.heads - a.c.heads, n = is_q || is_k ? a.c.k_width : a.c.v_width;
    const k_view &from = is_q ? a.q : is_k ? a.k : a.v;
    const float *norm = is_q ? a.q_norm : a.k_norm;
    head_of<WIDTH_MAX> &h = heads[warp];
    float *x = (float *)h.x;
    if (is_q || is_k) know_weight(h, norm, is_q ? a.q_offset : a.k_offset, n), know_angles(a, h, r);
    int pos = a.pos[r], block = is_q ? 0 : a.c.table[(int64_t)a.seq_of[r] * a.c.table_stride + pos / K_BLOCK];
    await_previous();
    if (item >= a.q.heads + 2 * a.c.heads) return;
    load_head(a, h, from, r, head, n);
    if (is_q || is_k) {
        if (norm) norm_head(h, n, is_q ? a.q_eps : a.k_eps);
        rotate_head(a, h);
    }
    if (is_q) {
        for (int i = lane; i < n; i += 32) view_store(a.y, r, head, i, x[i]);
        return;
    }
    if (IS_8) {
        if (n <= 128) store_head8<4>(a, x, !is_k, block, head, n, pos);
        else store_head8<WIDTH_MAX / 32>(a, x, !is_k, block, head, n, pos);
        return;
    }
    int64_t at = (((int64_t)block * a.c.heads + head) * K_BLOCK + pos % K_BLOCK) * n;
    for (int i = lane; i < n; i += 32) store_f32(is_k ? a.c.k : a.c.v, a.c.dtype, at + i, x[i]);
}

// Grid ((query heads + 2 * cached heads) / 4, rows).
#define QKV(name, is_8)                                                               \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) name(KARGS(k_qkv) a) { \
        __shared__ head_of<WIDTH_MAX> heads[WARPS];                                              \
        rope_write<is_8>(a, heads);                                                   \
    }
QKV(qkv_rope_write, false)
QKV(qkv8_rope_write, true)
