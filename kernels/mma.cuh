// Tensor-core instructions of sm_80 and later, and copies to shared memory past the registers. The emulator has its own bodies of these.
#pragma once
#include "common.cuh"

#ifdef MLXCEL_EMULATE
#include "emu_mma.h"
#else

// d += a b: a is 16 x 16 by rows, b 16 x 8 by columns, both bf16; d f32. Lane l = 4 g + t holds a rows g, g + 8, columns 2t, 2t + 1 (and + 8);
// b rows 2t, 2t + 1 (and + 8) of column g; d rows g, g + 8, columns 2t, 2t + 1.
static __device__ __forceinline__ void mma_bf16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same of f16.
static __device__ __forceinline__ void mma_f16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ uint32_t pack_f16(float x, float y) {
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(y), "f"(x));
    return d;
}

// d += a b of bytes: a is 16 x 32 by rows, without sign, b 32 x 8 by columns, with; d 32 bits. Lane l = 4 g + t holds a rows g, g + 8, columns
// 4 t ... 4 t + 3 (and + 16); b rows 4 t ... (and + 16) of column g; d as above.
static __device__ __forceinline__ void mma_u8s8(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same where a has signs too.
static __device__ __forceinline__ void mma_s8(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ void mma_s8_from(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, int32_t c) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}

// d = a b + c in every place, a without sign; above, with.
static __device__ __forceinline__ void mma_u8s8_from(int32_t d[4], const uint32_t a[4], uint32_t b0, uint32_t b1, int32_t c) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}

static __device__ __forceinline__ uint32_t warp_max_u32(uint32_t x) {
    return __reduce_max_sync(FULL, x);
}
static __device__ __forceinline__ int warp_sum_i32(int x) {
    return __reduce_add_sync(FULL, x);
}

// Four 8 x 8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of matrix l / 8.
static __device__ __forceinline__ void ldmatrix4(uint32_t d[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at));
}

static __device__ __forceinline__ void ldmatrix4_trans(uint32_t d[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at));
}

// An 8 x 8 matrix of 16-bit elements, lane l = 4 g + t its row g, columns 2t and 2t + 1, the other way round.
static __device__ __forceinline__ uint32_t transpose8(uint32_t x) {
    uint32_t d;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(d) : "r"(x));
    return d;
}

// 16 bytes to shared memory; zeros where !there.
static __device__ __forceinline__ void copy16(void *to, const void *from, bool there) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(bytes));
}
static __device__ __forceinline__ void copy_commit() {
    asm volatile("cp.async.commit_group;");
}
// Waits until at most N groups are still under way.
template <int N> static __device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}

// a * b + c on two bf16.
static __device__ __forceinline__ uint32_t fma_bf16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// Weights are read once: past L1, and in lines of 128 bytes from memory.
static __device__ __forceinline__ uint4 stream16(const void *p) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}
static __device__ __forceinline__ uint2 stream8(const void *p) {
    uint2 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}
static __device__ __forceinline__ uint32_t stream4(const void *p) {
    uint32_t v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

static __device__ __forceinline__ uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t which) {
    return __byte_perm(a, b, which);
}
#endif

// x as f16 where weights are: scaled by a power of two that brings the largest of some elements to 2^8 ... 2^9, so that none is lost at either end. From the bits of
// the largest magnitude; `one` is what one means there.
static __device__ __forceinline__ float f16_scale(uint32_t largest, float &one) {
    uint32_t e = largest >> 23;
    e = e < 27 ? 27 : e > 254 ? 254 : e;
    one = __uint_as_float((e - 8) << 23);
    return __uint_as_float((262 - e) << 23);
}

// Two numbers of f16 as bf16.
static __device__ __forceinline__ uint32_t bf16_of_f16(uint32_t pair) {
    return pack_bf16(meta_f32(pair & 0xffff, K_F16), meta_f32(pair >> 16, K_F16));
}

// Bytes `first` and first + 2 of a word as bf16: exact.
static __device__ __forceinline__ uint32_t bytes_bf16(uint32_t word, int first) {
    float x = __uint_as_float(bytes_of(word, 0x4b000000u, 0x7650u | (uint32_t)first)), y = __uint_as_float(bytes_of(word, 0x4b000000u, 0x7650u | (uint32_t)(first + 2)));
    return pack_bf16(x - 8388608.0f, y - 8388608.0f);
}

// Two nibbles of w, at bits 0 and 16 after a shift, as bf16 numbers 128 + q: exact, since 128 has seven bits below it.
#define MAGIC 0x43004300u
static __device__ __forceinline__ uint32_t nibbles(uint32_t w, int shift) {
    return (w >> shift & 0x000f000fu) | MAGIC;
}

// The same in one instruction less, and one register more: left alone, the compiler makes two of the mask and the magic, since an instruction
// has room for a single constant.
static __device__ __forceinline__ uint32_t nibbles_quick(uint32_t w, int shift) {
#ifdef MLXCEL_EMULATE
    return nibbles(w, shift);
#else
    uint32_t pair;
    asm("lop3.b32 %0, %1, 0x000f000f, %2, 0xea;" : "=r"(pair) : "r"(w >> shift), "r"(MAGIC)); // a & b | c
    return pair;
#endif
}
