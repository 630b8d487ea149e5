// kernels/one.cu: x on its way to shared memory, and how it lies there.
//
// For weights of bf16, x is bf16. For those of 4 bits it is integers of 16 bits, of units of 64 elements by their largest, in two bytes that
// fill two columns of one product: q = 256 high + low, low signed. That is closer than bf16, and codes become operands by a mask alone. A
// unit's 128 bytes are the bytes `high`, then `low`: 16 for each t = k / 8 % 4, of k / 32 = 0 and then 1, in the order of the
// codes in a word's even and odd nibbles. Beside them stand, for every unit, what one means and the sum of x.
#pragma once
#include "one_ring.cuh"

enum { LARGEST = 32512 }; // 127 * 256: `high` rounds up to it at most
struct unit_scale {
    float one, sum;
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

// Two elements of every lane, a whole unit: 2 lane and one more.
static __device__ __forceinline__ void put_unit(unsigned char *unit, unit_scale *scales, float y, float z) {
    int lane = threadIdx.x % 32, k = 2 * lane, i = k % 8;
    unit_scale s;
    float scale = scale_of(warp_max_u32(larger(magnitude(y), magnitude(z))), s.one);
    int a = nearest(y, scale), b = nearest(z, scale);
    s.sum = (float)warp_sum_i32(a + b) * s.one;
    unsigned char *to = unit + bytes_at(k) + i / 2 % 2 * 4 + i / 4;
    to[0] = (unsigned char)((a + 128) >> 8), to[2] = (unsigned char)((b + 128) >> 8);
    to[64] = (unsigned char)a, to[66] = (unsigned char)b;
    if (lane == 0) *scales = s;
}

// Four elements of every lane, 4 lane ..., two units, which share a scale; n: 1 where the second is not there.
static __device__ __forceinline__ void put_two_units(unsigned char *units, unit_scale *scales, const float x[4], int n) {
    int lane = threadIdx.x % 32, half = lane / 16, q[4];
    unit_scale s;
    float scale = scale_of(warp_max_u32(larger(larger(magnitude(x[0]), magnitude(x[1])), larger(magnitude(x[2]), magnitude(x[3])))), s.one);
#pragma unroll
    for (int i = 0; i < 4; i++) q[i] = nearest(x[i], scale);
    int sum = q[0] + q[1] + q[2] + q[3], first = warp_sum_i32(half ? 0 : sum), both = warp_sum_i32(sum);
    s.sum = (float)(half ? both - first : first) * s.one;
    uint32_t high = high_bytes(q), low = low_bytes(q), other = __shfl_xor_sync(FULL, lane % 2 ? high : low, 1);
    if (half >= n) return;
    unsigned char *to = units + half * 128 + bytes_at(lane % 16 * 4);
    if (lane % 2 == 0) *(uint2 *)to = as_codes_lie(high, other);
    else *(uint2 *)(to + 64) = as_codes_lie(other, low);
    if (lane % 16 == 0) scales[half] = s;
}

// Eight elements of every lane, a unit for eight lanes, which are there or not.
static __device__ __forceinline__ void put8(unsigned char *unit, unit_scale *scales, const float x[8], bool there) {
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
#pragma unroll
    for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
    s.sum = (float)sum * s.one;
    if (!there) return;
    *(uint2 *)(unit + bytes_at(t * 8)) = as_codes_lie(high_bytes(q), high_bytes(q + 4));
    *(uint2 *)(unit + bytes_at(t * 8) + 64) = as_codes_lie(low_bytes(q), low_bytes(q + 4));
    if (t == 0) *scales = s;
}

// A warp's part of x in shared memory: units of 128 bytes, and their scales.
struct x_part {
    unsigned char *units;
    unit_scale *scales;
};

// A warp's part of an x that lies in memory as it is: elements [begin, begin + n). Returns this lane's squares.
template <int KIND> static __device__ __noinline__ float stage_plain(const k_step_linear &a, x_part x, int begin, int n) {
    float square = 0, offset = a.norm_offset;
    int64_t from = (a.x_rows ? a.x_rows[0] : 0) * a.x_stride;
    for (int base = 0, lane = threadIdx.x % 32; base < n; base += 256) {
        int i = base + lane * 8;
        float v[8] = {0}, w[8];
        if (i < n) load8(a.x, a.x_dtype, from + begin + i, v);
        if (i < n && a.norm) load8(a.norm, K_F32, begin + i, w);
#pragma unroll
        for (int j = 0; j < 8; j++) {
            if (!a.has_norm) continue;
            square = fmaf(v[j], v[j], square);
            if (a.norm) v[j] *= (i < n ? w[j] : 0.0f) + offset;
        }
        if (KIND == W16 && i < n) *(uint4 *)(x.units + i * 2) = uint4{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3]), pack_bf16(v[4], v[5]), pack_bf16(v[6], v[7])};
        if (KIND == W16) continue;
        put8(x.units + i / 64 * 128, x.scales + i / 64, v, i < n);
    }
    return square;
}

