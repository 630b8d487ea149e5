/* Sizes on which host and kernels must agree: how weights lie in tiles, how many threads a block has, and how it divides its shared memory. The
 * host counts the bytes that a launch asks for with the same numbers with which the kernel finds its way in them.
 *
 * (1) What is here is used on both sides; a size that one side alone needs stays there. (2) `is_small`: the GPU has 99 KB of shared memory for a
 * block (8.6, 8.9 and 12.x), for which kernels are compiled on their own. (3) `is_plain`: bf16 or f16 weights, row after row; else quantised ones in tiles. `is_8`:
 * codes that have 8 bits in a tile. */
#ifndef MLXCEL_BACKEND_CUDA_SHARED_LAYOUT_H
#define MLXCEL_BACKEND_CUDA_SHARED_LAYOUT_H

#include "backend/cuda/shared/args.h"

#include <stdbool.h>

#ifdef MLXCEL_EMULATE
#define KFN static constexpr
#elif defined(__CUDACC__)
#define KFN static __host__ __device__ __forceinline__ constexpr
#else
#define KFN static inline
#endif

/* ---- quantised weights in tiles (kernels/tile.cuh): 16 rows; along k units of 64 elements, codes and then scales and biases ---- */

enum { TILE_ROWS = 16, TILE_UNIT = 64, TILE_CODES = 512, TILE_CODES_8 = 1024, TILE_META = 64 };

/* Bits that a code has in a tile, and bytes of a unit's codes. */
KFN int tile_bits(int bits) {
    return bits <= 4 ? 4 : 8;
}
KFN int tile_codes(int bits) {
    return bits <= 4 ? TILE_CODES : TILE_CODES_8;
}
/* Groups of a unit: each has a run of scales and biases. */
KFN int tile_runs(int group) {
    return group == 16 ? 4 : group == 32 ? 2 : 1;
}
KFN int tile_unit_bytes(int bits, int group) {
    return tile_codes(bits) + tile_runs(group) * TILE_META;
}
/* Of mxfp4: a byte is the scale of a row's 32 elements. */
enum { TILE_FP4_BYTES = TILE_CODES + 2 * TILE_ROWS };

enum { PLAIN_UNIT_BYTES = TILE_ROWS * TILE_UNIT * 2 }; /* 16 rows and 64 elements of bf16 weights */

/* ---- counters that all launches of a context share (kernels/sync.cuh): uint32_t, zero between launches ---- */

/* Arrivals and departures of the barrier, the last tag, whether a wait had no end, the address of the host's word for that, parts of steps whose outputs were
 * passed, which is never set back, then counters of attention's splits. */
enum { COUNTERS = 4096, COUNTERS_TAG = 2, COUNTERS_GAVE_UP = 3, COUNTERS_HOST = 4, COUNTERS_PARTS = 6, COUNTERS_FIRST = 64 };

/* ---- instructions of decode steps (kernels/step.cu) ---- */

enum { STEP_THREADS = 512, STEP_WARPS = STEP_THREADS / 32, STEP_ROWS = 8 }; /* STEP_ROWS: that an instruction takes at most */
enum { STEP_SLOTS = 4, STEP_HEAD_BYTES = STEP_SLOTS * K_INSTR_BYTES + 2304 };

/* Floats in which sums of warps meet. */
KFN int step_sums(bool is_small) {
    return is_small ? 4096 : 8192;
}
/* A warp's ring of weights on their way: slots, and the bytes of one, two units or one of bf16. */
KFN int step_ring_slots(bool is_plain, bool is_8, bool is_small) {
    return is_small ? (is_8 ? 1 : 2) : is_plain || is_8 ? 3 : 4;
}
KFN int step_slot_bytes(bool is_plain, int bits, int group) {
    return is_plain ? PLAIN_UNIT_BYTES : 2 * tile_unit_bytes(bits, group);
}
/* Sums of x that scales' biases are multiplied with, for each row; with f16 weights, what one means in a unit of x. */
KFN int step_x_sums(bool is_bf16, int group, int64_t in) {
    return is_bf16 ? 0 : (int)(in / TILE_UNIT) * tile_runs(group);
}
/* Elements from a row of x to the next. */
KFN int step_x_stride(int64_t in) {
    return (int)in + 32;
}

/* ---- lists of instructions of one row (kernels/one.cu), of up to LIST_FEW rows (kernels/few.cu) and of up to LIST_ROWS (kernels/several.cu) ---- */

/* LIST_RUN: positions of a run of attention at least, where a row has as many. */
enum { LIST_WARPS = 16, LIST_SLOTS = 8, LIST_FEW = 4, LIST_ROWS = 8, LIST_RUN = 128 };

