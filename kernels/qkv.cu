// Between the projection and attention, in one launch: norms of queries and keys, rope, and the new keys and values into the cache.
//
// One warp per head and row, the head in shared memory while its pairs are rotated. Reads the projection, whole or in parts along k, once, writes queries and cache once;
// stopped by the launch at few rows, by memory at many.
#include "kv8.cuh"

enum { WARPS = 4, WIDTH_MAX = 256 };

// A warp's head, and what it needs of the row and the model, which no kernel makes: cosines and sines of pairs, the norm's weights. A lane reads of
// the last two what it wrote itself.
struct head_of {
    float4 x[WIDTH_MAX / 4];
    float2 turn[WIDTH_MAX / 2];
    float weight[WIDTH_MAX];
};

static __device__ __forceinline__ void know(const k_qkv &a, head_of &h, int64_t r, const float *weight, float offset, int n) {
    int lane = threadIdx.x % 32, pos = a.rope_pos[r];
    const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)a.seq_of[r] * a.n_rope_tables + a.table) * a.rope_width;
    for (int i = lane; weight && i < n; i += 32) h.weight[i] = weight[i] + offset;
#pragma unroll 1
    for (int i = lane; i < a.n_rotated / 2; i += 32) rope_angle(pos, table[i], a.magnitude, &h.turn[i].x, &h.turn[i].y);
}

static __device__ __forceinline__ void norm_head(head_of &h, int n, float eps) {
    int lane = threadIdx.x % 32;
    float square = 0, *x = (float *)h.x;
    for (int i = lane; i < n; i += 32) square = fmaf(x[i], x[i], square);
    float scale = 1.0f / sqrtf(warp_sum(square) / (float)n + eps);
    for (int i = lane; i < n; i += 32) x[i] = x[i] * scale * h.weight[i];
    __syncwarp();
}

static __device__ __forceinline__ void rotate_head(const k_qkv &a, head_of &h) {
    int lane = threadIdx.x % 32, half = a.n_rotated / 2;
    float *x = (float *)h.x;
    for (int i = lane; i < half; i += 32) {
        int u = a.first + (a.kind == ROPE_HALF ? i : 2 * i), v = u + (a.kind == ROPE_HALF ? half : 1);
        float x0 = x[u], x1 = x[v], c = h.turn[i].x, s = h.turn[i].y;
        x[u] = x0 * c - x1 * s;
        x[v] = x1 * c + x0 * s;
    }
    __syncwarp();
}

// The head to a cache of 8 bits.
template <int N> static __device__ __forceinline__ void store_head8(const k_qkv &a, const float *x, bool is_value, int block, int head, int n, int pos) {
    float y[N];
#pragma unroll
    for (int i = 0; i < N; i++) y[i] = i * 32 + (int)threadIdx.x % 32 < n ? x[i * 32 + threadIdx.x % 32] : 0.0f;
    kv8_turn_store<N>(kv8_block(a.c, is_value, block, head), y, n, pos % K_BLOCK, is_value);
}

template <bool IS_8> static __device__ __forceinline__ void rope_write(const k_qkv &a, head_of *heads) {
    let_next_begin();
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, item = blockIdx.x * WARPS + warp;
    int64_t r = blockIdx.y;
    bool is_q = item < a.q.heads, is_k = !is_q && item < a.q.heads + a.c.heads;
    int head = is_q ? item : is_k ? item - a.q.heads : item - a.q.heads - a.c.heads, n = is_q || is_k ? a.c.k_width : a.c.v_width;
    const k_view &from = is_q ? a.q : is_k ? a.k : a.v;
    const float *norm = is_q ? a.q_norm : a.k_norm;
    head_of &h = heads[warp];
    float *x = (float *)h.x;
    if (is_q || is_k) know(a, h, r, norm, is_q ? a.q_offset : a.k_offset, n);
    int pos = a.pos[r], block = is_q ? 0 : a.c.table[(int64_t)a.seq_of[r] * a.c.table_stride + pos / K_BLOCK];
    await_previous();
    if (item >= a.q.heads + 2 * a.c.heads) return;
    if (a.n_parts) // widths are multiples of four then
        for (int i = lane * 4; i < n; i += 128) *(float4 *)(x + i) = parts_sum4((const float *)from.p + r * from.row_stride + head * from.head_stride + i, a.n_parts, a.part_stride);
    else
        for (int i = lane; i < n; i += 32) x[i] = view_load(from, r, head, i);
    __syncwarp();
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
        __shared__ head_of heads[WARPS];                                              \
        rope_write<is_8>(a, heads);                                                   \
    }
QKV(qkv_rope_write, false)
QKV(qkv8_rope_write, true)
