// Attention of prompt rows over the paged bf16 cache, with the warpgroup products of sm_90a.
//
// A block takes 64 rows of one sequence and W query heads of one cached head, a warpgroup each; one thread copies cached blocks of 64 positions
// into a ring of four stages. While the products of a block's weights with its values run, the scores of the next one are made and softened, and
// warpgroups drift apart, so that one multiplies where another makes exponentials. The longest tiles come first. Stopped by the tensor cores
// (D = 128) or the exponentials (D = 64).
#include "soft.cuh"
#include "wgmma.cuh"

enum { ROWS = FLASH_ROWS, KEYS = K_BLOCK, RING = WFLASH_RING, CHUNK = 64 * 128 }; // CHUNK: bytes of 64 rows of 64 elements

struct tile {
    k_seq seq;
    int from, n_rows, pos0, block, last_block; // rows from `from` on; cached blocks that they see
    const int32_t *table;
};

static __device__ __forceinline__ tile tile_of(const k_attn &a, int i) {
    tile t;
    t.seq = a.seqs[a.tiles[2 * i]];
    t.from = a.tiles[2 * i + 1];
    t.n_rows = t.seq.n_rows - t.from < ROWS ? t.seq.n_rows - t.from : ROWS;
    t.table = a.c.table + (int64_t)a.tiles[2 * i] * a.c.table_stride;
    t.pos0 = t.seq.pos + t.from;
    t.block = first_visible(a.window, a.chunk, t.pos0) / KEYS;
    t.last_block = (t.pos0 + t.n_rows - 1) / KEYS;
    return t;
}

#ifdef MLXCEL_EMULATE // row by row; what is read and stored as on a GPU

static inline uint32_t emu_pair(const k_tensor_map *map, int64_t row, int column) {
    return pack_bf16(emu_map_at(map, column, row), emu_map_at(map, column + 1, row));
}

template <int D, int W> static inline void attend(const k_flash &f) {
    const k_attn &a = f.a;
    tile t = tile_of(a, (int)(gridDim.y - 1 - blockIdx.y));
    int row = (int)threadIdx.x % 128, head = (int)blockIdx.x * W + (int)threadIdx.x / 128;
    if (threadIdx.x >= W * 128 || row >= t.n_rows) return;
    float o[D] = {0}, sum = 0, top = -INFINITY;
    int64_t r = t.seq.row + t.from + row;
    int pos = t.pos0 + row;
    for (int pass = 0; pass < 2; pass++)
        for (int p = first_visible(a.window, a.chunk, pos); p <= pos; p++) {
            int64_t at = ((int64_t)t.table[p / KEYS] * a.c.heads + head / a.group) * KEYS + p % KEYS;
            float s = 0;
            for (int i = 0; i < D; i++) s += __bfloat162float(__float2bfloat16_rn(view_load(a.q, r, head, i))) * emu_map_at(&f.k_map, i, at);
            s *= query_scale(a, pos);
            if (pass == 0) top = fmaxf(top, s);
            else {
                float w = expf(s - top);
                sum += w;
                for (int i = 0; i < D; i++) o[i] += w * emu_map_at(&f.v_map, i, at);
            }
        }
    if (a.sinks) sum += expf(a.sinks[head] - top);
    for (int i = 0; i < D; i++) view_store(a.y, r, head, i, o[i] / sum);
}
#else

// One thread: keys, then values, in pieces of 64 columns.
template <int D> static __device__ __forceinline__ void copy_all(const k_flash &f, const tile &t, int kv_head, uint32_t ring, uint32_t full, uint32_t empty) {
    int stage = 0, phase = 0, number = t.table[t.block];
    for (int block = t.block; block <= t.last_block; block++) {
        int row = (number * f.a.c.heads + kv_head) * KEYS;
        uint32_t to = ring + stage * 2 * D / 64 * CHUNK, done = full + stage * 8;
        if (block < t.last_block) number = t.table[block + 1];
        barrier_wait(empty + stage * 8, phase ^ 1);
        barrier_expect(done, 2 * D / 64 * CHUNK);
#pragma unroll
        for (int i = 0; i < D / 64; i++) copy_box(to + i * CHUNK, &f.k_map, i * 64, row, done);
#pragma unroll
        for (int i = 0; i < D / 64; i++) copy_box(to + (D / 64 + i) * CHUNK, &f.v_map, i * 64, row, done);
        if (++stage == RING) stage = 0, phase ^= 1;
    }
}

