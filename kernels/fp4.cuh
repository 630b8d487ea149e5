// Weights of mxfp4 in tiles (tile.cuh) as f16 without their scales, and the scales of sums: products of f16 that round no weight.
#pragma once
#include "mma.cuh"

// What a weight's f16 number must be multiplied with.
#define FP4_ONE 16384.0f

// Bits 15 and 31 of `sign`, beside a magnitude.
static __device__ __forceinline__ uint32_t with_sign(uint32_t sign, uint32_t magnitude) {
    return (sign & 0x80008000u) | magnitude;
}

// Four registers of f16 from a word: weights without their scale, times 2^-14. The three bits of a magnitude, at the border of exponent and mantissa, are the
// number times 2^-14, the denormal ones too.
static __device__ __forceinline__ void fp4_halves(uint32_t word, uint32_t out[4]) {
    out[0] = word & 0x8e008e00u;
    out[1] = word << 3 & 0x8e008e00u;
    out[2] = with_sign(word << 1, word << 6 & 0x0e000e00u);
    out[3] = with_sign(word << 2, word << 9 & 0x0e000e00u);
}

// d = a b (mma_f16).
static __device__ __forceinline__ void mma_f16_new(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
#ifdef MLXCEL_EMULATE
    d[0] = d[1] = d[2] = d[3] = 0;
    mma_f16(d, a, b0, b1);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
#endif
}

// A lane's part of a unit: codes as in unit_words, and a byte for the scale of each of its four words.
struct fp4_words {
    uint4 codes;
    uint32_t powers;
};
static __device__ __forceinline__ fp4_words fp4_at(const unsigned char *unit) {
    return fp4_words{*(const uint4 *)(unit + threadIdx.x % 32 * 16), *(const uint32_t *)(unit + TILE_CODES + threadIdx.x % 32 / 4 * 4)};
}
// The scale of word i as f32. A power of 0 is 2^-127, which products take for nothing.
static __device__ __forceinline__ float fp4_power(uint32_t powers, int i) {
    return __uint_as_float(bytes_of(powers, 0, (uint32_t)i << 12 | 0x0444u) >> 1);
}
