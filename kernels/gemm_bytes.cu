// Products of prompts with a weight of up to 8 bits in tiles (tile.cuh), in whole numbers: for GPUs whose tensor cores multiply bytes at four times
// the rate of bf16 with f32 sums (GeForce). Two products of bytes for one of bf16 are half of the time there, and no weight is dequantised.
//
// x becomes integers of 16 bits, q = 256 high + low, by the largest of its row: at least as close as bf16 in the sum of squares, since one bf16 number of that
// size is rounded by more than all of a row together. Codes are bytes without sign, as they lie. A group's two sums are exact, and so
// is the integer that is made of both before it becomes a float. Then y = scale of x * (sum over groups of: scale of w * (256 high + low) + bias of w * sum of q).
//
// A block makes results of 64 rows of x with four warps, each of two tiles of the weight (three blocks on a multiprocessor) or, in wide kernels, of four (two blocks): of
// 128 or 256 rows of it, or with a gate of half as many and of those of up that belong to them. k comes in units of 64 through two stages. Counted for 16 x 8 results and
// 64 of k: four tensor instructions, 64 cycles of a GeForce's scheduler, and some 21 others.
#include "codes.cuh"
#include "x16.cuh"

enum { BM = GEMM_BYTES_ROWS, WARPS = GEMM_BYTES_WARPS, THREADS = WARPS * 32, STAGES = GEMM_BYTES_STAGES, COLUMNS = BM / 8 };
static_assert(STAGES == 2, "stages are exchanged");

// ---- x as integers: unit after unit of 64 elements, each with all rows, up to a multiple of BM ----

static __device__ __forceinline__ uint32_t block_largest(uint32_t largest) {
    __shared__ uint32_t warps[32];
    largest = warp_max_u32(largest);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = largest;
    __syncthreads();
    return warp_max_u32(threadIdx.x % 32 < blockDim.x / 32 ? warps[threadIdx.x % 32] : 0);
}

static __device__ __forceinline__ uint32_t row_largest(const k_bytes_x &a, int64_t from) {
    uint32_t largest = 0;
    for (int i = threadIdx.x * 8; i < a.k; i += blockDim.x * 8) {
        float x[8];
        load8(a.x, a.x_dtype, from + i, x);
#pragma unroll
        for (int j = 0; j < 8; j++) largest = larger(largest, magnitude(x[j]));
    }
    return block_largest(largest);
}

// Grid (rows). Sums are of 64 elements, or of 32 where groups are.
extern "C" __global__ void gemm_bytes_x(KARGS(k_bytes_x) a) {
    after_previous();
    int64_t row = blockIdx.x, from = row * a.x_stride;
    float one, scale = scale_of(row_largest(a, from), one);
    if (threadIdx.x == 0) a.scales[row] = one;
    for (int base = 0; base < a.k; base += blockDim.x * 8) {
        int i = base + threadIdx.x * 8, q[8], sum = 0;
        float x[8] = {0};
        if (i < a.k) load8(a.x, a.x_dtype, from + i, x);
#pragma unroll
        for (int j = 0; j < 8; j++) sum += q[j] = nearest(x[j], scale);
        sum = sum_neighbours<4>(sum);
        if (a.runs == 1) sum += __shfl_xor_sync(FULL, sum, 4);
        if (i >= a.k) continue;
        unsigned char *to = a.units + ((int64_t)(i / TILE_UNIT) * a.rows + row) * X16_UNIT + bytes_at(i % TILE_UNIT);
        *(uint2 *)to = as_codes_lie(high_bytes(q), high_bytes(q + 4));
        *(uint2 *)(to + 64) = as_codes_lie(low_bytes(q), low_bytes(q + 4));
        if (i * a.runs % TILE_UNIT == 0) a.sums[(int64_t)(i * a.runs / TILE_UNIT) * a.rows + row] = (float)sum;
    }
}

// ---- a stage of shared memory: rows of x, their sums, tiles of codes ----

