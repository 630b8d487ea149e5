// Mixtures of experts: the router's choice and the feed-forward of the chosen experts. The host never reads the choice.
//
// Ties go to the lower index; a score that is not a number is the worst, so that a broken row still names k distinct experts in range.
#include "common.cuh"

enum { WARPS = 8 };

// ---- route: one warp per row; scores, choices, and groups or the chosen in shared memory, [3][experts] ----

// Index of the best of n, lower index first; NAN only where all are.
static __device__ __forceinline__ int warp_best(const float *x, int n) {
    int lane = threadIdx.x % 32, at = -1;
    float best = -INFINITY;
    for (int i = lane; i < n; i += 32)
        if (x[i] == x[i] && (at < 0 || x[i] > best)) best = x[i], at = i;
    for (int step = 16; step > 0; step /= 2) {
        float other = __shfl_xor_sync(FULL, best, step);
        int other_at = __shfl_xor_sync(FULL, at, step);
        if (other_at >= 0 && (at < 0 || other > best || (other == best && other_at < at))) best = other, at = other_at;
    }
    return at < 0 ? 0 : at;
}

static __device__ __forceinline__ void bury_nans(float *x, int n) {
    for (int i = threadIdx.x; i < n; i += 32)
        if (!(x[i] == x[i])) x[i] = -INFINITY;
    __syncwarp();
}

static __device__ void warp_softmax(float *x, int n) {
    float max = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < n; i += 32) max = fmaxf(max, x[i]);
    max = warp_max(max);
    for (int i = threadIdx.x; i < n; i += 32) sum += x[i] = expf(x[i] - max);
    sum = warp_sum(sum);
    for (int i = threadIdx.x; i < n; i += 32) x[i] /= sum;
    __syncwarp();
}

// Experts outside the best groups are buried. A taken group becomes NAN.
static __device__ void mask_groups(const k_route &a, float *choice, int n, float *groups) {
    int size = n / a.n_groups;
    for (int g = threadIdx.x; g < a.n_groups; g += 32) {
        float best = choice[g * size];
        int at = 0;
        for (int i = 1; i < size; i++) {
            float x = choice[g * size + i];
            if (x > best || (!(best == best) && x == x)) best = x, at = i;
        }
        if (a.group_top2 && size > 1) {
            float second = -INFINITY;
            for (int i = 0; i < size; i++)
                if (i != at && choice[g * size + i] > second) second = choice[g * size + i];
            best += second;
        }
        groups[g] = best == best ? best : -INFINITY;
    }
    __syncwarp();
    for (int j = 0; j < a.top_groups; j++) {
        int g = warp_best(groups, a.n_groups);
        __syncwarp();
        if (threadIdx.x == 0) groups[g] = NAN;
        __syncwarp();
    }
    for (int i = threadIdx.x; i < n; i += 32)
        if (groups[i / size] == groups[i / size]) choice[i] = -INFINITY;
    __syncwarp();
}

static __device__ void sparsemixer(const k_route &a, float *logits, int n, int32_t *ids, float *weights) {
    bury_nans(logits, n);
    for (int j = 0; j < a.k; j++) {
        int best = warp_best(logits, n);
        float max = logits[best], sum = 0;
        for (int i = threadIdx.x; i < n; i += 32) {
            float size = fmaxf(fabsf(logits[i]), max);
            if (logits[i] == logits[i] && !((max - logits[i]) / size > 2.0f * a.jitter)) sum += expf(logits[i] - max);
        }
        sum = warp_sum(sum);
        __syncwarp();
        if (threadIdx.x == 0) ids[j] = best, weights[j] = 1.0f / sum, logits[best] = NAN;
        __syncwarp();
    }
}

// Weights of the chosen from their scores, a lane for each; kept is shared memory for as many numbers.
static __device__ void weigh(const k_route &a, const float *scores, const int *chosen, float *kept, float *out) {
    float sum = 0, max = -INFINITY;
    __syncwarp();
    for (int j = threadIdx.x; j < a.k; j += 32) kept[j] = scores[chosen[j]];
    __syncwarp();
    if (a.score == 2) { // ROUTE_SOFTMAX_AFTER
        for (int j = 0; j < a.k; j++) max = fmaxf(max, kept[j]);
        __syncwarp();
        for (int j = threadIdx.x; j < a.k; j += 32) kept[j] = expf(kept[j] - max);
        __syncwarp();
        for (int j = 0; j < a.k; j++) sum += kept[j];
        __syncwarp();
        for (int j = threadIdx.x; j < a.k; j += 32) kept[j] /= sum;
        __syncwarp();
        sum = 0;
    }
    for (int j = 0; j < a.k; j++) sum += kept[j];
    for (int j = threadIdx.x; j < a.k; j += 32) {
        float w = a.normalize ? kept[j] / (sum + a.norm_eps) : kept[j];
        w *= a.scale;
        out[j] = a.expert_scale ? w * a.expert_scale[chosen[j]] : w;
    }
}

extern "C" __global__ void route(KARGS(k_route) a) {
    DYNAMIC_SHARED(float, smem); // [3][experts]
    int n = a.x.width;
    float *scores = smem, *choice = smem + n, *groups = smem + 2 * n;
    int64_t r = blockIdx.x;
    int32_t *ids = a.ids + r * a.ids_stride;
    float *weights = a.weights + r * a.weights_stride;
    for (int i = threadIdx.x; i < n; i += 32) scores[i] = view_load(a.x, r, 0, i);
    __syncwarp();
    if (a.score == 3) {
        sparsemixer(a, scores, n, ids, weights);
        return;
    }
    if (a.score == 0) warp_softmax(scores, n);
    for (int i = threadIdx.x; i < n; i += 32) {
        if (a.score == 1) scores[i] = sigmoid(scores[i]);
        choice[i] = a.bias ? scores[i] + a.bias[i] : scores[i];
    }
    __syncwarp();
    if (a.n_groups > 1) mask_groups(a, choice, n, groups);
    bury_nans(choice, n);
    int *chosen = (int *)groups;
    for (int j = 0; j < a.k; j++) {
        int best = warp_best(choice, n);
        __syncwarp();
        if (threadIdx.x == 0) ids[j] = chosen[j] = best, choice[best] = NAN;
        __syncwarp();
    }
    weigh(a, scores, chosen, choice, weights);
}

// ---- experts, the reference rows: every pair (row, choice) by itself. Reads a chosen expert's weights once per pair ----

static __device__ __forceinline__ float dot_row(const k_weight &w, int64_t row, const void *x, int dtype, int64_t at, bool vector) {
    float sum = 0;
    for (int64_t k = threadIdx.x % 32 * 8; k < w.in; k += 256) {
        float v[8];
        unpack8(w, row, k, v);
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
    int64_t n = (int64_t)blockIdx.y * WARPS + threadIdx.x / 32, pair = blockIdx.x, r = pair / a.k;
    if (n >= a.inner) return;
    int64_t e = a.ids[r * a.ids_stride + pair % a.k], at = r * a.x.row_stride;
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
        bool vector = a.inner % 8 == 0;
        float sum = dot_row(a.down, (int64_t)next * a.down.out + n, a.inner_values, K_F32, (r * a.k + choice) * a.inner, vector);
        if (a.down_bias) sum += a.down_bias[(int64_t)next * a.down.out + n];
        total += a.scale_input ? sum : sum * a.weights[r * a.weights_stride + choice];
    }
    if (threadIdx.x % 32 == 0) view_store(a.y, r, 0, n, total);
}
