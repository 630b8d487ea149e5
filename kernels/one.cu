// Decode steps of one row, and of few (kernels/few.cu): a list of the instructions of kernels/step.cu in one launch. No barrier stands between two of them: an instruction waits
// for the tagged words (sync.cuh) that it reads of the one before. For sm_80 and later.
//
// Latency decides the speed: the machine instructions between a result and the results that depend on it. Every instruction of the list runs once
// for each layer, so its code has left the instruction cache since the last time, and a warp alone issues one machine instruction in six cycles.
// So all products share one short loop, the sums of all warps are added by shuffles at once, there are no divisions, and code that not every layer
// needs is out of line.
//
// A block takes tiles of 16 rows of a weight; its warps share k, each with its own units of 64. A warp waits only for its own part of x. Its ring of
// weights on their way to shared memory does not stop between instructions: after the last unit of a product it goes on with the next product, as
// far as the list is known. The warps of a block meet once in every instruction, so they are never two instructions apart; there are two sets of sums.
//
// Several rows: a product of the tensor cores has eight columns, of which a row's x fills two, high and low bytes. Four rows are multiplied in the time of
// one, each with the same sums in the same order as alone.
//
// 1 / rms and the logistic function are the hardware's (2 ulp): their results become bf16 or 16-bit integers.
#include "fp4.cuh"
#include "one_attn.cuh"
#include "one_x.cuh"
#include "route.cuh"

// ---- products ----

// Codes of a unit of a tile as bytes, the operands of two products: 8 bits lie so.
template <int FORMAT> struct unit_codes;
template <> struct unit_codes<W4> {
    uint32_t q[4];
    __device__ __forceinline__ void load(const unsigned char *unit) { *(uint4 *)q = *(const uint4 *)(unit + threadIdx.x % 32 * 16); }
    __device__ __forceinline__ void first(uint32_t a[4]) const { a[0] = q[0] & 0x0f0f0f0fu, a[1] = q[2] & 0x0f0f0f0fu, a[2] = q[0] >> 4 & 0x0f0f0f0fu, a[3] = q[2] >> 4 & 0x0f0f0f0fu; }
    __device__ __forceinline__ void second(uint32_t a[4]) const { a[0] = q[1] & 0x0f0f0f0fu, a[1] = q[3] & 0x0f0f0f0fu, a[2] = q[1] >> 4 & 0x0f0f0f0fu, a[3] = q[3] >> 4 & 0x0f0f0f0fu; }
};
template <> struct unit_codes<W8> {
    uint4 low, high;
    __device__ __forceinline__ void load(const unsigned char *unit) { low = *(const uint4 *)(unit + threadIdx.x % 32 * 16), high = *(const uint4 *)(unit + 512 + threadIdx.x % 32 * 16); }
    __device__ __forceinline__ void first(uint32_t a[4]) const { a[0] = low.x, a[1] = low.z, a[2] = low.y, a[3] = low.w; }
    __device__ __forceinline__ void second(uint32_t a[4]) const { a[0] = high.x, a[1] = high.z, a[2] = high.y, a[3] = high.w; }
};

// A unit of TILES tiles, which are independent and so hide each other's latencies. out: rows g and g + 8 of each. Sums begin at 1.5 * 2^23, so
// that their bits are floats: 64 products of 255 and 128 stay below 2^22.
template <int FORMAT, int TILES, int DTYPE> static __device__ __forceinline__ void multiply(float out[4], const unsigned char *unit, const unsigned char *x, const unit_scale *scales) {
    enum { SECOND = chunk_units<FORMAT>() * unit_bytes<FORMAT>(), META = unit_bytes<FORMAT>() - TILE_META };
    int lane = threadIdx.x % 32;
    uint32_t v[4];
    unit_codes<FORMAT> codes[TILES];
    uint2 meta[TILES];
    *(uint4 *)v = *(const uint4 *)(x + lane / 4 % 2 * 64 + lane % 4 * 16);
    unit_scale s = *scales;
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        codes[i].load(unit + i * SECOND);
        meta[i] = *(const uint2 *)(unit + i * SECOND + META + lane / 4 * 8);
    }
    int32_t sums[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
        for (int r = 0; r < 4; r++) sums[i][r] = 0x4b400000;
        uint32_t a[4], b[4];
        codes[i].first(a), codes[i].second(b);
        mma_u8s8(sums[i], a, v[0], v[1]);
        mma_u8s8(sums[i], b, v[2], v[3]);
    }
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint32_t words[2] = {meta[i].x, meta[i].y};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float scale = meta_f32(words[r] & 0xffff, DTYPE) * s.one, bias = meta_f32(words[r] >> 16, DTYPE);
            float high = __uint_as_float((uint32_t)sums[i][2 * r]) - 12582912.0f, low = __uint_as_float((uint32_t)sums[i][2 * r + 1]) - 12582912.0f;
            out[2 * i + r] = fmaf(bias, s.sum, fmaf(scale, fmaf(256.0f, high, low), out[2 * i + r]));
        }
    }
}

