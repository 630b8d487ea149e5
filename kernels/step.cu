// Decode steps of one to eight rows: a layer in five instructions, {norm, qkv} {norms of q and k, rope, cache, attention} {o, residual}
// {norm, gate and up, activation} {down, residual}. step_run runs one instruction, or a list of them with a barrier of all blocks between two.
// For sm_80 and later.
//
// Products: a block takes tiles of 16 rows of the weight; its 16 warps share k, each with its own units of 64, and their sums meet in shared
// memory. The tensor cores multiply a unit with up to eight rows of x, codes as bf16 numbers 128 + q, scale and bias on the group's sums. Every
// warp has a ring of units under way to shared memory, which fills before x is there; while an instruction runs, the weights of the next come to L2. Every block makes the norm of x for
// itself: x times the norm's weight as bf16, the factor 1 / rms on the result. Reads each weight once; stopped by memory where a layer is large,
// by the latency of barriers and loads where it is small.
#include "step.cuh"
#include "x16.cuh"

enum { THREADS = STEP_THREADS, WARPS = STEP_WARPS, SLOTS = STEP_SLOTS, RED_FLOATS = step_sums(SMALL_SHARED), PREFETCH_BYTES = 128 << 10 };
enum weight_kind { W4, W4_32, W4_16, W16, WF16, W8, W8_32, W8_16 }; // 4 bits in groups of 64 or more, of 32, of 16; bf16, f16; 8 bits as 4

// Shared memory: instructions, sums of squares, then what an instruction makes of it.
struct shared_head {
    k_instr slots[SLOTS];
    float squares[STEP_ROWS][WARPS];
    uint32_t last;
    // What attention asks for again in every layer: of a row, its position and cosines and sines, and blocks of the table from one on.
    int pos, seq, row, first_block;
    const int32_t *table;
    const float *inv_freq;
    int32_t blocks[TABLE_MAX];
    float cosines[PAIRS_MAX], sines[PAIRS_MAX];
};
enum { HEAD_BYTES = STEP_HEAD_BYTES };
static_assert(sizeof(shared_head) <= HEAD_BYTES, "STEP_HEAD_BYTES is too small");

// ---- products ----

template <int KIND> static __device__ __forceinline__ constexpr bool is_plain() {
    return KIND == W16 || KIND == WF16;
}
template <int KIND> static __device__ __forceinline__ constexpr bool is_8() {
    return KIND == W8 || KIND == W8_32 || KIND == W8_16;
}
template <int KIND> static __device__ __forceinline__ constexpr int group_of() {
    return KIND == W4_16 || KIND == W8_16 ? 16 : KIND == W4_32 || KIND == W8_32 ? 32 : 64;
}
template <int KIND> static __device__ __forceinline__ constexpr int codes_bytes() {
    return is_8<KIND>() ? TILE_CODES_8 : TILE_CODES;
}
template <int KIND> static __device__ __forceinline__ constexpr int unit_bytes() {
    return is_plain<KIND>() ? PLAIN_UNIT_BYTES : tile_unit_bytes(is_8<KIND>() ? 8 : 4, group_of<KIND>());
}
// Slots of a warp's ring, of two units each (bf16: one): what is under way to shared memory.
template <int KIND> static __device__ __forceinline__ constexpr int depth() {
    return step_ring_slots(is_plain<KIND>(), is_8<KIND>(), SMALL_SHARED);
}
template <int KIND> static __device__ __forceinline__ constexpr int slot_bytes() {
    return step_slot_bytes(is_plain<KIND>(), is_8<KIND>() ? 8 : 4, group_of<KIND>());
}

// Where a warp's next units lie. A lane copies its own codes; scales and biases are copied by the first lanes for all.
struct cursor {
    const unsigned char *p;  // this lane's codes of the first tile of the pair
    int64_t second, meta;    // from p: to the second tile, to the piece of scales and biases that this lane copies
    int64_t next_tiles;      // from the unit behind the last to the first of the next pair
    int at, tiles;           // unit inside the tile, tiles that are left
};

static __device__ __forceinline__ void fetch_bf16(const k_weight &w, int64_t tile, int unit, unsigned char *slot) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int64_t last = w.out - 1, r0 = tile * 16 + g, r1 = r0 + 8;
    const unsigned char *p = w.values + (r0 < last ? r0 : last) * w.values_bytes + unit * 128 + t * 16;
    const unsigned char *q = w.values + (r1 < last ? r1 : last) * w.values_bytes + unit * 128 + t * 16;
    copy16(slot + lane * 16, p, true);
    copy16(slot + 512 + lane * 16, p + 64, true);
    copy16(slot + 1024 + lane * 16, q, true);
    copy16(slot + 1536 + lane * 16, q + 64, true);
}

