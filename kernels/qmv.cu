// Products of one to eight rows with a quantised or bf16 weight: what a decode step spends its time on.
//
// A warp takes 16 rows of the weight and a part of k; the tensor cores multiply them with up to eight rows of x at once, so that eight rows
// cost what one costs. The codes go in as they are, as bf16 numbers 128 + q (one logic operation for two of them); scale and bias are applied
// to the group's f32 sums: s * (sum((128 + q) x) - 128 sum(x)) + b * sum(x). The order of k inside a product is free, so a lane reads its own
// run of a row's group and the same run of x. Reads the weight once, x from the caches; stopped by memory.
#include "mma.cuh"

enum { WARPS = 8, TILE = 16, COLUMNS = 8, ONES = 0x3f803f80, TWO_TO_126 = 0x7e807e80, FP4 = 5 /* in place of a number of bits */ };

// Where this block's head begins: the first of its rows of a weight that has a matrix for each head, and its part of x. 0 without heads.
static __device__ __forceinline__ int64_t head_row(const k_linear &a) {
    return blockIdx.y * a.w.out;
}
static __device__ __forceinline__ const bf16 *head_x(const k_linear &a) {
    return (const bf16 *)a.x.p + blockIdx.y * a.x.head_stride;
}

// GROUP / 4 elements of x for this lane's column, in pairs as the codes come out of their words; zeros where there is no row.
template <int BITS, int GROUP> static __device__ __forceinline__ void load_x(const bf16 *x, bool there, uint32_t out[GROUP / 8]) {
#pragma unroll
    for (int i = 0; i < GROUP / 32; i++) {
        uint4 v = {0, 0, 0, 0};
        if (there) v = *(const uint4 *)(x + i * 8);
        if (BITS == 4) { // (0, 4) (1, 5) (2, 6) (3, 7) of every eight
            out[i * 4 + 0] = bytes_of(v.x, v.z, 0x5410);
            out[i * 4 + 1] = bytes_of(v.x, v.z, 0x7632);
            out[i * 4 + 2] = bytes_of(v.y, v.w, 0x5410);
            out[i * 4 + 3] = bytes_of(v.y, v.w, 0x7632);
        } else { // (0, 2) (1, 3) of every four
            out[i * 4 + 0] = bytes_of(v.x, v.y, 0x5410);
            out[i * 4 + 1] = bytes_of(v.x, v.y, 0x7632);
            out[i * 4 + 2] = bytes_of(v.z, v.w, 0x5410);
            out[i * 4 + 3] = bytes_of(v.z, v.w, 0x7632);
        }
    }
}

// This lane's codes of one group: GROUP / 4 of them, BITS * GROUP / 128 words.
template <int WORDS> static __device__ __forceinline__ void load_codes(const unsigned char *p, uint32_t out[WORDS]) {
    if (WORDS == 1) {
        out[0] = stream4(p);
    } else if (WORDS == 2) {
        uint2 v = stream8(p);
        out[0] = v.x, out[1 % WORDS] = v.y;
    } else {
#pragma unroll
        for (int i = 0; i < WORDS / 4; i++) {
            uint4 v = stream16(p + i * 16);
            out[(i * 4) % WORDS] = v.x, out[(i * 4 + 1) % WORDS] = v.y, out[(i * 4 + 2) % WORDS] = v.z, out[(i * 4 + 3) % WORDS] = v.w;
        }
    }
}

