// Weights of 4 bits in tiles: where the words of the checkpoint's rows lie.
//
// A tile is 16 rows; along k it is cut into units of 64 elements: 512 bytes of codes, then the scales and biases of its 16 rows. A lane
// 4 g + t of a warp finds in its 16 bytes the words k = 8 t and 32 + 8 t of row g, then those of row g + 8: what a tensor-core product of 16
// rows takes. A word has the eight codes of the checkpoint's: code i in nibble i / 2 + i % 2 * 4, so that neighbours are 16 bits apart. Scale and bias of row g stand side by side, those of row g + 8
// behind them; groups of 32 have two such runs of 64 bytes per unit, groups of 128 the same one in two units.
#pragma once
#include "backend/cuda/shared/layout.h"

// The unit of element k, k < w.in.
static __device__ __forceinline__ const unsigned char *tile_unit(const k_weight &w, int64_t row, int64_t k) {
    return w.values + row / TILE_ROWS * w.tile_bytes + k / TILE_UNIT * tile_unit_bytes(w.group);
}

// Bytes from the unit's start to the word of elements k ... k + 7, and to the scale of their group; k a multiple of 8.
static __device__ __forceinline__ int tile_word_at(int64_t row, int64_t k) {
    int r = (int)(row % TILE_ROWS), word = (int)(k % TILE_UNIT) / 8;
    return ((r % 8) * 4 + word % 4) * 16 + r / 8 * 8 + word / 4 * 4;
}
static __device__ __forceinline__ int tile_meta_at(int group, int64_t row, int64_t k) {
    int r = (int)(row % TILE_ROWS);
    return TILE_CODES + (group == 32 ? (int)(k % TILE_UNIT) / 32 * TILE_META : 0) + r % 8 * 8 + r / 8 * 4;
}

// The nibble of code i.
static __device__ __forceinline__ int tile_nibble(int i) {
    return i / 2 + i % 2 * 4;
}
