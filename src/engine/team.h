/* Ranks of one model: threads of this process, each with a device, a backend and weights of its own; or processes, of which this is one. */
#ifndef MLXCEL_ENGINE_TEAM_H
#define MLXCEL_ENGINE_TEAM_H

#include "model/forward.h"

struct comm_tcp_options;
struct team;

/* The weights of a rank, which the backend is of. */
typedef int team_model_fn(void *user, struct arena *a, struct backend *be, struct model *out, struct err *err);

/* A group of n ranks; the first of them is the caller's, by team_comm. */
int team_open(int32_t n, struct team **out, struct err *err);
/* A place among processes; the others are no concern of this one. */
int team_join(const struct comm_tcp_options *o, struct team **out, struct err *err);
struct comm *team_comm(const struct team *t);
/* The other ranks, each on its own of devices[n], which are of this type: their models one after the other, then their threads, which wait for what the first rank is asked to do. */
int team_start(struct team *t, const struct backend_type *type, const struct device_options *devices, const struct backend_options *options,
               team_model_fn *open_model, void *user, struct err *err);
/* Bytes of the weights of the rank that has most, beside the first. */
uint64_t team_weight_bytes(const struct team *t);
/* Bytes that are free on the device, beside the first rank's, which has least of them. */
uint64_t team_free_bytes(const struct team *t);
/* After the first rank's backend was closed. */
void team_close(struct team *t); /* NULL is fine */

#endif
