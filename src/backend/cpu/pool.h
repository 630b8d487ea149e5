/* The CPU backend's workers.
 *
 * pool_run splits n items into chunks that threads take one by one, the caller working too; it returns when all are done
 * (one barrier per call). Results never depend on which thread took what: items are independent and each writes its own
 * part. Workers stay awake for a bounded time between calls, less where others want the processors, then sleep; a call
 * never waits for a worker that has not begun (handout.h, linger.h).
 */
#ifndef MLXCEL_BACKEND_CPU_POOL_H
#define MLXCEL_BACKEND_CPU_POOL_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

struct pool;

/* Memory that a later job reads: thread t begins with the bytes [t * step, (t + 1) * step) of it. */
struct pool_ahead {
    const unsigned char *from; /* NULL: nothing is known */
    size_t step, size;
};

/* Items [first, last) on worker number `thread` (0 is the caller). */
typedef void pool_fn(void *ctx, int64_t first, int64_t last, int32_t thread);

int pool_create(int32_t n_threads, struct pool **out, struct err *err);
void pool_destroy(struct pool *p);
int32_t pool_threads(const struct pool *p);
/* chunk: items taken at a time; 0 lets the pool choose. */
void pool_run(struct pool *p, int64_t n, int64_t chunk, pool_fn *fn, void *ctx);
/* From the next job on, threads that wait ask memory for their part of `ahead`. */
void pool_read_ahead(struct pool *p, struct pool_ahead ahead);

#endif
