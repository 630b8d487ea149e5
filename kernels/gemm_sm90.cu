// bf16 matrix product for prompts on sm_90a: y[m, n] = sum over k of x[m, k] w[n, k] (+ bias), or act(gate) * up of two such sums.
//
// A block stays for many results of 128 x N (N = 256 or 128). One thread copies boxes of x and w into a ring of stages, 64 elements of k
// each; two warpgroups multiply, 64 rows each, and store while the ring fills again. Where the results are a gate, half of w's rows in a stage are
// the gate's and half are up's, so that a lane holds both of a pair. Stopped by the tensor cores: 128 x 256 results read 48 bytes a cycle
// and multiprocessor, mostly from L2. Three idle warps dequantise what the next product
// needs. (Blocks in pairs that share w, each copying half of it for both, were a third slower.)
#include "wgmma.cuh"
#include "dequant.cuh"

enum { BM = WGEMM_ROWS, BK = WGEMM_K, ROW_BYTES = BK * 2, THREADS = WGEMM_THREADS, GROUP = 16, ASIDE = 3 };

template <int N> static __device__ __forceinline__ constexpr int stages() {
    return wgemm_stages(N);
}
template <int N> static __device__ __forceinline__ constexpr int stage_bytes() {
    return wgemm_stage_bytes(N);
}

struct place {
    int m, n; // of the first result; n counts results, not rows of w
};

// The i-th result: groups of 16 tiles of rows share w while it is in L2.
template <int N> static __device__ __forceinline__ place place_of(const k_wgemm &a, int i) {
    int n_m = (a.m + BM - 1) / BM, width = a.up_row ? N / 2 : N, n_n = (a.n + width - 1) / width;
    int group = i / (GROUP * n_n), first = group * GROUP, rows = n_m - first < GROUP ? n_m - first : GROUP;
    i -= first * n_n;
    return place{(first + i % rows) * BM, i / rows * width};
}
template <int N> static __device__ __forceinline__ int n_places(const k_wgemm &a) {
    int width = a.up_row ? N / 2 : N;
    return (a.m + BM - 1) / BM * ((a.n + width - 1) / width);
}

// ---- results ----

static __device__ __forceinline__ void store4(const k_wgemm &a, int m, int n, float2 low, float2 high) {
    float2 first, second;
    n += make_neighbours(low, high, first, second);
    if (m >= a.m || n >= a.n) return;
    int64_t at = (int64_t)m * a.y_stride + a.y_column + n;
    if (a.y_dtype == K_F32) *(float4 *)((float *)a.y + at) = float4{first.x, first.y, second.x, second.y};
    else *(uint2 *)((bf16 *)a.y + at) = uint2{pack_bf16(first.x, first.y), pack_bf16(second.x, second.y)};
}

static __device__ __forceinline__ float2 bias_of(const k_wgemm &a, int n) {
    return a.bias && n < a.n ? *(const float2 *)(a.bias + n) : float2{0, 0};
}

// d: this lane's of 64 rows from m on.
template <int N> static __device__ __forceinline__ void finish(const k_wgemm &a, float d[N / 2], place p) {
    int lane = threadIdx.x % 32, t = lane % 4, m = p.m + threadIdx.x / 32 % 4 * 16 + lane / 4;
    if (a.up_row) {
#pragma unroll
        for (int j = 0; j < N / 16; j += 2) {
            float2 y[2][2];
#pragma unroll
            for (int i = 0; i < 4; i++) { // two pairs of columns, two rows
                int at = 4 * (j + i % 2) + i / 2 * 2, n = p.n + 8 * (j + i % 2) + 2 * t;
                float2 gate = bias_of(a, n), up = a.bias ? *(const float2 *)(a.bias + a.up_bias + (n < a.n ? n : 0)) : float2{0, 0};
                y[i / 2][i % 2].x = gate_of(a.act.kind, d[at] + gate.x) * ((d[N / 4 + at] + up.x) * a.act.scale);
                y[i / 2][i % 2].y = gate_of(a.act.kind, d[at + 1] + gate.y) * ((d[N / 4 + at + 1] + up.y) * a.act.scale);
            }
            store4(a, m, p.n + 8 * j, y[0][0], y[0][1]);
            store4(a, m + 8, p.n + 8 * j, y[1][0], y[1][1]);
        }
        return;
    }
#pragma unroll
    for (int j = 0; j < N / 8; j += 2) {
        float2 low = bias_of(a, p.n + 8 * j + 2 * t), high = bias_of(a, p.n + 8 * j + 8 + 2 * t);
        store4(a, m, p.n + 8 * j, float2{d[4 * j] + low.x, d[4 * j + 1] + low.y}, float2{d[4 * j + 4] + high.x, d[4 * j + 5] + high.y});
        store4(a, m + 8, p.n + 8 * j, float2{d[4 * j + 2] + low.x, d[4 * j + 3] + low.y}, float2{d[4 * j + 6] + high.x, d[4 * j + 7] + high.y});
    }
}

