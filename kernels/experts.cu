// The chosen experts on the tensor cores, sums in f32. For sm_80 and later. Weights: 4 bits and mxfp4 in tiles, 8 bits or bf16.
//
// A pair is a row of x and one of its choices. Three ways, by the number of pairs:
// few    Up to eight rows: each pair by itself. x is two bf16 terms (16 bits), two columns of one product; many warps share k, every weight is read once.
// some   Batches, weights in tiles: pairs are sorted by expert, a block takes up to eight of one (16 of mxfp4). x is integers of 16 bits (x16.cuh), of mxfp4 f16, and weights
//        come through rings in shared memory.
// many   Prompts: a block takes up to 64 pairs of one expert; x is two bf16 terms again. (On sm_90a, of weights in tiles: experts_sm90.cu.)
// The number of pairs of an expert is known to the GPU alone, so there are as many blocks as there could be tiles, and those without one leave at once.
#include "codes.cuh"
#include "experts.cuh"
#include "x16.cuh"

enum { BK = 64, FP4 = 5, T4 = 6 }; // kinds of their own among the bits: mxfp4 and 4 bits, both in tiles

template <int KIND> static __device__ __forceinline__ constexpr int bits_of() {
    return KIND == FP4 || KIND == T4 ? 4 : KIND;
}

// In which order x is taken: with tiles as with bf16, as it lies.
template <int KIND> static __device__ __forceinline__ constexpr bool in_tiles() {
    return KIND == FP4 || KIND == T4;
}
template <int KIND> static __device__ __forceinline__ constexpr int x_order() {
    return in_tiles<KIND>() ? 16 : bits_of<KIND>();
}

// A lane's part of a unit of a tile. Of mxfp4 the scales are low.x.
template <int KIND> static __device__ __forceinline__ unit_words load_part(const unsigned char *tile, int group, int64_t k) {
    const unsigned char *unit = tile + k / BK * (KIND == FP4 ? (int)TILE_FP4_BYTES : tile_unit_bytes(4, group));
    uint4 codes = stream16(unit + threadIdx.x % 32 * 16);
    if (KIND == FP4) return unit_words{codes, uint2{*(const uint32_t *)(unit + TILE_CODES + threadIdx.x % 32 / 4 * 4), 0}, uint2{0, 0}};
    return unit_with(codes, unit, tile_runs(group));
}
template <int KIND> static __device__ __forceinline__ void unpack_part(const unit_words &p, int dtype, uint32_t first[8], uint32_t second[8]) {
    if (KIND == FP4) {
        unpack_fp4_row(p.codes.x, p.codes.y, p.low.x, first);
        unpack_fp4_row(p.codes.z, p.codes.w, p.low.x >> 16, second);
    } else {
        unpack_unit(p, dtype, first, second);
    }
}

// ---- a warp's rows: codes one step ahead, weights of this step ----

template <int KIND> struct stream {
    rows4 rows;
    uint32_t next[4][bits_of<KIND>() / 2];
    unit_words parts[2]; // of tiles, instead of `next`
};

template <int KIND> static __device__ __forceinline__ void stream_load(stream<KIND> &s, const k_weight &w, int64_t k, int t, bool there) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (!in_tiles<KIND>()) load_row<bits_of<KIND>()>(s.rows.values[i], k, t, there, s.next[i]);
        else if (i % 2 == 0 && there) s.parts[i / 2] = load_part<KIND>(s.rows.values[i], w.group, k);
    }
}

template <int KIND> static __device__ __forceinline__ void make_weights(const stream<KIND> &s, int i, const k_weight &w, int64_t group, uint32_t out[8]) {
    if (KIND == 16) unpack<16>(s.next[i], 0, 0, out);
    else unpack<bits_of<KIND>()>(s.next[i], meta_twice(s.rows.scales[i], w.dtype, group), meta_twice(s.rows.biases[i], w.dtype, group), out);
}

// Rows 0 and 1 are of `w`, 2 and 3 of `v`.
template <int KIND>
static __device__ __forceinline__ void stream_take(stream<KIND> &s, const k_weight &w, const k_weight &v, int64_t k, int64_t k_end, int t, uint32_t out[4][8]) {
    if (in_tiles<KIND>()) {
        unpack_part<KIND>(s.parts[0], w.dtype, out[0], out[1]);
        unpack_part<KIND>(s.parts[1], v.dtype, out[2], out[3]);
    } else {
        int64_t group = KIND == 16 ? 0 : (k + t * 16) / w.group, group_v = KIND == 16 ? 0 : (k + t * 16) / v.group;
#pragma unroll
        for (int i = 0; i < 4; i++) make_weights<KIND>(s, i, i < 2 ? w : v, i < 2 ? group : group_v, out[i]);
    }
    stream_load<KIND>(s, w, k + BK, t, k + BK < k_end);
}

// ---- few rows ----

// So many steps of 64 elements are asked for at once: there is little to compute, and what counts is how much is under way. More would not fit
// the registers on every architecture.
template <int KIND> static __device__ __forceinline__ constexpr int few_steps() {
    return bits_of<KIND>() == 4 ? 4 : 2;
}

enum { FEW_WARPS = EXPERTS_INNER_WARPS, FEW_ROWS = EXPERTS_FEW_RESULTS };

static __device__ __forceinline__ int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// ROWS x 8 rows of a weight, some steps of k.
template <int KIND, int ROWS> struct burst {
    uint32_t codes[few_steps<KIND>()][ROWS][bits_of<KIND>() / 2], scale[few_steps<KIND>()][ROWS], bias[few_steps<KIND>()][ROWS];
};

