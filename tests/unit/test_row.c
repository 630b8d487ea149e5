/* backend/cpu/row: every instruction set gives the reference's bits; the reference gives the truth. */
#include "unit.h"

#include "backend/cpu/row.h"
#include "base/fmath.h"
#include "base/hash.h"
#include "os/cpu.h"

#include <string.h>

enum { N_MAX = 3000, N_WORDS = N_MAX / 32 + 1 };

static const int64_t widths[] = {1, 31, 32, 33, 127, 128, 129, 511, 512, 513, 1000, N_MAX};
enum { N_WIDTHS = sizeof widths / sizeof *widths };

struct row {
    float x[N_MAX], peaks[N_MAX], p[N_MAX], folds[ROW_LANES * N_MAX];
    double spans[N_MAX];
    float best, least;
    double sum, moment;
    int64_t count;
};

static struct row mine, truth;

static double unit(uint64_t a, uint64_t b) {
    return (double)(hash_pair(a, b) >> 11) * 0x1p-53;
}

/* Logits of a kind: as models have them, far apart, of all sizes, mostly masked, all alike. */
static float logit(int kind, uint64_t i) {
    static const float sizes[] = {1e30f, -1e30f, 0.0f, -0.0f, 1e-40f, -1e-40f, 3e38f, -3e38f, 1, -1};
    switch (kind) {
    case 0: return (float)(20 * unit(1, i) - 10);
    case 1: return (float)(300 * unit(2, i));
    case 2: return sizes[hash_pair(3, i) % 10];
    case 3: return hash_pair(4, i) % 4 ? -INFINITY : (float)unit(5, i);
    default: return 2.5f;
    }
}

/* Without a place for p, or with the moment, the sums are the same. */
static void check_sums_alone(const struct row_kernels *k, const struct row *r, int64_t n, float scale, double *moment) {
    static double spans[N_MAX];
    static float folds[ROW_LANES * N_MAX];
    CHECK(k->weigh(&(struct row_weigh){r->x, n, r->best, scale, r->least, r->peaks, NULL, spans, folds, moment}) == r->sum);
    CHECK(memcmp(spans, r->spans, (size_t)row_spans(n) * sizeof *spans) == 0);
    CHECK(memcmp(folds, r->folds, (size_t)(ROW_LANES * row_groups(n)) * sizeof *folds) == 0);
}

static void run(const struct row_kernels *k, struct row *r, int64_t n, float scale) {
    r->best = k->peaks(r->x, n, r->peaks, &r->least);
    r->sum = k->weigh(&(struct row_weigh){r->x, n, r->best, scale, -INFINITY, r->peaks, r->p, r->spans, r->folds, NULL});
    r->count = k->count(r->x, n);
    check_sums_alone(k, r, n, scale, NULL);
    r->moment = 0;
    if (scale == 1) check_sums_alone(k, r, n, scale, &r->moment);
}

static void same_bits_in_every_set(void) {
    static const float scales[] = {1, 0.5f, 1.6666666f, 1e30f};
    const struct row_kernels *k = row_select(cpu_flags());
    for (int kind = 0; kind < 5; kind++)
        for (int w = 0; w < N_WIDTHS; w++)
            for (int s = 0; s < 4; s++) {
                int64_t n = widths[w];
                for (int64_t i = 0; i < n; i++) mine.x[i] = truth.x[i] = logit(kind, (uint64_t)i);
                mine.x[0] = truth.x[0] = 1; /* not all are masked */
                run(k, &mine, n, scales[s]);
                run(&row_ref, &truth, n, scales[s]);
                CHECK(mine.best == truth.best && mine.least == truth.least && mine.sum == truth.sum && mine.count == truth.count);
                CHECK(mine.moment == truth.moment);
                CHECK(memcmp(mine.p, truth.p, (size_t)n * sizeof *mine.p) == 0);
                CHECK(memcmp(mine.spans, truth.spans, (size_t)row_spans(n) * sizeof *mine.spans) == 0);
                CHECK(memcmp(mine.folds, truth.folds, (size_t)(ROW_LANES * row_groups(n)) * sizeof *mine.folds) == 0);
                for (int64_t g = 0; g < row_groups(n); g++) CHECK(mine.peaks[g] == truth.peaks[g]);
            }
}

static void masks_in_every_set(void) {
    static uint32_t bits[N_WORDS];
    const struct row_kernels *k = row_select(cpu_flags());
    for (uint64_t i = 0; i < N_WORDS; i++) bits[i] = i % 5 == 0 ? 0 : i % 5 == 1 ? UINT32_MAX : (uint32_t)hash_pair(6, i);
    for (int w = 0; w < N_WIDTHS; w++) {
        int64_t n = widths[w];
        float best = -INFINITY;
        for (int64_t i = 0; i < n; i++) mine.x[i] = truth.x[i] = logit(0, (uint64_t)i);
        for (int64_t i = 0; i < n; i++)
            if (!(bits[i / 32] >> i % 32 & 1)) truth.x[i] = -INFINITY;
            else best = truth.x[i] > best ? truth.x[i] : best;
        CHECK(row_ref.peaks(truth.x, n, truth.peaks, &truth.least) == best);
        CHECK(k->mask(mine.x, bits, n, mine.p, mine.peaks) == best);
        CHECK(row_ref.mask(mine.x, bits, n, mine.x, truth.p) == best); /* in place */
        CHECK(memcmp(mine.p, truth.x, (size_t)n * sizeof *mine.p) == 0);
        CHECK(memcmp(mine.x, truth.x, (size_t)n * sizeof *mine.x) == 0);
        for (int64_t g = 0; g < row_groups(n); g++) CHECK(mine.peaks[g] == truth.peaks[g] && truth.p[g] == truth.peaks[g]);
    }
}

