// What the kernels of tiled attention share: 64 rows by 64 keys on the tensor cores, the softmax along with them. A warp has 16 rows.
#pragma once
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

// Elements from a row of shared memory to the next.
template <int D> static __device__ __forceinline__ constexpr int row_room() {
    return flash_row_room(D);
}

// 16-byte piece of a row of D elements; pieces of whole rows are exchanged inside groups of eight by the row's low bits.
template <int D> static __device__ __forceinline__ int piece_at(int row, int piece) {
    return row * row_room<D>() + (D % 64 ? piece : piece ^ (row & 7)) * 8;
}

// The sums of a row over the four lanes that share it.
static __device__ __forceinline__ float shared_sum(float x) {
    x += __shfl_xor_sync(FULL, x, 1);
    return x + __shfl_xor_sync(FULL, x, 2);
}

// A block of 64 keys or values, D elements each, of which the first is position p0; those beyond `last` become zeros.
template <int D> static __device__ __forceinline__ void load_block(bf16 *to, const void *from, int64_t at, int p0, int last) {
#pragma unroll
    for (int i = 0; i < KEYS * (D / 8) / (warps<D>() * 32); i++) {
        int e = threadIdx.x + i * warps<D>() * 32, row = e / (D / 8), piece = e % (D / 8);
        copy16(to + piece_at<D>(row, piece), (const bf16 *)from + at + (int64_t)row * D + piece * 8, p0 + row <= last);
    }
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
    int last, first; // of a row: it sees positions first ... last; last < first where there is no row
};

// Scores become weights, in place; o, max and sum follow a new maximum. i = 0, 1: this lane's two rows.
template <int D>
static __device__ __forceinline__ void soften(float softcap, float s[8][4], const span rows[2], const float scale[2], int p0, float max[2], float sum[2], float o[columns<D>() / 8][4]) {
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
                if (softcap > 0) x = softcap * tanhf(x / softcap);
                x = p >= rows[i].first && p <= rows[i].last ? x * LOG2E : -INFINITY;
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
static __device__ __forceinline__ void load_queries(const k_view &from, uint32_t q[q_registers<D>()][4], bf16 *queries, int64_t r0, int n_rows, int head) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, warp = threadIdx.x / 32 % 4;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = g + i % 2 * 8, column = kk * 16 + i / 2 * 8 + 2 * t;
            bool there = row < n_rows && column < from.width; // even widths
            uint32_t pair = there ? pack_bf16(view_load(from, r0 + row, head, column), view_load(from, r0 + row, head, column + 1)) : 0u;
            if (D > 128) *(uint32_t *)(queries + piece_at<D>(warp * 16 + row, column / 8) + column % 8) = pair;
            else q[D > 128 ? 0 : kk][i] = pair;
        }
    __syncthreads();
}
