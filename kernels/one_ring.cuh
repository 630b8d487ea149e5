// kernels/one.cu: what lies in shared memory, and what is on its way there, weights and instructions.
//
// Every warp has a ring of places. Its cursor walks over its units of all products of the list, so that a place that becomes free is asked for
// again at once, whatever instruction its weights are for. On sm_90 and later one lane asks for a place's bytes and a barrier counts
// them; before that, and where places are small (two requests for 1,152 bytes were 2 % slower), every lane asks for pieces of 16.
#pragma once
#include "backend/cuda/shared/list_groups.h"
#include "bulk.cuh"
#include "step.cuh"

#if defined(HAS_BULK) && !SMALL_SHARED
#define ONE_BULK 1
#endif

// The most rows of a step: kernels/few.cu and several.cu have more than one.
#ifndef ONE_ROWS
#define ONE_ROWS 1
#endif

enum { ROWS = ONE_ROWS, SLOTS = LIST_SLOTS, AHEAD_INSTRS = 6, LOOK = 5, PLACES_MAX = LIST_WARPS * list_depth(false) };
// What the weights of a list are: 4 bits in groups of 64 or more, bf16, f16; as W4, with experts; 4 or 8 bits, as each product says; the same in groups of 16 and
// more; as WG, with experts of 4 bits in groups or of mxfp4. W8, FP4: one product of 8 bits, of mxfp4.
// W4P: as W4, with norms behind products (one_post.cu).
enum weight_kind { W4, W16, WF16, W4E, W48, WG, W8, WGE, FP4, W4P };
template <int KIND> static __device__ __forceinline__ constexpr bool is_plain() {
    return KIND == W16 || KIND == WF16;
}
template <int KIND> static __device__ __forceinline__ constexpr bool has_experts() {
    return KIND == W4E || KIND == WGE;
}
// Units have the size that their product says.
template <int KIND> static __device__ __forceinline__ constexpr bool has_groups() {
    return KIND == WG || KIND == WGE;
}
// x of a product may be a sum (k_step_linear.has_sum).
template <int KIND> static __device__ __forceinline__ constexpr bool has_sums() {
    return KIND == W4P;
}
template <int KIND> static __device__ __forceinline__ bool is_fp4(const k_step_linear &a) {
    return KIND == WGE && a.w.mode == K_MXFP4;
}

// Which part of attention an item makes: query heads of one cached head, from one of them on, over positions begin ... end - 1 of the cache and
// `own` more behind them, whose keys and values this step makes: the row's own, and those of rows of the same sequence before it.
struct part_of {
    int kv_head, first, n, split, splits, begin, end, own;
};

// What an item of attention asks for again in every layer: which row it is of, its position, its part, and blocks of the table from one on.
struct known_item {
    int item, row, pos, seq, first_block, first_visible, shape;
    uint32_t last;
    part_of part;
    const int32_t *table;
    int32_t blocks[TABLE_MAX];
};

// Layers with a window and layers without take turns: a block keeps what it knows of either, of one_post.cu also their angles.
#if defined(ONE_MIXED) || defined(ONE_POST)
#define ONE_WINDOWS
#endif
#ifdef ONE_POST
enum { LIST_PAIRS = 128, ANGLES = 2, HEAD_MORE = LIST_POST_HEAD };
#else
enum { LIST_PAIRS = 64, ANGLES = 1, HEAD_MORE = 0 };
#endif

// Of all rows: cosines and sines of their positions by this table.
struct known_angles {
    const float *inv_freq;
    float cosines[ROWS][LIST_PAIRS], sines[ROWS][LIST_PAIRS];
};

