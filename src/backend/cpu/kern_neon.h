/* Vectors of four floats: what the templates (kern_tmpl.h, kern_plain_tmpl.h) stand on. */
#ifndef MLXCEL_BACKEND_CPU_KERN_NEON_H
#define MLXCEL_BACKEND_CPU_KERN_NEON_H

#include "backend/cpu/kern.h"

#include <arm_neon.h>

typedef float32x4_t vf;
enum { VW = 4 };

static inline vf v_load(const float *p) {
    return vld1q_f32(p);
}
static inline void v_store(float *p, vf a) {
    vst1q_f32(p, a);
}
static inline vf v_set(float a) {
    return vdupq_n_f32(a);
}
static inline vf v_fma(vf a, vf b, vf c) {
    return vfmaq_f32(c, a, b);
}
static inline vf v_add(vf a, vf b) {
    return vaddq_f32(a, b);
}
static inline vf v_sub(vf a, vf b) {
    return vsubq_f32(a, b);
}
static inline vf v_mul(vf a, vf b) {
    return vmulq_f32(a, b);
}
static inline vf v_div(vf a, vf b) {
    return vdivq_f32(a, b);
}
static inline vf v_max(vf a, vf b) {
    return vmaxq_f32(a, b);
} /* a NaN stays */
static inline vf v_min(vf a, vf b) {
    return vminq_f32(a, b);
}
static inline vf v_most(vf a, vf b) {
    return vmaxnmq_f32(a, b);
} /* a where b is no number */
static inline float v_peak(vf a) {
    return vmaxvq_f32(a);
}
static inline vf v_round(vf a) {
    return vrndnq_f32(a);
}
static inline vf v_exp2(vf n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127)), 23));
}
static inline float v_sum(vf a) {
    return vaddvq_f32(a);
}
static inline vf v_f16(const uint16_t *p) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
static inline vf v_bf16(const uint16_t *p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}
static inline void v_store_f16(uint16_t *p, vf a) {
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(a)));
}
/* The first and the second ones of VW pairs of bf16. */
static inline vf v_bf16_first(const void *p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_u8(vld1q_u8(p)), 16));
}
static inline vf v_bf16_second(const void *p) {
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_u8(vld1q_u8(p)), vdupq_n_u32(0xFFFF0000u)));
}

#endif
