/* Ranks that are processes, on one machine or several, with TCP between them (docs/ranks.md). */
#ifndef MLXCEL_COMM_TCP_H
#define MLXCEL_COMM_TCP_H

#include "base/str.h"
#include "comm/comm.h"

/* What all ranks must have in common. */
struct comm_fact {
    const char *name, *value;
};

struct comm_tcp_options {
    int32_t rank, size;
    const char *host; /* where the first rank listens; a public address is refused */
    int32_t port;
    struct str secret;             /* every rank proves that it has it, and sees the proof of every other */
    int32_t join_ms, silence_ms;   /* until all are there; until a rank that says nothing counts as dead */
    const struct comm_fact *facts; /* [n_facts] */
    int32_t n_facts;
    bool ends_process; /* after a failure the process has 3 s to end in order; then it is ended with code 1 */
    void (*on_fail)(void *user, const struct err *reason); /* once, from a thread of the group's own; NULL: nobody is told */
    void *user;
};

/* The rank's place in a group of `size` processes: returns when all of them are there. */
int comm_tcp_join(const struct comm_tcp_options *o, struct comm **out, struct err *err);

#endif
