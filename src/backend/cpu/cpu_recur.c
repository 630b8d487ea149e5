/* Recurrent ops: convolution, gated delta rule, state spaces, linear attention with decay.
 *
 * (1) The rows of a sequence are taken one after the other, each from the state that the one before left: how a prompt
 *     is cut into steps changes no bit. A sequence that starts finds zeros, whatever its slot held before.
 * (2) Heads (or channels) never look at each other, so the work is split into (sequence, head) items and the result
 *     does not depend on the threads.
 * (3) State is f32 and lies in the sequence's slot, innermost dimension last: conv [taps - 1, channels], oldest first;
 *     delta [v_heads, k_width, v_width]; ssd [heads, head_width, state_width]; scan [channels, state_width]; lightning
 *     [heads, width, width], keys by values; lru [channels]; wkv [3, channels]; exchange, mlstm and compress as ops.h says.
 */
#include "backend/cpu/cpu.h"

#include "base/fmath.h"

struct recur_job;

/* All rows of one sequence for units [first, last) of channels, or the one head `first`. */
typedef void recur_fn(const struct recur_job *job, const struct step_seq *seq, int64_t first, int64_t last, float *scratch);

struct recur_job {
    struct cpu *c;
    const struct op *op;
    const struct step *step;
    recur_fn *run;
    int64_t units, per_item; /* heads or channels in all, and taken at once */
};

static void recur_items(void *ctx, int64_t first, int64_t last, int32_t thread) {
    const struct recur_job *job = ctx;
    int64_t per_seq = (job->units + job->per_item - 1) / job->per_item;
    for (int64_t i = first; i < last; i++) {
        int64_t unit = i % per_seq * job->per_item, end = unit + job->per_item;
        job->run(job, &job->step->seqs[i / per_seq], unit, end < job->units ? end : job->units, cpu_thread(job->c, thread));
    }
}

static void run_items(struct recur_job job) {
    int64_t per_seq = (job.units + job.per_item - 1) / job.per_item;
    pool_run(job.c->pool, job.step->n_seqs * per_seq, 1, recur_items, &job);
}

/* `n` elements of the sequence's state from element `at`, zeroed when the sequence starts. */
static float *state_at(const struct recur_job *job, int32_t state, const struct step_seq *seq, int64_t at, int64_t n) {
    float *s = cpu_state(job->c, state, seq->slot) + at;
    if (seq->starts) memset(s, 0, (size_t)n * sizeof *s);
    return s;
}

static const float *head_row(const struct recur_job *job, int32_t input, int64_t row, int64_t head) {
    struct tensor t = job->op->in[input];
    return cpu_row(job->c, t, row) + head * t.head_stride;
}

static float *out_row(const struct recur_job *job, int64_t row, int64_t head) {
    struct tensor t = job->op->out[0];
    return cpu_row(job->c, t, row) + head * t.head_stride;
}

static float softplus(const struct recur_job *job, float x) {
    job->c->kern.act(&x, 1, &(struct act_args){.kind = ACT_SOFTPLUS});
    return x;
}

/* ---- convolution -------------------------------------------------------------------------------------------------- */

/* Input of the position `back` rows before row i of the sequence: a row of this step, or of the state. */
static const float *conv_source(const struct recur_job *job, const struct step_seq *seq, const float *state, int64_t taps, int64_t i,
                                int64_t back) {
    if (i - back >= 0) return cpu_row(job->c, job->op->in[0], seq->row + i - back);
    return state + (taps - 1 + i - back) * tensor_row_size(job->op->in[0]);
}

static void conv_keep(const struct recur_job *job, const struct step_seq *seq, float *state, int64_t taps, int64_t first, int64_t last) {
    int64_t kept = taps - 1, channels = tensor_row_size(job->op->in[0]);
    for (int64_t t = 0; t < kept; t++) { /* ascending: a row moves down before it is overwritten */
        const float *from = conv_source(job, seq, state, taps, seq->n_rows - 1, kept - 1 - t);
        memmove(state + t * channels + first, from + first, (size_t)(last - first) * sizeof *state);
    }
}