// One group: sums of codes times x, and sums of x, then scale and bias. lo, hi: codes of rows g and g + 8.
template <int BITS, int GROUP>
static __device__ __forceinline__ void group_step(float out[4], const uint32_t *lo, const uint32_t *hi, const uint32_t *x, const float s[2], const float b[2]) {
    float sum[4] = {0}, upper[4] = {0}, xs[4] = {0};
    const uint32_t ones[4] = {ONES, ONES, ONES, ONES};
#pragma unroll
    for (int m = 0; m < GROUP / 16; m++) {
        if (BITS == 4) {
            int shift = m % 2 * 8;
            uint32_t a[4] = {nibbles(lo[m / 2], shift), nibbles(hi[m / 2], shift), nibbles(lo[m / 2], shift + 4), nibbles(hi[m / 2], shift + 4)};
            mma_bf16(sum, a, x[2 * m], x[2 * m + 1]);
        } else {
            uint32_t a[4] = {nibbles(lo[m], 0), nibbles(hi[m], 0), nibbles(lo[m], 8), nibbles(hi[m], 8)};
            uint32_t c[4] = {nibbles(lo[m], 4), nibbles(hi[m], 4), nibbles(lo[m], 12), nibbles(hi[m], 12)};
            mma_bf16(sum, a, x[2 * m], x[2 * m + 1]);
            mma_bf16(upper, c, x[2 * m], x[2 * m + 1]);
        }
        mma_bf16(xs, ones, x[2 * m], x[2 * m + 1]);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float codes = BITS == 4 ? fmaf(-128.0f, xs[i], sum[i]) : fmaf(-128.0f, xs[i], sum[i]) + 16.0f * fmaf(-128.0f, xs[i], upper[i]);
        out[i] = fmaf(b[i / 2], xs[i], fmaf(s[i / 2], codes, out[i]));
    }
}

// Scales or biases of N groups in a row, from group `at` on; zeros beyond the end.
template <int N> static __device__ __forceinline__ void load_meta(const unsigned char *row, int64_t at, int64_t end, int dtype, bool vector, float out[N]) {
    if (vector) { // bf16 or f16, at * 2 bytes a multiple of N * 2
        uint32_t words[(N + 1) / 2];
        const unsigned char *p = row + at * 2;
        if (N == 1) words[0] = *(const uint16_t *)p;
        else if (N == 8) *(uint4 *)words = *(const uint4 *)p;
        else if (N == 4) *(uint2 *)words = *(const uint2 *)p;
        else words[0] = *(const uint32_t *)p;
#pragma unroll
        for (int i = 0; i < N; i++) out[i] = meta_f32(i % 2 ? words[i / 2] >> 16 : words[i / 2] & 0xffff, dtype);
        return;
    }
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = at + i < end ? load_as_f32(row, dtype, at + i) : 0.0f;
}

// Elements of k that a warp takes at a time: what its registers hold.
template <int BITS> static __device__ __forceinline__ constexpr int slab() {
    return BITS == 8 ? 128 : 256;
}

// One slab of this warp's 16 rows.
template <int BITS, int GROUP>
static __device__ __forceinline__ void quant_slab(const k_linear &a, int64_t row, int64_t k, bool vector, float out[4]) {
    enum { N = slab<BITS>() / GROUP, WORDS = BITS * GROUP / 128 };
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int64_t last = a.w.out - 1, r0 = row + g < last ? row + g : last, r1 = row + g + 8 < last ? row + g + 8 : last, end = a.w.in / GROUP, at = k / GROUP;
    r0 += head_row(a), r1 += head_row(a);
    const unsigned char *v0 = a.w.values + r0 * a.w.values_bytes + (k + t * (GROUP / 4)) * BITS / 8, *v1 = a.w.values + r1 * a.w.values_bytes + (k + t * (GROUP / 4)) * BITS / 8;
    uint32_t lo[N][WORDS] = {{0}}, hi[N][WORDS] = {{0}};
    float s0[N], s1[N], b0[N], b1[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        if (at + i < end) {
            load_codes<WORDS>(v0 + i * (GROUP * BITS / 8), lo[i]);
            load_codes<WORDS>(v1 + i * (GROUP * BITS / 8), hi[i]);
        }
    load_meta<N>(a.w.scales + r0 * a.w.scales_bytes, at, end, a.w.dtype, vector, s0);
    load_meta<N>(a.w.scales + r1 * a.w.scales_bytes, at, end, a.w.dtype, vector, s1);
    load_meta<N>(a.w.biases + r0 * a.w.biases_bytes, at, end, a.w.dtype, vector, b0);
    load_meta<N>(a.w.biases + r1 * a.w.biases_bytes, at, end, a.w.dtype, vector, b1);
    const bf16 *x = head_x(a) + (int64_t)g * a.x.row_stride + k + t * (GROUP / 4);
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t xv[GROUP / 8];
        load_x<BITS, GROUP>(x + i * GROUP, g < a.x.rows && at + i < end, xv);
        float s[2] = {s0[i], s1[i]}, b[2] = {b0[i], b1[i]};
        group_step<BITS, GROUP>(out, lo[i], hi[i], xv, s, b);
    }
}

