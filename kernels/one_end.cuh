// Lists of decode steps (kernels/one.cu, few.cu): what becomes of a product's sums. Bias, gate, residual, and the way to who reads the result.
#pragma once
#include "one_ring.cuh"

static __device__ __noinline__ float gated_rare(const k_act &a, float x, float b) {
    return gated(a, x, b);
}
template <int KIND> static __device__ __forceinline__ float gated_by(const k_act &a, int kind, float scale, float y, float up) {
    if (kind == ACT_SILU) return __fdividef(y, 1.0f + __expf(-y)) * (up * scale);
    if (has_sums<KIND>() && kind == ACT_GELU_TANH) { // half of 1 + tanh is the logistic function of twice the argument
        float twice = 1.5957691216057308f * fmaf(0.044715f * y * y, y, y);
        return __fdividef(y, 1.0f + __expf(-twice)) * (up * scale);
    }
    if (KIND != WGE || kind != ACT_CLAMPED_SWIGLU) return gated_rare(a, y, up);
    y = fminf(y, a.p[1]), up = fminf(fmaxf(up, -a.p[1]), a.p[1]) + 1.0f;
    return __fdividef(y, 1.0f + __expf(-a.p[0] * y)) * (up * scale);
}

// What is added to result i: asked for early, waited for where it is used.
struct early {
    uint2 residual;
    float bias, up_bias; // up_bias: of experts
};
template <int KIND> static __device__ __forceinline__ early ask(const k_step_linear &a, int i, int row, int width, bool there) {
    early e = {uint2{0, 0}, 0, 0};
    if (!there) return e;
    bool adds = !(has_sums<KIND>() && a.has_sum); // else x has the residual
    if (adds && a.residual_link) e.residual = load_tagged(a.residual_link + row * width + i);
    else if (adds && a.residual) e.residual.x = __float_as_uint(a.residual[row * a.residual_stride + i]);
    if (a.bias && !(KIND == WGE && a.e.half)) e.bias = a.bias[i];
    return e;
}

// How many results a product has.
static __device__ __forceinline__ int width_of(const k_step_linear &a) {
    if (!a.glu_inner) return (int)a.w.out;
    return (int)a.glu_inner * (a.e.half == K_HALF_INNER ? a.e.k : 1);
}

// What the end of a product asks its instruction for, read while its warps are still coming: behind their meeting every step counts.
struct ending {
    float inv_in, eps, own_scale, residual_scale, act_scale;
    int inner, width, act_kind;
    bool has_norm, has_residual, is_f32;
    uint64_t *link;
    void *y;
    const uint64_t *residual_link;
    uint32_t tag, residual_tag;
};
template <int KIND> static __device__ __forceinline__ ending ending_of(const k_instr &in, uint32_t tag) {
    const k_step_linear &a = in.u.linear;
    ending o;
    o.has_norm = a.has_norm, o.inv_in = a.inv_in, o.eps = a.eps;
    o.inner = (int)a.glu_inner, o.width = has_experts<KIND>() ? width_of(a) : o.inner ? o.inner : (int)a.w.out, o.act_kind = a.act.kind, o.act_scale = a.act.scale;
    o.has_residual = (a.residual || a.residual_link) && !(has_sums<KIND>() && a.has_sum), o.own_scale = a.own_scale, o.residual_scale = a.residual_scale;
    o.link = a.y_link, o.y = a.y, o.is_f32 = a.y_dtype == K_F32, o.residual_link = a.residual_link;
    o.tag = tag + in.number, o.residual_tag = tag + a.residual_maker;
    return o;
}

// at: the result's place among those of all rows.
static __device__ __forceinline__ float add_residual(const ending &o, early &e, int at, float y, bool there, uint32_t *count) {
    if (o.residual_link && there && e.residual.y != o.residual_tag) e.residual.x = wait_tagged(o.residual_link + at, o.residual_tag, count);
    return y * o.own_scale + __uint_as_float(e.residual.x) * o.residual_scale;
}

// next: the result behind it. at_y: the result's place in memory.
static __device__ __forceinline__ void store_result(const ending &o, int at, int64_t at_y, float y, float next, bool stores) {
    if (o.link && o.is_f32 && stores) store_tagged(o.link + at, __float_as_uint(y), o.tag);
    if (o.link && !o.is_f32 && stores && at % 2 == 0) store_tagged(o.link + at / 2, pack_bf16(y, next), o.tag);
    if (o.y && stores) store_f32(o.y, o.is_f32 ? K_F32 : K_BF16, at_y, y);
}
