/* A number for a model's configuration and weights: what was computed by one model is told from what another computes. */
#ifndef MLXCEL_API_IDENTITY_H
#define MLXCEL_API_IDENTITY_H

#include "file/checkpoint.h"

/* By the configuration, and by name, type, size and first bytes of every tensor; `before` chains several. Training changes the first bytes of all but
 * frozen tensors, so that fine-tuned models differ. */
int identity_of(const struct checkpoint *c, uint64_t before, uint64_t *out, struct err *err);

#endif