// The same of a bf16 weight.
static __device__ __forceinline__ void plain_slab(const k_linear &a, int64_t row, int64_t k, float out[4]) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int64_t last = a.w.out - 1, r0 = row + g < last ? row + g : last, r1 = row + g + 8 < last ? row + g + 8 : last;
    r0 += head_row(a), r1 += head_row(a);
    const bf16 *w0 = (const bf16 *)(a.w.values + r0 * a.w.values_bytes) + k + t * 8, *w1 = (const bf16 *)(a.w.values + r1 * a.w.values_bytes) + k + t * 8;
    const bf16 *x = head_x(a) + (int64_t)g * a.x.row_stride + k + t * 8;
    uint4 lo[8], hi[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
        bool there = k + i * 32 + t * 8 < a.w.in;
        lo[i] = hi[i] = uint4{0, 0, 0, 0};
        if (there) lo[i] = stream16(w0 + i * 32), hi[i] = stream16(w1 + i * 32);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint4 v = {0, 0, 0, 0};
        if (g < a.x.rows && k + i * 32 + t * 8 < a.w.in) v = *(const uint4 *)(x + i * 32);
        const uint32_t first[4] = {lo[i].x, hi[i].x, lo[i].y, hi[i].y}, second[4] = {lo[i].z, hi[i].z, lo[i].w, hi[i].w};
        mma_bf16(out, first, v.x, v.y);
        mma_bf16(out, second, v.z, v.w);
    }
}

// The same of mxfp4: a number of three bits and a sign is bf16 times 2^-126 when its bits stand at the border of exponent and mantissa.
static __device__ __forceinline__ uint32_t fp4_pair(uint32_t word, int shift) {
    uint32_t pair = word >> shift;
    return fma_bf16x2((pair << 6 & 0x01c001c0u) | (pair << 12 & 0x80008000u), TWO_TO_126, 0);
}
static __device__ __forceinline__ float fp4_scale(uint32_t e) {
    return __uint_as_float(e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : e << 23);
}
static __device__ __forceinline__ void fp4_slab(const k_linear &a, int64_t row, int64_t k, float out[4]) {
    enum { N = 8, GROUP = 32 };
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int64_t last = a.w.out - 1, r0 = row + g < last ? row + g : last, r1 = row + g + 8 < last ? row + g + 8 : last, end = a.w.in / GROUP, at = k / GROUP;
    r0 += head_row(a), r1 += head_row(a);
    const unsigned char *v0 = a.w.values + r0 * a.w.values_bytes + (k + t * 8) / 2, *v1 = a.w.values + r1 * a.w.values_bytes + (k + t * 8) / 2;
    const unsigned char *e0 = a.w.scales + r0 * a.w.scales_bytes + at, *e1 = a.w.scales + r1 * a.w.scales_bytes + at;
    const bf16 *x = head_x(a) + (int64_t)g * a.x.row_stride + k + t * 8;
    uint32_t lo[N] = {0}, hi[N] = {0}, s0[N] = {0}, s1[N] = {0};
#pragma unroll
    for (int i = 0; i < N; i++)
        if (at + i < end) lo[i] = stream4(v0 + i * 16), hi[i] = stream4(v1 + i * 16), s0[i] = e0[i], s1[i] = e1[i];
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t xv[4];
        float sum[4] = {0};
        load_x<4, GROUP>(x + i * GROUP, g < a.x.rows && at + i < end, xv);
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint32_t w[4] = {fp4_pair(lo[i], m * 8), fp4_pair(hi[i], m * 8), fp4_pair(lo[i], m * 8 + 4), fp4_pair(hi[i], m * 8 + 4)};
            mma_bf16(sum, w, xv[2 * m], xv[2 * m + 1]);
        }
        if (at + i < end) {
            out[0] = fmaf(fp4_scale(s0[i]), sum[0], out[0]), out[1] = fmaf(fp4_scale(s0[i]), sum[1], out[1]);
            out[2] = fmaf(fp4_scale(s1[i]), sum[2], out[2]), out[3] = fmaf(fp4_scale(s1[i]), sum[3], out[3]);
        }
    }
}