// The units of two tiles, or of the last one alone.
template <int KIND> static __device__ __forceinline__ void fetch_pair(const cursor &c, unsigned char *slot) {
    enum { CODES = codes_bytes<KIND>(), META_LANES = (unit_bytes<KIND>() - CODES) / 16 };
    int lane = threadIdx.x % 32;
    bool two = c.tiles > 1;
#pragma unroll
    for (int i = 0; i < CODES; i += 512) {
        copy16(slot + i + lane * 16, c.p + i, true);
        if (two) copy16(slot + unit_bytes<KIND>() + i + lane * 16, c.p + i + c.second, true);
    }
    if (lane < (two ? 2 * META_LANES : META_LANES))
        copy16(slot + lane / META_LANES * unit_bytes<KIND>() + CODES + lane % META_LANES * 16, c.p + c.meta, true);
}

// A word of codes of row g and one of row g + 8, 16 elements of k each.
static __device__ __forceinline__ void multiply_codes(float sum[4], uint32_t low, uint32_t high, int shift, const uint32_t x[2]) {
    const uint32_t a[4] = {nibbles_quick(low, shift), nibbles_quick(high, shift), nibbles_quick(low, shift + 4), nibbles_quick(high, shift + 4)};
    mma_bf16(sum, a, x[0], x[1]);
}

// Codes of 8 bits, two words of row g and two of row g + 8: exact as bf16, 32 elements of k.
static __device__ __forceinline__ void multiply_bytes(float sum[4], uint4 codes, const uint32_t x[4]) {
    const uint32_t low[4] = {bytes_bf16(codes.x, 0), bytes_bf16(codes.y, 0), bytes_bf16(codes.x, 1), bytes_bf16(codes.y, 1)};
    const uint32_t high[4] = {bytes_bf16(codes.z, 0), bytes_bf16(codes.w, 0), bytes_bf16(codes.z, 1), bytes_bf16(codes.w, 1)};
#pragma unroll
    for (int m = 0; m < 2; m++) {
        const uint32_t a[4] = {low[2 * m], high[2 * m], low[2 * m + 1], high[2 * m + 1]};
        mma_bf16(sum, a, x[2 * m], x[2 * m + 1]);
    }
}

// out += s * (sum - base xs) + b * xs; base: what stands in the codes' operands beside them; meta: of row g, of row g + 8.
static __device__ __forceinline__ void add_group(float out[4], const float sum[4], const uint32_t meta[2], const float xs[2], int dtype, const float base) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float s = meta_f32(meta[i] & 0xffff, dtype), b = fmaf(-base, s, meta_f32(meta[i] >> 16, dtype));
        out[2 * i] = fmaf(b, xs[0], fmaf(s, sum[2 * i], out[2 * i]));
        out[2 * i + 1] = fmaf(b, xs[1], fmaf(s, sum[2 * i + 1], out[2 * i + 1]));
    }
}

// What the products of a block read and write in shared memory.
struct linear_shared {
    float *red; // [tiles][warps][16][rows]
    unsigned char *ring; // [warps][depth] units
    float *xs; // [rows][groups of k]: sums of x; of f16: what one means in a unit
    bf16 *x;   // [rows][x_stride]; or f16
    int n_xs, x_stride;
};

// This lane's x of a unit: its column's elements 8 t ... and 32 + 8 t ...
static __device__ __forceinline__ void take_x(const linear_shared &s, int rows, int unit, uint32_t v[4], uint32_t w[4]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const bf16 *x = s.x + (g < rows ? g : rows - 1) * s.x_stride + unit * 64 + t * 8;
    *(uint4 *)v = *(const uint4 *)x, *(uint4 *)w = *(const uint4 *)(x + 32);
}

// The same for each group of a unit. A product of 16 rows takes elements of all lanes, so of two groups of 16 each has the other one's elements as zeros.
template <int PER_HALF> static __device__ __forceinline__ void take_parts(const linear_shared &s, int rows, int unit, uint32_t x[2 * PER_HALF][4]) {
    take_x(s, rows, unit, x[0], x[PER_HALF]);
    bool is_first = threadIdx.x % 4 < 2;
#pragma unroll
    for (int i = 0; i < 8 && PER_HALF == 2; i++) {
        uint32_t &first = x[i / 4 * PER_HALF][i % 4];
        x[(i / 4 * PER_HALF + 1) % (2 * PER_HALF)][i % 4] = is_first ? 0 : first;
        first = is_first ? first : 0;
    }
}

template <int KIND> static __device__ __forceinline__ void multiply_plain(float out[4], const unsigned char *slot, const linear_shared &s, int rows, int unit) {
    int lane = threadIdx.x % 32, t = lane % 4, last = rows - 1;
    uint32_t v[4], w[4];
    take_x(s, rows, unit, v, w);
    float first[4] = {0}, second[4] = {0};
    multiply_plain_unit<KIND == WF16>(KIND == WF16 ? first : out, second, slot + lane * 16, v, w);
    if (KIND == W16) {
#pragma unroll
        for (int i = 0; i < 4; i++) out[i] += second[i];
        return;
    }
    const float ones[2] = {s.xs[(2 * t < last ? 2 * t : last) * s.n_xs + unit], s.xs[(2 * t + 1 < last ? 2 * t + 1 : last) * s.n_xs + unit]};
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = fmaf(ones[i % 2], first[i] + second[i], out[i]);
}