template <int BITS, int RUNS> static __device__ __forceinline__ constexpr int unit_bytes() {
    return tile_codes(BITS) + RUNS * TILE_META;
}
template <int RUNS> static __device__ __forceinline__ constexpr int codes_at() {
    return BM * X16_UNIT + RUNS * BM * 4;
}

// Tile i of this warp's TILES; with a gate the second half is of up.
template <int TILES> static __device__ __forceinline__ int64_t tile_of(const k_bytes &a, int i) {
    int64_t warp = (int64_t)blockIdx.y * WARPS + threadIdx.x / 32;
    if (!a.glu_inner) return warp * TILES + i;
    return warp * (TILES / 2) + i % (TILES / 2) + (i < TILES / 2 ? 0 : a.glu_inner / TILE_ROWS);
}

// An offset that stays in a register: the compiler would make it anew in every unit.
static __device__ __forceinline__ int kept(int x) {
#ifndef MLXCEL_EMULATE
    asm volatile("mov.b32 %0, %0;" : "+r"(x));
#endif
    return x;
}

// What a thread copies of a unit, and where it goes: its pieces of x, of the sums and of its warp's tiles.
template <int TILES> struct copies {
    const unsigned char *x, *codes[TILES];
    const float *sums;
    int x_to, codes_to;
};

// The halves of odd rows of x are exchanged, so that a quarter warp meets all banks.
template <int BITS, int RUNS, int TILES> static __device__ __forceinline__ copies<TILES> copies_of(const k_bytes &a) {
    int64_t m0 = (int64_t)blockIdx.x * BM;
    int run = threadIdx.x / (BM / 4), piece = threadIdx.x % (BM / 4), lane = threadIdx.x % 32, row = threadIdx.x / 8;
    int64_t last = (a.w.out - 1) / TILE_ROWS; // stands for those behind it too, whose results nobody stores
    copies<TILES> c;
    c.x = a.units + m0 * X16_UNIT + threadIdx.x * 16;
    c.sums = a.sums + run * (int64_t)a.rows + m0 + piece * 4;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        int64_t tile = tile_of<TILES>(a, i);
        c.codes[i] = a.w.values + (tile < last ? tile : last) * a.w.tile_bytes + lane * 16;
    }
    c.x_to = kept(row * X16_UNIT + (threadIdx.x % 8 ^ (row % 2 * 4)) * 16);
    c.codes_to = kept(codes_at<RUNS>() + threadIdx.x / 32 * TILES * unit_bytes<BITS, RUNS>() + lane * 16);
    return c;
}

// more: the next time the unit behind it; else the same again, which nobody reads.
template <int BITS, int RUNS, int TILES> static __device__ __forceinline__ void load_unit(const k_bytes &a, copies<TILES> &c, unsigned char *stage, bool more) {
    enum { UNIT = unit_bytes<BITS, RUNS>() };
    unsigned char *x = stage + c.x_to, *codes = stage + c.codes_to;
#pragma unroll
    for (int i = 0; i < BM * X16_UNIT / 16 / THREADS; i++) copy16(x + i * THREADS * 16, c.x + i * THREADS * 16, true);
    if (threadIdx.x < RUNS * BM / 4) copy16(stage + BM * X16_UNIT + threadIdx.x * 16, c.sums, true);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
        for (int at = 0; at < UNIT; at += 512)
            if (at + 512 <= UNIT || at + (int)threadIdx.x % 32 * 16 < UNIT) copy16(codes + i * UNIT + at, c.codes[i] + at, true);
        c.codes[i] += more ? UNIT : 0;
    }
    int rows = more ? a.rows : 0;
    c.x += (int64_t)rows * X16_UNIT, c.sums += (int64_t)rows * RUNS;
    copy_commit();
}

// ---- products ----

#define HALF 0x80808080u

// Two rows of a tile, g and g + 8: operands of both halves of k, and scales and biases of each run. Codes of 8 bits are taken less 128, which
// the bias makes good: as they lie, the compiler copies them before every product, since an operand's four registers stand in another order.
template <int RUNS> struct tile_words {
    uint32_t codes[2][4];
    float2 scale[RUNS], bias[RUNS];
};

