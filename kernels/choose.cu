// Choosing tokens on the GPU: bias, penalties and masks, the cuts (top-k, top-p, min-p), temperature, one random draw; and the log-probabilities
// of the token and of the most likely ones. Meaning and order are those of src/engine/sampler.c.
//
// All cuts are thresholds: what is kept are the logits above `cut`, and those equal to it up to the token `tie`. The draw goes over the kept tokens
// in the order of their numbers, so nothing has to be sorted but short lists.
//
// Up to five launches over slices of rows; the last block of a row to finish does what needs the whole row:
//   choose_shape   rows with bias, penalties or a mask are copied and changed
//   choose_max     the largest logit; and of each warp's, so that the k-th largest of these bounds the k-th largest of all from below
//   choose_count   for top-p alone, and for large k: how many tokens, and how much of the sum, lie in each 64th of a unit below the largest; which of
//                  these buckets the cuts go through
//   choose_gather  lists the tokens that may be among the k best, or those of the buckets; the row's last block finds the cuts in the lists, and the
//                  most likely tokens for the report, and draws from the list where it holds all that is kept
//   choose_draw    else: sums of the kept weights by pieces of 2,048 tokens, then the piece and the token that the random number hits
//
// Bytes: a row of 151,936 logits is read twice, or three times for top-p alone, out of L2 where the head's product has just left it. Nothing is added up by floating-point
// atomics: the same row gives the same token whatever else runs.
#include "sync.cuh"

enum { THREADS = CHOOSE_THREADS, WARPS = THREADS / 32 };
#define BUCKETS_PER_UNIT 64.0f

// ---- the row that a block works on ----

struct row_view {
    const float *x;
    int row, virtual_row;
    bool chooses, reports;
    bool is_even; // it begins at a multiple of 16 bytes
};

static __device__ __forceinline__ bool is_shaped(const k_choice &c) {
    return c.slot >= 0 || c.mask >= 0;
}

// False: nothing is wanted of this virtual row.
static __device__ __forceinline__ bool open_row(const k_choose &a, int virtual_row, row_view *out) {
    int row = virtual_row % a.rows;
    const k_choice &c = a.choices[row];
    bool shaped = is_shaped(c), second = virtual_row >= a.rows;
    out->row = row;
    out->virtual_row = virtual_row;
    out->chooses = !second;
    out->reports = c.n_top >= 0 && second == shaped;
    out->x = shaped && !second ? a.shaped + (int64_t)row * a.vocab : a.logits + row * a.stride;
    out->is_even = ((uintptr_t)out->x & 15) == 0;
    return out->chooses || out->reports;
}

static __device__ __forceinline__ void slice_of(const k_choose &a, int slice, int *first, int *last) {
    int pieces = (a.vocab + K_PIECE - 1) / K_PIECE, each = (pieces + a.slices - 1) / a.slices * K_PIECE;
    *first = min(slice * each, a.vocab);
    *last = min(*first + each, a.vocab);
}

// Four logits of a row from token i on, of those before `last`; the others are -INFINITY. Rows of even widths are read in one piece.
static __device__ __forceinline__ void load_four(const k_choose &a, const row_view &r, int i, int last, float out[4]) {
    if (r.is_even && i + 4 <= last) {
        float4 v = *(const float4 *)(r.x + i);
        out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    } else {
        for (int k = 0; k < 4; k++) out[k] = i + k < last ? r.x[i + k] : -INFINITY;
    }
}

// Whether this block is the last of its row to come here.
static __device__ __forceinline__ bool is_last_of_row(const k_choose &a, int virtual_row) {
    __shared__ uint32_t last;
    return is_last_block(&a.counters[virtual_row], a.slices, &last);
}

