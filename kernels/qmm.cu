// Products of up to 64 rows with a quantised, bf16 or f16 weight: batches of decode rows. For sm_80 and later.
//
// A block takes 128 rows of the weight, four warps of 32, and a part of k; x comes in steps of 64 through four stages of shared memory, the
// codes straight to registers, one step ahead. Codes become bf16 weights q * s + b in registers (two operations for two weights) and meet
// all rows of x there: the weight is read and unpacked once. Parts of k are added up by linear_reduce. Stopped by memory up to 32 rows, by
// the tensor cores at 64.
#include "codes.cuh"

enum { WARPS = QMM_WARPS, BN = QMM_RESULTS, BK = 64, STAGES = QMM_STAGES };

template <int BITS, int NB> static __device__ __forceinline__ void load_x_stage(const k_linear &a, bf16 *smem, int64_t k, int64_t k_end, int stage) {
    bf16 *to = smem + stage * (NB * 8 * x_stride<BITS>());
    for (int e = threadIdx.x; e < NB * 8 * (BK / 8); e += WARPS * 32) {
        int row = e / (BK / 8), piece = e % (BK / 8);
        bool there = row < a.x.rows && k + piece * 8 < k_end;
        copy16(to + row * x_stride<BITS>() + piece * 8, (const bf16 *)a.x.p + (there ? (int64_t)row * a.x.row_stride + k + piece * 8 : 0), there);
    }
    copy_commit();
}

template <int BITS, int NB> static __device__ __forceinline__ void product(const k_linear &a) {
    DYNAMIC_SHARED(bf16, smem);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int64_t first = (int64_t)blockIdx.x * BN + warp * 32;
    int64_t per_split = (a.w.in + BK * a.k_splits - 1) / (BK * a.k_splits) * BK, k0 = blockIdx.y * per_split;
    int64_t k1 = k0 + per_split < a.w.in ? k0 + per_split : a.w.in;
    int steps = k1 > k0 ? (int)((k1 - k0 + BK - 1) / BK) : 0;
    rows4 rows;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int64_t r = first + i * 8 + g < a.w.out ? first + i * 8 + g : a.w.out - 1;
        rows.values[i] = a.w.values + r * a.w.values_bytes;
        rows.scales[i] = a.w.scales + r * a.w.scales_bytes;
        rows.biases[i] = a.w.biases + r * a.w.biases_bytes;
    }
    float acc[2][NB][4];
#pragma unroll
    for (int i = 0; i < 2 * NB * 4; i++) ((float *)acc)[i] = 0;
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load_x_stage<BITS, NB>(a, smem, k0 + s * BK, k1, s);
        else copy_commit();
    }
    uint32_t codes[4][BITS / 2], scale[4] = {0}, bias[4] = {0};
#pragma unroll
    for (int i = 0; i < 4; i++) load_row<BITS>(rows.values[i], k0, t, steps > 0 && k0 + (BITS == 16 ? t * 8 : t * 16) < k1, codes[i]);
    for (int s = 0; s < steps; s++) {
        int64_t k = k0 + (int64_t)s * BK, own = k + t * 16;
        uint32_t next[4][BITS / 2];
        if (BITS != 16 && own < k1) {
#pragma unroll
            for (int i = 0; i < 4; i++) scale[i] = meta_twice(rows.scales[i], a.w.dtype, own / a.w.group), bias[i] = meta_twice(rows.biases[i], a.w.dtype, own / a.w.group);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) load_row<BITS>(rows.values[i], k + BK, t, k + BK + (BITS == 16 ? t * 8 : t * 16) < k1, next[i]);
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (s + STAGES - 1 < steps) load_x_stage<BITS, NB>(a, smem, k + (STAGES - 1) * BK, k1, (s + STAGES - 1) % STAGES);
        else copy_commit();
        uint32_t w[4][8];
#pragma unroll
        for (int i = 0; i < 4; i++) unpack<BITS>(codes[i], scale[i], bias[i], w[i]);
        if (BITS == 16 && a.w.dtype == K_F16) {
#pragma unroll
            for (int i = 0; i < 4 * 8; i++) ((uint32_t *)w)[i] = bf16_of_f16(((uint32_t *)w)[i]);
        }
        const bf16 *x = smem + s % STAGES * (NB * 8 * x_stride<BITS>()) + g * x_stride<BITS>();
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            uint32_t xv[8];
            take_x<BITS>(x + nb * 8 * x_stride<BITS>(), t, xv);
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const uint32_t upper[4] = {w[0][2 * m], w[1][2 * m], w[0][2 * m + 1], w[1][2 * m + 1]};
                const uint32_t lower[4] = {w[2][2 * m], w[3][2 * m], w[2][2 * m + 1], w[3][2 * m + 1]};
                mma_bf16(acc[0][nb], upper, xv[2 * m], xv[2 * m + 1]);
                mma_bf16(acc[1][nb], lower, xv[2 * m], xv[2 * m + 1]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4 * (BITS / 2); i++) ((uint32_t *)codes)[i] = ((uint32_t *)next)[i];
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int64_t n = first + i * 16 + j / 2 * 8 + g;
                int m = nb * 8 + 2 * t + j % 2;
                if (n < a.w.out && m < a.x.rows) a.partial[((int64_t)blockIdx.y * a.x.rows + m) * a.w.out + n] = acc[i][nb][j];
            }
}

