// Recurrent ops: convolution, gated delta rule, state spaces, linear attention with decay.
//
// The rows of a sequence are taken one after the other, each from the state that the one before left; a sequence that starts finds zeros.
// State is f32 in the sequence's slot and is read and written once per step; in between it lives in shared memory or registers. Stopped by
// the chain of rows: a row needs the one before it.
#include "common.cuh"

static __device__ __forceinline__ float *slot_of(const k_state &s, const k_seq &seq) {
    return s.p + (int64_t)seq.slot * s.slot_stride;
}

// ---- convolution: rows are independent given the inputs; the state is renewed by a second kernel ----

static __device__ __forceinline__ float conv_input(const k_conv &a, const k_seq &seq, const float *state, int i, int back, int ch) {
    if (i - back >= 0) return view_load(a.x, seq.row + i - back, 0, ch);
    return seq.starts ? 0.0f : state[(int64_t)(a.taps - 1 + i - back) * a.x.width + ch];
}

// Grid (channels / 256, rows).
extern "C" __global__ void conv(KARGS(k_conv) a) {
    int ch = blockIdx.x * 256 + threadIdx.x;
    int64_t r = blockIdx.y;
    if (ch >= a.x.width) return;
    k_seq seq = a.s.seqs[a.s.seq_of[r]];
    const float *state = slot_of(a.s, seq);
    float y = a.bias ? a.bias[ch] : 0.0f;
    for (int t = 0; t < a.taps; t++) y += conv_input(a, seq, state, (int)(r - seq.row), a.taps - 1 - t, ch) * a.weight[(int64_t)ch * a.taps + t];
    view_store(a.y, r, 0, ch, act(a.act, y, 0));
}

// Grid (channels / 256, sequences). Ascending: a row moves down before it is overwritten.
extern "C" __global__ void conv_keep(KARGS(k_conv) a) {
    int ch = blockIdx.x * 256 + threadIdx.x, kept = a.taps - 1;
    if (ch >= a.x.width) return;
    k_seq seq = a.s.seqs[blockIdx.y];
    float *state = slot_of(a.s, seq);
    for (int t = 0; t < kept; t++) state[(int64_t)t * a.x.width + ch] = conv_input(a, seq, state, seq.n_rows - 1, kept - 1 - t, ch);
}

// ---- gated delta rule: a block owns 32 columns of one head's state, [k_width][32] in shared memory; 4 warps split k_width ----

enum { COLUMNS = 32, PARTS = 4 };

// Dot of this thread's part of a state column with x, summed over the parts; the result in every part's thread.
static __device__ __forceinline__ float column_dot(const float *state, const float *x, int n, float *scratch) {
    int column = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS;
    float sum = 0;
    for (int i = part; i < n; i += PARTS) sum = fmaf(state[i * COLUMNS + column], x[i], sum);
    scratch[part * COLUMNS + column] = sum;
    __syncthreads();
    sum = 0;
    for (int p = 0; p < PARTS; p++) sum += scratch[p * COLUMNS + column];
    __syncthreads();
    return sum;
}

// A head's row into shared memory, divided by its length where the rule wants that.
static __device__ __forceinline__ void delta_unit(const k_delta &a, const k_view &x, int64_t r, int head, float scale, float *out, float *scratch) {
    float square = 0;
    for (int i = threadIdx.x; i < a.k_width; i += blockDim.x) {
        float v = out[i] = view_load(x, r, head, i);
        square = fmaf(v, v, square);
    }
    if (a.l2_norm) scale *= 1.0f / sqrtf(block_sum(square, scratch) + a.l2_eps);
    for (int i = threadIdx.x; i < a.k_width; i += blockDim.x) out[i] *= scale;
}

// What a row of the state keeps, x being the row's own number with its bias.
static __device__ __forceinline__ float delta_decay(const k_delta &a, float rate, float x) {
    return expf(a.bound != 0 ? a.bound * sigmoid(rate * x) : -rate * softplus(x));
}

