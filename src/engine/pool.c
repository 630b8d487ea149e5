/* Pooling of hidden states, and the stages behind it. */
#include "engine/pool.h"

#include "base/fmath.h"

/* ---- states to one vector --------------------------------------------------------------------------------------------- */

/* Whether the states of a position count. */
static bool counts(enum job_pooling how, int32_t position, int32_t skip) {
    return how == POOL_FIRST ? position == 0 : position >= skip;
}

void pool_add(struct pool_sum *s, enum job_pooling how, const float *rows, int32_t width, int32_t first, int32_t n, int32_t skip) {
    for (int32_t i = 0; i < n; i++) {
        if (!counts(how, first + i, skip)) continue;
        const float *row = rows + (int64_t)i * width;
        double weight = how == POOL_WEIGHTED ? first + i + 1 : 1;
        bool is_new = how == POOL_LAST || (how == POOL_MAX && s->n == 0);
        for (int32_t k = 0; k < width; k++) {
            double x = (double)row[k];
            if (is_new) s->sum[k] = x;
            else if (how != POOL_MAX) s->sum[k] += x * weight;
            else if (s->sum[k] == s->sum[k] && !(x <= s->sum[k])) s->sum[k] = x; /* what is no number stays */
        }
        s->weight = how == POOL_LAST || how == POOL_MAX ? 1 : s->weight + weight;
        s->n++;
    }
}

/* ---- stages ----------------------------------------------------------------------------------------------------------- */

static double plain(double x) {
    return x;
}
static double sigmoid(double x) {
    return 1 / (1 + m_exp(-x));
}
static double silu(double x) {
    return x * sigmoid(x);
}
static double relu(double x) {
    return x > 0 ? x : 0;
}
static double gelu(double x) {
    return 0.5 * x * (1 + m_erf(x * 0.70710678118654752440));
}
static double gelu_tanh(double x) {
    return 0.5 * x * (1 + m_tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static double (*const functions[N_ACT_KINDS])(double) = {
    [ACT_NONE] = plain, [ACT_SILU] = silu,       [ACT_GELU] = gelu,   [ACT_GELU_TANH] = gelu_tanh,
    [ACT_RELU] = relu,  [ACT_SIGMOID] = sigmoid, [ACT_TANH] = m_tanh,
};

static void dense(const struct pool_stage *s, const float *x, float *y) {
    for (int32_t i = 0; i < s->out; i++) {
        const float *w = s->w + (int64_t)i * s->in;
        double sum = s->b ? (double)s->b[i] : 0;
        for (int32_t k = 0; k < s->in; k++) sum += (double)w[k] * (double)x[k];
        y[i] = (float)functions[s->act](sum);
    }
}

static void layer_norm(const struct pool_stage *s, const float *x, float *y) {
    double mean = 0, square = 0;
    for (int32_t i = 0; i < s->in; i++) mean += (double)x[i] / s->in;
    for (int32_t i = 0; i < s->in; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean) / s->in;
    double scale = 1 / sqrt(square + (double)s->eps);
    for (int32_t i = 0; i < s->in; i++) y[i] = (float)(((double)x[i] - mean) * scale * (double)s->w[i] + (s->b ? (double)s->b[i] : 0));
}

static void unit(const struct pool_stage *s, const float *x, float *y) {
    double square = 0;
    for (int32_t i = 0; i < s->in; i++) square += (double)x[i] * (double)x[i];
    double scale = square > 0 ? 1 / sqrt(square) : NAN;
    for (int32_t i = 0; i < s->in; i++) y[i] = (float)((double)x[i] * scale);
}

typedef void stage_fn(const struct pool_stage *s, const float *x, float *y);
static stage_fn *const stages[] = {[STAGE_DENSE] = dense, [STAGE_NORM] = layer_norm, [STAGE_UNIT] = unit};

/* Without a head: the sum, whatever its weight, of length 1, rounded once. */
static bool finish_plain(const struct pool_sum *s, int32_t width, float *out) {
    double square = 0;
    for (int32_t i = 0; i < width; i++) square += s->sum[i] * s->sum[i];
    if (!isfinite(square) || square <= 0) return false;
    double scale = 1 / sqrt(square);
    for (int32_t i = 0; i < width; i++) out[i] = (float)(s->sum[i] * scale);
    return true;
}

bool pool_finish(const struct pool_sum *s, enum job_pooling how, int32_t width, const struct pool_head *head, float *scratch, float *out) {
    if (s->n == 0) return false;
    if (!head) return finish_plain(s, width, out);
    double scale = how == POOL_MEAN_ROOT ? 1 / sqrt(s->weight) : 1 / s->weight;
    float *x = scratch, *y = scratch + head->widest;
    for (int32_t i = 0; i < width; i++) x[i] = (float)(s->sum[i] * scale);
    for (int32_t i = 0; i < head->n; i++) {
        stages[head->stages[i].kind](&head->stages[i], x, y);
        float *used = x;
        x = y, y = used;
    }
    bool is_finite = true;
    for (int32_t i = 0; i < head->width; i++) is_finite &= isfinite(out[i] = x[i]) != 0;
    return is_finite;
}