template <int BITS, int RUNS> static __device__ __forceinline__ void take_tile(tile_words<RUNS> &w, const unsigned char *codes, const unsigned char *metas, int dtype) {
    const uint4 first = *(const uint4 *)codes;
    if (BITS == 8) {
        const uint4 second = *(const uint4 *)(codes + 512);
        w.codes[0][0] = first.x ^ HALF, w.codes[0][1] = first.z ^ HALF, w.codes[0][2] = first.y ^ HALF, w.codes[0][3] = first.w ^ HALF;
        w.codes[1][0] = second.x ^ HALF, w.codes[1][1] = second.z ^ HALF, w.codes[1][2] = second.y ^ HALF, w.codes[1][3] = second.w ^ HALF;
    } else {
        w.codes[0][0] = first.x & 0x0f0f0f0fu, w.codes[0][1] = first.z & 0x0f0f0f0fu, w.codes[0][2] = first.x >> 4 & 0x0f0f0f0fu, w.codes[0][3] = first.z >> 4 & 0x0f0f0f0fu;
        w.codes[1][0] = first.y & 0x0f0f0f0fu, w.codes[1][1] = first.w & 0x0f0f0f0fu, w.codes[1][2] = first.y >> 4 & 0x0f0f0f0fu, w.codes[1][3] = first.w >> 4 & 0x0f0f0f0fu;
    }
#pragma unroll
    for (int r = 0; r < RUNS; r++) {
        const uint2 meta = *(const uint2 *)(metas + r * TILE_META);
        w.scale[r] = float2{meta_f32(meta.x & 0xffff, dtype), meta_f32(meta.y & 0xffff, dtype)};
        w.bias[r] = float2{meta_f32(meta.x >> 16, dtype), meta_f32(meta.y >> 16, dtype)};
        if (BITS == 8) w.bias[r] = float2{fmaf(w.scale[r].x, 128.0f, w.bias[r].x), fmaf(w.scale[r].y, 128.0f, w.bias[r].y)};
    }
}

// Products of 32 elements: the first of a group's sum, and those behind it.
template <int BITS> static __device__ __forceinline__ void begin_sum(int32_t sum[4], const uint32_t codes[4], uint32_t x0, uint32_t x1) {
    if (BITS == 8) mma_s8_from(sum, codes, x0, x1, 0);
    else mma_u8s8_from(sum, codes, x0, x1, 0);
}
template <int BITS> static __device__ __forceinline__ void go_on(int32_t sum[4], const uint32_t codes[4], uint32_t x0, uint32_t x1) {
    if (BITS == 8) mma_s8(sum, codes, x0, x1);
    else mma_u8s8(sum, codes, x0, x1);
}

// A group's sums: rows g and g + 8 of the weight, rows 2 t and 2 t + 1 of x.
static __device__ __forceinline__ void add_group(float acc[4], const int32_t high[4], const int32_t low[4], float2 scale, float2 bias, float2 sums) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float q = (float)(high[i] * 256 + low[i]);
        acc[i] = fmaf(q, i < 2 ? scale.x : scale.y, fmaf(i < 2 ? bias.x : bias.y, i % 2 ? sums.y : sums.x, acc[i]));
    }
}

// Where a lane reads in a stage.
struct reads {
    int x, sums, codes, metas;
};
template <int BITS, int RUNS, int TILES> static __device__ __forceinline__ reads reads_of() {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, tiles = codes_at<RUNS>() + threadIdx.x / 32 * TILES * unit_bytes<BITS, RUNS>();
    return reads{kept(g * X16_UNIT + (t ^ (g % 2 * 4)) * 16), kept(BM * X16_UNIT + 2 * t * 4), kept(tiles + lane * 16), kept(tiles + tile_codes(BITS) + g * 8)};
}

