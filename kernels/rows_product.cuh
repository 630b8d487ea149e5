// kernels/few.cu: products of several rows.
//
// A product of the tensor cores has eight columns, of which a row of x fills two, high and low bytes: four rows are multiplied in the time of one, eight take twice the
// products, and the codes are made operands once. A warp has x of a few units in registers, and goes with it through all tiles of its block; it keeps its sums in
// shared memory meanwhile. Each row has the sums that it has alone (kernels/one.cu), in the same order.
#pragma once
#include "one_codes.cuh"
#include "one_end.cuh"
#include "rows_ring.cuh"
#include "rows_x.cuh"

enum { HALVES = ROWS / 4, SUMS = 2 * HALVES, TILE_SUMS = LIST_WARPS * 32 * SUMS }; // HALVES: sets of four rows; SUMS: of a lane and tile

// This lane's words of x of some units: a row's high bytes and low bytes, of which it needs one kind and the lane four beside it the other; what one means in the rows of its results.
template <int UNITS> struct x_words {
    uint4 codes[UNITS][HALVES];
    uint2 scales[UNITS][HALVES];
};

// Where this lane's words of a product's x lie.
struct x_place {
    const unsigned char *codes[HALVES], *scales[HALVES];
};
static __device__ __forceinline__ x_place place_of_x(const k_step_linear &a, int u0) {
    int lane = threadIdx.x % 32, last = a.rows - 1, units = (int)a.w.in / 64;
    x_place x;
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        int column = 4 * h + lane / 8, result = 4 * h + lane % 4;
        x.codes[h] = unit_row(a.x_units, u0, column < last ? column : last) + lane % 4 * 32 + lane / 4 % 2 * 16;
        x.scales[h] = scale_of_row(a.x_units, units, u0, result < last ? result : last);
    }
    return x;
}

// Asks for n units from `unit` on, n <= UNITS; only_missing: for words that were not there.
template <int UNITS> static __device__ __forceinline__ void ask_x(x_words<UNITS> &x, const x_place &from, int unit, int n, bool only_missing) {
#pragma unroll
    for (int j = 0; j < UNITS; j++)
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            if (!only_missing && j >= n) x.codes[j][h] = uint4{0, 0, 0, 0}, x.scales[j][h] = uint2{0, 0};
            if (j >= n) continue;
            if (!only_missing || x.codes[j][h].x == ROWS_NOT_THERE || x.codes[j][h].z == ROWS_NOT_THERE) x.codes[j][h] = load_words4(from.codes[h] + (unit + j) * UNIT_ROOM);
            if (!only_missing || x.scales[j][h].x == ROWS_NOT_THERE) x.scales[j][h] = load_words2(from.scales[h] + (unit + j) * (ROWS * ROWS_SCALE));
        }
}

template <int UNITS> static __device__ __forceinline__ void await_x(x_words<UNITS> &x, const x_place &from, int unit, int n, uint32_t *count) {
    for (int polls = 1;; polls++) {
        bool there = true;
#pragma unroll
        for (int j = 0; j < UNITS; j++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) there = there && (j >= n || (x.codes[j][h].x != ROWS_NOT_THERE && x.codes[j][h].z != ROWS_NOT_THERE && x.scales[j][h].x != ROWS_NOT_THERE));
        if (in_all_lanes(there)) break;
        ask_x<UNITS>(x, from, unit, n, true);
        if (is_long(polls) && gave_up(count, polls)) break;
    }
}

#if defined(ONE_BULK) && ONE_ROWS > 4
#define X_AHEAD 1 // the next units are on their way to shared memory: registers have no room for them

// n units from `unit` on, or UNITS of them, to `to`: [units][rows][ROWS_UNIT], then [units][rows] what one means.
template <int UNITS> static __device__ __forceinline__ void send_ahead(unsigned char *to, const k_step_linear &a, int unit, int n) {
    int lane = threadIdx.x % 32, units = (int)a.w.in / 64;
    if (n > UNITS) n = UNITS;
    const unsigned char *from = unit_row(a.x_units, unit, 0) + lane * 16;
#pragma unroll
    for (int i = 0; i < UNITS * UNIT_ROOM / 512; i++)
        if (i < n * UNIT_ROOM / 512) copy16(to + lane * 16 + i * 512, from + i * 512, true);
    if (lane < n * ROWS * ROWS_SCALE / 16) copy16(to + UNITS * UNIT_ROOM + lane * 16, scale_of_row(a.x_units, units, unit, 0) + lane * 16, true);
    copy_commit();
}

