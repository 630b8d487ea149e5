/* Which adapters a request has: its model's name may be an adapter's, and llama-server's field "lora" lists them with scales. */
#ifndef MLXCEL_SERVER_ADAPTERS_H
#define MLXCEL_SERVER_ADAPTERS_H

#include "server/route.h"

/* On a worker, before the call is prepared: fills c->adapters and c->adapter. Nonzero: c->error is the answer. */
int adapters_read(struct call *c);
/* Scales as llama-server lists them, [{"id", "scale"}]: *out [n_adapters], those that are not listed 0. */
int adapters_read_scales(struct call *c, yyjson_val *list, const float **out);
/* What answers call their model. */
struct str adapters_model_name(const struct call *c);

#endif