// One unit of k for this warp. The next one is asked for behind the first products, which would wait for its instructions else, and without a test around it: the compiler
// moves nothing past one.
template <int BITS, int RUNS, int TILES>
static __device__ __forceinline__ void multiply(const k_bytes &a, copies<TILES> &next, unsigned char *to, bool more, float acc[TILES][COLUMNS][4],
                                                const unsigned char *stage, const reads &at) {
    enum { UNIT = unit_bytes<BITS, RUNS>() };
    const unsigned char *x = stage + at.x, *other = stage + (at.x ^ 64);
    const float *sums = (const float *)(stage + at.sums);
    tile_words<RUNS> w[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++) take_tile<BITS>(w[i], stage + at.codes + i * UNIT, stage + at.metas + i * UNIT, a.w.dtype);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const uint4 xh = *(const uint4 *)(x + j * 8 * X16_UNIT), xl = *(const uint4 *)(other + j * 8 * X16_UNIT);
        if (j * TILES == 4) load_unit<BITS, RUNS>(a, next, to, more);
#pragma unroll
        for (int i = 0; i < TILES; i++) {
            int32_t high[4], low[4];
            begin_sum<BITS>(high, w[i].codes[0], xh.x, xh.y), begin_sum<BITS>(low, w[i].codes[0], xl.x, xl.y);
            if (RUNS == 2) {
                add_group(acc[i][j], high, low, w[i].scale[0], w[i].bias[0], *(const float2 *)(sums + j * 8));
                begin_sum<BITS>(high, w[i].codes[1], xh.z, xh.w), begin_sum<BITS>(low, w[i].codes[1], xl.z, xl.w);
            } else go_on<BITS>(high, w[i].codes[1], xh.z, xh.w), go_on<BITS>(low, w[i].codes[1], xl.z, xl.w);
            add_group(acc[i][j], high, low, w[i].scale[RUNS - 1], w[i].bias[RUNS - 1], *(const float2 *)(sums + (RUNS - 1) * BM + j * 8));
        }
    }
}

// All of k.
template <int BITS, int RUNS, int TILES> static __device__ __forceinline__ void multiply_all(const k_bytes &a, float acc[TILES][COLUMNS][4], unsigned char *smem) {
    copies<TILES> c = copies_of<BITS, RUNS, TILES>(a);
    const reads at = reads_of<BITS, RUNS, TILES>();
    int units = (int)(a.w.in / TILE_UNIT), stage = 0, next = gemm_bytes_stage(BITS, RUNS, TILES);
    load_unit<BITS, RUNS>(a, c, smem, units > 1);
#pragma unroll 1
    for (int u = 0; u < units; u++) {
        copy_wait<0>();
        __syncthreads();
        multiply<BITS, RUNS, TILES>(a, c, smem + next, u + 2 < units, acc, smem + stage, at);
        int old = stage;
        stage = next, next = old;
    }
    copy_wait<0>();
}

// ---- results ----

// They go through shared memory, half of the rows of x at a time, so that whole lines are stored: a warp's rows of the weight side by side for each row of x, and four
// floats more, with which its lanes meet all banks.
template <int TILES> static __device__ __forceinline__ constexpr int line_floats() {
    return TILES * TILE_ROWS + 4;
}
enum { HALF_COLUMNS = COLUMNS / 2, HALF_ROWS = BM / 2 };

template <int TILES> static __device__ __forceinline__ void put_half(float *lines, const float acc[TILES][COLUMNS][4], int half) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < HALF_COLUMNS; j++)
#pragma unroll
        for (int i = 0; i < TILES; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                lines[(j * 8 + 2 * t + e % 2) * line_floats<TILES>() + i * TILE_ROWS + e / 2 * 8 + g] = acc[i][half * HALF_COLUMNS + j][e];
}

static __device__ __forceinline__ float gate_of(int kind, float x) {
    return kind == ACT_SILU ? act(ACT_SILU, x, NULL) : act(ACT_GELU_TANH, x, NULL);
}

// N results of the weight's rows n ... from their sums.
template <int N> static __device__ __forceinline__ void results(const k_bytes &a, const float *sums, float one, int64_t n, float y[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) {
        y[i] = sums[i] * one;
        if (a.bias && n + i < a.w.out) y[i] += a.bias[n + i];
    }
}

