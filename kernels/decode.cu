// Attention of decode rows over the paged bf16 cache on the tensor cores, split along the positions so that a long context fills the GPU. For
// sm_80 and later.
//
// A block takes one row, one cached head and a run of cache blocks; every warp takes 16 of a cache block's 64 positions, through a ring of its own in
// shared memory, so that warps never wait for each other. Query heads of the group are the rows of the products, 16 of them: up to eight heads
// stand there as two bf16 terms each, head h in rows h and h + 8, and so do the weights of the softmax; both are then as good as f32. Nine to
// sixteen heads are one term each. The last block of a row and head to come adds up the runs, and those of kernels/prefix.cu before them. Reads the visible cache once; stopped by memory, and
// by latency at short contexts.
//
// Where all rows are such rows and a cached head has one or two query heads, a block also makes what it needs of the projection: its queries and, where its run has the row's own position, the new key and value, which go to the cache
// and into the block's own ring (attn_new_*). Everything else of the cache is then asked for before the projection has ended.
#include "heads.cuh"
#include "mma.cuh"
#include "soft.cuh"

enum { WARPS = DECODE_WARPS, TILE = DECODE_TILE };
static_assert(WARPS * TILE == K_BLOCK, "a step of all warps is a cache block");

// A warp's ring has SLOTS slots: keys and values of 16 positions take one each.

// Elements from a row of shared memory to the next, and of a slot.
template <int D> static __device__ __forceinline__ constexpr int slot_room() {
    return TILE * flash_row_room(D);
}

// Element 8 * piece of a row of D; pieces of whole rows are exchanged inside groups of eight by the row's low bits.
template <int D> static __device__ __forceinline__ int piece_at(int row, int piece) {
    return row * flash_row_room(D) + (D % 64 ? piece : piece ^ (row & 7)) * 8;
}

// The positions of a block: those of the row's visible ones that lie in its cache blocks.
struct run_of {
    int begin, end, first_block, n_blocks;
};
static __device__ __forceinline__ run_of run_of_split(const k_attn &a, int64_t row, int pos) {
    int first = a.shared_of ? a.shared_of[row] : first_visible(a.window, a.chunk, pos), from = first / K_BLOCK, n = pos / K_BLOCK - from + 1;
    int each = (n + a.splits - 1) / a.splits, at = (int)blockIdx.x * each;
    run_of r;
    r.first_block = from + at, r.n_blocks = n - at < each ? n - at : each;
    r.begin = first, r.end = pos + 1;
    return r;
}

// A warp's way through its run.
template <int D, int SLOTS> struct reader {
    const bf16 *k, *v;
    bf16 *ring;
    const int32_t *table;
    int32_t block_id; // of cache block `known + lane`
    int known, next;  // next: the slot's worth that is asked for next, keys and values in turn
    int end;          // the cache has positions before this one
    int slot, used;
};

// Asks for the next keys or values of this warp's 16 positions; those that the row does not see become zeros.
template <int D, int SLOTS> static __device__ __forceinline__ void fetch(reader<D, SLOTS> &f, const run_of &r, int kv_head, int heads) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, i = f.next / 2;
    if (i < r.n_blocks) {
        if (i - f.known >= 32) {
            f.known = i;
            f.block_id = f.table[r.first_block + (i + lane < r.n_blocks ? i + lane : i)];
        }
        int64_t at = ((int64_t)__shfl_sync(FULL, f.block_id, i - f.known) * heads + kv_head) * (K_BLOCK * D) + warp * TILE * D;
        const bf16 *from = (f.next % 2 ? f.v : f.k) + at;
        bf16 *to = f.ring + f.slot * slot_room<D>();
        int p0 = (r.first_block + i) * K_BLOCK + warp * TILE;
#pragma unroll
        for (int j = 0; j < TILE * D / 8 / 32; j++) {
            int e = lane + j * 32, row = e / (D / 8), piece = e % (D / 8);
            copy16(to + piece_at<D>(row, piece), from + e * 8, p0 + row >= r.begin && p0 + row < f.end);
        }
        f.next++;
        if (++f.slot == SLOTS) f.slot = 0;
    }
    copy_commit();
}

// The oldest slot's worth has come.
template <int D, int SLOTS> static __device__ __forceinline__ const bf16 *await(reader<D, SLOTS> &f) {
    copy_wait<SLOTS - 1>();
    __syncwarp();
    const bf16 *at = f.ring + f.used * slot_room<D>();
    if (++f.used == SLOTS) f.used = 0;
    return at;
}

