// What the two kernels for batches on sm_90a have in common (qmm_sm90.cu, qmm_short_sm90.cu): x on its way to shared memory, codes on their way to a product, and
// the gate behind it.
#pragma once
#include "codes.cuh"
#include "wgmma.cuh"

// Bytes of a row of x in a stage.
enum { WQMM_X_ROW = TILE_UNIT * 2 };

// What the gate leaves of four results; the same numbers as linear_reduce makes.
static __device__ __forceinline__ void store_gated4(const k_linear &a, int64_t m, int64_t n, float4 gate, float4 up) {
    if (a.bias) {
        const float *b = a.bias + n, *c = b + a.glu_inner;
        gate = float4{gate.x + b[0], gate.y + b[1], gate.z + b[2], gate.w + b[3]}, up = float4{up.x + c[0], up.y + c[1], up.z + c[2], up.w + c[3]};
    }
    float4 y = float4{gated(a.act, gate.x, up.x), gated(a.act, gate.y, up.y), gated(a.act, gate.z, up.z), gated(a.act, gate.w, up.w)};
    int64_t at = m * a.y.row_stride + n;
    if (a.y.dtype == K_F32) *(float4 *)((float *)a.y.p + at) = y;
    else *(uint2 *)((bf16 *)a.y.p + at) = uint2{pack_bf16(y.x, y.y), pack_bf16(y.z, y.w)};
}

#ifdef MLXCEL_EMULATE
// A result from units first ... first + n of k: weights are rounded as on a GPU.
static inline float sum_of_units(const k_linear &a, int m, int64_t row, int first, int n) {
    float sum = 0;
    for (int64_t k = (int64_t)first * TILE_UNIT; k < (int64_t)(first + n) * TILE_UNIT; k += 8) {
        float w[8];
        tiled8(a.w, row, k, w);
        for (int j = 0; j < 8; j++) sum += __bfloat162float(__float2bfloat16_rn(w[j])) * view_load(a.x, m, 0, k + j);
    }
    return sum;
}
static inline void gate_units(const k_linear &a, int m, int64_t row, int first, int n) {
    float gate = sum_of_units(a, m, row, first, n), up = sum_of_units(a, m, row + a.glu_inner, first, n);
    if (a.bias) gate += a.bias[row], up += a.bias[row + a.glu_inner];
    view_store(a.y, m, 0, row, gated(a.act, gate, up));
}
#else
// Piece `lane % 8` of row `lane / 8`, and of every fourth row behind it, 16 of them at once.
static __device__ __forceinline__ void x_load(const k_linear &a, uint4 v[16], int n, int first, int unit) {
    int lane = threadIdx.x % 32;
    const bf16 *from = (const bf16 *)a.x.p + (first + lane / 8) * a.x.row_stride + unit * TILE_UNIT + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 16; i++)
        if (i < n) v[i] = first + lane / 8 + i * 4 < a.x.rows ? *(const uint4 *)(from + i * 4 * a.x.row_stride) : uint4{0, 0, 0, 0};
}

// Word j of piece t of a half of 32 elements becomes word t of piece j: in step m of 16 elements, a lane of the weights' operand has the words
// 2 m and 2 m + 1 of its eight codes.
static __device__ __forceinline__ void x_store(const uint4 v[16], int n, int first, uint32_t stage) {
    int lane = threadIdx.x % 32, half = lane % 8 / 4 * 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        int row = first + lane / 8 + i * 4;
        const uint32_t words[4] = {v[i].x, v[i].y, v[i].z, v[i].w};
#pragma unroll
        for (int j = 0; j < 4; j++)
            if (i < n) asm volatile("st.shared.u32 [%0], %1;" ::"r"(stage + row * WQMM_X_ROW + ((half + j) ^ (row & 7)) * 16 + t * 4), "r"(words[j]) : "memory");
    }
}

// A unit of 8 bits at an address in shared memory, one half of k behind the other: registers are scarce here.
static __device__ __forceinline__ void unpack_halves(uint32_t unit, int runs, int dtype, uint32_t first[8], uint32_t second[8]) {
    uint32_t meta_at = unit + TILE_CODES_8 + threadIdx.x % 32 / 4 * 8;
    unit += threadIdx.x % 32 * 16;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint4 codes;
        uint2 meta;
        asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(codes.x), "=r"(codes.y), "=r"(codes.z), "=r"(codes.w) : "r"(unit + h * 512) : "memory");
        asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(meta.x), "=r"(meta.y) : "r"(meta_at + tile_run_at(4 * h + threadIdx.x % 4, runs)) : "memory");
        unpack_bytes(codes.x, codes.y, meta.x, dtype, first + 4 * h);
        unpack_bytes(codes.z, codes.w, meta.y, dtype, second + 4 * h);
    }
}

// Unit `codes` as weights: w[4 m ...] is the operand of step m. PLAIN: scales are bf16, and a unit has one group.
template <int BITS, bool PLAIN> static __device__ __forceinline__ void weights_of(const k_weight &weight, const unsigned char *codes, uint32_t w[16]) {
    int dtype = PLAIN ? (int)K_BF16 : weight.dtype, runs = PLAIN ? 1 : tile_runs(weight.group);
    uint32_t first[8], second[8];
    if (BITS == 8) unpack_halves((uint32_t)__cvta_generic_to_shared(codes), runs, dtype, first, second);
    else unpack_unit(unit_at(codes, runs), dtype, first, second);
#pragma unroll
    for (int m = 0; m < 4; m++) w[4 * m] = first[2 * m], w[4 * m + 1] = second[2 * m], w[4 * m + 2] = first[2 * m + 1], w[4 * m + 3] = second[2 * m + 1];
}
#endif
