// Attention of a decode row over a cache of 8 bits (kv8.cuh), on the tensor cores' products of bytes, for sm_80 and later.
//
// A warp takes ATTN8_UNIT positions of one cached head at a time, and up to eight query heads, which are the rows of the products: multipliers of 16
// bits, head h's high bytes in row h and its low bytes in row h + 8. Both operands of the cache come from memory to registers as they lie: keys by
// positions, values by words of four positions. Which of the 32 positions is which column of the scores is chosen so that a lane's eight scores are the
// weights that it multiplies with its words of values. Weights, times the scales of their values, are multipliers too, by the largest of each unit.
// Sums are exact; floats come before and after. Scores are in units of log 2.
#pragma once
#include "kv8.cuh"
#include "mma.cuh"
#include "parts8.cuh"

// ---- operands; lane l = 4 g + t ----

// Query heads: rows g and g + 8, elements 64 m + 16 t ... + 15. HELD: in registers; else they stay in shared memory.
template <int D, bool HELD> struct queries8 {
    enum { ROOM = HELD ? D / 64 : 1 };
    uint4 high[ROOM], low[ROOM];
    float factor; // what a score's unit is, of head g
    const unsigned char *from;
    bool there;
};

// In shared memory: [heads][D] high bytes, as many low ones, then a factor of each head.
template <int D> static __device__ __forceinline__ float *query_factors(unsigned char *queries) {
    return (float *)(queries + 2 * ATTN8_HEADS * D);
}

// A warp puts a turned query there, lane l its elements 32 i + l.
template <int D> static __device__ __forceinline__ void put_query8(unsigned char *queries, int h, const float x[D / 32], float scale) {
    int lane = threadIdx.x % 32;
    rounding r = rounding_of<D / 32>(x, (float)KV8_MULTIPLIER_MAX);
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        int m = whole(x[i] * r.inverse);
        queries[h * D + i * 32 + lane] = (unsigned char)((m + 128) >> 8);
        queries[(ATTN8_HEADS + h) * D + i * 32 + lane] = (unsigned char)m;
    }
    if (lane == 0) query_factors<D>(queries)[h] = r.scale * scale;
}

template <int D, bool HELD> static __device__ __forceinline__ void take_query8(const queries8<D, HELD> &q, int m, uint4 &high, uint4 &low) {
    high = low = uint4{0, 0, 0, 0};
    if (q.there) high = *(const uint4 *)(q.from + 64 * m), low = *(const uint4 *)(q.from + ATTN8_HEADS * D + 64 * m);
}

template <int D, bool HELD> static __device__ __forceinline__ void take_queries8(queries8<D, HELD> &q, unsigned char *queries, int n_heads) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    q.from = queries + g * D + 16 * t;
    q.there = g < n_heads;
#pragma unroll
    for (int m = 0; HELD && m < D / 64; m++) take_query8<D>(q, m, q.high[m % q.ROOM], q.low[m % q.ROOM]);
    q.factor = q.there ? query_factors<D>(queries)[g] : 0.0f;
}

// Keys of 16 H positions: column c of product n is position 16 (n / 2) + 4 (c / 2) + 2 (n % 2) + c % 2. scale: of positions 16 i + 4 t ...
template <int D, int H> struct keys8 {
    uint4 code[2 * H][D / 64];
    float4 scale[H];
};
// Values, of 32 J elements: words of positions 4 t ... and 16 + 4 t ..., elements 32 j + 4 g ... + 3.
template <int J> struct values8 {
    uint4 code[2][J];
};

// Scales of positions 4 t ... and 16 + 4 t ... from `first` of the cache block on, a multiple of 16.
template <int D, int H> static __device__ __forceinline__ void load_scales8(float4 scale[H], const unsigned char *block, int first) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < H; i++) scale[i] = *(const float4 *)(block + K_BLOCK * D + (first + 16 * i + 4 * t) * 4);
}