// Eight elements of a query head; even: they lie at a multiple of 16 bytes.
static __device__ __forceinline__ void load_query(const k_view &v, int64_t at, bool even, float out[8]) {
    if (even) {
        load8(v.p, v.dtype, at, out);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = load_as_f32(v.p, v.dtype, at + i);
}

// Query heads to shared memory, [16][D], as rows of the products.
template <int D, bool TERMS> static __device__ __forceinline__ void place_queries(const k_attn &a, bf16 *to, int64_t r, int kv_head, float scale) {
    bool even = a.q.row_stride % 8 == 0 && a.q.head_stride % 8 == 0 && (uint64_t)a.q.p % 16 == 0;
    for (int e = threadIdx.x; e < (TERMS ? 8 : 16) * D / 8; e += WARPS * 32) {
        int h = e / (D / 8), piece = e % (D / 8);
        float x[8] = {0};
        if (h < a.group) load_query(a.q, r * a.q.row_stride + (kv_head * a.group + h) * a.q.head_stride + piece * 8, even, x);
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] *= scale;
#pragma unroll
        for (int i = 0; i < 4; i++) words[i] = take_term(x[2 * i], x[2 * i + 1]);
        *(uint4 *)(to + piece_at<D>(h, piece)) = uint4{words[0], words[1], words[2], words[3]};
        if (TERMS) {
#pragma unroll
            for (int i = 0; i < 4; i++) words[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
            *(uint4 *)(to + piece_at<D>(h + 8, piece)) = uint4{words[0], words[1], words[2], words[3]};
        }
    }
}

// ---- what a block makes of the projection ----

template <int D> struct fresh_heads {
    head_of<D> of_warp[WARPS];
    uint4 k[D / 8], v[D / 8];
};

// A query head to shared memory, as place_queries has it.
template <int D> static __device__ __forceinline__ void place_query(const float *from, bf16 *to, int h, float scale) {
    int piece = threadIdx.x % 32;
    if (piece >= D / 8) return;
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float x = from[piece * 8 + 2 * i] * scale, y = from[piece * 8 + 2 * i + 1] * scale;
        high[i] = take_term(x, y), low[i] = pack_bf16(x, y);
    }
    *(uint4 *)(to + piece_at<D>(h, piece)) = uint4{high[0], high[1], high[2], high[3]};
    *(uint4 *)(to + piece_at<D>(h + 8, piece)) = uint4{low[0], low[1], low[2], low[3]};
}

// The new key or value to the cache, and to shared memory.
template <int D> static __device__ __forceinline__ void keep_fresh(const k_cache &c, bool is_key, const float *x, uint4 *to, int block, int head, int pos) {
    int piece = threadIdx.x % 32;
    if (piece >= D / 8) return;
    uint4 words = {pack_bf16(x[piece * 8], x[piece * 8 + 1]), pack_bf16(x[piece * 8 + 2], x[piece * 8 + 3]), pack_bf16(x[piece * 8 + 4], x[piece * 8 + 5]), pack_bf16(x[piece * 8 + 6], x[piece * 8 + 7])};
    int64_t at = (((int64_t)block * c.heads + head) * K_BLOCK + pos % K_BLOCK) * D;
    *(uint4 *)((bf16 *)(is_key ? c.k : c.v) + at + piece * 8) = to[piece] = words;
}

// What no kernel makes: the angles of warps with a query or the key.
template <int D> static __device__ __forceinline__ void know_heads(const k_attn &a, const k_qkv &n, fresh_heads<D> &fresh) {
    if ((int)threadIdx.x / 32 <= a.group) know_angles(n, fresh.of_warp[threadIdx.x / 32], blockIdx.z);
}

// Heads of this warp: queries, then the key and the value where `has_new`.
template <int D> static __device__ __forceinline__ void make_heads(const k_attn &a, const k_qkv &n, fresh_heads<D> &fresh, bf16 *queries, bool has_new, float scale, int block, int pos) {
    int warp = threadIdx.x / 32, kv_head = blockIdx.y;
    int64_t row = blockIdx.z;
    head_of<D> &h = fresh.of_warp[warp];
    for (int i = warp; i < a.group + (has_new ? 2 : 0); i += WARPS) {
        bool is_q = i < a.group, is_k = i == a.group;
        const float *norm = is_q ? n.q_norm : n.k_norm;
        load_head(n, h, is_q ? n.q : is_k ? n.k : n.v, row, is_q ? kv_head * a.group + i : kv_head, D);
        if (is_q || is_k) {
            know_weight(h, norm, is_q ? n.q_offset : n.k_offset, D);
            if (norm) norm_head(h, D, is_q ? n.q_eps : n.k_eps);
            rotate_head(n, h);
        }
        if (is_q) place_query<D>((const float *)h.x, queries, i, scale);
        else keep_fresh<D>(n.c, is_k, (const float *)h.x, is_k ? fresh.k : fresh.v, block, kv_head, pos);
        __syncwarp();
    }
    for (int e = threadIdx.x; e < 16 * D / 8; e += WARPS * 32)
        if (e / (D / 8) % 8 >= a.group) *(uint4 *)(queries + piece_at<D>(e / (D / 8), e % (D / 8))) = uint4{0, 0, 0, 0};
}

