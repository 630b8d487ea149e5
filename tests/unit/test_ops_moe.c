/* Mixtures of experts on the CPU: the router against its definition in double precision, the experts against a plain
 * loop, and the promise that a row's result depends on neither the batch nor the threads. */
#include "ops_bench.h"

#include <math.h>

enum { E = 8, ROWS = 9, IN = 64, INNER = 32, OUT = 48, K = 3 };

static const struct format f32 = {.dtype = DT_F32};

/* The router's answer for rows of hand-written logits. */
static void route(const float *logits, int32_t n_rows, int32_t n_experts, const float *bias, struct route_args a, int32_t *ids,
                  float *weights) {
    struct ops_bench b;
    bench_open(&b, 2);
    if (bias) a.bias = bench_vector(&b, bias, n_experts);
    const struct weight *table = bench_weight(&b, f32, 1, n_rows, n_experts, logits);
    bench_rows(&b, 0, 0, n_rows, 0);
    struct oplist *l = bench_begin(&b);
    struct tensor t_ids, t_weights;
    struct err err;
    op_route(l, bench_input(l, table), &a, &t_ids, &t_weights);
    oplist_output(l, t_ids);
    bench_run(&b, t_weights, weights);
    CHECK_OK(cpu_backend.read(b.be, t_ids, ids, &err), err);
    bench_close(&b);
}

/* Experts from 3 on pass their input on: others stand in for them, of weight 0. */
static void passing_experts_leave_the_choice(void) {
    const float logits[] = {0.0f, 3.0f, -1.0f, 4.0f, 2.0f, /* 3, 1, 4 */ 2.0f, 1.0f, 3.0f, -5.0f, -6.0f /* 2, 0, 1 */};
    struct route_args a = {.score = ROUTE_SIGMOID, .k = 3, .scale = 1};
    struct tensor ids, weights;
    struct ops_bench b;
    struct err err;
    float got[8];
    int32_t chosen[6];
    bench_open(&b, 2);
    const struct weight *table = bench_weight(&b, f32, 1, 2, 5, logits);
    bench_rows(&b, 0, 0, 2, 0);
    struct oplist *l = bench_begin(&b);
    op_route(l, bench_input(l, table), &a, &ids, &weights);
    op_passing(l, ids, weights, &(struct passing_args){3}, &ids, &weights);
    oplist_output(l, ids);
    bench_run(&b, weights, got);
    CHECK_OK(cpu_backend.read(b.be, ids, chosen, &err), err);
    bench_close(&b);
    const int32_t want[] = {0, 1, 2, 2, 0, 1};
    const float passed = 1 / (1 + expf(-4)) + 1 / (1 + expf(-2)), kept = 1 / (1 + expf(-3));
    CHECK(memcmp(chosen, want, sizeof want) == 0);
    CHECK(got[0] == 0 && got[2] == 0 && fabsf(got[1] - kept) < 1e-6f && fabsf(got[3] - passed) < 1e-6f);
    CHECK(fabsf(got[4] - kept) < 1e-6f && got[5] > 0 && got[6] > 0 && got[7] == 0);
}

static void softmax_router_normalises(void) {
    const float logits[] = {0.5f, 2.0f, -1.0f, 1.0f};
    int32_t ids[2];
    float w[2];
    double sum = exp(0.5) + exp(2.0) + exp(-1.0) + exp(1.0);
    route(logits, 1, 4, NULL, (struct route_args){.score = ROUTE_SOFTMAX, .k = 2, .scale = 1}, ids, w);
    CHECK_INT(ids[0], 1);
    CHECK_INT(ids[1], 3);
    CHECK_NEAR(w[0], exp(2.0) / sum, 1e-7);
    CHECK_NEAR(w[1], exp(1.0) / sum, 1e-7);
    route(logits, 1, 4, NULL, (struct route_args){.score = ROUTE_SOFTMAX, .k = 2, .scale = 2.5f, .normalize = 1}, ids, w);
    CHECK_NEAR(w[0], 2.5 * exp(2.0) / (exp(2.0) + exp(1.0)), 1e-6);
    route(logits, 1, 4, NULL, (struct route_args){.score = ROUTE_SOFTMAX_AFTER, .k = 2, .scale = 1}, ids, w);
    CHECK_NEAR(w[0], exp(2.0) / (exp(2.0) + exp(1.0)), 1e-7);
}

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}

