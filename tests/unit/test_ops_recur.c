/* Recurrent ops on the CPU: each against its recurrence in double precision, then the promises that hold for all of
 * them: chunks, neighbours in the batch and threads change no bit, a start forgets what the slot held, and a copied
 * slot continues like its original. */
#include "ops_bench.h"

#include <math.h>

enum { ROWS = 13, WIDTH_MAX = 128, OUT_MAX = 64 };

/* One op under test: how it is said, and what its rows are, computed from the input rows of one sequence. */
struct recur_case {
    const char *name;
    int32_t in_width, out_width;
    int64_t state;
    struct tensor (*emit)(struct ops_bench *b, struct oplist *l, struct tensor x);
    void (*expect)(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]);
};

/* Weights are data of a seed; emit binds them anew for every list, which is cheap here. */
static const struct weight *vector_of(struct ops_bench *b, uint64_t seed, int64_t n) {
    return bench_vector(b, bench_floats(b, seed, n, 1, 0), n);
}

static double softplus(double x) {
    return log1p(exp(x));
}

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

/* ---- convolution -------------------------------------------------------------------------------------------------- */

enum { CONV_CHANNELS = 48, CONV_TAPS = 4 };

static struct tensor conv_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    return op_conv(l, x,
                   &(struct conv_args){.weight = vector_of(b, 11, CONV_CHANNELS * CONV_TAPS),
                                       .bias = vector_of(b, 12, CONV_CHANNELS),
                                       .taps = CONV_TAPS,
                                       .state = 1,
                                       .act = ACT_SILU});
}

static void conv_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t r = 0; r < n_rows; r++)
        for (int32_t c = 0; c < CONV_CHANNELS; c++) {
            double sum = bench_value(12, c);
            for (int32_t t = 0; t < CONV_TAPS; t++)
                if (r - CONV_TAPS + 1 + t >= 0) sum += (double)x[r - CONV_TAPS + 1 + t][c] * (double)bench_value(11, c * CONV_TAPS + t);
            y[r][c] = sum * sigmoid(sum);
        }
}

/* ---- gated delta rule --------------------------------------------------------------------------------------------- */

enum {
    K_HEADS = 2,
    V_HEADS = 4,
    K_WIDTH = 8,
    V_WIDTH = 12,
    D_K = K_HEADS * K_WIDTH,
    D_V = V_HEADS * V_WIDTH,
    D_IN = 2 * D_K + D_V + 2 * V_HEADS
};

static struct tensor delta_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    struct delta_args a = {.a_log = vector_of(b, 21, V_HEADS),
                           .dt_bias = vector_of(b, 22, V_HEADS),
                           .state = 1,
                           .beta_scale = 1,
                           .k_heads = K_HEADS,
                           .v_heads = V_HEADS,
                           .k_width = K_WIDTH,
                           .v_width = V_WIDTH,
                           .scale = 0.25f,
                           .l2_norm = 1,
                           .l2_eps = 1e-6f};
    struct tensor q = tensor_split_heads(tensor_slice(x, 0, D_K), K_HEADS), k = tensor_split_heads(tensor_slice(x, D_K, D_K), K_HEADS);
    struct tensor v = tensor_split_heads(tensor_slice(x, 2 * D_K, D_V), V_HEADS);
    struct tensor decay = tensor_slice(x, 2 * D_K + D_V, V_HEADS), beta = tensor_slice(x, 2 * D_K + D_V + V_HEADS, V_HEADS);
    return op_delta(l, q, k, v, decay, beta, &a);
}