template <int KIND, int ROWS>
static __device__ __forceinline__ void burst_load(burst<KIND, ROWS> &b, const rows4 &rows, const k_weight &w, int64_t k, int64_t k_end) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < few_steps<KIND>(); s++)
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            int64_t at = k + s * BK, group = KIND == 16 ? 0 : (at + t * 16) / w.group;
            if (in_tiles<KIND>()) {
                if (i % 2) continue;
                unit_words p = {uint4{0, 0, 0, 0}, uint2{0, 0}, uint2{0, 0}};
                if (at < k_end) p = load_part<KIND>(rows.values[i], w.group, at);
                b.codes[s][i][0] = p.codes.x, b.codes[s][i][1] = p.codes.y, b.codes[s][i + 1][0] = p.codes.z, b.codes[s][i + 1][1] = p.codes.w;
                if (KIND == FP4) b.scale[s][i] = b.scale[s][i + 1] = p.low.x;
                else b.scale[s][i] = p.low.x, b.scale[s][i + 1] = p.low.y, b.bias[s][i] = p.high.x, b.bias[s][i + 1] = p.high.y;
                continue;
            }
            load_row<bits_of<KIND>()>(rows.values[i], at, t, at < k_end, b.codes[s][i]);
            b.scale[s][i] = b.bias[s][i] = 0;
            if (at >= k_end || KIND == 16) continue;
            b.scale[s][i] = meta_raw(rows.scales[i], w.dtype, group);
            b.bias[s][i] = meta_raw(rows.biases[i], w.dtype, group);
        }
}

// The terms of x, in shared memory and `second` apart, are columns 0 and 1.
template <int KIND, int ROWS>
static __device__ __forceinline__ void burst_add(const burst<KIND, ROWS> &b, int dtype, const bf16 *x, int64_t second, int64_t k, int64_t k_end, float acc[ROWS / 2][4]) {
    const int bits = bits_of<KIND>();
    int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int s = 0; s < few_steps<KIND>(); s++) {
        if (k + s * BK >= k_end) break;
        uint32_t w[ROWS][8], xv[8] = {0};
        if (g < 2) take_x<x_order<KIND>()>(x + g * second + k + s * BK, t, xv);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            if (KIND == T4) unpack_words(b.codes[s][i][0], b.codes[s][i][1], b.scale[s][i], b.bias[s][i], dtype, w[i]);
            else if (KIND == FP4) unpack_fp4_row(b.codes[s][i][0], b.codes[s][i][1], b.scale[s][i] >> i % 2 * 16, w[i]);
            else unpack<bits>(b.codes[s][i], raw_twice(b.scale[s][i], dtype), raw_twice(b.bias[s][i], dtype), w[i]);
        }
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++) mma_rows(acc[i], w[2 * i], w[2 * i + 1], xv);
    }
}

// What `b` has of [k, k_end), and the rest.
template <int KIND, int ROWS>
static __device__ __forceinline__ void few_product(burst<KIND, ROWS> &b, const rows4 &rows, const k_weight &w, const bf16 *x, int64_t second, int64_t k, int64_t k_end,
                                                   float acc[ROWS / 2][4]) {
#pragma unroll
    for (int i = 0; i < ROWS * 2; i++) ((float *)acc)[i] = 0;
#pragma unroll 1
    for (;;) {
        burst_add<KIND, ROWS>(b, w.dtype, x, second, k, k_end, acc);
        k += few_steps<KIND>() * BK;
        if (k >= k_end) return;
        burst_load<KIND, ROWS>(b, rows, w, k, k_end);
    }
}

// Sums of 16 rows, both terms together, from the lanes that have them.
static __device__ __forceinline__ void put_sums(float *to, const float acc[4]) {
    int lane = threadIdx.x % 32;
    if (lane % 4 == 0) to[lane / 4] = acc[0] + acc[1], to[lane / 4 + 8] = acc[2] + acc[3];
}

static __device__ __forceinline__ void put_terms(bf16 *to, int64_t second, float x) {
    bf16 first = __float2bfloat16_rn(x);
    to[0] = first;
    to[second] = __float2bfloat16_rn(x - __bfloat162float(first));
}

// Called, not expanded: a lane of many rows has 32 of them.
static __device__ __noinline__ float inner_value(const k_experts &a, int64_t e, int64_t n, float gate, float up) {
    if (a.up_bias) up += a.up_bias[e * a.up_bias_stride + a.up_bias_first + n];
    if (!a.gate.values) return act(a.act.kind, up, a.act.p) * a.act.scale;
    if (a.gate_bias) gate += a.gate_bias[e * a.gate_bias_stride + n];
    return gated(a.act, gate, up);
}

// A weight's rows from `row` on, sixteen of them, as the lanes take them; of tiles the tile alone.
template <int KIND> static __device__ __forceinline__ void sixteen_rows(rows4 &rows, int i, const k_weight &w, int64_t row, int64_t last, int g) {
    if (in_tiles<KIND>()) {
        rows.values[i] = w.values + least(row, last) / TILE_ROWS * w.tile_bytes;
        return;
    }
    set_row(rows, i, w, least(row + g, last));
    set_row(rows, i + 1, w, least(row + 8 + g, last));
}