// The new key or value into the slot that has come for 16 positions from p0 on.
template <int D> static __device__ __forceinline__ void add_fresh(const bf16 *slot, const uint4 *fresh, int p0, int pos) {
    int piece = threadIdx.x % 32;
    if (pos < p0 || pos >= p0 + TILE) return;
    if (piece < D / 8) *(uint4 *)((bf16 *)slot + piece_at<D>(pos - p0, piece)) = fresh[piece];
    __syncwarp();
}

// Scores of 16 heads with 16 positions; sums of even and odd steps apart, so that neither waits for the other.
template <int D> static __device__ __forceinline__ void scores(float s[2][4], const bf16 *queries, const bf16 *keys) {
    int lane = threadIdx.x % 32;
    float odd[2][4] = {{0}};
#pragma unroll
    for (int i = 0; i < 8; i++) ((float *)s)[i] = 0;
#pragma unroll
    for (int kk = 0; kk < D / 16; kk++) {
        uint32_t q[4], k[4];
        ldmatrix4(q, queries + piece_at<D>(lane % 16, kk * 2 + lane / 16));
        ldmatrix4(k, keys + piece_at<D>(lane / 16 * 8 + lane % 8, kk * 2 + lane / 8 % 2));
        mma_bf16(kk % 2 ? odd[0] : s[0], q, k[0], k[1]);
        mma_bf16(kk % 2 ? odd[1] : s[1], q, k[2], k[3]);
    }
#pragma unroll
    for (int i = 0; i < 8; i++) ((float *)s)[i] += ((float *)odd)[i];
}

// What a warp has seen: results [16 rows][D], of each row the largest score and the sum of weights. A lane holds rows g and g + 8, which are one
// head with TERMS: then it is kept in place 0.
template <int D> struct seen {
    float o[D / 8][4], max[2], sum[2];
};

// Scores become weights, in units of log 2, in place; with TERMS two terms of each.
template <int D, bool TERMS> static __device__ __forceinline__ void soften(const k_attn &a, float s[2][4], const run_of &r, int p0, seen<D> &z) {
    enum { SETS = TERMS ? 1 : 2 };
    int t = threadIdx.x % 4;
    float keep[2];
#pragma unroll
    for (int i = 0; i < SETS; i++) {
        float x[4], top = z.max[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int p = p0 + j / 2 * 8 + 2 * t + j % 2;
            x[j] = s[j / 2][2 * i + j % 2] + (TERMS ? s[j / 2][2 + j % 2] : 0.0f);
            if (a.softcap > 0) x[j] = a.softcap * LOG2E * tanhf(x[j]);
            if (p < r.begin || p >= r.end) x[j] = -INFINITY;
            top = fmaxf(top, x[j]);
        }
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 1));
        top = fmaxf(top, __shfl_xor_sync(FULL, top, 2));
        float base = top == -INFINITY ? 0.0f : top;
        keep[i] = exp2f(z.max[i] - base);
        z.max[i] = top;
        z.sum[i] *= keep[i];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float w = exp2f(x[j] - base);
            z.sum[i] += w;
            s[j / 2][2 * i + j % 2] = w;
        }
    }
    bool same = TERMS ? keep[0] == 1.0f : keep[0] == 1.0f && keep[1] == 1.0f;
    if (in_all_lanes(same)) return;
#pragma unroll
    for (int j = 0; j < D / 8; j++) {
        z.o[j][0] *= keep[0], z.o[j][1] *= keep[0];
        z.o[j][2] *= keep[SETS - 1], z.o[j][3] *= keep[SETS - 1];
    }
}

