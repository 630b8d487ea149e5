// CUDA's language as ordinary C++: every thread of a block is a fiber, barriers and warp operations are where fibers meet.
//
// For tests only: the kernels' own sources, compiled by the host's compiler, run on a machine without a GPU, so that indexing, masks and
// reductions are checked before a GPU sees them. Nothing here says anything about speed, races or the memory model.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

struct emu_dim {
    unsigned x, y, z;
};

// With EMU_THREADS several threads launch kernels at once, each for a rank: what belongs to a launch is each thread's own. It is slower.
#ifdef EMU_THREADS
#define EMU_OWN thread_local
#else
#define EMU_OWN
#endif

struct emu_state {
    emu_dim thread, block, block_dim, grid_dim;
    unsigned lane, warp;
    unsigned char *shared;
};
extern EMU_OWN emu_state emu;

void emu_block_barrier();
void emu_warp_barrier();
uint64_t *emu_exchange(unsigned slot); // [32] words that the lanes of this warp share; slots 0 to 15
unsigned emu_live_lanes();             // of this warp, as a mask
void emu_pause();                      // somebody waits for another thread

#define threadIdx emu.thread
#define blockIdx emu.block
#define blockDim emu.block_dim
#define gridDim emu.grid_dim
#define __global__ __attribute__((visibility("default")))
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__ static EMU_OWN
#define __constant__ static
#define __restrict__
#define KARGS(type) const type &
#define DYNAMIC_SHARED(type, name) type *name = (type *)emu.shared

static inline void __syncthreads() {
    emu_block_barrier();
}
static inline void __threadfence() {}
static inline void __threadfence_system() {}
static inline void __syncwarp() {
    emu_warp_barrier();
}

template <typename T> static inline T emu_shuffle(T x, unsigned from) {
    uint64_t *words = emu_exchange(0);
    memcpy(&words[emu.lane], &x, sizeof x);
    emu_warp_barrier();
    T y = x;
    if (from < 32 && (emu_live_lanes() >> from & 1)) memcpy(&y, &words[from], sizeof y);
    emu_warp_barrier();
    return y;
}
template <typename T> static inline T __shfl_xor_sync(unsigned, T x, int step) {
    return emu_shuffle(x, emu.lane ^ (unsigned)step);
}
static inline unsigned __ballot_sync(unsigned, bool x) {
    unsigned bits = 0;
    emu_exchange(0)[emu.lane] = x;
    __syncwarp();
    for (int i = 0; i < 32; i++) bits |= (unsigned)(emu_exchange(0)[i] != 0) << i;
    __syncwarp();
    return bits;
}
static inline int __ffs(unsigned x) {
    return __builtin_ffs((int)x);
}
template <typename T> static inline T __shfl_sync(unsigned, T x, int lane) {
    return emu_shuffle(x, (unsigned)lane & 31);
}
template <typename T> static inline T __shfl_up_sync(unsigned, T x, int step) {
    return emu_shuffle(x, emu.lane - (unsigned)step);
}
template <typename T> static inline T __shfl_down_sync(unsigned, T x, int step) {
    return emu_shuffle(x, emu.lane + (unsigned)step);
}

struct float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}

struct __half {
    uint16_t bits;
};
struct __nv_bfloat16 {
    uint16_t bits;
};
struct __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __uint_as_float(unsigned u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline unsigned __float_as_uint(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float __bfloat162float(__nv_bfloat16 h) {
    return __uint_as_float((unsigned)h.bits << 16);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
    unsigned u = __float_as_uint(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return {(uint16_t)0x7fff};
    return {(uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16)};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
    return {__float2bfloat16_rn(x), __float2bfloat16_rn(y)};
}
static inline float __half2float(__half h) {
    unsigned special = (h.bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
    float magnitude = __uint_as_float((unsigned)(h.bits & 0x7fffu) << 13) * 0x1p112f;
    return __uint_as_float(__float_as_uint(magnitude) | special | (unsigned)(h.bits & 0x8000u) << 16);
}
/* Rounded to the nearest, ties to even; below 2^-14 in steps of 2^-24. */
static inline __half emu_float2half(float f) {
    unsigned sign = __float_as_uint(f) >> 16 & 0x8000u;
    float x = fabsf(f);
    if (!(x < 65520.0f)) return {(uint16_t)(sign | (x != x ? 0x7e00u : 0x7c00u))};
    if (x < 0x1p-14f) return {(uint16_t)(sign | (unsigned)nearbyintf(x * 0x1p24f))};
    unsigned u = __float_as_uint(x);
    return {(uint16_t)(sign | ((u + 0xfffu + (u >> 13 & 1) - (112u << 23)) >> 13))};
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fdividef(float a, float b) {
    return a / b;
}
#define __expf expf
static inline void sincospif(float x, float *s, float *c) {
    *s = (float)sin(x * 3.14159265358979323846);
    *c = (float)cos(x * 3.14159265358979323846);
}
static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline void __stcs(float *p, float x) {
    *p = x;
}
template <typename T> static inline T atomicAdd(T *p, T x) { // threads take turns
    T old = *p;
    *p += x;
    return old;
}
template <typename T> static inline T atomicMax(T *p, T x) {
    T old = *p;
    if (x > old) *p = x;
    return old;
}
template <typename T> static inline T __ldg(const T *p) {
    return *p;
}
template <typename T> static inline T min(T a, T b) {
    return a < b ? a : b;
}
template <typename T> static inline T max(T a, T b) {
    return a > b ? a : b;
}
