// Rows of codes to tiles, once when a weight is bound; the CPU's panels to tiles, where a prompt borrows a weight of the host; and tiles to rows of bf16
// before a prompt's products.
//
// All read and write every byte once, 16 bytes per lane on the tiles' side; stopped by memory.
#include "dequant.cuh"

// A row's eight codes as a word of nibbles, or as two words of bytes; zeros beyond the last row.
static __device__ __forceinline__ uint32_t nibbles_of(const k_weight &w, int64_t row, int64_t k) {
    uint32_t out = 0, mask = (1u << w.bits) - 1;
    uint64_t codes = row < w.out ? code_word(w.values + row * w.values_bytes + k / 8 * w.bits, w.bits) : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) out |= ((uint32_t)(codes >> i * w.bits) & mask) << 4 * tile_nibble(i);
    return out;
}
static __device__ __forceinline__ uint32_t fp4_codes_of(const k_weight &w, int64_t row, int64_t k) {
    uint32_t out = 0, codes = row < w.out ? (uint32_t)code_word(w.values + row * w.values_bytes + k / 2, 4) : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) out |= (codes >> 4 * i & 7) << tile_magnitude(i) | (codes >> (4 * i + 3) & 1) << tile_sign(i);
    return out;
}
static __device__ __forceinline__ uint2 bytes_of_row(const k_weight &w, int64_t row, int64_t k) {
    uint32_t out[2] = {0, 0}, mask = (1u << w.bits) - 1;
    uint64_t codes = row < w.out ? code_word(w.values + row * w.values_bytes + k / 8 * w.bits, w.bits) : 0;
#pragma unroll
    for (int i = 0; i < 8; i++) out[tile_byte(i) / 4] |= ((uint32_t)(codes >> i * w.bits) & mask) << 8 * (tile_byte(i) % 4);
    return uint2{out[0], out[1]};
}

static __device__ __forceinline__ uint32_t meta_of(const k_weight &w, int64_t row, int64_t k) {
    if (row >= w.out) return 0;
    int64_t group = k / w.group;
    uint32_t scale = ((const uint16_t *)(w.scales + row * w.scales_bytes))[group], bias = ((const uint16_t *)(w.biases + row * w.biases_bytes))[group];
    return scale | bias << 16;
}

// Scales of mxfp4 of two groups of a row.
static __device__ __forceinline__ uint32_t powers_of(const k_weight &w, int64_t row, int64_t k) {
    const unsigned char *scales = w.scales + row * w.scales_bytes + k / w.group;
    return row < w.out ? scales[0] | (uint32_t)scales[1] << 8 : 0;
}

// A unit of mxfp4.
static __device__ __forceinline__ void pack_fp4(const k_weight &w, unsigned char *to, int64_t row, int64_t k) {
    int lane = threadIdx.x % 32, t = lane % 4;
    uint4 codes = {fp4_codes_of(w, row, k + 8 * t), fp4_codes_of(w, row, k + 32 + 8 * t), fp4_codes_of(w, row + 8, k + 8 * t), fp4_codes_of(w, row + 8, k + 32 + 8 * t)};
    *(uint4 *)(to + lane * 16) = codes;
    if (t == 0) *(uint32_t *)(to + TILE_CODES + lane) = powers_of(w, row, k) | powers_of(w, row + 8, k) << 16;
}

// Grid (units of a tile / 8, tiles): a warp makes one unit.
extern "C" __global__ void __launch_bounds__(256) tile_pack(KARGS(k_tile) a) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, bytes = tile_unit_bytes(a.w), n_codes = tile_codes(a.w.bits);
    int64_t unit = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, units = a.w.in / TILE_UNIT, tile = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    if (unit >= units || tile * TILE_ROWS >= a.w.out) return;
    int64_t row = tile * TILE_ROWS + g, k = unit * TILE_UNIT;
    unsigned char *to = a.out + (tile * units + unit) * bytes;
    if (a.w.mode == K_MXFP4) {
        pack_fp4(a.w, to, row, k);
        return;
    }
    if (tile_bits(a.w.bits) == 4) {
        uint4 codes = {nibbles_of(a.w, row, k + 8 * t), nibbles_of(a.w, row, k + 32 + 8 * t), nibbles_of(a.w, row + 8, k + 8 * t), nibbles_of(a.w, row + 8, k + 32 + 8 * t)};
        *(uint4 *)(to + lane * 16) = codes;
    } else {
        for (int half = 0; half < 2; half++) {
            uint2 low = bytes_of_row(a.w, row, k + 32 * half + 8 * t), high = bytes_of_row(a.w, row + 8, k + 32 * half + 8 * t);
            *(uint4 *)(to + half * 512 + lane * 16) = uint4{low.x, low.y, high.x, high.y};
        }
    }
    if (t * TILE_META < bytes - n_codes) {
        int64_t at = k + t * (TILE_UNIT / tile_runs(a.w.group));
        uint2 meta = {meta_of(a.w, row, at), meta_of(a.w, row + 8, at)};
        *(uint2 *)(to + n_codes + t * TILE_META + g * 8) = meta;
    }
}

// ---- panels of the CPU (backend/cpu/pack.h) ----

