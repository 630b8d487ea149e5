/* The CPU backend's workers: every item once, whatever is announced to those who wait and whoever comes late; and how they wait. The
 * thread sanitizer runs this, too. */
#include "backend/cpu/handout.h"
#include "backend/cpu/linger.h"
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

enum { N_SEATS = 4 };

/* The caller of a job whose workers never come. */
static void run_alone(struct handout *h, uint32_t n_chunks) {
    bool seen[64] = {true}; /* chunk 0 is the caller's */
    int64_t i;
    handout_begin(h, n_chunks);
    handout_done(h, 0, 1);
    CHECK(handout_is_over(h) == (n_chunks == 1));
    while ((i = handout_next(h)) != HANDOUT_NONE) {
        CHECK(!seen[i]);
        seen[i] = true;
        handout_done(h, 0, 1);
        CHECK(!handout_is_over(h)); /* the seats are left */
    }
    for (int32_t t = 1; t < N_SEATS; t++)
        if ((i = handout_seat(h, t)) != HANDOUT_NONE) {
            CHECK(i == t && !seen[i]);
            seen[i] = true;
            handout_done(h, 0, 1);
        }
    for (uint32_t k = 0; k < 64; k++) CHECK_INT(seen[k], k < n_chunks);
    CHECK(handout_is_over(h));
}

static void nobody_is_waited_for(void) {
    struct seat seats[N_SEATS] = {0};
    struct handout h = {.seats = seats, .n_seats = N_SEATS};
    for (uint32_t n = 1; n <= 64; n++) run_alone(&h, n);
}

/* A worker that comes when the caller has its chunk, when the job is over, or in the middle of the next one. */
static void late_workers_find_less(void) {
    struct seat seats[N_SEATS] = {0};
    struct handout h = {.seats = seats, .n_seats = N_SEATS};
    for (int32_t t = 1; t < N_SEATS; t++) CHECK_INT(handout_seat(&h, t), HANDOUT_NONE); /* before the first job */
    CHECK_INT(handout_next(&h), HANDOUT_NONE);
    handout_begin(&h, 6);
    CHECK_INT(handout_seat(&h, 1), 1);
    CHECK_INT(handout_seat(&h, 1), HANDOUT_NONE);
    CHECK_INT(handout_next(&h), 4);
    CHECK_INT(handout_next(&h), 5);
    CHECK_INT(handout_next(&h), HANDOUT_NONE);
    CHECK_INT(handout_seat(&h, 2), 2); /* by the caller */
    CHECK_INT(handout_seat(&h, 2), HANDOUT_NONE);
    handout_done(&h, 1, 1);
    handout_done(&h, 0, 4);
    CHECK(!handout_is_over(&h)); /* seat 3 is still to be had */
    CHECK_INT(handout_seat(&h, 3), 3);
    handout_done(&h, 3, 1);
    CHECK(handout_is_over(&h));
    for (int32_t t = 1; t < N_SEATS; t++) CHECK_INT(handout_seat(&h, t), HANDOUT_NONE); /* over */
    CHECK_INT(handout_next(&h), HANDOUT_NONE);
    handout_begin(&h, 2);
    CHECK_INT(handout_seat(&h, 3), HANDOUT_NONE); /* no chunk for this seat */
    CHECK_INT(handout_next(&h), HANDOUT_NONE);
    CHECK_INT(handout_seat(&h, 1), 1);
    handout_done(&h, 0, 1);
    CHECK(!handout_is_over(&h));
    handout_done(&h, 1, 1); /* its third of two jobs */
    CHECK(handout_is_over(&h));
}

/* A wait of so long, each offer of the core coming back after so long: how often it was offered until the thread goes to sleep; -1: it
 * is still awake. */
static int count_offers(struct linger *l, uint64_t *now, uint64_t back_ns, uint64_t wait_ns) {
    int n = 0;
    l->begin_ns = *now;
    for (enum linger_turn turn; (turn = linger_turn(l, *now)) != LINGER_SLEEP;) {
        uint64_t before = *now;
        if (*now - l->begin_ns >= wait_ns) return -1;
        *now += turn == LINGER_OFFER ? back_ns : 100;
        if (turn == LINGER_OFFER) {
            linger_offered(l, before, *now);
            n++;
        }
    }
    return n;
}

static void waiting_threads_leave_the_core(void) {
    struct linger l = {.limit_ns = 3000000};
    uint64_t now = 1000000000, start = now;
    CHECK_INT(linger_turn(&(struct linger){.begin_ns = now}, now), LINGER_LOOK);
    /* nobody wants the core: awake to the limit, however often that happens */
    CHECK_INT(count_offers(&l, &now, 1000, 2000000), -1);
    CHECK_INT(count_offers(&l, &now, 1000, 10000000), (3000000 - LINGER_LOOK_NS) / 1000);
    /* somebody had it: one offer, then sleep, and no offer for a while */
    CHECK_INT(count_offers(&l, &now, 2000000, 10000000), 1);
    start = now;
    while (now - start < LINGER_SHARED_NS - LINGER_LOOK_NS) {
        uint64_t before = now;
        CHECK_INT(count_offers(&l, &now, 1000, 10000000), 0);
        CHECK(now - before <= LINGER_LOOK_NS);
        now += 1000000;
    }
    now = start + LINGER_SHARED_NS;
    CHECK_INT(count_offers(&l, &now, 1000, 10000000), (3000000 - LINGER_LOOK_NS) / 1000);
    /* more threads than processors: never */
    l = (struct linger){0};
    CHECK_INT(count_offers(&l, &now, 1000, 10000000), 0);
}

const struct unit_suite unit_pool = {
    "pool",
    (const struct unit_case[]){
        {"every_item_once", every_item_once},
        {"announcements_change_nothing", announcements_change_nothing},
        {"nobody_is_waited_for", nobody_is_waited_for},
        {"late_workers_find_less", late_workers_find_less},
        {"waiting_threads_leave_the_core", waiting_threads_leave_the_core},
        {0},
    },
};
