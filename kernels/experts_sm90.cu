// The chosen experts of a prompt on sm_90a: weights of 4 bits or mxfp4 in tiles (tile.cuh), pairs sorted by expert (experts.cuh), warpgroup products of f16.
//
// x is f16, each row scaled by a power of two; weights are f16 times weight_scale, inner values f16 times INNER_SCALE. f16 has three bits more than bf16, so that
// one product is closer than two with bf16 terms of x, whose weights are rounded to 8 bits.
// A block stays for many items: up to 128 pairs of an expert times 128 inner values (or 256 results of down). A warpgroup has two accumulators, of gate and up (or of two
// runs of down's rows). A warp makes weights of its two tiles' codes in registers while its warpgroup's products run, and asks for their codes itself, also those of
// the next item. Four other warps bring x, 64 elements of k a stage; its words lie in the order of the codes, as whoever made x has put them.
// Counted: a unit of 64 x 64 weights takes the tensor cores 256 cycles with 128 pairs, and a scheduler some 100 instructions for the codes.
#include "codes.cuh"
#include "experts.cuh"
#include "wgmma.cuh"

enum { BK = TILE_UNIT, ROW_BYTES = BK * 2, PAIRS = WEXPERTS_PAIRS, STAGE = PAIRS * ROW_BYTES, X_STAGES = WEXPERTS_X_STAGES };
enum { WARPS = WEXPERTS_WARPS, FILLERS = WEXPERTS_FILLERS, CHUNK = WEXPERTS_CHUNK_UNITS, CHUNKS = WEXPERTS_CHUNKS, ITEMS = 16 }; // CHUNK: units of a copy; ITEMS: as many as can be under way
#define INNER_SCALE (1.0f / 64.0f)

// What the weights are: PLAIN: scales are bf16, and a unit has one group; FP4: mxfp4; FP4_BATCH: the same for few pairs of an expert.
enum { ANY, PLAIN, FP4, FP4_BATCH };
template <int FORM> static __device__ __forceinline__ constexpr bool is_fp4() {
    return FORM == FP4 || FORM == FP4_BATCH;
}
// Of mxfp4 a weight is made by one product with a power of two, which f16 has from 2^-24 to 2^15: scales of groups from 2^-19 to 2^5 are exact.
template <int FORM> static __device__ __forceinline__ constexpr float weight_scale() {
    return is_fp4<FORM>() ? 1.0f / 16.0f : 64.0f;
}

// ---- f16 ----

#ifdef MLXCEL_EMULATE
static inline float f16_of(float x) {
    return __half2float(emu_float2half(x));
}
#else
// (x & mask) | ones: one instruction, which the compiler does not find.
static __device__ __forceinline__ uint32_t bits_into(uint32_t x, uint32_t mask, uint32_t ones) {
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(x), "r"(mask), "r"(ones));
    return d;
}
static __device__ __forceinline__ uint32_t fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
#endif

// From word i of 64 elements as they lie to where it lies for the products: word j of piece t of 32 elements becomes word t of piece j.
static __device__ __forceinline__ int word_at(int i) {
    return i / 16 * 16 + i % 4 * 4 + i / 4 % 4;
}

// ---- pairs by expert, and x ----

// The power of two that brings `most` between 2^14 and 2^15; of what is not finite, one.
static __device__ __forceinline__ float row_scale(uint32_t most) {
    int e = (int)(most >> 23);
    if (e == 0 || e == 255) return 1.0f;
    e = 254 + 14 - e;
    return __uint_as_float((uint32_t)(e < 1 ? 1 : e > 254 ? 254 : e) << 23);
}

// The scales by which x must be multiplied again lie behind its rows.
static __device__ __forceinline__ float *x_scales(const k_experts &a) {
    return (float *)((unsigned char *)a.x_terms + (int64_t)a.x.rows * a.x.width * 2);
}

