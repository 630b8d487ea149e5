// What adapters add to a product or an embedding, row by row: rows of one step may have different ones, several, or none. Two kernels: every row through the
// small matrices down to their ranks, then up again onto the product. A number depends on its own row alone. Everything is f32.
#include "backend/cuda/shared/adapt.h"
#include "common.cuh"

enum { WARPS = ADAPT_WARPS, ROWS = ADAPT_ROWS };

static __device__ __forceinline__ int64_t step_row(const k_adapt &a, int64_t r) {
    return a.wanted ? a.wanted[r] : r;
}

// How much of the part's adapter the row takes; 0: nothing of it is computed.
static __device__ __forceinline__ float scale_of(const k_adapt &a, const k_adapt_part &p, int64_t r) {
    return a.scales[(int64_t)a.seq_of[step_row(a, r)] * a.n_adapters + p.adapter];
}

static __device__ __forceinline__ float *hidden_of(const k_adapt &a, const k_adapt_part &p, int64_t r) {
    return a.hidden + r * a.n_hidden + p.at;
}

// An embedding's x is the token: a row of the table.
static __device__ __forceinline__ float row_of_token(const k_adapt &a, const k_adapt_part &p, int64_t r, int k) {
    int id = a.ids[r];
    if (id < 0) id = a.chosen[-1 - id];
    return p.down[(int64_t)(id >= 0 && id < p.in ? id : 0) * p.rank + k] * a.scale;
}

// Grid (rank / WARPS, parts, rows / ROWS): a warp makes one number for each of ROWS rows, so that they share what it reads of the matrix.
extern "C" __global__ void adapt_down(KARGS(k_adapt) a) {
    after_previous();
    const k_adapt_part &p = a.parts[blockIdx.y];
    int k = blockIdx.x * WARPS + threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t first = (int64_t)blockIdx.z * ROWS;
    if (k >= p.rank) return;
    float sums[ROWS];
    bool takes[ROWS], any = false;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        sums[i] = 0;
        takes[i] = first + i < a.y.rows && scale_of(a, p, first + i) != 0;
        any |= takes[i];
    }
    if (!any) return;
    for (int64_t at = lane; !a.by_token && at < p.in; at += 32) {
        float w = p.down[k * (int64_t)p.in + at];
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (takes[i]) sums[i] = fmaf(w, view_load(a.x, first + i, 0, at), sums[i]);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        if (!takes[i]) continue;
        float h = a.by_token ? row_of_token(a, p, first + i, k) : warp_sum(sums[i]);
        if (lane == 0) hidden_of(a, p, first + i)[k] = h;
    }
}

// Grid (outputs / 256, rows). Parts are added in their order.
extern "C" __global__ void adapt_up(KARGS(k_adapt) a) {
    after_previous();
    int64_t r = blockIdx.y;
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= a.y.width) return;
    float y = view_load(a.y, r, 0, i), out = a.adds ? view_load(a.out, r, 0, i) : y;
    for (int n = 0; n < a.n_parts; n++) {
        const k_adapt_part &p = a.parts[n];
        float scale = scale_of(a, p, r);
        int row = i - p.first;
        if (scale == 0 || row < 0 || row >= p.out) continue;
        const float *up = p.up + (int64_t)row * p.rank, *h = hidden_of(a, p, r);
        float sum = 0;
        for (int k = 0; k < p.rank; k++) sum = fmaf(up[k], h[k], sum);
        if (p.gain) sum += p.gain[row] * (y - (a.bias ? a.bias[i] : 0.0f));
        out = fmaf(scale, sum, out);
    }
    view_store(a.out, r, 0, i, out);
}