static void bias_moves_the_choice_only(void) {
    const float logits[] = {0.5f, 2.0f, -1.0f, 1.0f}, bias[] = {0, -1.0f, 0.75f, 0};
    int32_t ids[2];
    float w[2];
    route(logits, 1, 4, bias, (struct route_args){.score = ROUTE_SIGMOID, .k = 2, .scale = 1, .normalize = 1, .norm_eps = 1e-3f}, ids, w);
    CHECK_INT(ids[0], 2); /* 0.27 + 0.75 */
    CHECK_INT(ids[1], 3); /* 0.73 */
    CHECK_NEAR(w[0], sigmoid(-1.0) / (sigmoid(-1.0) + sigmoid(1.0) + 1e-3), 1e-6);
}

static void groups_limit_the_choice(void) {
    /* groups {0, 1, 2} {3, 4, 5}: the best single score lies in the first, the best pair in the second */
    const float logits[] = {3.0f, -3.0f, -3.0f, 2.0f, 2.5f, -1.0f};
    int32_t ids[2];
    float w[2];
    struct route_args a = {.score = ROUTE_SIGMOID, .k = 2, .scale = 1, .n_groups = 2, .top_groups = 1};
    route(logits, 1, 6, NULL, a, ids, w);
    CHECK_INT(ids[0], 0);
    CHECK_INT(ids[1], 1);
    a.group_top2 = 1;
    route(logits, 1, 6, NULL, a, ids, w);
    CHECK_INT(ids[0], 4);
    CHECK_INT(ids[1], 3);
    CHECK_NEAR(w[1], sigmoid(2.0), 1e-6);
}

static void sparsemixer_weighs_within_the_threshold(void) {
    const float logits[] = {1.0f, 0.99f, 0.5f, -2.0f};
    int32_t ids[2];
    float w[2];
    route(logits, 1, 4, NULL, (struct route_args){.score = ROUTE_SPARSEMIXER, .k = 2, .jitter = 0.01f}, ids, w);
    CHECK_INT(ids[0], 0);
    CHECK_INT(ids[1], 1);
    CHECK_NEAR(w[0], 1.0 / (1.0 + exp(-0.01)), 1e-6);
    CHECK_NEAR(w[1], 1.0, 1e-7); /* 0.5 is far below 0.99 */
}

static void broken_scores_still_name_experts(void) {
    const float nan = NAN, inf = INFINITY;
    const float logits[] = {nan, 1, nan, 1, 2, 2, nan, nan, nan, nan, nan, nan, -inf, -inf, nan, inf, inf, -inf};
    static const enum route_score scores[] = {ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_SOFTMAX_AFTER, ROUTE_SPARSEMIXER};
    for (int s = 0; s < 4; s++)
        for (int groups = 0; groups < 2; groups++) {
            int32_t ids[3 * 4];
            float w[3 * 4];
            route(logits, 3, 6, NULL, (struct route_args){.score = scores[s], .k = 4, .scale = 1, .n_groups = groups * 3, .top_groups = 2},
                  ids, w);
            for (int r = 0; r < 3; r++)
                for (int j = 0; j < 4; j++) {
                    CHECK(ids[r * 4 + j] >= 0 && ids[r * 4 + j] < 6);
                    for (int i = 0; i < j; i++) CHECK(ids[r * 4 + i] != ids[r * 4 + j]);
                }
        }
}

static void ties_go_to_the_lower_index(void) {
    const float logits[] = {1, 2, 2, 1, 2, 1};
    const int32_t want[] = {1, 2, 4, 0};
    int32_t ids[4];
    float w[4];
    route(logits, 1, 6, NULL, (struct route_args){.score = ROUTE_SOFTMAX, .k = 4, .scale = 1}, ids, w);
    for (int j = 0; j < 4; j++) CHECK_INT(ids[j], want[j]);
}

/* ---- experts ------------------------------------------------------------------------------------------------------ */

enum shape { SHAPE_FUSED, SHAPE_APART, SHAPE_PLAIN, SHAPE_SCALE_INPUT, SHAPE_CLAMPED, N_SHAPES };

struct moe_data {
    float *x, *router, *gate_up, *down, *gate_up_bias, *down_bias;
};

static struct moe_data make_data(struct ops_bench *b) {
    return (struct moe_data){bench_floats(b, 1, ROWS * IN, 1, 0),
                             bench_floats(b, 2, E * IN, 0.3f, 0),
                             bench_floats(b, 3, E * 2 * INNER * IN, 0.2f, 0),
                             bench_floats(b, 4, E * OUT * INNER, 0.2f, 0),
                             bench_floats(b, 5, E * 2 * INNER, 0.5f, 0),
                             bench_floats(b, 6, E * OUT, 0.5f, 0)};
}

