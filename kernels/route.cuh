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
    if (a.score == ROUTE_SOFTMAX_AFTER) {
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

// The same without shared memory, for up to 256 experts in no groups: a lane has eight scores, of experts 64 j + 2 lane and the next one.

enum { IN_LANES = 8, IN_WARP = 32 * IN_LANES };

static __device__ __forceinline__ bool suits_lanes(const k_route_rule &a, int n) {
    return n <= IN_WARP && a.n_groups <= 1 && a.score != ROUTE_SPARSEMIXER && a.k <= 32;
}
static __device__ __forceinline__ int expert_of(int i, int lane) {
    return i / 2 * 64 + 2 * lane + i % 2;
}

// A number's rank among others as an integer above 1: NANs have 1, and 0 is for what was taken.
static __device__ __forceinline__ uint32_t rank_of(float x) {
    uint32_t bits = __float_as_uint(x);
    if (!(x == x)) return 1;
    uint32_t rank = bits >> 31 ? ~bits : bits | 0x80000000u;
    return rank < 2 ? 2 : rank;
}

#ifdef MLXCEL_EMULATE
static inline uint32_t best_of_warp(uint32_t x) {
    for (int step = 16; step > 0; step /= 2) {
        uint32_t y = __shfl_xor_sync(FULL, x, step);
        x = x > y ? x : y;
    }
    return x;
}
#elif __CUDA_ARCH__ >= 800
static __device__ __forceinline__ uint32_t best_of_warp(uint32_t x) {
    return __reduce_max_sync(FULL, x);
}
#else
static __device__ __forceinline__ uint32_t best_of_warp(uint32_t x) {
    for (int step = 16; step > 0; step /= 2) x = max(x, __shfl_xor_sync(FULL, x, step));
    return x;
}
#endif

// Scores become what weights are made of: the softmax's numerators, or logistic values. Returns the softmax's sum, 1 of others.
static __device__ __forceinline__ float score_lanes(const k_route_rule &a, float x[IN_LANES], int n) {
    int lane = threadIdx.x % 32;
    float most = -INFINITY, sum = 0;
    if (a.score == ROUTE_SOFTMAX_AFTER || a.score == ROUTE_PLAIN) return 1.0f;
#pragma unroll
    for (int i = 0; i < IN_LANES; i++)
        if (expert_of(i, lane) < n) most = fmaxf(most, x[i]);
    if (a.score == ROUTE_SOFTMAX) most = warp_max(most);
#pragma unroll
    for (int i = 0; i < IN_LANES; i++) {
        if (expert_of(i, lane) >= n) continue;
        x[i] = a.score == ROUTE_SOFTMAX ? expf(x[i] - most) : sigmoid(x[i]);
        sum += x[i];
    }
    return a.score == ROUTE_SOFTMAX ? warp_sum(sum) : 1.0f;
}

// The weight of choice `lane`, from its score.
static __device__ __forceinline__ float weigh_lane(const k_route_rule &a, float kept, int id) {
    int lane = threadIdx.x % 32;
    bool there = lane < a.k;
    if (a.score == ROUTE_SOFTMAX_AFTER) {
        float most = __shfl_sync(FULL, kept, 0);
        kept = there ? expf(kept - most) : 0.0f;
        kept /= warp_sum(kept);
    }
    float sum = warp_sum(there ? kept : 0.0f), w = (a.normalize ? kept / (sum + a.norm_eps) : kept) * a.scale;
    return there && a.expert_scale ? w * a.expert_scale[id] : w;
}

static __device__ __forceinline__ void choose_in_lanes(const k_route_rule &a, float x[IN_LANES], int n, int32_t *ids, float *weights) {
    int lane = threadIdx.x % 32, my_id = 0;
    uint32_t ranks[IN_LANES];
    float my_score = 0, sum = score_lanes(a, x, n);
#pragma unroll
    for (int i = 0; i < IN_LANES; i++) {
        int e = expert_of(i, lane);
        ranks[i] = e < n ? rank_of(a.bias ? x[i] / sum + a.bias[e] : x[i]) : 0;
    }
#pragma unroll 1
    for (int j = 0; j < a.k; j++) {
        uint32_t most = 0;
        int at = 0x7fffffff;
        float score = 0;
#pragma unroll
        for (int i = IN_LANES - 1; i >= 0; i--)
            if (ranks[i] >= most) most = ranks[i], at = expert_of(i, lane), score = x[i];
        uint32_t best = best_of_warp(most);
        at = (int)~best_of_warp(most == best ? ~(uint32_t)at : 0u); // the lowest index
#pragma unroll
        for (int i = 0; i < IN_LANES; i++)
            if (expert_of(i, lane) == at) ranks[i] = 0;
        score = __shfl_sync(FULL, score, at % 64 / 2);
        if (lane == j) my_id = at, my_score = score;
    }
    float w = weigh_lane(a, my_score / sum, my_id);
    if (lane < a.k) ids[lane] = my_id, weights[lane] = w;
}

// A row's choice by one warp: ids and weights of its k experts. scores: the router's row, n numbers, with room for two more such rows behind it;
// all are used up. ids and weights lie where the warp's lanes can read what others wrote.
static __device__ __forceinline__ void choose_experts(const k_route_rule &a, float *scores, int n, int32_t *ids, float *weights) {
    if (suits_lanes(a, n)) {
        float x[IN_LANES];
#pragma unroll
        for (int i = 0; i < IN_LANES; i++) x[i] = expert_of(i, threadIdx.x % 32) < n ? scores[expert_of(i, threadIdx.x % 32)] : 0.0f;
        choose_in_lanes(a, x, n, ids, weights);
        return;
    }
    float *choice = scores + n, *groups = scores + 2 * n;
    if (a.score == ROUTE_SPARSEMIXER) {
        sparsemixer(a, scores, n, ids, weights);
        return;
    }
    if (a.score == ROUTE_SOFTMAX) warp_softmax(scores, n);
    for (int i = threadIdx.x % 32; i < n; i += 32) {
        if (a.score == ROUTE_SIGMOID) scores[i] = sigmoid(scores[i]);
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