struct shared_head {
    k_instr slots[SLOTS];
    float squares[2][ROWS][LIST_WARPS];
    uint32_t tag;
    known_item known[ROWS];
    known_angles turns[ANGLES];
    uint64_t arrived[PLACES_MAX + 1]; // barriers: one for every place of the rings; behind them that of the instruction that is on its way
    // The experts that were chosen last, their weights, and the number of the instruction that they were chosen for.
    int32_t ids[K_CHOICES_MAX];
    float weights[K_CHOICES_MAX];
    int chosen;
#ifdef ONE_WINDOWS
    known_item windowed;
#endif
#ifdef ONE_POST
    float came[LIST_WARPS]; // squares of what came, by warps
#endif
};
enum { HEAD_BYTES = list_head_bytes(ROWS) + HEAD_MORE };
static_assert(sizeof(shared_head) <= HEAD_BYTES, "list_head_bytes is too small");

// The sum over as many lanes as a block has warps, in each of them.
template <int WARPS> static __device__ __forceinline__ float sum_lanes(float x) {
#pragma unroll
    for (int step = WARPS / 2; step > 0; step /= 2) x += __shfl_xor_sync(FULL, x, step);
    return x;
}

// A place of a ring has as many units as a warp asks for at once, of both tiles of a pair; of bf16 one unit of one tile.
template <int KIND> static __device__ __forceinline__ constexpr int unit_bytes() {
    return is_plain<KIND>() ? PLAIN_UNIT_BYTES : tile_unit_bytes(KIND == W8 ? 8 : 4, 64);
}
template <int KIND> static __device__ __forceinline__ constexpr int chunk_units() {
    return list_chunk_units(is_plain<KIND>(), KIND == W8, SMALL_SHARED);
}
template <int KIND> static __device__ __forceinline__ constexpr int place_bytes() {
    return has_groups<KIND>() ? (int)GROUPS_PLACE : list_place_bytes(is_plain<KIND>(), KIND == W48, SMALL_SHARED);
}
static_assert(place_bytes<W48>() >= 2 * unit_bytes<W8>(), "a place holds either");
static_assert(groups_place_holds_all(), "a place holds a unit of both tiles");
#ifdef ONE_BULK
template <int KIND> static __device__ __forceinline__ constexpr bool is_bulk() {
    return !is_plain<KIND>(); // rows of plain weights lie apart
}
#else
template <int KIND> static __device__ __forceinline__ constexpr bool is_bulk() {
    return false;
}
#endif

// Shared memory: the head, two sets of sums [list_tiles][16][warps + 1], rings, scales and sums of x, x.
template <int WARPS> static __device__ __forceinline__ constexpr int red_floats() {
    static_assert(WARPS == LIST_WARPS, "the host counts with as many");
    return list_sums(SMALL_SHARED);
}
template <int WARPS> static __device__ __forceinline__ constexpr int rings_at() {
    return HEAD_BYTES + 2 * red_floats<WARPS>() * 4;
}

// A warp's units in the order in which it takes them, and which comes next.
struct cursor {
    const unsigned char *p; // the next unit, of the first tile of the pair; of bf16 this lane's part
    int second;             // from p: to the second tile (bf16: eight rows on)
    int next_tiles;         // from the unit behind the last to the first of the next pair
    int at, mine, tiles;    // unit inside the tile, units of a tile, tiles that are left
    int next;               // the instruction to look at next
    int i_tile;             // of bf16 and of experts
    int left;               // of experts: units until the next choice's begin
};

// A product's unit in bytes, and units of a place.
template <int KIND> static __device__ __forceinline__ int unit_of(const k_instr &in) {
    if (KIND == WGE) return in.unit_bytes;
    if (KIND == WG) return tile_unit_bytes(in.u.linear.w.bits, in.u.linear.w.group);
    return KIND == W48 && in.u.linear.w.bits == 8 ? unit_bytes<W8>() : unit_bytes<KIND>();
}
template <int KIND> static __device__ __forceinline__ int chunk_of(const k_instr &in) {
    if (has_groups<KIND>()) return groups_chunk_units(unit_of<KIND>(in), SMALL_SHARED);
    return KIND == W48 && in.u.linear.w.bits == 8 ? chunk_units<W8>() : chunk_units<KIND>();
}