// Two tiles at once, so that their products are independent of each other; the second may hold anything where there is none.
template <int KIND>
static __device__ __forceinline__ void multiply_pair(float out[2][4], const unsigned char *slot, const linear_shared &s, int rows, int unit, int dtype) {
    enum { RUNS = tile_runs(group_of<KIND>()), PARTS = RUNS == 4 ? 4 : 2, PER_HALF = PARTS / 2 };
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, last = rows - 1;
    const float base = is_8<KIND>() ? 0.0f : 128.0f;
    uint32_t x[PARTS][4], codes[2][4];
    take_parts<PER_HALF>(s, rows, unit, x);
    const float *xs = s.xs + unit * RUNS;
    int c0 = (2 * t < last ? 2 * t : last) * s.n_xs, c1 = (2 * t + 1 < last ? 2 * t + 1 : last) * s.n_xs;
    float sum[2][PARTS][4] = {{{0}}};
#pragma unroll
    for (int i = 0; i < 2; i++) *(uint4 *)codes[i] = *(const uint4 *)(slot + i * unit_bytes<KIND>() + lane * 16);
#pragma unroll
    for (int i = 0; i < 2 && is_8<KIND>(); i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            if (half) *(uint4 *)codes[i] = *(const uint4 *)(slot + i * unit_bytes<KIND>() + 512 + lane * 16);
#pragma unroll
            for (int p = 0; p < PER_HALF; p++) multiply_bytes(sum[i][half * PER_HALF + p], *(const uint4 *)codes[i], x[half * PER_HALF + p]);
        }
#pragma unroll
    for (int m = 0; m < 2 && !is_8<KIND>(); m++)
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int p = 0; p < PARTS; p++) multiply_codes(sum[i][p], codes[i][p / PER_HALF], codes[i][2 + p / PER_HALF], m * 8, x[p] + 2 * m);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned char *at = slot + i * unit_bytes<KIND>() + codes_bytes<KIND>() + g * 8;
#pragma unroll
        for (int j = 0; j < 4 && RUNS == 1; j++) sum[i][0][j] += sum[i][1][j];
#pragma unroll
        for (int r = 0; r < RUNS; r++) {
            uint32_t meta[2];
            const float sums[2] = {xs[c0 + r], xs[c1 + r]};
            *(uint2 *)meta = *(const uint2 *)(at + r * TILE_META);
            add_group(out[i], sum[i][r], meta, sums, dtype, base);
        }
    }
}

// x, times the norm's weight, as bf16; sums of what was stored, and of squares. Two pieces of a row at a time, so that their loads overlap.
template <int KIND> static __device__ __forceinline__ void stage_x(const k_step_linear &a, const linear_shared &s, float (*squares)[WARPS]) {
    enum { SUM_LANES = 8 / tile_runs(group_of<KIND>()) };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, n = (int)(a.w.in / 8), has_norm = a.has_norm, dtype = a.x_dtype;
    const float *norm = a.norm;
    const void *x = a.x;
    float offset = a.norm_offset;
    for (int row = 0; row < a.rows; row++) {
        int64_t from = (a.x_rows ? a.x_rows[row] : row) * a.x_stride;
        float square = 0;
#pragma unroll 1
        for (int base = threadIdx.x; base - lane < n; base += 2 * THREADS) {
            float v[2][8], w[2][8];
#pragma unroll
            for (int p = 0; p < 2; p++) {
                int i = base + p * THREADS;
#pragma unroll
                for (int j = 0; j < 8; j++) v[p][j] = 0, w[p][j] = 1.0f - offset;
                if (i >= n) continue;
                load8(x, dtype, from + i * 8, v[p]);
                if (has_norm && norm) load8(norm, K_F32, i * 8, w[p]);
            }
#pragma unroll
            for (int p = 0; p < 2; p++) {
                int i = base + p * THREADS;
                if (i - lane >= n) break;
                if (has_norm) {
#pragma unroll
                    for (int j = 0; j < 8; j++) {
                        square = fmaf(v[p][j], v[p][j], square);
                        v[p][j] *= w[p][j] + offset;
                    }
                }
                if (KIND == WF16) {
                    put8_f16(s.x + row * s.x_stride + i * 8, s.xs + row * s.n_xs + i / 8, v[p], i < n);
                    continue;
                }
                const uint32_t words[4] = {pack_bf16(v[p][0], v[p][1]), pack_bf16(v[p][2], v[p][3]), pack_bf16(v[p][4], v[p][5]), pack_bf16(v[p][6], v[p][7])};
                if (i < n) *(uint4 *)(s.x + row * s.x_stride + i * 8) = uint4{words[0], words[1], words[2], words[3]};
                if (is_plain<KIND>()) continue;
                float sum = 0;
#pragma unroll
                for (int j = 0; j < 4; j++) sum += __uint_as_float(words[j] << 16) + __uint_as_float(words[j] & 0xffff0000u);
#pragma unroll
                for (int step = 1; step < SUM_LANES; step *= 2) sum += __shfl_xor_sync(FULL, sum, step);
                if (i < n && lane % SUM_LANES == 0) s.xs[row * s.n_xs + i / SUM_LANES] = sum;
            }
        }
        if (has_norm) {
            square = warp_sum(square);
            if (lane == 0) squares[row][warp] = square;
        }
    }
}

