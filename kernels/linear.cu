// Matrix products, the reference rows: every format, every shape, f32 throughout. Also row gather and dequantisation to bf16.
//
// A warp makes one output element for up to four rows of x: lanes take eight weights at a time, k = 8 * lane, 8 * lane + 256, ..., so that a
// row's result does not depend on the rows beside it. Reads each weight once per four rows and x from the caches; stopped by the unpacking.
#include "common.cuh"

enum { ROWS = 4, WARPS = 8 };

// x[k .. k + 8) of a row, zeros beyond n.
static __device__ __forceinline__ void x8(const void *x, int dtype, int64_t at, int n, bool vector, float out[8]) {
    if (vector && dtype == K_F32) {
        float4 a = *(const float4 *)((const float *)x + at), b = *(const float4 *)((const float *)x + at + 4);
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w, out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = i < n ? load_as_f32(x, dtype, at + i) : 0.0f;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 2) linear_ref(KARGS(k_linear) a) {
    after_previous();
    int lane = threadIdx.x % 32;
    int64_t n = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32, head = blockIdx.z;
    int64_t r0 = (int64_t)blockIdx.y * ROWS;
    if (n >= a.n_out) return;
    int64_t column = a.first_out + n, w_row = head * a.w.out + column, k_end = a.w.in;
    bool vector = a.x.row_stride % 4 == 0 && a.x.head_stride % 4 == 0 && (uint64_t)a.x.p % 16 == 0 && k_end % 8 == 0;
    float sum[ROWS] = {0};
    for (int64_t k = lane * 8; k < k_end; k += 256) {
        float w[8], x[8];
        unpack8_any(a.w, w_row, k, w);
        int left = k_end - k < 8 ? (int)(k_end - k) : 8;
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (r0 + r >= a.x.rows) break;
            x8(a.x.p, a.x.dtype, (r0 + r) * a.x.row_stride + head * (a.per_head ? a.x.head_stride : 0) + k, left, vector, x);
#pragma unroll
            for (int i = 0; i < 8; i++) sum[r] = fmaf(w[i], x[i], sum[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float total = warp_sum(sum[r]);
        if (lane == 0 && r0 + r < a.x.rows) {
            if (a.bias) total += a.bias[column];
            view_store(a.y, r0 + r, a.per_head ? head : 0, column, total);
        }
    }
}

// Half of 2 STEP numbers are added to another lane's, and the other half given to it.
template <int STEP> static __device__ __forceinline__ void halve(float x[32]) {
    bool upper = threadIdx.x & STEP;
#pragma unroll
    for (int i = 0; i < STEP; i++) {
        float mine = upper ? x[i + STEP] : x[i], other = upper ? x[i] : x[i + STEP];
        x[i] = mine + __shfl_xor_sync(FULL, other, STEP);
    }
}

// The sum over the warp of each of 32 numbers, in the lane of its index: 31 shuffles for all of them.
static __device__ __forceinline__ float sum_each(float x[32]) {
    halve<16>(x), halve<8>(x), halve<4>(x), halve<2>(x), halve<1>(x);
    return x[0];
}

enum { FEW_RESULTS = 8 };

// sum += the products of x with eight weights of one result.
static __device__ __forceinline__ void add_products(float sum[ROWS * FEW_RESULTS], int n, const float w[8], const float x[ROWS][8]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int i = 0; i < 8; i++) sum[r * FEW_RESULTS + n] = fmaf(w[i], x[r][i], sum[r * FEW_RESULTS + n]);
}

// Results n0 ... n0 + 7 of weights in rows of 4 or 8 bits, with scales and biases of two bytes: all of them are asked for before one is used.
template <int BITS> static __device__ __forceinline__ void few_codes(const k_weight &w, int64_t n0, int64_t k, const float x[ROWS][8], float sum[ROWS * FEW_RESULTS]) {
    uint2 codes[FEW_RESULTS];
    uint32_t meta[FEW_RESULTS];
    int64_t group = (int)k / w.group;
#pragma unroll
    for (int n = 0; n < FEW_RESULTS; n++) {
        int64_t row = n0 + n < w.out ? n0 + n : w.out - 1;
        const unsigned char *from = w.values + row * w.values_bytes + k / 8 * BITS;
        if (BITS == 8) codes[n] = *(const uint2 *)from;
        else codes[n].x = *(const uint32_t *)from;
        meta[n] = ((const uint16_t *)(w.scales + row * w.scales_bytes))[group] | (uint32_t)((const uint16_t *)(w.biases + row * w.biases_bytes))[group] << 16;
    }
#pragma unroll
    for (int n = 0; n < FEW_RESULTS; n++) {
        float v[8], scale = meta_f32(meta[n] & 0xffff, w.dtype), bias = meta_f32(meta[n] >> 16, w.dtype);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            uint32_t word = BITS == 8 && i >= 4 ? codes[n].y : codes[n].x;
            v[i] = __fadd_rn(__fmul_rn((float)(word >> i * BITS % 32 & ((1u << BITS) - 1)), scale), bias);
        }
        add_products(sum, n, v, x);
    }
}

// BITS: of the weight's codes; 0: any format.
template <int BITS> static __device__ __forceinline__ void few_results(const k_linear &a) {
    __shared__ float part[WARPS][ROWS * FEW_RESULTS];
    int64_t n0 = (int64_t)blockIdx.x * FEW_RESULTS, r0 = (int64_t)blockIdx.y * ROWS;
    float sum[ROWS * FEW_RESULTS] = {0};
    for (int64_t k = threadIdx.x * 8; k < a.w.in; k += WARPS * 256) {
        float x[ROWS][8];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int64_t row = r0 + r < a.x.rows ? r0 + r : a.x.rows - 1;
            const float4 *from = (const float4 *)((const float *)a.x.p + row * a.x.row_stride + k);
            *(float4 *)x[r] = from[0], *(float4 *)(x[r] + 4) = from[1];
        }
        if (BITS) few_codes<BITS ? BITS : 8>(a.w, n0, k, x, sum);
#pragma unroll
        for (int n = 0; n < (BITS ? 0 : FEW_RESULTS); n++) {
            float w[8];
            unpack8(a.w, n0 + n < a.w.out ? n0 + n : a.w.out - 1, k, w);
            add_products(sum, n, w, x);
        }
    }
    part[threadIdx.x / 32][threadIdx.x % 32] = sum_each(sum);
    __syncthreads();
    int64_t r = r0 + threadIdx.x / FEW_RESULTS, n = n0 + threadIdx.x % FEW_RESULTS;
    if (threadIdx.x >= ROWS * FEW_RESULTS || r >= a.x.rows || n >= a.w.out) return;
    float total = 0;
    for (int w = 0; w < WARPS; w++) total += part[w][threadIdx.x];
    view_store(a.y, r, 0, n, a.bias ? total + a.bias[n] : total);
}

