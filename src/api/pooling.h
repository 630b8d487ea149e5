/* How a model's own files say that the states of a text become one vector: the folders of sentence-transformers. */
#ifndef MLXCEL_API_POOLING_H
#define MLXCEL_API_POOLING_H

#include "engine/job.h"
#include "file/checkpoint.h"

/* modules.json and the pooling's config.json. A model without them has the mean of all states. What no decoder here can do (other poolings,
 * further layers, a prompt before each text) is refused by name. */
int pooling_read(struct arena *a, const struct checkpoint *c, enum job_pooling *out, struct err *err);

#endif