static void one_nan_is_seen_anywhere(void) {
    static uint32_t bits[N_WORDS];
    const struct row_kernels *sets[] = {&row_ref, row_select(cpu_flags())};
    memset(bits, 0xFF, sizeof bits);
    for (int64_t n = 1; n < 300; n += 37)
        for (int64_t at = 0; at < n; at++)
            for (int k = 0; k < 2; k++) {
                for (int64_t i = 0; i < n; i++) mine.x[i] = logit(0, (uint64_t)i);
                mine.x[at] = NAN;
                CHECK(isnan(sets[k]->peaks(mine.x, n, mine.peaks, &mine.least)));
                CHECK(isnan(sets[k]->mask(mine.x, bits, n, mine.p, mine.peaks)));
            }
}

static void the_exponential_is_true(void) {
    double sum = 0, moment = 0;
    for (int64_t i = 0; i < N_MAX; i++) truth.x[i] = (float)(-40 * unit(7, (uint64_t)i));
    truth.x[17] = 0;
    run(&row_ref, &truth, N_MAX, 1);
    CHECK(truth.p[17] == 1 && truth.count == N_MAX);
    for (int64_t i = 0; i < N_MAX; i++) {
        double want = m_exp((double)truth.x[i]);
        if (truth.x[i] > ROW_LEAST) CHECK(fabs((double)truth.p[i] / want - 1) < 3e-6);
        else CHECK(truth.p[i] <= ROW_NONE);
        sum += want;
        moment += want * (double)truth.x[i];
    }
    CHECK_NEAR(truth.sum / sum, 1, 1e-6);
    CHECK_NEAR(truth.moment / moment, 1, 2e-6);
}

static void lists_in_every_set(void) {
    const struct row_kernels *sets[] = {&row_ref, row_select(cpu_flags())};
    static const float bars[] = {-INFINITY, -9, 0, 9, 9.9f, 100};
    static int32_t places[N_MAX + 1];
    static float out[N_MAX + 1];
    for (int w = 0; w < N_WIDTHS; w++)
        for (int b = 0; b < 6; b++)
            for (int k = 0; k < 2; k++) {
                int64_t n = widths[w], want = 0;
                for (int64_t i = 0; i < n; i++) mine.x[i] = logit(0, (uint64_t)i);
                sets[k]->peaks(mine.x, n, mine.peaks, &mine.least);
                int64_t found = sets[k]->list(mine.x, n, mine.peaks, bars[b], places, out);
                for (int64_t i = 0; i < n; i++) {
                    if (mine.x[i] < bars[b]) continue;
                    CHECK(want < found && places[want] == i && out[want] == mine.x[i]);
                    want++;
                }
                CHECK_INT(found, want);
            }
}

/* A few numbers change: the folds of their groups, made once more, are those of the whole row. */
static void folds_of_some_groups(void) {
    const struct row_kernels *sets[] = {&row_ref, row_select(cpu_flags())};
    static const int32_t groups[] = {0, 3, 7, N_MAX / ROW_GROUP};
    static const float scales[] = {1, 1.25f};
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < 2; s++) {
            for (int64_t i = 0; i < N_MAX; i++) mine.x[i] = logit(0, (uint64_t)i);
            mine.x[500] = 12;
            run(sets[k], &mine, N_MAX, scales[s]);
            for (int i = 0; i < 4; i++) mine.x[groups[i] * ROW_GROUP + 5] += i % 2 ? -1 : 1.5f;
            sets[k]->peaks(mine.x, N_MAX, mine.peaks, &mine.least);
            memcpy(truth.folds, mine.folds, sizeof mine.folds);
            sets[k]->refold(
                &(struct row_weigh){
                    .x = mine.x, .n = N_MAX, .best = mine.best, .scale = scales[s], .peaks = mine.peaks, .folds = truth.folds},
                groups, 4);
            CHECK(memcmp(mine.folds, truth.folds, sizeof mine.folds) != 0);
            run(sets[k], &mine, N_MAX, scales[s]);
            CHECK(memcmp(mine.folds, truth.folds, sizeof mine.folds) == 0);
        }
}

const struct unit_suite unit_row = {
    "row",
    (const struct unit_case[]){{"same_bits_in_every_set", same_bits_in_every_set},
                               {"masks_in_every_set", masks_in_every_set},
                               {"one_nan_is_seen_anywhere", one_nan_is_seen_anywhere},
                               {"lists_in_every_set", lists_in_every_set},
                               {"folds_of_some_groups", folds_of_some_groups},
                               {"the_exponential_is_true", the_exponential_is_true},
                               {0}},
};
