// Products of 9 to 128 rows with a weight of 4 or 8 bits in tiles (tile.cuh), on sm_90a: batches of requests. Up to 64 rows of f32 are taken as two bf16 terms each,
// row m and row m + N / 2 of the product, where more than bf16 is to be kept of x (TERMS).
//
// A block takes 256 rows of the weight (of x with more than 64 rows: 128) and a part of k. A warp makes bf16 weights of its own tile's codes in registers; the four warps
// of a warpgroup multiply theirs with x in shared memory. Codes come by bulk copies of four units (of 8 bits two), each warp asking for its own; shorter ones are
// limited by their number. Other warps bring x, 64 elements of k a stage, through registers, since its words lie there in the order of the
// codes. Parts of k are added up by linear_reduce; where k is whole, a gate's two halves meet here: warps 2 i and 2 i + 1 have a tile of each.
// Counted: 64 x 64 weights take a warpgroup's product 128 cycles at 64 rows of x and a scheduler some 90 instructions for the codes; the rest of a
// warp's way (waits, loads, the product's own latency) is as long again, so four warpgroups take turns.
#include "qmm_sm90.cuh"

enum { BK = TILE_UNIT, X_ROW = WQMM_X_ROW, X_STAGES = WQMM_X_STAGES, FILLERS = WQMM_FILLERS, CHUNKS = WQMM_CHUNKS };

// Units of a copy.
template <int BITS> static __device__ __forceinline__ constexpr int chunk() {
    return wqmm_chunk_units(BITS);
}

template <int N> static __device__ __forceinline__ constexpr int warps() {
    return wqmm_warps(N);
}
template <int N> static __device__ __forceinline__ constexpr int threads() {
    return (warps<N>() + FILLERS) * 32;
}

// Units of k that are this block's.
struct part {
    int first, n;
};
static __device__ __forceinline__ part part_of(const k_linear &a) {
    int units = (int)(a.w.in / BK), first = units * (int)blockIdx.y / a.k_splits;
    return part{first, units * ((int)blockIdx.y + 1) / a.k_splits - first};
}

// The first row of this warp's tile. With a gate, pairs of warps have a tile of its first half and the one of its second half that belongs to it.
template <int N, bool GATES> static __device__ __forceinline__ int64_t tile_row(const k_linear &a, int warp) {
    if (GATES) return ((int64_t)blockIdx.x * (warps<N>() / 2) + warp / 2) * TILE_ROWS + warp % 2 * a.glu_inner;
    return ((int64_t)blockIdx.x * warps<N>() + warp) * TILE_ROWS;
}

static __device__ __forceinline__ void put_sum(const k_linear &a, int m, int64_t n, float sum) {
    if (m < a.x.rows && n < a.w.out) a.partial[((int64_t)blockIdx.y * a.x.rows + m) * a.w.out + n] = sum;
}

#ifdef MLXCEL_EMULATE // sums straight from the weight; parts, tiles and results as on a GPU

template <int BITS, int N, bool TERMS, bool GATES> static inline void run(const k_linear &a) {
    part p = part_of(a);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    if (warp >= warps<N>()) return;
    for (int i = lane; i < TILE_ROWS * N; i += 32) {
        int64_t row = tile_row<N, GATES>(a, warp) + i % TILE_ROWS;
        int m = i / TILE_ROWS;
        if (row >= a.w.out || m >= a.x.rows) continue;
        if (!GATES) put_sum(a, m, row, sum_of_units(a, m, row, p.first, p.n));
        else if (warp % 2 == 0 && row < a.glu_inner) gate_units(a, m, row, p.first, p.n);
    }
}
#else

// Addresses in shared memory: stages of x, this warp's ring of codes, barriers.
struct layout {
    uint32_t x, codes, full, arrived;
    int unit_bytes;
};
static __device__ __forceinline__ uint32_t empty_of(const layout &l, int stage) {
    return l.full + (X_STAGES + stage) * 8;
}

// ---- warps that bring x, each a stage ----