// One for every channel of a key, in shared memory.
static __device__ __forceinline__ void delta_decays(const k_delta &a, float rate, int64_t r, int head, float *out) {
    float same = a.by_channel ? 0.0f : delta_decay(a, rate, view_load(a.a, r, 0, head) + a.dt_bias[head]);
    for (int i = threadIdx.x; i < a.k_width; i += blockDim.x)
        out[i] = a.by_channel ? delta_decay(a, rate, view_load(a.a, r, head, i) + a.dt_bias[(int64_t)head * a.k_width + i]) : same;
}

// Grid (v_width / 32, v_heads, sequences), 128 threads, shared memory (k_width * 35 + 160) floats.
extern "C" __global__ void delta(KARGS(k_delta) a) {
    DYNAMIC_SHARED(float, smem);
    float *state = smem, *query = state + a.k_width * COLUMNS, *key = query + a.k_width, *decays = key + a.k_width, *scratch = decays + a.k_width;
    int column = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS, head = blockIdx.y, k_head = head / (a.v_heads / a.k_heads);
    int j = blockIdx.x * COLUMNS + column;
    bool there = j < a.v_width;
    k_seq seq = a.s.seqs[blockIdx.z];
    float *kept = slot_of(a.s, seq) + (int64_t)head * a.k_width * a.v_width;
    for (int i = part; i < a.k_width; i += PARTS) state[i * COLUMNS + column] = seq.starts || !there ? 0.0f : kept[(int64_t)i * a.v_width + j];
    float rate = expf(a.a_log[head]);
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        __syncthreads();
        delta_decays(a, rate, r, head, decays);
        delta_unit(a, a.q, r, k_head, a.scale, query, scratch);
        delta_unit(a, a.k, r, k_head, 1.0f, key, scratch);
        __syncthreads();
        float beta = a.beta_scale * sigmoid(view_load(a.b, r, 0, head));
        for (int i = part; i < a.k_width; i += PARTS) state[i * COLUMNS + column] *= decays[i];
        __syncthreads();
        float change = ((there ? view_load(a.v, r, head, j) : 0.0f) - column_dot(state, key, a.k_width, scratch)) * beta;
        for (int i = part; i < a.k_width; i += PARTS) state[i * COLUMNS + column] = fmaf(key[i], change, state[i * COLUMNS + column]);
        __syncthreads();
        float y = column_dot(state, query, a.k_width, scratch);
        if (part == 0 && there) view_store(a.y, r, head, j, y);
    }
    __syncthreads();
    for (int i = part; i < a.k_width; i += PARTS)
        if (there) kept[(int64_t)i * a.v_width + j] = state[i * COLUMNS + column];
}

// ---- linear attention with decay: the same without the correction ----

// Grid (width / 32, heads, sequences), 128 threads, shared memory (width * 34 + 128) floats.
extern "C" __global__ void lightning(KARGS(k_lightning) a) {
    DYNAMIC_SHARED(float, smem);
    float *state = smem, *query = state + a.width * COLUMNS, *key = query + a.width, *scratch = key + a.width;
    int column = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS, head = blockIdx.y, j = blockIdx.x * COLUMNS + column;
    bool there = j < a.width;
    k_seq seq = a.s.seqs[blockIdx.z];
    float *kept = slot_of(a.s, seq) + (int64_t)head * a.width * a.width, keep = expf(-a.slope[head]);
    for (int i = part; i < a.width; i += PARTS) state[i * COLUMNS + column] = seq.starts || !there ? 0.0f : kept[(int64_t)i * a.width + j];
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        __syncthreads();
        for (int i = threadIdx.x; i < a.width; i += blockDim.x) query[i] = view_load(a.q, r, head, i), key[i] = view_load(a.k, r, head, i);
        __syncthreads();
        float v = there ? view_load(a.v, r, head, j) : 0.0f;
        for (int i = part; i < a.width; i += PARTS) state[i * COLUMNS + column] = fmaf(state[i * COLUMNS + column], keep, key[i] * v);
        float y = column_dot(state, query, a.width, scratch);
        if (part == 0 && there) view_store(a.y, r, head, j, y);
    }
    __syncthreads();
    for (int i = part; i < a.width; i += PARTS)
        if (there) kept[(int64_t)i * a.width + j] = state[i * COLUMNS + column];
}