/* The rows that the kernel for so many has room for. */
KFN int list_room(int rows) {
    return rows > LIST_FEW ? LIST_ROWS : rows > 1 ? LIST_FEW : 1;
}
/* Bytes of instructions and of what a block knows of its rows. */
KFN int list_head_bytes(int rows) {
    return LIST_SLOTS * K_INSTR_BYTES + (rows > LIST_FEW ? 8704 : rows > 1 ? 5120 : 2560);
}
/* Attention: query heads that a warp takes at most; parts of heads that the warps of a block make at most, which lie where a product has its sums. */
enum { SET_HEADS = 4 };
KFN int list_parts(bool is_small) {
    return is_small ? 32 : 64;
}
/* One row: tiles whose sums are made at once, and the floats of their sums, of which there are two sets. */
KFN int list_tiles(bool is_small) {
    return is_small ? 8 : 16;
}
KFN int list_sums(bool is_small) {
    return list_tiles(is_small) * TILE_ROWS * (LIST_WARPS + 1);
}
/* Heads wider than 128 have half as many parts. */
KFN int list_parts_of(bool is_small, int width) {
    return width > 128 ? list_parts(is_small) / 2 : list_parts(is_small);
}
/* kernels/one_post.cu: more bytes of what a block knows; bytes for a unit of x that is a sum, what came and what it is added to. */
enum { LIST_POST_HEAD = 2048, LIST_SUM_UNIT = 2 * TILE_UNIT * 4 };
/* One row: a product's x in units of 64 elements, scales first. */
KFN int list_scales(int units) {
    return (units + 1) / 2 * 2;
}
KFN int list_x_bytes(int units) {
    return list_scales(units) * 8 + units * 128;
}
/* Several rows: tiles whose sums are made at once, a float for each lane of each warp and its two rows of the tile, by rows of x; the bytes of that, which are enough for
 * attention's parts. */
KFN int rows_tiles(bool is_small, int rows) {
    return (is_small ? 32 : 64) / list_room(rows);
}
KFN int rows_sums_bytes(bool is_small) {
    return (is_small ? 32 : 64) / 2 * LIST_WARPS * 32 * 4;
}
/* Several rows: x of a product in memory, for all blocks: the squares of each row by warps, units of 64 elements of each row, then what one means in each and their sum. */
enum { ROWS_UNIT = 128, ROWS_SCALE = 8, ROWS_SQUARES = LIST_ROWS * LIST_WARPS * 8 };
#define ROWS_NOT_THERE 0x80808080u /* a word that is not written yet */
KFN int rows_x_bytes(int units, int rows) {
    return (ROWS_SQUARES + units * list_room(rows) * (ROWS_UNIT + ROWS_SCALE) + 127) / 128 * 128;
}
/* Units of a warp that are made in one piece in shared memory, each with what one means. */
KFN int rows_stage_units(bool is_small) {
    return rows_sums_bytes(is_small) / LIST_WARPS / (ROWS_UNIT + ROWS_SCALE);
}
/* Five rows and more: the next units of x of each warp, on their way to shared memory; with fewer rows they are on their way to registers. */
KFN int rows_ahead_bytes(int rows) {
    return rows > LIST_FEW ? 2 * LIST_ROWS * (ROWS_UNIT + ROWS_SCALE) : 0;
}
/* Units that a warp asks for at once, and the bytes of a place of its ring: units of both tiles of a pair, of bf16 one unit of one tile. has_8: products of
 * the list may have codes of 8 bits; a place that is not small has room for those anyway. */
KFN int list_chunk_units(bool is_plain, bool is_8, bool is_small) {
    return is_plain || is_8 || is_small ? 1 : 2;
}
KFN int list_place_bytes(bool is_plain, bool has_8, bool is_small) {
    return is_plain ? PLAIN_UNIT_BYTES : 2 * list_chunk_units(is_plain, false, is_small) * tile_unit_bytes(has_8 && is_small ? 8 : 4, 64);
}
/* Places of a warp's ring at most. */
KFN int list_depth(bool is_plain) {
    return is_plain ? 3 : 4;
}

/* ---- products of many rows ---- */

/* kernels/qmm.cu: a block makes 128 results of up to 64 rows. Elements from a row of x in shared memory to the next. */
enum { QMM_WARPS = 4, QMM_RESULTS = 128, QMM_STAGES = 4, QMM_TILE_STAGES = 5 };
KFN int codes_x_stride(int bits) {
    return bits == 16 ? 96 : 72;
}