static __device__ __forceinline__ int first_tile(const k_stream &s) {
    int b = blockIdx.x;
    return b * s.tiles_each + (b < s.tiles_more ? b : s.tiles_more);
}
static __device__ __forceinline__ int count_tiles(const k_stream &s) {
    return s.tiles_each + ((int)blockIdx.x < s.tiles_more);
}

static __device__ __forceinline__ void point_plain(const k_instr &in, cursor &c, int u0) {
    const k_step_linear &a = in.u.linear;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, i = c.i_tile;
    int first = first_tile(in.stream), tile = a.glu_inner ? first + i / 2 + i % 2 * ((int)a.glu_inner / 16) : first + i;
    int last = (int)a.w.out - 1, r0 = tile * 16 + g, r1 = r0 + 8;
    if (r0 > last) r0 = last;
    if (r1 > last) r1 = last;
    c.p = a.w.values + r0 * a.w.values_bytes + u0 * 128 + t * 16;
    c.second = (r1 - r0) * (int)a.w.values_bytes;
}

#ifdef ONE_LATENT
// Choices behind those of the router are parts of the expert that every row takes: its matrix has as many times the tiles, or units of a tile, of one of them.
static __device__ __forceinline__ void point_shared(const k_instr &in, cursor &c, int choice, int tile, int unit, int unit_bytes) {
    const k_stream &s = in.stream;
    const k_step_linear &a = in.u.linear;
    int routed = a.e.rule.k, part = choice - routed, parts = a.e.k - routed;
    c.second = part < 0 ? s.second : s.second * parts;
    if (part < 0) return;
    if (s.half == K_HALF_INNER) c.p = a.shared + (int64_t)(part * s.each + tile) * s.tile_bytes + unit * unit_bytes;
    else c.p = a.shared + (int64_t)tile * s.tile_bytes * parts + (part * s.each + unit) * unit_bytes;
}
#endif

// Of experts: the cursor's tile from unit u of the row's k on. Units of DOWN go through the choices, tiles of INNER.
template <int KIND> static __device__ __forceinline__ void point_expert(const k_instr &in, const shared_head *head, cursor &c, int u) {
    const k_stream &s = in.stream;
    int tile = first_tile(s) + c.i_tile, choice = (s.half == K_HALF_INNER ? tile : u) / s.each, unit = u;
    c.left = 1 << 30;
    if (s.half == K_HALF_INNER) tile -= choice * s.each;
    else unit -= choice * s.each, c.left = s.each - unit;
    c.p = s.values + ((int64_t)head->ids[choice] * s.expert_tiles + tile) * s.tile_bytes + unit * unit_of<KIND>(in);
#ifdef ONE_LATENT
    point_shared(in, c, choice, tile, unit, unit_of<KIND>(in));
#endif
}

// Whether the cursor has a unit; it moves on to instructions below `limit`, and not to experts before they are chosen.
template <int KIND, int WARPS> static __device__ __forceinline__ bool has_unit(cursor &c, const shared_head *head, int limit) {
    if (c.tiles > 0) return true;
#pragma unroll 1
    while (c.next < limit) {
        const k_instr &in = head->slots[c.next % SLOTS];
        const k_stream s = in.stream;
        if (has_experts<KIND>() && s.half == K_HALF_INNER && head->chosen != in.number) return false;
        c.next++;
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, u0 = warp * s.units / WARPS;
        int tiles = count_tiles(s), first = first_tile(s);
        c.mine = (warp + 1) * s.units / WARPS - u0;
        c.tiles = c.mine ? tiles * s.parts : 0;
        c.at = c.i_tile = 0;
        c.second = s.second;
        c.p = s.values + (int64_t)first * s.tile_bytes + u0 * unit_of<KIND>(in);
        c.next_tiles = s.pair_bytes - c.mine * unit_of<KIND>(in);
        if (c.tiles == 0) continue;
        if (s.norm && lane < c.mine * 2) prefetch_line(s.norm + u0 * 64 + lane * 32);
        if (has_sums<KIND>() && in.u.linear.sum_norm && lane < c.mine * 2) prefetch_line(in.u.linear.sum_norm + u0 * 64 + lane * 32);
        if (is_plain<KIND>()) point_plain(in, c, u0);
        c.left = 1 << 30;
        if (has_experts<KIND>() && s.half) point_expert<KIND>(in, head, c, u0);
        return true;
    }
    return false;
}

