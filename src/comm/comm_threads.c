/* Ranks that are threads of one process: each shows the others where its numbers lie, and nobody goes on before all have read them.
 *
 * Two meetings enclose every call of the whole group: at the first all have shown their memory, at the second all have read.
 */
#include "base/arena.h"
#include "comm/comm.h"
#include "os/os.h"

#include <stdatomic.h>
#include <string.h>

/* Looks at a word before a thread sleeps, and how long it sleeps at most before it looks whether somebody has failed. */
enum { LOOKS = 200, SLEEP_MS = 100 };

struct shown {
    const void *data;
    size_t bytes;
};

struct group {
    int32_t n;
    _Atomic int32_t n_open;
    _Atomic uint32_t n_here, meeting; /* ranks that have come to this meeting; meetings that have ended */
    struct shown *shown;              /* [n] */
    struct os_mutex *lock;            /* for the reason */
    _Atomic uint32_t has_failed;
    struct err reason;
};

struct member {
    struct comm base;
    struct group *group;
};

static int failure(struct group *g, struct err *err) {
    os_mutex_lock(g->lock);
    int code = err_set(err, g->reason.code, "%s", g->reason.msg);
    os_mutex_unlock(g->lock);
    return code;
}

/* Until the word is another than `old`, or somebody has failed. */
static int wait_for(struct group *g, _Atomic uint32_t *word, uint32_t old, struct err *err) {
    for (int i = 0; i < LOOKS; i++) {
        if (atomic_load(word) != old) return ERR_OK;
        os_thread_yield();
    }
    while (atomic_load(word) == old) {
        if (atomic_load(&g->has_failed)) return failure(g, err);
        os_wait_on(word, old, SLEEP_MS);
    }
    return ERR_OK;
}

static int meet(struct group *g, struct err *err) {
    uint32_t now = atomic_load(&g->meeting);
    if (atomic_load(&g->has_failed)) return failure(g, err);
    if (atomic_fetch_add(&g->n_here, 1) + 1 < (uint32_t)g->n) return wait_for(g, &g->meeting, now, err);
    atomic_store(&g->n_here, 0);
    atomic_fetch_add(&g->meeting, 1);
    os_wake_all(&g->meeting);
    return ERR_OK;
}

/* Shows memory and waits until all have. */
static int show(struct comm *c, const void *data, size_t bytes, struct err *err) {
    struct group *g = ((struct member *)c)->group;
    g->shown[c->rank] = (struct shown){data, bytes};
    return meet(g, err);
}

/* All ranks see the same sizes, so all of them refuse. */
static int threads_all_reduce(struct comm *c, const float *in, float *out, size_t n, struct err *err) {
    struct group *g = ((struct member *)c)->group;
    TRY(show(c, in, n * sizeof *in, err));
    for (int32_t r = 0; r < g->n; r++)
        if (g->shown[r].bytes != g->shown[0].bytes)
            return err_set(err, ERR_EINTERNAL, "rank %d brings %zu bytes to a sum, and rank 0 %zu", r, g->shown[r].bytes,
                           g->shown[0].bytes);
    memcpy(out, g->shown[0].data, n * sizeof *out);
    for (int32_t r = 1; r < g->n; r++) {
        const float *x = g->shown[r].data;
        for (size_t i = 0; i < n; i++) out[i] += x[i];
    }
    return meet(g, err);
}

static int threads_all_gather(struct comm *c, const void *in, size_t bytes, void *out, size_t total, struct err *err) {
    struct group *g = ((struct member *)c)->group;
    size_t sum = 0;
    TRY(show(c, in, bytes, err));
    for (int32_t r = 0; r < g->n; r++) sum += g->shown[r].bytes;
    if (sum != total) return err_set(err, ERR_EINTERNAL, "%zu bytes were gathered, expected %zu", sum, total);
    char *to = out;
    for (int32_t r = 0; r < g->n; r++) {
        if (g->shown[r].bytes) memcpy(to, g->shown[r].data, g->shown[r].bytes);
        to += g->shown[r].bytes;
    }
    return meet(g, err);
}

static int threads_broadcast(struct comm *c, int32_t root, void *data, size_t bytes, struct err *err) {
    struct group *g = ((struct member *)c)->group;
    TRY(show(c, data, bytes, err));
    if (g->shown[root].bytes != bytes)
        return err_set(err, ERR_EINTERNAL, "rank %d hands out %zu bytes, and rank %d takes %zu", root, g->shown[root].bytes, c->rank,
                       bytes);
    if (c->rank != root && bytes) memcpy(data, g->shown[root].data, bytes);
    return meet(g, err);
}

static void threads_fail(struct comm *c, const struct err *reason) {
    struct group *g = ((struct member *)c)->group;
    os_mutex_lock(g->lock);
    if (!g->reason.code) g->reason = *reason;
    os_mutex_unlock(g->lock);
    atomic_store(&g->has_failed, 1);
    os_wake_all(&g->meeting);
}

static void threads_close(struct comm *c) {
    struct group *g = ((struct member *)c)->group;
    mem_free(c);
    if (atomic_fetch_sub(&g->n_open, 1) != 1) return;
    os_mutex_destroy(g->lock);
    mem_free(g->shown);
    mem_free(g);
}

static const struct comm_type threads_type = {.name = "threads",
                                              .all_reduce = threads_all_reduce,
                                              .all_gather = threads_all_gather,
                                              .broadcast = threads_broadcast,
                                              .fail = threads_fail,
                                              .close = threads_close};

int comm_threads_open(int32_t n, struct comm **out, struct err *err) {
    if (n < 1 || n > COMM_RANKS_MAX) return err_set(err, ERR_EARG, "%d ranks; there may be 1 to %d", n, COMM_RANKS_MAX);
    struct group *g = mem_alloc(sizeof *g);
    *g = (struct group){.n = n, .lock = os_mutex_create()};
    atomic_store(&g->n_open, n);
    g->shown = mem_alloc((size_t)n * sizeof *g->shown);
    for (int32_t i = 0; i < n; i++) {
        struct member *m = mem_alloc(sizeof *m);
        *m = (struct member){.base = {.type = &threads_type, .rank = i, .size = n, .n_here = n}, .group = g};
        out[i] = &m->base;
    }
    return ERR_OK;
}
