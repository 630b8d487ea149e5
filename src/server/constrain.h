/* What the answer must look like: response_format, json_schema, grammar, guided_*, structured_outputs, and tools that must be called. */
#ifndef MLXCEL_SERVER_CONSTRAIN_H
#define MLXCEL_SERVER_CONSTRAIN_H

#include "server/params.h"
#include "server/tools.h"

/* Reads the fields and compiles what they ask for; p->job.constraint is NULL where they ask for nothing. t may be NULL. What cannot be held is
 * refused with the field's name and the place inside the schema. Runs on a worker thread: it may take a while. */
int constrain_read(struct arena *a, yyjson_val *body, struct service *service, const struct tools *t, struct params *p,
                   struct api_error *e);

#endif