// Sums of the warps in order, then norm, bias, gate and residual; results [first, first + n) in tiles. rows: a.rows, a constant where it is 1.
static __device__ __forceinline__ void finish(const k_step_linear &a, const float *red, const float (*squares)[WARPS], int first, int n, const int rows) {
    int per_tile = rows * 16, inner = (int)a.glu_inner, parts = inner ? 2 : 1, width = inner ? inner : (int)a.w.out;
#pragma unroll 1
    for (int e = threadIdx.x; e < n * per_tile; e += THREADS) {
        int tile = e / per_tile, at = e % per_tile, column = at % rows, i = (first + tile) * 16 + at / rows;
        if (i >= width) continue;
        const float *from = red + tile * parts * WARPS * per_tile + at;
        float residual = a.residual ? a.residual[column * a.residual_stride + i] : 0.0f;
        float sum = 0, up = 0, scale = 1.0f;
#pragma unroll
        for (int w = 0; w < WARPS; w++) sum += from[w * per_tile];
        if (a.has_norm) {
            float square = 0;
#pragma unroll
            for (int w = 0; w < WARPS; w++) square += squares[column][w];
            scale = 1.0f / sqrtf(square / (float)(int)a.w.in + a.eps);
        }
        sum *= scale;
        if (a.bias) sum += a.bias[i];
        if (inner) {
#pragma unroll
            for (int w = 0; w < WARPS; w++) up += from[(WARPS + w) * per_tile];
            up *= scale;
            if (a.bias) up += a.bias[i + inner];
            sum = gated(a.act, sum, up);
        }
        if (a.residual) sum = sum * a.own_scale + residual * a.residual_scale;
        store_f32(a.y, a.y_dtype, column * a.y_stride + i, sum);
    }
}

// The tiles of results that block b has begin here: as many for each as go into all of them, one more for the first.
static __device__ __forceinline__ int first_tile(const k_step_linear &a, int b) {
    return b * a.tiles_each + (b < a.tiles_more ? b : a.tiles_more);
}

// A warp's sums of a tile.
static __device__ __forceinline__ void keep_sums(float *red, int tile, const float out[4], const int rows) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    float *to = red + (tile * WARPS + warp) * 16 * rows;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (2 * t + i % 2 < rows) to[(g + i / 2 * 8) * rows + 2 * t + i % 2] = out[i];
}

// Part of this block's tiles: [first, first + n) of the results. x is staged while the first weights are under way.
template <int KIND>
static __device__ __forceinline__ void multiply_tiles(const k_step_linear &a, const linear_shared &s, float (*squares)[WARPS], int first, int n, bool stage, const int rows) {
    enum { DEPTH = depth<KIND>(), UNIT = unit_bytes<KIND>(), CODES = codes_bytes<KIND>(), META_LANES = is_plain<KIND>() ? 1 : (UNIT - CODES) / 16 };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int units = (int)(a.w.in / 64), u0 = warp * units / WARPS, mine = (warp + 1) * units / WARPS - u0, dtype = a.w.dtype;
    int64_t tile_bytes = a.w.tile_bytes;
    cursor c;
    c.tiles = a.glu_inner ? 2 * n : n;
    c.second = a.glu_inner ? a.glu_inner / 16 * tile_bytes : tile_bytes;
    c.p = a.w.values + first * tile_bytes + u0 * UNIT + lane * 16;
    c.meta = (lane < META_LANES ? 0 : c.second) + CODES + (lane % META_LANES - lane) * 16;
    c.next_tiles = (a.glu_inner ? tile_bytes : 2 * tile_bytes) - mine * UNIT;
    c.at = 0;
    unsigned char *ring = s.ring + warp * DEPTH * slot_bytes<KIND>();
    int slot = 0, tiles = c.tiles, i_tile = 0; // i_tile: of bf16
    auto fetch_next = [&](int to) {
        if (c.tiles > 0 && mine > 0) {
            unsigned char *at = ring + to * slot_bytes<KIND>();
            if (is_plain<KIND>()) fetch_bf16(a.w, a.glu_inner ? first + i_tile / 2 + i_tile % 2 * (a.glu_inner / 16) : first + i_tile, u0 + c.at, at);
            else fetch_pair<is_plain<KIND>() ? W4 : KIND>(c, at);
            c.p += UNIT;
            if (++c.at == mine) c.at = 0, c.p += c.next_tiles, c.tiles -= is_plain<KIND>() ? 1 : 2, i_tile++;
        }
        copy_commit();
    };
#pragma unroll
    for (int d = 0; d < DEPTH; d++) fetch_next(d);
    if (stage) stage_x<KIND>(a, s, squares);
    __syncthreads();
    for (int tile = 0; tile < tiles; tile += is_plain<KIND>() ? 1 : 2) {
        float out[2][4] = {{0}};
        for (int u = 0; u < mine; u++) {
            copy_wait<DEPTH - 1>();
            __syncwarp();
            const unsigned char *from = ring + slot * slot_bytes<KIND>();
            if (is_plain<KIND>()) multiply_plain<KIND>(out[0], from, s, rows, u0 + u);
            else multiply_pair<is_plain<KIND>() ? W4 : KIND>(out, from, s, rows, u0 + u, dtype);
            __syncwarp();
            fetch_next(slot);
            slot = slot + 1 == DEPTH ? 0 : slot + 1;
        }
        keep_sums(s.red, tile, out[0], rows);
        if (!is_plain<KIND>() && tile + 1 < tiles) keep_sums(s.red, tile + 1, out[1], rows);
    }
    __syncthreads();
}

