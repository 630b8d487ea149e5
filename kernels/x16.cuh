// Inputs of products with weights of 4 and 8 bits as integers of 16 bits, of units of 64 elements by their largest, in two bytes that fill two columns
// of one product: q = 256 high + low, low signed. That is closer than bf16, and codes become operands by a mask alone. A unit's 128 bytes are the
// bytes `high`, then `low`: 16 for each t = k / 8 % 4, of k / 32 = 0 and then 1, in the order of the codes in a word's even and odd nibbles.
// Beside them stand, for every unit, what one means and the sum of x.
#pragma once
#include "mma.cuh"

enum { LARGEST = 32512 }; // 127 * 256: `high` rounds up to it at most
struct unit_scale {
    float one, sum;
};
static_assert(sizeof(unit_scale) == X16_SCALE_BYTES, "the host counts with as many");
// Sums of 16 elements each, for weights in groups that are shorter than a unit.
struct unit_sums {
    float of[4];
};

// What a unit is scaled by, from the bits of its largest magnitude.
static __device__ __forceinline__ float scale_of(uint32_t largest, float &one) {
    float most = fmaxf(__uint_as_float(largest), 1e-30f);
    if (largest > 0x7d000000u) most = __uint_as_float(0x7fc00000u); // beyond 1e37, infinite or not a number: so is what is made of it
    one = most * (1.0f / LARGEST);
    return __fdividef((float)LARGEST, most);
}
static __device__ __forceinline__ uint32_t magnitude(float x) {
    return __float_as_uint(x) & 0x7fffffffu;
}
static __device__ __forceinline__ uint32_t larger(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}
// The nearest integer: the sum's last bit is 1.
static __device__ __forceinline__ int nearest(float x, float scale) {
    return (int)__float_as_uint(fmaf(x, scale, 12582912.0f)) - 0x4b400000;
}

// Four integers' bytes: the high ones, the low ones.
static __device__ __forceinline__ uint32_t high_bytes(const int q[4]) {
    uint32_t a = bytes_of((uint32_t)q[0] + 128, (uint32_t)q[1] + 128, 0x0051), b = bytes_of((uint32_t)q[2] + 128, (uint32_t)q[3] + 128, 0x0051);
    return bytes_of(a, b, 0x5410);
}
static __device__ __forceinline__ uint32_t low_bytes(const int q[4]) {
    uint32_t a = bytes_of((uint32_t)q[0], (uint32_t)q[1], 0x0040), b = bytes_of((uint32_t)q[2], (uint32_t)q[3], 0x0040);
    return bytes_of(a, b, 0x5410);
}
// Bytes of elements 0 ... 3 and 4 ... 7 in the order of a word's nibbles.
static __device__ __forceinline__ uint2 as_codes_lie(uint32_t first, uint32_t second) {
    return uint2{bytes_of(first, second, 0x5140), bytes_of(first, second, 0x7362)};
}
// From a unit's start to the bytes of elements k ... k + 7.
static __device__ __forceinline__ int bytes_at(int k) {
    return k / 8 % 4 * 16 + k / 32 * 8;
}

