/* Ops on rows where their contract has an edge. */
#include "ops_bench.h"

#include "backend/cpu/cpu.h"

#include <math.h>

/* One wrong number anywhere spoils a row: where it stands must not matter, nor how wide the vectors are. */
static void argmax_refuses_poisoned_rows(void) {
    enum { WIDTH = 67, BAD = 5 };
    static const float bad[BAD] = {NAN, INFINITY, NAN, NAN, NAN};
    static const int32_t place[BAD] = {40, 13, 0, WIDTH - 1, 31};
    struct ops_bench b;
    int32_t got[BAD + 3];
    bench_open(&b, 2);
    float *x = bench_floats(&b, 1, (BAD + 3) * WIDTH, 1, 0);
    for (int32_t r = 0; r < BAD; r++) x[r * WIDTH + place[r]] = bad[r];
    for (int32_t i = 0; i < WIDTH; i++) x[BAD * WIDTH + i] = -INFINITY; /* everything is masked */
    x[(BAD + 1) * WIDTH + 7] = x[(BAD + 1) * WIDTH + 50] = 3;           /* the first of two */
    x[(BAD + 2) * WIDTH + 9] = -INFINITY;                               /* one masked word is no fault */
    x[(BAD + 2) * WIDTH + 66] = 3;
    const struct weight *table = bench_weight(&b, (struct format){.dtype = DT_F32}, 1, BAD + 3, WIDTH, x);
    bench_rows(&b, 0, 0, BAD + 3, 0);
    struct oplist *l = bench_begin(&b);
    bench_run(&b, op_argmax(l, bench_input(l, table)), got);
    for (int32_t r = 0; r <= BAD; r++) CHECK_INT(got[r], -1);
    CHECK_INT(got[BAD + 1], 7);
    CHECK_INT(got[BAD + 2], 66);
    bench_close(&b);
}

/* Long rows are cut into pieces that threads share: neither where the largest stands nor how many threads there are may matter. */
static void argmax_of_long_rows(void) {
    enum { WIDTH = 40001, ROWS = 6 };
    static const int32_t want[ROWS] = {3, 8191, 8192, WIDTH - 1, -1, -1};
    for (int32_t n_threads = 1; n_threads <= 5; n_threads += 2) {
        struct ops_bench b;
        int32_t got[ROWS];
        bench_open(&b, n_threads);
        float *x = bench_floats(&b, 1, ROWS * WIDTH, 1, 0);
        for (int32_t r = 0; r < 4; r++) x[r * WIDTH + want[r]] = 3;
        x[0 * WIDTH + 30000] = x[1 * WIDTH + 8192] = x[2 * WIDTH + 16384] = 3; /* the first of two, in pieces of their own */
        x[4 * WIDTH + 5] = 3;
        x[4 * WIDTH + WIDTH - 1] = NAN;
        x[5 * WIDTH + 20000] = INFINITY;
        const struct weight *table = bench_weight(&b, (struct format){.dtype = DT_F32}, 1, ROWS, WIDTH, x);
        bench_rows(&b, 0, 0, ROWS, 0);
        struct oplist *l = bench_begin(&b);
        bench_run(&b, op_argmax(l, bench_input(l, table)), got);
        for (int32_t r = 0; r < ROWS; r++) CHECK_INT(got[r], want[r]);
        bench_close(&b);
    }
}

enum { HEAD = 64, QUERIES = 6, KEYS = 2, HEADS_ROWS = 9, TURNED = HEADS_ROWS * (QUERIES + KEYS) * HEAD };

struct heads_case {
    bool has_norms, has_two_tables;
    int32_t n_rows, n_threads;
};