static void conv_channels(const struct recur_job *job, const struct step_seq *seq, int64_t first, int64_t last, float *scratch) {
    (void)scratch;
    const struct conv_args *a = &job->op->arg.conv;
    const float *w = cpu_vec(a->weight), *bias = cpu_vec(a->bias);
    int64_t channels = tensor_row_size(job->op->in[0]);
    float *state = cpu_state(job->c, a->state, seq->slot);
    for (int64_t t = 0; seq->starts && t < a->taps - 1; t++)
        memset(state + t * channels + first, 0, (size_t)(last - first) * sizeof *state);
    for (int64_t i = 0; i < seq->n_rows; i++) {
        float *y = out_row(job, seq->row + i, 0);
        for (int64_t ch = first; ch < last; ch++) y[ch] = bias ? bias[ch] : 0;
        for (int64_t t = 0; t < a->taps; t++) {
            const float *x = conv_source(job, seq, state, a->taps, i, a->taps - 1 - t);
            for (int64_t ch = first; ch < last; ch++) y[ch] += x[ch] * w[ch * a->taps + t];
        }
        job->c->kern.act(y + first, last - first, &(struct act_args){.kind = a->act});
    }
    conv_keep(job, seq, state, a->taps, first, last);
}

void cpu_run_conv(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, conv_channels, tensor_row_size(op->in[0]), 64});
}

/* ---- gated delta rule --------------------------------------------------------------------------------------------- */

/* x times `scale`, divided by its length first where the rule wants that. */
static void delta_unit(const struct recur_job *job, const float *x, float scale, float *out) {
    const struct delta_args *a = &job->op->arg.delta;
    if (a->l2_norm) scale *= 1.0f / (float)sqrt(job->c->kern.sum_squares(x, a->k_width) + (double)a->l2_eps);
    for (int32_t i = 0; i < a->k_width; i++) out[i] = x[i] * scale;
}

static float element(const struct recur_job *job, int32_t input, int64_t row, int64_t i) {
    return cpu_row(job->c, job->op->in[input], row)[i];
}

/* exp(-exp(a_log) * softplus(a + dt_bias)): what a head keeps of its state from one position to the next. */
static float sigmoid(float x) {
    return 1.0f / (1.0f + m_expf(-x));
}

/* What a row of the state keeps, x being the row's own number with its bias. */
static float delta_decay(const struct recur_job *job, int64_t head, float x) {
    const struct delta_args *a = &job->op->arg.delta;
    float rate = m_expf(cpu_vec(a->a_log)[head]);
    return m_expf(a->bound != 0 ? a->bound * sigmoid(rate * x) : -rate * softplus(job, x));
}

/* One for every channel of a key. */
static void delta_decays(const struct recur_job *job, int64_t row, int64_t head, float *out) {
    const struct delta_args *a = &job->op->arg.delta;
    const float *bias = cpu_vec(a->dt_bias);
    const float *x = a->by_channel ? head_row(job, 3, row, head) : NULL;
    float same = x ? 0 : delta_decay(job, head, element(job, 3, row, head) + bias[head]);
    for (int32_t i = 0; i < a->k_width; i++) out[i] = x ? delta_decay(job, head, x[i] + bias[head * a->k_width + i]) : same;
}

static void delta_head(const struct recur_job *job, const struct step_seq *seq, int64_t head, int64_t last, float *scratch) {
    (void)last;
    const struct delta_args *a = &job->op->arg.delta;
    const struct kernels *k = &job->c->kern;
    int64_t elements = (int64_t)a->k_width * a->v_width, k_head = head / (a->v_heads / a->k_heads);
    float *state = state_at(job, a->state, seq, head * elements, elements);
    float *query = scratch, *key = query + a->k_width, *decays = key + a->k_width, *change = decays + a->k_width;
    for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
        const float *value = head_row(job, 2, row, head);
        float *y = out_row(job, row, head), beta = a->beta_scale * sigmoid(element(job, 4, row, head));
        delta_decays(job, row, head, decays);
        delta_unit(job, head_row(job, 0, row, k_head), a->scale, query);
        delta_unit(job, head_row(job, 1, row, k_head), 1.0f, key);
        for (int64_t i = 0; i < elements; i++) state[i] *= decays[i / a->v_width];
        memset(change, 0, (size_t)a->v_width * sizeof *change);
        for (int32_t i = 0; i < a->k_width; i++) k->axpy(change, state + (int64_t)i * a->v_width, key[i], a->v_width);
        for (int32_t i = 0; i < a->v_width; i++) change[i] = (value[i] - change[i]) * beta;
        memset(y, 0, (size_t)a->v_width * sizeof *y);
        for (int32_t i = 0; i < a->k_width; i++) {
            k->axpy(state + (int64_t)i * a->v_width, change, key[i], a->v_width);
            k->axpy(y, state + (int64_t)i * a->v_width, query[i], a->v_width);
        }
    }
}

