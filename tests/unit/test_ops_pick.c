/* Attention over picked positions on the CPU, against plain loops in double precision: the best by the index's scores, of equal ones the first,
 * and the same bits however a prompt is cut. */
#include "ops_bench.h"

#include <math.h>

enum {
    ROWS = 24,
    WIDTH = 16,
    HEADS = 2,
    K = 5,
    Q_AT = 0,
    KEY_AT = HEADS * WIDTH,
    I_Q_AT = KEY_AT + WIDTH,
    I_KEY_AT = I_Q_AT + HEADS * WIDTH,
    W_AT = I_KEY_AT + WIDTH,
    IN = W_AT + HEADS,
    OUT = HEADS * WIDTH
};

static int32_t table[1] = {1};

static void open_pick(struct ops_bench *b, int32_t n_threads) {
    struct kv_layout layout = {
        .n_classes = 1, .max_context = KV_BLOCK, .classes = {{.heads = 1, .k_width = WIDTH, .n_layers = 2, .n_blocks = 2}}};
    struct err err;
    bench_open(b, n_threads);
    b->step.tables[0] = table;
    b->step.table_capacity = 1;
    CHECK_OK(cpu_backend.kv_open(b->be, &layout, &err), err);
}

static struct tensor emit(struct oplist *l, struct tensor x) {
    struct tensor none = {0}, index = tensor_split_heads(tensor_slice(x, I_Q_AT, HEADS * WIDTH), HEADS);
    op_kv_write(l, tensor_slice(x, KEY_AT, WIDTH), none, (struct kv_ref){0, 1});
    op_kv_write(l, tensor_slice(x, I_KEY_AT, WIDTH), none, (struct kv_ref){0, 0});
    struct tensor picks = op_pick(l, index, tensor_slice(x, W_AT, HEADS), &(struct pick_args){.kv = {0, 0}, .k = K});
    return op_attn_picked(l, tensor_split_heads(tensor_slice(x, Q_AT, HEADS * WIDTH), HEADS), picks,
                          &(struct attn_args){.kv = {0, 1}, .scale = 0.5f, .v_width = WIDTH});
}

/* Rows in chunks. */
static void run(struct ops_bench *b, int32_t chunk, float *y) {
    for (int32_t at = 0; at < ROWS; at += chunk) {
        int32_t kept = b->n_weights;
        bench_clear(b);
        bench_rows(b, 0, at, ROWS - at < chunk ? ROWS - at : chunk, at);
        const struct weight *w = bench_weight(b, (struct format){.dtype = DT_F32}, 1, ROWS, IN, bench_floats(b, 1, ROWS * IN, 1, 0));
        struct oplist *l = bench_begin(b);
        struct tensor t = emit(l, bench_input(l, w));
        CHECK(!l->err.code);
        bench_run(b, tensor_join_heads(t), y + (int64_t)at * OUT);
        while (b->n_weights > kept) cpu_backend.weight_release(b->be, &b->weights[--b->n_weights]);
    }
}

static double value(int32_t row, int32_t at) {
    return (double)bench_value(1, row * IN + at);
}

static double dot(int32_t row, int32_t at, int32_t other, int32_t other_at) {
    double sum = 0;
    for (int32_t i = 0; i < WIDTH; i++) sum += value(row, at + i) * value(other, other_at + i);
    return sum;
}

static double index_score(int32_t row, int32_t p) {
    double sum = 0;
    for (int32_t h = 0; h < HEADS; h++) sum += value(row, W_AT + h) * fmax(0, dot(row, I_Q_AT + h * WIDTH, p, I_KEY_AT));
    return sum;
}

/* Whether fewer than K positions come before p. */
static bool is_picked(int32_t row, int32_t p) {
    int32_t better = 0;
    for (int32_t o = 0; o <= row; o++)
        better += index_score(row, o) > index_score(row, p) || (index_score(row, o) == index_score(row, p) && o < p);
    return better < K;
}

static double expected(int32_t row, int32_t head, int32_t i) {
    double sum = 0, out = 0;
    for (int32_t p = 0; p <= row; p++) {
        if (!is_picked(row, p)) continue;
        double weight = exp(0.5 * dot(row, Q_AT + head * WIDTH, p, KEY_AT));
        sum += weight;
        out += weight * value(p, KEY_AT + i);
    }
    return out / sum;
}

static void picks_are_the_best(void) {
    struct ops_bench b;
    float y[ROWS * OUT];
    open_pick(&b, 2);
    run(&b, ROWS, y);
    for (int32_t r = 0; r < ROWS; r++)
        for (int32_t c = 0; c < OUT; c++) {
            double want = expected(r, c / WIDTH, c % WIDTH), got = (double)y[r * OUT + c];
            FAIL_IF(!(fabs(got - want) <= 2e-5), "row %d element %d: %.9g, expected %.9g", r, c, got, want);
        }
    bench_close(&b);
}

static void chunks_change_no_bit(void) {
    struct ops_bench b;
    float whole[ROWS * OUT], parts[ROWS * OUT];
    open_pick(&b, 3);
    run(&b, ROWS, whole);
    for (int32_t chunk = 1; chunk < 8; chunk += 3) {
        run(&b, chunk, parts);
        CHECK(memcmp(parts, whole, sizeof whole) == 0);
    }
    bench_close(&b);
}

const struct unit_suite unit_ops_pick = {
    "ops_pick",
    (const struct unit_case[]){{"picks_are_the_best", picks_are_the_best}, {"chunks_change_no_bit", chunks_change_no_bit}, {0}},
};