static struct act_args shape_act(enum shape shape) {
    if (shape == SHAPE_CLAMPED) return (struct act_args){.kind = ACT_CLAMPED_SWIGLU, .scale = 1, .p = {1.7f, 2.0f}};
    return (struct act_args){.kind = shape == SHAPE_PLAIN ? ACT_RELU2 : ACT_SILU, .scale = 1};
}

/* Half of every expert's rows of gate_up as a stack of its own. */
static float *half_rows(struct ops_bench *b, const float *gate_up, int32_t half, int32_t width) {
    float *x = arena_new(&b->arena, float, E *INNER *width);
    for (int32_t e = 0; e < E; e++)
        memcpy(x + e * INNER * width, gate_up + (e * 2 + half) * INNER * width, INNER * (size_t)width * sizeof *x);
    return x;
}

static struct experts_args bind_experts(struct ops_bench *b, const struct moe_data *d, enum shape shape, struct format f) {
    struct experts_args a = {.act = shape_act(shape), .inner = INNER, .scale_input = shape == SHAPE_SCALE_INPUT};
    a.down = bench_weight(b, f, E, OUT, INNER, d->down);
    if (shape == SHAPE_APART || shape == SHAPE_PLAIN) {
        if (shape == SHAPE_APART) a.gate = bench_weight(b, f, E, INNER, IN, half_rows(b, d->gate_up, 0, IN));
        a.up = bench_weight(b, f, E, INNER, IN, half_rows(b, d->gate_up, 1, IN));
        return a;
    }
    a.gate_up = bench_weight(b, f, E, 2 * INNER, IN, d->gate_up);
    if (shape != SHAPE_CLAMPED) return a;
    a.gate_up_bias = bench_weight(b, f32, 1, E, 2 * INNER, d->gate_up_bias);
    a.down_bias = bench_weight(b, f32, 1, E, OUT, d->down_bias);
    return a;
}

/* Runs rows first ... first + n - 1; y, ids and weights of each. Quantised experts run at the default precision. */
static void run_experts(enum shape shape, struct format f, int32_t n_threads, int32_t first, int32_t n, float *y, int32_t *ids,
                        float *weights) {
    struct ops_bench b;
    bench_open_as(&b, n_threads, f.mode == QUANT_NONE ? PRECISION_EXACT : PRECISION_AUTO);
    struct moe_data d = make_data(&b);
    struct experts_args a = bind_experts(&b, &d, shape, f);
    const struct weight *table = bench_weight(&b, f32, 1, ROWS, IN, d.x), *router = bench_weight(&b, f32, 1, E, IN, d.router);
    bench_rows(&b, 0, first, n, 0);
    struct oplist *l = bench_begin(&b);
    struct tensor t_ids, t_weights, x = bench_input(l, table);
    struct err err;
    op_route(l, op_linear(l, x, &(struct linear_args){.weight = router}),
             &(struct route_args){.score = ROUTE_SIGMOID, .k = K, .scale = 1.5f}, &t_ids, &t_weights);
    struct tensor out = op_experts(l, x, t_ids, t_weights, &a);
    oplist_output(l, t_ids);
    oplist_output(l, t_weights);
    bench_run(&b, out, y);
    CHECK_OK(cpu_backend.read(b.be, t_ids, ids, &err), err);
    CHECK_OK(cpu_backend.read(b.be, t_weights, weights, &err), err);
    bench_close(&b);
}

static double dot(const float *a, const float *x, int32_t n, double scale) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) sum += (double)a[i] * (double)x[i] * scale;
    return sum;
}

static double activate(enum shape shape, double gate, double up) {
    if (shape == SHAPE_PLAIN) return up > 0 ? up * up : 0;
    if (shape != SHAPE_CLAMPED) return gate * sigmoid(gate) * up;
    gate = gate < 2 ? gate : 2;
    up = up > 2 ? 2 : up < -2 ? -2 : up;
    return (up + 1) * gate * sigmoid(1.7 * gate);
}

static double expected(const struct moe_data *d, enum shape shape, int32_t row, const int32_t *ids, const float *weights, int32_t n) {
    double y = 0;
    for (int32_t j = 0; j < K; j++) {
        const float *x = d->x + row * IN, *w = d->gate_up + ids[j] * 2 * INNER * IN, *bias = d->gate_up_bias + ids[j] * 2 * INNER;
        double in_scale = shape == SHAPE_SCALE_INPUT ? weights[j] : 1, sum = shape == SHAPE_CLAMPED ? d->down_bias[ids[j] * OUT + n] : 0;
        for (int32_t i = 0; i < INNER; i++) {
            double gate = dot(w + i * IN, x, IN, in_scale), up = dot(w + (INNER + i) * IN, x, IN, in_scale);
            if (shape == SHAPE_CLAMPED) gate += bias[i], up += bias[INNER + i];
            sum += (double)d->down[(ids[j] * OUT + n) * INNER + i] * activate(shape, gate, up);
        }
        y += shape == SHAPE_SCALE_INPUT ? sum : sum * weights[j];
    }
    return y;
}