// ---- state spaces: a warp owns rows of one head's state, lanes its columns ----

enum { PER_LANE = 8 }; // state_width up to 256

// Grid (head_width / 4, heads, sequences), 4 warps.
extern "C" __global__ void ssd(KARGS(k_ssd) a) {
    int lane = threadIdx.x % 32, i = blockIdx.x * 4 + threadIdx.x / 32, head = blockIdx.y, group = head / (a.heads / a.groups);
    if (i >= a.head_width) return;
    k_seq seq = a.s.seqs[blockIdx.z];
    float *kept = slot_of(a.s, seq) + ((int64_t)head * a.head_width + i) * a.state_width, s[PER_LANE];
#pragma unroll
    for (int u = 0; u < PER_LANE; u++) s[u] = seq.starts || u * 32 + lane >= a.state_width ? 0.0f : kept[u * 32 + lane];
    float rate = -expf(a.a_log[head]), skip = a.d ? a.d[head] : 0.0f, bias = a.dt_bias ? a.dt_bias[head] : 0.0f;
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        float dt = fminf(fmaxf(softplus(view_load(a.dt, r, 0, head) + bias), a.dt_min), a.dt_max), keep = expf(dt * rate);
        float x = view_load(a.x, r, head, i), dot = 0;
#pragma unroll
        for (int u = 0; u < PER_LANE; u++) {
            if (u * 32 + lane >= a.state_width) break;
            s[u] = s[u] * keep + view_load(a.b, r, group, u * 32 + lane) * (dt * x);
            dot = fmaf(s[u], view_load(a.c, r, group, u * 32 + lane), dot);
        }
        dot = warp_sum(dot);
        if (lane == 0) view_store(a.y, r, head, i, dot + skip * x);
    }
#pragma unroll
    for (int u = 0; u < PER_LANE; u++)
        if (u * 32 + lane < a.state_width) kept[u * 32 + lane] = s[u];
}

// Grid (channels / 8, sequences), 8 warps: one warp per channel, lanes over the state.
extern "C" __global__ void scan(KARGS(k_scan) a) {
    int lane = threadIdx.x % 32, ch = blockIdx.x * 8 + threadIdx.x / 32, n = a.state_width;
    if (ch >= a.x.width) return;
    k_seq seq = a.s.seqs[blockIdx.y];
    float *kept = slot_of(a.s, seq) + (int64_t)ch * n, s[PER_LANE], rate[PER_LANE], skip = a.d ? a.d[ch] : 0.0f;
#pragma unroll
    for (int u = 0; u < PER_LANE; u++) {
        bool there = u * 32 + lane < n;
        s[u] = seq.starts || !there ? 0.0f : kept[u * 32 + lane];
        rate[u] = there ? -expf(a.a_log[(int64_t)ch * n + u * 32 + lane]) : 0.0f;
    }
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        float x = view_load(a.x, r, 0, ch), dt = softplus(view_load(a.dt, r, 0, ch)), dot = 0;
#pragma unroll
        for (int u = 0; u < PER_LANE; u++) {
            if (u * 32 + lane >= n) break;
            s[u] = s[u] * expf(dt * rate[u]) + view_load(a.b, r, 0, u * 32 + lane) * (dt * x);
            dot = fmaf(s[u], view_load(a.c, r, 0, u * 32 + lane), dot);
        }
        dot = warp_sum(dot);
        if (lane == 0) view_store(a.y, r, 0, ch, dot + skip * x);
    }
#pragma unroll
    for (int u = 0; u < PER_LANE; u++)
        if (u * 32 + lane < n) kept[u * 32 + lane] = s[u];
}

