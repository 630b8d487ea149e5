// Products of 9 to 64 rows with a weight of 4 or 8 bits in tiles, of few units of k, on sm_90a: batches of requests of small models.
//
// Such a product is all waiting, so nothing here waits twice. A block takes 64 rows of the weight and at most 16 units of k, of which each of its four warpgroups has
// a quarter; its warps ask for their codes before the kernel before has ended, and then for all of x at once, which they bring to shared memory through
// registers, in the order of the codes (qmm_sm90.cuh). The warpgroups' sums meet in shared memory. So k has no parts, or few (linear_reduce adds those up), and where it has
// none, a gate's two halves meet there as well: a block then has 32 rows of each.
// Counted for 64 rows of x and 1,024 of k: 128 KB of x and 37 of codes at 64 bytes a cycle are 2,600 cycles, the products 2,048 behind them.
#include "qmm_sm90.cuh"

enum { GROUPS = 4, THREADS = GROUPS * 128, BLOCK_ROWS = WSHORT_ROWS, UNITS = WSHORT_UNITS / GROUPS };

// Units of k that are this block's or this warpgroup's.
struct part {
    int first, n;
};
static __device__ __forceinline__ part part_of(const k_linear &a) {
    int units = (int)(a.w.in / TILE_UNIT), first = units * (int)blockIdx.y / a.k_splits;
    return part{first, units * ((int)blockIdx.y + 1) / a.k_splits - first};
}
static __device__ __forceinline__ part part_of_group(part p, int group) {
    int first = p.n * group / GROUPS;
    return part{p.first + first, p.n * (group + 1) / GROUPS - first};
}

#ifdef MLXCEL_EMULATE // sums straight from the weight; parts, tiles and results as on a GPU

template <int BITS, int N> static inline void run(const k_linear &a) {
    part p = part_of(a);
    int rows = a.glu_inner ? BLOCK_ROWS / 2 : BLOCK_ROWS;
    for (int i = threadIdx.x; i < rows * N; i += THREADS) {
        int64_t row = (int64_t)blockIdx.x * rows + i % rows;
        int m = i / rows;
        if (m >= a.x.rows) continue;
        if (a.glu_inner) {
            gate_units(a, m, row, p.first, p.n);
            continue;
        }
        float sum = 0;
        for (int g = 0; g < GROUPS; g++) sum += sum_of_units(a, m, row, part_of_group(p, g).first, part_of_group(p, g).n);
        a.partial[((int64_t)blockIdx.y * a.x.rows + m) * a.w.out + row] = sum;
    }
}
#else

// The first row of a warp's tile.
static __device__ __forceinline__ int64_t tile_row(const k_linear &a, int warp) {
    if (a.glu_inner) return (int64_t)blockIdx.x * (BLOCK_ROWS / 2) + warp % 2 * TILE_ROWS + warp / 2 * a.glu_inner;
    return (int64_t)blockIdx.x * BLOCK_ROWS + warp * TILE_ROWS;
}

static __device__ __forceinline__ void group_barrier() {
    asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");
}

// Where the sum of row `row` of the weight and row m of x stands: lanes that store beside each other meet no bank twice.
static __device__ __forceinline__ int sum_at(int m, int row) {
    return m * BLOCK_ROWS + (row ^ m / 2 % 4 * 8);
}

// Sums of this warpgroup's units. x: its stages; codes: of this warp's tile.
template <int BITS, int N, bool PLAIN> static __device__ __forceinline__ void multiply(const k_linear &a, part p, uint32_t x, const unsigned char *codes, uint32_t arrived, float (&acc)[N / 2]) {
    enum { PIECES = N / 16, UNIT = tile_codes(BITS) + TILE_META };
    int first = threadIdx.x / 32 % 4 * (N / 4), unit_bytes = PLAIN ? (int)UNIT : tile_unit_bytes(a.w);
    uint32_t w[2][16];
    uint4 pieces[UNITS][PIECES];
    if (p.n > 0) {
        barrier_wait(arrived, 0);
        weights_of<BITS, PLAIN>(a.w, codes, w[0]);
    }
    await_previous(); // weights are nobody's result
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        if (u < p.n) x_load(a, pieces[u], PIECES, first, p.first + u);
    if (p.n > 1) weights_of<BITS, PLAIN>(a.w, codes + unit_bytes, w[1]);
#pragma unroll
    for (int u = 0; u < UNITS; u++)
        if (u < p.n) x_store(pieces[u], PIECES, first, x + u * N * WQMM_X_ROW);
    stores_before_products();
    group_barrier();
#pragma unroll
    for (int i = 0; i < N / 2; i++) acc[i] = 0;
#pragma unroll
    for (int u = 0; u < UNITS; u++) {
        if (u >= p.n) break;
        uint64_t at = operand_at(x + u * N * WQMM_X_ROW);
        wgmma_begin();
#pragma unroll
        for (int m = 0; m < 4; m++) wgmma_rows(acc, w[u % 2] + 4 * m, at + m * (32 >> 4));
        wgmma_commit();
        if (u > 0 && u + 1 < p.n) {
            wgmma_wait<1>(); // the registers of the product before are free again
            weights_of<BITS, PLAIN>(a.w, codes + (u + 1) * unit_bytes, w[(u + 1) % 2]);
        }
    }
    wgmma_wait<0>();
    wgmma_results<N / 2>(acc);
}

