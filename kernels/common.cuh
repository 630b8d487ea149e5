// What kernels use more than once: element types, warp and block sums, activations, weight formats. C-like CUDA: templates over types and
// sizes, no classes, no library. Everything accumulates in f32 and nothing uses approximate functions (no fast-math).
#pragma once
#include "backend/cuda/shared/layout.h"

#ifdef MLXCEL_EMULATE // tests/cuda/emu: the same sources as ordinary C++, thread by thread
#include "emu.h"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define KARGS(type) const __grid_constant__ type
#define DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#endif

#include "tile.cuh"

#define FULL 0xffffffffu

// Kernels of a graph that begin while the one before is still at work (EARLY in src/backend/cuda/device/kernels.def): what it wrote may be read, and what it
// reads be written, after await_previous alone. Every block calls it, so that a kernel never ends before those before it.
static __device__ __forceinline__ void let_next_begin() {
#if !defined(MLXCEL_EMULATE) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
static __device__ __forceinline__ void await_previous() {
#if !defined(MLXCEL_EMULATE) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void after_previous() {
    let_next_begin();
    await_previous();
}

typedef __nv_bfloat16 bf16;

static __device__ __forceinline__ float warp_sum(float x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

static __device__ __forceinline__ float warp_max(float x) {
    for (int step = 16; step > 0; step /= 2) x = fmaxf(x, __shfl_xor_sync(FULL, x, step));
    return x;
}

// The sum over a block, in every thread. scratch has room for 32 floats; blockDim.x is a multiple of 32.
static __device__ __forceinline__ float block_sum(float x, float *scratch) {
    x = warp_sum(x);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n_warps = blockDim.x / 32;
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    float total = warp_sum(lane < n_warps ? scratch[lane] : 0.0f);
    __syncthreads();
    return total;
}

// ---- elements ----

static __device__ __forceinline__ float load_as_f32(const void *p, int dtype, int64_t i) {
    if (dtype == K_F32) return ((const float *)p)[i];
    if (dtype == K_BF16) return __bfloat162float(((const bf16 *)p)[i]);
    return __half2float(((const __half *)p)[i]);
}

static __device__ __forceinline__ void store_f32(void *p, int dtype, int64_t i, float x) {
    if (dtype == K_F32) ((float *)p)[i] = x;
    else ((bf16 *)p)[i] = __float2bfloat16_rn(x);
}

static __device__ __forceinline__ uint32_t pack_bf16(float x, float y) {
    union {
        __nv_bfloat162 h;
        uint32_t u;
    } v;
    v.h = __floats2bfloat162_rn(x, y);
    return v.u;
}

// A scale or bias, stored as dtype.
static __device__ __forceinline__ float meta_f32(uint32_t half, int dtype) {
    union {
        uint16_t u;
        __half h;
    } v;
    if (dtype == K_BF16) return __uint_as_float(half << 16);
    v.u = (uint16_t)half;
    return __half2float(v.h);
}

static __device__ __forceinline__ uint16_t half_bits(float x) {
#ifdef MLXCEL_EMULATE
    return emu_float2half(x).bits;
#else
    return __half_as_ushort(__float2half_rn(x));
#endif
}

// The larger parts of x and y as bf16; what is missing stays in them.
static __device__ __forceinline__ uint32_t take_term(float &x, float &y) {
    uint32_t pair = pack_bf16(x, y);
    x -= __uint_as_float(pair << 16), y -= __uint_as_float(pair & 0xffff0000u);
    return pair;
}

// Eight bf16 numbers as floats.
static __device__ __forceinline__ void floats_of(uint4 v, float out[8]) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++) out[2 * i] = __uint_as_float(words[i] << 16), out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
}

// Eight elements of f32 or bf16, at a multiple of 16 bytes, in one piece: eight loads with a test of the type before each would wait for each other.
static __device__ __forceinline__ void load8(const void *p, int dtype, int64_t at, float out[8]) {
    if (dtype == K_BF16) {
        floats_of(*(const uint4 *)((const bf16 *)p + at), out);
        return;
    }
    *(float4 *)out = *(const float4 *)((const float *)p + at), *(float4 *)(out + 4) = *(const float4 *)((const float *)p + at + 4);
}

static __device__ __forceinline__ float view_load(const k_view &v, int64_t row, int64_t head, int64_t i) {
    return load_as_f32(v.p, v.dtype, row * v.row_stride + head * v.head_stride + i);
}

static __device__ __forceinline__ void view_store(const k_view &v, int64_t row, int64_t head, int64_t i, float x) {
    store_f32(v.p, v.dtype, row * v.row_stride + head * v.head_stride + i, x);
}