// This block's part of a product's weight comes to L2.
static __device__ __forceinline__ void prefetch_weight(const k_step_linear &a) {
    int first = first_tile(a, blockIdx.x), n = first_tile(a, blockIdx.x + 1) - first;
    int64_t tile_bytes = a.w.tile_bytes ? a.w.tile_bytes : 16 * a.w.values_bytes, bytes = n * tile_bytes, most = a.glu_inner ? PREFETCH_BYTES / 2 : PREFETCH_BYTES;
    if (n == 0 || (first + n == a.n_tiles && a.w.out % 16 && !a.w.tile_bytes)) return; // not beyond rows that are no whole number of tiles
    if (bytes > most) bytes = most;
    prefetch_lines(a.w.values + first * tile_bytes, bytes);
    if (a.glu_inner) prefetch_lines(a.w.values + (first + a.glu_inner / 16) * tile_bytes, bytes);
}

template <int KIND> static __device__ __forceinline__ void run_rows(const k_step_linear &a, unsigned char *smem, const int rows) {
    shared_head *head = (shared_head *)smem;
    linear_shared s;
    s.red = (float *)(smem + HEAD_BYTES);
    s.ring = (unsigned char *)(s.red + RED_FLOATS);
    s.n_xs = step_x_sums(KIND == W16, group_of<KIND>(), a.w.in);
    s.xs = (float *)(s.ring + WARPS * depth<KIND>() * slot_bytes<KIND>());
    s.x = (bf16 *)(s.xs + (rows * s.n_xs + 3) / 4 * 4);
    s.x_stride = step_x_stride(a.w.in);
    int first = first_tile(a, blockIdx.x), end = first_tile(a, blockIdx.x + 1);
    int at_once = RED_FLOATS / (WARPS * 16 * rows * (a.glu_inner ? 2 : 1));
#pragma unroll 1
    for (int i = first; i < end; i += at_once) {
        int n = end - i < at_once ? end - i : at_once;
        multiply_tiles<KIND>(a, s, head->squares, i, n, i == first, rows);
        finish(a, s.red, head->squares, i, n, rows);
        if (i + at_once < end) __syncthreads();
    }
}

template <int KIND> static __device__ __noinline__ void run_linear(const k_step_linear &a, unsigned char *smem) {
    if (a.rows == 1) run_rows<KIND>(a, smem, 1);
    else run_rows<KIND>(a, smem, a.rows);
}

// ---- attention ----

// What a row's items need, once for all layers that ask for the same.
static __device__ __forceinline__ void know_row(const k_step_attn &a, shared_head *known, int r, int split) {
    bool same = known->row == r && known->table == a.c.table && known->inv_freq == (a.inv_freq ? a.inv_freq : a.step_rope + a.table);
    if (same) return; // the split of a block's first item does not change while the row does not
    __syncthreads();
    int pos = a.pos[r], place = a.rope_pos[r], seq = a.seq_of[r], first = first_visible(a.window, a.chunk, pos);
    int begin = (first + split * ((pos - first + a.splits) / a.splits)) / K_BLOCK;
    const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)seq * a.n_rope_tables + a.table) * a.rope_width;
    for (int i = threadIdx.x; i < a.n_rotated / 2; i += THREADS) rope_angle(place, table[i], a.magnitude, &known->cosines[i], &known->sines[i]);
    for (int i = threadIdx.x; i < TABLE_MAX && begin + i <= pos / K_BLOCK; i += THREADS) known->blocks[i] = a.c.table[(int64_t)seq * a.c.table_stride + begin + i];
    if (threadIdx.x == 0) {
        known->pos = pos, known->seq = seq, known->row = r, known->first_block = begin;
        known->table = a.c.table, known->inv_freq = a.inv_freq ? a.inv_freq : a.step_rope + a.table;
    }
    __syncthreads();
}