// Tells the warps that multiply, and goes on to this warp's next stage.
static __device__ __forceinline__ void stage_filled(const layout &l, int &stage, int &phase) {
    stores_before_products();
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(l.full + stage * 8);
    stage += FILLERS;
    if (stage >= X_STAGES) stage -= X_STAGES, phase ^= 1;
}

// Rows of f32, 32 at most: both terms of each.
template <int N> static __device__ __forceinline__ void terms_load(const k_linear &a, float4 v[16], int first, int unit) {
    enum { ROWS = N / 2 < 32 ? N / 2 : 32 };
    int lane = threadIdx.x % 32;
    const float *from = (const float *)a.x.p + unit * BK + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) {
        int row = first + lane / 8 + i * 4;
        const float4 *at = (const float4 *)(from + row * a.x.row_stride);
        v[2 * i] = row < a.x.rows ? at[0] : float4{0, 0, 0, 0}, v[2 * i + 1] = row < a.x.rows ? at[1] : float4{0, 0, 0, 0};
    }
}

template <int N> static __device__ __forceinline__ void terms_store(const float4 v[16], int first, uint32_t stage) {
    enum { ROWS = N / 2 < 32 ? N / 2 : 32 };
    uint4 high[16], low[16];
#pragma unroll
    for (int i = 0; i < ROWS / 4; i++) {
        float x[8];
        *(float4 *)x = v[2 * i], *(float4 *)(x + 4) = v[2 * i + 1];
        uint32_t h[4], w[4];
#pragma unroll
        for (int j = 0; j < 4; j++) h[j] = take_term(x[2 * j], x[2 * j + 1]), w[j] = pack_bf16(x[2 * j], x[2 * j + 1]);
        high[i] = uint4{h[0], h[1], h[2], h[3]}, low[i] = uint4{w[0], w[1], w[2], w[3]};
    }
    x_store(high, ROWS / 4, first, stage);
    x_store(low, ROWS / 4, first + N / 2, stage);
}

template <int N> static __device__ __forceinline__ void fill_terms(const k_linear &a, const layout &l, part p) {
    int stage = threadIdx.x / 32 - warps<N>(), phase = 0;
    await_previous();
    for (int u = stage; u < p.n; u += FILLERS) {
        float4 x[16];
        terms_load<N>(a, x, 0, p.first + u);
        barrier_wait(empty_of(l, stage), phase ^ 1);
        terms_store<N>(x, 0, l.x + stage * N * X_ROW);
        if (N == 128) {
            terms_load<N>(a, x, 32, p.first + u);
            terms_store<N>(x, 32, l.x + stage * N * X_ROW);
        }
        stage_filled(l, stage, phase);
    }
}

template <int N> static __device__ __forceinline__ void fill_all(const k_linear &a, const layout &l, part p) {
    enum { PIECES = N >= 64 ? 16 : N / 4 };
    int stage = threadIdx.x / 32 - warps<N>(), phase = 0;
    await_previous();
    for (int u = stage; u < p.n; u += FILLERS) {
        uint4 x[16];
        x_load(a, x, PIECES, 0, p.first + u);
        barrier_wait(empty_of(l, stage), phase ^ 1);
        x_store(x, PIECES, 0, l.x + stage * N * X_ROW);
        if (N == 128) {
            x_load(a, x, PIECES, 64, p.first + u);
            x_store(x, PIECES, 64, l.x + stage * N * X_ROW);
        }
        stage_filled(l, stage, phase);
    }
}

// ---- warps that multiply ----

// One lane asks for the i-th chunk of this warp's tile.
template <int BITS> static __device__ __forceinline__ void ask_codes(const layout &l, const unsigned char *tile, part p, int i) {
    enum { CHUNK = chunk<BITS>() };
    int n = p.n - i * CHUNK, place = i % CHUNKS, bytes = (n < CHUNK ? n : CHUNK) * l.unit_bytes;
    if (threadIdx.x % 32 || n <= 0) return;
    barrier_expect(l.arrived + place * 8, bytes);
    copy_bulk(l.codes + place * CHUNK * l.unit_bytes, tile + (int64_t)(p.first + i * CHUNK) * l.unit_bytes, bytes, l.arrived + place * 8);
}