static void experts_match_a_plain_loop(void) {
    struct ops_bench b;
    bench_open(&b, 1);
    struct moe_data d = make_data(&b);
    for (int shape = 0; shape < N_SHAPES; shape++) {
        float y[ROWS * OUT], weights[ROWS * K];
        int32_t ids[ROWS * K];
        run_experts((enum shape)shape, f32, 3, 0, ROWS, y, ids, weights);
        for (int32_t r = 0; r < ROWS; r++)
            for (int32_t n = 0; n < OUT; n++)
                CHECK_NEAR(y[r * OUT + n], expected(&d, (enum shape)shape, r, ids + r * K, weights + r * K, n), 2e-5);
    }
    bench_close(&b);
}

/* What is left of the data when it has been quantised. */
static void round_data(struct moe_data *d, const struct format *q) {
    float *stacks[] = {d->gate_up, d->down};
    int64_t rows[] = {E * 2 * INNER, E * OUT}, widths[] = {IN, INNER};
    for (int s = 0; s < 2; s++)
        for (int64_t r = 0; r < rows[s]; r++) {
            unsigned char values[IN], scales[IN], biases[IN];
            float *row = stacks[s] + r * widths[s];
            quant_pack(q, row, widths[s], values, scales, biases);
            quant_unpack(q, &(struct quant_row){values, scales, biases}, 0, widths[s], row);
        }
}

/* Quantised stacks, in panels where there are kernels for them, give what the same stacks give when they are unpacked first;
 * activations of 12 bits are the difference. */
static const struct format quantised[] = {{QUANT_AFFINE, DT_F32, 4, 32}, {QUANT_AFFINE, DT_F32, 8, 32}, {QUANT_AFFINE, DT_F32, 3, 32}};

static void quantised_experts_match_unpacked(void) {
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) {
        struct ops_bench b;
        bench_open(&b, 1);
        struct moe_data d = make_data(&b);
        round_data(&d, &quantised[i]);
        for (int shape = 0; shape < N_SHAPES; shape++) {
            float y[ROWS * OUT], weights[ROWS * K];
            int32_t ids[ROWS * K];
            run_experts((enum shape)shape, quantised[i], 2, 0, ROWS, y, ids, weights);
            for (int32_t r = 0; r < ROWS; r++)
                for (int32_t n = 0; n < OUT; n++)
                    CHECK_NEAR(y[r * OUT + n], expected(&d, (enum shape)shape, r, ids + r * K, weights + r * K, n), 2e-3);
        }
        bench_close(&b);
    }
}

static void rows_depend_on_nothing_else(void) {
    for (int shape = 0; shape < 2 * N_SHAPES; shape++) {
        float all[ROWS * OUT], one[OUT], weights[ROWS * K];
        int32_t ids[ROWS * K];
        struct format f = shape < N_SHAPES ? f32 : quantised[0];
        run_experts((enum shape)(shape % N_SHAPES), f, 3, 0, ROWS, all, ids, weights);
        for (int32_t r = 0; r < ROWS; r++) {
            run_experts((enum shape)(shape % N_SHAPES), f, 1, r, 1, one, ids, weights);
            CHECK(memcmp(one, all + r * OUT, sizeof one) == 0);
        }
    }
}

const struct unit_suite unit_ops_moe = {
    "ops_moe", (const struct unit_case[]){{"passing_experts_leave_the_choice", passing_experts_leave_the_choice},
                                          {"softmax_router_normalises", softmax_router_normalises},
                                          {"bias_moves_the_choice_only", bias_moves_the_choice_only},
                                          {"groups_limit_the_choice", groups_limit_the_choice},
                                          {"sparsemixer_weighs_within_the_threshold", sparsemixer_weighs_within_the_threshold},
                                          {"broken_scores_still_name_experts", broken_scores_still_name_experts},
                                          {"ties_go_to_the_lower_index", ties_go_to_the_lower_index},
                                          {"experts_match_a_plain_loop", experts_match_a_plain_loop},
                                          {"quantised_experts_match_unpacked", quantised_experts_match_unpacked},
                                          {"rows_depend_on_nothing_else", rows_depend_on_nothing_else},
                                          {0}}};
