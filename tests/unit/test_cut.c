/* Parts of ranks: everything is somebody's, nothing is two ranks', and quantised groups stay whole. */
#include "model/cut.h"
#include "unit.h"

enum { MOST_RANKS = 9, MOST_UNITS = 70, MOST_HEADS = 64 };

static void shares_cover_all(void) {
    static const int64_t steps[] = {1, 2, 16, 64};
    for (int32_t n = 1; n <= MOST_RANKS; n++)
        for (int64_t units = 1; units <= MOST_UNITS; units++)
            for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
                int64_t at = 0, most = 0, all = (units + steps[s] - 1) / steps[s];
                for (int32_t i = 0; i < n; i++) {
                    struct cut_range r = cut_share(units, steps[s], (struct rank){i, n});
                    CHECK_INT(r.of, units);
                    CHECK_INT(r.first, at);
                    CHECK(r.n >= 0 && (r.first % steps[s] == 0 || r.n == 0));
                    if (r.n > most) most = r.n;
                    at += r.n;
                }
                CHECK_INT(at, units);
                CHECK(most <= (all + n - 1) / n * steps[s]); /* nobody has more than a step above the mean */
            }
}

/* The owner of each head has its key head too, at the place where attention looks for it. */
static void check_heads(const struct cut_heads *h, int32_t n) {
    int32_t owners[MOST_HEADS] = {0}, each = h->heads / h->kv_heads;
    for (int32_t i = 0; i < n; i++) {
        struct cut_range q, kv;
        cut_attention(h, (struct rank){i, n}, &q, &kv);
        CHECK(q.of == h->heads && kv.of == h->kv_heads);
        if (q.n == 0) continue;
        FAIL_IF(q.n % kv.n, "%d of %d ranks: %d heads for %d key heads", i, n, (int)q.n, (int)kv.n);
        FAIL_IF(q.first * h->v_width % h->group || (q.first + q.n) * h->v_width % h->group,
                "%d of %d ranks: heads %d to %d tear a group apart", i, n, (int)q.first, (int)(q.first + q.n));
        for (int64_t k = 0; k < q.n; k++) {
            owners[q.first + k]++;
            CHECK_INT((q.first + k) / each, kv.first + k / (q.n / kv.n));
        }
    }
    for (int32_t k = 0; k < h->heads; k++)
        FAIL_IF(owners[k] != 1, "%d heads of %d for %d ranks: head %d has %d owners", h->heads, h->kv_heads, n, k, owners[k]);
}

static void every_head_has_one_owner(void) {
    static const int32_t shapes[][2] = {{1, 1}, {2, 1},  {3, 1},  {3, 3},  {4, 2},  {6, 3},
                                        {8, 8}, {12, 4}, {15, 5}, {32, 8}, {48, 3}, {64, 4}};
    static const int32_t widths[] = {16, 32, 64, 128}, groups[] = {1, 32, 64, 128};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t w = 0; w < sizeof widths / sizeof *widths; w++)
            for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
                for (int32_t n = 1; n <= MOST_RANKS; n++) {
                    struct cut_heads h = {shapes[s][0], shapes[s][1], widths[w], groups[g]};
                    if (h.heads * h.v_width % h.group == 0) check_heads(&h, n); /* no file has other matrices */
                }
}

/* Real shapes: everybody has the same. */
static void usual_shapes_are_even(void) {
    struct cut_range q, kv;
    for (int32_t i = 0; i < 8; i++) {
        cut_attention(&(struct cut_heads){32, 8, 128, 64}, (struct rank){i, 8}, &q, &kv);
        CHECK(q.first == 4 * i && q.n == 4 && kv.first == i && kv.n == 1);
        cut_attention(&(struct cut_heads){32, 4, 128, 128}, (struct rank){i, 8}, &q, &kv);
        CHECK(q.first == 4 * i && q.n == 4 && kv.first == i / 2 && kv.n == 1);
    }
}

static const struct unit_case cases[] = {{"shares_cover_all", shares_cover_all},
                                         {"every_head_has_one_owner", every_head_has_one_owner},
                                         {"usual_shapes_are_even", usual_shapes_are_even},
                                         {0}};

const struct unit_suite unit_cut = {"cut", cases};