// The same of weights whose groups are shorter than a unit. The eight columns of a product are the high and low bytes of four parts of x, of 16 elements each, with zeros for the
// other parts. So lane 4 g + t gets the sums of the part t, and multiplies them with the scale of the group that has them; whoever calls adds up the four lanes. That takes
// no more products than one group for the unit does. second: bytes to the second tile; meta: to this lane's scale and bias.
template <int FORMAT, int TILES, int DTYPE> static __device__ __forceinline__ void multiply_groups(float out[4], const unsigned char *unit, int second, int meta_at, const unsigned char *x, float one, float x_sum) {
    int lane = threadIdx.x % 32, column_part = lane / 8, half = lane % 4 / 2;
    uint4 v = *(const uint4 *)(x + lane / 4 % 2 * 64 + lane % 4 * 16);
    unit_codes<FORMAT> codes[TILES];
    uint2 meta[TILES];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        codes[i].load(unit + i * second);
        meta[i] = *(const uint2 *)(unit + i * second + meta_at);
    }
    if (column_part != half) v.x = v.y = 0;
    if (column_part != half + 2) v.z = v.w = 0;
    int32_t sums[TILES][4];
#pragma unroll
    for (int i = 0; i < TILES; i++) {
#pragma unroll
        for (int r = 0; r < 4; r++) sums[i][r] = 0x4b400000;
        uint32_t a[4], b[4];
        codes[i].first(a), codes[i].second(b);
        mma_u8s8(sums[i], a, v.x, v.y);
        mma_u8s8(sums[i], b, v.z, v.w);
    }
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        const uint32_t words[2] = {meta[i].x, meta[i].y};
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float scale = meta_f32(words[r] & 0xffff, DTYPE) * one, bias = meta_f32(words[r] >> 16, DTYPE);
            float high = __uint_as_float((uint32_t)sums[i][2 * r]) - 12582912.0f, low = __uint_as_float((uint32_t)sums[i][2 * r + 1]) - 12582912.0f;
            out[2 * i + r] = fmaf(bias, x_sum, fmaf(scale, fmaf(256.0f, high, low), out[2 * i + r]));
        }
    }
}

// The same of mxfp4: x is f16, weights are f16 without their scales, and sums of 32 elements are multiplied by these in f32. All columns are the same x. out: FP4_ONE times too small.
template <int TILES> static __device__ __forceinline__ void multiply_fp4(float out[4], const unsigned char *unit, int second, const unsigned char *x, float one) {
    uint32_t v[4], w[4];
    fp4_words p[TILES];
    x += threadIdx.x % 4 * 16;
    *(uint4 *)v = *(const uint4 *)x, *(uint4 *)w = *(const uint4 *)(x + 64);
#pragma unroll
    for (int i = 0; i < TILES; i++) p[i] = fp4_at(unit + i * second);
#pragma unroll
    for (int i = 0; i < TILES; i++) {
        float sums[2][4];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t low[4], high[4], *b = half ? w : v;
            fp4_halves(half ? p[i].codes.y : p[i].codes.x, low);
            fp4_halves(half ? p[i].codes.w : p[i].codes.z, high);
            const uint32_t first[4] = {low[0], high[0], low[1], high[1]}, last[4] = {low[2], high[2], low[3], high[3]};
            mma_f16_new(sums[half], first, b[0], b[1]);
            mma_f16(sums[half], last, b[2], b[3]);
        }
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float both = fmaf(sums[1][2 * r], fp4_power(p[i].powers, 2 * r + 1), sums[0][2 * r] * fp4_power(p[i].powers, 2 * r));
            out[2 * i + r] = fmaf(both, one, out[2 * i + r]);
        }
    }
}

// A unit of one tile of plain weights.
template <int KIND> static __device__ __forceinline__ void multiply_plain(float out[4], const unsigned char *slot, const unsigned char *x, const unit_scale *scales) {
    slot += threadIdx.x % 32 * 16;
    x += threadIdx.x % 4 * 16;
    uint32_t v[4], w[4];
    *(uint4 *)v = *(const uint4 *)x, *(uint4 *)w = *(const uint4 *)(x + 64); // elements 8 t ... and 32 + 8 t ... of the one column
    float first[4] = {0}, second[4] = {0};
    multiply_plain_unit<KIND == WF16>(first, second, slot, v, w);
    float one = KIND == WF16 ? scales->one : 1.0f;
    out[0] = fmaf(one, first[0] + second[0], out[0]);
    out[1] = fmaf(one, first[2] + second[2], out[1]);
}

// A warp's sums of rows g and g + 8 of a tile, of the row of x that is this lane's: [rows][16][warps + 1].
template <int WARPS> static __device__ __forceinline__ void keep_sums(float *red, float low, float high, int rows) {
    int lane = threadIdx.x % 32;
    if (lane % 4 >= rows) return;
    red += (lane % 4 * 16 + lane / 4) * (WARPS + 1) + threadIdx.x / 32;
    red[0] = low, red[8 * (WARPS + 1)] = high;
}

