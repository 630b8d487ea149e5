// Element-wise and row-wise ops. Each reads its inputs once and writes its output once; stopped by memory, or by the launch at few rows.
#include "common.cuh"

// Grid (elements of a row / 256, rows): the element's head and index inside it.
#define ELEMENT(v)                                                      \
    int64_t r = blockIdx.y;                                             \
    int e = blockIdx.x * 256 + threadIdx.x;                             \
    if (e >= (v).heads * (v).width) return;                             \
    int h = e / (v).width, i = e % (v).width

extern "C" __global__ void elem_add(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    view_store(a.y, r, h, i, view_load(a.a, r, h, i) * a.a_scale + view_load(a.b, r, h, i) * a.b_scale);
}

extern "C" __global__ void elem_act(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    view_store(a.y, r, h, i, act(a.act.kind, view_load(a.a, r, h, i), a.act.p) * a.act.scale);
}

extern "C" __global__ void elem_glu(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    float b = view_load(a.b, r, a.b.heads == 1 ? 0 : h, a.b.width == 1 ? 0 : i);
    view_store(a.y, r, h, i, gated(a.act, view_load(a.a, r, h, i), b));
}

extern "C" __global__ void elem_mulvec(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    float x = view_load(a.a, r, h, i);
    if (a.mul) x *= a.mul[a.mul_is_one ? 0 : i];
    if (a.add) x += a.add[i];
    view_store(a.y, r, h, i, x);
}

extern "C" __global__ void elem_concat(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    float x = i < a.a.width ? view_load(a.a, r, h, i) : view_load(a.b, r, a.b.heads == 1 ? 0 : h, i - a.a.width);
    view_store(a.y, r, h, i, x);
}

extern "C" __global__ void elem_rows(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    view_store(a.y, r, h, i, view_load(a.a, a.rows[r], h, i));
}

// A copy in another element type, dense, with zeros where y is wider.
extern "C" __global__ void elem_convert(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    view_store(a.y, r, h, i, i < a.a.width ? view_load(a.a, r, h, i) : 0.0f);
}

// A row as the sum of two bf16 terms; y has twice the rows. What bf16 does not hold has no second term.
extern "C" __global__ void elem_terms(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.a);
    float x = view_load(a.a, r, h, i), high = __bfloat162float(__float2bfloat16_rn(x));
    view_store(a.y, r, h, i, high);
    view_store(a.y, r + a.a.rows, h, i, fabsf(high) < INFINITY ? x - high : 0.0f);
}

// The results of both terms, + bias.
extern "C" __global__ void elem_terms_sum(KARGS(k_elem) a) {
    after_previous();
    ELEMENT(a.y);
    float x = view_load(a.a, r, h, i) + view_load(a.a, r + a.y.rows, h, i);
    if (a.add) x += a.add[i];
    view_store(a.y, r, h, i, x);
}

// ---- rope: one block per row; the angles of a row are made once for all heads ----

enum { MAX_PAIRS = 512 };

extern "C" __global__ void rope(KARGS(k_rope) a) {
    after_previous();
    __shared__ float cosines[MAX_PAIRS], sines[MAX_PAIRS];
    int64_t r = blockIdx.x;
    int half = a.n_rotated / 2;
    const float *table = a.inv_freq ? a.inv_freq : a.step_rope + ((int64_t)a.seq_of[r] * a.n_rope_tables + a.table) * a.rope_width;
    for (int i = threadIdx.x; i < half; i += blockDim.x) rope_angle(a.places ? a.places[r * 3 + (a.axes[i / 16] >> i % 16 * 2 & 3)] : a.pos[r] + a.shift, table[i], a.magnitude, &cosines[i], &sines[i]);
    __syncthreads();
    for (int e = threadIdx.x; e < a.x.heads * a.x.width; e += blockDim.x) {
        int h = e / a.x.width, i = e % a.x.width, at = i - a.first;
        float x = view_load(a.x, r, h, i);
        if (at >= 0 && at < a.n_rotated) {
            bool halves = a.kind == ROPE_HALF; // (i, i + half), else (2i, 2i + 1)
            int pair = halves ? at % half : at / 2;
            bool second = halves ? at >= half : at % 2;
            float other = view_load(a.x, r, h, i + (halves ? half : 1) * (second ? -1 : 1));
            x = second ? x * cosines[pair] + other * sines[pair] : x * cosines[pair] - other * sines[pair];
        }
        view_store(a.y, r, h, i, x);
    }
}

// ---- the cache: one block per row ----

static __device__ __forceinline__ int64_t cache_at(const k_cache &c, int width, int block, int head, int pos) {
    return (((int64_t)block * c.heads + head) * K_BLOCK + pos % K_BLOCK) * width;
}

