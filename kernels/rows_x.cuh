// kernels/few.cu: x of several rows on its way to products.
//
// If every block made integers (x16.cuh) of all rows, as one row's kernel does, that would take longer than the products. So an instruction before them (K_STEP_X) makes them
// once: a warp takes a unit of 64 elements of a row, or two that share a scale. The integers, what one means and the squares are the same, bit by
// bit, as those that kernels/one.cu makes of the row.
//
// Blocks wait for these units without flags and without tags, which would cost another trip to L2 or twice the bytes. A word that nobody has written yet is ROWS_NOT_THERE, and a word of
// high bytes never looks like that: they are -127 at least. A word of low bytes is written and read in one piece with the word of high bytes of the same elements.
//
// (1) Memory of x is used in turn. It is cleared two instructions K_STEP_X later, by blocks that have tiles of every product: they have then found all of the x after it, which was made of
// results of all blocks that have read it: a block without tiles of a product does not read its x. (2) What the last two of a list leave, the last block to leave the launch clears. (3) What one means is a positive number or none (0x7fffffff), never ROWS_NOT_THERE.
#pragma once
#include "one_x.cuh"

enum { STAGE_UNITS = rows_stage_units(SMALL_SHARED), UNIT_ROOM = ROWS * ROWS_UNIT };

// x of a product: squares of each row by warps, which carry tags, at the same place whatever its width; then units of all rows; then what one means in them.
//
// A unit's row: for each t = k / 8 % 4 of k / 32 = 0 and 1 the high and low bytes of elements 8 t ... + 3 and + 4 ... 7, in pairs of words.
static __device__ __forceinline__ unsigned char *unit_row(unsigned char *x, int unit, int row) {
    return x + ROWS_SQUARES + unit * UNIT_ROOM + row * ROWS_UNIT;
}
static __device__ __forceinline__ unsigned char *scale_of_row(unsigned char *x, int units, int unit, int row) {
    return x + ROWS_SQUARES + units * UNIT_ROOM + (unit * ROWS + row) * ROWS_SCALE;
}
static __device__ __forceinline__ uint64_t *squares_of(unsigned char *x, int row) {
    return (uint64_t *)x + row * LIST_WARPS;
}

// Units of a row from `unit` on, which a warp has in shared memory, go to memory.
static __device__ __forceinline__ void send_units(const k_step_linear &a, const x_part &from, int unit, int n, int row) {
    int lane = threadIdx.x % 32;
    __syncwarp();
    for (int i = lane; i < n * 8; i += 32) {
        const unsigned char *p = from.units + i / 8 * ROWS_UNIT + i % 8 * 8;
        uint2 high = *(const uint2 *)p, low = *(const uint2 *)(p + 64);
        store_words(unit_row(a.x_units, unit + i / 8, row) + i % 8 * 16, uint4{high.x, low.x, high.y, low.y});
    }
    if (lane < n) store_words(scale_of_row(a.x_units, (int)a.w.in / 64, unit + lane, row), uint2{__float_as_uint(from.scales[lane].one), __float_as_uint(from.scales[lane].sum)});
    __syncwarp();
}

// This lane's words of a row's elements from `begin` on: 64 words of f32, or up to 64 of two bf16.
static __device__ __forceinline__ uint4 find_words(const k_step_linear &a, int row, int begin, int words, uint32_t tag, uint32_t *count) {
    bool f32 = a.x_dtype == K_F32;
    int i = 2 * (int)(threadIdx.x % 32);
    const uint64_t *link = a.x_link + (f32 ? row * (int)a.w.in + begin : (row * (int)a.w.in + begin) / 2);
    uint4 v[1] = {uint4{0, tag, 0, tag}};
    if (i < words) v[0] = load_tagged2(link + i);
    await_words<1>(v, link, tag, count);
    return v[0];
}

// A unit of f32 out of a link, or two of bf16 (n).
template <int KIND> static __device__ __forceinline__ void take_units(const k_step_linear &a, const x_part &stage, int unit, int n, int row, uint32_t tag, uint32_t *count) {
    bool f32 = a.x_dtype == K_F32;
    int begin = unit * 64, lane = threadIdx.x % 32;
    float offset = a.norm_offset;
    float2 w = {1.0f - offset, 1.0f - offset};
    if (a.norm) w = *(const float2 *)(a.norm + begin + 2 * lane);
    uint4 v = find_words(a, row, begin, f32 ? 64 : n * 32, tag, count);
    float y = __uint_as_float(v.x), z = __uint_as_float(v.z);
    if (f32 && a.has_norm) y *= w.x + offset, z *= w.y + offset;
    put_words<KIND>(stage, 0, v, f32, y, z, n * 32);
    send_units(a, stage, unit, n, row);
}

// The squares of a row's units of one warp, in the order in which kernels/one.cu adds them up.
static __device__ __forceinline__ void add_squares(const k_step_linear &a, int slice, int row, uint32_t made, uint32_t tag, uint32_t *count) {
    int units = (int)a.w.in / 64, u0 = slice * units / LIST_WARPS, u1 = (slice + 1) * units / LIST_WARPS;
    float square = 0;
#pragma unroll 1
    for (int u = u0; u < u1; u++) {
        uint4 v = find_words(a, row, u * 64, 64, made, count);
        float y = __uint_as_float(v.x), z = __uint_as_float(v.z);
        square = fmaf(z, z, fmaf(y, y, square));
    }
    square = warp_sum(square);
    if (threadIdx.x % 32 == 0) store_tagged(squares_of(a.x_units, row) + slice, __float_as_uint(square), tag);
}