// The instruction AHEAD_INSTRS behind the i-th, on its way to the place of one that no warp reads any more.
#ifdef ONE_BULK
struct coming {
    bool any;
};
static __device__ __forceinline__ coming begin_instr(const k_step_run &a, shared_head *head, int i) {
    coming c = {i + AHEAD_INSTRS < a.n};
    if (c.any && threadIdx.x == 0) {
        uint32_t barrier = (uint32_t)__cvta_generic_to_shared(&head->arrived[PLACES_MAX]);
        barrier_expect(barrier, K_INSTR_BYTES);
        copy_bulk((uint32_t)__cvta_generic_to_shared(&head->slots[(i + AHEAD_INSTRS) % SLOTS]), a.instrs + i + AHEAD_INSTRS, K_INSTR_BYTES, barrier);
    }
    return c;
}
static __device__ __forceinline__ void end_instr(coming c, shared_head *head, int i) {
    if (c.any && threadIdx.x < 32) barrier_wait((uint32_t)__cvta_generic_to_shared(&head->arrived[PLACES_MAX]), i & 1);
}
#else
struct coming {
    uint32_t word;
};
static __device__ __forceinline__ coming begin_instr(const k_step_run &a, shared_head *, int i) {
    coming c = {0};
    if (threadIdx.x < K_INSTR_BYTES / 4 && i + AHEAD_INSTRS < a.n) c.word = ((const uint32_t *)(a.instrs + i + AHEAD_INSTRS))[threadIdx.x];
    return c;
}
static __device__ __forceinline__ void end_instr(coming c, shared_head *head, int i) {
    if (threadIdx.x < K_INSTR_BYTES / 4) *((uint32_t *)&head->slots[(i + AHEAD_INSTRS) % SLOTS] + threadIdx.x) = c.word;
}
#endif

// The list's first instructions come to shared memory; nothing is known yet.
template <int WARPS> static __device__ __forceinline__ void begin_list(const k_step_run &a, shared_head *head) {
    for (int i = threadIdx.x; i < AHEAD_INSTRS * K_INSTR_BYTES / 16; i += WARPS * 32)
        if (i / (K_INSTR_BYTES / 16) < a.n) ((uint4 *)head->slots)[i] = ((const uint4 *)a.instrs)[i];
    if (threadIdx.x < ROWS) head->known[threadIdx.x].item = -1;
#ifdef ONE_WINDOWS
    if (threadIdx.x == 0) head->windowed.item = -1;
#endif
    if (threadIdx.x == 0) {
        head->tag = a.barrier[COUNTERS_TAG] + 1;
        head->chosen = -1;
    }
#ifdef ONE_BULK
    for (int i = threadIdx.x; i < PLACES_MAX + 1; i += WARPS * 32) barrier_init((uint32_t)__cvta_generic_to_shared(&head->arrived[i]), 1);
    barrier_init_done();
#endif
    __syncthreads();
}

// Where a warp stands in its ring: what it asks for next, how many places are under way, those of the next to come and to be used, and which
// phase of its barrier each waits for.
struct ring_state {
    cursor c;
    unsigned char *places;
    uint32_t arrived;
    int depth, under_way, put, take;
    uint32_t phases;
};