static __device__ __noinline__ float gated_rare(const k_act &a, float x, float b) {
    return gated(a, x, b);
}
template <int KIND> static __device__ __forceinline__ float gated_by(const k_act &a, int kind, float scale, float y, float up) {
    if (kind == ACT_SILU) return __fdividef(y, 1.0f + __expf(-y)) * (up * scale);
    if (KIND != WGE || kind != ACT_CLAMPED_SWIGLU) return gated_rare(a, y, up);
    y = fminf(y, a.p[1]), up = fminf(fmaxf(up, -a.p[1]), a.p[1]) + 1.0f;
    return __fdividef(y, 1.0f + __expf(-a.p[0] * y)) * (up * scale);
}

// What is added to result i: asked for early, waited for where it is used.
struct early {
    uint2 residual;
    float bias, up_bias; // up_bias: of experts
};
template <int KIND> static __device__ __forceinline__ early ask(const k_step_linear &a, int i, int row, int width, bool there) {
    early e = {uint2{0, 0}, 0, 0};
    if (!there) return e;
    if (a.residual_link) e.residual = load_tagged(a.residual_link + (ROWS > 1 ? row * width : 0) + i);
    else if (a.residual) e.residual.x = __float_as_uint(a.residual[(ROWS > 1 ? row * a.residual_stride : 0) + i]);
    if (a.bias && !(KIND == WGE && a.e.half)) e.bias = a.bias[i];
    return e;
}

// Results of n tiles from `first` on: sums of the warps, then norm, bias, gate and residual. Few results: as many lanes as there are warps share
// one; many: one each. `wide` says which.
template <int WARPS> static __device__ __forceinline__ float sum_warps(const float *from, bool wide) {
    if (!wide) return sum_lanes<WARPS>(*from);
    float sums[WARPS / 2]; // in the same order as by lanes: a result must not depend on how many there are
#pragma unroll
    for (int w = 0; w < WARPS / 2; w++) sums[w] = from[w] + from[w + WARPS / 2];
#pragma unroll
    for (int step = WARPS / 4; step > 0; step /= 2)
#pragma unroll
        for (int w = 0; w < step; w++) sums[w] += sums[w + step];
    return sums[0];
}
static __device__ __forceinline__ bool is_wide(int n) {
    return ROWS > 1 || n > 2;
}

// Which result this thread makes of n tiles: by a row of x, of a tile, the i-th of its row. lane: among those that share it.
struct place_of {
    int tile, row, i, in_tile, lane;
};
template <int WARPS> static __device__ __forceinline__ place_of place_in(int first, int n, int rows) {
    int at = is_wide(n) ? (int)threadIdx.x : (int)threadIdx.x / WARPS;
    place_of p = {ROWS > 1 ? at / 16 / rows : at / 16, ROWS > 1 ? at / 16 % rows : 0, 0, at % 16, is_wide(n) ? 0 : (int)threadIdx.x % WARPS};
    p.i = (first + p.tile) * 16 + p.in_tile;
    return p;
}

// Adds the biases of experts, a row for each expert. INNER: those of result i, of the choice that makes it. DOWN: result i is a sum over the choices, and so is its bias; lanes that
// share the result have a part each, which whoever calls adds up.
static __device__ __forceinline__ void ask_biases(early &e, const k_step_linear &a, const shared_head *head, const place_of &p, bool wide) {
    if (a.e.half == K_HALF_INNER) {
        int inner = (int)a.glu_inner, choice = p.i / inner;
        const float *row = a.bias + (int64_t)head->ids[choice] * a.w.out + p.i - choice * inner;
        e.bias = row[0], e.up_bias = row[inner];
        return;
    }
    int last = wide ? a.e.k : p.lane + 1 < a.e.k ? p.lane + 1 : a.e.k;
    for (int c = p.lane; c < last; c++) e.bias = fmaf(head->weights[c], a.bias[(int64_t)head->ids[c] * a.w.out + p.i], e.bias);
}

// How many results a product has.
static __device__ __forceinline__ int width_of(const k_step_linear &a) {
    if (!a.glu_inner) return (int)a.w.out;
    return (int)a.glu_inner * (a.e.half == K_HALF_INNER ? a.e.k : 1);
}

// What the end of a product asks its instruction for, read while its warps are still coming: behind their meeting every step counts.
struct ending {
    float inv_in, eps, own_scale, residual_scale, act_scale;
    int inner, width, act_kind, rows;
    bool has_norm, has_residual, is_f32;
    uint64_t *link;
    void *y;
    const uint64_t *residual_link;
    uint32_t tag, residual_tag;
};
template <int KIND> static __device__ __forceinline__ ending ending_of(const k_instr &in, uint32_t tag) {
    const k_step_linear &a = in.u.linear;
    ending o;
    o.rows = ROWS > 1 ? a.rows : 1, o.has_norm = a.has_norm, o.inv_in = a.inv_in, o.eps = a.eps;
    o.inner = (int)a.glu_inner, o.width = has_experts<KIND>() ? width_of(a) : o.inner ? o.inner : (int)a.w.out, o.act_kind = a.act.kind, o.act_scale = a.act.scale;
    o.has_residual = a.residual || a.residual_link, o.own_scale = a.own_scale, o.residual_scale = a.residual_scale;
    o.link = a.y_link, o.y = a.y, o.is_f32 = a.y_dtype == K_F32, o.residual_link = a.residual_link;
    o.tag = tag + in.number, o.residual_tag = tag + a.residual_maker;
    return o;
}