// Rows of the gate (of up again where there is none) and of up, sixteen each from `n` on.
template <int KIND> static __device__ __forceinline__ void inner_rows(const k_experts &a, rows4 &rows, int64_t e, int64_t n, int g) {
    int64_t up = e * a.up_rows + a.up_first, gate = e * a.gate_rows;
    if (a.gate.values) sixteen_rows<KIND>(rows, 0, a.gate, gate + n, gate + a.inner - 1, g);
    else sixteen_rows<KIND>(rows, 0, a.up, up + n, up + a.inner - 1, g);
    sixteen_rows<KIND>(rows, 2, a.up, up + n, up + a.inner - 1, g);
}

// Grid (inner / 16, pairs): four warps share k. The first weights are asked for before x is made into terms.
template <int KIND> static __device__ __forceinline__ void few_inner(const k_experts &a) {
    DYNAMIC_SHARED(bf16, x);
    __shared__ float sums[FEW_WARPS][2][FEW_ROWS];
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4;
    int64_t pair = blockIdx.y, r = pair / a.k, first = (int64_t)blockIdx.x * FEW_ROWS, e = a.ids[r * a.ids_stride + pair % a.k];
    int64_t units = a.up.in / BK, k = units * warp / FEW_WARPS * BK, k_end = units * (warp + 1) / FEW_WARPS * BK;
    rows4 rows;
    burst<KIND, 4> b;
    inner_rows<KIND>(a, rows, e, first, g);
    burst_load<KIND, 4>(b, rows, a.up, k, k_end);
    for (int64_t i = threadIdx.x; i < a.up.in; i += FEW_WARPS * 32) put_terms(x + i, a.up.in, ((const float *)a.x.p)[r * a.x.row_stride + i]);
    __syncthreads();
    float acc[2][4];
    few_product<KIND, 4>(b, rows, a.up, x, a.up.in, k, k_end, acc);
    put_sums(sums[warp][0], acc[0]);
    put_sums(sums[warp][1], acc[1]);
    __syncthreads();
    int64_t n = first + threadIdx.x;
    if (threadIdx.x >= FEW_ROWS || n >= a.inner) return;
    float total[2] = {0, 0}, factor = a.scale_input ? a.weights[r * a.weights_stride + pair % a.k] : 1.0f;
    for (int i = 0; i < FEW_WARPS; i++) total[0] += sums[i][0][threadIdx.x], total[1] += sums[i][1][threadIdx.x];
    put_terms((bf16 *)a.inner_terms + pair * a.inner + n, (int64_t)a.x.rows * a.k * a.inner, inner_value(a, e, n, total[0] * factor, total[1] * factor));
}

enum { DOWN_WARPS = EXPERTS_DOWN_WARPS, UNITS_MAX = EXPERTS_CHOICES_MAX };

// Part `part` of k of one choice.
template <int KIND> struct down_unit {
    rows4 rows;
    int64_t k, k_end;
    int choice;
};

template <int KIND> static __device__ __forceinline__ void unit_at(down_unit<KIND> &u, const k_experts &a, int64_t r, int index, int parts) {
    int64_t first = (int64_t)blockIdx.x * FEW_ROWS, steps = a.down.in / BK;
    int g = threadIdx.x % 32 / 4, part = index % parts;
    u.choice = index / parts;
    u.k = steps * part / parts * BK, u.k_end = steps * (part + 1) / parts * BK;
    int64_t e = a.ids[r * a.ids_stride + u.choice];
    if (in_tiles<KIND>()) sixteen_rows<KIND>(u.rows, 0, a.down, e * a.down.out + first, (e + 1) * a.down.out - 1, g);
#pragma unroll
    for (int i = 0; i < 2 && !in_tiles<KIND>(); i++) set_row(u.rows, i, a.down, e * a.down.out + least(first + i * 8 + g, a.down.out - 1));
}

// Grid (out / 16, rows): the choices of a row, and parts of k of each, over the warps; inner values of all choices in shared memory.
template <int KIND> static __device__ __forceinline__ void few_down(const k_experts &a) {
    DYNAMIC_SHARED(bf16, x); // [2][choices][inner]
    __shared__ float sums[UNITS_MAX][FEW_ROWS];
    int parts = a.k < DOWN_WARPS ? DOWN_WARPS / a.k : 1, n_units, index = threadIdx.x / 32;
    if (parts > a.down.in / BK) parts = (int)(a.down.in / BK);
    n_units = a.k * parts;
    int64_t r = blockIdx.y, n = (int64_t)blockIdx.x * FEW_ROWS + threadIdx.x, size = (int64_t)a.k * a.inner;
    down_unit<KIND> u;
    burst<KIND, 2> b;
    unit_at<KIND>(u, a, r, index < n_units ? index : 0, parts);
    burst_load<KIND, 2>(b, u.rows, a.down, u.k, index < n_units ? u.k_end : u.k);
    for (int64_t i = threadIdx.x; i < 2 * size / 8; i += DOWN_WARPS * 32) {
        int64_t term = i / (size / 8), at = i % (size / 8);
        ((uint4 *)x)[i] = ((const uint4 *)((const bf16 *)a.inner_terms + term * a.x.rows * size + r * size))[at];
    }
    __syncthreads();
#pragma unroll 1
    for (; index < n_units; index += DOWN_WARPS) {
        float acc[1][4];
        few_product<KIND, 2>(b, u.rows, a.down, x + u.choice * a.inner, size, u.k, u.k_end, acc);
        put_sums(sums[index], acc[0]);
        if (index + DOWN_WARPS >= n_units) break;
        unit_at<KIND>(u, a, r, index + DOWN_WARPS, parts);
        burst_load<KIND, 2>(b, u.rows, a.down, u.k, u.k_end);
    }
    __syncthreads();
    if (threadIdx.x >= FEW_ROWS || n >= a.down.out) return;
    float total = 0;
    for (int j = 0; j < a.k; j++) {
        float sum = 0;
        for (int p = 0; p < parts; p++) sum += sums[j * parts + p][threadIdx.x];
        if (a.down_bias) sum += a.down_bias[(int64_t)a.ids[r * a.ids_stride + j] * a.down.out + n];
        total += a.scale_input ? sum : sum * a.weights[r * a.weights_stride + j];
    }
    view_store(a.y, r, 0, n, total);
}

