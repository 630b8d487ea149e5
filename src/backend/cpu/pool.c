/* Workers: a generation counter announces a job, an item counter hands out chunks, a finish counter closes it.
 *
 * (1) A job is published by raising `generation`; its fields are written before and read after that (release/acquire).
 * (2) `n_active` counts workers that have not finished the current generation; the caller leaves when it is zero, so no
 *     worker can still look at a job's fields when the next one is written.
 */
#include "backend/cpu/pool.h"

#include "base/arena.h"
#include "os/os.h"

#include <stdatomic.h>

/* A thread that sleeps is woken late, by tens of microseconds and on virtual machines by hundreds: longer than most ops
 * take. Once one is late, those who wait for it fall asleep too, and every op then takes as long as a wake-up. So workers
 * stay awake across the gaps between ops and between steps, and the caller longer than they do. After a short while they
 * offer the processor to others at every turn: where nobody wants it that costs nothing, and where threads have to share
 * one, the thread that is waited for gets it. */
enum { SPIN_ROUNDS = 400, WORKER_SPIN_US = 3000, CALLER_SPIN_US = 10000, SLEEP_MS = 100 };

/* Memory rests while one thread does the small ops for all and the others wait. Those ask meanwhile for what they will read
 * first in the next large job, into their level-2 cache: no more than fits there beside what the ops themselves use, a few
 * lines between two looks at what they wait for. */
enum { AHEAD_MAX = 256 << 10, AHEAD_LINES = 4, AHEAD_LINE = 64 };

struct reader {
    const unsigned char *of, *at, *end;
};

struct worker {
    struct pool *pool;
    struct os_thread *thread;
    int32_t index;
};

/* What is waited for, what hands out work and what counts the finished lie a few cache lines apart: who spins on the one
 * must not take the line from those who write the other. */
enum { APART = 128 };

struct pool {
    int32_t n_threads;
    struct worker *workers; /* [n_threads - 1] */
    bool spins;             /* every thread can have a processor of its own */
    pool_fn *fn;
    void *ctx;
    int64_t n, chunk;
    struct pool_ahead ahead; /* a field of the job like those above: read before n_active is lowered */
    struct reader caller;
    _Atomic uint32_t generation, stop;
    char apart1[APART];
    _Atomic int64_t next;
    char apart2[APART];
    _Atomic uint32_t n_active, caller_sleeps;
    char apart3[APART];
    _Atomic uint32_t sleepers;
};

static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Begins anew where another memory is announced than before. */
static void reader_follow(struct reader *r, const struct pool_ahead *ahead, int32_t thread) {
    if (r->of == ahead->from) return;
    size_t first = (size_t)thread * ahead->step;
    size_t n = first < ahead->size ? ahead->size - first : 0;
    if (n > ahead->step) n = ahead->step;
    if (n > AHEAD_MAX) n = AHEAD_MAX;
    r->of = ahead->from;
    r->at = n ? ahead->from + first : NULL;
    r->end = n ? r->at + n : NULL;
}

/* One turn of waiting. */
static inline void relax_reading(struct reader *r) {
    if (r->at == r->end) {
        cpu_relax();
        return;
    }
    for (int i = 0; i < AHEAD_LINES && r->at != r->end; i++) {
        __builtin_prefetch(r->at, 0, 2);
        r->at += r->end - r->at < AHEAD_LINE ? r->end - r->at : AHEAD_LINE;
    }
}

/* Each thread has a first chunk of its own, known without asking; the counter hands out the rest. */
static void work(struct pool *p, int32_t thread) {
    for (int64_t first = thread * p->chunk; first < p->n;) {
        int64_t last = first + p->chunk < p->n ? first + p->chunk : p->n;
        p->fn(p->ctx, first, last, thread);
        if (p->n <= p->n_threads * p->chunk) return;
        first = atomic_fetch_add_explicit(&p->next, p->chunk, memory_order_relaxed);
    }
}

