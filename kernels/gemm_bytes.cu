// Products of prompts with a weight of up to 8 bits in tiles (tile.cuh), in whole numbers: for GPUs whose tensor cores multiply bytes at four times
// the rate of bf16 with f32 sums (GeForce). Two products of bytes for one of bf16 are half of the time there, and no weight is dequantised.
//
// x becomes integers of 16 bits, q = 256 high + low, by the largest of its row: at least as close as bf16 in the sum of squares, since one bf16 number of that
// size is rounded by more than all of a row together. Codes are bytes without sign, as they lie. A group's two sums are exact; each begins at the
// bits of a large float, 1.5 * 2^23, so that its bits are a float without a conversion. Then y = scale of x * (sum over groups of: scale of w * (256 high + low) + bias of w * sum of q).
//
// A block makes results of 64 rows of x and 128 of the weight, four warps of 32 of these; with a gate 64 of it and the 64 of up that belong to them.
// k comes in units of 64 through two stages. Counted for 16 x 8 results and 64 of k: four tensor instructions, 64 cycles of a GeForce's scheduler,
// and some 24 others.
#include "codes.cuh"
#include "x16.cuh"

enum { BM = GEMM_BYTES_ROWS, TILES = GEMM_BYTES_TILES, THREADS = GEMM_BYTES_THREADS, STAGES = GEMM_BYTES_STAGES };
enum { WARP_TILES = 2, COLUMNS = BM / 8 };
static_assert(THREADS / 32 * WARP_TILES == TILES, "a warp brings and multiplies two tiles");

#define ZERO 0x4b400000          // the bits of 1.5 * 2^23, whose last bit is 1
#define BOTH_ZEROS 3233808384.0f // 257 of them

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
template <int BITS, int RUNS> static __device__ __forceinline__ constexpr int stage_bytes() {
    return gemm_bytes_stage(BITS, RUNS);
}
template <int RUNS> static __device__ __forceinline__ constexpr int codes_at() {
    return BM * X16_UNIT + RUNS * BM * 4;
}

// The first of this warp's two tiles, and how far it is to the other; with a gate that is the one of up.
struct two_tiles {
    int64_t first, step;
};
static __device__ __forceinline__ two_tiles tiles_of(const k_bytes &a) {
    int64_t warp = (int64_t)blockIdx.y * (THREADS / 32) + threadIdx.x / 32;
    return a.glu_inner ? two_tiles{warp, a.glu_inner / TILE_ROWS} : two_tiles{warp * 2, 1};
}

// What a thread copies of a unit: its pieces of x, of the sums and of its warp's tiles.
struct copies {
    const unsigned char *x, *codes[WARP_TILES];
    const float *sums;
};

static __device__ __forceinline__ copies copies_of(const k_bytes &a) {
    int64_t m0 = (int64_t)blockIdx.x * BM;
    int run = threadIdx.x / (BM / 4), piece = threadIdx.x % (BM / 4);
    int64_t last = (a.w.out - 1) / TILE_ROWS; // stands for those behind it too, whose results nobody stores
    two_tiles t = tiles_of(a);
    copies c;
    c.x = a.units + m0 * X16_UNIT + threadIdx.x * 16;
    c.sums = a.sums + run * (int64_t)a.rows + m0 + piece * 4;
#pragma unroll
    for (int i = 0; i < WARP_TILES; i++) {
        int64_t tile = t.first + i * t.step;
        c.codes[i] = a.w.values + (tile < last ? tile : last) * a.w.tile_bytes + threadIdx.x % 32 * 16;
    }
    return c;
}

// The next unit. The halves of odd rows of x are exchanged, so that a quarter warp meets all banks.
template <int BITS, int RUNS> static __device__ __forceinline__ void load_unit(const k_bytes &a, copies &c, unsigned char *stage) {
    enum { UNIT = unit_bytes<BITS, RUNS>() };
    int row = threadIdx.x / 8, piece = threadIdx.x % 8, lane_at = threadIdx.x % 32 * 16;
    unsigned char *x = stage + row * X16_UNIT + (piece ^ (row % 2 * 4)) * 16, *codes = stage + codes_at<RUNS>() + threadIdx.x / 32 * WARP_TILES * UNIT + lane_at;
#pragma unroll
    for (int i = 0; i < BM * X16_UNIT / 16 / THREADS; i++) copy16(x + i * THREADS * 16, c.x + i * THREADS * 16, true);
    if (threadIdx.x < RUNS * BM / 4) copy16(stage + BM * X16_UNIT + threadIdx.x * 16, c.sums, true);
#pragma unroll
    for (int i = 0; i < WARP_TILES; i++) {
#pragma unroll
        for (int at = 0; at < UNIT; at += 512)
            if (at + 512 <= UNIT || at + lane_at < UNIT) copy16(codes + i * UNIT + at, c.codes[i] + at, true);
        c.codes[i] += UNIT;
    }
    c.x += (int64_t)a.rows * X16_UNIT, c.sums += (int64_t)a.rows * RUNS;
}

