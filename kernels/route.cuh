// The router's choice of a row's experts, made by one warp.
//
// Ties go to the lower index; a score that is not a number is the worst, so that a broken row still names k distinct experts in range.
#pragma once
#include "common.cuh"

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
    for (int i = threadIdx.x % 32; i < n; i += 32)
        if (!(x[i] == x[i])) x[i] = -INFINITY;
    __syncwarp();
}

static __device__ void warp_softmax(float *x, int n) {
    float max = -INFINITY, sum = 0;
    for (int i = threadIdx.x % 32; i < n; i += 32) max = fmaxf(max, x[i]);
    max = warp_max(max);
    for (int i = threadIdx.x % 32; i < n; i += 32) sum += x[i] = expf(x[i] - max);
    sum = warp_sum(sum);
    for (int i = threadIdx.x % 32; i < n; i += 32) x[i] /= sum;
    __syncwarp();
}

// Experts outside the best groups are buried. A taken group becomes NAN.
static __device__ void mask_groups(const k_route_rule &a, float *choice, int n, float *groups) {
    int size = n / a.n_groups;
    for (int g = threadIdx.x % 32; g < a.n_groups; g += 32) {
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
        if (threadIdx.x % 32 == 0) groups[g] = NAN;
        __syncwarp();
    }
    for (int i = threadIdx.x % 32; i < n; i += 32)
        if (groups[i / size] == groups[i / size]) choice[i] = -INFINITY;
    __syncwarp();
}

static __device__ void sparsemixer(const k_route_rule &a, float *logits, int n, int32_t *ids, float *weights) {
    bury_nans(logits, n);
    for (int j = 0; j < a.k; j++) {
        int best = warp_best(logits, n);
        float max = logits[best], sum = 0;
        for (int i = threadIdx.x % 32; i < n; i += 32) {
            float size = fmaxf(fabsf(logits[i]), max);
            if (logits[i] == logits[i] && !((max - logits[i]) / size > 2.0f * a.jitter)) sum += expf(logits[i] - max);
        }
        sum = warp_sum(sum);
        __syncwarp();
        if (threadIdx.x % 32 == 0) ids[j] = best, weights[j] = 1.0f / sum, logits[best] = NAN;
        __syncwarp();
    }
}

// Weights of the chosen from their scores, a lane for each; kept is shared memory for as many numbers.
static __device__ void weigh(const k_route_rule &a, const float *scores, const int *chosen, float *kept, float *out) {
    float sum = 0, max = -INFINITY;
    __syncwarp();
    for (int j = threadIdx.x % 32; j < a.k; j += 32) kept[j] = scores[chosen[j]];
    __syncwarp();
    if (a.score == 2) { // ROUTE_SOFTMAX_AFTER
        for (int j = 0; j < a.k; j++) max = fmaxf(max, kept[j]);
        __syncwarp();
        for (int j = threadIdx.x % 32; j < a.k; j += 32) kept[j] = expf(kept[j] - max);
        __syncwarp();
        for (int j = 0; j < a.k; j++) sum += kept[j];
        __syncwarp();
        for (int j = threadIdx.x % 32; j < a.k; j += 32) kept[j] /= sum;
        __syncwarp();
        sum = 0;
    }
    for (int j = 0; j < a.k; j++) sum += kept[j];
    for (int j = threadIdx.x % 32; j < a.k; j += 32) {
        float w = a.normalize ? kept[j] / (sum + a.norm_eps) : kept[j];
        w *= a.scale;
        out[j] = a.expert_scale ? w * a.expert_scale[chosen[j]] : w;
    }
}

// A row's choice by one warp: ids and weights of its k experts. scores: the router's row, n numbers, with room for two more such rows behind it;
// all are used up. ids and weights lie where the warp's lanes can read what others wrote.
static __device__ __forceinline__ void choose_experts(const k_route_rule &a, float *scores, int n, int32_t *ids, float *weights) {
    float *choice = scores + n, *groups = scores + 2 * n;
    if (a.score == 3) {
        sparsemixer(a, scores, n, ids, weights);
        return;
    }
    if (a.score == 0) warp_softmax(scores, n);
    for (int i = threadIdx.x % 32; i < n; i += 32) {
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
        if (threadIdx.x % 32 == 0) ids[j] = chosen[j] = best, choice[best] = NAN;
        __syncwarp();
    }
    weigh(a, scores, chosen, choice, weights);
}
