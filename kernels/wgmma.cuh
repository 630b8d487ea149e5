// Warpgroup products and tensor copies: instructions of sm_90a alone.
//
// A warpgroup is four warps; d += x w with x 64 x 16, w N x 16 (both bf16 in shared memory, dense along k) and d 64 x N in registers: lane
// 4 g + t of warp i holds rows 16 i + g and 16 i + g + 8, columns 8 j + 2 t and one more, as d[4 j], d[4 j + 1] and d[4 j + 2], d[4 j + 3].
#pragma once
#include "bulk.cuh"
#include "mma.cuh"

// Two pairs of results of one row, columns n + 2 t and n + 8 + 2 t, become four neighbours: lanes of a pair exchange halves.
// From n to the first of them.
static __device__ __forceinline__ int make_neighbours(float2 low, float2 high, float2 &first, float2 &second) {
    int t = threadIdx.x % 4;
    float2 mine = t % 2 ? high : low, other = t % 2 ? low : high;
    other.x = __shfl_xor_sync(FULL, other.x, 1);
    other.y = __shfl_xor_sync(FULL, other.y, 1);
    first = t % 2 ? other : mine, second = t % 2 ? mine : other;
    return t % 2 * 8 + t / 2 * 4;
}

// SiLU (kind 1) or GELU by tanh, with the hardware's exponential: what is made of it becomes bf16 or f16.
static __device__ __forceinline__ float gate_of(int kind, float x) {
    if (kind == ACT_SILU) return __fdividef(x, 1.0f + __expf(-x));
    return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}

#ifndef MLXCEL_EMULATE

#define REG4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define REG16(d, i) REG4(d, i), REG4(d, i + 4), REG4(d, i + 8), REG4(d, i + 12)

static __device__ __forceinline__ void wgmma_256(float d[128], uint64_t x, uint64_t w, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,"
                 "%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
                 "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,"
                 "%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,"
                 "%121,%122,%123,%124,%125,%126,%127"
                 "}, %128, %129, p, 1, 1, 0, 0;\n}\n"
                 : REG16(d, 0), REG16(d, 16), REG16(d, 32), REG16(d, 48), REG16(d, 64), REG16(d, 80), REG16(d, 96), REG16(d, 112)
                 : "l"(x), "l"(w), "r"(add));
}

static __device__ __forceinline__ void wgmma_128(float d[64], uint64_t x, uint64_t w, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,"
                 "%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                 "}, %64, %65, p, 1, 1, 0, 0;\n}\n"
                 : REG16(d, 0), REG16(d, 16), REG16(d, 32), REG16(d, 48)
                 : "l"(x), "l"(w), "r"(add));
}

static __device__ __forceinline__ void wgmma_64(float d[32], uint64_t x, uint64_t w, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                 "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
                 : REG16(d, 0), REG16(d, 16)
                 : "l"(x), "l"(w), "r"(add));
}

// The same with x in registers, as mma_bf16 takes it, and w lying the other way: 16 rows of N elements (operand_rows).
static __device__ __forceinline__ void wgmma_reg_64(float d[32], const uint32_t x[4], uint64_t w) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
                 "}, {%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"
                 : REG16(d, 0), REG16(d, 16)
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(w));
}

static __device__ __forceinline__ void wgmma_reg_128(float d[64], const uint32_t x[4], uint64_t w) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,%32,"
                 "%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"
                 : REG16(d, 0), REG16(d, 16), REG16(d, 32), REG16(d, 48)
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(w));
}

// The same with w dense along k (operand_at): N = 16, 32, 64, 96 or 128, of bf16 or of f16.
#define WGMMA_ROWS(name, type, n, regs, x0, x1, x2, x3, w, ...)                                                                              \
    static __device__ __forceinline__ void name(float (&d)[n / 2], const uint32_t x[4], uint64_t at) {                                       \
        asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" regs "}, {" x0 "," x1 "," x2 "," x3 "}, " w ", 1, 1, 1, 0;\n" \
                     : __VA_ARGS__                                                                                                            \
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(at));                                                                \
    }
#define D_0_15 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define D_16_31 "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define D_32_47 "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define D_48_63 "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
WGMMA_ROWS(wgmma_rows, "bf16", 16, "%0,%1,%2,%3,%4,%5,%6,%7", "%8", "%9", "%10", "%11", "%12", REG4(d, 0), REG4(d, 4))
WGMMA_ROWS(wgmma_rows, "bf16", 32, D_0_15, "%16", "%17", "%18", "%19", "%20", REG16(d, 0))
WGMMA_ROWS(wgmma_rows, "bf16", 64, D_0_15 "," D_16_31, "%32", "%33", "%34", "%35", "%36", REG16(d, 0), REG16(d, 16))
WGMMA_ROWS(wgmma_rows, "bf16", 128, D_0_15 "," D_16_31 "," D_32_47 "," D_48_63, "%64", "%65", "%66", "%67", "%68", REG16(d, 0), REG16(d, 16), REG16(d, 32), REG16(d, 48))
WGMMA_ROWS(wgmma_rows_f16, "f16", 32, D_0_15, "%16", "%17", "%18", "%19", "%20", REG16(d, 0))
WGMMA_ROWS(wgmma_rows_f16, "f16", 64, D_0_15 "," D_16_31, "%32", "%33", "%34", "%35", "%36", REG16(d, 0), REG16(d, 16))
WGMMA_ROWS(wgmma_rows_f16, "f16", 96, D_0_15 "," D_16_31 "," D_32_47, "%48", "%49", "%50", "%51", "%52", REG16(d, 0), REG16(d, 16), REG16(d, 32))
WGMMA_ROWS(wgmma_rows_f16, "f16", 128, D_0_15 "," D_16_31 "," D_32_47 "," D_48_63, "%64", "%65", "%66", "%67", "%68", REG16(d, 0), REG16(d, 16), REG16(d, 32), REG16(d, 48))

// Where an operand lies: rows of 128 bytes, the 16-byte pieces of a row exchanged by the row's number modulo 8, eight rows 1,024 bytes. The
// address is a multiple of 1,024, plus 32 bytes for each step of 16 along k.
static __device__ __forceinline__ uint64_t operand_at(uint32_t address) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

// An operand of 16 rows along k: 64 elements of a row are 128 bytes, exchanged as above; the next 64 elements lie `next` bytes further.
static __device__ __forceinline__ uint64_t operand_rows(uint32_t address, uint32_t next) {
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(next >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

static __device__ __forceinline__ void wgmma_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most N groups are still under way.
template <int N> static __device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Nothing that uses d moves before what stands here.
template <int N> static __device__ __forceinline__ void wgmma_results(float d[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

template <int N> static __device__ __forceinline__ void registers_more() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N> static __device__ __forceinline__ void registers_fewer() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

// ---- copies of boxes of a matrix that a tensor map describes; the barrier of the phase counts their bytes ----

static __device__ __forceinline__ void copy_box(uint32_t to, const k_tensor_map *map, int column, int row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}
static __device__ __forceinline__ void prefetch_map(const k_tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
#endif