// ---- products ----

#define HALF 0x80808080u

// Two rows of a tile, g and g + 8: operands of both halves of k, and scales and biases of each run. Codes of 8 bits are taken less 128, which
// the bias makes good: as they lie, the compiler copies them before every product, since an operand's four registers stand in another order.
template <int RUNS> struct tile_words {
    uint32_t codes[2][4];
    float2 scale[RUNS], bias[RUNS];
};

template <int BITS, int RUNS> static __device__ __forceinline__ void take_tile(tile_words<RUNS> &w, const unsigned char *unit, int dtype) {
    const uint4 first = *(const uint4 *)(unit + threadIdx.x % 32 * 16);
    if (BITS == 8) {
        const uint4 second = *(const uint4 *)(unit + 512 + threadIdx.x % 32 * 16);
        w.codes[0][0] = first.x ^ HALF, w.codes[0][1] = first.z ^ HALF, w.codes[0][2] = first.y ^ HALF, w.codes[0][3] = first.w ^ HALF;
        w.codes[1][0] = second.x ^ HALF, w.codes[1][1] = second.z ^ HALF, w.codes[1][2] = second.y ^ HALF, w.codes[1][3] = second.w ^ HALF;
    } else {
        w.codes[0][0] = first.x & 0x0f0f0f0fu, w.codes[0][1] = first.z & 0x0f0f0f0fu, w.codes[0][2] = first.x >> 4 & 0x0f0f0f0fu, w.codes[0][3] = first.z >> 4 & 0x0f0f0f0fu;
        w.codes[1][0] = first.y & 0x0f0f0f0fu, w.codes[1][1] = first.w & 0x0f0f0f0fu, w.codes[1][2] = first.y >> 4 & 0x0f0f0f0fu, w.codes[1][3] = first.w >> 4 & 0x0f0f0f0fu;
    }
#pragma unroll
    for (int r = 0; r < RUNS; r++) {
        const uint2 meta = *(const uint2 *)(unit + tile_codes(BITS) + r * TILE_META + threadIdx.x % 32 / 4 * 8);
        w.scale[r] = float2{meta_f32(meta.x & 0xffff, dtype), meta_f32(meta.y & 0xffff, dtype)};
        w.bias[r] = float2{meta_f32(meta.x >> 16, dtype), meta_f32(meta.y >> 16, dtype)};
        if (BITS == 8) w.bias[r] = float2{fmaf(w.scale[r].x, 128.0f, w.bias[r].x), fmaf(w.scale[r].y, 128.0f, w.bias[r].y)};
    }
}

// Products of 32 elements: the first of a group's sum, and those behind it.
template <int BITS> static __device__ __forceinline__ void begin_sum(int32_t sum[4], const uint32_t codes[4], uint32_t x0, uint32_t x1) {
    if (BITS == 8) mma_s8_from(sum, codes, x0, x1, ZERO);
    else mma_u8s8_from(sum, codes, x0, x1, ZERO);
}
template <int BITS> static __device__ __forceinline__ void go_on(int32_t sum[4], const uint32_t codes[4], uint32_t x0, uint32_t x1) {
    if (BITS == 8) mma_s8(sum, codes, x0, x1);
    else mma_u8s8(sum, codes, x0, x1);
}

// A group's sums: rows g and g + 8 of the weight, rows 2 t and 2 t + 1 of x.
static __device__ __forceinline__ void add_group(float acc[4], const int32_t high[4], const int32_t low[4], float2 scale, float2 bias, float2 sums) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float q = fmaf(__uint_as_float((uint32_t)high[i]), 256.0f, -BOTH_ZEROS) + __uint_as_float((uint32_t)low[i]);
        acc[i] = fmaf(q, i < 2 ? scale.x : scale.y, fmaf(i < 2 ? bias.x : bias.y, i % 2 ? sums.y : sums.x, acc[i]));
    }
}