void cpu_run_delta(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, delta_head, op->arg.delta.v_heads, 1});
}

/* ---- state spaces ------------------------------------------------------------------------------------------------- */

static void ssd_head(const struct recur_job *job, const struct step_seq *seq, int64_t head, int64_t last, float *scratch) {
    (void)last, (void)scratch;
    const struct ssd_args *a = &job->op->arg.ssd;
    int64_t elements = (int64_t)a->head_width * a->state_width, group = head / (a->heads / a->groups);
    float *state = state_at(job, a->state, seq, head * elements, elements);
    float rate = -m_expf(cpu_vec(a->a_log)[head]), skip = a->d ? cpu_vec(a->d)[head] : 0, bias = a->dt_bias ? cpu_vec(a->dt_bias)[head] : 0;
    for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
        const float *x = head_row(job, 0, row, head), *b = head_row(job, 1, row, group), *c = head_row(job, 2, row, group);
        float *y = out_row(job, row, head), dt = softplus(job, element(job, 3, row, head) + bias);
        dt = dt < a->dt_min ? a->dt_min : dt > a->dt_max ? a->dt_max : dt;
        float keep = m_expf(dt * rate);
        for (int64_t i = 0; i < a->head_width; i++) {
            float *s = state + i * a->state_width;
            for (int64_t j = 0; j < a->state_width; j++) s[j] = s[j] * keep + b[j] * (dt * x[i]);
            y[i] = job->c->kern.dot(s, c, a->state_width) + skip * x[i];
        }
    }
}

void cpu_run_ssd(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, ssd_head, op->arg.ssd.heads, 1});
}

static void scan_channels(const struct recur_job *job, const struct step_seq *seq, int64_t first, int64_t last, float *scratch) {
    const struct scan_args *a = &job->op->arg.scan;
    int64_t n = a->state_width;
    const float *a_log = cpu_vec(a->a_log), *d = cpu_vec(a->d);
    float *keep = scratch, *rate = keep + n;
    for (int64_t ch = first; ch < last; ch++) {
        float *state = state_at(job, a->state, seq, ch * n, n);
        for (int64_t i = 0; i < n; i++) rate[i] = -m_expf(a_log[ch * n + i]);
        for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
            const float *b = head_row(job, 2, row, 0), *c = head_row(job, 3, row, 0);
            float x = element(job, 0, row, ch), dt = softplus(job, element(job, 1, row, ch));
            for (int64_t i = 0; i < n; i++) keep[i] = m_expf(dt * rate[i]);
            for (int64_t i = 0; i < n; i++) state[i] = state[i] * keep[i] + b[i] * (dt * x);
            out_row(job, row, 0)[ch] = job->c->kern.dot(state, c, n) + (d ? d[ch] * x : 0);
        }
    }
}

void cpu_run_scan(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, scan_channels, tensor_row_size(op->in[0]), 16});
}

/* ---- linear attention with decay ---------------------------------------------------------------------------------- */

static void lightning_head(const struct recur_job *job, const struct step_seq *seq, int64_t head, int64_t last, float *scratch) {
    (void)last, (void)scratch;
    const struct lightning_args *a = &job->op->arg.lightning;
    int64_t width = a->width;
    float *state = state_at(job, a->state, seq, head * width * width, width * width), keep = m_expf(-cpu_vec(a->slope)[head]);
    for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
        const float *q = head_row(job, 0, row, head), *k = head_row(job, 1, row, head), *v = head_row(job, 2, row, head);
        float *y = out_row(job, row, head);
        memset(y, 0, (size_t)width * sizeof *y);
        for (int64_t i = 0; i < width; i++) {
            float *s = state + i * width;
            for (int64_t j = 0; j < width; j++) s[j] = s[j] * keep + k[i] * v[j];
            job->c->kern.axpy(y, s, q[i], width);
        }
    }
}

