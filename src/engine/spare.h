/* Memory of the host for blocks that have left the device's cache: places of one size, each for a block of every class. The prefix cache decides what lies there.
 *
 * (1) Memory is taken in pieces of several places when it is needed, up to the bound, and given back at the end.
 */
#ifndef MLXCEL_ENGINE_SPARE_H
#define MLXCEL_ENGINE_SPARE_H

#include "backend/backend.h"

struct spare;

/* Room for at most so many bytes. An error says why the cache of this model or device cannot lie there. */
int spare_open(struct backend *be, const struct kv_layout *layout, uint64_t bytes, struct spare **out, struct err *err);
void spare_close(struct spare *s);         /* NULL is fine */
int32_t spare_most(const struct spare *s); /* places that there may be */
int32_t spare_get(struct spare *s);        /* a free place; -1: there is none */
void spare_put(struct spare *s, int32_t place);
/* Where the block of a class lies in a place. */
void *spare_at(const struct spare *s, int32_t place, int32_t kv_class);

#endif