static double length_of(const float *x) {
    double sum = 1e-6;
    for (int32_t i = 0; i < K_WIDTH; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static void delta_head(const float (*x)[WIDTH_MAX], int32_t n_rows, int32_t head, double (*y)[OUT_MAX]) {
    double s[K_WIDTH][V_WIDTH] = {0};
    for (int32_t r = 0; r < n_rows; r++) {
        const float *q = x[r] + head / 2 * K_WIDTH, *k = q + D_K, *v = x[r] + 2 * D_K + head * V_WIDTH, *ab = x[r] + 2 * D_K + D_V + head;
        double decay = exp(-exp((double)bench_value(21, head)) * softplus((double)ab[0] + (double)bench_value(22, head)));
        for (int32_t j = 0; j < V_WIDTH; j++) {
            double held = 0, out = 0;
            for (int32_t i = 0; i < K_WIDTH; i++) held += s[i][j] * decay * (double)k[i] / length_of(k);
            for (int32_t i = 0; i < K_WIDTH; i++) {
                s[i][j] = s[i][j] * decay + (double)k[i] / length_of(k) * ((double)v[j] - held) * sigmoid((double)ab[V_HEADS]);
                out += 0.25 * (double)q[i] / length_of(q) * s[i][j];
            }
            y[r][head * V_WIDTH + j] = out;
        }
    }
}

static void delta_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t head = 0; head < V_HEADS; head++) delta_head(x, n_rows, head, y);
}

/* Decays of every channel of a key, bounded, and rates up to 2; a head of keys for each of values. */
enum { B_HEADS = 2, B_K = B_HEADS * K_WIDTH, B_V = B_HEADS * V_WIDTH, B_IN = 3 * B_K + B_V + B_HEADS };

static struct tensor bounded_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    struct delta_args a = {.a_log = vector_of(b, 23, B_HEADS),
                           .dt_bias = vector_of(b, 24, B_K),
                           .state = 1,
                           .by_channel = 1,
                           .bound = -5,
                           .beta_scale = 2,
                           .k_heads = B_HEADS,
                           .v_heads = B_HEADS,
                           .k_width = K_WIDTH,
                           .v_width = V_WIDTH,
                           .scale = 0.5f};
    struct tensor q = tensor_split_heads(tensor_slice(x, 0, B_K), B_HEADS), k = tensor_split_heads(tensor_slice(x, B_K, B_K), B_HEADS);
    struct tensor v = tensor_split_heads(tensor_slice(x, 2 * B_K, B_V), B_HEADS),
                  decay = tensor_split_heads(tensor_slice(x, 2 * B_K + B_V, B_K), B_HEADS);
    return op_delta(l, q, k, v, decay, tensor_slice(x, 3 * B_K + B_V, B_HEADS), &a);
}

static void bounded_head(const float (*x)[WIDTH_MAX], int32_t n_rows, int32_t head, double (*y)[OUT_MAX]) {
    double s[K_WIDTH][V_WIDTH] = {0}, rate = exp((double)bench_value(23, head));
    for (int32_t r = 0; r < n_rows; r++) {
        const float *q = x[r] + head * K_WIDTH, *k = q + B_K, *v = x[r] + 2 * B_K + head * V_WIDTH,
                    *a = x[r] + 2 * B_K + B_V + head * K_WIDTH;
        double beta = 2 * sigmoid((double)x[r][3 * B_K + B_V + head]);
        for (int32_t j = 0; j < V_WIDTH; j++) {
            double held = 0, out = 0;
            for (int32_t i = 0; i < K_WIDTH; i++) {
                s[i][j] *= exp(-5 * sigmoid(rate * ((double)a[i] + (double)bench_value(24, head * K_WIDTH + i))));
                held += s[i][j] * (double)k[i];
            }
            for (int32_t i = 0; i < K_WIDTH; i++) {
                s[i][j] += (double)k[i] * ((double)v[j] - held) * beta;
                out += 0.5 * (double)q[i] * s[i][j];
            }
            y[r][head * V_WIDTH + j] = out;
        }
    }
}

static void bounded_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t head = 0; head < B_HEADS; head++) bounded_head(x, n_rows, head, y);
}

/* ---- state spaces ------------------------------------------------------------------------------------------------- */

enum {
    S_HEADS = 4,
    S_WIDTH = 6,
    S_GROUPS = 2,
    S_STATE = 10,
    S_X = S_HEADS * S_WIDTH,
    S_B = S_GROUPS * S_STATE,
    S_IN = S_X + 2 * S_B + S_HEADS
};