template <int D, bool TERMS> static __device__ __forceinline__ void add_values(float s[2][4], const bf16 *values, seen<D> &z) {
    int lane = threadIdx.x % 32;
    uint32_t w[4];
#pragma unroll
    for (int j = 0; j < 2; j++) {
        w[2 * j] = take_term(s[j][0], s[j][1]);
        w[2 * j + 1] = TERMS ? take_term(s[j][0], s[j][1]) : take_term(s[j][2], s[j][3]);
    }
#pragma unroll
    for (int j = 0; j < D / 16; j++) { // 16 columns of the values
        uint32_t v[4];
        ldmatrix4_trans(v, values + piece_at<D>(lane / 8 % 2 * 8 + lane % 8, j * 2 + lane / 16));
        mma_bf16(z.o[2 * j], w, v[0], v[1]);
        mma_bf16(z.o[2 * j + 1], w, v[2], v[3]);
    }
}

// A warp's part of every head: parts is [heads][WARPS][D + 2], results, the largest score, the sum of weights.
template <int D, bool TERMS> static __device__ __forceinline__ void keep_parts(float *parts, int group, seen<D> &z) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < (TERMS ? 1 : 2); i++) {
        float sum = z.sum[i];
        sum += __shfl_xor_sync(FULL, sum, 1);
        sum += __shfl_xor_sync(FULL, sum, 2);
        if (g + i * 8 >= group) continue;
        float *to = parts + ((g + i * 8) * WARPS + warp) * (D + 2);
#pragma unroll
        for (int j = 0; j < D / 8; j++) {
            float first = z.o[j][2 * i], second = z.o[j][2 * i + 1];
            if (TERMS) first += z.o[j][2], second += z.o[j][3];
            *(float2 *)(to + j * 8 + 2 * t) = float2{first, second};
        }
        if (t == 0) to[D] = z.max[i], to[D + 1] = sum;
    }
}

// The softmax's end; sinks are one more score.
static __device__ __forceinline__ void store_head(const k_attn &a, int64_t r, int head, int i, softened s) {
    if (a.sinks) add_sink(s, a.sinks[head]);
    view_store(a.y, r, head, i, s.x / s.sum);
}

// Parts of the warps, then of the runs of a (row, cached head), which the last block to come adds up in order.
template <int D> static __device__ __forceinline__ void finish(const k_attn &a, const float *parts, int64_t r, int kv_head) {
    __shared__ uint32_t is_last;
    int split = blockIdx.x, n_heads = a.c.heads * a.group, splits = a.shared_splits + a.splits, n_shared = a.shared_of && a.shared_of[r] ? a.shared_splits : 0;
    bool is_alone = a.splits == 1 && n_shared == 0;
    float *partial = a.partial + ((int64_t)r * n_heads + kv_head * a.group) * splits * (D + 2);
    for (int e = threadIdx.x; e < a.group * D; e += WARPS * 32) {
        int h = e / D, i = e % D;
        softened s = join<false>(parts + h * WARPS * (D + 2), WARPS, D, i);
        if (is_alone) {
            store_head(a, r, kv_head * a.group + h, i, s);
            continue;
        }
        float *to = partial + (h * splits + a.shared_splits + split) * (D + 2);
        to[i] = s.x;
        if (i == 0) to[D] = s.max, to[D + 1] = s.sum;
    }
    if (is_alone) return;
    if (!is_last_block(a.counters + r * a.c.heads + kv_head, a.splits, &is_last)) return;
    for (int e = threadIdx.x; e < a.group * D; e += WARPS * 32) {
        int h = e / D, i = e % D;
        const float *first = partial + (h * splits + a.shared_splits - n_shared) * (D + 2);
        store_head(a, r, kv_head * a.group + h, i, join<true>(first, n_shared + a.splits, D, i));
    }
}