/* kernels/qmm_sm90.cu: a block makes 16 results with each of its warps, of up to `rows` rows; other warps bring x. */
enum { WQMM_X_STAGES = 6, WQMM_FILLERS = 4, WQMM_CHUNKS = 4 };
KFN int wqmm_chunk_units(int bits) {
    return bits == 8 ? 2 : 4;
}
KFN int wqmm_warps(int rows) {
    return rows == 128 ? 8 : 16;
}

/* kernels/qmm_short_sm90.cu: rows of the weight and the most units of k that a block takes. Its warpgroups share those; the room for units that each of them has, where
 * its sums lie afterwards. */
enum { WSHORT_ROWS = 64, WSHORT_UNITS = 16, WSHORT_WARPS = 16 };
KFN int wshort_group_units(int units, int splits) {
    int n = ((units + splits - 1) / splits + 3) / 4;
    return n < 2 ? 2 : n;
}

/* kernels/gemm.cu: 128 x 128 results, 64 elements of k in a stage. */
enum { GEMM_TILE = 128, GEMM_K = 64, GEMM_STAGES = 3, GEMM_THREADS = 128, GEMM_SHARED = GEMM_STAGES * 2 * GEMM_TILE * GEMM_K * 2 };

/* kernels/gemm_bytes.cu: 64 rows of x as integers (X16_UNIT below), their sums, for each of four warps `tiles` tiles of the weight. */
enum { GEMM_BYTES_ROWS = 64, GEMM_BYTES_WARPS = 4, GEMM_BYTES_STAGES = 2, GEMM_BYTES_NARROW = 2, GEMM_BYTES_WIDE = 4 };
KFN int gemm_bytes_stage(int bits, int runs, int tiles) {
    return GEMM_BYTES_ROWS * (TILE_UNIT * 2 + runs * 4) + GEMM_BYTES_WARPS * tiles * (tile_codes(bits) + runs * TILE_META);
}

/* kernels/gemm_sm90.cu: 128 rows of x, 128 or 256 of the weight. The ring begins at a multiple of 1,024. */
enum { WGEMM_ROWS = 128, WGEMM_K = 64, WGEMM_THREADS = 384 };
KFN int wgemm_stages(int width) {
    return width == 256 ? 4 : 6;
}
KFN int wgemm_stage_bytes(int width) {
    return (WGEMM_ROWS + width) * WGEMM_K * 2;
}
KFN int wgemm_shared_bytes(int width) {
    return 1024 + wgemm_stages(width) * wgemm_stage_bytes(width);
}

/* ---- attention ---- */

/* The cache of 8 bits (kernels/kv8.cuh): bytes of a block of one cached head, codes and scales. */
KFN int64_t kv8_block_bytes(int64_t width) {
    return K_BLOCK * (width + 4);
}
/* kernels/attn8.cuh: positions that a warp takes at a time, query heads that it takes at most; floats from a part of a head to the next: results, the
 * largest score, the sum of weights. Of a list: bytes of a block's queries, and of these with the new key and value. */
enum { ATTN8_UNIT = 32, ATTN8_HEADS = 8, ATTN8_WARPS = 4 };
KFN int attn8_part(int width) {
    return width + 4;
}
KFN int attn8_query_bytes(int width) {
    return ATTN8_HEADS * (2 * width + 4);
}
KFN int attn8_item_bytes(int width) {
    return attn8_query_bytes(width) + 2 * width + 16;
}

/* kernels/decode.cu: every warp takes 16 positions at a time, through a ring of slots; wide heads have few of them where shared memory is small. */
enum { DECODE_WARPS = 4, DECODE_TILE = 16, DECODE_SLOTS = 6, DECODE_SHORT_SLOTS = 2, DECODE_WIDE_SLOTS_SMALL = 2 };

/* kernels/flash.cu, flash_rows.cu and flash_sm90.cu: tiles of 64 rows of one sequence, as they stand in the step block; stages of cached blocks. */
enum { FLASH_ROWS = 64, WFLASH_RING = 4 };
/* Elements from a row of shared memory to the next. Rows that are no multiple of 128 bytes are an odd number of 16-byte pieces apart. */
KFN int flash_row_room(int width) {
    return width % 64 ? width + 8 : width;
}
KFN int flash_shared_bytes(int width) {
    return (width > 128 ? 5 : 4) * K_BLOCK * flash_row_room(width) * 2; /* two stages of keys and values, then the queries of wide heads */
}
/* The same of heads of 256 where a block has little shared memory: one stage. */
KFN int flash_narrow_bytes(int width) {
    return 3 * K_BLOCK * width * 2;
}
KFN int wflash_shared_bytes(int width, int heads) {
    return 1024 + (2 * WFLASH_RING + heads) * K_BLOCK * width * 2;
}