// A group of 16 rows: lines of 64 bytes with four bytes of each row, then 16 scales and 16 biases.
struct panel_unit {
    const unsigned char *at;
    int bits, group, narrow;
};
static __device__ __forceinline__ int panel_codes(const panel_unit &u) {
    return u.group * TILE_ROWS * u.bits / 8;
}
static __device__ __forceinline__ const unsigned char *panel_group(const panel_unit &u, int i) {
    return u.at + i * (panel_codes(u) + 2 * TILE_ROWS * (u.narrow ? 2 : 4));
}
// Four bytes of a row: eight codes of 4 bits, k and k + 4 in one byte, or four of 8 bits. k counts in the unit.
static __device__ __forceinline__ uint32_t panel_word(const panel_unit &u, int row, int k) {
    int in_group = k % u.group;
    return *(const uint32_t *)(panel_group(u, k / u.group) + in_group * u.bits / 32 * 64 + row * 4);
}
static __device__ __forceinline__ uint32_t panel_nibbles(const panel_unit &u, int row, int k) {
    uint32_t out = 0, word = panel_word(u, row, k);
#pragma unroll
    for (int i = 0; i < 8; i++) out |= (word >> (8 * (i % 4) + i / 4 * 4) & 15) << 4 * tile_nibble(i);
    return out;
}
static __device__ __forceinline__ uint2 panel_bytes(const panel_unit &u, int row, int k) {
    uint32_t out[2] = {0, 0}, words[2] = {panel_word(u, row, k), panel_word(u, row, k + 4)};
#pragma unroll
    for (int i = 0; i < 8; i++) out[tile_byte(i) / 4] |= (words[i / 4] >> 8 * (i % 4) & 255) << 8 * (tile_byte(i) % 4);
    return uint2{out[0], out[1]};
}
// Scale and bias of a row.
static __device__ __forceinline__ uint32_t panel_meta(const panel_unit &u, int row, int group) {
    const unsigned char *numbers = panel_group(u, group) + panel_codes(u);
    if (u.narrow) return ((const uint16_t *)numbers)[row] | (uint32_t)((const uint16_t *)numbers)[TILE_ROWS + row] << 16;
    return half_bits(((const float *)numbers)[row]) | (uint32_t)half_bits(((const float *)numbers)[TILE_ROWS + row]) << 16;
}

// Grid as of tile_pack. A warp reads its unit whole before it writes it, since both may be the same memory.
extern "C" __global__ void __launch_bounds__(256) tile_of_panels(KARGS(k_panels) a) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, runs = tile_runs(a.group), codes = tile_codes(a.bits);
    int64_t unit = (int64_t)blockIdx.x * 8 + threadIdx.x / 32, panel = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    if (unit >= a.units || panel >= a.n) return;
    int64_t i = panel * a.units + unit;
    panel_unit u = {a.in, a.bits, a.group, a.narrow};
    u.at += i * runs * (panel_codes(u) + 2 * TILE_ROWS * (u.narrow ? 2 : 4));
    unsigned char *to = a.out + i * (codes + runs * TILE_META);
    uint4 first, second = {0, 0, 0, 0};
    uint2 meta = {0, 0};
    if (a.bits == 4) first = uint4{panel_nibbles(u, g, 8 * t), panel_nibbles(u, g, 32 + 8 * t), panel_nibbles(u, g + 8, 8 * t), panel_nibbles(u, g + 8, 32 + 8 * t)};
    else {
        uint2 low = panel_bytes(u, g, 8 * t), high = panel_bytes(u, g + 8, 8 * t), low_2 = panel_bytes(u, g, 32 + 8 * t), high_2 = panel_bytes(u, g + 8, 32 + 8 * t);
        first = uint4{low.x, low.y, high.x, high.y}, second = uint4{low_2.x, low_2.y, high_2.x, high_2.y};
    }
    if (t < runs) meta = uint2{panel_meta(u, g, t), panel_meta(u, g + 8, t)};
    __syncwarp();
    *(uint4 *)(to + lane * 16) = first;
    if (a.bits == 8) *(uint4 *)(to + 512 + lane * 16) = second;
    if (t < runs) *(uint2 *)(to + codes + t * TILE_META + g * 8) = meta;
}

// Rows [first, first + n) to dense bf16 rows. Grid (units of a tile / 8, tiles): a warp takes one unit.
extern "C" __global__ void __launch_bounds__(256) tile_dequant(KARGS(k_tile) a) {
    int64_t tile = blockIdx.y + (int64_t)blockIdx.z * gridDim.y;
    int unit = blockIdx.x * 8 + threadIdx.x / 32, left = (int)min(a.n - tile * TILE_ROWS, (int64_t)TILE_ROWS);
    if (unit * TILE_UNIT >= a.w.in || left <= 0) return;
    bf16 *to = (bf16 *)a.out + tile * TILE_ROWS * a.w.in + unit * TILE_UNIT;
    if (tile_bits(a.w.bits) == 8) unit_store8(a.w, to, unit_load8(a.w, a.first / TILE_ROWS + tile, unit), left);
    else if (tile_runs(a.w.group) > 1) unit_store<true>(a.w, to, unit_load<true>(a.w, a.first / TILE_ROWS + tile, unit), left);
    else unit_store<false>(a.w, to, unit_load<false>(a.w, a.first / TILE_ROWS + tile, unit), left);
}
