/* Pooling of states, and the stages behind it. */
#include "unit.h"

#include "engine/pool.h"

#include <math.h>

enum { WIDTH = 2 };

/* Three positions, handed over in two parts. */
static const float states[] = {3, 0, 0, 4, 6, -4};

static void pool(enum job_pooling how, int32_t skip, const struct pool_head *head, float *out) {
    double sum[WIDTH] = {0};
    float scratch[8];
    struct pool_sum s = {.sum = sum};
    pool_add(&s, how, states, WIDTH, 0, 1, skip);
    pool_add(&s, how, states + WIDTH, WIDTH, 1, 2, skip);
    CHECK(pool_finish(&s, how, WIDTH, head, scratch, out));
}

static void check_vector(const float *got, double x, double y) {
    CHECK(fabs((double)got[0] - x) < 1e-6 && fabs((double)got[1] - y) < 1e-6);
}

static const struct pool_stage identity = {.kind = STAGE_DENSE, .in = WIDTH, .out = WIDTH, .w = (const float[]){1, 0, 0, 1}};
static const struct pool_head as_it_is = {.stages = &identity, .n = 1, .width = WIDTH, .widest = WIDTH};

static void every_kind(void) {
    float v[WIDTH];
    pool(POOL_MEAN, 0, &as_it_is, v);
    check_vector(v, 3, 0);
    pool(POOL_LAST, 0, &as_it_is, v);
    check_vector(v, 6, -4);
    pool(POOL_FIRST, 2, &as_it_is, v); /* the first one counts whatever is left out */
    check_vector(v, 3, 0);
    pool(POOL_MAX, 0, &as_it_is, v);
    check_vector(v, 6, 4);
    pool(POOL_WEIGHTED, 0, &as_it_is, v);
    check_vector(v, 21.0 / 6, -4.0 / 6);
    pool(POOL_MEAN_ROOT, 0, &as_it_is, v);
    check_vector(v, 9 / sqrt(3), 0);
    pool(POOL_MEAN, 1, &as_it_is, v);
    check_vector(v, 3, 0);
    pool(POOL_MAX, 2, &as_it_is, v);
    check_vector(v, 6, -4);
    pool(POOL_LAST, 0, NULL, v); /* without a head: of length 1 */
    check_vector(v, 6 / sqrt(52), -4 / sqrt(52));
}

static void stages_in_turn(void) {
    const struct pool_stage stages[] = {
        {.kind = STAGE_UNIT, .in = 2, .out = 2},
        {.kind = STAGE_DENSE, .in = 2, .out = 3, .w = (const float[]){1, 0, 0, 1, 1, 1}, .b = (const float[]){0, 0, 1}, .act = ACT_TANH},
        {.kind = STAGE_NORM, .in = 3, .out = 3, .w = (const float[]){1, 1, 2}, .b = (const float[]){0, 0, 1}, .eps = 1e-5f},
        {.kind = STAGE_DENSE, .in = 3, .out = 1, .w = (const float[]){0, 0, 1}, .act = ACT_SIGMOID},
    };
    const struct pool_head head = {.stages = stages, .n = 4, .width = 1, .widest = 3};
    float got;
    pool(POOL_FIRST, 0, &head, &got);
    double x[3] = {tanh(1), 0, tanh(2)}, mean = (x[0] + x[2]) / 3, square = 0;
    for (int i = 0; i < 3; i++) square += (x[i] - mean) * (x[i] - mean) / 3;
    double last = (x[2] - mean) / sqrt(square + 1e-5) * 2 + 1;
    CHECK(fabs((double)got - 1 / (1 + exp(-last))) < 1e-6);
}

static void no_numbers(void) {
    const float bad[] = {1, NAN}, zeros[] = {0, 0};
    double sum[WIDTH] = {0};
    float scratch[8], out[WIDTH];
    struct pool_sum none = {.sum = sum}, s = {.sum = sum};
    CHECK(!pool_finish(&none, POOL_MEAN, WIDTH, NULL, scratch, out));
    pool_add(&s, POOL_MAX, zeros, WIDTH, 0, 1, 0);
    CHECK(!pool_finish(&s, POOL_MAX, WIDTH, NULL, scratch, out)); /* nothing has length 1 */
    pool_add(&s, POOL_MAX, bad, WIDTH, 1, 1, 0);
    pool_add(&s, POOL_MAX, zeros, WIDTH, 2, 1, 0);
    CHECK(!pool_finish(&s, POOL_MAX, WIDTH, NULL, scratch, out));
}

const struct unit_suite unit_pooling = {
    "pooling", (const struct unit_case[]){{"every_kind", every_kind}, {"stages_in_turn", stages_in_turn}, {"no_numbers", no_numbers}, {0}}};