// A number that is the smaller the larger the logit; both zeros are one.
static __device__ __forceinline__ uint32_t rank_bits(float x) {
    uint32_t bits = __float_as_uint(x + 0.0f);
    return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

static __device__ __forceinline__ float rank_value(uint32_t rank) {
    return __uint_as_float(rank & 0x80000000u ? rank : ~rank & 0x7fffffffu);
}

// The bucket of a logit, the best in bucket 0; the last one holds all that is 32 units and more below.
static __device__ __forceinline__ int bucket_of(float x, float largest) {
    float b = (largest - x) * BUCKETS_PER_UNIT;
    return b < (float)(K_BUCKETS - 1) ? (int)b : K_BUCKETS - 1;
}

static __device__ __forceinline__ float block_sum_512(float x) {
    __shared__ float scratch[32];
    return block_sum(x, scratch);
}

// ---- bias, penalties, masks ----

static __device__ __forceinline__ float penalized(float x, uint32_t said, const k_choice &c) {
    uint32_t seen = said & 0xffffu, times = said >> 16;
    if (seen) x = x > 0 ? x / c.repetition : x * c.repetition;
    if (times) x -= (float)times * c.frequency + c.presence;
    return x;
}

// The token of the row itself, which came after the tables were made.
static __device__ __forceinline__ int input_token(const k_choose &a, int row) {
    int id = a.ids[a.wanted_rows[row]];
    return id < 0 ? a.chosen[-1 - id] : id;
}

extern "C" __global__ void __launch_bounds__(THREADS) choose_shape(KARGS(k_choose) a) {
    after_previous();
    int row = blockIdx.y, first, last;
    const k_choice &c = a.choices[row];
    if (!is_shaped(c)) return;
    slice_of(a, blockIdx.x, &first, &last);
    const float *x = a.logits + row * a.stride;
    float *y = a.shaped + (int64_t)row * a.vocab;
    uint32_t *said = c.slot >= 0 ? a.said + (int64_t)c.slot * a.vocab : nullptr;
    if (threadIdx.x == 0 && said) {
        int token = c.counts_input ? input_token(a, row) : -1;
        if (token >= first && token < last) said[token] += 0x10001u;
        if (c.leaves >= first && c.leaves < last) said[c.leaves] -= 1;
    }
    if (c.n_bias > 0) {
        for (int i = first + threadIdx.x; i < last; i += THREADS) y[i] = x[i];
        __syncthreads();
        for (int i = threadIdx.x; i < c.n_bias; i += THREADS) { // tokens differ
            k_bias b = a.bias[(int64_t)c.slot * K_BIAS_MAX + i];
            if (b.token >= first && b.token < last) y[b.token] += b.bias;
        }
        x = y;
    }
    __syncthreads();
    const uint32_t *mask = c.mask >= 0 ? a.masks + (int64_t)c.mask * a.mask_words : nullptr;
#pragma unroll 2
    for (int i = first + threadIdx.x; i < last; i += THREADS) {
        float v = x[i];
        uint32_t times = said ? said[i] : 0;
        if (times) v = penalized(v, times, c);
        if (mask && !(mask[i / 32] >> (i % 32) & 1)) v = -INFINITY;
        y[i] = v;
    }
}

// ---- the largest logit ----

static __device__ __forceinline__ void better(float &best, int &at, float other, int other_at) {
    if (other_at >= 0 && (at < 0 || other > best || (other == best && other_at < at))) best = other, at = other_at;
}

// groups: NULL, or where the best of each warp is written.
static __device__ __forceinline__ void block_best(float &best, int &at, float *groups) {
    __shared__ float values[32];
    __shared__ int places[32];
    for (int step = 16; step > 0; step /= 2) better(best, at, __shfl_xor_sync(FULL, best, step), __shfl_xor_sync(FULL, at, step));
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (lane == 0) values[warp] = best, places[warp] = at;
    if (lane == 0 && groups) groups[warp] = at >= 0 ? best : -INFINITY;
    __syncthreads();
    bool there = lane < WARPS;
    best = there ? values[lane] : 0, at = there ? places[lane] : -1;
    for (int step = 16; step > 0; step /= 2) better(best, at, __shfl_xor_sync(FULL, best, step), __shfl_xor_sync(FULL, at, step));
    __syncthreads();
}

// What the cuts other than top-k and top-p leave of a row.
static __device__ __forceinline__ float least_kept(const k_choice &c, float largest) {
    return c.min_p > 0 && c.temperature > 0 ? largest + logf(c.min_p) : -INFINITY;
}

static __device__ __forceinline__ bool wants_cuts(const k_choice &c, const row_view &r) {
    return r.chooses && c.temperature > 0 && (c.top_k > 0 || c.top_p < 1);
}

// How many of the best must be listed: for top-k, and for the report.
static __device__ __forceinline__ int count_listed(const k_choice &c, const row_view &r) {
    int n = r.reports ? c.n_top : 0;
    return wants_cuts(c, r) && c.top_k > n ? c.top_k : n;
}

// Whether the best of each warp are enough to bound the list.
static __device__ __forceinline__ bool is_short(const k_choose &a, int listed) {
    return listed <= a.slices * WARPS / 2;
}

// Of n numbers, n at most GROUPS_MAX, one that k of them reach: the k-th largest, or, where there are many for this k, the k-th largest of the
// largest of each four. Comparing all with all takes a while, and a bound that is a little lower only makes a list a little longer.
enum { GROUPS_MAX = 32 * WARPS };
static __device__ float kth_largest(const float *x, int n, int k) {
    __shared__ float all[GROUPS_MAX], found;
    bool by_four = n % 4 == 0 && k <= n / 8;
    for (int i = threadIdx.x; i < (by_four ? n / 4 : n); i += THREADS) {
        all[i] = by_four ? fmaxf(fmaxf(x[4 * i], x[4 * i + 1]), fmaxf(x[4 * i + 2], x[4 * i + 3])) : x[i];
    }
    if (by_four) n /= 4;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) {
        int before = 0;
        for (int j = 0; j < n; j++) before += all[j] > all[i] || (all[j] == all[i] && j < i);
        if (before == k - 1) found = all[i];
    }
    __syncthreads();
    return found;
}

