// Rows of 4-bit codes to tiles, once when a weight is bound, and tiles to rows of bf16 before a prompt's products.
//
// Both read and write every byte once, 16 bytes per lane on the tiles' side; stopped by memory.
#include "mma.cuh"

// A row's word, or zeros beyond the last row.
static __device__ __forceinline__ uint32_t word_of(const k_weight &w, int64_t row, int64_t k) {
    uint32_t word = row < w.out ? *(const uint32_t *)(w.values + row * w.values_bytes + k / 2) : 0u, out = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) out |= (word >> 4 * i & 15u) << 4 * tile_nibble(i);
    return out;
}

static __device__ __forceinline__ uint32_t meta_of(const k_weight &w, int64_t row, int64_t k) {
    if (row >= w.out) return 0;
    int64_t group = k / w.group;
    uint32_t scale = ((const uint16_t *)(w.scales + row * w.scales_bytes))[group], bias = ((const uint16_t *)(w.biases + row * w.biases_bytes))[group];
    return scale | bias << 16;
}

// Grid (units of a tile / 8, tiles): a warp makes one unit.
extern "C" __global__ void __launch_bounds__(256) tile_pack(KARGS(k_tile) a) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, bytes = tile_unit_bytes(a.w.group);
    int64_t unit = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, units = a.w.in / TILE_UNIT, tile = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    if (unit >= units || tile * TILE_ROWS >= a.w.out) return;
    int64_t row = tile * TILE_ROWS + g, k = unit * TILE_UNIT;
    unsigned char *to = a.out + (tile * units + unit) * bytes;
    uint4 codes = {word_of(a.w, row, k + 8 * t), word_of(a.w, row, k + 32 + 8 * t), word_of(a.w, row + 8, k + 8 * t), word_of(a.w, row + 8, k + 32 + 8 * t)};
    *(uint4 *)(to + lane * 16) = codes;
    if (t * TILE_META < bytes - TILE_CODES) {
        uint2 meta = {meta_of(a.w, row, k + 32 * t), meta_of(a.w, row + 8, k + 32 * t)};
        *(uint2 *)(to + TILE_CODES + t * TILE_META + g * 8) = meta;
    }
}

// Eight codes as bf16, q * s + b rounded once.
static __device__ __forceinline__ uint4 widen(uint32_t word, float s, float b) {
    uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = (float)(word >> 4 * i & 15), y = (float)(word >> (4 * i + 16) & 15);
        pairs[i] = pack_bf16(__fadd_rn(__fmul_rn(x, s), b), __fadd_rn(__fmul_rn(y, s), b));
    }
    return uint4{pairs[0], pairs[1], pairs[2], pairs[3]};
}

// Rows [first, first + n) to dense bf16 rows. Grid (units of a tile / 8, tiles): a warp takes one unit.
extern "C" __global__ void __launch_bounds__(256) tile_dequant(KARGS(k_tile) a) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, bytes = tile_unit_bytes(a.w.group);
    int64_t unit = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, tile = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    if (unit * TILE_UNIT >= a.w.in || tile * TILE_ROWS >= a.n) return;
    const unsigned char *from = a.w.values + (a.first / TILE_ROWS + tile) * a.w.tile_bytes + unit * bytes;
    uint4 codes = *(const uint4 *)(from + lane * 16);
    uint2 low = *(const uint2 *)(from + TILE_CODES + g * 8), high = low;
    if (a.w.group == 32) high = *(const uint2 *)(from + TILE_CODES + TILE_META + g * 8);
    int64_t row = tile * TILE_ROWS + g;
    bf16 *to = (bf16 *)a.out + row * a.w.in + unit * TILE_UNIT + 8 * t;
    if (row < a.n) {
        *(uint4 *)to = widen(codes.x, meta_f32(low.x & 0xffff, a.w.dtype), meta_f32(low.x >> 16, a.w.dtype));
        *(uint4 *)(to + 32) = widen(codes.y, meta_f32(high.x & 0xffff, a.w.dtype), meta_f32(high.x >> 16, a.w.dtype));
    }
    if (row + 8 < a.n) {
        to += 8 * a.w.in;
        *(uint4 *)to = widen(codes.z, meta_f32(low.y & 0xffff, a.w.dtype), meta_f32(low.y >> 16, a.w.dtype));
        *(uint4 *)(to + 32) = widen(codes.w, meta_f32(high.y & 0xffff, a.w.dtype), meta_f32(high.y >> 16, a.w.dtype));
    }
}
