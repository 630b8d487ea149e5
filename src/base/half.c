/* Small float formats, by integer arithmetic on the bits, so that every platform rounds alike. */
#include "base/half.h"

const float f4e2m1_values[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 0x1F, fraction = h & 0x3FF;
    if (exponent == 31) return f32_from_bits(sign | 0x7F800000u | fraction << 13);
    if (exponent) return f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = (float)fraction * (1.0f / 16777216.0f); /* subnormal: fraction * 2^-24 */
    return sign ? -magnitude : magnitude;
}

uint16_t f16_from_f32(float f) {
    uint32_t u = f32_bits(f), sign = u >> 16 & 0x8000u;
    u &= 0x7FFFFFFFu;
    if (u > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
    if (u >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* rounds to infinity */
    if (u < 0x38800000u) {                                   /* subnormal: let float addition round at 2^-24 */
        float shifted = f32_from_bits(u) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - 0x3F000000u));
    }
    u += 0xFFFu + (u >> 13 & 1);
    return (uint16_t)(sign | (u - 0x38000000u) >> 13);
}

float f8e4m3_to_f32(uint8_t b) {
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, exponent = b >> 3 & 0xF, fraction = b & 7;
    if (exponent == 15 && fraction == 7) return f32_from_bits(sign | 0x7FC00000u);
    if (exponent) return f32_from_bits(sign | (exponent + 120) << 23 | fraction << 20);
    float magnitude = (float)fraction * (1.0f / 512.0f);
    return sign ? -magnitude : magnitude;
}

uint8_t f8e4m3_from_f32(float f) {
    uint32_t u = f32_bits(f), sign = u >> 24 & 0x80u;
    u &= 0x7FFFFFFFu;
    if (u > 0x7F800000u) return (uint8_t)(sign | 0x7F);
    if (u >= 0x43E80000u) return (uint8_t)(sign | 0x7E); /* 464 and above: the largest, 448 */
    if (u < 0x3C800000u) {                               /* below 2^-6: subnormal, steps of 2^-9 */
        float shifted = f32_from_bits(u) + 16384.0f;
        return (uint8_t)(sign | (f32_bits(shifted) - 0x46800000u));
    }
    u += 0x7FFFFu + (u >> 20 & 1);
    return (uint8_t)(sign | (u - 0x3C000000u) >> 20);
}