// The best of each warp of a row lie where its buckets will.
static __device__ __forceinline__ float *groups_of(const k_choose &a, int virtual_row) {
    return (float *)(a.buckets + (int64_t)virtual_row * a.slices * 2 * K_BUCKETS);
}

extern "C" __global__ void __launch_bounds__(THREADS) choose_max(KARGS(k_choose) a) {
    after_previous();
    row_view r;
    int first, last, slices = a.slices;
    if (!open_row(a, blockIdx.y, &r)) return;
    slice_of(a, blockIdx.x, &first, &last);
    float best = 0;
    int at = -1;
#pragma unroll 2
    for (int i = first + 4 * (int)threadIdx.x; i < last; i += 4 * THREADS) {
        float x[4];
        load_four(a, r, i, last, x);
        for (int k = 0; k < 4; k++) {
            float v = x[k] == x[k] ? x[k] : INFINITY; // what is no number wins, and is refused below
            if (i + k < last && (at < 0 || v > best)) best = v, at = i + k;
        }
    }
    const k_choice &c = a.choices[r.row];
    int listed = count_listed(c, r);
    float *groups = groups_of(a, r.virtual_row);
    block_best(best, at, listed > 0 ? groups + blockIdx.x * WARPS : nullptr);
    int64_t here = (int64_t)r.virtual_row * slices;
    if (threadIdx.x == 0) a.part_best[here + blockIdx.x] = best, a.part_at[here + blockIdx.x] = at;
    if (!is_last_of_row(a, r.virtual_row)) return;
    best = 0, at = -1;
    for (int i = threadIdx.x; i < slices; i += THREADS) better(best, at, a.part_best[here + i], a.part_at[here + i]);
    block_best(best, at, nullptr);
    float from = listed > 0 && is_short(a, listed) ? kth_largest(groups, slices * WARPS, listed) : INFINITY;
    if (threadIdx.x) return;
    bool usable = at >= 0 && isfinite(best);
    k_choose_row state = {best, usable ? at : -1, 0, least_kept(c, best), a.vocab, -1, -1, from};
    a.state[r.virtual_row] = state;
    a.list_n[2 * r.virtual_row] = a.list_n[2 * r.virtual_row + 1] = 0;
    if (!r.chooses) return;
    k_chosen *out = &a.out[r.row];
    out->n_top = -1;
    if (usable && c.temperature > 0) return; // choose_draw decides
    out->token = a.chosen[r.row] = state.at;
    out->logit = usable ? a.logits[r.row * a.stride + at] : 0;
}

// ---- buckets ----

static __device__ __forceinline__ bool wants_lists(const k_choice &c, const row_view &r, const k_choose_row &s) {
    return s.at >= 0 && (r.reports || wants_cuts(c, r));
}

static __device__ __forceinline__ bool wants_buckets(const k_choose &a, const k_choice &c, const row_view &r, const k_choose_row &s) {
    return s.at >= 0 && ((wants_cuts(c, r) && c.top_k == 0) || !is_short(a, count_listed(c, r)));
}

// The first bucket at whose end the running sum of v reaches `target`; the last bucket where it never does. v: K_BUCKETS numbers in shared memory.
static __device__ int find_bucket(double *v, double target) {
    __shared__ int found;
    if (threadIdx.x == 0) found = K_BUCKETS - 1;
    for (int step = 1; step < K_BUCKETS; step *= 2) {
        double add[K_BUCKETS / THREADS];
        __syncthreads();
        for (int k = 0; k < K_BUCKETS / THREADS; k++) {
            int i = k * THREADS + threadIdx.x;
            add[k] = i >= step ? v[i - step] : 0;
        }
        __syncthreads();
        for (int k = 0; k < K_BUCKETS / THREADS; k++) v[k * THREADS + threadIdx.x] += add[k];
    }
    __syncthreads();
    for (int k = 0; k < K_BUCKETS / THREADS; k++) {
        int i = k * THREADS + threadIdx.x;
        if (v[i] >= target && (i == 0 || v[i - 1] < target)) found = i;
    }
    __syncthreads();
    int answer = found;
    __syncthreads();
    return answer;
}

// Mass is counted in 2^-15 of the weight at the bucket's upper end, so that the sums of a slice fit 32 bits.
#define FRACTION 32768.0f

static __device__ __forceinline__ float bucket_weight(int b) {
    return expf(-(float)b / BUCKETS_PER_UNIT);
}

