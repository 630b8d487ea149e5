// Weights on their way to the tensor cores: a warp's lanes hold 64 elements of 32 rows, four rows each, as codes or bf16 (BITS 4, 8 and 16),
// make bf16 weights q * s + b of them in registers, and take x in the same order.
#pragma once
#include "fp4.cuh"

#define ONE 0x3f803f80u // twice 1, -128 and 16 in bf16
#define MINUS_128 0xc300c300u
#define SIXTEEN 0x41804180u

// Elements between rows of x in shared memory: lanes of a quarter warp then meet all banks.
template <int BITS> static __device__ __forceinline__ constexpr int x_stride() {
    return codes_x_stride(BITS);
}

// This lane's part of 64 elements of a row: 16 codes, or twice eight bf16 numbers.
template <int BITS> static __device__ __forceinline__ void load_row(const unsigned char *row, int64_t k, int t, bool there, uint32_t out[BITS / 2]) {
#pragma unroll
    for (int i = 0; i < BITS / 2; i++) out[i] = 0;
    if (!there) return;
    if (BITS == 4) {
        uint2 v = stream8(row + (k + t * 16) / 2);
        out[0] = v.x, out[1] = v.y;
    } else if (BITS == 8) {
        uint4 v = stream16(row + k + t * 16);
        out[0] = v.x, out[1] = v.y, out[2 % (BITS / 2)] = v.z, out[3 % (BITS / 2)] = v.w;
    } else {
        uint4 v = stream16(row + (k + t * 8) * 2), w = stream16(row + (k + 32 + t * 8) * 2);
        out[0] = v.x, out[1] = v.y, out[2 % (BITS / 2)] = v.z, out[3 % (BITS / 2)] = v.w;
        out[4 % (BITS / 2)] = w.x, out[5 % (BITS / 2)] = w.y, out[6 % (BITS / 2)] = w.z, out[7 % (BITS / 2)] = w.w;
    }
}

// Eight registers of weights, in the order in which x is taken, from this lane's part of a row.
template <int BITS> static __device__ __forceinline__ void unpack(const uint32_t *codes, uint32_t s, uint32_t b, uint32_t out[8]) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (BITS == 16) {
            out[i] = codes[i % (BITS / 2)];
        } else if (BITS == 4) {
            uint32_t q = fma_bf16x2(nibbles_quick(codes[i / 4], i % 4 * 4), ONE, MINUS_128);
            out[i] = fma_bf16x2(q, s, b);
        } else {
            uint32_t low = fma_bf16x2(nibbles_quick(codes[i / 2 % (BITS / 2)], i % 2 * 8), ONE, MINUS_128);
            uint32_t high = fma_bf16x2(nibbles_quick(codes[i / 2 % (BITS / 2)], i % 2 * 8 + 4), ONE, MINUS_128);
            out[i] = fma_bf16x2(fma_bf16x2(high, SIXTEEN, low), s, b);
        }
    }
}

// Sixteen elements of x, twice eight as they lie, in the order of unpack.
template <int BITS> static __device__ __forceinline__ void order_x(uint4 v, uint4 w, uint32_t out[8]) {
    if (BITS == 16) {
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w, out[4] = w.x, out[5] = w.y, out[6] = w.z, out[7] = w.w;
    } else if (BITS == 4) {
        out[0] = bytes_of(v.x, v.z, 0x5410), out[1] = bytes_of(v.x, v.z, 0x7632), out[2] = bytes_of(v.y, v.w, 0x5410), out[3] = bytes_of(v.y, v.w, 0x7632);
        out[4] = bytes_of(w.x, w.z, 0x5410), out[5] = bytes_of(w.x, w.z, 0x7632), out[6] = bytes_of(w.y, w.w, 0x5410), out[7] = bytes_of(w.y, w.w, 0x7632);
    } else {
        out[0] = bytes_of(v.x, v.y, 0x5410), out[1] = bytes_of(v.x, v.y, 0x7632), out[2] = bytes_of(v.z, v.w, 0x5410), out[3] = bytes_of(v.z, v.w, 0x7632);
        out[4] = bytes_of(w.x, w.y, 0x5410), out[5] = bytes_of(w.x, w.y, 0x7632), out[6] = bytes_of(w.z, w.w, 0x5410), out[7] = bytes_of(w.z, w.w, 0x7632);
    }
}