// Grid (n / 128, splits).
#define QMM(bits, nb) \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) qmm_##bits##_##nb(KARGS(k_linear) a) { after_previous(); product<bits, (nb) / 8>(a); }
QMM(4, 16)
QMM(4, 32)
QMM(4, 64)
QMM(8, 16)
QMM(8, 32)
QMM(8, 64)
QMM(16, 16)
QMM(16, 32)
QMM(16, 64)

// ---- the same for codes in tiles (tile.cuh): codes come through shared memory too, several steps ahead ----

enum { T_STAGES = QMM_TILE_STAGES, T_TILES = BN / TILE_ROWS };

// Elements between the start of a row of x and its 16-byte piece: the halves of odd rows are exchanged, so that a quarter warp meets all banks.
static __device__ __forceinline__ int x_piece(int row, int piece) {
    return row * BK + (piece ^ (row % 2 * 4)) * 8;
}

template <int NB> static __device__ __forceinline__ void load_tiles(const k_linear &a, unsigned char *stage, int64_t k, int unit_bytes) {
    bf16 *x = (bf16 *)stage;
    int first = blockIdx.z * NB * 8;
    for (int e = threadIdx.x; e < NB * 8 * (BK / 8); e += WARPS * 32) {
        int row = e / (BK / 8), piece = e % (BK / 8);
        bool there = first + row < a.x.rows;
        copy16(x + x_piece(row, piece), (const bf16 *)a.x.p + (there ? (int64_t)(first + row) * a.x.row_stride + k + piece * 8 : 0), there);
    }
    unsigned char *codes = stage + NB * 8 * BK * 2;
    int pieces = unit_bytes / 16;
    for (int e = threadIdx.x; e < T_TILES * pieces; e += WARPS * 32) {
        int tile = e / pieces, piece = e % pieces;
        int64_t t = (int64_t)blockIdx.x * T_TILES + tile;
        bool there = t * TILE_ROWS < a.w.out;
        copy16(codes + e * 16, a.w.values + (there ? t * a.w.tile_bytes + k / TILE_UNIT * unit_bytes + piece * 16 : 0), there);
    }
}