extern "C" __global__ void __launch_bounds__(THREADS) choose_count(KARGS(k_choose) a) {
    after_previous();
    DYNAMIC_SHARED(unsigned char, memory);
    row_view r;
    int first, last;
    if (!open_row(a, blockIdx.y, &r)) return;
    const k_choice &c = a.choices[r.row];
    k_choose_row s = a.state[r.virtual_row];
    if (!wants_buckets(a, c, r, s)) return;
    uint32_t *count = (uint32_t *)memory, *mass = count + K_BUCKETS;
    for (int i = threadIdx.x; i < 2 * K_BUCKETS; i += THREADS) count[i] = 0;
    __syncthreads();
    slice_of(a, blockIdx.x, &first, &last);
    float sum = 0;
    bool by_mass = wants_cuts(c, r) && c.top_k == 0;
    for (int i = first + 4 * (int)threadIdx.x; i < last; i += 4 * THREADS) {
        float four[4];
        load_four(a, r, i, last, four);
        for (int k = 0; k < 4; k++) {
            float x = four[k];
            if (x == -INFINITY) continue;
            float below = s.largest - x;
            int b = bucket_of(x, s.largest);
            float t = below - (float)b / BUCKETS_PER_UNIT; // below 1/64: the series of exp(-t)
            sum += expf(-below);
            if (b == K_BUCKETS - 1) continue; // nothing is listed from there
            atomicAdd(&count[b], 1u);
            if (by_mass) atomicAdd(&mass[b], (uint32_t)((1.0f - t + 0.5f * t * t) * FRACTION));
        }
    }
    sum = block_sum_512(sum);
    int64_t here = (int64_t)r.virtual_row * a.slices;
    uint32_t *out = a.buckets + (here + blockIdx.x) * 2 * K_BUCKETS;
    for (int i = threadIdx.x; i < 2 * K_BUCKETS; i += THREADS) out[i] = count[i];
    if (threadIdx.x == 0) a.part_sum[here + blockIdx.x] = sum;
    if (!is_last_of_row(a, r.virtual_row)) return;

    double *v = (double *)memory; // K_BUCKETS
    float total = 0;
    for (int i = 0; i < a.slices; i++) total += a.part_sum[here + i];
    s.total = total;
    bool cuts = wants_cuts(c, r);
    int listed = count_listed(c, r);
    if (!is_short(a, listed)) {
        for (int i = threadIdx.x; i < K_BUCKETS; i += THREADS) {
            v[i] = 0;
            for (int k = 0; k < a.slices; k++) v[i] += a.buckets[(here + k) * 2 * K_BUCKETS + i];
        }
        s.near_all = find_bucket(v, listed);
    }
    if (cuts && c.top_k == 0) {
        for (int i = threadIdx.x; i < K_BUCKETS; i += THREADS) {
            double m = 0;
            for (int k = 0; k < a.slices; k++) m += a.buckets[(here + k) * 2 * K_BUCKETS + K_BUCKETS + i];
            v[i] = m * (1 / (double)FRACTION) * bucket_weight(i);
        }
        s.near_cut = find_bucket(v, (double)c.top_p * total);
    }
    if (threadIdx.x == 0) a.state[r.virtual_row] = s;
}

// ---- lists ----

// Sorts n keys (a power of two) in shared memory, smallest first.
static __device__ void sort_keys(uint64_t *keys, int n) {
    for (int size = 2; size <= n; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            __syncthreads();
            for (int i = threadIdx.x; i < n / 2; i += THREADS) {
                int low = 2 * i - (i & (step - 1)), high = low + step;
                bool up = (low & size) == 0;
                uint64_t x = keys[low], y = keys[high];
                if ((x > y) == up) keys[low] = y, keys[high] = x;
            }
        }
    __syncthreads();
}

// A list from global memory, in order, into shared memory. A short one is sorted by counting for each key those before it; `spare` has room for it.
static __device__ void load_list(const uint64_t *list, int n, uint64_t *keys, uint64_t *spare) {
    int room = 32;
    if (n <= THREADS) {
        uint64_t mine = (int)threadIdx.x < n ? list[threadIdx.x] : 0;
        spare[threadIdx.x] = mine;
        __syncthreads();
        int before = 0;
        for (int i = 0; i < n; i++) before += spare[i] < mine;
        if ((int)threadIdx.x < n) keys[before] = mine;
        __syncthreads();
        return;
    }
    while (room < n) room *= 2;
    for (int i = threadIdx.x; i < room; i += THREADS) keys[i] = i < n ? list[i] : ~(uint64_t)0;
    sort_keys(keys, room);
}

static __device__ __forceinline__ float key_logit(uint64_t key) {
    return rank_value((uint32_t)(key >> 32));
}

// How many keys from the first on it takes until their weights, with what stands before them, reach `target`; n where they do not. v: n floats.
static __device__ int count_until(const uint64_t *keys, int n, float largest, float before, float target, float *v) {
    __shared__ int found;
    if (threadIdx.x == 0) found = n;
    for (int i = threadIdx.x; i < n; i += THREADS) v[i] = expf(key_logit(keys[i]) - largest);
    for (int step = 1; step < n; step *= 2) {
        float add[K_LIST_MAX / THREADS];
        __syncthreads();
        for (int k = 0; k < K_LIST_MAX / THREADS; k++) {
            int i = k * THREADS + threadIdx.x;
            add[k] = i >= step && i < n ? v[i - step] : 0;
        }
        __syncthreads();
        for (int k = 0; k < K_LIST_MAX / THREADS; k++)
            if (k * THREADS + threadIdx.x < n) v[k * THREADS + threadIdx.x] += add[k];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS)
        if (before + v[i] >= target && (i == 0 || before + v[i - 1] < target)) found = i + 1;
    __syncthreads();
    int answer = found;
    __syncthreads();
    return answer;
}

