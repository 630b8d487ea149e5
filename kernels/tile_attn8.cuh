// Attention of a decode row over a cache of 8 bits (kv8.cuh) on the tensor cores' products of bytes, as tile_attn.cuh has it for bf16, for sm_80 and later.
//
// A warp takes units of ATTN8_UNIT positions of one cached head, two tiles of 16, and a set of up to four query heads. Heads are the eight columns of the products: multipliers of
// 16 bits, head h's high bytes in column 2 h and its low bytes in column 2 h + 1. So are the weights, times the scales of their values, by the largest of a
// unit. Sums are exact; floats come before and after. Scores are in units of log 2.
//
// Lane l = 4 g + t. Row r of a tile's scores is its position 2 r, row r + 8 position 2 r + 1, so that pairs of transposed weights are words of four positions, as
// values lie in the cache.
#pragma once
#include "kv8.cuh"
#include "mma.cuh"
#include "soft.cuh"

// A lane's share of a unit, in two steps of four pieces of 16 codes. Wide heads (128): keys of one tile, then of the other, then values of elements 0 to 63, then of the others.
// Narrow ones (64): keys of both tiles, then values.
struct step8 {
    uint4 of[4];
};

// What a warp has seen, of head t: results of elements 32 j + 4 g ... + 3, the largest score, this lane's sum of weights.
template <int D> struct seen_tiles8 {
    float o[D / 32][4], max, sum;
};
template <int D> static __device__ __forceinline__ void begin_tiles8(seen_tiles8<D> &z) {
#pragma unroll
    for (int i = 0; i < D / 8; i++) (&z.o[0][0])[i] = 0;
    z.max = -INFINITY, z.sum = 0;
}

// ---- operands. block: of the cache; half: which half of its positions the unit is ----

// Where piece i of a step of keys is: the tile, which of the lane's two positions, and which 64 elements.
template <int D> static __device__ __forceinline__ int key_tile(int step, int i) {
    return D > 64 ? step : i / 2;
}
template <int D> static __device__ __forceinline__ int key_row(int i) {
    return 2 * (threadIdx.x % 32 / 4) + (D > 64 ? i / 2 : i % 2);
}
template <int D> static __device__ __forceinline__ int key_element(int i) {
    return (D > 64 ? i % 2 * 64 : 0) + 16 * (threadIdx.x % 4);
}
template <int D> static __device__ __forceinline__ void load_keys8(step8 &k, const unsigned char *block, int half, int step) {
#pragma unroll
    for (int i = 0; i < 4; i++) k.of[i] = stream16(block + (half * ATTN8_UNIT + 16 * key_tile<D>(step, i) + key_row<D>(i)) * D + key_element<D>(i));
}
// Piece i of a step of values: words of positions 16 (i % 2) + 4 t ... + 3, elements 64 step + 32 (i / 2) + 4 g ... + 3.
template <int D> static __device__ __forceinline__ void load_values8(step8 &v, const unsigned char *block, int half, int step) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) v.of[i] = stream16(block + (half * 8 + 4 * (i % 2) + t) * 4 * D + 4 * (64 * step + 32 * (i / 2) + 4 * g));
}
// Scales of this lane's positions, two of each tile.
template <int D> static __device__ __forceinline__ void load_scales8(float2 scale[2], const unsigned char *block, int half) {
    const float *from = (const float *)(block + K_BLOCK * D) + half * ATTN8_UNIT + 2 * (threadIdx.x % 32 / 4);
    scale[0] = *(const float2 *)from, scale[1] = *(const float2 *)(from + 16);
}