// Where the two eights of a lane begin in 64 elements.
template <int BITS> static __device__ __forceinline__ constexpr int x_first(int t) {
    return BITS == 16 ? t * 8 : t * 16;
}
template <int BITS> static __device__ __forceinline__ constexpr int x_second(int t) {
    return BITS == 16 ? 32 + t * 8 : t * 16 + 8;
}

template <int BITS> static __device__ __forceinline__ void take_x(const bf16 *row, int t, uint32_t out[8]) {
    order_x<BITS>(*(const uint4 *)(row + x_first<BITS>(t)), *(const uint4 *)(row + x_second<BITS>(t)), out);
}

// A scale or bias as it lies: to be asked for early, and used late.
static __device__ __forceinline__ uint32_t meta_raw(const unsigned char *row, int dtype, int64_t i) {
    return dtype == K_F32 ? ((const uint32_t *)row)[i] : ((const uint16_t *)row)[i];
}

// The same twice, as bf16.
static __device__ __forceinline__ uint32_t raw_twice(uint32_t raw, int dtype) {
    if (dtype == K_BF16) return raw | raw << 16;
    float f = dtype == K_F32 ? __uint_as_float(raw) : meta_f32(raw, dtype);
    return pack_bf16(f, f);
}

static __device__ __forceinline__ uint32_t meta_twice(const unsigned char *row, int dtype, int64_t i) {
    return raw_twice(meta_raw(row, dtype, i), dtype);
}

// A scale of mxfp4, twice as bf16.
static __device__ __forceinline__ uint32_t power_twice(uint32_t e) {
    uint32_t u = e == 0 ? 0x0040u : e == 255 ? 0x7fc0u : e << 7;
    return u | u << 16;
}

// ---- 4 bits in tiles (tile.cuh) ----

// Eight registers of bf16 weights from a lane's two words of a row.
static __device__ __forceinline__ void unpack_words(uint32_t first, uint32_t second, uint32_t low, uint32_t high, int dtype, uint32_t out[8]) {
    uint32_t s[2], b[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t meta = i ? high : low;
        if (dtype != K_BF16) meta = pack_bf16(meta_f32(meta & 0xffff, dtype), meta_f32(meta >> 16, dtype));
        s[i] = bytes_of(meta, meta, 0x1010), b[i] = bytes_of(meta, meta, 0x3232);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t q = fma_bf16x2(nibbles_quick(i < 4 ? first : second, i % 4 * 4), ONE, MINUS_128);
        out[i] = fma_bf16x2(q, s[i / 4], b[i / 4]);
    }
}

// A lane's part of a unit: the codes of its two rows, and their scales and biases, of its elements among the first 32 and of those among the others.
struct unit_words {
    uint4 codes;
    uint2 low, high;
};

// runs: groups of a unit. meta: the first run.
template <class WORDS> static __device__ __forceinline__ void take_meta(WORDS &u, const unsigned char *meta, int runs) {
    int t = threadIdx.x % 4;
    meta += threadIdx.x % 32 / 4 * 8;
    u.low = *(const uint2 *)(meta + tile_run_at(t, runs));
    u.high = runs > 1 ? *(const uint2 *)(meta + tile_run_at(4 + t, runs)) : u.low;
}
static __device__ __forceinline__ unit_words unit_with(uint4 codes, const unsigned char *unit, int runs) {
    unit_words u;
    u.codes = codes;
    take_meta(u, unit + TILE_CODES, runs);
    return u;
}
static __device__ __forceinline__ unit_words unit_at(const unsigned char *unit, int runs) {
    return unit_with(*(const uint4 *)(unit + threadIdx.x % 32 * 16), unit, runs);
}

// The weights of both rows.
static __device__ __forceinline__ void unpack_unit(const unit_words &u, int dtype, uint32_t first[8], uint32_t second[8]) {
    unpack_words(u.codes.x, u.codes.y, u.low.x, u.high.x, dtype, first);
    unpack_words(u.codes.z, u.codes.w, u.low.y, u.high.y, dtype, second);
}

// ---- 8 bits in tiles ----