// Eight neighbours as bf16.
static __device__ __forceinline__ uint4 query8(const k_view &q, int64_t at) {
    if (q.dtype != K_F32) return *(const uint4 *)((const bf16 *)q.p + at);
    float4 x = *(const float4 *)((const float *)q.p + at), y = *(const float4 *)((const float *)q.p + at + 4);
    return uint4{pack_bf16(x.x, x.y), pack_bf16(x.z, x.w), pack_bf16(y.x, y.y), pack_bf16(y.z, y.w)};
}

// Queries of this warpgroup's head to shared memory, zeros beyond the last row.
template <int D> static __device__ __forceinline__ void load_queries(const k_attn &a, const tile &t, unsigned char *to, int head) {
#pragma unroll
    for (int i = 0; i < ROWS * (D / 8) / 128; i++) {
        int e = threadIdx.x % 128 + i * 128, row = e / (D / 8), piece = e % (D / 8);
        uint4 x = uint4{0, 0, 0, 0};
        if (row < t.n_rows) x = query8(a.q, ((int64_t)t.seq.row + t.from + row) * a.q.row_stride + head * a.q.head_stride + piece * 8);
        *(uint4 *)(to + piece / 8 * CHUNK + row * 128 + (piece % 8 ^ row & 7) * 16) = x;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"((int)threadIdx.x / 128 + 1) : "memory");
}

template <int D> static __device__ __forceinline__ void scores(float s[32], uint32_t queries, uint32_t keys) {
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
        uint32_t at = kk / 4 * CHUNK + kk % 4 * 32;
        wgmma_64(s, operand_at(queries + at), operand_at(keys + at), kk > 0);
    }
}

template <int D> static __device__ __forceinline__ void add_values(float o[D / 2], const uint32_t p[4][4], uint32_t values) {
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        uint64_t v = operand_rows(values + kk * 2048, CHUNK);
        if (D == 64) wgmma_reg_64(o, p[kk], v);
        else wgmma_reg_128(o, p[kk], v);
    }
}

// What a lane knows of its two rows.
struct rows2 {
    int pos[2], first[2];
    float factor[2], max[2], sum[2], keep[2]; // scores times factor are exponents of 2
};

// Scores become weights, in place; keep: what the sums so far are multiplied by.
static __device__ __forceinline__ void soften(float s[32], rows2 &r, int p0, bool at_edge) {
    int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        float top = r.max[i];
        if (at_edge) {
#pragma unroll
            for (int j = 0; j < 16; j++) {
                int p = p0 + j / 2 * 8 + 2 * t + j % 2;
                float &x = s[j / 2 * 4 + 2 * i + j % 2];
                x = p >= r.first[i] && p <= r.pos[i] ? x : -INFINITY;
            }
        }
#pragma unroll
        for (int j = 0; j < 16; j++) top = fmaxf(top, s[j / 2 * 4 + 2 * i + j % 2]);
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
        float base = top == -INFINITY ? 0.0f : top * r.factor[i], total = 0;
        r.keep[i] = exp2_fast(fmaf(r.max[i], r.factor[i], -base));
        r.max[i] = top;
#pragma unroll
        for (int j = 0; j < 16; j++) {
            float &x = s[j / 2 * 4 + 2 * i + j % 2];
            x = exp2_fast(fmaf(x, r.factor[i], -base));
            total += x;
        }
        r.sum[i] = fmaf(r.sum[i], r.keep[i], total);
    }
}

static __device__ __forceinline__ void pack_weights(uint32_t p[4][4], const float s[32]) {
#pragma unroll
    for (int i = 0; i < 16; i++) p[i / 4][i % 4] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

static __device__ __forceinline__ void store4(const k_view &y, int64_t at, float2 low, float2 high, bool there) {
    float2 first, second;
    at += make_neighbours(low, high, first, second);
    if (!there) return;
    if (y.dtype == K_F32) *(float4 *)((float *)y.p + at) = float4{first.x, first.y, second.x, second.y};
    else *(uint2 *)((bf16 *)y.p + at) = uint2{pack_bf16(first.x, first.y), pack_bf16(second.x, second.y)};
}

template <int D> static __device__ __forceinline__ void finish(const k_attn &a, const tile &t, const float o[D / 2], const rows2 &r, int head) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int row = threadIdx.x / 32 % 4 * 16 + lane / 4 + i * 8;
        float total = r.sum[i], keep = 1.0f;
        total += __shfl_xor_sync(FULL, total, 1);
        total += __shfl_xor_sync(FULL, total, 2);
        if (a.sinks) {
            float sink = a.sinks[head] * LOG2E, max = r.max[i] * r.factor[i], top = fmaxf(max, sink);
            keep = exp2_fast(max - top);
            total = total * keep + exp2_fast(sink - top);
        }
        keep /= total;
        int64_t at = ((int64_t)t.seq.row + t.from + row) * a.y.row_stride + head * a.y.head_stride;
#pragma unroll
        for (int j = 0; j < D / 8; j += 2)
            store4(a.y, at + j * 8, float2{o[4 * j + 2 * i] * keep, o[4 * j + 2 * i + 1] * keep}, float2{o[4 * j + 4 + 2 * i] * keep, o[4 * j + 5 + 2 * i] * keep}, row < t.n_rows);
    }
}

