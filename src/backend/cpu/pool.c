/* Workers: a bell announces a job, handout.h hands out its chunks, the caller waits until all are done.
 *
 * (1) A job's fields are written before the bell and read by whoever has taken a chunk of it.
 * (2) The caller waits for chunks that were taken, never for workers: one that the system keeps from running costs its share of the speed
 *     and nothing else. When a chunk was taken by nobody, the caller takes it.
 */
#include "backend/cpu/pool.h"

#include "backend/cpu/handout.h"
#include "backend/cpu/linger.h"
#include "base/arena.h"
#include "os/os.h"

/* Looks between two readings of the clock; how long threads stay awake (linger.h), the caller longer than the workers; and how long the
 * system lets one sleep at most. */
enum { LOOKS = 64, LOOKS_OFFERED = 8, LOOKS_PRESENT = 1024, WORKER_AWAKE_NS = 3000000, CALLER_AWAKE_NS = 10000000, SLEEP_MS = 100 };

/* Memory rests while one thread does the small ops for all and the others wait. Those ask meanwhile for what they will read
 * first in the next large job, into their level-2 cache: no more than fits there beside what the ops themselves use, a few
 * lines between two looks at what they wait for. */
enum { AHEAD_MAX = 256 << 10, AHEAD_LINES = 4, AHEAD_LINE = 64 };

/* How a thread waits. */
struct waiter {
    struct linger linger;
    struct {
        const unsigned char *of, *at, *end;
    } ahead;
};

struct worker {
    struct pool *pool;
    struct os_thread *thread;
    int32_t index;
};

/* What a worker reads before it begins fills one cache line, the first: the job's fields, the bell, the job's number and its seat's place. */
struct pool {
    pool_fn *fn;
    void *ctx;
    int64_t n, chunk;
    _Atomic uint32_t bell, stop;
    struct handout handout;
    char apart1[HANDOUT_APART];
    struct pool_ahead ahead;
    char apart2[HANDOUT_APART];
    _Atomic uint32_t caller_sleeps, wakes; /* the second is what it sleeps on */
    char apart3[HANDOUT_APART];
    _Atomic uint32_t sleepers;
    char apart4[HANDOUT_APART];
    struct arena arena; /* the pool itself is in it */
    int32_t n_threads;
    struct worker *workers; /* [n_threads - 1] */
    bool stays_awake;       /* every thread can have a processor of its own */
    /* what a caller has for himself */
    struct waiter caller;
    bool absent; /* a worker did not come for the last job */
};

static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Begins anew where another memory is announced than before. */
static void follow(struct waiter *w, const struct pool_ahead *ahead, int32_t thread) {
    if (w->ahead.of == ahead->from) return;
    size_t first = (size_t)thread * ahead->step;
    size_t n = first < ahead->size ? ahead->size - first : 0;
    if (n > ahead->step) n = ahead->step;
    if (n > AHEAD_MAX) n = AHEAD_MAX;
    w->ahead.of = ahead->from;
    w->ahead.at = n ? ahead->from + first : NULL;
    w->ahead.end = n ? w->ahead.at + n : NULL;
}

/* Between two looks. */
static inline void relax_reading(struct waiter *w) {
    if (w->ahead.at == w->ahead.end) {
        cpu_relax();
        return;
    }
    for (int i = 0; i < AHEAD_LINES && w->ahead.at != w->ahead.end; i++) {
        __builtin_prefetch(w->ahead.at, 0, 2);
        w->ahead.at += w->ahead.end - w->ahead.at < AHEAD_LINE ? w->ahead.end - w->ahead.at : AHEAD_LINE;
    }
}

/* What is waited for: a bell after the one that was heard, or the end of a job. */
typedef bool came_fn(struct pool *p, uint32_t heard);

static bool has_rung(struct pool *p, uint32_t heard) {
    return atomic_load_explicit(&p->bell, memory_order_acquire) != heard;
}

static bool is_over(struct pool *p, uint32_t heard) {
    (void)heard;
    return handout_is_over(&p->handout);
}

static inline bool look(struct pool *p, came_fn *came, uint32_t heard, int n_looks, struct waiter *w) {
    for (int i = 0; i < n_looks; i++) {
        if (came(p, heard)) return true;
        relax_reading(w);
    }
    return false;
}

/* False when it is time to sleep. */
static bool wait_awake(struct pool *p, came_fn *came, uint32_t heard, struct waiter *w) {
    if (look(p, came, heard, LOOKS, w)) return true;
    uint64_t now = w->linger.begin_ns = os_clock_ns();
    for (enum linger_turn turn; (turn = linger_turn(&w->linger, now)) != LINGER_SLEEP;) {
        uint64_t before = now;
        if (turn == LINGER_OFFER) os_thread_yield();
        bool here = look(p, came, heard, turn == LINGER_OFFER ? LOOKS_OFFERED : LOOKS, w);
        now = os_clock_ns();
        if (turn == LINGER_OFFER) linger_offered(&w->linger, before, now);
        if (here) return true;
    }
    return false;
}

static void run_chunk(struct pool *p, int64_t i_chunk, int32_t thread) {
    int64_t first = i_chunk * p->chunk, last = first + p->chunk < p->n ? first + p->chunk : p->n;
    p->fn(p->ctx, first, last, thread);
}

/* Chunks behind the seats until there are no more; how many. */
static uint32_t run_rest(struct pool *p, int32_t thread) {
    uint32_t n = 0;
    for (int64_t i; (i = handout_next(&p->handout)) != HANDOUT_NONE; n++) run_chunk(p, i, thread);
    return n;
}

