// Mixtures of experts: the router's choice and the feed-forward of the chosen experts. The host never reads the choice.
#include "route.cuh"

enum { WARPS = 8 };

// ---- route: one warp per row; scores, choices, and groups or the chosen in shared memory, [3][experts] ----

extern "C" __global__ void route(KARGS(k_route) a) {
    after_previous();
    DYNAMIC_SHARED(float, smem);
    int64_t r = blockIdx.x;
    for (int i = threadIdx.x; i < a.x.width; i += 32) smem[i] = view_load(a.x, r, 0, i);
    __syncwarp();
    choose_experts(a.rule, smem, a.x.width, a.ids + r * a.ids_stride, a.weights + r * a.weights_stride);
}

// ---- experts without matrices taken out of the choice: a thread per row; the first ones that it did not choose stand in, of weight 0 ----

static __device__ bool is_chosen(const int32_t *ids, int k, int id) {
    for (int i = 0; i < k; i++)
        if (ids[i] == id) return true;
    return false;
}

// Grid (rows / 128), 128 threads.
extern "C" __global__ void passing(KARGS(k_passing) a) {
    after_previous();
    int64_t r = (int64_t)blockIdx.x * 128 + threadIdx.x;
    if (r >= a.rows) return;
    const int32_t *ids = a.ids + r * a.ids_stride;
    float sum = 0;
    for (int i = 0, spare = 0; i < a.k; i++) {
        bool passes = ids[i] >= a.n_experts;
        float weight = a.weights[r * a.weights_stride + i];
        while (passes && is_chosen(ids, a.k, spare)) spare++;
        a.out_ids[r * a.k + i] = passes ? spare++ : ids[i];
        a.out_weights[r * (a.k + 1) + i] = passes ? 0.0f : weight;
        sum += passes ? weight : 0.0f;
    }
    a.out_weights[r * (a.k + 1) + a.k] = sum;
}

// ---- experts, the reference rows: every pair (row, choice) by itself. Reads a chosen expert's weights once per pair ----

static __device__ __noinline__ float dot_row(const k_weight &w, int64_t row, const void *x, int dtype, int64_t at, bool vector) {
    float sum = 0;
    for (int64_t k = threadIdx.x % 32 * 8; k < w.in; k += 256) {
        float v[8];
        unpack8_any(w, row, k, v);
        if (vector && dtype == K_F32) {
            float4 p = *(const float4 *)((const float *)x + at + k), q = *(const float4 *)((const float *)x + at + k + 4);
            sum = fmaf(v[0], p.x, fmaf(v[1], p.y, fmaf(v[2], p.z, fmaf(v[3], p.w, sum))));
            sum = fmaf(v[4], q.x, fmaf(v[5], q.y, fmaf(v[6], q.z, fmaf(v[7], q.w, sum))));
        } else {
            for (int i = 0; i < 8 && k + i < w.in; i++) sum = fmaf(v[i], load_as_f32(x, dtype, at + k + i), sum);
        }
    }
    return warp_sum(sum);
}

// Grid (pairs, inner / WARPS): one warp makes one activated inner value.
extern "C" __global__ void __launch_bounds__(WARPS * 32) experts_inner(KARGS(k_experts) a) {
    after_previous();
    int64_t n = (int64_t)blockIdx.y * WARPS + threadIdx.x / 32, pair = blockIdx.x, r = pair / a.k;
    if (n >= a.inner) return;
    int64_t e = a.ids[r * a.ids_stride + pair % a.k] - a.first, at = r * a.x.row_stride;
    if (e < 0 || e >= a.n_experts) return;
    bool vector = a.up.in % 8 == 0 && at % 4 == 0 && (uint64_t)a.x.p % 16 == 0;
    float factor = a.scale_input ? a.weights[r * a.weights_stride + pair % a.k] : 1.0f;
    float up = dot_row(a.up, e * a.up_rows + a.up_first + n, a.x.p, a.x.dtype, at, vector) * factor;
    if (a.up_bias) up += a.up_bias[e * a.up_bias_stride + a.up_bias_first + n];
    float value;
    if (a.gate.values) {
        float gate = dot_row(a.gate, e * a.gate_rows + n, a.x.p, a.x.dtype, at, vector) * factor;
        if (a.gate_bias) gate += a.gate_bias[e * a.gate_bias_stride + n];
        value = gated(a.act, gate, up);
    } else {
        value = act(a.act.kind, up, a.act.p) * a.act.scale;
    }
    if (threadIdx.x % 32 == 0) a.inner_values[pair * a.inner + n] = value;
}

// Grid (rows, out / WARPS): one warp folds the chosen experts of a row in ascending order.
extern "C" __global__ void __launch_bounds__(WARPS * 32) experts_down(KARGS(k_experts) a) {
    after_previous();
    int64_t n = (int64_t)blockIdx.y * WARPS + threadIdx.x / 32, r = blockIdx.x;
    if (n >= a.down.out) return;
    const int32_t *ids = a.ids + r * a.ids_stride;
    float total = 0;
    int last = -1;
    for (int done = 0; done < a.k; done++) {
        int next = 0x7fffffff, choice = 0;
        for (int j = 0; j < a.k; j++)
            if (ids[j] > last && ids[j] < next) next = ids[j], choice = j;
        last = next;
        if (next < a.first || next >= a.first + a.n_experts) continue; // another rank's
        next -= a.first;
        bool vector = a.inner % 8 == 0;
        float sum = dot_row(a.down, (int64_t)next * a.down.out + n, a.inner_values, K_F32, (r * a.k + choice) * a.inner, vector);
        if (a.down_bias) sum += a.down_bias[(int64_t)next * a.down.out + n];
        total += a.scale_input ? sum : sum * a.weights[r * a.weights_stride + choice];
    }
    if (threadIdx.x % 32 == 0) view_store(a.y, r, 0, n, total);
}