// Grid (1 + rows).
extern "C" __global__ void __launch_bounds__(SORT_THREADS) experts_sort_f16(KARGS(k_experts) a) {
    __shared__ uint32_t most[SORT_THREADS / 32];
    after_previous();
    if (blockIdx.x == 0) {
        sort_pairs(a);
        return;
    }
    int64_t row = blockIdx.x - 1;
    const float *from = (const float *)a.x.p + row * a.x.row_stride;
    uint32_t mine = 0;
    for (int i = threadIdx.x * 2; i < a.x.width; i += SORT_THREADS * 2) {
        float2 v = *(const float2 *)(from + i);
        uint32_t x = __float_as_uint(v.x) & 0x7fffffffu, y = __float_as_uint(v.y) & 0x7fffffffu;
        mine = x > mine ? x : mine, mine = y > mine ? y : mine;
    }
    mine = warp_max_u32(mine);
    if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = mine;
    __syncthreads();
    for (int w = 0; w < SORT_THREADS / 32; w++) mine = most[w] > mine ? most[w] : mine;
    float scale = row_scale(mine);
    uint32_t *to = (uint32_t *)((unsigned char *)a.x_terms + row * a.x.width * 2);
    for (int i = threadIdx.x; i < a.x.width / 2; i += SORT_THREADS) {
        float2 v = *(const float2 *)(from + 2 * i);
        to[i / 32 * 32 + word_at(i % 32)] = pack_f16(v.x * scale, v.y * scale);
    }
    if (threadIdx.x == 0) x_scales(a)[row] = 1.0f / scale;
}

// ---- what there is to do ----

// Some pairs of an expert, from place `start` on, and rows of its matrices from `first` on.
struct item {
    int expert, start, n, first;
};
// DOWN: a block's two warpgroups make 128 results each; else 64 inner values each.
template <bool DOWN> static __device__ __forceinline__ int n_blocks(const k_experts &a) {
    return DOWN ? ((int)a.down.out + 255) / 256 : (a.inner + 127) / 128;
}
template <bool DOWN> static __device__ __forceinline__ item item_at(const k_experts &a, int i) {
    int blocks = n_blocks<DOWN>(a);
    const int *tile = a.tiles + 1 + i / blocks * 3;
    return item{tile[0], tile[1], tile[2], i % blocks * (DOWN ? 256 : 128)};
}
template <bool DOWN> static __device__ __forceinline__ int n_items(const k_experts &a) {
    return a.tiles[0] * n_blocks<DOWN>(a);
}
template <bool DOWN> static __device__ __forceinline__ const k_weight &weight_of(const k_experts &a) {
    return DOWN ? a.down : a.up;
}

// The first row of this warp's tile of an accumulator.
template <bool DOWN> static __device__ __forceinline__ int row_of(const item &it, int warp, int which) {
    return it.first + (DOWN ? warp / 4 * 128 + which * 64 : warp / 4 * 64) + warp % 4 * 16;
}
template <bool DOWN> static __device__ __forceinline__ const unsigned char *tile_of(const k_experts &a, const item &it, int warp, int which) {
    int64_t n = DOWN ? a.down.out : a.inner, row = row_of<DOWN>(it, warp, which);
    if (row >= n) row = n - TILE_ROWS; // read, and its results stored by nobody
    if (DOWN) return a.down.values + (it.expert * n + row) / TILE_ROWS * a.down.tile_bytes;
    if (which == 0) return a.gate.values + (it.expert * a.gate_rows + row) / TILE_ROWS * a.gate.tile_bytes;
    return a.up.values + (it.expert * a.up_rows + a.up_first + row) / TILE_ROWS * a.up.tile_bytes;
}

// What a pair's inner sums are multiplied by.
template <int FORM> static __device__ __forceinline__ float factor_of(const k_experts &a, int place) {
    int pair = a.pairs[place], row = pair / a.k;
    return x_scales(a)[row] * (1.0f / weight_scale<FORM>()) * (a.scale_input ? a.weights[row * a.weights_stride + pair % a.k] : 1.0f);
}

// act(gate) * up, less act.scale.
static __device__ __forceinline__ float glu_of(const k_act &act, float gate, float up) {
    if (act.kind != ACT_CLAMPED_SWIGLU) return gate_of(act.kind, gate) * up;
    gate = fminf(gate, act.p[1]), up = fminf(fmaxf(up, -act.p[1]), act.p[1]) + 1.0f;
    return __fdividef(gate, 1.0f + __expf(-act.p[0] * gate)) * up;
}