template <int D> static __device__ __forceinline__ void attend_rows(const k_flash &f, const tile &t, int head, uint32_t queries, uint32_t ring, uint32_t full, uint32_t empty) {
    const k_attn &a = f.a;
    int lane = threadIdx.x % 32, row0 = threadIdx.x / 32 % 4 * 16, stage = 0, phase = 0;
    int low = t.pos0 + row0, high = first_visible(a.window, a.chunk, low + 15); // blocks up to low and from high on are seen by all 16 rows
    rows2 r;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        r.pos[i] = low + lane / 4 + i * 8;
        r.first[i] = first_visible(a.window, a.chunk, r.pos[i]);
        r.factor[i] = query_scale(a, r.pos[i]) * LOG2E;
        r.max[i] = -INFINITY;
        r.sum[i] = 0;
    }
    float o[D / 2], s[32];
    uint32_t p[4][4];
#pragma unroll
    for (int i = 0; i < D / 2; i++) o[i] = 0;
    barrier_wait(full, 0);
    wgmma_begin();
    scores<D>(s, queries, ring);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_results<32>(s);
    soften(s, r, t.block * KEYS, t.block * KEYS + KEYS - 1 > low || t.block * KEYS < high);
    pack_weights(p, s);
    for (int block = t.block + 1; block <= t.last_block; block++) {
        uint32_t values = ring + (2 * stage + 1) * (D / 64) * CHUNK, here = empty + stage * 8;
        if (++stage == RING) stage = 0, phase ^= 1;
        barrier_wait(full + stage * 8, phase);
        wgmma_begin();
        scores<D>(s, queries, ring + 2 * stage * (D / 64) * CHUNK);
        wgmma_commit();
        add_values<D>(o, p, values);
        wgmma_commit();
        wgmma_wait<1>();
        wgmma_results<32>(s);
        soften(s, r, block * KEYS, block * KEYS + KEYS - 1 > low || block * KEYS < high);
        wgmma_wait<0>();
        wgmma_results<D / 2>(o);
        if (lane == 0) barrier_arrive(here);
#pragma unroll
        for (int i = 0; i < D / 2; i++) o[i] *= r.keep[i / 2 % 2];
        pack_weights(p, s);
    }
    wgmma_begin();
    add_values<D>(o, p, ring + (2 * stage + 1) * (D / 64) * CHUNK);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_results<D / 2>(o);
    finish<D>(a, t, o, r, head);
}

template <int D, int W> static __device__ __forceinline__ void attend(const k_flash &f) {
    DYNAMIC_SHARED(unsigned char, smem);
    __shared__ uint64_t barriers[2][RING];
    uint32_t start = (uint32_t)__cvta_generic_to_shared(smem), ring = (start + 1023) / 1024 * 1024, queries = ring + RING * 2 * (D / 64) * CHUNK;
    uint32_t full = (uint32_t)__cvta_generic_to_shared(barriers[0]), empty = (uint32_t)__cvta_generic_to_shared(barriers[1]);
    int group = threadIdx.x / 128, head = blockIdx.x * W + group;
    if (threadIdx.x == 0) {
        for (int s = 0; s < RING; s++) {
            barrier_init(full + s * 8, 1);
            barrier_init(empty + s * 8, 4 * W);
        }
        barrier_init_done();
    }
    __syncthreads();
    tile t = tile_of(f.a, gridDim.y - 1 - blockIdx.y);
    if (group == W) { // all take no more than they began with: 384 x 168, or 640 x 96
        registers_fewer<24>();
        if (threadIdx.x % 128 == 0) copy_all<D>(f, t, blockIdx.x * W / f.a.group, ring, full, empty);
    } else {
        registers_more<(W == 2 ? 240 : 112)>();
        queries += group * (D / 64) * CHUNK;
        load_queries<D>(f.a, t, smem + (queries - start), head);
        attend_rows<D>(f, t, head, queries, ring, full, empty);
    }
}
#endif

// Grid (query heads / W, tiles), 128 (W + 1) threads, wflash_shared_bytes of shared memory.
#define FLASH(d, w) \
    extern "C" __global__ void __launch_bounds__((w + 1) * 128, 1) attn_wflash_##d##_##w(KARGS(k_flash) f) { attend<d, w>(f); }
FLASH(64, 2)
FLASH(64, 4)
FLASH(128, 2)