#define FEW(name, kind)                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(FEW_WARPS * 32) experts_few_inner_##name(KARGS(k_experts) a) { after_previous(); few_inner<kind>(a); }      \
    extern "C" __global__ void __launch_bounds__(DOWN_WARPS * 32) experts_few_down_##name(KARGS(k_experts) a) { after_previous(); few_down<kind>(a); }
FEW(8, 8)
FEW(16, 16)
FEW(fp4, FP4)
FEW(t4, T4)

// ---- many rows ----

enum { TILE_PAIRS = EXPERTS_TILE_PAIRS, NB = TILE_PAIRS / 8, MANY_WARPS = EXPERTS_TILE_WARPS, STAGES = EXPERTS_TILE_STAGES };

extern "C" __global__ void __launch_bounds__(SORT_THREADS) experts_sort(KARGS(k_experts) a) {
    after_previous();
    sort_pairs(a);
}

// Grid (width / 256, rows): x as two terms, all first ones and then all second ones.
extern "C" __global__ void experts_terms(KARGS(k_experts) a) {
    after_previous();
    int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x, r = blockIdx.y, n = (int64_t)a.x.rows * a.x.width;
    if (i >= a.x.width) return;
    put_terms((bf16 *)a.x_terms + r * a.x.width + i, n, ((const float *)a.x.p)[r * a.x.row_stride + i]);
}

struct tile_x {
    const bf16 *terms;
    int64_t width, second; // from the first terms to the second ones
    const int *rows;       // of the tile's pairs, in shared memory
    int n;
};

// Both terms of the pairs that are there; columns beyond them are whatever lay there, and make results that nobody stores.
template <int ORDER> static __device__ __forceinline__ void load_tile(const tile_x &x, bf16 *stage, int64_t k) {
    for (int e = threadIdx.x; e < x.n * (BK / 8); e += MANY_WARPS * 32) {
        int row = e / (BK / 8), piece = e % (BK / 8);
        const bf16 *from = x.terms + x.rows[row] * x.width + k + piece * 8;
        bf16 *to = stage + row * x_stride<ORDER>() + piece * 8;
        copy16(to, from, true);
        copy16(to + TILE_PAIRS * x_stride<ORDER>(), from + x.second, true);
    }
}

// Sums of a tile's pairs with a warp's 32 rows, acc[half][columns of eight pairs].
template <int KIND> static __device__ __forceinline__ void tile_product(const k_weight &w, const k_weight &v, stream<KIND> &s, const tile_x &x, float acc[2][NB][4]) {
    DYNAMIC_SHARED(bf16, smem);
    const int order = x_order<KIND>(), stride = x_stride<order>(), stage_size = 2 * TILE_PAIRS * stride;
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, steps = (int)(w.in / BK);
#pragma unroll
    for (int i = 0; i < 2 * NB * 4; i++) ((float *)acc)[i] = 0;
#pragma unroll
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < steps) load_tile<order>(x, smem + i * stage_size, (int64_t)i * BK);
        copy_commit();
    }
    stream_load<KIND>(s, w, 0, t, steps > 0);
    for (int i = 0; i < steps; i++) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (i + STAGES - 1 < steps) load_tile<order>(x, smem + (i + STAGES - 1) % STAGES * stage_size, (int64_t)(i + STAGES - 1) * BK);
        copy_commit();
        uint32_t weights[4][8];
        stream_take<KIND>(s, w, v, (int64_t)i * BK, w.in, t, weights);
        const bf16 *from = smem + i % STAGES * stage_size + g * stride;
#pragma unroll
        for (int nb = 0; nb < NB; nb++) {
            if (nb * 8 >= x.n) continue;
#pragma unroll
            for (int term = 0; term < 2; term++) {
                uint32_t xv[8];
                take_x<order>(from + (term * TILE_PAIRS + nb * 8) * stride, t, xv);
                mma_rows(acc[0][nb], weights[0], weights[1], xv);
                mma_rows(acc[1][nb], weights[2], weights[3], xv);
            }
        }
    }
}

// Grid (inner / 64, tiles): a warp makes 16 inner values of each pair, from as many rows of the gate and of up.
template <int KIND> static __device__ __forceinline__ void many_inner(const k_experts &a) {
    __shared__ int rows[TILE_PAIRS];
    if ((int)blockIdx.y >= a.tiles[0]) return;
    const int *tile = a.tiles + 1 + 3 * blockIdx.y;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int64_t e = tile[0], start = tile[1], first = (int64_t)blockIdx.x * 64 + warp * 16;
    tile_x x = {(const bf16 *)a.x_terms, a.x.width, (int64_t)a.x.rows * a.x.width, rows, tile[2]};
    if ((int)threadIdx.x < x.n) rows[threadIdx.x] = a.pairs[start + threadIdx.x] / a.k;
    __syncthreads();
    stream<KIND> s;
    inner_rows<KIND>(a, s.rows, e, first, g);
    float acc[2][NB][4];
    tile_product<KIND>(a.gate.values ? a.gate : a.up, a.up, s, x, acc);
    int64_t second = (int64_t)a.x.rows * a.k * a.inner;
#pragma unroll
    for (int nb = 0; nb < NB; nb++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int64_t n = first + j / 2 * 8 + g;
            int m = nb * 8 + 2 * t + j % 2;
            if (m >= x.n || n >= a.inner) continue;
            int pair = a.pairs[start + m];
            float factor = a.scale_input ? a.weights[pair / a.k * a.weights_stride + pair % a.k] : 1.0f;
            float value = inner_value(a, e, n, acc[0][nb][j] * factor, acc[1][nb][j] * factor);
            put_terms((bf16 *)a.inner_terms + (start + m) * a.inner + n, second, value);
        }
}

