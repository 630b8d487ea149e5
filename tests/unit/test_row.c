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
    float x[N_MAX], peaks[N_MAX], p[N_MAX];
    double spans[N_MAX];
    float best;
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

static void run(const struct row_kernels *k, struct row *r, int64_t n, float scale) {
    r->best = k->peaks(r->x, n, r->peaks);
    r->sum = k->weigh(&(struct row_weigh){r->x, n, r->best, scale, r->peaks, r->p, r->spans});
    r->moment = k->moment(r->x, r->p, n, r->best, &r->count);
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
                CHECK(mine.best == truth.best && mine.sum == truth.sum && mine.count == truth.count);
                CHECK(mine.moment == truth.moment);
                CHECK(memcmp(mine.p, truth.p, (size_t)n * sizeof *mine.p) == 0);
                CHECK(memcmp(mine.spans, truth.spans, (size_t)row_spans(n) * sizeof *mine.spans) == 0);
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
        CHECK(row_ref.peaks(truth.x, n, truth.peaks) == best);
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
                CHECK(isnan(sets[k]->peaks(mine.x, n, mine.peaks)));
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
        if (truth.x[i] > ROW_LEAST) CHECK(fabs((double)truth.p[i] / want - 1) < 2.4e-7);
        else CHECK(truth.p[i] <= ROW_NONE);
        sum += want;
        moment += want * (double)truth.x[i];
    }
    CHECK_NEAR(truth.sum / sum, 1, 3e-7);
    CHECK_NEAR(truth.moment / moment, 1, 1e-6);
}

const struct unit_suite unit_row = {
    "row",
    (const struct unit_case[]){{"same_bits_in_every_set", same_bits_in_every_set},
                               {"masks_in_every_set", masks_in_every_set},
                               {"one_nan_is_seen_anywhere", one_nan_is_seen_anywhere},
                               {"the_exponential_is_true", the_exponential_is_true},
                               {0}},
};