static struct tensor ssd_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    struct ssd_args a = {.a_log = vector_of(b, 31, S_HEADS),
                         .d = vector_of(b, 32, S_HEADS),
                         .dt_bias = vector_of(b, 33, S_HEADS),
                         .state = 1,
                         .heads = S_HEADS,
                         .head_width = S_WIDTH,
                         .groups = S_GROUPS,
                         .state_width = S_STATE,
                         .dt_min = 0.5f,
                         .dt_max = 1.0f};
    struct tensor bb = tensor_split_heads(tensor_slice(x, S_X, S_B), S_GROUPS),
                  c = tensor_split_heads(tensor_slice(x, S_X + S_B, S_B), S_GROUPS);
    return op_ssd(l, tensor_split_heads(tensor_slice(x, 0, S_X), S_HEADS), bb, c, tensor_slice(x, S_X + 2 * S_B, S_HEADS), &a);
}

static void ssd_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t i = 0; i < S_X; i++) {
        int32_t head = i / S_WIDTH, group = head / (S_HEADS / S_GROUPS);
        double s[S_STATE] = {0};
        for (int32_t r = 0; r < n_rows; r++) {
            double dt = fmin(fmax(softplus((double)x[r][S_X + 2 * S_B + head] + (double)bench_value(33, head)), 0.5), 1.0);
            y[r][i] = (double)bench_value(32, head) * (double)x[r][i];
            for (int32_t n = 0; n < S_STATE; n++) {
                s[n] =
                    s[n] * exp(-exp((double)bench_value(31, head)) * dt) + dt * (double)x[r][i] * (double)x[r][S_X + group * S_STATE + n];
                y[r][i] += s[n] * (double)x[r][S_X + S_B + group * S_STATE + n];
            }
        }
    }
}

enum { C_CHANNELS = 20, C_STATE = 16, C_IN = 2 * C_CHANNELS + 2 * C_STATE };

static struct tensor scan_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    return op_scan(
        l, tensor_slice(x, 0, C_CHANNELS), tensor_slice(x, C_CHANNELS, C_CHANNELS), tensor_slice(x, 2 * C_CHANNELS, C_STATE),
        tensor_slice(x, 2 * C_CHANNELS + C_STATE, C_STATE),
        &(struct scan_args){
            .a_log = vector_of(b, 41, C_CHANNELS * C_STATE), .d = vector_of(b, 42, C_CHANNELS), .state = 1, .state_width = C_STATE});
}

static void scan_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t c = 0; c < C_CHANNELS; c++) {
        double s[C_STATE] = {0};
        for (int32_t r = 0; r < n_rows; r++) {
            double dt = softplus((double)x[r][C_CHANNELS + c]);
            y[r][c] = (double)bench_value(42, c) * (double)x[r][c];
            for (int32_t n = 0; n < C_STATE; n++) {
                s[n] = s[n] * exp(-exp((double)bench_value(41, c * C_STATE + n)) * dt) +
                       dt * (double)x[r][c] * (double)x[r][2 * C_CHANNELS + n];
                y[r][c] += s[n] * (double)x[r][2 * C_CHANNELS + C_STATE + n];
            }
        }
    }
}

/* ---- linear attention with decay ---------------------------------------------------------------------------------- */

enum { L_HEADS = 3, L_WIDTH = 8, L_ALL = L_HEADS * L_WIDTH };

static struct tensor lightning_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    struct tensor part[3];
    for (int32_t i = 0; i < 3; i++) part[i] = tensor_split_heads(tensor_slice(x, i * L_ALL, L_ALL), L_HEADS);
    return op_lightning(l, part[0], part[1], part[2],
                        &(struct lightning_args){.slope = vector_of(b, 51, L_HEADS), .state = 1, .heads = L_HEADS, .width = L_WIDTH});
}