// Queries of one cached head to shared memory, one warp each; where the row's own position is this block's, its key and value too, as the
// cache has them, and to the cache.
template <int D> static __device__ __forceinline__ void place_heads(const k_step_attn &a, const shared_head *known, float *heads, int64_t r, int kv_head, int pos, bool writes) {
    enum { E = D / 32 };
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = a.group;
    bool is_q = warp < group, is_k = warp == group;
    if (warp > group + 1 || (!is_q && !writes)) return;
    const float *from = is_q ? a.q + r * a.q_row + (kv_head * group + warp) * a.q_head : is_k ? a.k + r * a.k_row + kv_head * a.k_head : a.v + r * a.v_row + kv_head * a.v_head;
    const float *weight = is_q ? a.q_norm : a.k_norm;
    bool norms = is_q ? a.has_q_norm : is_k && a.has_k_norm, turns = (is_q || is_k) && a.rope_kind != ROPE_NONE, whole = a.rope_kind == ROPE_HALF && a.n_rotated == D;
    float x[E], w[E], offset = is_q ? a.q_offset : a.k_offset, *to = heads + warp * D;
#pragma unroll
    for (int e = 0; e < E; e++) x[e] = from[lane + 32 * e], w[e] = norms && weight ? weight[lane + 32 * e] + offset : 1.0f;
    if (norms) {
        float square = 0;
#pragma unroll
        for (int e = 0; e < E; e++) square = fmaf(x[e], x[e], square);
        float scale = 1.0f / sqrtf(warp_sum(square) / (float)D + (is_q ? a.q_eps : a.k_eps));
#pragma unroll
        for (int e = 0; e < E; e++) x[e] = x[e] * scale * w[e];
    }
    if (turns && whole) {
#pragma unroll
        for (int e = 0; e < E / 2; e++) {
            float c = known->cosines[lane + 32 * e], s = known->sines[lane + 32 * e], x0 = x[e], x1 = x[e + E / 2];
            x[e] = x0 * c - x1 * s;
            x[e + E / 2] = x1 * c + x0 * s;
        }
    }
#pragma unroll
    for (int e = 0; e < E; e++) to[lane + 32 * e] = x[e];
    __syncwarp();
    if (turns && !whole) rotate_head(a, angles{known->cosines, known->sines}, to);
    if (is_q) return;
    int block = table_block(a, known, pos / K_BLOCK);
    bf16 *cached = (bf16 *)(is_k ? a.c.k : a.c.v) + (((int64_t)block * a.c.heads + kv_head) * K_BLOCK + pos % K_BLOCK) * D;
#pragma unroll
    for (int e = 0; e < E; e++) {
        bf16 rounded = __float2bfloat16_rn(to[lane + 32 * e]);
        cached[lane + 32 * e] = rounded;
        to[lane + 32 * e] = __bfloat162float(rounded);
    }
}

// Two parts of a softmax become one; scores are in units of log 2.
template <int N> static __device__ __forceinline__ void merge(float &max, float &sum, float acc[N], float other_max, float other_sum, const float other[N]) {
    float top = fmaxf(max, other_max), base = top == -INFINITY ? 0.0f : top;
    float keep = exp2f(max - base), take = exp2f(other_max - base);
    max = top;
    sum = sum * keep + other_sum * take;
#pragma unroll
    for (int i = 0; i < N; i++) acc[i] = acc[i] * keep + other[i] * take;
}

// How the warps of a block share its positions and query heads: two heads each, D / 8 lanes for a position, AHEAD positions at a time.
enum { HEADS = 2, AHEAD = 4 };
static __device__ __forceinline__ shares share_warps(int group) {
    int sets = (group + HEADS - 1) / HEADS, warp = threadIdx.x / 32;
    return shares{WARPS / sets, warp / sets, warp % sets};
}

// Keys and values of the positions p, p + step, ...; zeros beyond the end, and at the row's own position, which is not in the cache yet.
template <int D>
static __device__ __forceinline__ void load_positions(const k_step_attn &a, const shared_head *known, int kv_head, int p, int step, int end, uint4 key[AHEAD], uint4 value[AHEAD]) {
    int part = threadIdx.x % (D / 8);
    const bf16 *keys = (const bf16 *)a.c.k, *values = (const bf16 *)a.c.v;
    int heads = a.c.heads;
#pragma unroll
    for (int j = 0; j < AHEAD; j++) {
        int q = p + j * step;
        key[j] = value[j] = uint4{0, 0, 0, 0};
        if (q >= end) continue;
        int64_t at = (((int64_t)table_block(a, known, q / K_BLOCK) * heads + kv_head) * K_BLOCK + q % K_BLOCK) * D + part * 8;
        key[j] = *(const uint4 *)(keys + at), value[j] = *(const uint4 *)(values + at);
    }
}