#ifdef MLXCEL_EMULATE // sums straight from the weights; items, places and what is rounded as on a GPU

template <int FORM> static inline float sum_of(const k_weight &w, int64_t row, const unsigned char *x) {
    float sum = 0;
    for (int64_t k = 0; k < w.in; k += 8) {
        float v[8];
        tiled8(w, row, k, v);
        for (int j = 0; j < 8; j++) {
            int word = (int)(k + j) / 2;
            const uint16_t *at = (const uint16_t *)x + 2 * (word / 32 * 32 + word_at(word % 32)) + (k + j) % 2;
            sum += f16_of(v[j] * weight_scale<FORM>()) * __half2float(__half{*at});
        }
    }
    return sum;
}

template <bool DOWN, int FORM> static inline void run(const k_experts &a) {
    for (int i = (int)blockIdx.x; i < n_items<DOWN>(a); i += (int)gridDim.x) {
        item it = item_at<DOWN>(a, i);
        for (int e = (int)threadIdx.x; e < it.n * (DOWN ? 256 : 128); e += (int)blockDim.x) {
            int m = e / (DOWN ? 256 : 128), place = it.start + m;
            int64_t row = it.first + e % (DOWN ? 256 : 128), ex = it.expert;
            if (row >= (DOWN ? a.down.out : a.inner)) continue;
            if (DOWN) {
                float y = (1.0f / (weight_scale<FORM>() * INNER_SCALE)) * sum_of<FORM>(a.down, ex * a.down.out + row, (const unsigned char *)a.inner_terms + (int64_t)place * a.inner * 2);
                a.outer[place * a.down.out + row] = y + (a.down_bias ? a.down_bias[ex * a.down.out + row] : 0.0f);
                continue;
            }
            const unsigned char *x = (const unsigned char *)a.x_terms + (int64_t)(a.pairs[place] / a.k) * a.x.width * 2;
            float factor = factor_of<FORM>(a, place), gate = sum_of<FORM>(a.gate, ex * a.gate_rows + row, x) * factor, up = sum_of<FORM>(a.up, ex * a.up_rows + a.up_first + row, x) * factor;
            if (a.gate_bias) gate += a.gate_bias[ex * a.gate_bias_stride + row];
            if (a.up_bias) up += a.up_bias[ex * a.up_bias_stride + a.up_bias_first + row];
            int word = (int)row / 2;
            uint16_t *to = (uint16_t *)a.inner_terms + (int64_t)place * a.inner + 2 * (word / 32 * 32 + word_at(word % 32)) + row % 2;
            *to = (uint16_t)pack_f16(glu_of(a.act, gate, up) * a.act.scale * INNER_SCALE, 0);
        }
    }
}
#else

// Addresses in shared memory: stages of x, this warp's ring of codes, barriers.
struct layout {
    uint32_t x, codes, full, empty, arrived;
    int unit_bytes, units;
};

// ---- warps that bring x ----

// A stage whose copies this warp has asked for before all but the last `N` groups is there.
template <int N> static __device__ __forceinline__ void hand_over(const layout &l, int stage) {
    copy_wait<N>();
    stores_before_products();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(l.full + stage * 8);
}