// ---- rows whose buckets are too full for a list: the block walks the row, digit by digit ----

// What the largest weight counts as, where weights are added up as whole numbers.
#define WALK_ONE 1099511627776.0
#define WALK_ONE_F 1099511627776.0f

// Counts (or, with weights, adds up) the logits of the row whose rank begins with `prefix` above `shift + 8` bits, by
// their next eight bits.

static __device__ void count_digits(const row_view &r, int vocab, uint32_t prefix, int shift, float largest, bool by_weight, uint64_t *bins) {
    for (int i = threadIdx.x; i < 256; i += THREADS) bins[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        float x = r.x[i];
        uint32_t rank = rank_bits(x);
        if (x == -INFINITY || (shift < 24 && rank >> (shift + 8) != prefix >> (shift + 8))) continue;
        uint64_t w = by_weight ? (uint64_t)(expf(x - largest) * WALK_ONE_F) : 1;
        atomicAdd((unsigned long long *)&bins[rank >> shift & 255], (unsigned long long)w);
    }
    __syncthreads();
}

// The logit at which the running count (or weight) from the largest on reaches `target`, and the token up to which equal ones are kept.
static __device__ void walk_row(const row_view &r, int vocab, float largest, bool by_weight, uint64_t target, uint64_t *bins, float *cut, int *tie) {
    __shared__ uint32_t prefix;
    __shared__ uint64_t left;
    if (threadIdx.x == 0) prefix = 0, left = target;
    for (int shift = 24; shift >= 0; shift -= 8) {
        __syncthreads();
        count_digits(r, vocab, prefix, shift, largest, by_weight, bins);
        if (threadIdx.x == 0) {
            int d = 0, last = 0;
            for (; d < 256; d++) {
                if (bins[d] == 0) continue;
                last = d;
                if (bins[d] >= left) break;
                left -= bins[d];
            }
            prefix |= (uint32_t)(d < 256 ? d : last) << shift;
        }
    }
    __syncthreads();
    float x = rank_value(prefix);
    uint64_t each = by_weight ? (uint64_t)(expf(x - largest) * WALK_ONE_F) : 1, n = each ? (left + each - 1) / each : 1;
    *cut = x;
    *tie = vocab;
    __shared__ int equal[THREADS];
    int chunk = (vocab + THREADS - 1) / THREADS, first = threadIdx.x * chunk, last = min(first + chunk, vocab), mine = 0;
    for (int i = first; i < last; i++) mine += r.x[i] == x;
    equal[threadIdx.x] = mine;
    __syncthreads();
    uint64_t before = 0;
    for (int t = 0; t < (int)threadIdx.x; t++) before += (uint64_t)equal[t];
    __shared__ int place;
    if (threadIdx.x == 0) place = vocab;
    __syncthreads();
    if (before < n && before + (uint64_t)mine >= n)
        for (int i = first; i < last; i++)
            if (r.x[i] == x && ++before == n) place = i;
    __syncthreads();
    *tie = place;
    __syncthreads();
}

// ---- random numbers, and where they hit ----

static __device__ __forceinline__ uint64_t hash_mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBull;
    return x ^ x >> 31;
}
static __device__ __forceinline__ uint64_t hash_pair(uint64_t a, uint64_t b) {
    return hash_mix(a + 0x9E3779B97F4A7C15ull + hash_mix(b));
}
// As src/base/rng.h: uniform in [0, 1).
static __device__ __forceinline__ double uniform(uint64_t seed, uint64_t position) {
    return (double)(hash_pair(hash_pair(seed, position), 0) >> 11) * (1.0 / 9007199254740992.0);
}

static __device__ __forceinline__ float kept_weight(float x, int token, const k_choose_row &s, float scale) {
    bool kept = x > s.cut || (x == s.cut && token <= s.tie);
    return kept && x != -INFINITY ? expf((x - s.largest) * scale) : 0;
}