void cpu_run_lightning(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, lightning_head, op->arg.lightning.heads, 1});
}

/* ---- linear recurrence with a gate per channel ------------------------------------------------------------------- */

static void lru_channels(const struct recur_job *job, const struct step_seq *seq, int64_t first, int64_t last, float *scratch) {
    (void)scratch;
    const struct lru_args *a = &job->op->arg.lru;
    float *state = state_at(job, a->state, seq, first, last - first);
    for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
        bool begins = job->step->pos[row] == 0;
        const float *x = head_row(job, 0, row, 0), *i = head_row(job, 1, row, 0), *r = head_row(job, 2, row, 0);
        float *y = out_row(job, row, 0);
        for (int64_t c = first; c < last; c++) {
            float power = -8.0f * sigmoid(r[c]) * cpu_vec(a->rate)[c],
                  root = begins ? 1.0f : (float)sqrt((double)(1.0f - m_expf(2.0f * power)));
            y[c] = state[c - first] = state[c - first] * m_expf(power) + x[c] * sigmoid(i[c]) * root;
        }
    }
}

void cpu_run_lru(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, lru_channels, op->in[0].width, 64});
}

/* ---- weighed mean of all values ----------------------------------------------------------------------------------- */

static void wkv_channels(const struct recur_job *job, const struct step_seq *seq, int64_t first, int64_t last, float *scratch) {
    (void)scratch;
    const struct wkv_args *a = &job->op->arg.wkv;
    int64_t channels = job->op->in[0].width, n = last - first;
    float *above = state_at(job, a->state, seq, first, n), *below = state_at(job, a->state, seq, channels + first, n),
          *most = state_at(job, a->state, seq, 2 * channels + first, n);
    for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
        const float *k = head_row(job, 0, row, 0) + first, *v = head_row(job, 1, row, 0) + first;
        float *y = out_row(job, row, 0) + first;
        for (int64_t c = 0; c < n; c++) {
            float m = below[c] > 0 ? most[c] : -1e38f, own = k[c] + cpu_vec(a->first)[first + c], top = m > own ? m : own;
            float old = m_expf(m - top), fresh = m_expf(own - top);
            y[c] = (old * above[c] + fresh * v[c]) / (old * below[c] + fresh);
            m -= cpu_vec(a->rate)[first + c];
            most[c] = m > k[c] ? m : k[c];
            old = m_expf(m - most[c]), fresh = m_expf(k[c] - most[c]);
            above[c] = old * above[c] + fresh * v[c];
            below[c] = old * below[c] + fresh;
        }
    }
}

void cpu_run_wkv(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, wkv_channels, op->in[0].width, 64});
}

/* ---- memories by head --------------------------------------------------------------------------------------------- */

static void exchange_head(const struct recur_job *job, const struct step_seq *seq, int64_t head, int64_t last, float *held) {
    (void)last;
    const struct exchange_args *a = &job->op->arg.exchange;
    int64_t n = job->op->in[0].width;
    float *state = state_at(job, a->state, seq, head * n * n, n * n);
    for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
        const float *r = head_row(job, 0, row, head), *w = head_row(job, 1, row, head), *k = head_row(job, 2, row, head);
        const float *v = head_row(job, 3, row, head), *at = head_row(job, 4, row, head), *share = head_row(job, 5, row, head);
        float *y = out_row(job, row, head);
        memset(held, 0, (size_t)n * sizeof *held);
        memset(y, 0, (size_t)n * sizeof *y);
        for (int64_t i = 0; i < n; i++) job->c->kern.axpy(held, state + i * n, at[i], n);
        for (int64_t i = 0; i < n; i++) {
            float *s = state + i * n, keep = m_expf(a->rate * sigmoid(w[i])), taken = at[i] * share[i];
            for (int64_t j = 0; j < n; j++) s[j] = s[j] * keep + k[i] * v[j] - taken * held[j];
            job->c->kern.axpy(y, s, r[i], n);
        }
    }
}

