/* Looking inside a model: logits of every position, and op lists as text. For the commands `logits` and `trace`. */
#ifndef MLXCEL_TOOLS_PROBE_H
#define MLXCEL_TOOLS_PROBE_H

#include "api/session.h"

/* Logits at every position of a prompt: emit gets one row of `vocab` at a time. */
int probe_logits(struct session *s, const struct job_spec *prompt, int (*emit)(void *user, const float *row, struct err *err), void *user,
                 struct err *err);

/* The op list of a decode step and of a prompt of n_rows, as text; for a session opened on the trace backend. */
int probe_trace(struct session *s, int32_t n_rows, struct sb *out, struct err *err);

#endif
