/* Where the arguments of an op have weights, and what of them names a cache or a state. */
#ifndef MLXCEL_BACKEND_OP_FIELDS_H
#define MLXCEL_BACKEND_OP_FIELDS_H

#include "backend/ops.h"

/* The i-th place for a weight, or for the name of a cache, counted through all kinds; NULL: ops of this kind do not have it. */
int32_t op_weight_places(void);
const struct weight **op_weight_at(struct op *op, int32_t i);
int32_t op_kv_places(void);
struct kv_ref *op_kv_at(struct op *op, int32_t i);

/* The number of the op's recurrent state; NULL: it has none. */
int32_t *op_state(struct op *op);

#endif