// A warpgroup's sums, over its x, which all of it has read.
template <int N> static __device__ __forceinline__ void keep_sums(const float (&acc)[N / 2], float *sums) {
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * TILE_ROWS + lane / 4;
    group_barrier();
#pragma unroll
    for (int i = 0; i < N / 2; i++) sums[sum_at(i / 4 * 8 + lane % 4 * 2 + i % 2, row + i / 2 % 2 * 8)] = acc[i];
}

// Four results of all warpgroups, from where those of the first stand; `room` elements to those of the next.
static __device__ __forceinline__ float4 sum_groups(const float *p, int room) {
    float4 sum = *(const float4 *)p;
#pragma unroll
    for (int g = 1; g < GROUPS; g++) {
        float4 x = *(const float4 *)(p + g * room);
        sum = float4{sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w};
    }
    return sum;
}

template <int N> static __device__ __forceinline__ void store_sums(const k_linear &a, const float *sums, int room) {
    for (int e = threadIdx.x; e < N * BLOCK_ROWS / 4; e += THREADS) {
        int m = e / (BLOCK_ROWS / 4), row = e % (BLOCK_ROWS / 4) * 4;
        if (m < a.x.rows)
            *(float4 *)(a.partial + ((int64_t)blockIdx.y * a.x.rows + m) * a.w.out + (int64_t)blockIdx.x * BLOCK_ROWS + row) = sum_groups(sums + sum_at(m, row), room);
    }
}

template <int N> static __device__ __forceinline__ void store_gated(const k_linear &a, const float *sums, int room) {
    enum { ROWS = BLOCK_ROWS / 2 };
    for (int e = threadIdx.x; e < N * ROWS / 4; e += THREADS) {
        int m = e / (ROWS / 4), row = e % (ROWS / 4) * 4;
        if (m < a.x.rows)
            store_gated4(a, m, (int64_t)blockIdx.x * ROWS + row, sum_groups(sums + sum_at(m, row), room), sum_groups(sums + sum_at(m, row + ROWS), room));
    }
}

// Shared memory: every warpgroup's x, on a multiple of 1,024, with room for its sums; then every warp's codes.
template <int BITS, int N> static __device__ __forceinline__ void run(const k_linear &a) {
    DYNAMIC_SHARED(unsigned char, smem);
    __shared__ uint64_t barriers[THREADS / 32];
    int warp = threadIdx.x / 32, group = warp / 4, units = wshort_group_units((int)(a.w.in / TILE_UNIT), a.k_splits), unit_bytes = tile_unit_bytes(a.w);
    let_next_begin();
    part p = part_of_group(part_of(a), group);
    uint32_t start = (uint32_t)__cvta_generic_to_shared(smem), skip = (start + 1023) / 1024 * 1024 - start, arrived = (uint32_t)__cvta_generic_to_shared(barriers + warp);
    int room = units * N * WQMM_X_ROW, x = skip + group * room, codes = skip + GROUPS * room + warp * units * unit_bytes;
    if (threadIdx.x % 32 == 0 && p.n > 0) {
        barrier_init(arrived, 1);
        barrier_init_done();
        barrier_expect(arrived, p.n * unit_bytes);
        copy_bulk(start + codes, a.w.values + tile_row(a, warp % 4) / TILE_ROWS * a.w.tile_bytes + (int64_t)p.first * unit_bytes, p.n * unit_bytes, arrived);
    }
    __syncwarp();
    float acc[N / 2], *sums = (float *)(smem + skip);
    if (a.w.dtype == K_BF16 && tile_runs(a.w.group) == 1) multiply<BITS, N, true>(a, p, start + x, smem + codes, arrived, acc);
    else multiply<BITS, N, false>(a, p, start + x, smem + codes, arrived, acc);
    keep_sums<N>(acc, sums + group * room / 4);
    __syncthreads();
    if (a.glu_inner) store_gated<N>(a, sums, room / 4);
    else store_sums<N>(a, sums, room / 4);
}
#endif

// Grid (n / 64, splits).
#define SHORT(name, bits, n) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name##_##n(KARGS(k_linear) a) { run<bits, n>(a); }
#define SHORT_ALL(name, bits) \
    SHORT(name, bits, 16)     \
    SHORT(name, bits, 32)     \
    SHORT(name, bits, 64)
SHORT_ALL(wshort, 4)
SHORT_ALL(wshort_bytes, 8)