// One unit of k for this warp.
template <int BITS, int RUNS> static __device__ __forceinline__ void multiply(float acc[WARP_TILES][COLUMNS][4], const unsigned char *stage, int dtype) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const unsigned char *x = stage + g * X16_UNIT + (t ^ (g % 2 * 4)) * 16, *other = stage + g * X16_UNIT + (t ^ (g % 2 * 4) ^ 4) * 16;
    const float *sums = (const float *)(stage + BM * X16_UNIT) + 2 * t;
    tile_words<RUNS> w[WARP_TILES];
#pragma unroll
    for (int i = 0; i < WARP_TILES; i++) take_tile<BITS>(w[i], stage + codes_at<RUNS>() + (threadIdx.x / 32 * WARP_TILES + i) * unit_bytes<BITS, RUNS>(), dtype);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        const uint4 xh = *(const uint4 *)(x + j * 8 * X16_UNIT), xl = *(const uint4 *)(other + j * 8 * X16_UNIT);
#pragma unroll
        for (int i = 0; i < WARP_TILES; i++) {
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

// ---- results ----

static __device__ __forceinline__ float gate_of(int kind, float x) {
    return kind == ACT_SILU ? act(ACT_SILU, x, NULL) : act(ACT_GELU_TANH, x, NULL);
}

static __device__ __forceinline__ void store(const k_bytes &a, int64_t m, int64_t n, int64_t end, float x) {
    if (n < end) store_f32(a.y, a.y_dtype, m * a.y_stride + n, x);
}

// A result of each of the warp's tiles, at rows n and other of the weight. Out of line: a thread has 32 such pairs.
static __device__ __noinline__ void finish(const k_bytes &a, int64_t m, int64_t n, int64_t other, float first, float second) {
    if (a.bias && n < a.w.out) first += a.bias[n];
    if (a.bias && other < a.w.out) second += a.bias[other];
    store(a, m, n, a.glu_inner ? a.glu_inner : a.w.out, a.glu_inner ? gate_of(a.act.kind, first) * (second * a.act.scale) : first);
    if (!a.glu_inner) store(a, m, other, a.w.out, second);
}

static __device__ __forceinline__ void finish_all(const k_bytes &a, const float acc[WARP_TILES][COLUMNS][4]) {
    int lane = threadIdx.x % 32, m0 = blockIdx.x * BM + lane % 4 * 2;
    two_tiles t = tiles_of(a);
    int64_t n0 = t.first * TILE_ROWS + lane / 4, step = t.step * TILE_ROWS;
#pragma unroll
    for (int j = 0; j < COLUMNS; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int m = m0 + j * 8 + i % 2;
            if (m >= a.m) continue;
            float one = a.scales[m];
            finish(a, m, n0 + i / 2 * 8, n0 + i / 2 * 8 + step, acc[0][j][i] * one, acc[1][j][i] * one);
        }
}

template <int BITS, int RUNS> static __device__ __forceinline__ void product(const k_bytes &a) {
    DYNAMIC_SHARED(unsigned char, smem);
    float acc[WARP_TILES][COLUMNS][4] = {{{0}}};
    copies c = copies_of(a);
    int units = (int)(a.w.in / TILE_UNIT);
    load_unit<BITS, RUNS>(a, c, smem);
    copy_commit();
    for (int u = 0; u < units; u++) {
        copy_wait<0>();
        __syncthreads();
        if (u + 1 < units) load_unit<BITS, RUNS>(a, c, smem + (u + 1) % STAGES * stage_bytes<BITS, RUNS>());
        copy_commit();
        multiply<BITS, RUNS>(acc, smem + u % STAGES * stage_bytes<BITS, RUNS>(), a.w.dtype);
    }
    finish_all(a, acc);
}

// Grid (rows of x / 64, rows of the weight / 128): neighbouring blocks share tiles.
#define GEMM_BYTES(name, bits, runs, blocks) \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks) name(KARGS(k_bytes) a) { after_previous(); product<bits, runs>(a); }
GEMM_BYTES(gemm_bytes_4, 4, 1, 3)
GEMM_BYTES(gemm_bytes_4_32, 4, 2, 3)
GEMM_BYTES(gemm_bytes_8, 8, 1, 2)
GEMM_BYTES(gemm_bytes_8_32, 8, 2, 2)