template <int D, int H> static __device__ __forceinline__ void load_keys8(keys8<D, H> &k, const unsigned char *block, int first) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 2 * H; n++)
#pragma unroll
        for (int m = 0; m < D / 64; m++) k.code[n][m] = *(const uint4 *)(block + (first + 16 * (n / 2) + 4 * (g / 2) + 2 * (n % 2) + g % 2) * D + 64 * m + 16 * t);
    load_scales8<D, H>(k.scale, block, first);
}

// half: which half of the cache block the unit is. From element 32 first on.
template <int D, int J> static __device__ __forceinline__ void load_values8(values8<J> &v, const unsigned char *block, int half, int first) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < J; j++) v.code[i][j] = *(const uint4 *)(block + (half * 8 + 4 * i + t) * 4 * D + 128 * (first + j) + 16 * g);
}

// ---- a unit ----

// What a warp has seen, of head g: results of elements 32 j + 8 t + 4 c ... + 3 in acc[j][c], the largest score, this lane's sum of weights.
template <int D> struct seen8 {
    float acc[D / 32][2][4], max, sum;
};

template <int D> static __device__ __forceinline__ void begin8(seen8<D> &z) {
#pragma unroll
    for (int i = 0; i < D / 4; i++) ((float *)z.acc)[i] = 0;
    z.max = -INFINITY, z.sum = 0;
}

// Sums of the products begin at ROUNDER_BITS, so that they are floats: 256 products of 128 and 127 stay below 2^22.
static __device__ __forceinline__ float sum8(const int32_t s[4], int c) {
    return fmaf(256.0f, __uint_as_float((uint32_t)s[c]) - ROUNDER, __uint_as_float((uint32_t)s[2 + c]) - ROUNDER);
}
static __device__ __forceinline__ void begin_sums8(int32_t s[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) s[i] = ROUNDER_BITS;
}

// Scores s[e] of positions 16 (e / 4) + 4 t + e % 4.
template <int D, int H, bool HELD> static __device__ __forceinline__ void scores8(float s[4 * H], const queries8<D, HELD> &q, const keys8<D, H> &k) {
    int32_t sums[2 * H][4];
#pragma unroll
    for (int n = 0; n < 2 * H; n++) begin_sums8(sums[n]);
#pragma unroll
    for (int m = 0; m < D / 64; m++) {
        uint4 high, low;
        if (HELD) high = q.high[m % q.ROOM], low = q.low[m % q.ROOM];
        else take_query8<D>(q, m, high, low);
        const uint32_t a[4] = {high.x, low.x, high.y, low.y}, b[4] = {high.z, low.z, high.w, low.w};
#pragma unroll
        for (int n = 0; n < 2 * H; n++) mma_s8(sums[n], a, k.code[n][m].x, k.code[n][m].y);
#pragma unroll
        for (int n = 0; n < 2 * H; n++) mma_s8(sums[n], b, k.code[n][m].z, k.code[n][m].w);
    }
#pragma unroll
    for (int n = 0; n < 2 * H; n++) {
        const float *scale = &k.scale[n / 2].x + 2 * (n % 2);
        s[2 * n] = sum8(sums[n], 0) * (q.factor * scale[0]), s[2 * n + 1] = sum8(sums[n], 1) * (q.factor * scale[1]);
    }
}

static __device__ __forceinline__ float max_of_head(float x) {
    x = fmaxf(x, __shfl_xor_sync(FULL, x, 1));
    return fmaxf(x, __shfl_xor_sync(FULL, x, 2));
}

// Four bytes `which` of four words.
static __device__ __forceinline__ uint32_t bytes4(const uint32_t w[4], int which) {
    return bytes_of(bytes_of(w[0], w[1], (uint32_t)(0x40 + 0x11 * which)), bytes_of(w[2], w[3], (uint32_t)(0x40 + 0x11 * which)), 0x5410);
}

