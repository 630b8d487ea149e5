/* Reference kernels: plain C, sixteen fixed lanes where a sum is long, so that compilers may vectorise without changing
 * a bit. Elementary functions are ours (base/fmath.h). */
#include "backend/cpu/kern.h"

#include "base/fmath.h"

enum { LANES = 16 };

static float fold(const float lane[LANES]) {
    float half[8];
    for (int i = 0; i < 8; i++) half[i] = lane[i] + lane[i + 8];
    for (int i = 0; i < 4; i++) half[i] += half[i + 4];
    return (half[0] + half[2]) + (half[1] + half[3]);
}

static float dot(const float *a, const float *b, int64_t n) {
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++) lane[k] += a[i + k] * b[i + k];
    for (int k = 0; i < n; i++, k++) lane[k] += a[i] * b[i];
    return fold(lane);
}

static void axpy(float *y, const float *x, float scale, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] += scale * x[i];
}

static double sum_squares(const float *x, int64_t n) {
    double lane[4] = {0};
    for (int64_t i = 0; i < n; i++) lane[i & 3] += (double)x[i] * (double)x[i];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static double sum(const float *x, int64_t n) {
    double lane[4] = {0};
    for (int64_t i = 0; i < n; i++) lane[i & 3] += (double)x[i];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

static float max(const float *x, int64_t n, float least) {
    for (int64_t i = 0; i < n; i++)
        if (x[i] > least) least = x[i];
    return least;
}

static float exp_sum(float *x, int64_t n, float max) {
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i] = m_expf(x[i] - max);
        total += (double)x[i];
    }
    return (float)total;
}

static float sigmoid(float x) {
    return 1.0f / (1.0f + m_expf(-x));
}

/* One function per kind; p are the kind's parameters. */
/* clang-format off */
static float act_none(float x, const float *p) { (void)p; return x; }
static float act_silu(float x, const float *p) { (void)p; return x * sigmoid(x); }
static float act_gelu(float x, const float *p) { (void)p; return 0.5f * x * (1.0f + m_erff(x * 0.70710678118654752f)); }
static float act_gelu_tanh(float x, const float *p) {
    (void)p;
    return 0.5f * x * (1.0f + m_tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x)));
}
static float act_relu(float x, const float *p) { (void)p; return x > 0 ? x : 0; }
static float act_relu2(float x, const float *p) { (void)p; return x > 0 ? x * x : 0; }
static float act_sigmoid(float x, const float *p) { (void)p; return sigmoid(x); }
static float act_tanh(float x, const float *p) { (void)p; return m_tanhf(x); }
static float act_softplus(float x, const float *p) { (void)p; return x > 20.0f ? x : (float)m_log(1.0 + m_exp((double)x)); }
static float act_sqrt_softplus(float x, const float *p) { return (float)sqrt((double)act_softplus(x, p)); }
static float act_softcap(float x, const float *p) { return p[0] * m_tanhf(x / p[0]); }
static float act_xielu(float x, const float *p) {
    if (x > 0) return p[0] * x * x + p[2] * x;
    float bounded = x < p[3] ? x : p[3];
    return ((float)(m_exp((double)bounded) - 1.0) - x) * p[1] + p[2] * x;
}
static float act_exp(float x, const float *p) { (void)p; return m_expf(x); }
static float act_neg_exp(float x, const float *p) { (void)p; return -m_expf(x); }
static float act_clamp(float x, const float *p) { return x > p[0] ? p[0] : x < -p[0] ? -p[0] : x; }
/* clang-format on */
/* The gate's half of the clamped form; the caller multiplies by the clamped up + 1. */
static float act_clamped(float x, const float *p) {
    x = x < p[1] ? x : p[1];
    return x * sigmoid(p[0] * x);
}

/* Likewise; the caller multiplies by the clamped up. */
static float act_limited(float x, const float *p) {
    if (p[1] != 0) x = x < p[0] ? x : p[0];
    float y = x * sigmoid(x);
    return y < p[0] ? y : p[0];
}

static float (*const act_functions[N_ACT_KINDS])(float, const float *) = {
    [ACT_NONE] = act_none,
    [ACT_SILU] = act_silu,
    [ACT_GELU] = act_gelu,
    [ACT_GELU_TANH] = act_gelu_tanh,
    [ACT_RELU] = act_relu,
    [ACT_RELU2] = act_relu2,
    [ACT_SIGMOID] = act_sigmoid,
    [ACT_TANH] = act_tanh,
    [ACT_SOFTPLUS] = act_softplus,
    [ACT_SQRT_SOFTPLUS] = act_sqrt_softplus,
    [ACT_SOFTCAP] = act_softcap,
    [ACT_XIELU] = act_xielu,
    [ACT_EXP] = act_exp,
    [ACT_NEG_EXP] = act_neg_exp,
    [ACT_CLAMP] = act_clamp,
    [ACT_CLAMPED_SWIGLU] = act_clamped,
    [ACT_LIMITED_SWIGLU] = act_limited,
};

void kern_ref_act(float *x, int64_t n, const struct act_args *a) {
    float (*f)(float, const float *) = act_functions[a->kind];
    for (int64_t i = 0; i < n; i++) x[i] = f(x[i], a->p);
}

void kern_ref(struct kernels *k) {
    *k = (struct kernels){
        .isa = "reference",
        .dot = dot,
        .axpy = axpy,
        .unpack = quant_unpack,
        .act = kern_ref_act,
        .exp_sum = exp_sum,
        .sum_squares = sum_squares,
        .sum = sum,
        .max = max,
    };
    kern_kv_ref(k);
}