// Each has every fourth stage, of one item after another, two of them on their way. rows: where the item's pairs begin, this warp's own.
// Who brings an item's first stage also brings what its pairs' sums are multiplied by.
template <bool DOWN, int FORM> static __device__ __forceinline__ void fill_all(const k_experts &a, const layout &l, uint32_t *rows, float (*factors)[PAIRS]) {
    int lane = threadIdx.x % 32, filler = threadIdx.x / 32 - WARPS, stage = filler, phase = 0, u = filler, total = n_items<DOWN>(a), before = -1, number = 0;
    const unsigned char *from = (const unsigned char *)(DOWN ? a.inner_terms : a.x_terms) + lane % 8 * 16;
    uint32_t bytes = (DOWN ? a.inner : a.x.width) * 2;
    for (int i = blockIdx.x; i < total; i += gridDim.x, u -= l.units, number++) {
        item it = item_at<DOWN>(a, i);
        __syncwarp();
#pragma unroll 1
        for (int m = lane; m < it.n; m += 32) rows[m] = (DOWN ? it.start + m : a.pairs[it.start + m] / a.k) * bytes;
        __syncwarp();
        for (; u < l.units; u += FILLERS) {
            barrier_wait(l.empty + stage * 8, phase ^ 1);
#pragma unroll 1
            for (int m = lane; m < it.n && u == 0 && !DOWN; m += 32) factors[number % ITEMS][m] = factor_of<FORM>(a, it.start + m);
            const unsigned char *unit = from + u * ROW_BYTES;
            uint32_t to = l.x + stage * STAGE + lane / 8 * ROW_BYTES;
#pragma unroll(FORM == FP4_BATCH ? 2 : 4)
            for (int m = lane / 8; m < it.n; m += 4, to += 4 * ROW_BYTES)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + ((lane ^ m) & 7) * 16), "l"(unit + rows[m]) : "memory");
            copy_commit();
            if (before >= 0) hand_over<1>(l, before);
            before = stage;
            stage += FILLERS;
            if (stage >= X_STAGES) stage -= X_STAGES, phase ^= 1;
        }
    }
    if (before >= 0) hand_over<0>(l, before);
}

// ---- warps that multiply ----

// Where a warp's requests for codes stand: chunk `chunk` of item `i` goes to place `place`. In shared memory, for want of registers; its first lane's alone.
struct request {
    int i, total, chunk, place;
    const unsigned char *tiles[2];
};
template <bool DOWN> static __device__ __forceinline__ void aim(const k_experts &a, request &q) {
    if (q.i >= q.total) return;
    item it = item_at<DOWN>(a, q.i);
    q.chunk = 0, q.tiles[0] = tile_of<DOWN>(a, it, threadIdx.x / 32, 0), q.tiles[1] = tile_of<DOWN>(a, it, threadIdx.x / 32, 1);
}
template <bool DOWN> static __device__ __forceinline__ void ask_codes(const k_experts &a, const layout &l, request &q) {
    if (threadIdx.x % 32 || q.i >= q.total) return;
    int left = l.units - q.chunk * CHUNK, bytes = (left < CHUNK ? left : CHUNK) * l.unit_bytes;
    uint32_t to = l.codes + q.place * 2 * CHUNK * l.unit_bytes, done = l.arrived + q.place * 8;
    barrier_expect(done, 2 * bytes);
    copy_bulk(to, q.tiles[0] + q.chunk * CHUNK * l.unit_bytes, bytes, done);
    copy_bulk(to + CHUNK * l.unit_bytes, q.tiles[1] + q.chunk * CHUNK * l.unit_bytes, bytes, done);
    if (++q.place == CHUNKS) q.place = 0;
    q.chunk++;
    if (left > CHUNK) return;
    q.i += gridDim.x;
    aim<DOWN>(a, q);
}

// Places of x's stages and of the codes' chunks.
struct place {
    int stage, phase, chunk, chunk_phase;
};

// All lanes have read a chunk: its place is asked for again.
template <bool DOWN> static __device__ __forceinline__ void next_chunk(const k_experts &a, const layout &l, request &q, place &at) {
    __syncwarp();
    ask_codes<DOWN>(a, l, q);
    if (++at.chunk == CHUNKS) at.chunk = 0, at.chunk_phase ^= 1;
}

// Eight registers of f16 weights from a lane's two words of a row.
template <int FORM> static __device__ __forceinline__ void half_words(uint32_t first, uint32_t second, uint32_t low, uint32_t high, int dtype, uint32_t out[8]) {
    uint32_t s[2], b[2];
#pragma unroll
    for (int i = 0; i < (FORM == PLAIN ? 1 : 2); i++) {
        uint32_t meta = i ? high : low;
        int type = FORM == PLAIN ? (int)K_BF16 : dtype;
        float scale = meta_f32(meta & 0xffff, type) * weight_scale<FORM>(), bias = meta_f32(meta >> 16, type) * weight_scale<FORM>();
        s[i] = pack_f16(scale, scale), b[i] = pack_f16(bias, bias);
    }
    if (FORM == PLAIN) s[1] = s[0], b[1] = b[0];
#pragma unroll
    for (int i = 0; i < 8; i++) { // a nibble in the last bits of 1024, or of 64
        uint32_t word = (i < 4 ? first : second) >> i % 4 / 2 * 8, q;
        if (i % 2 == 0) q = fma_f16x2(bits_into(word, 0x000f000fu, 0x64006400u), 0x3c003c00u, 0xe400e400u);
        else q = fma_f16x2(bits_into(word, 0x00f000f0u, 0x64006400u), 0x2c002c00u, 0xd400d400u);
        out[i] = fma_f16x2(q, s[i / 4], b[i / 4]);
    }
}