// Grid (out / 128, tiles).
template <int KIND> static __device__ __forceinline__ void many_down(const k_experts &a) {
    __shared__ int rows[TILE_PAIRS];
    if ((int)blockIdx.y >= a.tiles[0]) return;
    const int *tile = a.tiles + 1 + 3 * blockIdx.y;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    int64_t e = tile[0], start = tile[1], first = (int64_t)blockIdx.x * 128 + warp * 32;
    tile_x x = {(const bf16 *)a.inner_terms, a.inner, (int64_t)a.x.rows * a.k * a.inner, rows, tile[2]};
    if (threadIdx.x < TILE_PAIRS) rows[threadIdx.x] = (int)start + threadIdx.x;
    __syncthreads();
    stream<KIND> s;
#pragma unroll
    for (int i = 0; i < 4; i += 2) sixteen_rows<KIND>(s.rows, i, a.down, e * a.down.out + first + i * 8, (e + 1) * a.down.out - 1, g);
    float acc[2][NB][4];
    tile_product<KIND>(a.down, a.down, s, x, acc);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int nb = 0; nb < NB; nb++)
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int64_t n = first + i * 16 + j / 2 * 8 + g;
                int m = nb * 8 + 2 * t + j % 2;
                if (m < x.n && n < a.down.out) a.outer[(start + m) * a.down.out + n] = acc[i][nb][j] + (a.down_bias ? a.down_bias[e * a.down.out + n] : 0.0f);
            }
}

// Grid (out / 256, rows): a row's choices, in the router's order.
extern "C" __global__ void experts_fold(KARGS(k_experts) a) {
    after_previous();
    int64_t n = (int64_t)blockIdx.x * 256 + threadIdx.x, r = blockIdx.y;
    if (n >= a.down.out) return;
    float total = 0;
    for (int j = 0; j < a.k; j++) {
        int place = a.places[r * a.k + j];
        if (place < 0) continue; // another rank's expert
        float x = a.outer[(int64_t)place * a.down.out + n];
        total += a.scale_input ? x : x * a.weights[r * a.weights_stride + j];
    }
    view_store(a.y, r, 0, n, total);
}

#define MANY(name, kind)                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(MANY_WARPS * 32, 2) experts_many_inner_##name(KARGS(k_experts) a) { after_previous(); many_inner<kind>(a); } \
    extern "C" __global__ void __launch_bounds__(MANY_WARPS * 32, 2) experts_many_down_##name(KARGS(k_experts) a) { after_previous(); many_down<kind>(a); }
MANY(8, 8)
MANY(16, 16)
MANY(fp4, FP4)
MANY(t4, T4)

// ---- a few pairs of an expert: batches of requests. Weights in tiles, two tiles a warp, on their way to shared memory several units ahead; x as
// integers of 16 bits (x16.cuh), all of it in shared memory, so that warps never meet in a product. A product of bytes has eight columns, the
// high and low bytes of four pairs. Blocks have as many warps as pairs: four, eight, or 16.
// mxfp4: x is f16, a scale for each unit, and a product has eight pairs. Weights are f16 without their scales (times 2^-14), and sums of 32 elements are multiplied
// by them in f32: exact, whatever the scales are ----

enum { X16_PAIRS = 4, FLOAT_ZERO = 0x4b400000 }; // FLOAT_ZERO: 1.5 * 2^23

// Bytes of a row of x, and eight elements of every lane from `k` on of such a row of `width`, a unit for eight lanes, which are there or not.
template <int KIND> static __device__ __forceinline__ int64_t x_bytes(int64_t width) {
    return KIND == FP4 ? xf16_bytes(width) : x16_bytes(width);
}
template <int KIND> static __device__ __forceinline__ void put_x(unsigned char *row, int64_t width, int64_t k, const float v[8], bool there) {
    unsigned char *scales = row + width / BK * X16_UNIT;
    if (KIND == FP4) put8_f16(row + k * 2, (float *)scales + k / BK, v, there);
    else put8(row + k / BK * X16_UNIT, (unit_scale *)scales + k / BK, v, there);
}

// Grid (1 + rows): pairs sorted by expert, and x for the experts.
template <int KIND> static __device__ __forceinline__ void sort_x(const k_experts &a) {
    if (blockIdx.x == 0) {
        sort_pairs(a);
        return;
    }
    int row = blockIdx.x - 1;
    const float *from = (const float *)a.x.p + (int64_t)row * a.x.row_stride;
    unsigned char *to = (unsigned char *)a.x_terms + row * x_bytes<KIND>(a.x.width);
    for (int base = 0; base < a.x.width; base += 8 * SORT_THREADS) {
        int i = base + threadIdx.x * 8;
        bool there = i < a.x.width;
        float v[8] = {0};
        if (there) *(float4 *)v = *(const float4 *)(from + i), *(float4 *)(v + 4) = *(const float4 *)(from + i + 4);
        put_x<KIND>(to, a.x.width, i, v, there);
    }
}
extern "C" __global__ void __launch_bounds__(SORT_THREADS) experts_sort_x16(KARGS(k_experts) a) { after_previous(); sort_x<T4>(a); }
extern "C" __global__ void __launch_bounds__(SORT_THREADS) experts_sort_xf16(KARGS(k_experts) a) { after_previous(); sort_x<FP4>(a); }

