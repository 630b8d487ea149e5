/* Ranks that compute one model together, and how numbers pass between them.
 *
 * Terms:
 *   rank   one of the workers, from 0 on; the first one leads
 *   group  all ranks of one model
 *
 * (1) Every rank of a group calls the same functions in the same order; a call returns when the rank's own part is done.
 * (2) Sums are formed in the order of ranks, so that all ranks get the same bits, and the same ones every time.
 * (3) A rank that fails says so by comm_fail; from then on every call of every rank returns that error. Nobody waits for ever.
 * (4) A comm belongs to one thread at a time, but for comm_fail, which any thread may call.
 */
#ifndef MLXCEL_COMM_COMM_H
#define MLXCEL_COMM_COMM_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { COMM_RANKS_MAX = 64 };

struct comm;

struct comm_type {
    const char *name;
    /* out[i] = the sum of in[i] over the ranks; in and out do not overlap. */
    int (*all_reduce)(struct comm *c, const float *in, float *out, size_t n, struct err *err);
    /* The bytes of all ranks behind each other; each may bring another number of them, and `total` of them come out. */
    int (*all_gather)(struct comm *c, const void *in, size_t bytes, void *out, size_t total, struct err *err);
    int (*broadcast)(struct comm *c, int32_t root, void *data, size_t bytes, struct err *err);
    void (*fail)(struct comm *c, const struct err *reason);
    void (*close)(struct comm *c);
};

struct comm {
    const struct comm_type *type;
    int32_t rank, size;
    int32_t n_here; /* ranks of this process, which share its memory */
};

int comm_all_reduce(struct comm *c, const float *in, float *out, size_t n, struct err *err);
int comm_all_gather(struct comm *c, const void *in, size_t bytes, void *out, size_t total, struct err *err);
int comm_broadcast(struct comm *c, int32_t root, void *data, size_t bytes, struct err *err);
void comm_fail(struct comm *c, const struct err *reason);
void comm_close(struct comm *c); /* NULL is fine */

/* A group of n ranks that are threads of this process; out[n] gets one for each, to be closed by whoever has it. */
int comm_threads_open(int32_t n, struct comm **out, struct err *err);

#endif