template <int UNITS> static __device__ __forceinline__ void take_ahead(x_words<UNITS> &x, const unsigned char *from, int last) {
    int lane = threadIdx.x % 32;
    copy_wait<0>();
    __syncwarp();
#pragma unroll
    for (int h = 0; h < HALVES; h++) {
        int column = 4 * h + lane / 8, result = 4 * h + lane % 4;
        const unsigned char *codes = from + (column < last ? column : last) * ROWS_UNIT + lane % 4 * 32 + lane / 4 % 2 * 16, *scales = from + UNITS * UNIT_ROOM + (result < last ? result : last) * ROWS_SCALE;
#pragma unroll
        for (int j = 0; j < UNITS; j++) x.codes[j][h] = *(const uint4 *)(codes + j * UNIT_ROOM), x.scales[j][h] = *(const uint2 *)(scales + j * ROWS * ROWS_SCALE);
    }
    __syncwarp();
}
#endif

// A lane's operand out of its words and those of the lane four beside it: all high bytes, or all low ones.
static __device__ __forceinline__ uint4 operand_of(const uint4 &words) {
    bool is_low = threadIdx.x / 4 % 2;
    uint32_t first = __shfl_xor_sync(FULL, is_low ? words.x : words.y, 4), second = __shfl_xor_sync(FULL, is_low ? words.z : words.w, 4);
    return is_low ? uint4{first, second, words.y, words.w} : uint4{words.x, words.z, first, second};
}

// A unit of both tiles of a pair. sums: [2][SUMS].
template <int FORMAT, int DTYPE> static __device__ __forceinline__ void multiply_rows(float *sums, const unsigned char *unit, const uint4 x[HALVES], const uint2 scales[HALVES]) {
    enum { SECOND = chunk_units<FORMAT>() * unit_bytes<FORMAT>(), META = unit_bytes<FORMAT>() - TILE_META };
    unit_codes<FORMAT> codes[2];
    uint2 meta[2][1];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        codes[i].load(unit + i * SECOND);
        meta[i][0] = *(const uint2 *)(unit + i * SECOND + META + threadIdx.x % 32 / 4 * 8);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t a[4], b[4];
        codes[i].first(a), codes[i].second(b);
#pragma unroll
        for (int h = 0; h < HALVES; h++) {
            int32_t products[1][4];
            mma_u8s8_from(products[0], a, x[h].x, x[h].y, 0x4b400000);
            mma_u8s8(products[0], b, x[h].z, x[h].w);
            weigh<1, DTYPE>(sums + i * SUMS + 2 * h, products, meta[i], __uint_as_float(scales[h].x), __uint_as_float(scales[h].y));
        }
    }
}

// A lane's sums of a pair of tiles in shared memory, [tiles][warps][32][SUMS].
static __device__ __forceinline__ void get_sums(float *sums, const float *from) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < SUMS; j += 2) *(float2 *)(sums + i * SUMS + j) = *(const float2 *)(from + i * TILE_SUMS + j);
}
static __device__ __forceinline__ void put_sums(float *to, const float *sums) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < SUMS; j += 2) *(float2 *)(to + i * TILE_SUMS + j) = *(const float2 *)(sums + i * SUMS + j);
}

// A warp without units.
static __device__ __forceinline__ void clear_sums(float *red, int tiles) {
    const float none[2 * SUMS] = {0};
    for (int tile = 0; tile < tiles; tile += 2) put_sums(red + tile * TILE_SUMS, none);
}