// The same of links: words of an f32, or of two bf16, which no norm follows. POLLS pairs of words of a lane are under way at once, since each
// is a trip to L2; those that were not there yet are asked for again. While the first are on their way, the warp's ring is filled up.
template <int KIND, int WARPS>
static __device__ __forceinline__ float stage_linked(const k_step_linear &a, x_part x, int begin, int n, uint32_t tag, ring_state &r, shared_head *head, int limit, const k_step_run &run, int at, coming &next) {
    enum { POLLS = KIND == W16 ? 2 : 4 };
    float square = 0, offset = a.norm_offset;
    bool f32 = a.x_dtype == K_F32, has_norm = a.has_norm;
    const uint64_t *link = a.x_link + (f32 ? begin : begin / 2);
    const float *norm = a.norm;
    int words = f32 ? n : n / 2, lane = threadIdx.x % 32;
#pragma unroll 1
    for (int base = 0; base < words; base += 64 * POLLS) {
        uint4 v[POLLS];
        float2 w[POLLS];
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int i = base + 64 * j + 2 * lane;
            v[j] = uint4{0, tag, 0, tag};
            w[j] = float2{1.0f - offset, 1.0f - offset};
            if (i < words) v[j] = load_tagged2(link + i);
            if (norm && i < words) w[j] = *(const float2 *)(norm + begin + i);
        }
        if (base == 0) next = begin_instr(run, head, at);
        if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
        for (int polls = 1;; polls++) {
            bool there = true;
#pragma unroll
            for (int j = 0; j < POLLS; j++) there = there && v[j].y == tag && v[j].w == tag;
            if (in_all_lanes(there)) break;
#pragma unroll
            for (int j = 0; j < POLLS; j++)
                if (v[j].y != tag || v[j].w != tag) v[j] = load_tagged2(link + base + 64 * j + 2 * lane);
            if (is_long(polls) && gave_up(run.barrier, polls)) break;
        }
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int word = base + 64 * j, i = word + 2 * lane;
            if (word >= words) continue; // the same for all lanes
            float y = __uint_as_float(v[j].x), z = __uint_as_float(v[j].z);
            if (f32 && has_norm) {
                square = fmaf(z, z, fmaf(y, y, square));
                y *= w[j].x + offset, z *= w[j].y + offset;
            }
            if (KIND == W16 && i < words) {
                if (f32) *(uint32_t *)(x.units + 2 * i) = pack_bf16(y, z);
                else *(uint2 *)(x.units + 4 * i) = uint2{v[j].x, v[j].z};
            }
            if (KIND == W16) continue;
            if (f32) put_unit(x.units + word * 2, x.scales + word / 64, y, z);
            else {
                const float four[4] = {__uint_as_float(v[j].x << 16), __uint_as_float(v[j].x & 0xffff0000u), __uint_as_float(v[j].z << 16), __uint_as_float(v[j].z & 0xffff0000u)};
                put_two_units(x.units + word * 4, x.scales + word / 32, four, words - word < 64 ? 1 : 2);
            }
        }
    }
    return square;
}