// Two neighbours of a row of y, of which those before `end` are there.
static __device__ __forceinline__ void store_two(const k_bytes &a, int64_t m, int64_t n, int64_t end, float first, float second) {
    int64_t at = m * a.y_stride + n;
    if (n + 1 < end && a.y_dtype == K_BF16 && ((uint64_t)a.y / 2 + at) % 2 == 0) *(uint32_t *)((bf16 *)a.y + at) = pack_bf16(first, second);
    else {
        if (n < end) store_f32(a.y, a.y_dtype, at, first);
        if (n + 1 < end) store_f32(a.y, a.y_dtype, at + 1, second);
    }
}

template <int TILES> static __device__ __forceinline__ void store_half(const k_bytes &a, const float *lines, int m0) {
    enum { WIDTH = TILES * TILE_ROWS, LANES = WIDTH / 4, AT_ONCE = 32 / LANES };
    int lane = threadIdx.x % 32, piece = lane % LANES;
    int64_t n0 = tile_of<TILES>(a, 0) * TILE_ROWS;
#pragma unroll 1
    for (int r = lane / LANES; r < HALF_ROWS; r += AT_ONCE) {
        const float *line = lines + r * line_floats<TILES>();
        int64_t m = m0 + r;
        if (m >= a.m) return;
        float one = a.scales[m], y[4];
        if (a.glu_inner) {
            int64_t n = n0 + piece * 2;
            results<2>(a, line + piece * 2, one, n, y), results<2>(a, line + WIDTH / 2 + piece * 2, one, n + a.glu_inner, y + 2);
            store_two(a, m, n, a.glu_inner, gate_of(a.act.kind, y[0]) * (y[2] * a.act.scale), gate_of(a.act.kind, y[1]) * (y[3] * a.act.scale));
        } else {
            int64_t n = n0 + piece * 4;
            results<4>(a, line + piece * 4, one, n, y);
            store_two(a, m, n, a.w.out, y[0], y[1]), store_two(a, m, n + 2, a.w.out, y[2], y[3]);
        }
    }
}

template <int TILES> static __device__ __forceinline__ void finish_all(const k_bytes &a, unsigned char *smem, const float acc[TILES][COLUMNS][4]) {
    float *lines = (float *)smem + threadIdx.x / 32 * HALF_ROWS * line_floats<TILES>();
    int m0 = blockIdx.x * BM;
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        if (half) __syncwarp();
        put_half<TILES>(lines, acc, half);
        __syncwarp();
        store_half<TILES>(a, lines, m0 + half * HALF_ROWS);
    }
}

template <int BITS, int RUNS, int TILES> static __device__ __forceinline__ void product(const k_bytes &a) {
    DYNAMIC_SHARED(unsigned char, smem);
    static_assert(WARPS * HALF_ROWS * line_floats<TILES>() * 4 <= STAGES * gemm_bytes_stage(BITS, RUNS, TILES), "results fit into the stages");
    float acc[TILES][COLUMNS][4] = {{{0}}};
    multiply_all<BITS, RUNS, TILES>(a, acc, smem);
    finish_all<TILES>(a, smem, acc);
}

// Grid (rows of x / 64, rows of the weight / 64 tiles): neighbouring blocks share tiles.
#define GEMM_BYTES(name, bits, runs, tiles, blocks) \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(KARGS(k_bytes) a) { after_previous(); product<bits, runs, tiles>(a); }
GEMM_BYTES(gemm_bytes_4, 4, 1, GEMM_BYTES_NARROW, 3)
GEMM_BYTES(gemm_bytes_4_32, 4, 2, GEMM_BYTES_NARROW, 3)
GEMM_BYTES(gemm_bytes_8, 8, 1, GEMM_BYTES_NARROW, 2)
GEMM_BYTES(gemm_bytes_8_32, 8, 2, GEMM_BYTES_NARROW, 2)
GEMM_BYTES(gemm_bytes_wide_4, 4, 1, GEMM_BYTES_WIDE, 2)
