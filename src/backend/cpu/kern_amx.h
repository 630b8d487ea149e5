/* What both kinds of AMX kernels need: tiles in and out of memory, and their sizes. For files compiled with AMX. */
#ifndef MLXCEL_BACKEND_CPU_KERN_AMX_H
#define MLXCEL_BACKEND_CPU_KERN_AMX_H

#include "backend/cpu/kern_avx512.h"

/* gcc's own macros hold the stride in a `long`, which on Windows names a 32-bit register that the assembler refuses. */
#ifdef __clang__
#define TILE_LOAD(tile, base, stride) _tile_loadd(tile, base, stride)
#define TILE_STORE(tile, base, stride) _tile_stored(tile, base, stride)
#else
#define TILE_LOAD(tile, base, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(tile, base, stride) \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"((void *)(base)), "r"((int64_t)(stride)) : "memory")
#endif

#define INLINE static inline __attribute__((always_inline))

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

/* Eight tiles of lines of 64 bytes: 16 of them in the tiles of weights, `first` and the one after it, n in all others. */
static inline void tiles_configure(int32_t n, int first) {
    struct tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.row_bytes[t] = 64;
        c.rows[t] = t == first || t == first + 1 ? 16 : (uint8_t)n;
    }
    __asm__ volatile("" : : "r"(&c) : "memory"); /* gcc 12 takes the instruction to read eight bytes, and drops the rest */
    _tile_loadconfig(&c);
}

#endif
