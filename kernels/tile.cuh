// Weights of up to 8 bits in tiles: where the codes of the checkpoint's rows lie.
//
// A tile is 16 rows; along k it is cut into units of 64 elements: codes, then the scales and biases of the 16 rows. Codes of 2, 3 and 4 bits take 4 bits
// (512 bytes a unit), those of 5, 6 and 8 bits take 8 (1,024 bytes). A lane 4 g + t of a warp finds its codes where a tensor-core product of 16 rows takes them:
// elements 8 t ... 8 t + 7 and 32 + 8 t ... of row g, then those of row g + 8.
//
// 4 bits: a word has eight codes, code i in nibble i / 2 + i % 2 * 4, so that neighbours are 16 bits apart. A lane's 16 bytes are four words: k = 8 t and 32 + 8 t
// of row g, then of row g + 8. 8 bits: eight codes are two words, codes 0 4 1 5 and 2 6 3 7, which are the even and the odd nibbles of the 4-bit word made bytes, so that x
// lies in the same order for both. A lane's first 16 bytes are k = 8 t of row g and of row g + 8, its second 16, 512 bytes on, k = 32 + 8 t.
//
// Scale and bias of row g stand side by side, those of row g + 8 behind them: a run of 64 bytes. Groups of 16 have four such runs per unit, groups of 32 two, groups of
// 128 the same one in two units. A lane's eight elements are of one group always.
//
// mxfp4 (TILE_FP4_BYTES a unit): 16 bits of a word have four codes too, of elements 0 2 4 6 or 1 3 5 7, but each as a magnitude of three bits at 9, 6, 3, 0 and a sign at
// 15, 12, 14, 13. The first two are f16 numbers times 2^14 by a mask, or by a shift and a mask; the others take two of each. Behind the codes stand four bytes for row g:
// the scales of its two groups, then those of row g + 8.
#pragma once
#include "backend/cuda/shared/layout.h"

static __device__ __forceinline__ int tile_unit_bytes(const k_weight &w) {
    return w.mode == K_MXFP4 ? (int)TILE_FP4_BYTES : tile_unit_bytes(w.bits, w.group);
}

// The unit of element k, k < w.in.
static __device__ __forceinline__ const unsigned char *tile_unit(const k_weight &w, int64_t row, int64_t k) {
    return w.values + row / TILE_ROWS * w.tile_bytes + k / TILE_UNIT * tile_unit_bytes(w);
}

// Bytes from the first run of a unit to the one of its i-th eight elements.
static __device__ __forceinline__ int tile_run_at(int i, int runs) {
    return i * runs / 8 * TILE_META;
}

// Bytes from the unit's start to the word of elements k ... k + 7, or to the first of its two, and to the scale of their group; k a multiple of 8.
static __device__ __forceinline__ int tile_word_at(int bits, int64_t row, int64_t k) {
    int r = (int)(row % TILE_ROWS), word = (int)(k % TILE_UNIT) / 8, lane = (r % 8) * 4 + word % 4;
    return lane * 16 + r / 8 * 8 + (bits <= 4 ? word / 4 * 4 : word / 4 * 512);
}
static __device__ __forceinline__ int tile_meta_at(const k_weight &w, int64_t row, int64_t k) {
    int r = (int)(row % TILE_ROWS);
    return tile_codes(w.bits) + tile_run_at((int)(k % TILE_UNIT) / 8, tile_runs(w.group)) + r % 8 * 8 + r / 8 * 4;
}

// The nibble of code i.
static __device__ __forceinline__ int tile_nibble(int i) {
    return i / 2 + i % 2 * 4;
}
// Of mxfp4: where the magnitude and the sign of code i begin.
static __device__ __forceinline__ int tile_magnitude(int i) {
    return i % 2 * 16 + 9 - i / 2 * 3;
}
static __device__ __forceinline__ int tile_sign(int i) {
    return i % 2 * 16 + (0xdecf >> i / 2 * 4 & 15); // 15, 12, 14, 13
}
// From a unit's start to the scale of element k's group.
static __device__ __forceinline__ int tile_power_at(int64_t row, int64_t k) {
    int r = (int)(row % TILE_ROWS);
    return TILE_CODES + r % 8 * 4 + r / 8 * 2 + (int)(k % TILE_UNIT) / 32;
}
// Of 8 bits: the byte of code i in its two words.
static __device__ __forceinline__ int tile_byte(int i) {
    return i / 2 % 2 * 4 + i % 2 * 2 + i / 4;
}