// Scores become weights. scale: of the values. w: the operand of the products with values. Of positions p0 ... those before begin and from end on are not seen. Returns what a unit of the
// products means.
template <int D> static __device__ __forceinline__ float soften8(seen8<D> &z, float s[8], const float4 scale[2], float softcap, int p0, int begin, int end, uint32_t w[4]) {
    int first = p0 + 4 * (int)(threadIdx.x % 4);
    float top = z.max;
    if (softcap > 0) {
#pragma unroll
        for (int e = 0; e < 8; e++) s[e] = softcap * LOG2E * tanhf(s[e]);
    }
    if (p0 < begin || p0 + ATTN8_UNIT > end) {
#pragma unroll
        for (int e = 0; e < 8; e++) {
            int p = first + e / 4 * 16 + e % 4;
            if (p < begin || p >= end) s[e] = -INFINITY;
        }
    }
#pragma unroll
    for (int e = 0; e < 8; e++) top = fmaxf(top, s[e]);
    top = max_of_head(top);
    float base = top == -INFINITY ? 0.0f : top, keep = exp2f(z.max - base), largest = 0;
    z.max = top;
    z.sum *= keep;
#pragma unroll
    for (int e = 0; e < 8; e++) {
        float weight = exp2f(s[e] - base);
        z.sum += weight;
        s[e] = s[e] == -INFINITY ? 0.0f : weight * (&scale[e / 4].x)[e % 4]; // what is not seen may have any scale
        largest = fmaxf(largest, s[e]);
    }
    largest = max_of_head(largest);
    float inverse = largest > 1e-30f ? __fdividef((float)KV8_MULTIPLIER_MAX, largest) : 0.0f;
    uint32_t low[8], high[8];
#pragma unroll
    for (int e = 0; e < 8; e++) low[e] = __float_as_uint(fmaf(s[e], inverse, ROUNDER)), high[e] = low[e] + 128;
    w[0] = bytes4(high, 1), w[1] = bytes4(low, 0), w[2] = bytes4(high + 4, 1), w[3] = bytes4(low + 4, 0);
    if (!in_all_lanes(keep == 1.0f)) {
#pragma unroll
        for (int i = 0; i < D / 4; i++) ((float *)z.acc)[i] *= keep;
    }
    return largest * (1.0f / (float)KV8_MULTIPLIER_MAX);
}

template <int D, int J> static __device__ __forceinline__ void add_values8(seen8<D> &z, const uint32_t w[4], const values8<J> &v, float unit, int from) {
#pragma unroll
    for (int j = 0; j < J; j++) {
        const uint32_t first[4] = {v.code[0][j].x, v.code[0][j].y, v.code[0][j].z, v.code[0][j].w}, second[4] = {v.code[1][j].x, v.code[1][j].y, v.code[1][j].z, v.code[1][j].w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int32_t sums[4];
            begin_sums8(sums);
            mma_s8(sums, w, first[i], second[i]);
            z.acc[from + j][0][i] = fmaf(sum8(sums, 0), unit, z.acc[from + j][0][i]);
            z.acc[from + j][1][i] = fmaf(sum8(sums, 1), unit, z.acc[from + j][1][i]);
        }
    }
}

// ---- parts (parts8.cuh) ----

// What a warp has seen becomes part `i` of n; parts: [heads][n].
template <int D> static __device__ __forceinline__ void keep_parts8(float *parts, int n_heads, int n, int i, const seen8<D> &z) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    float sum = z.sum;
    sum += __shfl_xor_sync(FULL, sum, 1);
    sum += __shfl_xor_sync(FULL, sum, 2);
    if (g >= n_heads) return;
    float *to = parts + (g * n + i) * attn8_part(D);
#pragma unroll
    for (int j = 0; j < D / 32; j++)
#pragma unroll
        for (int c = 0; c < 2; c++) *(float4 *)(to + 32 * j + 8 * t + 4 * c) = *(const float4 *)z.acc[j][c];
    if (t == 0) to[D] = z.max, to[D + 1] = sum;
}