// The row's own key and value, in shared memory: codes, and their scales. They take the place of what the cache had at position `at` of the unit.
template <int D> struct own8 {
    unsigned char key[D], value[D];
    float scale[2];
};
template <int D> static __device__ __forceinline__ void take_own_key8(step8 &k, const own8<D> &own, int at, int step) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (16 * key_tile<D>(step, i) + key_row<D>(i) == at) k.of[i] = *(const uint4 *)(own.key + key_element<D>(i));
}
static __device__ __forceinline__ uint32_t with_byte(uint32_t word, uint32_t byte, int shift) {
    return (word & ~(0xffu << shift)) | (byte & 0xff) << shift;
}
template <int D> static __device__ __forceinline__ void take_own_value8(step8 &v, const own8<D> &own, int at, int step) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, shift = at % 4 * 8;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        uint32_t codes = *(const uint32_t *)(own.value + 64 * step + 32 * (i / 2) + 4 * g);
        if (at / 4 != 4 * (i % 2) + t) continue;
        v.of[i] = uint4{with_byte(v.of[i].x, codes, shift), with_byte(v.of[i].y, codes >> 8, shift), with_byte(v.of[i].z, codes >> 16, shift), with_byte(v.of[i].w, codes >> 24, shift)};
    }
}
static __device__ __forceinline__ void take_own_scale8(float2 scale[2], float own, int at) {
    int first = 2 * (threadIdx.x % 32 / 4);
#pragma unroll
    for (int h = 0; h < 2; h++) scale[h] = float2{at == first + 16 * h ? own : scale[h].x, at == first + 16 * h + 1 ? own : scale[h].y};
}

// Queries in shared memory: of every set eight columns of D bytes, then a factor of each head. Pieces of 16 of odd columns of wide heads change places with those four behind or
// before them, so that lanes that read together meet no other in a bank. A warp puts a turned query there, lane l its elements 32 i + l.
template <int D> static __device__ __forceinline__ int query_at8(int column, int d) {
    return column * D + ((d / 16 ^ (D > 64 ? (column & 1) * 4 : 0)) * 16) + d % 16;
}
template <int D> static __device__ __forceinline__ float *query_factors(unsigned char *queries) {
    return (float *)(queries + 2 * ATTN8_HEADS * D);
}
template <int D> static __device__ __forceinline__ void put_query8(unsigned char *queries, int h, const float x[D / 32], float scale) {
    int lane = threadIdx.x % 32;
    rounding r = rounding_of<D / 32>(x, (float)KV8_MULTIPLIER_MAX);
#pragma unroll
    for (int i = 0; i < D / 32; i++) {
        int m = whole(x[i] * r.inverse);
        queries[query_at8<D>(2 * h, 32 * i + lane)] = (unsigned char)((m + 128) >> 8);
        queries[query_at8<D>(2 * h + 1, 32 * i + lane)] = (unsigned char)m;
    }
    if (lane == 0) query_factors<D>(queries)[h] = r.scale * scale;
}

// ---- a unit ----

// Sums of the products begin at ROUNDER_BITS, so that they are floats: 256 products of 128 and 127 stay below 2^22.
static __device__ __forceinline__ float sum_tiles8(const int32_t s[4], int i) {
    return fmaf(256.0f, __uint_as_float((uint32_t)s[2 * i]) - ROUNDER, __uint_as_float((uint32_t)s[2 * i + 1]) - ROUNDER);
}

// Scores of head t, before their scales, with a tile's positions 2 g and 2 g + 1; from: its first piece. queries: of the set.
template <int D> static __device__ __forceinline__ void tile_scores8(float s[2], const unsigned char *queries, const step8 &k, int from) {
    enum { PIECES = D / 64, NEXT = D > 64 ? 2 : 1 };
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int32_t sums[4];
#pragma unroll
    for (int m = 0; m < PIECES; m++) {
        uint4 q = *(const uint4 *)(queries + query_at8<D>(g, 64 * m + 16 * t)), x = k.of[from + m], y = k.of[from + m + NEXT];
        const uint32_t a[4] = {x.x, y.x, x.y, y.y}, b[4] = {x.z, y.z, x.w, y.w};
        if (m == 0) mma_s8_from(sums, a, q.x, q.y, ROUNDER_BITS);
        else mma_s8(sums, a, q.x, q.y);
        mma_s8(sums, b, q.z, q.w);
    }
    s[0] = sum_tiles8(sums, 0), s[1] = sum_tiles8(sums, 1);
}