static __device__ __forceinline__ uint4 packed8(const float *x) {
    return uint4{pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3]), pack_bf16(x[4], x[5]), pack_bf16(x[6], x[7])};
}

// The query heads of this warp over the positions of this block, begin ... end - 1, and the row's own; the first keys and values are loaded.
// parts: [heads][n_warps][D + 2].
template <int D>
static __device__ __forceinline__ void attend(const k_step_attn &a, const float *heads, float *parts, const shared_head *known, int kv_head, int pos, bool own, int p, int end, const shares &w, uint4 key[AHEAD],
                                              uint4 value[AHEAD]) {
    enum { LANES = D / 8, AT_ONCE = 32 / LANES };
    int lane = threadIdx.x % 32, part = lane % LANES, step = w.n_warps * AT_ONCE, group = a.group;
    float q[HEADS][8], acc[HEADS][8], max[HEADS], sum[HEADS], scale = a.scale, softcap = a.softcap;
    if (a.pos_scale_len) scale *= 1.0f + a.pos_scale_beta * logf(1.0f + (float)((pos + a.pos_scale_first) / a.pos_scale_len));
    if (softcap <= 0) scale *= LOG2E;
    begin_heads<D, HEADS>(heads, w, group, part, scale, q, acc, max, sum);
    for (;;) {
        float s[HEADS][AHEAD];
        auto is_gone = [&](int j) { return p + j * step - lane / LANES >= end + (own ? 1 : 0); };
#pragma unroll
        for (int j = 0; j < AHEAD; j++) {
            int at = p + j * step;
            s[0][j] = s[1][j] = -INFINITY;
            if (at - lane / LANES >= end + (own ? 1 : 0)) continue; // no lane of this warp
            if (own && at == pos) key[j] = packed8(heads + group * D + part * 8), value[j] = packed8(heads + (group + 1) * D + part * 8);
            float k[8];
            floats_of(key[j], k);
#pragma unroll
            for (int h = 0; h < HEADS; h++) {
                float dot = 0;
#pragma unroll
                for (int i = 0; i < 8; i++) dot = fmaf(q[h][i], k[i], dot);
#pragma unroll
                for (int x = LANES / 2; x > 0; x /= 2) dot += __shfl_xor_sync(FULL, dot, x);
                if (softcap > 0) dot = softcap * tanhf(dot / softcap) * LOG2E;
                s[h][j] = at < end || (own && at == pos) ? dot : -INFINITY;
            }
        }
        add_positions<HEADS, AHEAD>(&s[0][0], value, is_gone, max, sum, acc);
        p += AHEAD * step;
        if (p - lane / LANES >= end + (own ? 1 : 0)) break; // no lane of this warp has a position left
        load_positions<D>(a, known, kv_head, p, step, end, key, value);
    }
#pragma unroll
    for (int h = 0; h < HEADS; h++) {
#pragma unroll
        for (int x = LANES; x < 32; x *= 2) { // positions beside each other in this warp
            float other_max = __shfl_xor_sync(FULL, max[h], x), other_sum = __shfl_xor_sync(FULL, sum[h], x), other[8];
#pragma unroll
            for (int i = 0; i < 8; i++) other[i] = __shfl_xor_sync(FULL, acc[h][i], x);
            merge<8>(max[h], sum[h], acc[h], other_max, other_sum, other);
        }
        if (w.set * HEADS + h < group && lane < LANES) keep_head<D>(parts, w, w.set * HEADS + h, part, max[h], sum[h], acc[h]);
    }
}

static __device__ __forceinline__ void store_head(const k_step_attn &a, int64_t r, int head, int i, softened s) {
    if (a.sinks) add_sink(s, a.sinks[head]);
    store_f32(a.y, a.y_dtype, r * a.y_row + (int64_t)head * a.c.k_width + i, s.x / s.sum);
}