static uint32_t wait_for_bell(struct pool *p, uint32_t heard, struct waiter *w) {
    if (!wait_awake(p, has_rung, heard, w)) {
        atomic_fetch_add(&p->sleepers, 1);
        while (atomic_load(&p->bell) == heard) os_wait_on(&p->bell, heard, SLEEP_MS);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return atomic_load_explicit(&p->bell, memory_order_acquire);
}

/* Counts chunks that are done. Whoever finds the job over wakes the caller; counts and the caller's word are sequentially consistent, so that one of those who are the
 * last finds it over, or the caller does. */
static void tell_caller(struct pool *p, int32_t thread, uint32_t n) {
    handout_done(&p->handout, thread, n);
    if (!atomic_load(&p->caller_sleeps) || !handout_is_over(&p->handout)) return;
    atomic_fetch_add(&p->wakes, 1);
    os_wake_all(&p->wakes);
}

static void worker_main(void *user) {
    struct worker *me = user;
    struct pool *p = me->pool;
    struct waiter w = {.linger.limit_ns = p->stays_awake ? WORKER_AWAKE_NS : 0};
    uint32_t heard = 0;
    for (;;) {
        heard = wait_for_bell(p, heard, &w);
        if (atomic_load(&p->stop)) return;
        int64_t first = handout_seat(&p->handout, me->index);
        uint32_t n = first != HANDOUT_NONE;
        if (n) {
            __builtin_prefetch(&p->ahead);
            run_chunk(p, first, me->index);
        }
        n += run_rest(p, me->index);
        if (n) follow(&w, &p->ahead, me->index);
        if (n) tell_caller(p, me->index, n);
    }
}

/* Chunks of workers that have not come; how many. */
static uint32_t run_seats(struct pool *p) {
    uint32_t n = 0;
    for (int32_t t = 1; t < p->n_threads; t++)
        if (handout_seat(&p->handout, t) != HANDOUT_NONE) {
            run_chunk(p, t, 0);
            n++;
        }
    return n;
}

/* Until no worker has anything left to do. */
static void sleep_until_over(struct pool *p) {
    atomic_store(&p->caller_sleeps, 1);
    for (;;) {
        uint32_t wakes = atomic_load(&p->wakes);
        if (handout_is_over(&p->handout)) break;
        os_wait_on(&p->wakes, wakes, SLEEP_MS);
    }
    atomic_store(&p->caller_sleeps, 0);
}

/* Workers that are awake are done in a moment. When they are not, their seats are looked at; what is taken by then will be done. */
static void wait_for_workers(struct pool *p) {
    bool absent = p->absent || atomic_load_explicit(&p->sleepers, memory_order_relaxed);
    p->absent = false;
    if (look(p, is_over, 0, absent ? LOOKS : LOOKS_PRESENT, &p->caller)) return;
    uint32_t n = run_seats(p);
    p->absent = n > 0;
    if (n) handout_done(&p->handout, 0, n);
    if (!wait_awake(p, is_over, 0, &p->caller)) sleep_until_over(p);
}

int pool_create(int32_t n_threads, struct pool **out, struct err *err) {
    struct arena arena = {0};
    struct pool *p = arena_alloc_aligned(&arena, sizeof *p, HANDOUT_APART);
    if (n_threads < 1) n_threads = 1;
    if (n_threads > HANDOUT_SEATS_MAX) n_threads = HANDOUT_SEATS_MAX;
    p->n_threads = 1;
    p->stays_awake = n_threads <= os_cpu_count();
    p->caller.linger.limit_ns = p->stays_awake ? CALLER_AWAKE_NS : 0;
    p->workers = arena_new(&arena, struct worker, n_threads);
    p->handout.seats = arena_alloc_aligned(&arena, (size_t)n_threads * sizeof *p->handout.seats, HANDOUT_APART);
    p->arena = arena;
    for (int32_t i = 0; i + 1 < n_threads; i++) {
        struct worker *w = &p->workers[i];
        w->pool = p;
        w->index = i + 1;
        int code = os_thread_start(&w->thread, worker_main, w, "mlxcel-cpu", err);
        if (code) {
            pool_destroy(p);
            return code;
        }
        p->n_threads++;
    }
    p->handout.n_seats = p->n_threads;
    *out = p;
    return ERR_OK;
}

static void ring(struct pool *p) {
    atomic_fetch_add_explicit(&p->bell, 1, memory_order_seq_cst);
    if (atomic_load(&p->sleepers)) os_wake_all(&p->bell);
}

void pool_destroy(struct pool *p) {
    if (!p) return;
    atomic_store(&p->stop, 1);
    ring(p);
    for (int32_t i = 0; i + 1 < p->n_threads; i++) os_thread_join(p->workers[i].thread);
    struct arena arena = p->arena;
    arena_free(&arena);
}

int32_t pool_threads(const struct pool *p) {
    return p->n_threads;
}

void pool_read_ahead(struct pool *p, struct pool_ahead ahead) {
    p->ahead = ahead;
    follow(&p->caller, &ahead, 0);
}

void pool_run(struct pool *p, int64_t n, int64_t chunk, pool_fn *fn, void *ctx) {
    if (n <= 0) return;
    if (chunk <= 0) chunk = n / (p->n_threads * 8);
    if (chunk < 1 + n / INT32_MAX) chunk = 1 + n / INT32_MAX;
    if (p->n_threads == 1 || n <= chunk) {
        fn(ctx, 0, n, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n = n;
    p->chunk = chunk;
    handout_begin(&p->handout, (uint32_t)((n + chunk - 1) / chunk));
    ring(p);
    run_chunk(p, 0, 0);
    handout_done(&p->handout, 0, 1 + run_rest(p, 0));
    wait_for_workers(p);
}