void cpu_run_exchange(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, exchange_head, op->in[0].heads, 1});
}

static void mlstm_head(const struct recur_job *job, const struct step_seq *seq, int64_t head, int64_t last, float *scratch) {
    (void)last, (void)scratch;
    const struct mlstm_args *a = &job->op->arg.mlstm;
    int64_t k_width = job->op->in[0].width, v_width = job->op->in[2].width, columns = v_width + 1, n = k_width * columns;
    float *state = state_at(job, a->state, seq, head * n, n), *most = state_at(job, a->state, seq, job->op->in[0].heads * n + head, 1);
    for (int64_t row = seq->row; row < seq->row + seq->n_rows; row++) {
        const float *q = head_row(job, 0, row, head), *k = head_row(job, 1, row, head), *v = head_row(job, 2, row, head);
        float *y = out_row(job, row, head), in = element(job, 3, row, head), kept = *most - softplus(job, -element(job, 4, row, head));
        float top = kept > in ? kept : in, keep = m_expf(kept - top), fresh = m_expf(in - top), below = 0;
        memset(y, 0, (size_t)v_width * sizeof *y);
        for (int64_t i = 0; i < k_width; i++) {
            float *s = state + i * columns, gain = fresh * k[i], query = a->scale * q[i];
            for (int64_t j = 0; j < v_width; j++) s[j] = s[j] * keep + gain * v[j];
            s[v_width] = s[v_width] * keep + gain;
            job->c->kern.axpy(y, s, query, v_width);
            below += query * s[v_width];
        }
        below = fmaxf(fabsf(below), m_expf(-top));
        for (int64_t j = 0; j < v_width; j++) y[j] /= below + a->eps;
        *most = top;
    }
}

void cpu_run_mlstm(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, mlstm_head, op->in[0].heads, 1});
}

/* ---- weighed sums of windows --------------------------------------------------------------------------------------- */

/* Channels [first, last) of the sum at row i of the sequence, which ends a window. */
static void compress_row(const struct recur_job *job, const struct step_seq *seq, const float *state, int64_t i, int64_t first,
                         int64_t last) {
    const struct compress_args *a = &job->op->arg.compress;
    int64_t series = a->overlaps ? 2 : 1, taps = series * a->every, channels = series * a->width, pos = seq->pos + i;
    float *y = out_row(job, seq->row + i, 0);
    for (int64_t c = first; c < last; c++) {
        float most = -INFINITY, sum = 0, above = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t t = pos < taps - 1 ? taps - 1 - pos : 0; t < taps; t++) {
                const float *x = conv_source(job, seq, state, taps, i, taps - 1 - t);
                int64_t at = t / a->every * a->width + c;
                float score = x[channels + at] + cpu_vec(a->bias)[t % a->every * channels + at];
                if (pass == 0) {
                    most = score > most ? score : most;
                    continue;
                }
                float weight = m_expf(score - most);
                sum += weight, above += weight * x[at];
            }
        y[c] = above / sum;
    }
}

static void compress_channels(const struct recur_job *job, const struct step_seq *seq, int64_t first, int64_t last, float *scratch) {
    (void)scratch;
    const struct compress_args *a = &job->op->arg.compress;
    int64_t series = a->overlaps ? 2 : 1, taps = series * a->every, all = tensor_row_size(job->op->in[0]);
    float *state = cpu_state(job->c, a->state, seq->slot);
    for (int64_t i = 0; i < seq->n_rows; i++) {
        if ((seq->pos + i + 1) % a->every == 0) compress_row(job, seq, state, i, first, last);
        else memset(out_row(job, seq->row + i, 0) + first, 0, (size_t)(last - first) * sizeof(float));
    }
    for (int64_t at = 0; at < all; at += a->width) conv_keep(job, seq, state, taps, at + first, at + last);
}

void cpu_run_compress(struct cpu *c, const struct op *op, const struct step *step) {
    run_items((struct recur_job){c, op, step, compress_channels, op->arg.compress.width, 32});
}