// The same of mxfp4: codes are the weights times 2^-14, but for the scale of word `which` and the next.
static __device__ __forceinline__ void half_words_fp4(uint32_t first, uint32_t second, uint32_t powers, int which, uint32_t out[8]) {
    fp4_halves(first, out);
    fp4_halves(second, out + 4);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float power = fp4_power(powers, which + half) * (16384.0f * weight_scale<FP4>());
        uint32_t s = pack_f16(power, power);
#pragma unroll
        for (int i = 0; i < 4; i++) out[4 * half + i] = fma_f16x2(out[4 * half + i], s, 0x80008000u);
    }
}

// Unit u of a tile as weights: w[4 m ...] is the operand of step m.
template <bool DOWN, int FORM, int WHICH> static __device__ __forceinline__ void take_weights(const k_experts &a, const layout &l, const unsigned char *codes, request &q, place &at, int u, uint32_t w[16]) {
    if (WHICH == 0 && u % CHUNK == 0) {
        if (u) next_chunk<DOWN>(a, l, q, at);
        barrier_wait(l.arrived + at.chunk * 8, at.chunk_phase);
    }
    const k_weight &of = weight_of<DOWN>(a);
    int bytes = is_fp4<FORM>() ? (int)TILE_FP4_BYTES : FORM == PLAIN ? TILE_CODES + TILE_META : l.unit_bytes;
    codes += ((at.chunk * 2 + WHICH) * CHUNK + u % CHUNK) * bytes;
    uint32_t first[8], second[8];
    if (is_fp4<FORM>()) {
        fp4_words unit = fp4_at(codes);
        half_words_fp4(unit.codes.x, unit.codes.y, unit.powers, 0, first);
        half_words_fp4(unit.codes.z, unit.codes.w, unit.powers, 2, second);
    } else {
        unit_words unit = unit_at(codes, FORM == PLAIN ? 1 : tile_runs(of.group));
        half_words<FORM>(unit.codes.x, unit.codes.y, unit.low.x, unit.high.x, of.dtype, first);
        half_words<FORM>(unit.codes.z, unit.codes.w, unit.low.y, unit.high.y, of.dtype, second);
    }
#pragma unroll
    for (int m = 0; m < 4; m++) w[4 * m] = first[2 * m], w[4 * m + 1] = second[2 * m], w[4 * m + 2] = first[2 * m + 1], w[4 * m + 3] = second[2 * m + 1];
}

template <int N> static __device__ __forceinline__ void begin_product(float (&d)[N / 2], const uint32_t w[16], uint64_t x) {
    wgmma_begin();
#pragma unroll
    for (int m = 0; m < 4; m++) wgmma_rows_f16(d, w + 4 * m, x + m * (32 >> 4));
    wgmma_commit();
}