// Tasks are divided among all warps, first one of each block.
template <int KIND> static __device__ __forceinline__ void make_linked(const k_step_linear &a, const x_part &stage, uint32_t made, uint32_t tag, uint32_t *count) {
    bool f32 = a.x_dtype == K_F32;
    int units = (int)a.w.in / 64, most = (units + LIST_WARPS - 1) / LIST_WARPS, pairs = (most + 1) / 2; // of a warp
    int n_units = (f32 ? units : LIST_WARPS * pairs) * a.rows, n_tasks = n_units + (a.has_norm ? LIST_WARPS * a.rows : 0);
#pragma unroll 1
    for (int task = blockIdx.x + gridDim.x * (threadIdx.x / 32); task < n_tasks; task += gridDim.x * LIST_WARPS) {
        int i = task / a.rows, row = task - i * a.rows, n = 1;
        if (task >= n_units) {
            add_squares(a, i - n_units / a.rows, row, made, tag, count);
            continue;
        }
        if (!f32) {
            int slice = i / pairs, u1 = (slice + 1) * units / LIST_WARPS;
            i = slice * units / LIST_WARPS + 2 * (i - slice * pairs);
            n = u1 - i < 2 ? u1 - i : 2;
        }
        if (n > 0) take_units<KIND>(a, stage, i, n, row, made, count);
    }
}

// x that lies in memory as it is: a warp takes a row's units of one warp.
template <int KIND> static __device__ __noinline__ void make_plain(const k_step_linear &a, const x_part &stage, uint32_t tag) {
    int units = (int)a.w.in / 64;
    for (int task = blockIdx.x + gridDim.x * (threadIdx.x / 32); task < LIST_WARPS * a.rows; task += gridDim.x * LIST_WARPS) {
        int row = task / LIST_WARPS, slice = task - row * LIST_WARPS, u0 = slice * units / LIST_WARPS, n = (slice + 1) * units / LIST_WARPS - u0;
        int each = a.has_norm ? n : 4; // squares are added up over all units
        float square = 0;
        for (int done = 0; done < n; done += each) {
            int here = n - done < each ? n - done : each;
            square = stage_plain<KIND>(a, stage, row, (u0 + done) * 64, here * 64);
            send_units(a, stage, u0 + done, here, row);
        }
        square = warp_sum(square);
        if (a.has_norm && threadIdx.x % 32 == 0) store_tagged(squares_of(a.x_units, row) + slice, __float_as_uint(square), tag);
    }
}

// Clears x of two instructions K_STEP_X before, while others wait for words.
static __device__ __forceinline__ void clear_old(const k_step_linear &a) {
    int bytes = a.x_old_in / 64 * (UNIT_ROOM + ROWS * ROWS_SCALE), half = LIST_WARPS / 2 * 32, blocks = a.x_old_blocks < (int)gridDim.x ? a.x_old_blocks : (int)gridDim.x;
    if (!a.x_old || (int)blockIdx.x >= blocks || (int)threadIdx.x < half) return;
    for (int at = ((int)blockIdx.x * half + (int)threadIdx.x - half) * 16; at < bytes; at += blocks * half * 16)
        store_words(a.x_old + ROWS_SQUARES + at, uint4{ROWS_NOT_THERE, ROWS_NOT_THERE, ROWS_NOT_THERE, ROWS_NOT_THERE});
    order_stores();
}

// Warps meet at the end: those that wait for x in the product meanwhile would slow down who makes it (8B, four rows: 2,132 tok/s instead of 2,227).
template <int KIND, int WARPS> static __device__ __forceinline__ void make_x(const k_step_run &run, const k_instr &in, shared_head *head, unsigned char *smem, int i) {
    const k_step_linear &a = in.u.linear;
    coming next = begin_instr(run, head, i);
    unsigned char *room = smem + HEAD_BYTES + threadIdx.x / 32 * (STAGE_UNITS * (ROWS_UNIT + ROWS_SCALE));
    const x_part stage = {room, (unit_scale *)(room + STAGE_UNITS * ROWS_UNIT), NULL};
    uint32_t tag = head->tag;
    if (a.x_link) make_linked<KIND>(a, stage, tag + a.x_maker, tag + in.number, run.barrier);
    else make_plain<KIND>(a, stage, tag + in.number);
    clear_old(a);
    end_instr(next, head, i);
    __syncthreads();
}

// Who leaves the launch last clears what is left of x.
static __device__ __forceinline__ void leave_rows(const k_step_run &a, shared_head *head) {
    __syncthreads();
    bool is_last = grid_leave(a.barrier, (uint32_t)a.tags);
    if (threadIdx.x == 0) head->chosen = is_last;
    __syncthreads();
    if (!head->chosen) return;
    bool gave_up = ((volatile uint32_t *)a.barrier)[COUNTERS_GAVE_UP];
    for (int64_t at = (gave_up ? 0 : a.x_rest) + threadIdx.x * 16; at < a.x_bytes; at += blockDim.x * 16) *(uint4 *)(a.x_units + at) = uint4{ROWS_NOT_THERE, ROWS_NOT_THERE, ROWS_NOT_THERE, ROWS_NOT_THERE};
}