// ---- sums of products in parts along k: n of them, `stride` elements apart, added in their order ----

static __device__ __forceinline__ float parts_sum(const float *p, int n, int64_t stride) {
    float sum = 0;
#pragma unroll 4
    for (int s = 0; s < n; s++) sum += p[s * stride];
    return sum;
}

// Of four neighbours; everything a multiple of 16 bytes. Eight parts are asked for at once.
static __device__ __forceinline__ float4 parts_sum4(const float *p, int n, int64_t stride) {
    enum { AT_ONCE = 8 };
    float4 sum = {0, 0, 0, 0};
    for (int first = 0; first < n; first += AT_ONCE) {
        float4 x[AT_ONCE];
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++)
            if (first + s < n) x[s] = *(const float4 *)(p + (first + s) * stride);
#pragma unroll
        for (int s = 0; s < AT_ONCE; s++)
            if (first + s < n) sum.x += x[s].x, sum.y += x[s].y, sum.z += x[s].z, sum.w += x[s].w;
    }
    return sum;
}

// ---- activations ----

static __device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + expf(-x));
}

static __device__ __forceinline__ float softplus(float x) {
    return x > 20.0f ? x : log1pf(expf(x));
}

static __device__ __noinline__ float act_rare(int kind, float x, const float *p) {
    switch (kind) {
    case ACT_GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case ACT_TANH: return tanhf(x);
    case ACT_SOFTPLUS: return softplus(x);
    case ACT_SQRT_SOFTPLUS: return sqrtf(softplus(x));
    case ACT_SOFTCAP: return p[0] * tanhf(x / p[0]);
    case ACT_XIELU:
        if (x > 0) return p[0] * x * x + p[2] * x;
        return (expm1f(fminf(x, p[3])) - x) * p[1] + p[2] * x;
    case ACT_EXP: return expf(x);
    case ACT_NEG_EXP: return -expf(x);
    case ACT_CLAMP: return fminf(fmaxf(x, -p[0]), p[0]);
    case ACT_CLAMPED_SWIGLU:
        x = fminf(x, p[1]);
        return x * sigmoid(p[0] * x);
    case ACT_LIMITED_SWIGLU:
        if (p[1] != 0) x = fminf(x, p[0]);
        return fminf(x * sigmoid(x), p[0]);
    }
    return x;
}

static __device__ __forceinline__ float act(int kind, float x, const float *p) {
    switch (kind) {
    case ACT_NONE: return x;
    case ACT_SILU: return x * sigmoid(x);
    case ACT_GELU_TANH: return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
    case ACT_RELU: return x > 0 ? x : 0;
    case ACT_RELU2: return x > 0 ? x * x : 0;
    case ACT_SIGMOID: return sigmoid(x);
    }
    return act_rare(kind, x, p);
}

// act(a) * b, the factor b by the rules of the activation.
static __device__ __forceinline__ float gated(const k_act &a, float x, float b) {
    if (a.kind == ACT_CLAMPED_SWIGLU) b = fminf(fmaxf(b, -a.p[1]), a.p[1]) + 1.0f;
    if (a.kind == ACT_LIMITED_SWIGLU) b = fminf(fmaxf(b, -a.p[0]), a.p[0]);
    return act(a.kind, x, a.p) * (b * a.scale);
}

// ---- weights: eight elements of a row, k a multiple of 8; every format's group is a multiple of 8 ----

static __device__ __forceinline__ float e2m1(unsigned code) {
    // 0 0.5 1 1.5 2 3 4 6: twice the value fits a nibble, so that the table is one word
    float magnitude = (float)(0xc8643210u >> (code & 7) * 4 & 15) * 0.5f;
    return code & 8 ? -magnitude : magnitude;
}

static __device__ __forceinline__ float e4m3(unsigned code) {
    unsigned magnitude = code & 0x7f;
    float value = magnitude == 0x7f ? __uint_as_float(0x7fc00000u) : __uint_as_float(magnitude << 20) * 0x1p120f;
    return code & 0x80 ? -value : value;
}

static __device__ __forceinline__ float e8m0(unsigned code) {
    return code == 0 ? 0x1p-127f : code == 255 ? __uint_as_float(0x7fc00000u) : __uint_as_float(code << 23);
}

// Eight codes of `bits` bits, which begin at a byte.
static __device__ __forceinline__ uint64_t code_word(const unsigned char *p, int bits) {
    if (bits == 8) return *(const uint64_t *)p;
    if (bits == 4) return *(const uint32_t *)p;
    uint64_t word = 0;
    for (int b = 0; b < bits; b++) word |= (uint64_t)p[b] << 8 * b;
    return word;
}

