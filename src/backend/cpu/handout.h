/* How the chunks of a job are handed out. A thread that the system keeps from running must not keep the job waiting, so nothing is set
 * aside for anybody: who comes takes, and who comes late finds less.
 *
 * (1) Chunk t is where thread t begins (its seat). Until it does, the caller may take that chunk instead. A seat remembers the last job
 *     whose chunk was taken; jobs are numbered upwards, so it is taken once.
 * (2) The chunks behind the seats, if there are any, come from one counter, which holds their number, too: taking one needs no other field.
 * (3) Whoever has taken a chunk may read the job's fields until he says that it is done. Who has taken none must not: the job may be
 *     over, and the next one be on its way in.
 * (4) Each thread counts what it has done, in all jobs, in a line of its own: one word that all of them count down goes from core to core, one after the
 *     other, while the caller reads lines of their own side by side.
 */
#ifndef MLXCEL_BACKEND_CPU_HANDOUT_H
#define MLXCEL_BACKEND_CPU_HANDOUT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What different threads write lies a few cache lines apart. */
enum { HANDOUT_APART = 128, HANDOUT_SEATS_MAX = 1 << 16, HANDOUT_NONE = -1 };

struct seat {
    _Atomic uint64_t taken; /* number of the last job whose chunk was taken here */
    char apart1[HANDOUT_APART - sizeof(uint64_t)];
    _Atomic uint64_t done; /* chunks that this thread has done, of all jobs */
    char apart2[HANDOUT_APART - sizeof(uint64_t)];
};

struct handout {
    _Atomic uint64_t
        job; /* number of the current one, whether it has chunks behind the seats (1 bit), how many seats have a chunk (16 bits) */
    _Atomic uint64_t n_all; /* chunks of all jobs so far */
    struct seat *seats;     /* [n_seats]; 0 is the caller's, who takes its chunk without asking */
    int32_t n_seats;
    char apart[HANDOUT_APART];
    _Atomic uint64_t rest; /* chunks in all (32 bits), then the next one behind the seats */
};

enum { HANDOUT_RESTS = 16, HANDOUT_NUMBER = 17 }; /* bits of handout.job */

/* A new job of n_chunks. All chunks of the last one are done, and its fields are written; what follows tells the other threads. */
static inline void handout_begin(struct handout *h, uint32_t n_chunks) {
    uint32_t n_seats = n_chunks < (uint32_t)h->n_seats ? n_chunks : (uint32_t)h->n_seats;
    uint64_t number = (atomic_load_explicit(&h->job, memory_order_relaxed) >> HANDOUT_NUMBER) + 1, rests = n_chunks > n_seats;
    uint64_t n_all = atomic_load_explicit(&h->n_all, memory_order_relaxed) + n_chunks;
    atomic_store_explicit(&h->n_all, n_all, memory_order_relaxed);
    atomic_store_explicit(&h->rest, (uint64_t)n_chunks << 32 | n_seats, memory_order_release);
    atomic_store_explicit(&h->job, number << HANDOUT_NUMBER | rests << HANDOUT_RESTS | (n_seats - 1), memory_order_release);
}

/* The chunk of a seat, if the current job has one there that nobody took; else HANDOUT_NONE. */
static inline int64_t handout_seat(struct handout *h, int32_t seat) {
    uint64_t job = atomic_load_explicit(&h->job, memory_order_acquire), number = job >> HANDOUT_NUMBER;
    struct seat *s = &h->seats[seat];
    uint64_t old = atomic_load_explicit(&s->taken, memory_order_relaxed);
    if ((uint64_t)seat > (job & 0xFFFF) || old >= number) return HANDOUT_NONE;
    return atomic_compare_exchange_strong(&s->taken, &old, number) ? seat : HANDOUT_NONE;
}

/* The next chunk behind the seats; HANDOUT_NONE: there are no more. */
static inline int64_t handout_next(struct handout *h) {
    if (!(atomic_load_explicit(&h->job, memory_order_acquire) >> HANDOUT_RESTS & 1)) return HANDOUT_NONE;
    uint64_t rest = atomic_load_explicit(&h->rest, memory_order_acquire);
    if ((uint32_t)rest >= rest >> 32) return HANDOUT_NONE;
    rest = atomic_fetch_add_explicit(&h->rest, 1, memory_order_acq_rel);
    return (uint32_t)rest < rest >> 32 ? (int64_t)(uint32_t)rest : HANDOUT_NONE;
}

/* A thread has done so many chunks more. Sequentially consistent, as what it asks next. */
static inline void handout_done(struct handout *h, int32_t thread, uint32_t n) {
    _Atomic uint64_t *done = &h->seats[thread].done;
    atomic_store(done, atomic_load_explicit(done, memory_order_relaxed) + n);
}

/* Whether all chunks of all jobs are done. */
static inline bool handout_is_over(struct handout *h) {
    uint64_t n = 0;
    for (int32_t t = 0; t < h->n_seats; t++) n += atomic_load(&h->seats[t].done);
    return n == atomic_load_explicit(&h->n_all, memory_order_relaxed);
}

#endif