// n: what the block makes by itself, with FRESH.
template <int D, bool TERMS, int SLOTS, bool FRESH> static __device__ __forceinline__ void attend(const k_attn &a, const k_qkv &n, fresh_heads<D> *fresh, unsigned char *smem) {
    int warp = threadIdx.x / 32, kv_head = blockIdx.y, heads = a.c.heads;
    int64_t row = blockIdx.z;
    int pos = a.pos[row];
    run_of r = run_of_split(a, row, pos);
    bf16 *queries = (bf16 *)smem;
    reader<D, SLOTS> f;
    f.k = (const bf16 *)a.c.k, f.v = (const bf16 *)a.c.v, f.table = a.c.table + (int64_t)a.seq_of[row] * a.c.table_stride;
    f.ring = queries + (1 + warp * SLOTS) * slot_room<D>();
    f.known = -32, f.next = f.slot = f.used = 0, f.block_id = 0, f.end = FRESH ? pos : r.end;
    bool has_new = (r.first_block + (FRESH ? r.n_blocks : (SLOTS + 1) / 2)) * K_BLOCK > pos; // the row's own position, which the kernel before writes, is among the first
    if (has_new && !FRESH) await_previous();
#pragma unroll
    for (int i = 0; i < SLOTS; i++) fetch(f, r, kv_head, heads);
    float scale = query_scale(a, pos) * (a.softcap > 0 ? 1.0f / a.softcap : LOG2E);
    if (FRESH) {
        know_heads<D>(a, n, *fresh);
        await_previous();
        make_heads<D>(a, n, *fresh, queries, has_new && r.n_blocks > 0, scale, f.table[pos / K_BLOCK], pos);
    } else {
        if (!has_new) await_previous();
        place_queries<D, TERMS>(a, queries, row, kv_head, scale);
    }
    __syncthreads();
    seen<D> z;
#pragma unroll
    for (int i = 0; i < 2; i++) z.max[i] = -INFINITY, z.sum[i] = 0;
#pragma unroll
    for (int i = 0; i < D / 8; i++) z.o[i][0] = z.o[i][1] = z.o[i][2] = z.o[i][3] = 0;
    for (int i = 0; i < r.n_blocks; i++) {
        float s[2][4];
        int p0 = (r.first_block + i) * K_BLOCK + warp * TILE;
        const bf16 *keys = await(f);
        if (FRESH) add_fresh<D>(keys, fresh->k, p0, pos);
        scores<D>(s, queries, keys);
        __syncwarp();
        fetch(f, r, kv_head, heads);
        soften<D, TERMS>(a, s, r, p0, z);
        const bf16 *values = await(f);
        if (FRESH) add_fresh<D>(values, fresh->v, p0, pos);
        add_values<D, TERMS>(s, values, z);
        __syncwarp();
        fetch(f, r, kv_head, heads);
    }
    copy_wait<0>();
    __syncthreads();
    float *parts = (float *)smem;
    keep_parts<D, TERMS>(parts, a.group, z);
    __syncthreads();
    finish<D>(a, parts, row, kv_head);
}

// Grid (splits, cached heads, rows). Shared memory: the queries, then every warp's ring. Few: up to eight query heads to a cached head. Short:
// for contexts of few cache blocks, where blocks wait for latency and not for memory: more of them fit on a multiprocessor.
#define DECODE(name, d, terms, n_slots, blocks)                                                                        \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, blocks) attn_##name##_##d(KARGS(k_attn) a) { \
        let_next_begin();                                                                                           \
        DYNAMIC_SHARED(unsigned char, smem);                                                                        \
        attend<d, terms, n_slots, false>(a, k_qkv(), NULL, smem);                                                   \
    }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define SHORT_BLOCKS 3 // code for these takes a few registers more
#else
#define SHORT_BLOCKS 4
#endif
enum { WIDE_SLOTS = SMALL_SHARED ? DECODE_WIDE_SLOTS_SMALL : DECODE_SLOTS };
DECODE(short_few, 64, true, DECODE_SHORT_SLOTS, SHORT_BLOCKS)
DECODE(short_few, 128, true, DECODE_SHORT_SLOTS, SHORT_BLOCKS)
DECODE(few, 64, true, DECODE_SLOTS, 4)
DECODE(few, 80, true, DECODE_SLOTS, 2)
DECODE(few, 96, true, DECODE_SLOTS, 2)
DECODE(few, 128, true, DECODE_SLOTS, 2)
DECODE(few, 256, true, WIDE_SLOTS, 1)
DECODE(many, 64, false, DECODE_SLOTS, 4)
DECODE(many, 128, false, DECODE_SLOTS, 2)
DECODE(many, 256, false, WIDE_SLOTS, 1)

// The same of one launch with the projection's heads.
#define DECODE_NEW(name, d, n_slots, blocks)                                                                               \
    extern "C" __global__ void __launch_bounds__(WARPS * 32, blocks) attn_new_##name##_##d(KARGS(k_attn_new) a) { \
        let_next_begin();                                                                                                  \
        DYNAMIC_SHARED(unsigned char, smem);                                                                               \
        __shared__ fresh_heads<d> fresh;                                                                                   \
        attend<d, true, n_slots, true>(a.a, a.n, &fresh, smem);                                                            \
    }
DECODE_NEW(short, 64, DECODE_SHORT_SLOTS, SHORT_BLOCKS)
DECODE_NEW(short, 128, DECODE_SHORT_SLOTS, SHORT_BLOCKS)
DECODE_NEW(few, 64, DECODE_SLOTS, 4)
DECODE_NEW(few, 128, DECODE_SLOTS, 2)
