// Lists of decode steps (kernels/one.cu, few.cu): codes of quantised weights as operands of byte products, and what their sums weigh.
#pragma once
#include "one_ring.cuh"

// Codes of a unit of a tile as bytes, the operands of two products: 8 bits lie so.
template <int FORMAT> struct unit_codes;
template <> struct unit_codes<W4> {
    uint32_t q[4];
    __device__ __forceinline__ void load(const unsigned char *unit) { *(uint4 *)q = *(const uint4 *)(unit + threadIdx.x % 32 * 16); }
    __device__ __forceinline__ void first(uint32_t a[4]) const { a[0] = q[0] & 0x0f0f0f0fu, a[1] = q[2] & 0x0f0f0f0fu, a[2] = q[0] >> 4 & 0x0f0f0f0fu, a[3] = q[2] >> 4 & 0x0f0f0f0fu; }
    __device__ __forceinline__ void second(uint32_t a[4]) const { a[0] = q[1] & 0x0f0f0f0fu, a[1] = q[3] & 0x0f0f0f0fu, a[2] = q[1] >> 4 & 0x0f0f0f0fu, a[3] = q[3] >> 4 & 0x0f0f0f0fu; }
};
template <> struct unit_codes<W8> {
    uint4 low, high;
    __device__ __forceinline__ void load(const unsigned char *unit) { low = *(const uint4 *)(unit + threadIdx.x % 32 * 16), high = *(const uint4 *)(unit + 512 + threadIdx.x % 32 * 16); }
    __device__ __forceinline__ void first(uint32_t a[4]) const { a[0] = low.x, a[1] = low.z, a[2] = low.y, a[3] = low.w; }
    __device__ __forceinline__ void second(uint32_t a[4]) const { a[0] = high.x, a[1] = high.z, a[2] = high.y, a[3] = high.w; }
};

// Adds what the sums of each tile's two rows weigh: of the high and low bytes of x, with the scale and the bias of their group.
template <int TILES, int DTYPE>
static __device__ __forceinline__ void weigh(float out[4], const int32_t sums[TILES][4], const uint2 meta[TILES], float one, float x_sum) {
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint32_t words[2] = {meta[i].x, meta[i].y};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float scale = meta_f32(words[r] & 0xffff, DTYPE) * one, bias = meta_f32(words[r] >> 16, DTYPE);
            float high = __uint_as_float((uint32_t)sums[i][2 * r]) - 12582912.0f, low = __uint_as_float((uint32_t)sums[i][2 * r + 1]) - 12582912.0f;
            out[2 * i + r] = fmaf(bias, x_sum, fmaf(scale, fmaf(256.0f, high, low), out[2 * i + r]));
        }
    }
}