/* Without a state at all: every pair of positions, weighed by its distance. */
static void lightning_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t r = 0; r < n_rows; r++)
        for (int32_t i = 0; i < L_ALL; i++) {
            int32_t head = i / L_WIDTH;
            y[r][i] = 0;
            for (int32_t p = 0; p <= r; p++) {
                double score = 0;
                for (int32_t k = 0; k < L_WIDTH; k++) score += (double)x[r][head * L_WIDTH + k] * (double)x[p][L_ALL + head * L_WIDTH + k];
                y[r][i] += score * exp(-(double)bench_value(51, head) * (r - p)) * (double)x[p][2 * L_ALL + i];
            }
        }
}

/* ---- linear recurrence with a gate per channel ------------------------------------------------------------------- */

enum { G_CHANNELS = 20 };

static struct tensor lru_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    struct tensor part[3];
    for (int32_t i = 0; i < 3; i++) part[i] = tensor_slice(x, i * G_CHANNELS, G_CHANNELS);
    return op_lru(l, part[0], part[1], part[2],
                  &(struct lru_args){.rate = bench_vector(b, bench_floats(b, 61, G_CHANNELS, 0.25f, 0.5f), G_CHANNELS), .state = 1});
}

static void lru_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t c = 0; c < G_CHANNELS; c++)
        for (int32_t r = 0; r < n_rows; r++) {
            double keep = exp(-8 * sigmoid((double)x[r][2 * G_CHANNELS + c]) * ((double)bench_value(61, c) * 0.25 + 0.5));
            double in = (double)x[r][c] * sigmoid((double)x[r][G_CHANNELS + c]);
            y[r][c] = r ? keep * y[r - 1][c] + in * sqrt(1 - keep * keep) : in;
        }
}

/* ---- weighed mean of all values ----------------------------------------------------------------------------------- */

enum { W_CHANNELS = 20 };

/* Keys are far apart, so that exponentials of theirs alone would overflow. */
static struct tensor wkv_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    struct tensor k = op_act(l, tensor_slice(x, 0, W_CHANNELS), &(struct act_args){.kind = ACT_NONE, .scale = 128});
    struct wkv_args a = {.rate = bench_vector(b, bench_floats(b, 71, W_CHANNELS, 0.25f, 0.5f), W_CHANNELS),
                         .first = bench_vector(b, bench_floats(b, 72, W_CHANNELS, 1, 0), W_CHANNELS),
                         .state = 1};
    return op_wkv(l, k, tensor_slice(x, W_CHANNELS, W_CHANNELS), &a);
}

static void wkv_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t c = 0; c < W_CHANNELS; c++)
        for (int32_t r = 0; r < n_rows; r++) {
            double rate = (double)bench_value(71, c) * 0.25 + 0.5, first = (double)bench_value(72, c), top = -1e300, above = 0, below = 0;
            for (int pass = 0; pass < 2; pass++)
                for (int32_t i = 0; i <= r; i++) {
                    double power = 128 * (double)x[i][c] + (i == r ? first : -rate * (r - 1 - i));
                    if (pass == 0) top = power > top ? power : top;
                    else above += exp(power - top) * (double)x[i][W_CHANNELS + c], below += exp(power - top);
                }
            y[r][c] = above / below;
        }
}

/* ---- memories by head --------------------------------------------------------------------------------------------- */

enum { E_HEADS = 2, E_WIDTH = 8, E_ALL = E_HEADS * E_WIDTH };

static struct tensor exchange_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    (void)b;
    struct tensor part[6];
    for (int32_t i = 0; i < 6; i++) part[i] = tensor_split_heads(tensor_slice(x, i * E_ALL, E_ALL), E_HEADS);
    return op_exchange(l, part, &(struct exchange_args){.rate = -0.6f, .state = 1});
}

static void exchange_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t head = 0; head < E_HEADS; head++)
        for (int32_t j = 0; j < E_WIDTH; j++) {
            double s[E_WIDTH] = {0};
            for (int32_t r = 0; r < n_rows; r++) {
                const float *q = x[r] + head * E_WIDTH, *w = q + E_ALL, *k = w + E_ALL, *v = k + E_ALL, *at = v + E_ALL,
                            *share = at + E_ALL;
                double held = 0, out = 0;
                for (int32_t i = 0; i < E_WIDTH; i++) held += (double)at[i] * s[i];
                for (int32_t i = 0; i < E_WIDTH; i++) {
                    s[i] = s[i] * exp(-0.6 * sigmoid((double)w[i])) + (double)k[i] * (double)v[j] - (double)at[i] * (double)share[i] * held;
                    out += (double)q[i] * s[i];
                }
                y[r][head * E_WIDTH + j] = out;
            }
        }
}

