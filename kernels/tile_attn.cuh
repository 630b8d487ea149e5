// Attention of a decode row over a bf16 cache on the tensor cores, from memory straight to registers, for sm_80 and later.
//
// A warp takes a tile of 16 positions of one cached head at a time, and a set of up to four query heads. Heads are the eight columns of the products, as two bf16
// terms each, head h in columns 2 h and 2 h + 1; so are the weights of the softmax; both are then as good as f32. Keys are read by rows, 16 bytes a
// lane, in any order of elements that the queries have too. Values are read the same way, and pairs of positions are put together in registers. Which
// position is which row of the scores is chosen so that the transposed weights are the operand of the products with values. Scores are in units of log 2.
//
// Lane l = 4 g + t. Row r of the scores is position 4 (r / 2) + r % 2 of the tile, row r + 8 the one two behind it.
#pragma once
#include "mma.cuh"
#include "soft.cuh"

enum { TILE_POSITIONS = 16 };

// A lane's share of a tile's keys or values, of a part of 64 elements. Keys: of positions 4 (g / 2) + g % 2 (of[0], of[1]) and two behind it, elements
// 8 t ... + 7 and 32 + 8 t .... Values: of positions 4 t ... 4 t + 3, elements 8 g ... + 7.
struct tile_part {
    uint4 of[4];
};
static __device__ __forceinline__ int first_key_row() {
    int g = threadIdx.x % 32 / 4;
    return 4 * (g / 2) + g % 2;
}

// What a warp has seen, of head t: elements 64 j + 8 g + 2 i in o[j][i][0] + [1], the next one in [2] + [3]; the largest score, this lane's sum of weights.
template <int D> struct tile_seen {
    float o[D / 64][4][4], max, sum;
};
template <int D> static __device__ __forceinline__ void begin_tiles(tile_seen<D> &z) {
#pragma unroll
    for (int i = 0; i < D / 4; i++) (&z.o[0][0][0])[i] = 0;
    z.max = -INFINITY, z.sum = 0;
}

// ---- operands. from: the tile's first position in the cache. there: positions of the tile that are in the cache; who asks for others gets the last of them, whose weight is
// then 0 ----

template <int D> static __device__ __forceinline__ void load_keys(tile_part &k, const bf16 *from, int there, int part) {
    int row = first_key_row(), last = there - 1;
    from += 64 * part + 8 * (threadIdx.x % 4);
    if (there >= TILE_POSITIONS) {
        from += row * D;
#pragma unroll
        for (int i = 0; i < 4; i++) k.of[i] = stream16(from + i / 2 * 2 * D + 32 * (i % 2));
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) k.of[i] = stream16(from + min(row + i / 2 * 2, last) * D + 32 * (i % 2));
}
template <int D> static __device__ __forceinline__ void load_values(tile_part &v, const bf16 *from, int there, int part) {
    int row = threadIdx.x % 4 * 4, last = there - 1;
    from += 64 * part + threadIdx.x % 32 / 4 * 8;
    if (there >= TILE_POSITIONS) {
        from += row * D;
#pragma unroll
        for (int i = 0; i < 4; i++) v.of[i] = stream16(from + i * D);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) v.of[i] = stream16(from + min(row + i, last) * D);
}
static __device__ __forceinline__ void clear(tile_part &x) {
#pragma unroll
    for (int i = 0; i < 4; i++) x.of[i] = uint4{0, 0, 0, 0};
}

// Positions from `there` on are the step's own, n of them: [n][2][D] in shared memory, keys and values.
template <int D> static __device__ __forceinline__ void take_own_keys(tile_part &k, const bf16 *own, int there, int n, int part) {
    int row = first_key_row() - there, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = row + i / 2 * 2;
        if (at >= 0 && at < n) k.of[i] = *(const uint4 *)(own + at * 2 * D + 64 * part + 32 * (i % 2) + 8 * t);
    }
}
template <int D> static __device__ __forceinline__ void take_own_values(tile_part &v, const bf16 *own, int there, int n, int part) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int at = 4 * t + i - there;
        if (at >= 0 && at < n) v.of[i] = *(const uint4 *)(own + at * 2 * D + D + 64 * part + 8 * g);
    }
}