// weights: of the chosen experts, whose inner results a block makes; NULL: none.
template <int KIND, int WARPS> static __device__ __forceinline__ void finish(const k_step_linear &a, const ending &o, const float *weights, const float *red, const float (*squares)[WARPS], int first, int n, early e, uint32_t *count) {
    int tile_floats = o.rows * 16 * (WARPS + 1);
    bool wide = is_wide(n);
    int shift = wide ? 0 : WARPS == 16 ? 4 : 3;
    if ((int)(threadIdx.x & ~31u) >> shift >= n * 16 * o.rows) return; // whole warps: the others meet in shuffles
    const place_of p = place_in<WARPS>(first, n, o.rows);
    int i = p.i, row = p.row, before = ROWS > 1 ? row * o.width : 0; // results of the rows before this one
    bool there = p.tile < n && i < o.width;
    const float *from = red + p.tile * (o.inner ? 2 : 1) * tile_floats + (row * 16 + p.in_tile) * (WARPS + 1) + p.lane;
    float scale = 1.0f;
    if (o.has_norm) scale = rsqrtf(fmaf(sum_lanes<WARPS>(squares[row][threadIdx.x % WARPS]), o.inv_in, o.eps));
    float y = sum_warps<WARPS>(from, wide);
    if (KIND == WGE && a.e.half == K_HALF_DOWN && a.bias && !wide) e.bias = sum_lanes<WARPS>(e.bias);
    y = fmaf(y, scale, e.bias);
    if (o.inner) {
        float up = sum_warps<WARPS>(from + tile_floats, wide) * scale;
        if (KIND == WGE && a.e.half) up += e.up_bias;
        else if (a.bias && there) up += a.bias[i + o.inner];
        y = gated_by<KIND>(a.act, o.act_kind, o.act_scale, y, up);
        if (weights && there) y *= weights[i / o.inner];
    }
    if (o.has_residual) {
        if (o.residual_link && there && e.residual.y != o.residual_tag) e.residual.x = wait_tagged(o.residual_link + before + i, o.residual_tag, count);
        y = y * o.own_scale + __uint_as_float(e.residual.x) * o.residual_scale;
    }
    bool stores = p.lane == 0 && there;
    if (o.link) {
        float next = __shfl_down_sync(FULL, y, 1 << shift);
        if (o.is_f32 && stores) store_tagged(o.link + before + i, __float_as_uint(y), o.tag);
        if (!o.is_f32 && stores && i % 2 == 0) store_tagged(o.link + (before + i) / 2, pack_bf16(y, next), o.tag);
    }
    if (o.y && stores) store_f32(o.y, o.is_f32 ? K_F32 : K_BF16, (ROWS > 1 ? row * a.y_stride : 0) + i, y);
}

// Where a place of units ends. left: of experts' DOWN, units until the next choice's begin, which has another place.
template <int KIND> static __device__ __forceinline__ int end_of_place(int u, int chunk, int mine, int &left, const k_instr &in) {
    int end = u + chunk < mine ? u + chunk : mine;
    if (has_experts<KIND>()) { // as fetch() cuts them
        if (end - u > left) end = u + left;
        left -= end - u;
        if (left == 0) left = in.stream.each;
    }
    return end;
}

// As run_tiles, of mxfp4.
template <int KIND, int WARPS, int TILES>
static __device__ __forceinline__ void run_fp4_tiles(float out[4], ring_state &r, const shared_head *head, x_part x, int mine, int limit, int left, const k_instr &in) {
    enum { CHUNK = groups_chunk_units(TILE_FP4_BYTES, SMALL_SHARED) };
#pragma unroll 1
    for (int u = 0; u < mine;) {
        if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
        const unsigned char *place = wait_place<KIND>(r);
        int end = end_of_place<KIND>(u, CHUNK, mine, left, in);
#pragma unroll 1
        for (; u < end; u++, place += TILE_FP4_BYTES) multiply_fp4<TILES>(out, place, CHUNK * TILE_FP4_BYTES, x.units + u * 128, x.scales[u].one);
        leave_place(r);
    }
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) out[i] *= FP4_ONE;
}