enum { X_HEADS = 2, X_K = 8, X_V = 12, X_KS = X_HEADS * X_K, X_VS = X_HEADS * X_V, X_IN = 2 * X_KS + X_VS + 2 * X_HEADS };

/* Input gates are far apart, so that exponentials of theirs alone would overflow. */
static struct tensor mlstm_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    (void)b;
    struct tensor q = tensor_split_heads(tensor_slice(x, 0, X_KS), X_HEADS), k = tensor_split_heads(tensor_slice(x, X_KS, X_KS), X_HEADS);
    struct tensor in = op_act(l, tensor_slice(x, 2 * X_KS + X_VS, X_HEADS), &(struct act_args){.kind = ACT_NONE, .scale = 128});
    return op_mlstm(l, q, k, tensor_split_heads(tensor_slice(x, 2 * X_KS, X_VS), X_HEADS), in,
                    tensor_slice(x, 2 * X_KS + X_VS + X_HEADS, X_HEADS), &(struct mlstm_args){.scale = 0.25f, .eps = 1e-6f, .state = 1});
}

/* Without a state: every position so far, weighed by its gate and those behind it. */
static void mlstm_row(const float (*x)[WIDTH_MAX], int32_t r, int32_t head, double *y) {
    double power[ROWS], top = 0, fallen = 0, below = 0;
    for (int32_t p = r; p >= 0; p--) {
        power[p] = 128 * (double)x[p][2 * X_KS + X_VS + head] + fallen;
        fallen -= softplus(-(double)x[p][2 * X_KS + X_VS + X_HEADS + head]);
    }
    top = fallen; /* of the empty memory before the first */
    for (int32_t p = 0; p <= r; p++) top = power[p] > top ? power[p] : top;
    for (int32_t j = 0; j < X_V; j++) y[j] = 0;
    for (int32_t p = 0; p <= r; p++) {
        double score = 0;
        for (int32_t i = 0; i < X_K; i++) score += 0.25 * (double)x[r][head * X_K + i] * (double)x[p][X_KS + head * X_K + i];
        score *= exp(power[p] - top);
        below += score;
        for (int32_t j = 0; j < X_V; j++) y[j] += score * (double)x[p][2 * X_KS + head * X_V + j];
    }
    for (int32_t j = 0; j < X_V; j++) y[j] /= fmax(fabs(below), exp(-top)) + 1e-6;
}

static void mlstm_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t r = 0; r < n_rows; r++)
        for (int32_t head = 0; head < X_HEADS; head++) mlstm_row(x, r, head, y[r] + head * X_V);
}

/* ---- weighed sums of windows --------------------------------------------------------------------------------------- */

enum { P_WIDTH = 12, P_EVERY = 3, P_CHANNELS = 2 * P_WIDTH };

static struct tensor compress_emit(struct ops_bench *b, struct oplist *l, struct tensor x) {
    return op_compress(l, x,
                       &(struct compress_args){
                           .bias = vector_of(b, 81, P_EVERY * P_CHANNELS), .every = P_EVERY, .width = P_WIDTH, .state = 1, .overlaps = 1});
}

/* Window by window: the first series of the one before, the second of its own. */
static void compress_expect(const float (*x)[WIDTH_MAX], int32_t n_rows, double (*y)[OUT_MAX]) {
    for (int32_t r = 0; r < n_rows; r++)
        for (int32_t c = 0; c < P_WIDTH; c++) {
            double above = 0, below = 0;
            for (int32_t series = 0; series < 2 && (r + 1) % P_EVERY == 0; series++)
                for (int32_t i = 0; i < P_EVERY; i++) {
                    int32_t from = r + 1 - (2 - series) * P_EVERY + i, at = series * P_WIDTH + c;
                    if (from < 0) continue;
                    double weight = exp((double)x[from][P_CHANNELS + at] + (double)bench_value(81, i * P_CHANNELS + at));
                    above += weight * (double)x[from][at], below += weight;
                }
            y[r][c] = below > 0 ? above / below : 0;
        }
}