// The same in f32 where nothing else is asked for than few results of few rows (a router's): eight results of four rows a block, whose warps share
// k, so that everything is asked for at once. x is f32, dense, at multiples of 16 bytes. Grid (results / 8, rows / 4).
#define FEW(name, bits)                                                                          \
    extern "C" __global__ void __launch_bounds__(WARPS * 32) linear_few##name(KARGS(k_linear) a) { \
        after_previous();                                                                        \
        few_results<bits>(a);                                                                    \
    }
FEW(, 0)
FEW(_4, 4)
FEW(_8, 8)

enum { MANY_ROWS = 32, MANY_RESULTS = 64, MANY_K = 64, MANY_THREADS = 256 };

// What a thread brings of a step: eight elements of a row of x, sixteen of a row of the weight. Neighbours have neighbouring rows, so that they meet no bank twice.
struct many_part {
    float x[8], w[16];
};
static __device__ __forceinline__ many_part many_load(const k_linear &a, int64_t r0, int64_t n0, int64_t k) {
    many_part p;
    int64_t row = r0 + threadIdx.x % MANY_ROWS, n = n0 + threadIdx.x % MANY_RESULTS;
    if (row >= a.x.rows) row = a.x.rows - 1;
    if (n >= a.w.out) n = a.w.out - 1;
    const float4 *x = (const float4 *)((const float *)a.x.p + row * a.x.row_stride + k + threadIdx.x / MANY_ROWS * 8);
    *(float4 *)p.x = x[0], *(float4 *)(p.x + 4) = x[1];
    unpack8(a.w, n, k + threadIdx.x / MANY_RESULTS * 16, p.w);
    unpack8(a.w, n, k + threadIdx.x / MANY_RESULTS * 16 + 8, p.w + 8);
    return p;
}