// A warp's two tiles and its ring of `depth` units of both, in shared memory behind x.
struct some_ring {
    const unsigned char *tiles[2];
    unsigned char *places;
    int unit_bytes, units;
};

template <int KIND, int PAIRS> static __device__ __forceinline__ some_ring some_ring_of(const k_experts &a, const k_weight &w, const rows4 &rows, unsigned char *x) {
    some_ring r;
    r.tiles[0] = rows.values[0], r.tiles[1] = rows.values[2];
    r.unit_bytes = tile_unit_bytes(w), r.units = (int)(w.in / BK);
    r.places = x + PAIRS * x_bytes<KIND>(w.in) + threadIdx.x / 32 * a.depth * 2 * r.unit_bytes;
    return r;
}

// Begins to copy unit u of both tiles.
static __device__ __forceinline__ void some_fetch(const some_ring &r, int u, int place) {
    if (u < r.units) {
        unsigned char *to = r.places + place * 2 * r.unit_bytes + threadIdx.x % 32 * 16;
        const unsigned char *first = r.tiles[0] + u * r.unit_bytes + threadIdx.x % 32 * 16, *second = r.tiles[1] + u * r.unit_bytes + threadIdx.x % 32 * 16;
        copy16(to, first, true);
        copy16(to + r.unit_bytes, second, true);
        if (TILE_CODES + (int)threadIdx.x % 32 * 16 < r.unit_bytes) {
            copy16(to + TILE_CODES, first + TILE_CODES, true);
            copy16(to + r.unit_bytes + TILE_CODES, second + TILE_CODES, true);
        }
    }
    copy_commit();
}

// So many units are asked for before x is there.
static __device__ __forceinline__ void some_begin(const some_ring &r, int depth) {
    for (int u = 0; u < depth - 1; u++) some_fetch(r, u, u);
}

// Sums of each row that a lane has, and the pair of its j-th.
template <int KIND, int PAIRS> static __device__ __forceinline__ constexpr int some_columns() {
    return KIND != FP4 ? PAIRS / X16_PAIRS : PAIRS > 8 ? PAIRS / 4 : 2;
}
template <int KIND> static __device__ __forceinline__ int some_pair(int j) {
    int t = threadIdx.x % 4;
    return KIND == FP4 ? j / 2 * 8 + 2 * t + j % 2 : t + j * X16_PAIRS;
}

// A unit of a tile: acc[rows g and g + 8][pairs t, and t + 4 where there are eight] of this lane. v: the columns' bytes; s: the pairs' scales.
template <int FOURS>
static __device__ __forceinline__ void some_multiply(float acc[2][FOURS], const unsigned char *unit, const uint32_t v[FOURS][4], const unit_scale s[FOURS], int dtype) {
    int lane = threadIdx.x % 32;
    uint32_t q[4];
    *(uint4 *)q = *(const uint4 *)(unit + lane * 16);
    const uint32_t a[4] = {q[0] & 0x0f0f0f0fu, q[2] & 0x0f0f0f0fu, q[0] >> 4 & 0x0f0f0f0fu, q[2] >> 4 & 0x0f0f0f0fu};
    const uint32_t b[4] = {q[1] & 0x0f0f0f0fu, q[3] & 0x0f0f0f0fu, q[1] >> 4 & 0x0f0f0f0fu, q[3] >> 4 & 0x0f0f0f0fu};
    uint2 meta = *(const uint2 *)(unit + TILE_CODES + lane / 4 * 8);
    const uint32_t words[2] = {meta.x, meta.y};
    float scale[2], bias[2];
#pragma unroll
    for (int r = 0; r < 2; r++) scale[r] = meta_f32(words[r] & 0xffff, dtype), bias[r] = meta_f32(words[r] >> 16, dtype);
#pragma unroll
    for (int p = 0; p < FOURS; p++) {
        int32_t sums[4];
        mma_u8s8_from(sums, a, v[p][0], v[p][1], FLOAT_ZERO);
        mma_u8s8(sums, b, v[p][2], v[p][3]);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float high = __uint_as_float((uint32_t)sums[2 * r]) - 12582912.0f, low = __uint_as_float((uint32_t)sums[2 * r + 1]) - 12582912.0f;
            acc[r][p] = fmaf(bias[r], s[p].sum, fmaf(scale[r] * s[p].one, fmaf(256.0f, high, low), acc[r][p]));
        }
    }
}

// The same of mxfp4, with pairs 2 t and 2 t + 1 of each eight. x: the columns' elements; one: what one means in the pairs.
template <int EIGHTS> static __device__ __forceinline__ void some_multiply_fp4(float acc[2][2 * EIGHTS], const unsigned char *unit, const uint32_t x[EIGHTS][8], const float one[2 * EIGHTS]) {
    fp4_words p = fp4_at(unit);
    float sums[2][EIGHTS][4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        uint32_t v[4], w[4];
        fp4_halves(half ? p.codes.y : p.codes.x, v);
        fp4_halves(half ? p.codes.w : p.codes.z, w);
        const uint32_t first[4] = {v[0], w[0], v[1], w[1]}, second[4] = {v[2], w[2], v[3], w[3]};
#pragma unroll
        for (int e = 0; e < EIGHTS; e++) {
            mma_f16_new(sums[half][e], first, x[e][4 * half], x[e][4 * half + 1]);
            mma_f16(sums[half][e], second, x[e][4 * half + 2], x[e][4 * half + 3]);
        }
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float low = fp4_power(p.powers, 2 * r), high = fp4_power(p.powers, 2 * r + 1);
#pragma unroll
        for (int j = 0; j < 2 * EIGHTS; j++) {
            int at = 2 * r + j % 2;
            acc[r][j] = fmaf(fmaf(sums[1][j / 2][at], high, sums[0][j / 2][at] * low), one[j], acc[r][j]);
        }
    }
}