// Queries in shared memory: of every set eight columns of D elements; pieces of eight of odd columns change places with those four behind or before
// them, so that lanes that read together meet no other in a bank. Element d of column c; a warp puts a head there, lane l its elements 32 e + l.
template <int D> static __device__ __forceinline__ int query_at(int column, int d) {
    return column * D + ((d / 8 ^ (column & 1) * 4) * 8) + d % 8;
}
template <int D> static __device__ __forceinline__ void put_query(bf16 *queries, int head, const float x[D / 32], float scale) {
    bf16 *set = queries + head / SET_HEADS * (2 * SET_HEADS * D);
    int column = 2 * (head % SET_HEADS);
#pragma unroll
    for (int e = 0; e < D / 32; e++) {
        int d = 32 * e + threadIdx.x % 32;
        float y = x[e] * scale;
        bf16 high = __float2bfloat16_rn(y);
        set[query_at<D>(column, d)] = high;
        set[query_at<D>(column + 1, d)] = __float2bfloat16_rn(y - __bfloat162float(high));
    }
}

// ---- a tile ----

// Products of a part of the keys with the set's queries: what is in columns 2 t and 2 t + 1 together is the score of head t, sums[0] + [1] with the lane's first position, [2] + [3] with its
// second.
template <int D> static __device__ __forceinline__ void add_scores(float sums[4], const bf16 *queries, const tile_part &k, int part) {
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        uint4 q = *(const uint4 *)(queries + query_at<D>(g, 64 * part + 32 * j + 8 * t));
        const uint32_t a[4] = {k.of[j].x, k.of[2 + j].x, k.of[j].y, k.of[2 + j].y}, b[4] = {k.of[j].z, k.of[2 + j].z, k.of[j].w, k.of[2 + j].w};
        mma_bf16(sums, a, q.x, q.y);
        mma_bf16(sums, b, q.z, q.w);
    }
}

// Scores become weights; w: the operand of the products with values.
template <int D> static __device__ __forceinline__ void tile_soften(tile_seen<D> &z, const float s[2], uint32_t w[2]) {
    float top = fmaxf(s[0], s[1]);
    if (!in_all_lanes(top <= z.max)) {
#pragma unroll
        for (int step = 4; step < 32; step *= 2) top = fmaxf(top, __shfl_xor_sync(FULL, top, step));
        top = fmaxf(top, z.max);
        float keep = exp2f(z.max - (top == -INFINITY ? 0.0f : top));
        z.max = top;
        z.sum *= keep;
#pragma unroll
        for (int i = 0; i < D / 4; i++) (&z.o[0][0][0])[i] *= keep;
    }
    float base = z.max == -INFINITY ? 0.0f : z.max;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float weight = exp2_fast(s[i] - base), high = __uint_as_float(__float_as_uint(weight) & 0xffff0000u);
        z.sum += weight;
        w[i] = transpose8(pack_bf16(high, weight - high));
    }
}

template <int D> static __device__ __forceinline__ void add_values(tile_seen<D> &z, const uint32_t w[2], const tile_part &v, int part) {
    const uint32_t *words = &v.of[0].x;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t a[4] = {bytes_of(words[i], words[4 + i], 0x5410), bytes_of(words[i], words[4 + i], 0x7632), bytes_of(words[8 + i], words[12 + i], 0x5410),
                               bytes_of(words[8 + i], words[12 + i], 0x7632)};
        mma_bf16(z.o[part][i], a, w[0], w[1]);
    }
}

// Head t of the set to `to`, D + 2 floats: results, the largest score, the sum of weights. All lanes come here; NULL: there is no such head.
template <int D> static __device__ __forceinline__ void keep_tiles(float *to, const tile_seen<D> &z) {
    int g = threadIdx.x % 32 / 4;
    float sum = z.sum;
#pragma unroll
    for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(FULL, sum, step);
    if (!to) return;
#pragma unroll
    for (int j = 0; j < D / 64; j++)
#pragma unroll
        for (int i = 0; i < 4; i++) *(float2 *)(to + 64 * j + 8 * g + 2 * i) = float2{z.o[j][i][0] + z.o[j][i][1], z.o[j][i][2] + z.o[j][i][3]};
    if (g == 0) to[D] = z.max, to[D + 1] = sum;
}