// As run_tiles, of weights in groups of any length.
template <int KIND, int FORMAT, int WARPS, int TILES, int DTYPE>
static __device__ __forceinline__ void run_grouped_tiles(float out[4], ring_state &r, const shared_head *head, x_part x, int mine, int limit, int left, const k_instr &in) {
    int unit = unit_of<KIND>(in), chunk = chunk_of<KIND>(in), lane = threadIdx.x % 32;
    int meta_at = tile_codes(FORMAT == W8 ? 8 : 4) + tile_run_at(2 * (lane % 4), tile_runs(in.u.linear.w.group)) + lane / 4 * 8;
#pragma unroll 1
    for (int u = 0; u < mine;) {
        if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
        const unsigned char *place = wait_place<KIND>(r);
        int end = end_of_place<KIND>(u, chunk, mine, left, in);
#pragma unroll 1
        for (; u < end; u++, place += unit) multiply_groups<FORMAT, TILES, DTYPE>(out, place, chunk * unit, meta_at, x.units + u * 128, x.scales[u].one, x.sums[u].of[lane % 4]);
        leave_place(r);
    }
#pragma unroll
    for (int i = 0; i < 2 * TILES; i++) {
        out[i] += __shfl_xor_sync(FULL, out[i], 1);
        out[i] += __shfl_xor_sync(FULL, out[i], 2);
    }
}

// What the warp's units make of TILES tiles. left: of experts' DOWN, units of its first choice.
template <int KIND, int FORMAT, int WARPS, int TILES, int DTYPE>
static __device__ __forceinline__ void run_tiles(float out[4], ring_state &r, const shared_head *head, x_part x, int mine, int limit, int left, const k_instr &in) {
    if constexpr (has_groups<KIND>()) {
        run_grouped_tiles<KIND, is_plain<FORMAT>() ? W4 : FORMAT, WARPS, TILES, DTYPE>(out, r, head, x, mine, limit, left, in);
    } else {
#pragma unroll 1
        for (int u = 0; u < mine;) {
            if (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
            const unsigned char *place = wait_place<KIND>(r);
            int end = end_of_place<KIND>(u, chunk_units<FORMAT>(), mine, left, in);
#pragma unroll 1
            for (; u < end; u++, place += unit_bytes<FORMAT>()) {
                if (is_plain<KIND>()) multiply_plain<KIND>(out, place, x.units + u * 128, x.scales + u);
                else multiply<is_plain<FORMAT>() ? W4 : FORMAT, TILES, DTYPE>(out, place, x.units + u * 128, x.scales + u);
            }
            leave_place(r);
        }
    }
}

// The same for tiles from `tile` on: two where there are two, by the type of the scales.
template <int KIND, int FORMAT, int WARPS>
static __device__ __forceinline__ void run_codes(float out[4], ring_state &r, const shared_head *head, x_part x, int mine, int limit, int left, const k_instr &in, bool two) {
    bool is_half = in.u.linear.w.dtype != K_BF16;
    if (two && !is_half) run_tiles<KIND, FORMAT, WARPS, 2, K_BF16>(out, r, head, x, mine, limit, left, in);
    else if (two) run_tiles<KIND, FORMAT, WARPS, 2, K_F16>(out, r, head, x, mine, limit, left, in);
    else if (!is_half) run_tiles<KIND, FORMAT, WARPS, 1, K_BF16>(out, r, head, x, mine, limit, left, in);
    else run_tiles<KIND, FORMAT, WARPS, 1, K_F16>(out, r, head, x, mine, limit, left, in);
}

// ---- experts ----

// The router's scores: a block has a row of its weight, in whatever format, all in f32.
template <int WARPS> static __device__ __forceinline__ void run_router(const k_step_run &run, const k_instr &in, shared_head *head, float *sums, int i) {
    const k_step_linear &a = in.u.linear;
    coming next = begin_instr(run, head, i);
    uint32_t tag = head->tag + a.x_maker;
    float *squares = head->squares[i & 1][0];
#pragma unroll 1
    for (int row = blockIdx.x; row < (int)a.w.out; row += gridDim.x) {
        float sum = 0, square = 0;
#pragma unroll 1
        for (int k = threadIdx.x * 8; k < (int)a.w.in; k += WARPS * 256) {
            float w[8];
            uint4 v[4];
            unpack8(a.w, row, k, w);
            if (a.norm) {
                float n[8];
                load8(a.norm, K_F32, k, n);
#pragma unroll
                for (int j = 0; j < 8; j++) w[j] *= n[j] + a.norm_offset;
            }
            bool there;
            int polls = 0;
            do {
#pragma unroll
                for (int j = 0; j < 4; j++) v[j] = load_tagged2(a.x_link + k + 2 * j);
                there = true;
#pragma unroll
                for (int j = 0; j < 4; j++) there = there && v[j].y == tag && v[j].w == tag;
            } while (!there && !(is_long(++polls) && gave_up(run.barrier, polls)));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                float y = __uint_as_float(v[j].x), z = __uint_as_float(v[j].z);
                square = fmaf(z, z, fmaf(y, y, square));
                sum = fmaf(z, w[2 * j + 1], fmaf(y, w[2 * j], sum));
            }
        }
        sum = warp_sum(sum), square = warp_sum(square);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum, squares[threadIdx.x / 32] = square;
        __syncthreads();
        if (threadIdx.x < 32) {
            sum = sum_lanes<WARPS>(sums[threadIdx.x % WARPS]), square = sum_lanes<WARPS>(squares[threadIdx.x % WARPS]);
            if (a.has_norm) sum *= rsqrtf(fmaf(square, a.inv_in, a.eps));
            if (threadIdx.x == 0) store_tagged(a.y_link + row, __float_as_uint(a.bias ? sum + a.bias[row] : sum), head->tag + in.number);
        }
        __syncthreads();
    }
    end_instr(next, head, i);
    __syncthreads();
}

