// Units of tiles (tile.cuh) to rows of bf16: a warp takes 16 rows x 64 elements, 16 or 32 bytes per lane on the tiles' side.
#pragma once
#include "codes.cuh"

// HALVES: groups of 32 or 16, two or four in a unit.
template <bool HALVES> static __device__ __forceinline__ unit_words unit_load(const k_weight &w, int64_t tile, int unit) {
    return unit_at(w.values + tile * w.tile_bytes + (int64_t)unit * tile_unit_bytes(w), HALVES ? tile_runs(w.group) : 1);
}

// Eight codes as bf16: q * s + b, rounded once where scale and bias are bf16, else in f32 first.
static __device__ __forceinline__ uint4 dequantise8(uint32_t word, uint32_t meta, int dtype) {
    uint32_t pairs[4];
    if (dtype == K_BF16) {
        uint32_t s = bytes_of(meta, meta, 0x1010), b = bytes_of(meta, meta, 0x3232);
#pragma unroll
        for (int i = 0; i < 4; i++) pairs[i] = fma_bf16x2(fma_bf16x2(nibbles_quick(word, 4 * i), 0x3f803f80u, 0xc300c300u), s, b); // (128 + q) - 128 is exact
        return uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
    }
    float s = meta_f32(meta & 0xffff, dtype), b = meta_f32(meta >> 16, dtype);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = (float)(word >> 4 * i & 15), y = (float)(word >> (4 * i + 16) & 15);
        pairs[i] = pack_bf16(__fadd_rn(__fmul_rn(x, s), b), __fadd_rn(__fmul_rn(y, s), b));
    }
    return uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
}

// to: where the unit's first element goes, rows of w.in elements; n: how many of the 16 rows there are.
template <bool HALVES> static __device__ __forceinline__ void unit_store(const k_weight &w, bf16 *to, const unit_words &u, int n) {
    int lane = threadIdx.x % 32, g = lane / 4;
    uint2 high = HALVES ? u.high : u.low;
    to += g * w.in + 8 * (lane % 4);
    if (g < n) {
        *(uint4 *)to = dequantise8(u.codes.x, u.low.x, w.dtype);
        *(uint4 *)(to + 32) = dequantise8(u.codes.y, high.x, w.dtype);
    }
    if (g + 8 < n) {
        to += 8 * w.in;
        *(uint4 *)to = dequantise8(u.codes.z, u.low.y, w.dtype);
        *(uint4 *)(to + 32) = dequantise8(u.codes.w, high.y, w.dtype);
    }
}

// ---- the same of 8 bits ----

static __device__ __forceinline__ unit8_words unit_load8(const k_weight &w, int64_t tile, int unit) {
    return unit8_at(w.values + tile * w.tile_bytes + (int64_t)unit * tile_unit_bytes(w), tile_runs(w.group));
}

static __device__ __forceinline__ void unit_store8(const k_weight &w, bf16 *to, const unit8_words &u, int n) {
    int lane = threadIdx.x % 32, g = lane / 4;
    uint32_t low[8], high[8];
    unpack_unit8(u, w.dtype, low, high);
    to += g * w.in + 8 * (lane % 4);
    if (g < n) {
        *(uint4 *)to = uint4{low[0], low[1], low[2], low[3]};
        *(uint4 *)(to + 32) = uint4{low[4], low[5], low[6], low[7]};
    }
    if (g + 8 < n) {
        to += 8 * w.in;
        *(uint4 *)to = uint4{high[0], high[1], high[2], high[3]};
        *(uint4 *)(to + 32) = uint4{high[4], high[5], high[6], high[7]};
    }
}