static const struct recur_case cases[] = {
    {"conv", CONV_CHANNELS, CONV_CHANNELS, (CONV_TAPS - 1) * CONV_CHANNELS, conv_emit, conv_expect},
    {"delta", D_IN, D_V, V_HEADS *K_WIDTH *V_WIDTH, delta_emit, delta_expect},
    {"delta by channel", B_IN, B_V, B_HEADS *K_WIDTH *V_WIDTH, bounded_emit, bounded_expect},
    {"ssd", S_IN, S_X, S_HEADS *S_WIDTH *S_STATE, ssd_emit, ssd_expect},
    {"scan", C_IN, C_CHANNELS, C_CHANNELS *C_STATE, scan_emit, scan_expect},
    {"wkv", 2 * W_CHANNELS, W_CHANNELS, 3 * W_CHANNELS, wkv_emit, wkv_expect},
    {"exchange", 6 * E_ALL, E_ALL, E_ALL *E_WIDTH, exchange_emit, exchange_expect},
    {"mlstm", X_IN, X_VS, X_KS *(X_V + 1) + X_HEADS, mlstm_emit, mlstm_expect},
    {"compress", 2 * P_CHANNELS, P_WIDTH, (2 * P_EVERY - 1) * 2 * P_CHANNELS, compress_emit, compress_expect},
    {"lru", 3 * G_CHANNELS, G_CHANNELS, G_CHANNELS, lru_emit, lru_expect},
    {"lightning", 3 * L_ALL, L_ALL, L_HEADS *L_WIDTH *L_WIDTH, lightning_emit, lightning_expect},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- the promises ------------------------------------------------------------------------------------------------- */

/* Two states, so that an offset forgotten shows; the op uses the second. */
static void open_case(struct ops_bench *b, const struct recur_case *k, int32_t n_threads) {
    struct kv_layout layout = {.n_states = 2, .n_slots = 4, .states = {{.elements = 7}, {.elements = k->state}}};
    struct err err;
    bench_open(b, n_threads);
    CHECK_OK(cpu_backend.kv_open(b->be, &layout, &err), err);
}

/* Runs the step that was filled in; rows of the result into y. */
static void run_step(struct ops_bench *b, const struct recur_case *k, float *y) {
    int32_t kept = b->n_weights;
    const struct weight *table =
        bench_weight(b, (struct format){.dtype = DT_F32}, 1, 2 * ROWS, k->in_width, bench_floats(b, 1, 2 * ROWS * k->in_width, 1, 0));
    struct oplist *l = bench_begin(b);
    struct tensor t = k->emit(b, l, bench_input(l, table));
    CHECK(!l->err.code);
    bench_run(b, t, y);
    while (b->n_weights > kept) cpu_backend.weight_release(b->be, &b->weights[--b->n_weights]);
}

/* Rows first ... of the inputs as one sequence in the slot, in chunks. */
static void run_chunks(struct ops_bench *b, const struct recur_case *k, int32_t slot, int32_t first, int32_t from, int32_t to,
                       int32_t chunk, float *y) {
    for (int32_t at = from; at < to; at += chunk) {
        bench_clear(b);
        bench_rows(b, slot, first + at, to - at < chunk ? to - at : chunk, at);
        run_step(b, k, y + (int64_t)at * k->out_width);
    }
}

static void ops_match_their_recurrence(void) {
    for (int i = 0; i < N_CASES; i++) {
        const struct recur_case *k = &cases[i];
        struct ops_bench b;
        float y[ROWS * OUT_MAX], x[ROWS][WIDTH_MAX];
        double want[ROWS][OUT_MAX];
        open_case(&b, k, 2);
        run_chunks(&b, k, 0, 0, 0, ROWS, ROWS, y);
        for (int32_t r = 0; r < ROWS; r++)
            for (int32_t c = 0; c < k->in_width; c++) x[r][c] = bench_value(1, r * k->in_width + c);
        k->expect((const float(*)[WIDTH_MAX])x, ROWS, want);
        for (int32_t r = 0; r < ROWS; r++)
            for (int32_t c = 0; c < k->out_width; c++)
                FAIL_IF(!(fabs((double)y[r * k->out_width + c] - want[r][c]) <= 2e-5 * (1 + fabs(want[r][c]))),
                        "%s row %d element %d: %.9g, expected %.9g", k->name, r, c, (double)y[r * k->out_width + c], want[r][c]);
        bench_close(&b);
    }
}

static void chunks_change_no_bit(void) {
    for (int i = 0; i < N_CASES; i++) {
        const struct recur_case *k = &cases[i];
        struct ops_bench b;
        float whole[ROWS * OUT_MAX], parts[ROWS * OUT_MAX];
        open_case(&b, k, 3);
        run_chunks(&b, k, 0, 0, 0, ROWS, ROWS, whole);
        for (int32_t chunk = 1; chunk < 6; chunk++) {
            run_chunks(&b, k, 0, 0, 0, ROWS, chunk, parts); /* the same slot: a start forgets */
            CHECK(memcmp(parts, whole, (size_t)ROWS * (size_t)k->out_width * sizeof *whole) == 0);
        }
        bench_close(&b);
    }
}

static void neighbours_change_no_bit(void) {
    for (int i = 0; i < N_CASES; i++) {
        const struct recur_case *k = &cases[i];
        struct ops_bench b;
        float one[ROWS * OUT_MAX], two[ROWS * OUT_MAX], both[2 * ROWS * OUT_MAX];
        size_t width = (size_t)k->out_width;
        open_case(&b, k, 1);
        run_chunks(&b, k, 3, 0, 0, ROWS, ROWS, one);
        run_chunks(&b, k, 3, ROWS, 0, ROWS, ROWS, two);
        for (int32_t at = 0; at < ROWS; at++) { /* the second starts one step later, row by row */
            bench_clear(&b);
            bench_rows(&b, 2, at, 1, at);
            if (at > 0) bench_rows(&b, 1, ROWS + at - 1, 1, at - 1);
            run_step(&b, k, both);
            CHECK(memcmp(both, one + (size_t)at * width, width * sizeof *one) == 0);
            if (at > 0) CHECK(memcmp(both + width, two + (size_t)(at - 1) * width, width * sizeof *two) == 0);
        }
        bench_close(&b);
    }
}

static void copied_slots_continue(void) {
    for (int i = 0; i < N_CASES; i++) {
        const struct recur_case *k = &cases[i];
        struct ops_bench b;
        struct err err;
        float whole[ROWS * OUT_MAX], again[ROWS * OUT_MAX];
        size_t half = ROWS / 2 * (size_t)k->out_width;
        open_case(&b, k, 2);
        run_chunks(&b, k, 0, 0, 0, ROWS / 2, 3, whole);
        CHECK_OK(cpu_backend.slot_copy(b.be, 0, 3, &err), err);
        run_chunks(&b, k, 0, 0, ROWS / 2, ROWS, 3, whole);
        run_chunks(&b, k, 3, 0, ROWS / 2, ROWS, 2, again);
        CHECK(memcmp(again + half, whole + half, (size_t)ROWS * (size_t)k->out_width * sizeof *whole - half * sizeof *whole) == 0);
        bench_close(&b);
    }
}

const struct unit_suite unit_ops_recur = {"ops_recur",
                                          (const struct unit_case[]){{"ops_match_their_recurrence", ops_match_their_recurrence},
                                                                     {"chunks_change_no_bit", chunks_change_no_bit},
                                                                     {"neighbours_change_no_bit", neighbours_change_no_bit},
                                                                     {"copied_slots_continue", copied_slots_continue},
                                                                     {0}}};