// The sum over 2, 4 or 8 neighbouring lanes.
template <int LANES> static __device__ __forceinline__ int sum_neighbours(int x) {
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

// Two elements of every lane, a whole unit: 2 lane and one more. BY_16: with sums of 16 elements instead of the sum of all.
template <bool BY_16 = false> static __device__ __forceinline__ void put_unit(unsigned char *unit, unit_scale *scales, float y, float z, unit_sums *sums = NULL) {
    int lane = threadIdx.x % 32, k = 2 * lane, i = k % 8;
    unit_scale s;
    float scale = scale_of(warp_max_u32(larger(magnitude(y), magnitude(z))), s.one);
    int a = nearest(y, scale), b = nearest(z, scale);
    if (BY_16) {
        s.sum = (float)sum_neighbours<8>(a + b) * s.one;
        if (lane % 8 == 0) sums->of[lane / 8] = s.sum;
    } else s.sum = (float)warp_sum_i32(a + b) * s.one;
    unsigned char *to = unit + bytes_at(k) + i / 2 % 2 * 4 + i / 4;
    to[0] = (unsigned char)((a + 128) >> 8), to[2] = (unsigned char)((b + 128) >> 8);
    to[64] = (unsigned char)a, to[66] = (unsigned char)b;
    if (lane == 0) *scales = s;
}

// Four elements of every lane, 4 lane ..., two units, which share a scale; n: 1 where the second is not there.
template <bool BY_16 = false> static __device__ __forceinline__ void put_two_units(unsigned char *units, unit_scale *scales, const float x[4], int n, unit_sums *sums = NULL) {
    int lane = threadIdx.x % 32, half = lane / 16, q[4];
    unit_scale s;
    float scale = scale_of(warp_max_u32(larger(larger(magnitude(x[0]), magnitude(x[1])), larger(magnitude(x[2]), magnitude(x[3])))), s.one);
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] = nearest(x[i], scale);
    int sum = q[0] + q[1] + q[2] + q[3];
    if (BY_16) s.sum = (float)sum_neighbours<4>(sum) * s.one;
    else {
        int first = warp_sum_i32(half ? 0 : sum), both = warp_sum_i32(sum);
        s.sum = (float)(half ? both - first : first) * s.one;
    }
    uint32_t high = high_bytes(q), low = low_bytes(q), other = __shfl_xor_sync(FULL, lane % 2 ? high : low, 1);
    if (half >= n) return;
    unsigned char *to = units + half * 128 + bytes_at(lane % 16 * 4);
    if (lane % 2 == 0) *(uint2 *)to = as_codes_lie(high, other);
    else *(uint2 *)(to + 64) = as_codes_lie(other, low);
    if (lane % 16 == 0) scales[half] = s;
    if (BY_16 && lane % 4 == 0) sums[half].of[lane % 16 / 4] = s.sum;
}

// Eight elements of every lane, a unit for eight lanes, which are there or not.
template <bool BY_16 = false> static __device__ __forceinline__ void put8(unsigned char *unit, unit_scale *scales, const float x[8], bool there, unit_sums *sums = NULL) {
    int t = threadIdx.x % 8, q[8], sum = 0;
    uint32_t largest = 0;
    unit_scale s;
#pragma unroll
    for (int i = 0; i < 8; i++) largest = larger(largest, magnitude(x[i]));
#pragma unroll
    for (int step = 4; step > 0; step /= 2) largest = larger(largest, __shfl_xor_sync(FULL, largest, step));
    float scale = scale_of(largest, s.one);
#pragma unroll
    for (int i = 0; i < 8; i++) sum += q[i] = nearest(x[i], scale);
    s.sum = (float)sum_neighbours<BY_16 ? 2 : 8>(sum) * s.one;
    if (!there) return;
    if (BY_16 && t % 2 == 0) sums->of[t / 2] = s.sum;
    *(uint2 *)(unit + bytes_at(t * 8)) = as_codes_lie(high_bytes(q), high_bytes(q + 4));
    *(uint2 *)(unit + bytes_at(t * 8) + 64) = as_codes_lie(low_bytes(q), low_bytes(q + 4));
    if (t == 0) *scales = s;
}

// Eight elements of every lane as f16, a unit for eight lanes, which are there or not (f16_scale).
static __device__ __forceinline__ void put8_f16(void *to, float *out_one, const float x[8], bool there) {
    uint32_t largest = 0, pairs[4];
    float one;
#pragma unroll
    for (int i = 0; i < 8; i++) largest = larger(largest, magnitude(x[i]));
#pragma unroll
    for (int step = 4; step > 0; step /= 2) largest = larger(largest, __shfl_xor_sync(FULL, largest, step));
    float scale = f16_scale(largest, one);
#pragma unroll
    for (int i = 0; i < 4; i++) pairs[i] = pack_f16(x[2 * i] * scale, x[2 * i + 1] * scale);
    if (!there) return;
    *(uint4 *)to = uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
    if (threadIdx.x % 8 == 0) *out_one = one;
}