// Unit u as weights: w[4 m ...] is the operand of step m. PLAIN: scales are bf16, and a unit has one group.
template <int BITS, bool PLAIN> static __device__ __forceinline__ void take_weights(const k_linear &a, const layout &l, const unsigned char *codes, int u, uint32_t w[16]) {
    enum { CHUNK = chunk<BITS>(), UNIT = tile_codes(BITS) + TILE_META };
    int i = u / CHUNK;
    if (u % CHUNK == 0) barrier_wait(l.arrived + i % CHUNKS * 8, i / CHUNKS & 1);
    weights_of<BITS, PLAIN>(a.w, codes + u % (CHUNK * CHUNKS) * (PLAIN ? UNIT : l.unit_bytes), w);
}

struct place {
    int stage, phase;
};

// Unit u, whose weights are `w`, is multiplied; meanwhile those of the next are made.
template <int BITS, int N, bool PLAIN>
static __device__ __forceinline__ void multiply(const k_linear &a, const layout &l, const unsigned char *codes, part p, int u, place &at, float (&acc)[N / 2], const uint32_t w[16], uint32_t next[16]) {
    uint64_t x = operand_at(l.x + at.stage * N * X_ROW);
    barrier_wait(l.full + at.stage * 8, at.phase);
    wgmma_begin();
#pragma unroll
    for (int m = 0; m < 4; m++) wgmma_rows(acc, w + 4 * m, x + m * (32 >> 4));
    wgmma_commit();
    if (u + 1 < p.n) take_weights<BITS, PLAIN>(a, l, codes, u + 1, next);
    wgmma_wait<0>();
    if (threadIdx.x % 32 == 0) barrier_arrive(empty_of(l, at.stage));
    if (++at.stage == X_STAGES) at.stage = 0, at.phase ^= 1;
}

// The sums of two warps, a tile of the gate and one of what it lets through, meet where their codes were: [N][16] of each.
template <int N> static __device__ __forceinline__ void gate_all(const k_linear &a, const float (&acc)[N / 2], const unsigned char *codes, int room) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    float *mine = (float *)codes;
#pragma unroll
    for (int i = 0; i < N / 2; i++) {
        int m = i / 4 * 8 + 2 * t + i % 2;
        mine[m * TILE_ROWS + ((g + i / 2 % 2 * 8) ^ (t / 2 * 8))] = acc[i];
    }
    asm volatile("bar.sync %0, 64;" ::"r"(1 + warp / 2) : "memory");
    const float *gate = (const float *)(codes - warp % 2 * room), *up = gate + room / 4;
    int64_t row = tile_row<N, true>(a, warp / 2 * 2);
    if (row >= a.glu_inner) return;
    for (int e = threadIdx.x % 64; e < N * TILE_ROWS / 4; e += 64) {
        int m = e / 4, n = e % 4 * 4, at = m * TILE_ROWS + (n ^ m / 4 % 2 * 8);
        if (m < a.x.rows) store_gated4(a, m, row + n, *(const float4 *)(gate + at), *(const float4 *)(up + at));
    }
}