// One round of a product: the warp's units, from u0 on, of `tiles` tiles. red: of this lane. ahead: the warp's room for the next units.
template <int KIND, int FORMAT, int WARPS, int DTYPE>
static __device__ __forceinline__ void run_round(const k_step_run &run, const k_step_linear &a, const shared_head *head, rows_ring &r, const x_place &x, float *red, unsigned char *ahead, int u0, int mine, int tiles, int limit) {
    enum { UNITS = chunk_units<FORMAT>() };
    if (tiles == 0) return;
    x_words<UNITS> words;
    ask_x<UNITS>(words, x, 0, mine, false);
#pragma unroll 1
    for (int at = 0; at < mine; at += UNITS) {
        uint4 operands[UNITS][HALVES];
        uint2 scales[UNITS][HALVES];
#ifdef X_AHEAD
        if (at) take_ahead<UNITS>(words, ahead, a.rows - 1);
#endif
        await_x<UNITS>(words, x, at, mine - at, run.barrier);
#pragma unroll
        for (int j = 0; j < UNITS; j++)
#pragma unroll
            for (int h = 0; h < HALVES; h++) operands[j][h] = operand_of(words.codes[j][h]), scales[j][h] = words.scales[j][h];
#ifdef X_AHEAD
        if (at + UNITS < mine) send_ahead<UNITS>(ahead, a, u0 + at + UNITS, mine - at - UNITS);
#else
        if (at + UNITS < mine) ask_x<UNITS>(words, x, at + UNITS, mine - at - UNITS, false);
#endif
#pragma unroll 1
        for (int tile = 0; tile < tiles; tile += 2) {
            if (r.under_way < r.depth && has_rows_unit<KIND, WARPS>(r.c, head, limit)) fetch_rows<KIND, WARPS>(r, head);
            const unsigned char *place = wait_place<KIND>(r);
            float sums[2 * SUMS] = {0};
            if (at) get_sums(sums, red + tile * TILE_SUMS);
#pragma unroll
            for (int j = 0; j < UNITS; j++)
                if (at + j < mine) multiply_rows<FORMAT, DTYPE>(sums, place + j * unit_bytes<FORMAT>(), operands[j], scales[j]);
            put_sums(red + tile * TILE_SUMS, sums);
            leave_place(r);
        }
    }
}

// The sum over the warps, in the order that one row has.
template <int WARPS> static __device__ __forceinline__ float sum_of_warps(const float *from) {
    float sums[WARPS / 2];
#pragma unroll
    for (int w = 0; w < WARPS / 2; w++) sums[w] = from[w * 32 * SUMS] + from[(w + WARPS / 2) * 32 * SUMS];
#pragma unroll
    for (int step = WARPS / 4; step > 0; step /= 2)
#pragma unroll
        for (int w = 0; w < step; w++) sums[w] += sums[w + step];
    return sums[0];
}

// The i-th result of a round: element `i` of a row of results, where its tile's sums of this lane begin.
struct rows_result {
    int tile, sum, row, i;
};
static __device__ __forceinline__ rows_result result_at(int n, int first) {
    rows_result r = {n / (32 * SUMS), n % (32 * SUMS), 0, 0};
    int lane = r.sum / SUMS, part = r.sum % SUMS;
    r.row = lane % 4 + part / 2 * 4;
    r.i = (first + r.tile) * TILE_ROWS + lane / 4 + part % 2 * 8;
    return r;
}

// Results of n tiles of results from `first` on.
template <int KIND, int WARPS> static __device__ __forceinline__ void finish_rows(const k_step_linear &a, const ending &o, const float *red, const float *squares, int first, int n, early e, uint32_t *count) {
    enum { LANES_BEHIND = 4 * SUMS }; // the next element's result is so many on
    int parts = o.inner ? 2 : 1;
#pragma unroll 1
    for (int at = threadIdx.x; at < n * 32 * SUMS; at += WARPS * 32) { // whole warps
        const rows_result r = result_at(at, first);
        bool there = r.row < a.rows && r.i < o.width;
        const float *from = red + r.tile * parts * TILE_SUMS + r.sum;
        if (at >= WARPS * 32) e = ask<KIND>(a, r.i, r.row, o.width, there);
        float scale = o.has_norm ? rsqrtf(fmaf(squares[r.row], o.inv_in, o.eps)) : 1.0f, y = fmaf(sum_of_warps<WARPS>(from), scale, e.bias);
        if (o.inner) {
            float up = sum_of_warps<WARPS>(from + TILE_SUMS) * scale;
            if (a.bias && there) up += a.bias[r.i + o.inner];
            y = gated_by<KIND>(a.act, o.act_kind, o.act_scale, y, up);
        }
        int place = r.row * o.width + r.i;
        if (o.has_residual) y = add_residual(o, e, place, y, there, count);
        store_result(o, place, r.row * a.y_stride + r.i, y, o.link ? __shfl_down_sync(FULL, y, LANES_BEHIND) : 0.0f, there);
    }
}