// The choice, by one warp: scores has room for three of each.
template <int KIND> static __device__ __noinline__ void choose_row(const k_step_run &run, const k_instr &in, shared_head *head, float *scores) {
    enum { POLLS = 4 };
    const k_step_experts &e = in.u.linear.e;
    uint32_t tag = head->tag + e.scores_maker;
    int lane = threadIdx.x % 32;
#pragma unroll 1
    for (int base = 0; base < e.n_experts; base += 64 * POLLS) {
        uint4 v[POLLS];
        bool there;
        int polls = 0;
        do {
            there = true;
#pragma unroll
            for (int j = 0; j < POLLS; j++) {
                int i = base + 64 * j + 2 * lane;
                v[j] = uint4{0, tag, 0, tag};
                if (i < e.n_experts) v[j] = load_tagged2(e.scores_link + i);
            }
#pragma unroll
            for (int j = 0; j < POLLS; j++) there = there && v[j].y == tag && v[j].w == tag;
        } while (!in_all_lanes(there) && !(is_long(++polls) && gave_up(run.barrier, polls)));
#pragma unroll
        for (int j = 0; j < POLLS; j++) {
            int i = base + 64 * j + 2 * lane;
            if (i < e.n_experts) scores[i] = __uint_as_float(v[j].x), scores[i + 1] = __uint_as_float(v[j].z);
        }
    }
    __syncwarp();
    choose_experts(e.rule, scores, e.n_experts, head->ids, head->weights);
    __syncwarp();
    if (blockIdx.x == 0 && lane < e.k) e.ids[lane] = head->ids[lane];
    if (KIND == WGE && blockIdx.x == 0 && e.weights && lane < e.k) e.weights[lane] = head->weights[lane];
    if (lane == 0) head->chosen = in.number;
}