// ---- the next weight ----

// How a warp takes units: of 4 bits with one group or more, or of 8.
template <bool HALVES> struct nibble_units {
    enum { AT_ONCE = 8 };
    typedef unit_words words;
    static __device__ __forceinline__ words load(const k_weight &w, int64_t tile, int unit) { return unit_load<HALVES>(w, tile, unit); }
    static __device__ __forceinline__ void store(const k_weight &w, bf16 *to, const words &u, int n) { unit_store<HALVES>(w, to, u, n); }
};
struct byte_units {
    enum { AT_ONCE = 4 };
    typedef unit8_words words;
    static __device__ __forceinline__ words load(const k_weight &w, int64_t tile, int unit) { return unit_load8(w, tile, unit); }
    static __device__ __forceinline__ void store(const k_weight &w, bf16 *to, const words &u, int n) { unit_store8(w, to, u, n); }
};

// One of ASIDE warps: several units at a time, so that loads of all are under way.
template <class UNITS> static __device__ __forceinline__ void dequantise_aside(const k_wgemm &a, int warp) {
    enum { AT_ONCE = UNITS::AT_ONCE };
    const k_tile &s = a.aside;
    int units = (int)(s.w.in / TILE_UNIT), runs = (units + AT_ONCE - 1) / AT_ONCE, tiles = (int)(s.n + TILE_ROWS - 1) / TILE_ROWS;
    int n = runs * tiles * (a.aside_up ? 2 : 1);
    for (int i = blockIdx.x * ASIDE + warp; i < n; i += gridDim.x * ASIDE) {
        int tile = i / runs, unit = (i - tile * runs) * AT_ONCE, up = tile >= tiles ? 1 : 0;
        tile -= up * tiles;
        int64_t from = (s.first + up * a.aside_up) / TILE_ROWS + tile;
        typename UNITS::words words[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) words[k] = UNITS::load(s.w, from, unit + k < units ? unit + k : unit);
        bf16 *to = (bf16 *)s.out + (up * s.n + tile * TILE_ROWS) * s.w.in + unit * TILE_UNIT;
        int left = (int)s.n - tile * TILE_ROWS;
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            if (unit + k < units) UNITS::store(s.w, to + k * TILE_UNIT, words[k], left);
    }
}
static __device__ __forceinline__ void dequantise_aside(const k_wgemm &a) {
    if (a.aside.n == 0) return;
    int warp = threadIdx.x / 32 - 1;
    if (tile_bits(a.aside.w.bits) == 8) dequantise_aside<byte_units>(a, warp);
    else if (tile_runs(a.aside.w.group) > 1) dequantise_aside<nibble_units<true>>(a, warp);
    else dequantise_aside<nibble_units<false>>(a, warp);
}

#ifdef MLXCEL_EMULATE // sums straight from what the maps describe; order of results and their storing as on a GPU

template <int N> static inline void multiply_all(const k_wgemm &a) {
    if (threadIdx.x < 128) {
        if (threadIdx.x >= 32) dequantise_aside(a);
        return;
    }
    int half = threadIdx.x / 128 - 1, lane = threadIdx.x % 32;
    for (int i = (int)blockIdx.x; i < n_places<N>(a); i += (int)gridDim.x) {
        place p = place_of<N>(a, i);
        float d[N / 2];
        p.m += half * 64;
        for (int j = 0; j < N / 2; j++) {
            int row = p.m + (int)threadIdx.x / 32 % 4 * 16 + lane / 4 + j / 2 % 2 * 8, column = j / 4 * 8 + lane % 4 * 2 + j % 2;
            int w_row = p.n + (a.up_row && column >= N / 2 ? a.up_row + column - N / 2 : column);
            d[j] = 0;
            for (int k = 0; k < a.k; k++) d[j] += emu_map_at(&a.x_map, k, row) * emu_map_at(&a.w_map, k, w_row);
        }
        finish<N>(a, d, p);
    }
}
#else