template <int BITS, int N, bool PLAIN, bool TERMS, bool GATES> static __device__ __forceinline__ void multiply_all(const k_linear &a, const layout &l, const unsigned char *codes, part p) {
    enum { CHUNK = chunk<BITS>() };
    int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int64_t row = tile_row<N, GATES>(a, threadIdx.x / 32), last = (a.w.out - 1) / TILE_ROWS * TILE_ROWS;
    const unsigned char *tile = a.w.values + (row < last ? row : last) / TILE_ROWS * a.w.tile_bytes;
    float acc[N / 2];
    uint32_t even[16], odd[16];
    place at = {0, 0};
#pragma unroll
    for (int i = 0; i < N / 2; i++) acc[i] = 0;
#pragma unroll
    for (int c = 0; c < CHUNKS; c++) ask_codes<BITS>(l, tile, p, c);
    await_previous(); // weights are nobody's result
    if (p.n > 0) take_weights<BITS, PLAIN>(a, l, codes, 0, even);
    for (int u = 0; u < p.n; u += 2) {
        multiply<BITS, N, PLAIN>(a, l, codes, p, u, at, acc, even, odd);
        if (u + 1 < p.n) multiply<BITS, N, PLAIN>(a, l, codes, p, u + 1, at, acc, odd, even);
        __syncwarp();
        if (u % CHUNK == CHUNK - 2) ask_codes<BITS>(l, tile, p, u / CHUNK + CHUNKS); // all lanes have read this chunk
    }
    wgmma_results<N / 2>(acc);
    if (GATES) gate_all<N>(a, acc, codes, CHUNKS * CHUNK * l.unit_bytes);
    else
#pragma unroll
        for (int i = 0; i < (TERMS ? N / 4 : N / 2); i++)
            put_sum(a, i / 4 * 8 + 2 * t + i % 2, row + g + i / 2 % 2 * 8, TERMS ? acc[i] + acc[i + N / 4] : acc[i]);
}

// Shared memory: x, on a multiple of 1,024, then every warp's codes.
template <int BITS, int N, bool TERMS, bool GATES> static __device__ __forceinline__ void run(const k_linear &a) {
    DYNAMIC_SHARED(unsigned char, smem);
    __shared__ uint64_t barriers[2 * X_STAGES + warps<N>() * CHUNKS];
    int warp = threadIdx.x / 32;
    let_next_begin();
    uint32_t start = (uint32_t)__cvta_generic_to_shared(smem), at = (uint32_t)__cvta_generic_to_shared(barriers);
    layout l;
    l.unit_bytes = tile_unit_bytes(a.w);
    l.x = (start + 1023) / 1024 * 1024, l.codes = l.x + X_STAGES * N * X_ROW + warp * CHUNKS * chunk<BITS>() * l.unit_bytes;
    l.full = at, l.arrived = at + 2 * X_STAGES * 8 + warp * CHUNKS * 8;
    if (threadIdx.x % 32 == 0) {
        if (warp < X_STAGES) {
            barrier_init(l.full + warp * 8, 1);
            barrier_init(empty_of(l, warp), warps<N>());
        }
        for (int i = 0; i < CHUNKS && warp < warps<N>(); i++) barrier_init(l.arrived + i * 8, 1);
        barrier_init_done();
    }
    __syncthreads();
    if (warp >= warps<N>() && TERMS) fill_terms<N>(a, l, part_of(a));
    else if (warp >= warps<N>()) fill_all<N>(a, l, part_of(a));
    else if (a.w.dtype == K_BF16 && tile_runs(a.w.group) == 1) multiply_all<BITS, N, true, TERMS, GATES>(a, l, smem + (l.codes - start), part_of(a));
    else multiply_all<BITS, N, false, TERMS, GATES>(a, l, smem + (l.codes - start), part_of(a));
}
#endif

// Grid (n / 256, splits), of 128 rows (n / 128, splits).
#define WQMM(name, bits, n, terms, gates) \
    extern "C" __global__ void __launch_bounds__(threads<n>(), 1) name##_##n(KARGS(k_linear) a) { run<bits, n, terms, gates>(a); }
#define WQMM_ALL(name, bits)                  \
    WQMM(name, bits, 16, false, false)        \
    WQMM(name, bits, 32, false, false)        \
    WQMM(name, bits, 64, false, false)        \
    WQMM(name, bits, 128, false, false)       \
    WQMM(name##_gate, bits, 16, false, true)  \
    WQMM(name##_gate, bits, 32, false, true)  \
    WQMM(name##_gate, bits, 64, false, true)  \
    WQMM(name##_gate, bits, 128, false, true) \
    WQMM(name##_terms, bits, 32, true, false) \
    WQMM(name##_terms, bits, 64, true, false) \
    WQMM(name##_terms, bits, 128, true, false)
WQMM_ALL(wqmm, 4)
WQMM_ALL(wqmm_bytes, 8)