// Units of one or two tiles to a place: one lane asks for all, or every lane for pieces of 16 bytes. second: bytes to the second tile's units; to_second: the same in the place.
static __device__ __forceinline__ void copy_tiles(unsigned char *place, uint32_t barrier, const unsigned char *from, int bytes, bool two, int second, int to_second) {
#ifdef ONE_BULK
    if (threadIdx.x % 32) return;
    uint32_t to = (uint32_t)__cvta_generic_to_shared(place);
    barrier_expect(barrier, two ? 2 * bytes : bytes);
    copy_bulk(to, from, bytes, barrier);
    if (two) copy_bulk(to + to_second, from + second, bytes, barrier);
#else
    for (int i = threadIdx.x % 32 * 16; i < bytes; i += 512) {
        copy16(place + i, from + i, true);
        if (two) copy16(place + to_second + i, from + second + i, true);
    }
#endif
}

static __device__ __forceinline__ void copy_rows(const cursor &c, unsigned char *to) {
    to += threadIdx.x % 32 * 16;
    copy16(to, c.p, true);
    copy16(to + 512, c.p + 64, true);
    copy16(to + 1024, c.p + c.second, true);
    copy16(to + 1536, c.p + c.second + 64, true);
}

// Begins to copy the cursor's units, of two tiles or of the last one alone, and moves on.
template <int KIND, int WARPS> static __device__ __forceinline__ void fetch(ring_state &r, const shared_head *head) {
    cursor &c = r.c;
    const k_instr &in = head->slots[(c.next - 1) % SLOTS];
    unsigned char *place = r.places + r.put * place_bytes<KIND>();
    int n = c.mine - c.at < chunk_of<KIND>(in) ? c.mine - c.at : chunk_of<KIND>(in);
    if (has_experts<KIND>() && c.left < n) n = c.left;
    if (is_plain<KIND>()) copy_rows(c, place);
    else copy_tiles(place, r.arrived + r.put * 8, c.p, n * unit_of<KIND>(in), c.tiles > 1, c.second, chunk_of<KIND>(in) * unit_of<KIND>(in));
    if (!is_bulk<KIND>()) copy_commit();
    r.put = r.put + 1 == r.depth ? 0 : r.put + 1;
    r.under_way++;
    c.p += is_plain<KIND>() ? 128 : n * unit_of<KIND>(in);
    c.at += n;
    int u0 = (int)(threadIdx.x / 32) * in.stream.units / WARPS;
    if (c.at < c.mine) {
        if (has_experts<KIND>() && (c.left -= n) == 0) point_expert<KIND>(in, head, c, u0 + c.at);
        return;
    }
    c.at = 0;
    c.tiles -= is_plain<KIND>() ? 1 : 2;
    if (has_experts<KIND>() && in.stream.half) {
        c.i_tile += in.stream.half == K_HALF_INNER ? 1 : 2;
        if (c.tiles > 0) point_expert<KIND>(in, head, c, u0);
    } else if (!is_plain<KIND>()) c.p += c.next_tiles;
    else if (c.tiles > 0) {
        c.i_tile++;
        point_plain(in, c, u0);
    }
}

// Waits for the oldest of n places under way, at most four.
static __device__ __forceinline__ void wait_oldest(int n) {
    if (n >= 4) copy_wait<3>();
    else if (n == 3) copy_wait<2>();
    else if (n == 2) copy_wait<1>();
    else copy_wait<0>();
}

// RING: a ring of one row, or of several (rows_ring.cuh).
template <int KIND, class RING> static __device__ __forceinline__ const unsigned char *wait_place(const RING &r) {
#ifdef ONE_BULK
    if (is_bulk<KIND>()) barrier_wait(r.arrived + r.take * 8, r.phases >> r.take & 1);
#endif
    if (!is_bulk<KIND>()) {
        wait_oldest(r.under_way);
        __syncwarp();
    }
    return r.places + r.take * place_bytes<KIND>();
}

template <class RING> static __device__ __forceinline__ void leave_place(RING &r) {
    __syncwarp();
    r.phases ^= 1u << r.take;
    r.take = r.take + 1 == r.depth ? 0 : r.take + 1;
    r.under_way--;
}
