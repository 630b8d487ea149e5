// The cache of 8 bits: new keys and values that no other kernel writes, and blocks of it as bf16 for the rows of prompts.
//
// A block of kv8_write takes four vectors, a warp each; it is stopped by the launch. A block of kv8_unpack takes a cache block of one head. It reads
// codes once and writes twice as many bytes; stopped by memory, and a small part of the attention of a prompt that follows.
#include "kv8.cuh"

enum { WARPS = 4, WRITE_WIDTH = 256 };

// Grid (vectors of a row / 4, rows).
extern "C" __global__ void __launch_bounds__(WARPS * 32) kv8_write(KARGS(k_kv_write) a) {
    enum { N = WRITE_WIDTH / 32 };
    after_previous();
    int64_t r = blockIdx.y;
    int item = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32, head = item % a.c.heads, pos = a.pos[r];
    bool is_value = item >= a.c.heads;
    int width = is_value ? a.c.v_width : a.c.k_width;
    if (item >= 2 * a.c.heads) return;
    float x[N];
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = i * 32 + lane < width ? view_load(is_value ? a.v : a.k, r, head, i * 32 + lane) : 0.0f;
    int block = a.c.table[(int64_t)a.seq_of[r] * a.c.table_stride + pos / K_BLOCK];
    kv8_turn_store<N>(kv8_block(a.c, is_value, block, head), x, width, pos % K_BLOCK, is_value);
}

// ---- blocks as bf16 ----

// N neighbours of a turned vector, one of this lane, back and to memory.
template <int N> static __device__ __forceinline__ void put_run(bf16 *to, float x[N]) {
    uint32_t words[N / 2];
    turn_runs<N>(x);
#pragma unroll
    for (int i = 0; i < N / 2; i++) words[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < N / 2; i++) ((uint32_t *)to)[threadIdx.x % 32 * (N / 2) + i] = words[i];
}

template <int N> static __device__ __forceinline__ void unpack_keys(const k_kv_unpack &a, int64_t block, int head, int at) {
    unsigned char *from = kv8_block(a.c, false, block, head);
    const signed char *codes = (const signed char *)from + kv8_key_at(32 * N, at) + threadIdx.x % 32 * N;
    float x[N], scale = kv8_scales(from, 32 * N)[at];
#pragma unroll
    for (int i = 0; i < N; i++) x[i] = (float)codes[i] * scale;
    put_run<N>((bf16 *)a.k + ((block * a.c.heads + head) * K_BLOCK + at) * (32 * N), x);
}

// Four positions from `at` on.
template <int N> static __device__ __forceinline__ void unpack_values(const k_kv_unpack &a, int64_t block, int head, int at) {
    unsigned char *from = kv8_block(a.c, true, block, head);
    uint32_t codes[N];
#pragma unroll
    for (int i = 0; i < N; i++) codes[i] = ((const uint32_t *)(from + kv8_value_at(32 * N, at)))[threadIdx.x % 32 * N + i];
#pragma unroll
    for (int p = 0; p < 4; p++) {
        float x[N], scale = kv8_scales(from, 32 * N)[at + p];
#pragma unroll
        for (int i = 0; i < N; i++) x[i] = (float)(signed char)(codes[i] >> 8 * p) * scale;
        put_run<N>((bf16 *)a.v + ((block * a.c.heads + head) * K_BLOCK + at + p) * (32 * N), x);
    }
}

// Grid (cache blocks of the longest sequence, cached heads, sequences from first_seq on).
template <int N> static __device__ __forceinline__ void unpack(const k_kv_unpack &a) {
    int i_seq = a.first_seq + blockIdx.z, i = blockIdx.x, warp = threadIdx.x / 32;
    k_seq seq = a.seqs[i_seq];
    if (i > (seq.pos + seq.n_rows - 1) / K_BLOCK || i < first_visible(a.window, a.chunk, seq.pos) / K_BLOCK) return;
    int64_t block = a.c.table[(int64_t)i_seq * a.c.table_stride + i];
#pragma unroll 2
    for (int at = warp; at < K_BLOCK; at += WARPS) unpack_keys<N>(a, block, blockIdx.y, at);
#pragma unroll 2
    for (int at = 4 * warp; at < K_BLOCK; at += 4 * WARPS) unpack_values<N>(a, block, blockIdx.y, at);
}
#define UNPACK(d)                                                                                         \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) kv8_unpack_##d(KARGS(k_kv_unpack) a) { \
        after_previous();                                                                                 \
        unpack<(d) / 32>(a);                                                                              \
    }
UNPACK(64)
UNPACK(128)
UNPACK(256)