// All units of an item. While one accumulator's product runs, the weights of the other's next are made.
template <bool DOWN, int FORM, int N>
static __device__ __forceinline__ void multiply(const k_experts &a, const layout &l, const unsigned char *codes, request &q, place &at, float (&d)[N / 2], float (&e)[N / 2]) {
    uint32_t v[16], w[16], empty = 0;
    take_weights<DOWN, FORM, 0>(a, l, codes, q, at, 0, v);
#pragma unroll 1
    for (int u = 0; u < l.units; u++) {
        uint64_t x = operand_at(__shfl_sync(FULL, l.x + at.stage * STAGE, 0)); // the same in all lanes, as the compiler now knows
        barrier_wait(l.full + at.stage * 8, at.phase);
        begin_product<N>(d, v, x);
        wgmma_wait<1>();
        if (u && threadIdx.x % 32 == 0) barrier_arrive(empty);
        empty = l.empty + at.stage * 8;
        if (++at.stage == X_STAGES) at.stage = 0, at.phase ^= 1;
        take_weights<DOWN, FORM, 1>(a, l, codes, q, at, u, w);
        begin_product<N>(e, w, x);
        wgmma_wait<1>();
        if (u + 1 < l.units) take_weights<DOWN, FORM, 0>(a, l, codes, q, at, u + 1, v);
    }
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
    next_chunk<DOWN>(a, l, q, at);
}

// d and e: sums of down's rows from row_of(..., 0) and row_of(..., 1) on.
template <int FORM, int N> static __device__ __forceinline__ void store_down(const k_experts &a, const item &it, const float (&d)[N / 2], const float (&e)[N / 2]) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int which = 0; which < 2; which++) {
        int row = row_of<true>(it, threadIdx.x / 32, which) + g;
        if (row - g >= a.down.out) continue;
        float low = a.down_bias ? a.down_bias[it.expert * a.down.out + row] : 0.0f, high = a.down_bias ? a.down_bias[it.expert * a.down.out + row + 8] : 0.0f;
        float *to = a.outer + (int64_t)it.start * a.down.out + row;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            int m = i / 4 * 8 + 2 * t + i % 2;
            if (m < it.n) to[m * a.down.out + i / 2 % 2 * 8] = fmaf(which ? e[i] : d[i], 1.0f / (weight_scale<FORM>() * INNER_SCALE), i / 2 % 2 ? high : low);
        }
    }
}

// d and e: sums of the gate and of up. Lanes of neighbouring rows exchange halves, so that each has both of one pair: a word.
template <int N> static __device__ __forceinline__ void store_inner(const k_experts &a, const item &it, const float (&d)[N / 2], const float (&e)[N / 2], const float *factors) {
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, odd = g % 2, tile = row_of<false>(it, threadIdx.x / 32, 0), row = tile + g;
    if (tile >= a.inner) return;
    float gate[2], up[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        gate[i] = a.gate_bias ? a.gate_bias[it.expert * a.gate_bias_stride + row + 8 * i] : 0.0f;
        up[i] = a.up_bias ? a.up_bias[it.expert * a.up_bias_stride + a.up_bias_first + row + 8 * i] : 0.0f;
    }
    float scale = a.act.scale * INNER_SCALE;
    uint32_t *to = (uint32_t *)((unsigned char *)a.inner_terms + ((int64_t)it.start * a.inner + tile / 32 * 32) * 2) + g / 2 * 4 + tile % 32 / 8;
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        float2 f = *(const float2 *)(factors + 8 * j + 2 * t);
        float v[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float with = i % 2 ? f.y : f.x;
            v[i] = glu_of(a.act, fmaf(d[4 * j + i], with, gate[i / 2]), fmaf(e[4 * j + i], with, up[i / 2])) * scale;
        }
        float low = __shfl_xor_sync(FULL, odd ? v[0] : v[1], 4), high = __shfl_xor_sync(FULL, odd ? v[2] : v[3], 4);
        int m = 8 * j + 2 * t + odd;
        uint2 words = odd ? uint2{pack_f16(low, v[1]), pack_f16(high, v[3])} : uint2{pack_f16(v[0], low), pack_f16(v[2], high)};
        if (m < it.n) *(uint2 *)(to + m * (a.inner / 2)) = words;
    }
}

template <bool DOWN, int FORM, int N>
static __device__ __forceinline__ void run_item(const k_experts &a, const layout &l, const unsigned char *codes, const item &it, request &q, place &at, const float *factors) {
    float d[N / 2], e[N / 2];
#pragma unroll
    for (int i = 0; i < N / 2; i++) d[i] = e[i] = 0;
    multiply<DOWN, FORM, N>(a, l, codes, q, at, d, e);
    wgmma_results<N / 2>(d);
    wgmma_results<N / 2>(e);
    if (DOWN) store_down<FORM, N>(a, it, d, e);
    else store_inner<N>(a, it, d, e, factors);
}

