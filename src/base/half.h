/* Small float formats: f16, bf16, fp8 (E4M3, E5M2), E8M0 scales, fp4 (E2M1). Exact conversions, round to nearest even. */
#ifndef MLXCEL_BASE_HALF_H
#define MLXCEL_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float f32_from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static inline float bf16_to_f32(uint16_t h) {
    return f32_from_bits((uint32_t)h << 16);
}
static inline uint16_t bf16_from_f32(float f) {
    uint32_t u = f32_bits(f);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40); /* a NaN stays a NaN */
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1)) >> 16);
}

float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float f);

float f8e4m3_to_f32(uint8_t b);   /* the "fn" form: no infinities, 0x7F and 0xFF are NaN */
uint8_t f8e4m3_from_f32(float f); /* saturates at 448 */
static inline float e8m0_to_f32(uint8_t b) {
    /* 2^(b-127); the smallest needs a subnormal, 255 is NaN */
    return b == 0 ? f32_from_bits(0x00400000u) : b == 255 ? f32_from_bits(0x7FC00000u) : f32_from_bits((uint32_t)b << 23);
}
extern const float f4e2m1_values[16];

#endif
