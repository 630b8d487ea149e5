// Bodies of kernels/mma.cuh for the emulator: the lanes of a warp put their registers where the others can read them.
#pragma once

static inline float emu_half(uint32_t word, int i) {
    return __uint_as_float((i ? word >> 16 : word & 0xffff) << 16);
}

// Of the matrix that a tensor map of the emulator describes; zero outside.
static inline float emu_map_at(const k_tensor_map *map, int64_t column, int64_t row) {
    if (column >= (int64_t)map->opaque[1] || row >= (int64_t)map->opaque[2]) return 0;
    return __bfloat162float(*(const __nv_bfloat16 *)(map->opaque[0] + row * map->opaque[3] + column * 2));
}

// A lane's operands of a tensor-core product, where the others can read them.
static inline void emu_put_operands(const uint32_t a[4], uint32_t b0, uint32_t b1) {
    for (int i = 0; i < 4; i++) emu_exchange(i)[emu.lane] = a[i];
    emu_exchange(4)[emu.lane] = b0;
    emu_exchange(5)[emu.lane] = b1;
    emu_warp_barrier();
}

static inline float emu_f16(uint32_t word, int i) {
    __half h;
    h.bits = (uint16_t)(i ? word >> 16 : word & 0xffff);
    return __half2float(h);
}

static inline uint32_t pack_f16(float x, float y) {
    return (uint32_t)emu_float2half(y).bits << 16 | emu_float2half(x).bits;
}

static inline void emu_mma16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, float (*half)(uint32_t word, int i)) {
    emu_put_operands(a, b0, b1);
    unsigned g = emu.lane / 4, t = emu.lane % 4;
    for (int i = 0; i < 4; i++) {
        unsigned row = i / 2, column = 2 * t + (unsigned)i % 2; // row: 0 for g, 1 for g + 8
        float sum = d[i];
        for (unsigned k = 0; k < 16; k++) {
            unsigned high = k / 8, lane = k % 8 / 2;
            float x = half((uint32_t)emu_exchange(row + 2 * high)[4 * g + lane], k % 2);
            float y = half((uint32_t)emu_exchange(4 + high)[4 * column + lane], k % 2);
            sum = fmaf(x, y, sum);
        }
        d[i] = sum;
    }
    emu_warp_barrier();
}

static inline void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    emu_mma16(d, a, b0, b1, emu_half);
}

static inline void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    emu_mma16(d, a, b0, b1, emu_f16);
}

// sign: 128 where the bytes of a have one, else 0.
static inline void emu_mma8(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, int sign) {
    emu_put_operands(a, b0, b1);
    unsigned g = emu.lane / 4, t = emu.lane % 4;
    for (int i = 0; i < 4; i++) {
        unsigned row = i / 2, column = 2 * t + (unsigned)i % 2; // row: 0 for g, 1 for g + 8
        for (unsigned k = 0; k < 32; k++) {
            unsigned high = k / 16, lane = k % 16 / 4, shift = k % 4 * 8;
            int x = ((uint8_t)(emu_exchange(row + 2 * high)[4 * g + lane] >> shift) ^ sign) - sign;
            int y = (int8_t)(uint8_t)(emu_exchange(4 + high)[4 * column + lane] >> shift);
            d[i] += x * y;
        }
    }
    emu_warp_barrier();
}

static inline void mma_u8s8(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    emu_mma8(d, a, b0, b1, 0);
}

static inline void mma_s8(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    emu_mma8(d, a, b0, b1, 128);
}

static inline void mma_u8s8_from(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, int32_t c) {
    for (int i = 0; i < 4; i++) d[i] = c;
    mma_u8s8(d, a, b0, b1);
}

static inline void mma_s8_from(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, int32_t c) {
    for (int i = 0; i < 4; i++) d[i] = c;
    mma_s8(d, a, b0, b1);
}

static inline uint32_t warp_max_u32(uint32_t x) {
    for (int step = 16; step > 0; step /= 2) {
        uint32_t y = __shfl_xor_sync(FULL, x, step);
        x = x > y ? x : y;
    }
    return x;
}
static inline int warp_sum_i32(int x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

static inline void emu_ldmatrix(uint32_t d[4], const void *row, bool trans) {
    emu_exchange(6)[emu.lane] = (uint64_t)row;
    emu_warp_barrier();
    unsigned g = emu.lane / 4, t = emu.lane % 4;
    for (unsigned m = 0; m < 4; m++) {
        uint16_t low, high;
        if (trans) {
            low = ((const uint16_t *)emu_exchange(6)[8 * m + 2 * t])[g];
            high = ((const uint16_t *)emu_exchange(6)[8 * m + 2 * t + 1])[g];
        } else {
            low = ((const uint16_t *)emu_exchange(6)[8 * m + g])[2 * t];
            high = ((const uint16_t *)emu_exchange(6)[8 * m + g])[2 * t + 1];
        }
        d[m] = low | (uint32_t)high << 16;
    }
    emu_warp_barrier();
}
static inline void ldmatrix4(uint32_t d[4], const void *row) {
    emu_ldmatrix(d, row, false);
}
static inline void ldmatrix4_trans(uint32_t d[4], const void *row) {
    emu_ldmatrix(d, row, true);
}

static inline uint32_t transpose8(uint32_t x) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, shift = g % 2 * 16;
    uint32_t first = __shfl_sync(FULL, x, 8 * t + g / 2), second = __shfl_sync(FULL, x, 8 * t + 4 + g / 2);
    return (first >> shift & 0xffff) | (second >> shift & 0xffff) << 16;
}

static inline void copy16(void *to, const void *from, bool there) {
    if (there) memcpy(to, from, 16);
    else memset(to, 0, 16);
}
static inline void copy_commit() {}
template <int N> static inline void copy_wait() {}

static inline uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t low = __float2bfloat16_rn(fmaf(emu_half(a, 0), emu_half(b, 0), emu_half(c, 0))).bits;
    uint32_t high = __float2bfloat16_rn(fmaf(emu_half(a, 1), emu_half(b, 1), emu_half(c, 1))).bits;
    return low | high << 16;
}
static inline uint4 stream16(const void *p) {
    return *(const uint4 *)p;
}
static inline uint2 stream8(const void *p) {
    return *(const uint2 *)p;
}
static inline uint32_t stream4(const void *p) {
    return *(const uint32_t *)p;
}
static inline uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t which) {
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) out |= (uint32_t)(both >> 8 * (which >> 4 * i & 7) & 0xff) << 8 * i;
    return out;
}
