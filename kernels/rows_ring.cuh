// kernels/few.cu: weights on their way to shared memory, where a step has several rows.
//
// As in one_ring.cuh every warp has a ring of places, whose cursor walks over its units of all products of the list. But the order is another one: x of several
// rows is large, so a warp takes a few units of k for all tiles of its block, and then the next few, while x of these lies in its registers. Its sums
// wait in shared memory meanwhile, which has room for rows_tiles() tiles. A block with more tiles goes through k again for the others: a round.
#pragma once
#include "one_ring.cuh"

enum { TILES_AT_ONCE = rows_tiles(SMALL_SHARED, ROWS) };

struct rows_cursor {
    const unsigned char *p; // the warp's first unit of the round's first pair of tiles
    int at, mine;           // unit of the warp's part of k, and how many it has
    int tile, tiles, left;  // tile of the round, tiles of the round, tiles of this and later rounds
    int next;               // the instruction to look at next
};

struct rows_ring {
    rows_cursor c;
    unsigned char *places;
    uint32_t arrived;
    int depth, under_way, put, take;
    uint32_t phases;
};

static __device__ __forceinline__ void begin_round(rows_cursor &c) {
    c.at = c.tile = 0;
    c.tiles = c.left < TILES_AT_ONCE ? c.left : (int)TILES_AT_ONCE;
}

// Whether the cursor has a unit; it moves on to instructions below `limit`.
template <int KIND, int WARPS> static __device__ __forceinline__ bool has_rows_unit(rows_cursor &c, const shared_head *head, int limit) {
    if (c.left > 0) return true;
#pragma unroll 1
    while (c.next < limit) {
        const k_instr &in = head->slots[c.next % SLOTS];
        const k_stream s = in.stream;
        c.next++;
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, u0 = warp * s.units / WARPS;
        c.mine = (warp + 1) * s.units / WARPS - u0;
        c.left = c.mine ? count_tiles(s) * s.parts : 0;
        if (c.left == 0) continue;
        c.p = s.values + (int64_t)first_tile(s) * s.tile_bytes + u0 * unit_of<KIND>(in);
        if (s.norm && lane < c.mine * 2) prefetch_line(s.norm + u0 * 64 + lane * 32);
        begin_round(c);
        return true;
    }
    return false;
}

// Begins to copy the cursor's units of a pair of tiles, or of the last one alone, and moves on: to the next pair, units, round.
template <int KIND, int WARPS> static __device__ __forceinline__ void fetch_rows(rows_ring &r, const shared_head *head) {
    rows_cursor &c = r.c;
    const k_instr &in = head->slots[(c.next - 1) % SLOTS];
    const k_stream &s = in.stream;
    int chunk = chunk_of<KIND>(in), unit = unit_of<KIND>(in), n = c.mine - c.at < chunk ? c.mine - c.at : chunk;
    const unsigned char *from = c.p + (int64_t)(c.tile / 2) * s.pair_bytes + c.at * unit;
    copy_tiles(r.places + r.put * place_bytes<KIND>(), r.arrived + r.put * 8, from, n * unit, c.tile + 1 < c.tiles, s.second, chunk * unit);
    if (!is_bulk<KIND>()) copy_commit();
    r.put = r.put + 1 == r.depth ? 0 : r.put + 1;
    r.under_way++;
    c.tile += 2;
    if (c.tile < c.tiles) return;
    c.tile = 0, c.at += n;
    if (c.at < c.mine) return;
    c.p += (int64_t)(c.tiles / 2) * s.pair_bytes;
    c.left -= c.tiles;
    begin_round(c);
}

template <int KIND, int WARPS> static __device__ __forceinline__ void begin_rows_ring(rows_ring &r, const k_step_run &a, shared_head *head, unsigned char *places) {
    int warp = threadIdx.x / 32;
    r.c.left = r.c.next = r.under_way = r.put = r.take = 0;
    r.phases = 0;
    r.depth = a.depth;
    r.arrived = 0;
#ifndef MLXCEL_EMULATE
    r.arrived = (uint32_t)__cvta_generic_to_shared(&head->arrived[warp * (PLACES_MAX / WARPS)]);
#endif
    r.places = places + warp * r.depth * place_bytes<KIND>();
}