// Every thread has a part of a sum, in order. The thread whose part `target` lies in, and what is left of the target there; the last thread with a
// part where rounding leaves the target behind all of them; -1 where nobody has one.
static __device__ int find_part(double part, double target, double *left) {
    __shared__ double warp_sums[WARPS], remains;
    __shared__ int hit, last;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double end = part; // of this thread's part, from the warp's begin
    for (int step = 1; step < 32; step *= 2) {
        double other = __shfl_sync(FULL, end, lane >= step ? lane - step : lane);
        if (lane >= step) end += other;
    }
    if (threadIdx.x == 0) hit = last = -1;
    if (lane == 31) warp_sums[warp] = end;
    __syncthreads();
    double begin = 0;
    for (int w = 0; w < warp; w++) begin += warp_sums[w];
    end += begin;
    double before = end - part;
    if (part > 0) atomicMax(&last, (int)threadIdx.x);
    if (part > 0 && before <= target && target < end) hit = threadIdx.x, remains = target - before;
    __syncthreads();
    if (hit < 0 && last >= 0 && threadIdx.x == (unsigned)last) hit = last, remains = part;
    __syncthreads();
    int answer = hit;
    *left = remains;
    __syncthreads();
    return answer;
}

// Sums of all threads, in order.
static __device__ double ordered_total(double mine) {
    __shared__ double warp_totals[WARPS];
    double total = 0;
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(FULL, mine, step);
    if (threadIdx.x % 32 == 0) warp_totals[threadIdx.x / 32] = mine;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) total += warp_totals[w];
    return total;
}

static __device__ __forceinline__ void put_token(const k_choose &a, const row_view &r, int token) {
    a.out[r.row].token = a.chosen[r.row] = token;
    a.out[r.row].logit = a.logits[r.row * a.stride + token];
}

// ---- the cuts ----

struct cut {
    float x;
    int tie;
};

// The stricter of two.
static __device__ __forceinline__ void cut_at(cut *c, float x, int tie) {
    if (x > c->x || (x == c->x && tie < c->tie)) c->x = x, c->tie = tie;
}

// How many of at most 32 keys hold the share top_p of their weight; every warp finds it for itself.
static __device__ __forceinline__ int count_share(const uint64_t *keys, int n, float largest, float top_p) {
    int lane = threadIdx.x % 32;
    float end = lane < n ? expf(key_logit(keys[lane]) - largest) : 0;
    for (int step = 1; step < 32; step *= 2) {
        float other = __shfl_sync(FULL, end, lane >= step ? lane - step : lane);
        if (lane >= step) end += other;
    }
    float target = top_p * __shfl_sync(FULL, end, n - 1);
    unsigned reached = __ballot_sync(FULL, lane < n && end >= target);
    return reached ? __ffs(reached) : n;
}

// The k best of a sorted list, of those what top-p leaves.
static __device__ void cut_listed(const k_choice &c, const k_choose_row &s, const uint64_t *keys, int n, float *v, cut *out) {
    int kept = min(c.top_k, n);
    if (c.top_p < 1 && kept > 0 && kept <= 32) {
        kept = count_share(keys, kept, s.largest, c.top_p);
    } else if (c.top_p < 1 && kept > 0) {
        count_until(keys, kept, s.largest, 0, INFINITY, v); // leaves the running sums in v
        float target = c.top_p * v[kept - 1];
        __syncthreads();
        kept = count_until(keys, kept, s.largest, 0, target, v);
    }
    if (kept > 0) cut_at(out, key_logit(keys[kept - 1]), (int)(uint32_t)keys[kept - 1]);
}

// A row whose token is there already.
enum { DRAWN = -2 };

// Draws from a sorted list that holds all that is kept, in the order of the tokens' numbers. v: room for n numbers.
static __device__ int draw_listed(const k_choice &c, const k_choose_row &s, const uint64_t *keys, int n, cut kept, float *v) {
    enum { EACH = K_LIST_MAX / THREADS };
    __shared__ int tokens[K_LIST_MAX], found, n_kept;
    float scale = 1.0f / c.temperature;
    if (threadIdx.x == 0) found = (int)(uint32_t)keys[0], n_kept = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS) { // what is kept stands at the front
        uint64_t last = (uint64_t)rank_bits(kept.x) << 32 | (uint32_t)kept.tie;
        if (keys[i] <= last && (i + 1 == n || keys[i + 1] > last)) n_kept = i + 1;
    }
    __syncthreads();
    int some = n_kept;
    for (int i = threadIdx.x; i < some; i += THREADS) {
        uint32_t token = (uint32_t)keys[i];
        int before = 0;
        for (int j = 0; j < some; j++) before += (uint32_t)keys[j] < token;
        tokens[before] = (int)token;
        v[before] = expf((key_logit(keys[i]) - s.largest) * scale);
    }
    __syncthreads();
    double part = 0, left;
    int first = (int)threadIdx.x * EACH;
    for (int k = first; k < min(first + (int)EACH, some); k++) part += (double)v[k];
    double total = ordered_total(part);
    int owner = find_part(part, uniform(c.seed, (uint64_t)c.position) * total, &left);
    if ((int)threadIdx.x == owner)
        for (int k = first; k < min(first + (int)EACH, some); k++) {
            found = tokens[k];
            left -= (double)v[k];
            if (left < 0) break;
        }
    __syncthreads();
    return found;
}