// Two bytes of a word as f32 numbers 32,768 + q: exact, and scale and bias are applied in f32. A bf16 number would have no room for eight bits and its magic.
static __device__ __forceinline__ float byte_f32(uint32_t word, int byte) {
    return __uint_as_float(bytes_of(word, 0x47000000u, 0x7604u | (uint32_t)byte << 4));
}
static __device__ __forceinline__ uint32_t pair8(uint32_t word, int byte, float s, float b) {
    return pack_bf16(fmaf(byte_f32(word, byte), s, b), fmaf(byte_f32(word, byte + 2), s, b));
}

// A lane's part of a unit: codes of k = 8 t and of k = 32 + 8 t, two words of each of its two rows; scales and biases as in unit_words.
struct unit8_words {
    uint4 first, second;
    uint2 low, high;
};
static __device__ __forceinline__ unit8_words unit8_at(const unsigned char *unit, int runs) {
    unit8_words u;
    u.first = *(const uint4 *)(unit + threadIdx.x % 32 * 16), u.second = *(const uint4 *)(unit + 512 + threadIdx.x % 32 * 16);
    take_meta(u, unit + TILE_CODES_8, runs);
    return u;
}

// Four registers of weights, neighbours in pairs, from two words of a row. b + q s as f32: 32,768 s is taken off b, which costs b less than a hundredth of a step.
static __device__ __forceinline__ void unpack_bytes(uint32_t even, uint32_t odd, uint32_t meta, int dtype, uint32_t out[4]) {
    float s = meta_f32(meta & 0xffff, dtype), b = fmaf(-32768.0f, s, meta_f32(meta >> 16, dtype));
    out[0] = pair8(even, 0, s, b), out[1] = pair8(odd, 0, s, b), out[2] = pair8(even, 1, s, b), out[3] = pair8(odd, 1, s, b);
}

// The weights of both rows, as unpack_unit has them.
static __device__ __forceinline__ void unpack_unit8(const unit8_words &u, int dtype, uint32_t first[8], uint32_t second[8]) {
    unpack_bytes(u.first.x, u.first.y, u.low.x, dtype, first);
    unpack_bytes(u.first.z, u.first.w, u.low.y, dtype, second);
    unpack_bytes(u.second.x, u.second.y, u.high.x, dtype, first + 4);
    unpack_bytes(u.second.z, u.second.w, u.high.y, dtype, second + 4);
}

// ---- mxfp4 in tiles ----

// Four registers of bf16 weights; there the bits are the number times 2^-126. s: the scale, twice.
#define TWO_TO_126 0x7e807e80u
static __device__ __forceinline__ void unpack_fp4(uint32_t word, uint32_t s, uint32_t out[4]) {
    const uint32_t small[4] = {with_sign(word, word >> 3 & 0x01c001c0u), with_sign(word << 3, word & 0x01c001c0u), with_sign(word << 1, word << 3 & 0x01c001c0u),
                               with_sign(word << 2, word << 6 & 0x01c001c0u)};
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = fma_bf16x2(fma_bf16x2(small[i], TWO_TO_126, 0), s, 0);
}

// Eight registers of bf16 weights from a lane's two words of a row. powers: the scales of both, in its low bytes.
static __device__ __forceinline__ void unpack_fp4_row(uint32_t first, uint32_t second, uint32_t powers, uint32_t out[8]) {
    unpack_fp4(first, power_twice(powers & 255), out);
    unpack_fp4(second, power_twice(powers >> 8 & 255), out + 4);
}

struct rows4 {
    const unsigned char *values[4], *scales[4], *biases[4];
};

static __device__ __forceinline__ void set_row(rows4 &rows, int i, const k_weight &w, int64_t row) {
    rows.values[i] = w.values + row * w.values_bytes;
    rows.scales[i] = w.scales + row * w.scales_bytes;
    rows.biases[i] = w.biases + row * w.biases_bytes;
}

// 16 x 64 weights of two rows of a lane (and its neighbours') times 64 elements of eight columns.
static __device__ __forceinline__ void mma_rows(float acc[4], const uint32_t *first, const uint32_t *second, const uint32_t x[8]) {
#pragma unroll
    for (int m = 0; m < 4; m++) {
        const uint32_t a[4] = {first[2 * m], second[2 * m], first[2 * m + 1], second[2 * m + 1]};
        mma_bf16(acc, a, x[2 * m], x[2 * m + 1]);
    }
}