// Two tiles of mxfp4 times the pairs: acc[tile][row][pair], as above. Columns beyond PAIRS are others once more.
template <int DEPTH, int PAIRS> static __device__ __forceinline__ void some_product_fp4(const some_ring &r, const k_weight &w, const unsigned char *x, float acc[2][2][some_columns<FP4, PAIRS>()]) {
    enum { COLUMNS = some_columns<FP4, PAIRS>(), EIGHTS = COLUMNS / 2 };
    int lane = threadIdx.x % 32, t = lane % 4, place = 0;
    int64_t each = xf16_bytes(w.in);
    const unsigned char *column = x + lane / 4 % PAIRS * each + t * 16, *scales = x + 2 * t % PAIRS * each + r.units * X16_UNIT;
#pragma unroll
    for (int i = 0; i < 4 * COLUMNS; i++) ((float *)acc)[i] = 0;
#pragma unroll 1
    for (int u = 0; u < r.units; u++) {
        copy_wait<DEPTH - 2>();
        __syncwarp();
        some_fetch(r, u + DEPTH - 1, place ? place - 1 : DEPTH - 1);
        uint32_t v[EIGHTS][8];
        float one[COLUMNS];
#pragma unroll
        for (int e = 0; e < EIGHTS; e++) {
            const unsigned char *at = column + e * 8 * each + u * X16_UNIT, *scale = scales + e * 8 * each + u * 4;
            *(uint4 *)v[e] = *(const uint4 *)at, *(uint4 *)(v[e] + 4) = *(const uint4 *)(at + 64);
            one[2 * e] = *(const float *)scale, one[2 * e + 1] = *(const float *)(scale + each);
        }
        const unsigned char *unit = r.places + place * 2 * r.unit_bytes;
#pragma unroll
        for (int i = 0; i < 2; i++) some_multiply_fp4<EIGHTS>(acc[i], unit + i * TILE_FP4_BYTES, v, one);
        place = place + 1 == DEPTH ? 0 : place + 1;
    }
#pragma unroll
    for (int i = 0; i < 4 * COLUMNS; i++) ((float *)acc)[i] *= FP4_ONE;
}

// Two tiles times the pairs: acc[tile][row][pair], as above.
template <int DEPTH, int FOURS> static __device__ __forceinline__ void some_product(const some_ring &r, const k_weight &w, const unsigned char *x, float acc[2][2][FOURS]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, place = 0;
    int64_t each = x16_bytes(w.in);
    const unsigned char *columns = x + g / 2 * each + g % 2 * 64 + t * 16, *scales = x + t * each + r.units * X16_UNIT;
#pragma unroll
    for (int i = 0; i < 4 * FOURS; i++) ((float *)acc)[i] = 0;
#pragma unroll 1
    for (int u = 0; u < r.units; u++) {
        copy_wait<DEPTH - 2>();
        __syncwarp();
        some_fetch(r, u + DEPTH - 1, place ? place - 1 : DEPTH - 1);
        uint32_t v[FOURS][4];
        unit_scale s[FOURS];
#pragma unroll
        for (int p = 0; p < FOURS; p++) {
            *(uint4 *)v[p] = *(const uint4 *)(columns + p * X16_PAIRS * each + u * X16_UNIT);
            s[p] = *(const unit_scale *)(scales + p * X16_PAIRS * each + u * sizeof(unit_scale));
        }
        const unsigned char *unit = r.places + place * 2 * r.unit_bytes;
#pragma unroll
        for (int i = 0; i < 2; i++) some_multiply<FOURS>(acc[i], unit + i * r.unit_bytes, v, s, w.dtype);
        place = place + 1 == DEPTH ? 0 : place + 1;
    }
}

// The product itself.
template <int KIND, int DEPTH, int PAIRS>
static __device__ __forceinline__ void some_sums(const some_ring &r, const k_weight &w, const unsigned char *x, float acc[2][2][some_columns<KIND, PAIRS>()]) {
    if constexpr (KIND == FP4) some_product_fp4<DEPTH, PAIRS>(r, w, x, acc);
    else some_product<DEPTH, some_columns<KIND, PAIRS>()>(r, w, x, acc);
}

// The block's threads begin to copy bytes, a multiple of 16.
template <int WARPS> static __device__ __forceinline__ void copy_row(unsigned char *to, const unsigned char *from, int64_t bytes) {
    for (int64_t i = threadIdx.x * 16; i < bytes; i += WARPS * 32 * 16) copy16(to + i, from + i, true);
}
static __device__ __forceinline__ void rows_are_there() {
    copy_commit();
    copy_wait<0>();
    __syncthreads();
}

