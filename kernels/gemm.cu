// bf16 matrix product for prompts: y[m, n] = sum over k of x[m, k] w[n, k], accumulated in f32. For sm_80 and later.
//
// A block makes 128 x 128 results, four warps of 64 x 64 each; k comes in steps of 64 through three stages of shared memory, rows of 128 bytes
// whose 16-byte pieces are exchanged by the row's low bits so that reading them has no bank conflicts. Stopped by the tensor cores.
#include "mma.cuh"

enum { BM = GEMM_TILE, BN = GEMM_TILE, BK = GEMM_K, STAGES = GEMM_STAGES, THREADS = GEMM_THREADS, STAGE_ELEMENTS = (BM + BN) * BK };

static __device__ __forceinline__ int piece_at(int row, int piece) {
    return row * BK + ((piece ^ (row & 7)) * 8);
}

// Rows [first, first + 128) of a matrix, elements [k, k + 64), zeros beyond its ends.
static __device__ __forceinline__ void load_tile(bf16 *to, const void *from, int64_t stride, int first, int rows, int k, int k_end) {
#pragma unroll
    for (int i = 0; i < BM * BK / 8 / THREADS; i++) {
        int e = threadIdx.x + i * THREADS, row = e / (BK / 8), piece = e % (BK / 8);
        bool there = first + row < rows && k + piece * 8 < k_end;
        copy16(to + piece_at(row, piece), (const bf16 *)from + (there ? (int64_t)(first + row) * stride + k + piece * 8 : 0), there);
    }
}

static __device__ __forceinline__ void load_stage(const k_gemm &a, bf16 *smem, int step, int m0, int n0) {
    bf16 *stage = smem + step % STAGES * STAGE_ELEMENTS;
    load_tile(stage, (const bf16 *)a.x + blockIdx.z * a.x_head, a.x_stride, m0, a.m, step * BK, a.k);
    load_tile(stage + BM * BK, (const bf16 *)a.w + blockIdx.z * a.w_head, a.w_stride, n0, a.n, step * BK, a.k);
}

// One step of 64 along k for this warp's 64 x 64.
static __device__ __forceinline__ void multiply(float acc[4][8][4], const bf16 *xs, const bf16 *ws) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wm = warp / 2 * 64, wn = warp % 2 * 64;
#pragma unroll
    for (int kk = 0; kk < BK / 16; kk++) {
        uint32_t x[4][4], w[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) // matrices: rows 0-7, rows 8-15, then the same 8 columns further
            ldmatrix4(x[i], xs + piece_at(wm + i * 16 + lane % 16, kk * 2 + lane / 16));
#pragma unroll
        for (int i = 0; i < 4; i++) // two tiles of 8 columns: k 0-7 and 8-15 of the first, then of the second
            ldmatrix4(w[i], ws + piece_at(wn + i * 16 + lane / 16 * 8 + lane % 8, kk * 2 + lane / 8 % 2));
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 8; j++) mma_bf16(acc[i][j], x[i], w[j / 2][j % 2 * 2], w[j / 2][j % 2 * 2 + 1]);
    }
}

static __device__ __forceinline__ void store(const k_gemm &a, int m, int n, float x0, float x1) {
    if (m >= a.m || n >= a.n) return;
    if (a.bias) {
        x0 += a.bias[n];
        if (n + 1 < a.n) x1 += a.bias[n + 1];
    }
    int64_t at = (int64_t)m * a.y_stride + blockIdx.z * a.y_head + a.y_column + n;
    if (a.y_dtype == K_F32) {
        float *y = (float *)a.y + at;
        if (n + 1 < a.n && at % 2 == 0) *(float2 *)y = float2{x0, x1};
        else {
            y[0] = x0;
            if (n + 1 < a.n) y[1] = x1;
        }
    } else {
        store_f32(a.y, a.y_dtype, at, x0);
        if (n + 1 < a.n) store_f32(a.y, a.y_dtype, at + 1, x1);
    }
}

// Grid (m / 128, n / 128, heads): neighbouring blocks share rows of w.
extern "C" __global__ void __launch_bounds__(THREADS, 2) gemm_bf16(KARGS(k_gemm) a) {
    DYNAMIC_SHARED(bf16, smem);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, m0 = blockIdx.x * BM, n0 = blockIdx.y * BN, steps = (a.k + BK - 1) / BK;
    float acc[4][8][4] = {{{0}}};
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load_stage(a, smem, s, m0, n0);
        copy_commit();
    }
    for (int s = 0; s < steps; s++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (s + STAGES - 1 < steps) load_stage(a, smem, s + STAGES - 1, m0, n0);
        copy_commit();
        const bf16 *stage = smem + s % STAGES * STAGE_ELEMENTS;
        multiply(acc, stage, stage + BM * BK);
    }
    int m = m0 + warp / 2 * 64 + lane / 4, n = n0 + warp % 2 * 64 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            store(a, m + i * 16, n + j * 8, acc[i][j][0], acc[i][j][1]);
            store(a, m + i * 16 + 8, n + j * 8, acc[i][j][2], acc[i][j][3]);
        }
}
