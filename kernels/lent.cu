// A layer of the host's cache, for a prompt's step that computes with it here: what its sequences have comes before new positions are written, and
// these go back behind them. The host's memory is read and written by these kernels themselves, in pieces of 16 bytes; stopped by the bus.
//
// The host has f16, keys element by element and positions side by side, values position by position; here are bf16 and positions, as everywhere.
#include "common.cuh"

enum { THREADS = 128, PIECE = 64, PITCH = 72 /* elements, a multiple of 16 bytes */, EIGHTS = PIECE / 8, ROUNDS = PIECE * EIGHTS / THREADS };

// The positions [from, to) of a cache block that are meant; the block, and where one of its heads begins here and there.
struct lent_block {
    int from, to;
    int64_t at;
};

static __device__ __forceinline__ bool find_block(const k_lent &a, int i, int first, int end, lent_block &b) {
    b.from = first > i * K_BLOCK ? first - i * K_BLOCK : 0;
    b.to = end < (i + 1) * K_BLOCK ? end - i * K_BLOCK : K_BLOCK;
    if (b.from >= b.to) return false;
    int64_t block = a.c.table[(int64_t)blockIdx.z * a.c.table_stride + i];
    b.at = (block * a.c.heads + blockIdx.y) * K_BLOCK;
    return block >= 0;
}

// Eight numbers of one kind as eight of the other.
static __device__ __forceinline__ uint4 bf16_of_halves(uint4 v) {
    uint32_t in[4] = {v.x, v.y, v.z, v.w}, out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = pack_bf16(meta_f32(in[i] & 0xffff, K_F16), meta_f32(in[i] >> 16, K_F16));
    return uint4{out[0], out[1], out[2], out[3]};
}
static __device__ __forceinline__ uint4 halves_of_bf16(uint4 v) {
    uint32_t in[4] = {v.x, v.y, v.z, v.w}, out[4];
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = half_bits(__uint_as_float(in[i] << 16)) | (uint32_t)half_bits(__uint_as_float(in[i] & 0xffff0000u)) << 16;
    return uint4{out[0], out[1], out[2], out[3]};
}
static __device__ __forceinline__ uint16_t eighth(const uint4 &v, int i) {
    uint32_t word = i < 2 ? v.x : i < 4 ? v.y : i < 6 ? v.z : v.w;
    return (uint16_t)(word >> i % 2 * 16);
}

// Eight neighbours along a row to eight places of a column.
static __device__ __forceinline__ void turn_eight(uint16_t *piece, int row, int column, const uint4 &v) {
#pragma unroll
    for (int i = 0; i < 8; i++) piece[(column + i) * PITCH + row] = eighth(v, i);
}

// 64 elements of a block's keys from `first` on. Positions outside are zeros: they are multiplied by zero, and must be numbers.
static __device__ __forceinline__ void fetch_keys(const k_lent &a, const lent_block &b, int first, uint16_t *piece) {
    int left = a.c.k_width - first;
    const uint16_t *from = (const uint16_t *)a.k + b.at * a.c.k_width + (int64_t)first * K_BLOCK;
    uint16_t *to = (uint16_t *)a.c.k + b.at * a.c.k_width + first;
    uint4 v[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int e = i * THREADS + threadIdx.x, d = e / EIGHTS;
        v[i] = uint4{0, 0, 0, 0};
        if (d < left) v[i] = *(const uint4 *)(from + d * K_BLOCK + e % EIGHTS * 8);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int e = i * THREADS + threadIdx.x;
        turn_eight(piece, e / EIGHTS, e % EIGHTS * 8, bf16_of_halves(v[i]));
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int e = i * THREADS + threadIdx.x, position = e / EIGHTS, d = e % EIGHTS * 8;
        uint4 x = uint4{0, 0, 0, 0};
        if (position >= b.from && position < b.to) x = *(const uint4 *)(piece + position * PITCH + d);
        if (d < left) *(uint4 *)(to + (int64_t)position * a.c.k_width + d) = x;
    }
    __syncthreads();
}