// Sums of the warps that share a tile, in a fixed order, then bias and gate; 128 results per tile.
static __device__ __forceinline__ void finish(const k_linear &a, const float out[4], int k_warps, int64_t first_row, float *smem) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    float *mine = smem + warp * TILE * COLUMNS;
#pragma unroll
    for (int i = 0; i < 4; i++) mine[(g + i / 2 * 8) * COLUMNS + 2 * t + i % 2] = out[i];
    __syncthreads();
    int tiles = WARPS / k_warps, results = (a.glu_inner ? tiles / 2 : tiles) * TILE * COLUMNS;
    for (int e = threadIdx.x; e < results; e += WARPS * 32) {
        int column = e / TILE % COLUMNS, row = e % TILE, tile = e / (TILE * COLUMNS);
        if (column >= a.x.rows) continue;
        float sum = 0, up = 0;
        int from = (a.glu_inner ? tile * 2 : tile) * k_warps;
        for (int w = 0; w < k_warps; w++) sum += smem[((from + w) * TILE + row) * COLUMNS + column];
        int64_t n = first_row + tile * TILE + row;
        if (n >= (a.glu_inner ? a.glu_inner : a.n_out)) continue;
        if (a.bias) sum += a.bias[n];
        if (a.glu_inner) {
            for (int w = 0; w < k_warps; w++) up += smem[((from + k_warps + w) * TILE + row) * COLUMNS + column];
            if (a.bias) up += a.bias[n + a.glu_inner];
            sum = gated(a.act, sum, up);
        }
        view_store(a.y, column, blockIdx.y, n, sum);
    }
}

// Grid (tiles of rows, heads). k_splits warps share a tile; with a gate, neighbouring tiles of a block are gate rows and up rows.
template <int BITS, int GROUP> static __device__ __forceinline__ void product(const k_linear &a) {
    __shared__ float smem[WARPS * TILE * COLUMNS];
    int warp = threadIdx.x / 32, k_warps = a.k_splits, tiles = WARPS / k_warps, tile = warp / k_warps;
    int per_block = a.glu_inner ? tiles / 2 : tiles;
    int64_t first_row = (int64_t)blockIdx.x * per_block * TILE;
    int64_t row = a.glu_inner ? first_row + tile / 2 * TILE + tile % 2 * a.glu_inner : first_row + tile * TILE;
    float out[4] = {0};
    bool vector = BITS != 16 && a.w.dtype != K_F32 && a.w.in % slab<BITS>() == 0;
    if (row < a.w.out)
        for (int64_t k = warp % k_warps * slab<BITS>(); k < a.w.in; k += k_warps * slab<BITS>()) {
            if (BITS == 16) plain_slab(a, row, k, out);
            else if (BITS == FP4) fp4_slab(a, row, k, out);
            else quant_slab<BITS == 16 || BITS == FP4 ? 4 : BITS, GROUP>(a, row, k, vector, out);
        }
    finish(a, out, k_warps, first_row, smem);
}

// Blocks that must share a multiprocessor: groups of 32 hold twice the scales, for which most compilers need more than half of its registers.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define BLOCKS_32 2
#else
#define BLOCKS_32 1
#endif
#define QMV(bits, group, blocks) \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, blocks) qmv_##bits##_##group(KARGS(k_linear) a) { after_previous(); product<bits, group>(a); }
QMV(4, 32, BLOCKS_32)
QMV(4, 64, 2)
QMV(4, 128, 2)
QMV(8, 32, 2)
QMV(8, 64, 2)
QMV(8, 128, 2)
QMV(16, 64, 2)
extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) qmv_fp4_32(KARGS(k_linear) a) { after_previous(); product<FP4, 32>(a); }