// The weight of what a cut leaves of a row, by one block.
static __device__ float kept_sum(const row_view &r, int vocab, float largest, cut kept) {
    float sum = 0;
    for (int i = threadIdx.x; i < vocab; i += THREADS) {
        float x = r.x[i];
        if (x != -INFINITY && (x > kept.x || (x == kept.x && i <= kept.tie))) sum += expf(x - largest);
    }
    return block_sum_512(sum);
}

// Below this nothing is listed and nothing counts; a little less than exact, since buckets round.
static __device__ __forceinline__ float least_listed(const k_choose_row &s) {
    int bucket = max(s.near_all, s.near_cut);
    float least = bucket == K_BUCKETS - 1 ? -INFINITY : bucket >= 0 ? s.largest - (float)(bucket + 2) / BUCKETS_PER_UNIT : INFINITY;
    return fminf(least, s.from);
}

// Puts a token on the lists that it belongs to; its weight, where it stands above the bucket of the cut.
static __device__ __forceinline__ float list_token(const k_choose_row &s, float x, int token, uint64_t *lists, int32_t *list_n) {
    if (x == -INFINITY) return 0;
    int b = bucket_of(x, s.largest);
    uint64_t key = (uint64_t)rank_bits(x) << 32 | (uint32_t)token;
    if (x >= s.from || b <= s.near_all) {
        int n = atomicAdd(&list_n[0], 1);
        if (n < K_LIST_MAX) lists[n] = key;
    }
    if (b == s.near_cut) {
        int n = atomicAdd(&list_n[1], 1);
        if (n < K_LIST_MAX) lists[K_LIST_MAX + n] = key;
    }
    return b < s.near_cut ? expf(x - s.largest) : 0;
}

