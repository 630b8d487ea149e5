/* How long a thread that waits stays awake.
 *
 * A thread that sleeps is woken late, by tens of microseconds and on virtual machines by hundreds: longer than most ops take. So it stays
 * awake across the gaps between ops and between steps. It looks for about as long as a wake-up costs; from then on it offers its core to
 * others at every turn. Where nobody wants the core, that costs nothing. An offer that somebody took shows: it comes back late. From then on
 * this core is shared, and for a while the thread goes to sleep after the first looks: what it would spend on waiting is then left to those
 * who have work, and the system repays it by running the thread at once when it is woken. */
#ifndef MLXCEL_BACKEND_CPU_LINGER_H
#define MLXCEL_BACKEND_CPU_LINGER_H

#include <stdbool.h>
#include <stdint.h>

enum { LINGER_LOOK_NS = 20000, LINGER_LENT_NS = 100000, LINGER_SHARED_NS = 100000000 };

enum linger_turn { LINGER_LOOK, LINGER_OFFER, LINGER_SLEEP };

struct linger {
    uint64_t begin_ns;  /* of this wait */
    uint64_t shared_ns; /* until when the core counts as shared */
    uint64_t limit_ns;  /* how long a wait may be without sleep */
};

/* What to do next, some time into a wait. */
static inline enum linger_turn linger_turn(const struct linger *l, uint64_t now_ns) {
    uint64_t waited = now_ns - l->begin_ns;
    if (waited < LINGER_LOOK_NS) return LINGER_LOOK;
    return now_ns < l->shared_ns || waited >= l->limit_ns ? LINGER_SLEEP : LINGER_OFFER;
}

/* The core was offered, and came back. */
static inline void linger_offered(struct linger *l, uint64_t from_ns, uint64_t to_ns) {
    if (to_ns - from_ns > LINGER_LENT_NS) l->shared_ns = to_ns + LINGER_SHARED_NS;
}

#endif