template <bool DOWN, int FORM> static __device__ __forceinline__ void multiply_all(const k_experts &a, const layout &l, const unsigned char *codes, request &q, const float (*factors)[PAIRS]) {
    int total = n_items<DOWN>(a);
    place at = {0, 0, 0, 0};
    if (threadIdx.x % 32 == 0) {
        q = request{(int)blockIdx.x, total, 0, 0, {0, 0}};
        aim<DOWN>(a, q);
    }
    for (int i = 0; i < CHUNKS; i++) ask_codes<DOWN>(a, l, q);
#pragma unroll 1
    for (int i = blockIdx.x, number = 0; i < total; i += gridDim.x, number++) {
        item it = item_at<DOWN>(a, i);
        const float *with = factors[number % ITEMS];
        if (FORM == FP4_BATCH) run_item<DOWN, FORM, 32>(a, l, codes, it, q, at, with);
        else if (FORM != ANY && it.n > 96) run_item<DOWN, FORM, 128>(a, l, codes, it, q, at, with);
        else if (FORM != ANY && it.n > 64) run_item<DOWN, FORM, 96>(a, l, codes, it, q, at, with);
        else run_item<DOWN, FORM, 64>(a, l, codes, it, q, at, with); // with a fourth width the compiler lets products wait for each other
    }
}

// Shared memory: x, on a multiple of 1,024, then every warp's codes.
template <bool DOWN, int FORM> static __device__ __forceinline__ void run(const k_experts &a) {
    DYNAMIC_SHARED(unsigned char, smem);
    __shared__ uint64_t barriers[2 * X_STAGES + WARPS * CHUNKS];
    __shared__ float factors[DOWN ? 1 : ITEMS][PAIRS];
    __shared__ uint32_t rows[FILLERS][PAIRS];
    __shared__ request requests[WARPS];
    int warp = threadIdx.x / 32;
    const k_weight &w = weight_of<DOWN>(a);
    uint32_t start = (uint32_t)__cvta_generic_to_shared(smem), at = (uint32_t)__cvta_generic_to_shared(barriers);
    layout l;
    l.unit_bytes = tile_unit_bytes(w), l.units = (int)(w.in / BK);
    l.x = (start + 1023) / 1024 * 1024, l.codes = l.x + X_STAGES * STAGE + warp * CHUNKS * 2 * CHUNK * l.unit_bytes;
    l.full = at, l.empty = at + X_STAGES * 8, l.arrived = l.empty + X_STAGES * 8 + warp * CHUNKS * 8;
    if (threadIdx.x % 32 == 0) {
        if (warp < X_STAGES) {
            barrier_init(l.full + warp * 8, 1);
            barrier_init(l.empty + warp * 8, WARPS);
        }
        for (int i = 0; i < CHUNKS && warp < WARPS; i++) barrier_init(l.arrived + i * 8, 1);
        barrier_init_done();
    }
    __syncthreads();
    after_previous();
    if (warp >= WARPS) {
        registers_fewer<40>();
        fill_all<DOWN, FORM>(a, l, rows[warp - WARPS], factors);
        return;
    }
    registers_more<232>();
    multiply_all<DOWN, FORM>(a, l, smem + (l.codes - start), requests[warp], factors);
}
#endif

// Any grid, 384 threads, 210 KB of shared memory. `any`: scales of f16, or groups of 32; 64 pairs at most, for want of registers. `batch`: 32.
#define WEXPERTS(name, down, form) \
    extern "C" __global__ void __launch_bounds__((WARPS + FILLERS) * 32, 1) wexperts_##name(KARGS(k_experts) a) { run<down, form>(a); }
WEXPERTS(inner, false, PLAIN)
WEXPERTS(inner_any, false, ANY)
WEXPERTS(inner_fp4, false, FP4)
WEXPERTS(inner_fp4_batch, false, FP4_BATCH)
WEXPERTS(down, true, PLAIN)
WEXPERTS(down_any, true, ANY)
WEXPERTS(down_fp4, true, FP4)
WEXPERTS(down_fp4_batch, true, FP4_BATCH)
