// Decode steps of one row: a list of the instructions of kernels/step.cu in one launch (kernels/few.cu: of several rows). No barrier stands between two of them: an instruction waits
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
// 1 / rms and the logistic function are the hardware's (2 ulp): their results become bf16 or 16-bit integers.
#include "fp4.cuh"
#include "one_attn.cuh"
#include "one_codes.cuh"
#include "one_end.cuh"
#include "one_x.cuh"
#include "route.cuh"
#ifdef ONE_LATENT
#include "one_latent.cuh"
#endif

// ---- products ----

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
    weigh<TILES, DTYPE>(out, sums, meta, s.one, s.sum);
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
    weigh<TILES, DTYPE>(out, sums, meta, one, x_sum);
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

// A warp's sums of rows g and g + 8 of a tile: [16][warps + 1].
template <int WARPS> static __device__ __forceinline__ void keep_sums(float *red, float low, float high) {
    int lane = threadIdx.x % 32;
    if (lane % 4) return;
    red += lane / 4 * (WARPS + 1) + threadIdx.x / 32;
    red[0] = low, red[8 * (WARPS + 1)] = high;
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
    return n > 2;
}

// Which result this thread makes of n tiles: the i-th. lane: among those that share it.
struct place_of {
    int tile, i, in_tile, lane;
};
template <int WARPS> static __device__ __forceinline__ place_of place_in(int first, int n) {
    int at = is_wide(n) ? (int)threadIdx.x : (int)threadIdx.x / WARPS;
    return place_of{at / 16, (first + at / 16) * 16 + at % 16, at % 16, is_wide(n) ? 0 : (int)threadIdx.x % WARPS};
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

// weights: of the chosen experts, whose inner results a block makes; NULL: none.
template <int KIND, int WARPS> static __device__ __forceinline__ void finish(const k_step_linear &a, const ending &o, const float *weights, const float *red, const float *squares, int first, int n, early e, uint32_t *count) {
    enum { TILE_FLOATS = 16 * (WARPS + 1) };
    bool wide = is_wide(n);
    int shift = wide ? 0 : WARPS == 16 ? 4 : 3;
    if ((int)(threadIdx.x & ~31u) >> shift >= n * 16) return; // whole warps: the others meet in shuffles
    const place_of p = place_in<WARPS>(first, n);
    int i = p.i;
    bool there = p.tile < n && i < o.width;
    const float *from = red + p.tile * (o.inner ? 2 : 1) * TILE_FLOATS + p.in_tile * (WARPS + 1) + p.lane;
    float scale = 1.0f;
    if (o.has_norm) scale = rsqrtf(fmaf(sum_lanes<WARPS>(squares[threadIdx.x % WARPS]), o.inv_in, o.eps));
    float y = sum_warps<WARPS>(from, wide);
    if (KIND == WGE && a.e.half == K_HALF_DOWN && a.bias && !wide) e.bias = sum_lanes<WARPS>(e.bias);
    y = fmaf(y, scale, e.bias);
    if (o.inner) {
        float up = sum_warps<WARPS>(from + TILE_FLOATS, wide) * scale;
        if (KIND == WGE && a.e.half) up += e.up_bias;
        else if (a.bias && there) up += a.bias[i + o.inner];
        y = gated_by<KIND>(a.act, o.act_kind, o.act_scale, y, up);
        if (weights && there) y *= weights[i / o.inner];
    }
    if (o.has_residual) y = add_residual(o, e, i, y, there, count);
    store_result(o, i, i, y, o.link ? __shfl_down_sync(FULL, y, 1 << shift) : 0.0f, p.lane == 0 && there);
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
#ifdef ONE_LATENT
    if (lane >= e.rule.k && lane < e.k) head->ids[lane] = 0, head->weights[lane] = 1.0f;
    __syncwarp();
#endif
    if (blockIdx.x == 0 && lane < e.k) e.ids[lane] = head->ids[lane];
    if (KIND == WGE && blockIdx.x == 0 && e.weights && lane < e.k) e.weights[lane] = head->weights[lane];
    if (lane == 0) head->chosen = in.number;
}

template <int KIND, int WARPS>
static __device__ __forceinline__ void run_product(const k_step_run &run, const k_instr &in, shared_head *head, unsigned char *smem, ring_state &r, int i, int limit, int &turn) {
    const k_step_linear &a = in.u.linear;
    int warp = threadIdx.x / 32, units = in.stream.units, u0 = warp * units / WARPS, mine = (warp + 1) * units / WARPS - u0;
    int first = first_tile(in.stream), n_tiles = count_tiles(in.stream), parts = in.stream.parts;
    bool is_8 = (KIND == W48 || has_groups<KIND>()) && a.w.bits == 8, is_inner = has_experts<KIND>() && a.e.half == K_HALF_INNER;
    int left = has_experts<KIND>() && a.e.half == K_HALF_DOWN ? in.stream.each - u0 % in.stream.each : 1 << 30;
    unit_scale *scales = (unit_scale *)(smem + rings_at<WARPS>() + WARPS * r.depth * place_bytes<KIND>());
    unit_sums *sums = (unit_sums *)(scales + list_scales(units));
    x_part x = {(unsigned char *)(has_groups<KIND>() && !is_fp4<KIND>(a) ? sums + units : sums) + u0 * 128, scales + u0, sums + u0};
    float *squares = head->squares[i & 1][0];
    uint32_t tag = head->tag;
    coming next;
    float square = 0;
#ifdef ONE_POST
    if (a.has_sum) {
        float4 *room = (float4 *)((unsigned char *)scales + list_x_bytes(units) + u0 * LIST_SUM_UNIT);
        square = stage_sum<KIND, WARPS>(in, x, room, u0 * 64, n_tiles ? mine * 64 : 0, r, head, limit, run, i, next);
    } else
#endif
    if (n_tiles && a.x_link && mine) square = stage_linked<KIND, WARPS>(a, x, u0 * 64, mine * 64, tag + a.x_maker, r, head, limit, run, i, next);
    else {
        next = begin_instr(run, head, i);
        if (n_tiles) square = stage_plain<KIND>(a, x, 0, u0 * 64, mine * 64);
    }
    if (n_tiles && a.has_norm) {
        square = warp_sum(square);
        if (threadIdx.x % 32 == 0) squares[warp] = square;
    }
    __syncwarp();
    if (is_inner) {
        if (warp == 0) choose_row<KIND>(run, in, head, (float *)(smem + HEAD_BYTES) + (turn & 1) * red_floats<WARPS>());
        __syncthreads();
#pragma unroll 1
        while (r.under_way < r.depth && has_unit<KIND, WARPS>(r.c, head, limit)) fetch<KIND, WARPS>(r, head);
    }
    int done = 0, at_once = list_tiles(SMALL_SHARED);
    do {
        int n = n_tiles - done < at_once / parts ? n_tiles - done : at_once / parts, tiles = n * parts;
        const place_of p = place_in<WARPS>(first + done, n);
        int width = has_experts<KIND>() ? width_of(a) : a.glu_inner ? (int)a.glu_inner : (int)a.w.out;
        bool there = p.tile < n && p.i < width, is_expert = KIND == WGE && a.e.half;
        early e = ask<KIND>(a, p.i, 0, width, there);
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
            keep_sums<WARPS>(red + tile * 16 * (WARPS + 1), out[0], out[1]);
            if (!is_plain<KIND>() && tile + 1 < tiles) keep_sums<WARPS>(red + (tile + 1) * 16 * (WARPS + 1), out[2], out[3]);
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

// Blocks share an instruction's tiles or items; attention's items begin at the last block, since the first have a tile more of products.
template <int KIND, int WARPS, int D> static __device__ __forceinline__ void run_list(const k_step_run &a, unsigned char *smem) {
    shared_head *head = (shared_head *)smem;
    int n_instrs = a.n, warp = threadIdx.x / 32;
    begin_list<WARPS>(a, head);
    if (has_experts<KIND>() && head->slots[0].stream.half == K_HALF_DOWN) { // a list that begins behind the choice
        const k_step_experts &e = head->slots[0].u.linear.e;
        if (threadIdx.x < e.k) head->ids[threadIdx.x] = e.ids[threadIdx.x];
        if (KIND == WGE && e.weights && threadIdx.x < e.k) head->weights[threadIdx.x] = e.weights[threadIdx.x];
        __syncthreads();
    }
    ring_state r;
    r.c.tiles = r.c.next = r.under_way = r.put = r.take = 0;
    r.phases = r.arrived = 0;
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
            const k_instr &next = head->slots[(i + 1) % SLOTS];
#ifdef ONE_LATENT
            if (i + 1 < n_instrs && next.kind == K_STEP_QUERIES) ask_rows(next.u.latent, LATENT_VALUES * next.u.latent.heads, 2);
#else
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
#ifdef ONE_LATENT
        unsigned char *room = smem + rings_at<WARPS>() + WARPS * r.depth * place_bytes<KIND>();
        if (in.kind == K_STEP_QUERIES) run_queries<WARPS>(in, head, a.barrier);
        else if (in.kind == K_STEP_LATENT && i + 1 < n_instrs) ask_rows(head->slots[(i + 1) % SLOTS].u.latent, (int64_t)in.u.latent.heads * in.u.latent.v_width, TILE_ROWS);
        if (in.kind == K_STEP_LATENT) run_latent<WARPS>(in, head, SMALL_SHARED ? room : smem + HEAD_BYTES, SMALL_SHARED ? room + LATENT_QUERY_BYTES : room, smem + HEAD_BYTES + (SMALL_SHARED ? 0 : LATENT_QUERY_BYTES), a.barrier);
        if (in.kind == K_STEP_VALUES) run_values<WARPS>(in, head, (float *)room, a.barrier);
#else
        float *heads = (float *)(smem + rings_at<WARPS>() + WARPS * r.depth * place_bytes<KIND>()), *parts = (float *)(smem + HEAD_BYTES);
        int item = gridDim.x - 1 - blockIdx.x;
#ifdef ONE_CACHE_8
        if (item < items_of_row(in.u.attn)) run_list_item8<WARPS, D>(in, head, known_of(head, in.u.attn), (unsigned char *)heads, parts, item, a.barrier);
#else
        if (item < items_of_row(in.u.attn)) run_list_item<KIND, WARPS, D>(in, head, known_of(head, in.u.attn), heads, parts, item, a.barrier);
#endif
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
// kernels/one_mixed.cu and one8_mixed.cu those for experts of other weights, kernels/one_post.cu those for norms behind products: in files of their own, since the compiler shares registers among all callers of a function.
#define ONE(name, kind, warps, d)                                                           \
    extern "C" __global__ void __launch_bounds__(warps * 32, 1) name(KARGS(k_step_run) a) { \
        DYNAMIC_SHARED(unsigned char, smem);                                                \
        run_list<kind, warps, d>(a, smem);                                                  \
    }
#if !defined(ONE_CACHE_8) && !defined(ONE_MIXED) && !defined(ONE_POST) && !defined(ONE_LATENT)
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