/* kernels/latent.cu: warps of a block, positions of a tile, query heads of a block, numbers of a cached position and of its values, elements from a
 * head's weights to the next one's. Shared memory: queries, two tiles, weights, a number of each warp and head. */
enum { LATENT_WARPS = 4, LATENT_TILE = 32, LATENT_HEADS = 16, LATENT_WIDTH = 576, LATENT_VALUES = 512, LATENT_P_ROOM = LATENT_TILE + 8 };
KFN int latent_shared_bytes(void) {
    return (LATENT_HEADS + 2 * LATENT_TILE) * LATENT_WIDTH * 2 + LATENT_HEADS * LATENT_P_ROOM * 2 + LATENT_WARPS * LATENT_HEADS * 4;
}

/* The same in a list of one row (kernels/one_latent.cuh): runs of positions at most. Shared memory of a block: a tile, with queries before it where the sums of products are no
 * room for them. */
enum { LATENT_RUNS_MAX = 64, LATENT_ROPE = LATENT_WIDTH - LATENT_VALUES, LATENT_PART = LATENT_VALUES + 2 };
enum { LATENT_QUERY_BYTES = LATENT_HEADS * LATENT_WIDTH * 2, LATENT_SCORE_ROOM = LATENT_TILE + 1, LATENT_SHARES = 4 };
KFN int list_latent_bytes(bool is_small) {
    return LATENT_TILE * LATENT_WIDTH * 2 + (is_small ? LATENT_QUERY_BYTES : 0);
}

/* ---- experts ---- */

/* kernels/experts.cu. Few rows: results of a block, threads of both halves, bytes of its sums. Many: pairs of a tile, what a block makes of it. Of
 * batches: pairs of a tile, which are a block's warps too. */
enum { EXPERTS_FEW_RESULTS = 16, EXPERTS_INNER_WARPS = 4, EXPERTS_DOWN_WARPS = 16, EXPERTS_CHOICES_MAX = 64, EXPERTS_MAX = 1024 };
enum { EXPERTS_TILE_PAIRS = 64, EXPERTS_TILE_STAGES = 3, EXPERTS_TILE_WARPS = 4 };
/* A row of x as integers of 16 bits (kernels/x16.cuh): units of 64 elements, then a scale and a sum for each. */
enum { X16_UNIT = 128, X16_SCALE_BYTES = 8 };
KFN int64_t x16_bytes(int64_t width) {
    return (width / TILE_UNIT * (X16_UNIT + X16_SCALE_BYTES) + 15) / 16 * 16;
}
/* The same of f16, for experts of mxfp4: what one means is a float for each unit. Rows are an odd number of 64 bytes apart, so that lanes meet all banks. */
KFN int64_t xf16_bytes(int64_t width) {
    return (width / TILE_UNIT * (TILE_UNIT * 2 + 4) + 127) / 128 * 128 + 64;
}

/* kernels/experts_sm90.cu: pairs of a tile, results of a block, stages of x, warps that multiply and that bring x, units of a copy. */
enum { WEXPERTS_PAIRS = 128, WEXPERTS_ANY_PAIRS = 64, WEXPERTS_BATCH_PAIRS = 32, WEXPERTS_INNER = 128, WEXPERTS_DOWN = 256 };
enum { WEXPERTS_X_STAGES = 8, WEXPERTS_WARPS = 8, WEXPERTS_FILLERS = 4, WEXPERTS_CHUNK_UNITS = 4, WEXPERTS_CHUNKS = 2 };
KFN int wexperts_shared_bytes(void) {
    return 1024 + WEXPERTS_X_STAGES * WEXPERTS_PAIRS * TILE_UNIT * 2 +
           WEXPERTS_WARPS * WEXPERTS_CHUNKS * 2 * WEXPERTS_CHUNK_UNITS * tile_unit_bytes(4, 32);
}

/* ---- ranks (kernels/ranks.cu): a desk has a flag for each rank and block; words that carry their round, for two rounds, of each rank; a slot of numbers for
 * each block, for two rounds ---- */

enum { RANKS_THREADS = 256, DESK_BLOCKS = 64, DESK_FEW = 16384, DESK_SLOT = 4096 };
enum {
    DESK_FLAGS = 0,
    DESK_WORDS = DESK_FLAGS + RANKS_MAX * DESK_BLOCKS * 4,
    DESK_SLOTS = DESK_WORDS + 2 * RANKS_MAX * DESK_FEW * 8,
    DESK_BYTES = DESK_SLOTS + 2 * DESK_BLOCKS * DESK_SLOT * 4
};

/* ---- choosing (kernels/choose.cu): threads of a block, parts of a piece of the vocabulary ---- */

enum { CHOOSE_THREADS = 512, CHOOSE_PIECE_PARTS = 4 };

#endif