/* Queries and keys of some rows, normed and turned; apart: with an op in between, so that the ops are not one pass. */
static void turn_heads(const struct heads_case *k, bool apart, float out[TURNED]) {
    struct ops_bench b;
    struct err err;
    bench_open(&b, k->n_threads);
    const struct weight *table =
        bench_weight(&b, (struct format){.dtype = DT_F32}, 1, HEADS_ROWS, (QUERIES + KEYS) * HEAD, bench_floats(&b, 5, TURNED, 1, 0));
    const struct weight *norms[] = {bench_vector(&b, bench_floats(&b, 6, HEAD, 1, 2), HEAD),
                                    bench_vector(&b, bench_floats(&b, 7, HEAD, 1, 2), HEAD)};
    const struct weight *turns[] = {bench_vector(&b, bench_floats(&b, 8, HEAD / 2, 1, 1), HEAD / 2),
                                    bench_vector(&b, bench_floats(&b, 9, HEAD / 2, 1, 1), HEAD / 2)};
    bench_rows(&b, 0, 0, k->n_rows, 11);
    struct oplist *l = bench_begin(&b);
    struct tensor x = bench_input(l, table), y[2];
    for (int i = 0; i < 2; i++) {
        y[i] = tensor_split_heads(tensor_slice(x, i ? QUERIES * HEAD : 0, (i ? KEYS : QUERIES) * HEAD), i ? KEYS : QUERIES);
        if (k->has_norms) y[i] = op_norm(l, y[i], &(struct norm_args){.weight = norms[i], .eps = 1e-6f});
        if (apart) op_add(l, x, x, NULL);
        y[i] = op_rope(l, y[i], &(struct rope_args){.inv_freq = turns[i && k->has_two_tables], .n_rotated = HEAD, .magnitude = 1});
        oplist_output(l, y[i]);
    }
    bench_run(&b, y[0], out);
    CHECK_OK(cpu_backend.read(b.be, y[1], out + k->n_rows * QUERIES * HEAD, &err), err);
    bench_close(&b);
}

static void heads_of_one_pass_are_those_of_many(void) {
    static float one[TURNED], many[TURNED];
    for (int i = 0; i < 16; i++) {
        struct heads_case k = {i & 1, i & 2, i & 4 ? HEADS_ROWS : 1, i & 8 ? 3 : 1};
        turn_heads(&k, false, one);
        turn_heads(&k, true, many);
        CHECK(memcmp(one, many, (size_t)(k.n_rows * (QUERIES + KEYS) * HEAD) * sizeof *one) == 0);
    }
}

/* Ropes of the same heads one after the other, as towers have them, are no pass; those of queries and keys beside each other are. */
static void ropes_in_a_chain_are_no_pass(void) {
    struct ops_bench b;
    bench_open(&b, 1);
    const struct weight *table = bench_weight(&b, (struct format){.dtype = DT_F32}, 1, 1, 4 * HEAD, bench_floats(&b, 5, 4 * HEAD, 1, 0));
    const struct weight *turn = bench_vector(&b, bench_floats(&b, 8, HEAD / 4, 1, 1), HEAD / 4);
    const struct weight *scale = bench_vector(&b, bench_floats(&b, 6, HEAD, 1, 2), HEAD);
    struct rope_args halves[] = {{.inv_freq = turn, .n_rotated = HEAD / 2, .magnitude = 1},
                                 {.inv_freq = turn, .first = HEAD / 2, .n_rotated = HEAD / 2, .magnitude = 1}};
    bench_rows(&b, 0, 0, 1, 11);
    struct oplist *l = bench_begin(&b);
    struct tensor x = tensor_split_heads(bench_input(l, table), 4);
    int32_t chain = l->n_ops;
    op_rope(l, op_rope(l, op_norm(l, x, &(struct norm_args){.weight = scale, .eps = 1e-6f}), &halves[0]), &halves[1]);
    int32_t beside = l->n_ops;
    for (int i = 0; i < 2; i++) op_rope(l, op_norm(l, x, &(struct norm_args){.weight = scale, .eps = 1e-6f}), &halves[0]);
    int32_t plain = l->n_ops;
    for (int i = 0; i < 2; i++) op_rope(l, x, &halves[0]);
    CHECK_INT(cpu_heads_find(l, chain), 0);
    CHECK_INT(cpu_heads_find(l, beside), 4);
    CHECK_INT(cpu_heads_find(l, plain), 2);
    bench_close(&b);
}

const struct unit_suite unit_ops_elem = {
    "ops_elem",
    (const struct unit_case[]){
        {"argmax_refuses_poisoned_rows", argmax_refuses_poisoned_rows},
        {"argmax_of_long_rows", argmax_of_long_rows},
        {"heads_of_one_pass_are_those_of_many", heads_of_one_pass_are_those_of_many},
        {"ropes_in_a_chain_are_no_pass", ropes_in_a_chain_are_no_pass},
        {0},
    },
};