// ---- linear recurrence with a gate per channel: a thread owns one ----

// Grid (channels / 128, sequences), 128 threads.
extern "C" __global__ void lru(KARGS(k_lru) a) {
    int ch = blockIdx.x * 128 + threadIdx.x;
    if (ch >= a.x.width) return;
    k_seq seq = a.s.seqs[blockIdx.y];
    float *kept = slot_of(a.s, seq) + ch, s = seq.starts ? 0.0f : *kept, rate = a.rate[ch];
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        float power = -8.0f * sigmoid(view_load(a.r, r, 0, ch)) * rate;
        float root = seq.starts && r == seq.row ? 1.0f : sqrtf(1.0f - expf(2.0f * power));
        s = s * expf(power) + view_load(a.x, r, 0, ch) * sigmoid(view_load(a.i, r, 0, ch)) * root;
        view_store(a.y, r, 0, ch, s);
    }
    *kept = s;
}

// ---- weighed mean of all values: a thread owns a channel ----

// Grid (channels / 128, sequences), 128 threads.
extern "C" __global__ void wkv(KARGS(k_wkv) a) {
    int ch = blockIdx.x * 128 + threadIdx.x, n = a.k.width;
    if (ch >= n) return;
    k_seq seq = a.s.seqs[blockIdx.y];
    float *kept = slot_of(a.s, seq) + ch;
    float above = seq.starts ? 0.0f : kept[0], below = seq.starts ? 0.0f : kept[n], m = seq.starts ? -1e38f : kept[2 * n];
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        float k = view_load(a.k, r, 0, ch), v = view_load(a.v, r, 0, ch), own = k + a.first[ch], top = fmaxf(m, own);
        float old = expf(m - top), fresh = expf(own - top);
        view_store(a.y, r, 0, ch, (old * above + fresh * v) / (old * below + fresh));
        m -= a.rate[ch];
        top = fmaxf(m, k);
        old = expf(m - top), fresh = expf(k - top);
        above = old * above + fresh * v;
        below = old * below + fresh;
        m = top;
    }
    kept[0] = above, kept[n] = below, kept[2 * n] = m;
}

// ---- a memory of which a part is taken out before a value comes in: a block owns 32 columns, as in the delta rule ----

// Grid (width / 32, heads, sequences), 128 threads, shared memory (width * 37 + 160) floats.
extern "C" __global__ void exchange(KARGS(k_exchange) a) {
    DYNAMIC_SHARED(float, smem);
    int n = a.width, column = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS, head = blockIdx.y, j = blockIdx.x * COLUMNS + column;
    float *state = smem, *query = state + n * COLUMNS, *key = query + n, *at = key + n, *taken = at + n, *keep = taken + n, *scratch = keep + n;
    bool there = j < n;
    k_seq seq = a.s.seqs[blockIdx.z];
    float *kept = slot_of(a.s, seq) + (int64_t)head * n * n;
    for (int i = part; i < n; i += PARTS) state[i * COLUMNS + column] = seq.starts || !there ? 0.0f : kept[(int64_t)i * n + j];
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += blockDim.x) {
            query[i] = view_load(a.r, r, head, i), key[i] = view_load(a.k, r, head, i), at[i] = view_load(a.at, r, head, i);
            taken[i] = at[i] * view_load(a.share, r, head, i);
            keep[i] = expf(a.rate * sigmoid(view_load(a.w, r, head, i)));
        }
        __syncthreads();
        float v = there ? view_load(a.v, r, head, j) : 0.0f, held = column_dot(state, at, n, scratch);
        for (int i = part; i < n; i += PARTS)
            state[i * COLUMNS + column] = state[i * COLUMNS + column] * keep[i] + key[i] * v - taken[i] * held;
        float y = column_dot(state, query, n, scratch);
        if (part == 0 && there) view_store(a.y, r, head, j, y);
    }
    __syncthreads();
    for (int i = part; i < n; i += PARTS)
        if (there) kept[(int64_t)i * n + j] = state[i * COLUMNS + column];
}