static __device__ __forceinline__ float max_of_rows(float x) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, step));
    return x;
}

// Scores s[tile][position] become weights. scale: of the values. w: the operand of the products with values. Returns what a unit of these means.
template <int D> static __device__ __forceinline__ float tile_soften8(seen_tiles8<D> &z, float s[4], const float2 scale[2], uint32_t w[2]) {
    float top = fmaxf(fmaxf(s[0], s[1]), fmaxf(s[2], s[3])), largest = 0;
    if (!in_all_lanes(top <= z.max)) {
        top = fmaxf(max_of_rows(top), z.max);
        float keep = exp2f(z.max - (top == -INFINITY ? 0.0f : top));
        z.max = top;
        z.sum *= keep;
#pragma unroll
        for (int i = 0; i < D / 8; i++) (&z.o[0][0])[i] *= keep;
    }
    float base = z.max == -INFINITY ? 0.0f : z.max;
#pragma unroll
    for (int e = 0; e < 4; e++) {
        float weight = exp2_fast(s[e] - base);
        z.sum += weight;
        s[e] = s[e] == -INFINITY ? 0.0f : weight * (e % 2 ? scale[e / 2].y : scale[e / 2].x); // what is not seen may have any scale
        largest = fmaxf(largest, s[e]);
    }
    largest = max_of_rows(largest);
    float inverse = largest > 1e-30f ? __fdividef((float)KV8_MULTIPLIER_MAX, largest) : 0.0f;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t x = __float_as_uint(fmaf(s[2 * h], inverse, ROUNDER)), y = __float_as_uint(fmaf(s[2 * h + 1], inverse, ROUNDER));
        w[h] = transpose8(bytes_of(bytes_of(x + 128, y + 128, 0x51), bytes_of(x, y, 0x40), 0x5410));
    }
    return largest * (1.0f / (float)KV8_MULTIPLIER_MAX);
}

// Two of a lane's words of both tiles: two elements of the result.
static __device__ __forceinline__ void add_pair8(float &o, float &next, const uint32_t w[2], uint32_t x0, uint32_t x1, uint32_t y0, uint32_t y1, float unit) {
    const uint32_t a[4] = {x0, x1, y0, y1};
    int32_t sums[4];
    mma_s8_from(sums, a, w[0], w[1], ROUNDER_BITS);
    o = fmaf(sum_tiles8(sums, 0), unit, o), next = fmaf(sum_tiles8(sums, 1), unit, next);
}
template <int D> static __device__ __forceinline__ void add_values8(seen_tiles8<D> &z, const uint32_t w[2], const step8 &v, float unit, int step) {
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const uint4 x = v.of[2 * j], y = v.of[2 * j + 1];
        float *o = z.o[2 * step + j];
        add_pair8(o[0], o[1], w, x.x, x.y, y.x, y.y, unit);
        add_pair8(o[2], o[3], w, x.z, x.w, y.z, y.w, unit);
    }
}

// Head t of the set to `to`, attn8_part(D) floats. All lanes come here; NULL: there is no such head.
template <int D> static __device__ __forceinline__ void keep_tiles8(float *to, const seen_tiles8<D> &z) {
    int g = threadIdx.x % 32 / 4;
    float sum = z.sum;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(FULL, sum, step);
    if (!to) return;
#pragma unroll
    for (int j = 0; j < D / 32; j++) *(float4 *)(to + 32 * j + 4 * g) = float4{z.o[j][0], z.o[j][1], z.o[j][2], z.o[j][3]};
    if (g == 0) to[D] = z.max, to[D + 1] = sum;
}