// What the lists of a row tell, by one block: the cuts, the report, and the token where the list holds all that is kept. memory: K_LIST_BYTES.
static __device__ void use_lists(const k_choose &a, const row_view &r, const k_choice &c, k_choose_row s, unsigned char *memory) {
    bool sums_all = r.reports && s.total == 0;
    int64_t here = (int64_t)r.virtual_row * a.slices;
    uint64_t *lists = a.lists + (int64_t)r.virtual_row * 2 * K_LIST_MAX;
    int32_t *list_n = a.list_n + 2 * r.virtual_row;
    uint64_t *keys = (uint64_t *)memory;                       // [K_LIST_MAX]
    float *v = (float *)(memory + K_LIST_MAX * sizeof(uint64_t)); // [K_LIST_MAX]
    cut kept = {s.cut, s.tie};
    bool cuts = wants_cuts(c, r), has_list = s.near_all >= 0 || s.from < INFINITY;
    int n = list_n[0];
    if (sums_all)
        for (int i = 0; i < a.slices; i++) s.total += a.part_best[here + i];
    if (has_list && n <= K_LIST_MAX) {
        load_list(lists, n, keys, (uint64_t *)v);
        if (cuts && c.top_k > 0) {
            cut_listed(c, s, keys, n, v, &kept);
            int token = draw_listed(c, s, keys, n, kept, v);
            if (threadIdx.x == 0) put_token(a, r, token);
            s.at = DRAWN;
        }
    } else if (has_list) {
        float x;
        int tie;
        if (cuts && c.top_k > 0) {
            walk_row(r, a.vocab, s.largest, false, (uint64_t)c.top_k, keys, &x, &tie);
            cut_at(&kept, x, tie);
            if (c.top_p < 1) { // of what top-k alone leaves
                cut best = {x, tie};
                walk_row(r, a.vocab, s.largest, true, (uint64_t)((double)c.top_p * kept_sum(r, a.vocab, s.largest, best) * WALK_ONE), keys, &x, &tie);
                cut_at(&kept, x, tie);
            }
        }
        n = 0; // so many equal ones that none of them is likely: a report names none
    }
    if (r.reports && threadIdx.x == 0) {
        k_chosen *out = &a.out[r.row];
        out->largest = s.largest;
        out->sum = s.total;
        out->n_top = min(c.n_top, n);
    }
    for (int i = threadIdx.x; r.reports && i < min(c.n_top, n); i += THREADS) {
        a.out[r.row].top_tokens[i] = (int)(uint32_t)keys[i];
        a.out[r.row].top_logits[i] = key_logit(keys[i]);
    }
    __syncthreads();
    if (s.near_cut >= 0) {
        float before = 0;
        for (int i = 0; i < a.slices; i++) before += a.part_sum[here + i];
        int m = list_n[1];
        if (m <= K_LIST_MAX) {
            load_list(lists + K_LIST_MAX, m, keys, (uint64_t *)v);
            int some = count_until(keys, m, s.largest, before, c.top_p * s.total, v);
            if (some > 0 && m > 0) cut_at(&kept, key_logit(keys[some - 1]), (int)(uint32_t)keys[some - 1]);
        } else {
            float x;
            int tie;
            walk_row(r, a.vocab, s.largest, true, (uint64_t)((double)c.top_p * s.total * WALK_ONE), keys, &x, &tie);
            cut_at(&kept, x, tie);
        }
    }
    if (threadIdx.x == 0) {
        s.cut = kept.x;
        s.tie = kept.tie;
        a.state[r.virtual_row] = s;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) choose_gather(KARGS(k_choose) a) {
    after_previous();
    DYNAMIC_SHARED(unsigned char, memory);
    row_view r;
    int first, last;
    if (!open_row(a, blockIdx.y, &r)) return;
    const k_choice &c = a.choices[r.row];
    k_choose_row s = a.state[r.virtual_row];
    if (!wants_lists(c, r, s)) return;
    slice_of(a, blockIdx.x, &first, &last);
    uint64_t *lists = a.lists + (int64_t)r.virtual_row * 2 * K_LIST_MAX;
    int32_t *list_n = a.list_n + 2 * r.virtual_row;
    float above = 0, total = 0;
    bool sums_all = r.reports && s.total == 0; // choose_count has not done it
    float least = least_listed(s);
#pragma unroll 2
    for (int i = first + 4 * (int)threadIdx.x; i < last; i += 4 * THREADS) {
        float x[4];
        load_four(a, r, i, last, x);
        if (sums_all)
            for (int k = 0; k < 4; k++) total += expf(x[k] - s.largest);
        if (fmaxf(fmaxf(x[0], x[1]), fmaxf(x[2], x[3])) < least) continue;
#pragma unroll 1
        for (int k = i; k < min(i + 4, last); k++) above += list_token(s, r.x[k], k, lists, list_n);
    }
    above = block_sum_512(above);
    int64_t here = (int64_t)r.virtual_row * a.slices;
    if (threadIdx.x == 0) a.part_sum[here + blockIdx.x] = above;
    if (sums_all) {
        total = block_sum_512(total);
        if (threadIdx.x == 0) a.part_best[here + blockIdx.x] = total; // nobody reads the best any more
    }
    if (is_last_of_row(a, r.virtual_row)) use_lists(a, r, c, s, memory);
}

// ---- the draw ----

// The token of a piece that the target lies in.
static __device__ int draw_in_piece(const row_view &r, const k_choose_row &s, int vocab, int piece, float scale, double target) {
    enum { EACH = K_PIECE / THREADS };
    __shared__ int found;
    int first = piece * K_PIECE + (int)threadIdx.x * EACH;
    float w[EACH];
    double part = 0, left;
    for (int k = 0; k < EACH; k++) {
        w[k] = first + k < vocab ? kept_weight(r.x[first + k], first + k, s, scale) : 0;
        part += (double)w[k];
    }
    if (threadIdx.x == 0) found = -1;
    int owner = find_part(part, target, &left);
    if ((int)threadIdx.x == owner)
        for (int k = 0; k < EACH; k++) {
            if (w[k] <= 0) continue;
            found = first + k;
            left -= (double)w[k];
            if (left < 0) break;
        }
    __syncthreads();
    return found;
}

extern "C" __global__ void __launch_bounds__(THREADS) choose_draw(KARGS(k_choose) a) {
    after_previous();
    row_view r;
    int first, last, pieces = (a.vocab + K_PIECE - 1) / K_PIECE;
    if (!open_row(a, blockIdx.y, &r) || !r.chooses) return;
    const k_choice &c = a.choices[r.row];
    k_choose_row s = a.state[r.virtual_row];
    if (s.at < 0 || c.temperature <= 0) return;
    float scale = 1.0f / c.temperature;
    enum { PARTS = CHOOSE_PIECE_PARTS, K_PART = K_PIECE / PARTS };
    float *sums = a.piece_sum + (int64_t)r.virtual_row * pieces * PARTS;
    slice_of(a, blockIdx.x, &first, &last);
    // a warp to each quarter of a piece
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int at = first + warp * K_PART; at < last; at += WARPS * K_PART) {
        float sum = 0;
        int end = min(at + (int)K_PART, last);
#pragma unroll 4
        for (int i = at + 4 * lane; i < end; i += 128) {
            float x[4];
            load_four(a, r, i, end, x);
            for (int k = 0; k < 4; k++) sum += kept_weight(x[k], i + k, s, scale);
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(FULL, sum, step);
        if (lane == 0) sums[at / K_PART] = sum;
    }
    if (!is_last_of_row(a, r.virtual_row)) return;
    double mine = 0, left;
    for (int k = 0; k < PARTS && (int)threadIdx.x < pieces; k++) { // at most THREADS pieces, see lower_choose
        int part = (int)threadIdx.x * PARTS + k;
        if (part * K_PART < a.vocab) mine += (double)sums[part];
    }
    double total = ordered_total(mine);
    int piece = find_part(mine, uniform(c.seed, (uint64_t)c.position) * total, &left);
    int token = piece >= 0 ? draw_in_piece(r, s, a.vocab, piece, scale, left) : -1;
    if (token < 0) token = s.at;
    if (threadIdx.x == 0) put_token(a, r, token);
}
