/* The first rank of several: what its backend is asked to do, it tells the others before it does it.
 *
 * The engine has one backend, that of the first rank, and knows nothing of others. Calls that change what a backend holds, or run a step, go to all ranks as a
 * `struct lead_call`; those that read results stay here, since the first rank has all logits and states. The other ranks run engine/follow.h.
 */
#ifndef MLXCEL_BACKEND_LEAD_H
#define MLXCEL_BACKEND_LEAD_H

#include "backend/backend.h"

enum lead_kind { LEAD_CACHE, LEAD_NO_CACHE, LEAD_RESERVE, LEAD_STEP, LEAD_BLOCK_COPY, LEAD_SLOT_COPY, LEAD_END, N_LEAD_KINDS };

/* The counts of a cache; heads and widths are each rank's own. */
struct lead_cache {
    int32_t n_classes, n_slots, max_context, n_blocks[KV_CLASSES_MAX];
};

struct lead_call {
    int32_t kind, kv_class, from, to;
    struct step_key key;
    struct lead_cache cache;
    struct step step; /* its block follows the call; addresses are the first rank's */
};

/* From now on the calls of this backend, which is the first of be->comm, are told to the others. */
void lead_begin(struct backend *be);
/* The step of a call with its block at another place. */
void lead_step_at(struct step *s, void *block);

#endif
