/* Ops on rows where their contract has an edge. */
#include "ops_bench.h"

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

const struct unit_suite unit_ops_elem = {
    "ops_elem",
    (const struct unit_case[]){
        {"argmax_refuses_poisoned_rows", argmax_refuses_poisoned_rows},
        {"argmax_of_long_rows", argmax_of_long_rows},
        {0},
    },
};
