/* The CPU backend's workers: every item once, whatever is announced to those who wait. The thread sanitizer runs this, too. */
#include "backend/cpu/pool.h"
#include "unit.h"

enum { N_MOST = 1000, AHEAD_BYTES = 70000 };

static int32_t times[N_MOST];
static unsigned char memory[2][AHEAD_BYTES];

struct seen {
    int32_t n_threads;
    int64_t n;
    bool is_outside[16]; /* by thread */
};

static void count_items(void *ctx, int64_t first, int64_t last, int32_t thread) {
    struct seen *s = ctx;
    if (thread < 0 || thread >= s->n_threads) return; /* items that nobody counted fail the case */
    if (first < 0 || last > s->n || first >= last) s->is_outside[thread] = true;
    for (int64_t i = first; i < last && !s->is_outside[thread]; i++) times[i]++;
}

static void check_run(struct pool *p, int32_t n_threads, int64_t n, int64_t chunk) {
    struct seen s = {.n_threads = n_threads, .n = n};
    memset(times, 0, sizeof times);
    pool_run(p, n, chunk, count_items, &s);
    for (int32_t t = 0; t < n_threads; t++) FAIL_IF(s.is_outside[t], "thread %d of %d: items outside of %d", t, n_threads, (int)n);
    for (int64_t i = 0; i < N_MOST; i++)
        FAIL_IF(times[i] != (i < n), "%d threads, %d items by %d: item %d %d times", n_threads, (int)n, (int)chunk, (int)i, times[i]);
}

/* More threads than a machine has processors, too: those sleep between jobs. */
static const int32_t thread_counts[] = {1, 2, 3, 16};

static void every_item_once(void) {
    static const int64_t counts[] = {0, 1, 2, 7, 64, 999, N_MOST}, chunks[] = {0, 1, 3, 100, 2000};
    struct err err;
    for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
        struct pool *p;
        CHECK_OK(pool_create(thread_counts[t], &p, &err), err);
        CHECK_INT(pool_threads(p), thread_counts[t]);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (size_t k = 0; k < sizeof chunks / sizeof *chunks; k++) check_run(p, thread_counts[t], counts[i], chunks[k]);
        pool_destroy(p);
    }
}

/* Memory that is large and small, with parts for some threads only, of no whole number of lines, the same again, and none: what is asked for
 * ahead must not change what a job does. */
static void announcements_change_nothing(void) {
    static const struct pool_ahead aheads[] = {
        {memory[0], 4096, AHEAD_BYTES},
        {memory[1], AHEAD_BYTES, AHEAD_BYTES},
        {memory[1], AHEAD_BYTES, AHEAD_BYTES},
        {memory[0], 1000, 1500},
        {memory[1] + 3, 1, 1},
        {NULL, 0, 0},
        {memory[0], 0, AHEAD_BYTES},
    };
    struct err err;
    for (size_t t = 0; t < sizeof thread_counts / sizeof *thread_counts; t++) {
        struct pool *p;
        CHECK_OK(pool_create(thread_counts[t], &p, &err), err);
        for (int round = 0; round < 20; round++)
            for (size_t i = 0; i < sizeof aheads / sizeof *aheads; i++) {
                pool_read_ahead(p, aheads[i]);
                check_run(p, thread_counts[t], 64, 1);
                check_run(p, thread_counts[t], round, 0);
            }
        pool_destroy(p);
    }
}

const struct unit_suite unit_pool = {
    "pool",
    (const struct unit_case[]){
        {"every_item_once", every_item_once},
        {"announcements_change_nothing", announcements_change_nothing},
        {0},
    },
};