template <int N> static __device__ __forceinline__ void multiply_step(float d[N / 2], uint64_t x, uint64_t w, int add) {
    if (N == 256) wgmma_256(d, x, w, add);
    else wgmma_128(d, x, w, add);
}

// One thread: every stage of every result in turn. `full` counts a stage's bytes, `empty` the warps that have read it.
template <int N> static __device__ __forceinline__ void copy_all(const k_wgemm &a, uint32_t ring, uint32_t full, uint32_t empty) {
    int stage = 0, phase = 0, steps = (a.k + BK - 1) / BK, next = a.up_row ? a.up_row : N / 2;
    for (int i = blockIdx.x; i < n_places<N>(a); i += gridDim.x) {
        place p = place_of<N>(a, i);
        for (int s = 0; s < steps; s++) {
            uint32_t to = ring + stage * stage_bytes<N>(), w = to + BM * ROW_BYTES, done = full + stage * 8;
            barrier_wait(empty + stage * 8, phase ^ 1);
            barrier_expect(done, stage_bytes<N>());
            copy_box(to, &a.x_map, s * BK, p.m, done);
            copy_box(w, &a.w_map, s * BK, p.n, done);
            copy_box(w + N / 2 * ROW_BYTES, &a.w_map, s * BK, p.n + next, done);
            if (++stage == stages<N>()) stage = 0, phase ^= 1;
        }
    }
}

// This warp has read the stage.
static __device__ __forceinline__ void release(uint32_t empty) {
    if (threadIdx.x % 32 == 0) barrier_arrive(empty);
}

template <int N> static __device__ __forceinline__ void multiply_all(const k_wgemm &a, uint32_t ring, uint32_t full, uint32_t empty) {
    int stage = 0, phase = 0, steps = (a.k + BK - 1) / BK, half = threadIdx.x / 128 - 1;
    for (int i = blockIdx.x; i < n_places<N>(a); i += gridDim.x) {
        place p = place_of<N>(a, i);
        float d[N / 2];
        int before = 0;
        for (int s = 0; s < steps; s++) {
            uint32_t x = ring + stage * stage_bytes<N>() + half * 64 * ROW_BYTES, w = ring + stage * stage_bytes<N>() + BM * ROW_BYTES;
            barrier_wait(full + stage * 8, phase);
            wgmma_begin();
#pragma unroll
            for (int kk = 0; kk < BK / 16; kk++) multiply_step<N>(d, operand_at(x + kk * 32), operand_at(w + kk * 32), s + kk > 0);
            wgmma_commit();
            wgmma_wait<1>();
            if (s > 0) release(empty + before * 8);
            before = stage;
            if (++stage == stages<N>()) stage = 0, phase ^= 1;
        }
        wgmma_wait<0>();
        release(empty + before * 8);
        wgmma_results<N / 2>(d);
        p.m += half * 64;
        finish<N>(a, d, p);
    }
}

template <int N> static __device__ __forceinline__ void run(const k_wgemm &a) {
    DYNAMIC_SHARED(unsigned char, smem);
    __shared__ uint64_t barriers[2][stages<N>()];
    uint32_t ring = ((uint32_t)__cvta_generic_to_shared(smem) + 1023) / 1024 * 1024, full = (uint32_t)__cvta_generic_to_shared(barriers[0]),
             empty = (uint32_t)__cvta_generic_to_shared(barriers[1]);
    if (threadIdx.x == 0) {
        prefetch_map(&a.x_map);
        prefetch_map(&a.w_map);
        for (int s = 0; s < stages<N>(); s++) {
            barrier_init(full + s * 8, 1);
            barrier_init(empty + s * 8, 8);
        }
        barrier_init_done();
    }
    __syncthreads();
    if (threadIdx.x < 128) { // all take no more registers than they began with: 384 x 168
        registers_fewer<104>();
        if (threadIdx.x == 0) copy_all<N>(a, ring, full, empty);
        if (threadIdx.x >= 32) dequantise_aside(a);
    } else {
        registers_more<200>();
        multiply_all<N>(a, ring, full, empty);
    }
}
#endif

// Any grid, WGEMM_THREADS threads, wgemm_shared_bytes of shared memory.
#ifdef MLXCEL_EMULATE
#define WGEMM(n) \
    extern "C" __global__ void wgemm_##n(KARGS(k_wgemm) a) { multiply_all<n>(a); }
#else
#define WGEMM(n) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) wgemm_##n(KARGS(k_wgemm) a) { run<n>(a); }
#endif
WGEMM(256)
WGEMM(128)