// ---- a memory with exponential gates: a block owns a head, whose state stays in its slot; the last column holds what keys add up to ----

// Grid (heads, sequences), 256 threads, shared memory (k_width * 2 + 160) floats.
extern "C" __global__ void mlstm(KARGS(k_mlstm) a) {
    DYNAMIC_SHARED(float, smem);
    int head = blockIdx.x, columns = a.v_width + 1;
    float *query = smem, *key = query + a.k_width, *scratch = key + a.k_width;
    k_seq seq = a.s.seqs[blockIdx.y];
    float *slot = slot_of(a.s, seq), *kept = slot + (int64_t)head * a.k_width * columns, *most = slot + (int64_t)a.heads * a.k_width * columns + head;
    float top = seq.starts ? 0.0f : *most;
    for (int64_t r = seq.row; r < seq.row + seq.n_rows; r++) {
        bool is_new = seq.starts && r == seq.row;
        __syncthreads();
        for (int i = threadIdx.x; i < a.k_width; i += blockDim.x) query[i] = a.scale * view_load(a.q, r, head, i), key[i] = view_load(a.k, r, head, i);
        float in = view_load(a.i, r, 0, head), old = top - softplus(-view_load(a.f, r, 0, head));
        top = fmaxf(old, in);
        float keep = expf(old - top), fresh = expf(in - top), sum = 0;
        __syncthreads();
        for (int i = threadIdx.x; i < a.k_width; i += blockDim.x) {
            float *s = kept + (int64_t)i * columns + a.v_width;
            *s = (is_new ? 0.0f : *s * keep) + fresh * key[i];
            sum = fmaf(query[i], *s, sum);
        }
        float below = fmaxf(fabsf(block_sum(sum, scratch)), expf(-top)) + a.eps;
        for (int j = threadIdx.x; j < a.v_width; j += blockDim.x) {
            float v = fresh * view_load(a.v, r, head, j), y = 0;
            for (int i = 0; i < a.k_width; i++) {
                float *s = kept + (int64_t)i * columns + j;
                *s = (is_new ? 0.0f : *s * keep) + v * key[i];
                y = fmaf(query[i], *s, y);
            }
            view_store(a.y, r, head, j, y / below);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) *most = top;
}

// ---- weighed sums of windows: a thread owns a channel of a row; the state is renewed by conv_keep ----

static __device__ __forceinline__ float compress_input(const k_compress &a, const k_seq &seq, const float *state, int taps, int i, int back, int ch) {
    if (i - back >= 0) return view_load(a.x, seq.row + i - back, 0, ch);
    return state[(int64_t)(taps - 1 + i - back) * a.x.width + ch];
}

// Grid (width / 128, rows), 128 threads.
extern "C" __global__ void compress(KARGS(k_compress) a) {
    int ch = blockIdx.x * 128 + threadIdx.x, series = a.overlaps ? 2 : 1, taps = series * a.every, channels = series * a.width;
    int64_t r = blockIdx.y;
    if (ch >= a.width) return;
    k_seq seq = a.s.seqs[a.s.seq_of[r]];
    const float *state = slot_of(a.s, seq);
    int i = (int)(r - seq.row), pos = a.pos[r];
    float most = -INFINITY, sum = 0, above = 0;
    if ((pos + 1) % a.every == 0) {
        for (int t = max(taps - 1 - pos, 0); t < taps; t++) {
            int at = t / a.every * a.width + ch;
            float score = compress_input(a, seq, state, taps, i, taps - 1 - t, channels + at) + a.bias[t % a.every * channels + at];
            float top = fmaxf(most, score), keep = expf(most - top), fresh = expf(score - top);
            sum = sum * keep + fresh;
            above = above * keep + fresh * compress_input(a, seq, state, taps, i, taps - 1 - t, at);
            most = top;
        }
        above /= sum;
    }
    view_store(a.y, r, 0, ch, above);
}