static __device__ __forceinline__ void fetch_values(const k_lent &a, const lent_block &b) {
    const uint16_t *from = (const uint16_t *)a.v + b.at * a.c.v_width;
    uint16_t *to = (uint16_t *)a.c.v + b.at * a.c.v_width;
    int first = b.from * a.c.v_width, end = b.to * a.c.v_width;
#pragma unroll 4
    for (int e = threadIdx.x * 8; e < K_BLOCK * a.c.v_width; e += THREADS * 8) {
        uint4 x = uint4{0, 0, 0, 0};
        if (e >= first && e < end) x = bf16_of_halves(*(const uint4 *)(from + e));
        *(uint4 *)(to + e) = x;
    }
}

// Grid (cache blocks of the longest sequence, cached heads, sequences).
extern "C" __global__ void __launch_bounds__(THREADS) kv_fetch(KARGS(k_lent) a) {
    alignas(16) __shared__ uint16_t piece[PIECE * PITCH];
    after_previous();
    k_seq seq = a.seqs[blockIdx.z];
    lent_block b;
    int first = first_visible(a.window, 0, seq.pos) / K_BLOCK * K_BLOCK;
    if (!find_block(a, blockIdx.x, first, a.is_whole ? seq.pos + seq.n_rows : seq.pos, b)) return;
    for (int d = 0; d < a.c.k_width; d += PIECE) fetch_keys(a, b, d, piece);
    fetch_values(a, b);
}

static __device__ __forceinline__ void return_keys(const k_lent &a, const lent_block &b, int first, uint16_t *piece) {
    int left = a.c.k_width - first;
    const uint16_t *from = (const uint16_t *)a.c.k + b.at * a.c.k_width + first;
    uint16_t *to = (uint16_t *)a.k + b.at * a.c.k_width + (int64_t)first * K_BLOCK;
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int e = i * THREADS + threadIdx.x, position = e / EIGHTS, d = e % EIGHTS * 8;
        if (d < left && position >= b.from && position < b.to)
            turn_eight(piece, position, d, halves_of_bf16(*(const uint4 *)(from + (int64_t)position * a.c.k_width + d)));
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROUNDS; i++) {
        int e = i * THREADS + threadIdx.x, d = e / EIGHTS, position = e % EIGHTS * 8;
        if (d >= left) continue;
        if (position >= b.from && position + 8 <= b.to) *(uint4 *)(to + d * K_BLOCK + position) = *(const uint4 *)(piece + d * PITCH + position);
        else
            for (int p = position; p < position + 8; p++)
                if (p >= b.from && p < b.to) to[d * K_BLOCK + p] = piece[d * PITCH + p];
    }
    __syncthreads();
}

// Grid (cache blocks that the new positions of a sequence lie in, cached heads, sequences).
extern "C" __global__ void __launch_bounds__(THREADS) kv_return(KARGS(k_lent) a) {
    alignas(16) __shared__ uint16_t piece[PIECE * PITCH];
    after_previous();
    k_seq seq = a.seqs[blockIdx.z];
    lent_block b;
    if (!find_block(a, seq.pos / K_BLOCK + blockIdx.x, seq.pos, seq.pos + seq.n_rows, b)) return;
    for (int d = 0; d < a.c.k_width; d += PIECE) return_keys(a, b, d, piece);
    const uint16_t *from = (const uint16_t *)a.c.v + b.at * a.c.v_width;
    uint16_t *to = (uint16_t *)a.v + b.at * a.c.v_width;
#pragma unroll 4
    for (int e = b.from * a.c.v_width + threadIdx.x * 8; e < b.to * a.c.v_width; e += THREADS * 8) *(uint4 *)(to + e) = halves_of_bf16(*(const uint4 *)(from + e));
}
