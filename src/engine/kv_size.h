/* How much memory a cache takes on one device; of a split, its parts have their own (backend/split/split.h). */
#ifndef MLXCEL_ENGINE_KV_SIZE_H
#define MLXCEL_ENGINE_KV_SIZE_H

#include "backend/backend.h"

/* One position in all layers of a class: what a step reads of it, and all that it takes. */
uint64_t kv_read_bytes(const struct backend *be, const struct kv_class *k);
uint64_t kv_position_bytes(const struct backend *be, const struct kv_class *k);
/* The recurrent state of one sequence, whatever its length. */
uint64_t kv_state_bytes(const struct kv_layout *l);
/* A whole layout with its blocks and slots. */
uint64_t kv_layout_bytes(const struct backend *be, const struct kv_layout *l);

#endif