// The same for the rows of a prompt: 32 rows times 64 results a block, two rows times four results a thread, the next step's numbers on their way while this
// one's are multiplied. Stopped by the way of those numbers. Grid (results / 64, rows / 32).
extern "C" __global__ void __launch_bounds__(MANY_THREADS) linear_many(KARGS(k_linear) a) {
    __shared__ float4 x_room[MANY_K * MANY_ROWS / 4], w_room[MANY_K * MANY_RESULTS / 4];
    float *x = (float *)x_room, *w = (float *)w_room;
    after_previous();
    int t = threadIdx.x, row = t / 16 * 2, n = t % 16 * 4;
    int64_t n0 = (int64_t)blockIdx.x * MANY_RESULTS, r0 = (int64_t)blockIdx.y * MANY_ROWS;
    float sum[2][4] = {{0}};
    many_part next = many_load(a, r0, n0, 0);
    for (int64_t k = 0; k < a.w.in; k += MANY_K) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 8; i++) x[(t / MANY_ROWS * 8 + i) * MANY_ROWS + t % MANY_ROWS] = next.x[i];
#pragma unroll
        for (int i = 0; i < 16; i++) w[(t / MANY_RESULTS * 16 + i) * MANY_RESULTS + t % MANY_RESULTS] = next.w[i];
        __syncthreads();
        if (k + MANY_K < a.w.in) next = many_load(a, r0, n0, k + MANY_K);
#pragma unroll 16
        for (int i = 0; i < MANY_K; i++) {
            float2 v = *(const float2 *)(x + i * MANY_ROWS + row);
            float4 u = *(const float4 *)(w + i * MANY_RESULTS + n);
            const float us[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
            for (int j = 0; j < 4; j++) sum[0][j] = fmaf(v.x, us[j], sum[0][j]), sum[1][j] = fmaf(v.y, us[j], sum[1][j]);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
        int64_t r = r0 + row + i / 4, column = n0 + n + i % 4;
        if (r < a.x.rows && column < a.w.out) view_store(a.y, r, 0, column, sum[i / 4][i % 4] + (a.bias ? a.bias[column] : 0.0f));
    }
}

// One block per row.
extern "C" __global__ void embed(KARGS(k_embed) a) {
    after_previous();
    int64_t r = blockIdx.x, index = a.by_position ? a.pos[r] + a.position_offset : a.ids[r];
    if (index < 0 && !a.by_position) index = a.chosen[-1 - index];
    if (a.vocab) index = a.by_type ? index / a.vocab : index % a.vocab;
    if (index >= (a.of ? a.of : a.w.out) || index < 0) index = 0; // below 0: the step before could choose nothing, and its job will end
    index -= a.first;
    if (index < 0 || index >= a.w.out) { // a row of another rank's part
        for (int64_t k = threadIdx.x; k < a.w.in; k += blockDim.x) view_store(a.y, r, 0, k, 0.0f);
        return;
    }
    for (int64_t k = (int64_t)threadIdx.x * 8; k < a.w.in; k += (int64_t)blockDim.x * 8) {
        float w[8];
        unpack8_any(a.w, index, k, w);
        for (int i = 0; i < 8 && k + i < a.w.in; i++) view_store(a.y, r, 0, k + i, w[i] * a.scale);
    }
}

// Eight elements per thread to bf16: reads the weight once, writes 2 bytes per element; stopped by memory.
extern "C" __global__ void dequant(KARGS(k_dequant) a) {
    after_previous();
    int64_t per_row = (a.w.in + 7) / 8, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= per_row * a.n) return;
    int64_t row = i / per_row, k = i % per_row * 8;
    float w[8];
    unpack8_any(a.w, a.first + row, k, w);
    bf16 *out = (bf16 *)a.out + row * a.w.in + k;
    if (a.w.in % 8 == 0) {
        union {
            uint4 v;
            __nv_bfloat162 h[4];
        } u;
#pragma unroll
        for (int j = 0; j < 4; j++) u.h[j] = __floats2bfloat162_rn(w[2 * j], w[2 * j + 1]);
        *(uint4 *)out = u.v;
    } else {
        for (int j = 0; j < 8 && k + j < a.w.in; j++) out[j] = __float2bfloat16_rn(w[j]);
    }
}