// The squares of all rows, each added up over the warps' parts as one row has them. to: [ROWS].
template <int WARPS> static __device__ __forceinline__ void gather_squares(const k_step_linear &a, float *to, uint32_t tag, uint32_t *count) {
    int row = threadIdx.x / WARPS;
    if ((int)(threadIdx.x & ~31u) / WARPS >= a.rows) return; // whole warps
    int last = row < a.rows ? row : a.rows - 1;
    float square = __uint_as_float(wait_tagged(squares_of(a.x_units, last) + threadIdx.x % WARPS, tag, count));
    square = sum_lanes<WARPS>(square);
    if (threadIdx.x % WARPS == 0 && row < a.rows) to[row] = square;
}

template <int KIND, int WARPS>
static __device__ __forceinline__ void run_product_of_rows(const k_step_run &run, const k_instr &in, shared_head *head, unsigned char *smem, unsigned char *room, rows_ring &r, int i, int limit) {
    const k_step_linear &a = in.u.linear;
    coming next = begin_instr(run, head, i);
    int warp = threadIdx.x / 32, units = in.stream.units, u0 = warp * units / WARPS, mine = (warp + 1) * units / WARPS - u0;
    int first = first_tile(in.stream), n_tiles = count_tiles(in.stream), parts = in.stream.parts, width = a.glu_inner ? (int)a.glu_inner : (int)a.w.out;
    bool is_8 = KIND == W48 && a.w.bits == 8, is_half = a.w.dtype != K_BF16;
    uint32_t tag = head->tag;
    const x_place x = place_of_x(a, u0);
    float *red = (float *)(smem + HEAD_BYTES), *squares = head->squares[i & 1][0], *mine_of = red + threadIdx.x * SUMS;
    unsigned char *ahead = room + warp * rows_ahead_bytes(ROWS);
    int done = 0;
    do {
        int n = n_tiles - done < TILES_AT_ONCE / parts ? n_tiles - done : TILES_AT_ONCE / parts, tiles = n * parts;
        const rows_result p = result_at(threadIdx.x, first + done);
        early e = ask<KIND>(a, p.i, p.row, width, p.tile < n && p.row < a.rows && p.i < width);
        if (is_8) {
            if (is_half) run_round<KIND, W8, WARPS, K_F16>(run, a, head, r, x, mine_of, ahead, u0, mine, tiles, limit);
            else run_round<KIND, W8, WARPS, K_BF16>(run, a, head, r, x, mine_of, ahead, u0, mine, tiles, limit);
        } else if (is_half) run_round<KIND, W4, WARPS, K_F16>(run, a, head, r, x, mine_of, ahead, u0, mine, tiles, limit);
        else run_round<KIND, W4, WARPS, K_BF16>(run, a, head, r, x, mine_of, ahead, u0, mine, tiles, limit);
        if (mine == 0) clear_sums(mine_of, tiles);
        if (a.has_norm && n && done == 0) gather_squares<WARPS>(a, squares, tag + a.x_maker, run.barrier);
        ending o = ending_of<KIND>(in, tag);
        if (done == 0) end_instr(next, head, i);
        __syncthreads();
        if (n) finish_rows<KIND, WARPS>(a, o, red, squares, first + done, n, e, run.barrier);
        __syncthreads(); // sums of the next round, or of the next instruction, come to the same place
        done += n;
    } while (done < n_tiles);
}