template <int KIND, int WARPS>
static __device__ __forceinline__ void run_product(const k_step_run &run, const k_instr &in, shared_head *head, unsigned char *smem, ring_state &r, int i, int limit, int &turn) {
    const k_step_linear &a = in.u.linear;
    int warp = threadIdx.x / 32, units = in.stream.units, u0 = warp * units / WARPS, mine = (warp + 1) * units / WARPS - u0;
    int first = first_tile(in.stream), n_tiles = count_tiles(in.stream), parts = in.stream.parts;
    int rows = ROWS > 1 ? a.rows : 1;
    bool is_8 = (KIND == W48 || has_groups<KIND>()) && a.w.bits == 8, is_inner = has_experts<KIND>() && a.e.half == K_HALF_INNER;
    int left = has_experts<KIND>() && a.e.half == K_HALF_DOWN ? in.stream.each - u0 % in.stream.each : 1 << 30;
    unit_scale *scales = (unit_scale *)(smem + rings_at<WARPS>() + WARPS * r.depth * place_bytes<KIND>());
    unit_sums *sums = (unit_sums *)(scales + rows * list_scales(units, ROWS));
    x_part x = {(unsigned char *)(has_groups<KIND>() && !is_fp4<KIND>(a) ? sums + units : sums) + u0 * 128, scales + u0, sums + u0};
    float(*squares)[WARPS] = head->squares[i & 1];
    uint32_t tag = head->tag;
    coming next;
#if ONE_ROWS > 1
    next = begin_instr(run, head, i);
    if (n_tiles && a.x_link && mine) stage_rows<KIND, WARPS>(a, x, units, u0 * 64, mine * 64, tag + a.x_maker, r, head, limit, run, squares);
    else if (n_tiles)
#pragma unroll 1
        for (int row = 0; row < rows; row++) {
            float square = warp_sum(stage_plain<KIND>(a, part_of_row(x, row, units), row, u0 * 64, mine * 64));
            if (threadIdx.x % 32 == 0) squares[row][warp] = square;
        }
    int last = rows - 1, column = threadIdx.x % 32 / 8, result = threadIdx.x % 4; // rows of this lane's operand and of its sums
    x = x_part{part_of_row(x, column < last ? column : last, units).units, part_of_row(x, result < last ? result : last, units).scales, NULL};
#else
    float square = 0;
    if (n_tiles && a.x_link && mine) square = stage_linked<KIND, WARPS>(a, x, u0 * 64, mine * 64, tag + a.x_maker, r, head, limit, run, i, next);
    else {
        next = begin_instr(run, head, i);
        if (n_tiles) square = stage_plain<KIND>(a, x, 0, u0 * 64, mine * 64);
    }
    if (n_tiles && a.has_norm) {
        square = warp_sum(square);
        if (threadIdx.x % 32 == 0) squares[0][warp] = square;
    }
#endif
    __syncwarp();
    if (is_inner) {
        if (warp == 0) choose_row<KIND>(run, in, head, (float *)(smem + HEAD_BYTES) + (turn & 1) * red_floats<WARPS>());
        __syncthreads();
#pragma unroll 1
        while (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
    }
    int done = 0, at_once = list_tiles(SMALL_SHARED, rows);
    do {
        int n = n_tiles - done < at_once / parts ? n_tiles - done : at_once / parts, tiles = n * parts;
        const place_of p = place_in<WARPS>(first + done, n, rows);
        int width = has_experts<KIND>() ? width_of(a) : a.glu_inner ? (int)a.glu_inner : (int)a.w.out;
        bool there = p.tile < n && p.i < width, is_expert = KIND == WGE && a.e.half;
        early e = ask<KIND>(a, p.i, p.row, width, there);
        if (is_expert && a.bias && there) ask_biases(e, a, head, p, is_wide(n));
        float *red = (float *)(smem + HEAD_BYTES) + (turn & 1) * red_floats<WARPS>();
#pragma unroll 1
        for (int tile = 0; tile < tiles; tile += is_plain<KIND>() ? 1 : 2) {
            float out[4] = {0};
            if (is_plain<KIND>()) run_tiles<KIND, is_plain<KIND>() ? KIND : W4, WARPS, 1, K_BF16>(out, r, head, x, mine, limit, left, in);
            else if (is_fp4<KIND>(a)) {
                if (tile + 1 < tiles) run_fp4_tiles<KIND, WARPS, 2>(out, r, head, x, mine, limit, left, in);
                else run_fp4_tiles<KIND, WARPS, 1>(out, r, head, x, mine, limit, left, in);
            } else if (is_8) run_codes<KIND, W8, WARPS>(out, r, head, x, mine, limit, left, in, tile + 1 < tiles);
            else run_codes<KIND, W4, WARPS>(out, r, head, x, mine, limit, left, in, tile + 1 < tiles);
            keep_sums<WARPS>(red + tile * rows * 16 * (WARPS + 1), out[0], out[1], rows);
            if (!is_plain<KIND>() && tile + 1 < tiles) keep_sums<WARPS>(red + (tile + 1) * rows * 16 * (WARPS + 1), out[2], out[3], rows);
        }
        ending o = ending_of<KIND>(in, tag);
        if (done == 0) end_instr(next, head, i);
        __syncthreads();
        if (n) finish<KIND, WARPS>(a, o, is_inner ? head->weights : NULL, red, squares, first + done, n, e, run.barrier);
        turn++;
        done += n;
    } while (done < n_tiles);
}

// ---- lists ----

// What is known of the item that a row's attention has here.
static __device__ __forceinline__ known_item *known_of(shared_head *head, const k_step_attn &a) {
#ifdef ONE_MIXED
    if (a.window > 0) return &head->windowed;
#endif
    return &head->known[0];
}

#ifndef ONE_CACHE_8
template <int KIND, int WARPS, int D> static __device__ __forceinline__ void run_list_item(const k_instr &in, shared_head *head, known_item *known, float *heads, float *parts, int item, uint32_t *count) {
    enum { DTYPE = has_experts<KIND>() ? K_F32 : K_BF16 };
    if (!knows_item(in.u.attn, head, known, item)) know_item(in.u.attn, head, known, item);
    if (known->part.n == 1) run_single<WARPS, D, DTYPE, KIND == WGE>(in, head, known, heads, parts, count);
    else if (known->part.n) run_several<WARPS, D, DTYPE, KIND == WGE>(in, head, known, heads, parts, count);
}
#endif

// Blocks share an instruction's tiles or items; attention's items begin at the last block, since the first have a tile more of products.
template <int KIND, int WARPS, int D> static __device__ __forceinline__ void run_list(const k_step_run &a, unsigned char *smem) {
    shared_head *head = (shared_head *)smem;
    int n_instrs = a.n, warp = threadIdx.x / 32;
    for (int i = threadIdx.x; i < AHEAD_INSTRS * K_INSTR_BYTES / 16; i += WARPS * 32)
        if (i / (K_INSTR_BYTES / 16) < n_instrs) ((uint4 *)smem)[i] = ((const uint4 *)a.instrs)[i];
    if (threadIdx.x < ROWS) head->known[threadIdx.x].item = -1;
#ifdef ONE_MIXED
    if (threadIdx.x == 0) head->windowed.item = -1;
#endif
    if (threadIdx.x == 0) {
        head->tag = a.barrier[2] + 1;
        head->chosen = -1;
    }
#ifdef ONE_BULK
    for (int i = threadIdx.x; i < PLACES_MAX + 1; i += WARPS * 32) barrier_init((uint32_t)__cvta_generic_to_shared(&head->arrived[i]), 1);
    barrier_init_done();
#endif
    __syncthreads();
    if (has_experts<KIND>() && head->slots[0].stream.half == K_HALF_DOWN) { // a list that begins behind the choice
        const k_step_experts &e = head->slots[0].u.linear.e;
        if (threadIdx.x < e.k) head->ids[threadIdx.x] = e.ids[threadIdx.x];
        if (KIND == WGE && e.weights && threadIdx.x < e.k) head->weights[threadIdx.x] = e.weights[threadIdx.x];
        __syncthreads();
    }
    ring_state r;
    r.c.tiles = r.c.next = r.under_way = r.put = r.take = 0;
    r.phases = 0;
    r.depth = a.depth;
#ifndef MLXCEL_EMULATE
    r.arrived = (uint32_t)__cvta_generic_to_shared(&head->arrived[warp * (PLACES_MAX / WARPS)]);
#endif
    r.places = smem + rings_at<WARPS>() + warp * r.depth * place_bytes<KIND>();
    int turn = 0;
    uint32_t arrivals = 0;
#pragma unroll 1
    while (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, AHEAD_INSTRS < n_instrs ? AHEAD_INSTRS : n_instrs)) fetch<KIND, WARPS>(r, head);
#pragma unroll 1
    for (int i = 0; i < n_instrs; i++) {
        const k_instr &in = head->slots[i % SLOTS];
        if (in.waits) grid_barrier(a.barrier, arrivals += gridDim.x);
        if (in.kind == K_STEP_LINEAR) {
#if ONE_ROWS == 1
            const k_instr &next = head->slots[(i + 1) % SLOTS];
            if (i + 1 < n_instrs && next.kind == K_STEP_ATTN) ask_item<WARPS, D>(next.u.attn, known_of(head, next.u.attn));
#endif
            int limit = i + LOOK + 1 < n_instrs ? i + LOOK + 1 : n_instrs;
            run_product<KIND, WARPS>(a, in, head, smem, r, i, limit, turn);
            continue;
        }
        if (has_experts<KIND>() && in.kind == K_STEP_ROUTER) {
            run_router<WARPS>(a, in, head, (float *)(smem + HEAD_BYTES) + (turn & 1) * red_floats<WARPS>(), i);
            continue;
        }
        coming next = begin_instr(a, head, i);
        float *heads = (float *)(smem + rings_at<WARPS>() + WARPS * r.depth * place_bytes<KIND>()), *parts = (float *)(smem + HEAD_BYTES);
        int item = gridDim.x - 1 - blockIdx.x;
#ifdef ONE_CACHE_8
        if (item < items_of_row(in.u.attn)) run_list_item8<WARPS, D>(in, head, known_of(head, in.u.attn), (unsigned char *)heads, parts, item, a.barrier);
#elif ONE_ROWS > 1
#pragma unroll 1
        for (int k = 0; item < in.u.attn.rows * items_of_row(in.u.attn); item += gridDim.x, k++) {
            run_list_item<KIND, WARPS, D>(in, head, &head->known[k < ROWS ? k : ROWS - 1], heads, parts, item, a.barrier);
            __syncthreads();
        }
#else
        if (item < items_of_row(in.u.attn)) run_list_item<KIND, WARPS, D>(in, head, known_of(head, in.u.attn), heads, parts, item, a.barrier);
#endif
        end_instr(next, head, i);
        __syncthreads();
    }
    copy_wait<0>();
    if (a.tags) {
        __syncthreads();
        grid_leave(a.barrier, (uint32_t)a.tags);
    }
}