/* Waits until `word` is another than `old`; false when the time is up. */
static bool spin_while(const struct pool *p, _Atomic uint32_t *word, uint32_t old, int limit_us, struct reader *r) {
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
        relax_reading(r);
    }
    if (!p->spins) return false;
    for (uint64_t end = os_clock_ns() + (uint64_t)limit_us * 1000; os_clock_ns() < end;) {
        os_thread_yield();
        for (int i = 0; i < 8; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != old) return true;
            relax_reading(r);
        }
    }
    return false;
}

static uint32_t wait_for_job(struct pool *p, uint32_t seen, struct reader *r) {
    if (!spin_while(p, &p->generation, seen, WORKER_SPIN_US, r)) {
        atomic_fetch_add(&p->sleepers, 1);
        while (atomic_load(&p->generation) == seen) os_wait_on(&p->generation, seen, SLEEP_MS);
        atomic_fetch_sub(&p->sleepers, 1);
    }
    return atomic_load_explicit(&p->generation, memory_order_acquire);
}

static void wait_for_workers(struct pool *p) {
    uint32_t left;
    while ((left = atomic_load_explicit(&p->n_active, memory_order_acquire)) != 0) {
        if (spin_while(p, &p->n_active, left, CALLER_SPIN_US, &p->caller)) continue;
        atomic_store(&p->caller_sleeps, 1);
        while ((left = atomic_load(&p->n_active)) != 0) os_wait_on(&p->n_active, left, SLEEP_MS);
        atomic_store(&p->caller_sleeps, 0);
        return;
    }
}

static void worker_main(void *user) {
    struct worker *w = user;
    struct pool *p = w->pool;
    struct reader reader = {0};
    uint32_t seen = 0;
    for (;;) {
        seen = wait_for_job(p, seen, &reader);
        if (atomic_load(&p->stop)) return;
        reader_follow(&reader, &p->ahead, w->index);
        work(p, w->index);
        /* the last one wakes the caller; both flags are sequentially consistent, so that one of the two sees the other */
        if (atomic_fetch_sub(&p->n_active, 1) == 1 && atomic_load(&p->caller_sleeps)) os_wake_all(&p->n_active);
    }
}

int pool_create(int32_t n_threads, struct pool **out, struct err *err) {
    struct pool *p = mem_alloc(sizeof *p);
    p->n_threads = 1;
    p->spins = n_threads <= os_cpu_count();
    p->workers = mem_alloc((size_t)(n_threads > 1 ? n_threads - 1 : 1) * sizeof *p->workers);
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
    *out = p;
    return ERR_OK;
}

static void publish(struct pool *p) {
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_seq_cst);
    if (atomic_load(&p->sleepers)) os_wake_all(&p->generation);
}

void pool_destroy(struct pool *p) {
    if (!p) return;
    atomic_store(&p->stop, 1);
    publish(p);
    os_wake_all(&p->generation);
    for (int32_t i = 0; i + 1 < p->n_threads; i++) os_thread_join(p->workers[i].thread);
    mem_free(p->workers);
    mem_free(p);
}

int32_t pool_threads(const struct pool *p) {
    return p->n_threads;
}

void pool_read_ahead(struct pool *p, struct pool_ahead ahead) {
    p->ahead = ahead;
    reader_follow(&p->caller, &ahead, 0);
}

void pool_run(struct pool *p, int64_t n, int64_t chunk, pool_fn *fn, void *ctx) {
    if (n <= 0) return;
    if (chunk <= 0) {
        chunk = n / (p->n_threads * 8);
        if (chunk < 1) chunk = 1;
    }
    if (p->n_threads == 1 || n <= chunk) {
        fn(ctx, 0, n, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n = n;
    p->chunk = chunk;
    atomic_store_explicit(&p->next, p->n_threads * chunk, memory_order_relaxed);
    atomic_store_explicit(&p->n_active, (uint32_t)p->n_threads - 1, memory_order_relaxed);
    publish(p);
    work(p, 0);
    wait_for_workers(p);
}
