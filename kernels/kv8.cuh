// The cache of 8 bits: how vectors lie in it, and how they come and go. The CPU's cache of --kv-bits 8 has the same numbers in another order.
//
// A block of one cached head is K_BLOCK vectors of whole numbers from -127 to 127, then one scale (f32) for each. Keys are [K_BLOCK][width]; values are
// [K_BLOCK / 4][width][4], so that an element of four positions is a word: the operand of a tensor-core product along the positions. Vectors are turned by a Hadamard matrix first, in
// parts of the largest power of two that divides the width, so that one scale serves all elements. The matrix H is not normed: H H is the size, and
// scales are divided by it. So a turned query times a cached key is the score, and a sum of cached values is only to be turned.
#pragma once
#include "common.cuh"

enum { KV8_CODE_MAX = 127, KV8_MULTIPLIER_MAX = 127 * 256 }; // multipliers are numbers of 16 bits in two bytes, 256 high + low
#define ROUNDER 12582912.0f // 1.5 * 2^23: what is added to it is rounded to a whole number, which its low bits are
enum { ROUNDER_BITS = 0x4b400000 };

static __device__ __forceinline__ int turn_size(int width) {
    return width & -width;
}

// A warp's vector turned in place. Lane l has elements 32 i + l; those beyond the width are zero.
template <int N> static __device__ __forceinline__ void turn_lanes(float x[N], int size) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        if (step >= size) break;
#pragma unroll
        for (int i = 0; i < N; i++) {
            float y = __shfl_xor_sync(FULL, x[i], step);
            x[i] = lane & step ? y - x[i] : x[i] + y;
        }
    }
#pragma unroll
    for (int step = 1; step < N; step *= 2) {
        if (step * 32 >= size) break;
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i & step || (i | step) >= N) continue;
            float a = x[i], b = x[(i | step) % N];
            x[i] = a + b, x[(i | step) % N] = a - b;
        }
    }
}

// The same for vectors of 32 N elements, a power of two, of which lane l has elements N l ... N l + N - 1.
template <int N> static __device__ __forceinline__ void turn_runs(float x[N]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int step = 1; step < N; step *= 2)
#pragma unroll
        for (int i = 0; i < N; i++) {
            if (i & step) continue;
            float a = x[i], b = x[i | step];
            x[i] = a + b, x[i | step] = a - b;
        }
#pragma unroll
    for (int step = 1; step < 32; step *= 2)
#pragma unroll
        for (int i = 0; i < N; i++) {
            float y = __shfl_xor_sync(FULL, x[i], step);
            x[i] = lane & step ? y - x[i] : x[i] + y;
        }
}

// What makes whole numbers up to a limit of a vector, and what one of them means: no number where one of the vector is none.
struct rounding {
    float inverse, scale;
};
template <int N> static __device__ __forceinline__ rounding rounding_of(const float x[N], float limit) {
    uint32_t most = 0; // magnitudes are in the order of their bits
#pragma unroll
    for (int i = 0; i < N; i++) {
        uint32_t bits = __float_as_uint(x[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        uint32_t other = __shfl_xor_sync(FULL, most, step);
        most = other > most ? other : most;
    }
    float largest = __uint_as_float(most);
    bool is_finite = most < 0x7f800000u;
    return rounding{is_finite && largest > 1e-30f ? limit / largest : 0.0f, is_finite ? largest * (1.0f / limit) : __uint_as_float(0x7fc00000u)};
}
static __device__ __forceinline__ int whole(float x) {
    return (int)(__float_as_uint(x + ROUNDER) - ROUNDER_BITS);
}

// ---- addresses ----

static __device__ __forceinline__ unsigned char *kv8_block(const k_cache &c, bool values, int64_t block, int head) {
    return (unsigned char *)(values ? c.v : c.k) + (block * c.heads + head) * kv8_block_bytes(values ? c.v_width : c.k_width);
}
static __device__ __forceinline__ float *kv8_scales(unsigned char *block, int width) {
    return (float *)(block + K_BLOCK * width);
}
// Of element 0 at a position; elements of keys are one byte apart, of values four.
static __device__ __forceinline__ int kv8_key_at(int width, int at) {
    return at * width;
}
static __device__ __forceinline__ int kv8_value_at(int width, int at) {
    return at / 4 * 4 * width + at % 4;
}

// Codes of a warp's turned vector, lane l those of its elements 32 i + l. Returns the scale.
template <int N> static __device__ __forceinline__ float kv8_codes(const float x[N], int width, int codes[N]) {
    rounding r = rounding_of<N>(x, (float)KV8_CODE_MAX);
#pragma unroll
    for (int i = 0; i < N; i++) codes[i] = whole(x[i] * r.inverse);
    return r.scale / (float)turn_size(width);
}

// They go to a position of a block.
template <int N> static __device__ __forceinline__ void kv8_store(unsigned char *block, const int codes[N], float scale, int width, int at, bool is_value) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < N; i++) {
        int e = i * 32 + lane;
        if (e < width) block[is_value ? kv8_value_at(width, at) + 4 * e : kv8_key_at(width, at) + e] = (unsigned char)codes[i];
    }
    if (lane == 0) kv8_scales(block, width)[at] = scale;
}

// A warp's vector, lane l has its elements 32 i + l, turned and stored.
template <int N> static __device__ __forceinline__ void kv8_turn_store(unsigned char *block, float x[N], int width, int at, bool is_value) {
    int codes[N];
    turn_lanes<N>(x, turn_size(width));
    float scale = kv8_codes<N>(x, width, codes);
    kv8_store<N>(block, codes, scale, width, at, is_value);
}