// One block per multiprocessor, all of them at once on the GPU (a cooperative launch). By bits of weights and width of heads. kernels/one8.cu has the same for a cache of 8 bits, kernels/few.cu for few rows,
// kernels/one_mixed.cu and one8_mixed.cu those for experts of other weights: in files of their own, since the compiler shares registers among all callers of a function.
#define ONE(name, kind, warps, d)                                                           \
    extern "C" __global__ void __launch_bounds__(warps * 32, 1) name(KARGS(k_step_run) a) { \
        DYNAMIC_SHARED(unsigned char, smem);                                                \
        run_list<kind, warps, d>(a, smem);                                                  \
    }
#if !defined(ONE_CACHE_8) && !defined(ONE_MIXED) && ONE_ROWS == 1
ONE(one_4_64, W4, LIST_WARPS, 64)
ONE(one_4_128, W4, LIST_WARPS, 128)
ONE(one_16_64, W16, LIST_WARPS, 64)
ONE(one_16_128, W16, LIST_WARPS, 128)
ONE(one_f16_64, WF16, LIST_WARPS, 64)
ONE(one_f16_128, WF16, LIST_WARPS, 128)
ONE(one_48_64, W48, LIST_WARPS, 64)
ONE(one_48_128, W48, LIST_WARPS, 128)
ONE(one_groups_64, WG, LIST_WARPS, 64)
ONE(one_groups_128, WG, LIST_WARPS, 128)
ONE(one_experts_64, W4E, LIST_WARPS, 64)
ONE(one_experts_128, W4E, LIST_WARPS, 128)
#endif