// Grid (inner / 16 WARPS, tiles): a warp makes 16 inner values of each pair, from a tile of the gate and one of up; the block's values become units of
// the next product's x.
template <int KIND, int DEPTH, int WARPS, int PAIRS> static __device__ __forceinline__ void some_inner(const k_experts &a) {
    enum { INNER = WARPS * TILE_ROWS, COLUMNS = some_columns<KIND, PAIRS>() };
    DYNAMIC_SHARED(unsigned char, some_smem);
    unsigned char *x = some_smem;
    if ((int)blockIdx.y >= a.tiles[0]) return;
    const int *tile = a.tiles + 1 + 3 * blockIdx.y;
    int64_t e = tile[0], start = tile[1], first = (int64_t)blockIdx.x * INNER, n0 = first + threadIdx.x / 32 * TILE_ROWS, each = x_bytes<KIND>(a.up.in);
    int n = tile[2], g = threadIdx.x % 32 / 4;
    bool has = n0 < a.inner;
    rows4 rows;
    inner_rows<KIND>(a, rows, e, n0, g);
    some_ring ring = some_ring_of<KIND, PAIRS>(a, a.up, rows, x);
    if (has) some_begin(ring, DEPTH);
    int lane = threadIdx.x % 32, row = lane < n ? a.pairs[start + lane] / a.k : 0; // of pair `lane`
    for (int m = 0; m < n; m++) copy_row<WARPS>(x + m * each, (const unsigned char *)a.x_terms + __shfl_sync(FULL, row, m) * each, each);
    rows_are_there();
    float acc[2][2][COLUMNS];
    if (has) some_sums<KIND, DEPTH, PAIRS>(ring, a.up, x, acc);
    __syncthreads(); // x is used up: values take its place
    float *values = (float *)x;
#pragma unroll
    for (int j = 0; j < 2 * COLUMNS && has; j++) {
        int m = some_pair<KIND>(j % COLUMNS), row = (int)(n0 - first) + j / COLUMNS * 8 + g;
        if (m >= n) continue;
        int pair = a.pairs[start + m];
        float factor = a.scale_input ? a.weights[pair / a.k * a.weights_stride + pair % a.k] : 1.0f;
        values[m * INNER + row] = inner_value(a, e, first + row, acc[0][j / COLUMNS][j % COLUMNS] * factor, acc[1][j / COLUMNS][j % COLUMNS] * factor);
    }
    __syncthreads();
    int m = threadIdx.x / (INNER / 8), at = threadIdx.x % (INNER / 8) * 8; // eight values each, as far as they go
    bool there = m < n && first + at < a.inner;
    float v[8] = {0};
    for (int i = 0; i < 8 && there; i++) v[i] = values[m * INNER + at + i];
    put_x<KIND>((unsigned char *)a.inner_terms + (start + (there ? m : 0)) * x_bytes<KIND>(a.inner), a.inner, first + at, v, there);
}

// Grid (out / 32 WARPS, tiles).
template <int KIND, int DEPTH, int WARPS, int PAIRS> static __device__ __forceinline__ void some_down(const k_experts &a) {
    enum { COLUMNS = some_columns<KIND, PAIRS>() };
    DYNAMIC_SHARED(unsigned char, some_smem);
    unsigned char *x = some_smem;
    if ((int)blockIdx.y >= a.tiles[0]) return;
    const int *tile = a.tiles + 1 + 3 * blockIdx.y;
    int64_t e = tile[0], start = tile[1], n0 = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * 2 * TILE_ROWS;
    int64_t last = (e + 1) * a.down.out - 1, each = x_bytes<KIND>(a.inner);
    int n = tile[2], g = threadIdx.x % 32 / 4;
    bool has = n0 < a.down.out;
    rows4 rows;
    sixteen_rows<KIND>(rows, 0, a.down, e * a.down.out + n0, last, g);
    sixteen_rows<KIND>(rows, 2, a.down, e * a.down.out + n0 + TILE_ROWS, last, g);
    some_ring ring = some_ring_of<KIND, PAIRS>(a, a.down, rows, x);
    if (has) some_begin(ring, DEPTH);
    copy_row<WARPS>(x, (const unsigned char *)a.inner_terms + start * each, n * each);
    rows_are_there();
    if (!has) return;
    float acc[2][2][COLUMNS];
    some_sums<KIND, DEPTH, PAIRS>(ring, a.down, x, acc);
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 2 * COLUMNS; j++) {
            int64_t row = n0 + i * TILE_ROWS + j / COLUMNS * 8 + g;
            int m = some_pair<KIND>(j % COLUMNS);
            if (m < n && row < a.down.out) a.outer[(start + m) * a.down.out + row] = acc[i][j / COLUMNS][j % COLUMNS] + (a.down_bias ? a.down_bias[e * a.down.out + row] : 0.0f);
        }
}

#define SOME(name, kind, half, depth, pairs)                                                                                            \
    extern "C" __global__ void __launch_bounds__(pairs * 32, 24 / pairs) experts_some_##half##_##name##_##pairs(KARGS(k_experts) a) { \
        after_previous(); \
        some_##half<kind, depth, pairs, pairs>(a);                                                                                      \
    }
SOME(2, T4, inner, 2, 8)
SOME(4, T4, inner, 4, 8)
SOME(4, T4, inner, 4, 4)
SOME(8, T4, inner, 8, 4)
SOME(2, T4, down, 2, 8)
SOME(4, T4, down, 4, 8)
SOME(4, T4, down, 4, 4)
SOME(8, T4, down, 8, 4)
SOME(fp4, FP4, inner, 4, 8)
SOME(fp4, FP4, inner, 4, 4)
SOME(fp4, FP4, inner, 4, 16)
SOME(fp4, FP4, down, 4, 8)
SOME(fp4, FP4, down, 4, 4)
SOME(fp4, FP4, down, 4, 16)