extern "C" __global__ void kv_write(KARGS(k_kv_write) a) {
    after_previous();
    int64_t r = blockIdx.x;
    int pos = a.pos[r], block = a.c.table[(int64_t)a.seq_of[r] * a.c.table_stride + pos / K_BLOCK];
    for (int e = threadIdx.x; e < a.c.heads * a.c.k_width; e += blockDim.x) {
        int h = e / a.c.k_width, i = e % a.c.k_width;
        store_f32(a.c.k, a.c.dtype, cache_at(a.c, a.c.k_width, block, h, pos) + i, view_load(a.k, r, h, i));
    }
    if (!a.c.v) return;
    for (int e = threadIdx.x; e < a.c.heads * a.c.v_width; e += blockDim.x) {
        int h = e / a.c.v_width, i = e % a.c.v_width;
        store_f32(a.c.v, a.c.dtype, cache_at(a.c, a.c.v_width, block, h, pos) + i, view_load(a.v, r, h, i));
    }
}

// ---- argmax in two passes: chunks of a row, then their best. Ties go to the lower index; -1 where the first or the largest is not finite, or anything is no number ----

static __device__ __forceinline__ void better(float &best, int &at, float other, int other_at) {
    if (other_at >= 0 && (at < 0 || other > best || (other == best && other_at < at))) best = other, at = other_at;
}

static __device__ __forceinline__ void block_best(float &best, int &at) {
    __shared__ float values[32];
    __shared__ int places[32];
    for (int step = 16; step > 0; step /= 2) better(best, at, __shfl_xor_sync(FULL, best, step), __shfl_xor_sync(FULL, at, step));
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) values[warp] = best, places[warp] = at;
    __syncthreads();
    bool there = lane < blockDim.x / 32;
    best = there ? values[lane] : 0, at = there ? places[lane] : -1;
    for (int step = 16; step > 0; step /= 2) better(best, at, __shfl_xor_sync(FULL, best, step), __shfl_xor_sync(FULL, at, step));
}

extern "C" __global__ void argmax_chunks(KARGS(k_argmax) a) {
    after_previous();
    int64_t r = blockIdx.y, per_chunk = (a.x.width + a.chunks - 1) / a.chunks, first = blockIdx.x * per_chunk;
    int64_t last = first + per_chunk < a.x.width ? first + per_chunk : a.x.width;
    float best = 0;
    int at = -1;
    for (int64_t i = first + threadIdx.x; i < last; i += blockDim.x) {
        float x = view_load(a.x, r, 0, i);
        better(best, at, x == x ? x : INFINITY, (int)i);
    }
    block_best(best, at);
    if (threadIdx.x == 0) a.best[r * a.chunks + blockIdx.x] = best, a.at[r * a.chunks + blockIdx.x] = at;
}

extern "C" __global__ void argmax_rows(KARGS(k_argmax) a) {
    after_previous();
    int64_t r = blockIdx.x;
    float best = 0;
    int at = -1;
    for (int c = threadIdx.x; c < a.chunks; c += blockDim.x) better(best, at, a.best[r * a.chunks + c], a.at[r * a.chunks + c]);
    block_best(best, at);
    if (threadIdx.x == 0) a.y[r * a.y_stride] = a.chosen[r] = at >= 0 && isfinite(best) && isfinite(view_load(a.x, r, 0, 0)) ? at : -1;
}

// ---- streams mixed with each other: a block per row; its first warp's first lane makes the weights ----

static __device__ void divide_by_sums(float *c, int n, bool columns, float eps) {
    for (int i = 0; i < n; i++) {
        float sum = 0;
        for (int j = 0; j < n; j++) sum += c[columns ? j * n + i : i * n + j];
        for (int j = 0; j < n; j++) c[columns ? j * n + i : i * n + j] /= sum + eps;
    }
}

static __device__ void blend_weights(const k_blend &a, int64_t r, float *c) {
    int n = a.x.heads;
    for (int i = 0; i < n; i++) {
        float most = -INFINITY, sum = 0;
        for (int j = 0; j < n; j++) most = fmaxf(most, view_load(a.logits, r, 0, i * n + j));
        for (int j = 0; j < n; j++) sum += c[i * n + j] = expf(view_load(a.logits, r, 0, i * n + j) - most);
        for (int j = 0; j < n; j++) c[i * n + j] = c[i * n + j] / sum + a.eps;
    }
    divide_by_sums(c, n, true, a.eps);
    for (int i = 1; i < a.rounds; i++) {
        divide_by_sums(c, n, false, a.eps);
        divide_by_sums(c, n, true, a.eps);
    }
}

// Grid (rows), 256 threads.
extern "C" __global__ void blend(KARGS(k_blend) a) {
    after_previous();
    __shared__ float c[64]; // of up to eight streams
    int64_t r = blockIdx.x;
    int n = a.x.heads;
    if (threadIdx.x == 0) blend_weights(a, r, c);
    __syncthreads();
    for (int e = threadIdx.x; e < n * a.x.width; e += blockDim.x) {
        int k = e / a.x.width, i = e % a.x.width;
        float y = view_load(a.post, r, 0, k) * view_load(a.made, r, 0, i);
        for (int j = 0; j < n; j++) y = fmaf(c[j * n + k], view_load(a.x, r, j, i), y);
        view_store(a.y, r, k, i, y);
    }
}