// One item: a row, a cached head, a run of positions. The last block of a (row, head) to come joins the runs.
template <int D> static __device__ __noinline__ void run_item(const k_step_attn &a, unsigned char *smem, int item) {
    shared_head *head = (shared_head *)smem;
    float *heads = (float *)(smem + HEAD_BYTES), *parts = heads + (a.group + 2) * D;
    int split = item % a.splits, kv_head = item / a.splits % a.c.heads;
    int r = item / a.splits / a.c.heads;
    know_row(a, head, r, split);
    int pos = head->pos, first = first_visible(a.window, a.chunk, pos), per_split = (pos - first + a.splits) / a.splits;
    int begin = first + split * per_split, end = begin + per_split < pos + 1 ? begin + per_split : pos + 1;
    bool writes = begin <= pos && end == pos + 1;
    if (writes) end = pos; // its own comes from shared memory
    const shares w = share_warps(a.group);
    int step = w.n_warps * (256 / D), p = begin + w.i_warp * (256 / D) + threadIdx.x % 32 / (D / 8), n_warps = w.n_warps;
    uint4 key[AHEAD], value[AHEAD];
    load_positions<D>(a, head, kv_head, w.i_warp < n_warps ? p : end, step, end, key, value);
    place_heads<D>(a, head, heads, r, kv_head, pos, writes);
    __syncthreads();
    if (w.i_warp < n_warps) attend<D>(a, heads, parts, head, kv_head, pos, writes, p, end, w, key, value);
    __syncthreads();
    float *partial = a.partial + ((int64_t)r * a.c.heads + kv_head) * a.group * a.splits * (D + 2);
    for (int e = threadIdx.x; e < a.group * D; e += THREADS) {
        int h = e / D, i = e % D;
        softened s = join<false>(parts + h * n_warps * (D + 2), n_warps, D, i);
        if (a.splits == 1) {
            store_head(a, r, kv_head * a.group + h, i, s);
            continue;
        }
        float *to = partial + (h * a.splits + split) * (D + 2);
        to[i] = s.x;
        if (i == 0) to[D] = s.max, to[D + 1] = s.sum;
    }
    if (a.splits == 1) return;
    if (!is_last_block(a.counters + r * a.c.heads + kv_head, a.splits, &head->last)) return;
    for (int e = threadIdx.x; e < a.group * D; e += THREADS) {
        int h = e / D, i = e % D;
        store_head(a, r, kv_head * a.group + h, i, join<true>(partial + h * a.splits * (D + 2), a.splits, D, i));
    }
}

static __device__ __forceinline__ void run_attn(const k_step_attn &a, unsigned char *smem) {
    for (int item = blockIdx.x; item < a.rows * a.c.heads * a.splits; item += gridDim.x) {
        if (a.c.k_width == 64) run_item<64>(a, smem, item);
        else if (a.c.k_width == 128) run_item<128>(a, smem, item);
        else run_item<256>(a, smem, item);
        __syncthreads();
    }
}

// ---- instructions ----

static __device__ __forceinline__ void run_instr(const k_instr &in, unsigned char *smem) {
    if (in.kind == K_STEP_ATTN) {
        run_attn(in.u.attn, smem);
        return;
    }
    const k_step_linear &a = in.u.linear;
    if (a.w.mode == K_PLAIN && a.w.dtype == K_F16) run_linear<WF16>(a, smem);
    else if (a.w.mode == K_PLAIN) run_linear<W16>(a, smem);
    else if (a.w.bits == 8 && a.w.group == 16) run_linear<W8_16>(a, smem);
    else if (a.w.bits == 8 && a.w.group == 32) run_linear<W8_32>(a, smem);
    else if (a.w.bits == 8) run_linear<W8>(a, smem);
    else if (a.w.group == 16) run_linear<W4_16>(a, smem);
    else if (a.w.group == 32) run_linear<W4_32>(a, smem);
    else run_linear<W4>(a, smem);
}

static __device__ __forceinline__ void fetch_instr(const k_step_run &a, unsigned char *smem, int i) {
    if (!a.instrs) {
        if (i == 0 && threadIdx.x < K_INSTR_BYTES / 4) ((uint32_t *)smem)[threadIdx.x] = ((const uint32_t *)&a.one)[threadIdx.x];
        return;
    }
    if (i < a.n && threadIdx.x < K_INSTR_BYTES / 16)
        copy16(smem + i % SLOTS * K_INSTR_BYTES + threadIdx.x * 16, (const unsigned char *)(a.instrs + i) + threadIdx.x * 16, true);
    copy_commit();
}

// Blocks share an instruction's tiles or items. A list of instructions: one block per multiprocessor, all of them at once on the GPU (a
// cooperative launch). A single one: any grid.
extern "C" __global__ void __launch_bounds__(THREADS, 1) step_run(KARGS(k_step_run) a) {
    DYNAMIC_SHARED(unsigned char, smem);
    for (int i = 0; i < SLOTS; i++) fetch_instr(a, smem, i);
    if (threadIdx.x == 0) ((shared_head *)smem)->row = -1;
    copy_wait<0>();
    __syncthreads();
    for (int i = 0; i < a.n; i++) {
        const k_instr *slots = (const k_instr *)smem;
        if (i > 0) fetch_instr(a, smem, i + SLOTS - 1);
        if (threadIdx.x / 32 == WARPS - 1) { // the next product's weights; attention has none, so the one behind it
            bool attn = slots[i % SLOTS].kind == K_STEP_ATTN;
            const k_instr *next = &slots[(i + 1) % SLOTS], *later = &slots[(i + 2) % SLOTS];
            if (!attn && i + 1 < a.n && next->kind == K_STEP_LINEAR) prefetch_weight(next->u.linear);
            else if (i + 2 < a.n && later->kind == K_STEP_LINEAR) prefetch_weight(later->u.linear);
        }
        run_instr(slots[i % SLOTS], smem);
        if (i + 1 == a.n) break;
        copy_wait<0>();
        grid_barrier(a.barrier, (uint32_t)(i + 1) * gridDim.x);
    }
    if (a.n > 1) grid_leave(a.barrier, 0);
}