template <int BITS, int NB> static __device__ __forceinline__ void tile_product(const k_linear &a) {
    DYNAMIC_SHARED(unsigned char, stages);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4, unit_bytes = tile_unit_bytes(a.w);
    int stage_bytes = NB * 8 * BK * 2 + T_TILES * unit_bytes;
    int units = (int)(a.w.in / BK), first = (int)((int64_t)blockIdx.y * units / a.k_splits), steps = (int)((int64_t)(blockIdx.y + 1) * units / a.k_splits) - first;
    float acc[2][NB][4];
#pragma unroll
    for (int i = 0; i < 2 * NB * 4; i++) ((float *)acc)[i] = 0;
#pragma unroll
    for (int s = 0; s < T_STAGES - 1; s++) {
        if (s < steps) load_tiles<NB>(a, stages + s * stage_bytes, (int64_t)(first + s) * BK, unit_bytes);
        copy_commit();
    }
    for (int s = 0; s < steps; s++) {
        copy_wait<T_STAGES - 2>();
        __syncthreads();
        if (s + T_STAGES - 1 < steps) load_tiles<NB>(a, stages + (s + T_STAGES - 1) % T_STAGES * stage_bytes, (int64_t)(first + s + T_STAGES - 1) * BK, unit_bytes);
        copy_commit();
        const unsigned char *stage = stages + s % T_STAGES * stage_bytes;
        const bf16 *x = (const bf16 *)stage;
        uint32_t w[4][8];
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned char *unit = stage + NB * 8 * BK * 2 + (warp * 2 + i) * unit_bytes;
            if (BITS == 8) unpack_unit8(unit8_at(unit, tile_runs(a.w.group)), a.w.dtype, w[2 * i], w[2 * i + 1]);
            else unpack_unit(unit_at(unit, tile_runs(a.w.group)), a.w.dtype, w[2 * i], w[2 * i + 1]);
        }
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            uint32_t xv[8];
            *(uint4 *)xv = *(const uint4 *)(x + x_piece(nb * 8 + g, t)), *(uint4 *)(xv + 4) = *(const uint4 *)(x + x_piece(nb * 8 + g, 4 + t));
#pragma unroll
            for (int m = 0; m < 4; m++) {
                const uint32_t upper[4] = {w[0][2 * m], w[1][2 * m], w[0][2 * m + 1], w[1][2 * m + 1]};
                const uint32_t lower[4] = {w[2][2 * m], w[3][2 * m], w[2][2 * m + 1], w[3][2 * m + 1]};
                mma_bf16(acc[0][nb], upper, xv[2 * m], xv[2 * m + 1]);
                mma_bf16(acc[1][nb], lower, xv[2 * m], xv[2 * m + 1]);
            }
        }
    }
    int64_t row = (int64_t)blockIdx.x * BN + warp * 32 + g;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int64_t n = row + i * 16 + j / 2 * 8;
                int m = blockIdx.z * NB * 8 + nb * 8 + 2 * t + j % 2;
                if (n < a.w.out && m < a.x.rows) a.partial[((int64_t)blockIdx.y * a.x.rows + m) * a.w.out + n] = acc[i][nb][j];
            }
}

// Grid (n / 128, splits, rows / nb).
#define TILES(name, bits, nb, blocks) \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, blocks) name##_##nb(KARGS(k_linear) a) { after_previous(); tile_product<bits, (nb) / 8>(a); }
TILES(qmm_tiles, 4, 16, 3)
TILES(qmm_tiles, 4, 32, 3)
TILES(qmm_tiles, 4, 64, 3)
TILES(qmm_bytes, 8, 16, 2)
TILES(qmm_bytes, 8, 32, 2)
TILES(qmm_bytes, 8, 64, 2)

// ---- the parts of k in order, then bias and gate ----

static __device__ __forceinline__ float reduced(const k_linear &a, int64_t m, int64_t n) {
    float sum = parts_sum(a.partial + m * a.w.out + n, a.k_splits, (int64_t)a.x.rows * a.w.out);
    return a.bias ? sum + a.bias[n] : sum;
}
static __device__ __forceinline__ float4 reduced4(const k_linear &a, int64_t m, int64_t n) {
    float4 sum = parts_sum4(a.partial + m * a.w.out + n, a.k_splits, (int64_t)a.x.rows * a.w.out);
    if (!a.bias) return sum;
    return float4{sum.x + a.bias[n], sum.y + a.bias[n + 1], sum.z + a.bias[n + 2], sum.w + a.bias[n + 3]};
}

// Four results a thread. Grid (results of a row / 1024, rows).
extern "C" __global__ void linear_reduce(KARGS(k_linear) a) {
    after_previous();
    int64_t n = ((int64_t)blockIdx.x * 256 + threadIdx.x) * 4, m = blockIdx.y, width = a.glu_inner ? a.glu_inner : a.w.out;
    if (n >= width) return;
    if (a.w.out % 4 || a.glu_inner % 4 || a.y.row_stride % 4 || (uint64_t)a.y.p % 16) {
        for (int64_t end = n + 4 < width ? n + 4 : width; n < end; n++) view_store(a.y, m, 0, n, a.glu_inner ? gated(a.act, reduced(a, m, n), reduced(a, m, n + a.glu_inner)) : reduced(a, m, n));
        return;
    }
    float4 y = reduced4(a, m, n);
    if (a.glu_inner) {
        float4 up = reduced4(a, m, n + a.glu_inner);
        y = float4{gated(a.act, y.x, up.x), gated(a.act, y.y, up.y), gated(a.act, y.z, up.z), gated(a.act, y.w, up.w)};
    }
    int64_t at = m * a.y.row_stride + n;
    if (a.y.dtype == K_F32) *(float4 *)((float *)a.y.p + at) = y;
    else *(uint2 *)((bf16 *)a.y.p + at) = uint2{pack_bf16(y.x, y.y), pack_bf16(y.z, y.w)};
}