static __device__ __forceinline__ void plain8(const k_weight &w, const unsigned char *row, int64_t k, float out[8]) {
    int n = w.in - k < 8 ? (int)(w.in - k) : 8;
    if (w.dtype == K_BF16 && n == 8 && (uint64_t)(row + 2 * k) % 16 == 0) {
        floats_of(*(const uint4 *)(row + 2 * k), out);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = i < n ? load_as_f32(row, w.dtype, k + i) : 0.0f;
}

static __device__ __forceinline__ void tiled8(const k_weight &w, int64_t row, int64_t k, float out[8]) {
    const unsigned char *unit = tile_unit(w, row, k);
    const uint32_t *words = (const uint32_t *)(unit + tile_word_at(w.bits, row, k));
    if (w.mode == K_MXFP4) {
        float scale = e8m0(unit[tile_power_at(row, k)]);
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = e2m1((words[0] >> tile_magnitude(i) & 7) | (words[0] >> tile_sign(i) & 1) << 3) * scale;
        return;
    }
    const unsigned char *meta = unit + tile_meta_at(w, row, k);
    float scale = load_as_f32(meta, w.dtype, 0), bias = load_as_f32(meta, w.dtype, 1);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        uint32_t code = w.bits <= 4 ? words[0] >> 4 * tile_nibble(i) & 15 : words[tile_byte(i) / 4] >> 8 * (tile_byte(i) % 4) & 255;
        out[i] = __fadd_rn(__fmul_rn((float)code, scale), bias);
    }
}

static __device__ __forceinline__ void unpack8(const k_weight &w, int64_t row, int64_t k, float out[8]) {
    const unsigned char *values = w.values + row * w.values_bytes;
    if (w.mode == K_PLAIN) {
        plain8(w, values, k, out);
        return;
    }
    uint64_t word = code_word(values + k / 8 * w.bits, w.bits);
    int64_t group = k / w.group;
    unsigned mask = (1u << w.bits) - 1;
    if (w.mode == K_AFFINE) {
        float scale = load_as_f32(w.scales + row * w.scales_bytes, w.dtype, group), bias = load_as_f32(w.biases + row * w.biases_bytes, w.dtype, group);
#pragma unroll
        for (int i = 0; i < 8; i++) out[i] = __fadd_rn(__fmul_rn((float)((unsigned)(word >> i * w.bits) & mask), scale), bias);
        return;
    }
    unsigned code = w.scales[row * w.scales_bytes + group];
    float scale = w.mode == K_NVFP4 ? e4m3(code) : e8m0(code);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        unsigned c = (unsigned)(word >> i * w.bits) & mask;
        out[i] = (w.mode == K_MXFP8 ? e4m3(c) : e2m1(c)) * scale;
    }
}

// The same where the weight may lie in tiles.
static __device__ __forceinline__ void unpack8_any(const k_weight &w, int64_t row, int64_t k, float out[8]) {
    if (w.tile_bytes) tiled8(w, row, k, out);
    else unpack8(w, row, k, out);
}

// The positions that a row may see begin here.
static __device__ __forceinline__ int first_visible(int window, int chunk, int pos) {
    int first = 0;
    if (window > 0 && pos - window + 1 > first) first = pos - window + 1;
    if (chunk > 0 && pos / chunk * chunk > first) first = pos / chunk * chunk;
    return first;
}

// And end here, where not both ways are seen: at the row's own, or at the end of a picture whose rows see each other.
static __device__ __forceinline__ int last_of_row(const k_attn &a, int64_t r, int pos) {
    return a.until && a.until[r] > pos ? a.until[r] : pos;
}

static __device__ __forceinline__ float query_scale(const k_attn &a, int pos) {
    if (a.pos_scale_len == 0) return a.scale;
    return a.scale * (1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len)));
}

// cos and sin of pos * inv_freq, the product rounded to f32 as the reference does; the reduction by pi in f64, so that no slow path and no
// stack is needed at large positions.
static __device__ __forceinline__ void rope_angle(int pos, float inv_freq, float magnitude, float *out_cos, float *out_sin) {
    double turns = (double)((float)pos * inv_freq) * 0.31830988618379067;
    turns -= 2.0 * rint(turns * 0.5);
    float s, c;
    sincospif((float)turns, &s, &c);
    *out_cos = c * magnitude;
    *out_sin = s * magnitude;
}
