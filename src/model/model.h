/* A loaded model: spec and weights on a backend. Immutable after model_open; the engine runs it. */
#ifndef MLXCEL_MODEL_MODEL_H
#define MLXCEL_MODEL_MODEL_H

#include "file/checkpoint.h"
#include "model/forward.h"

/* Resolves the config and binds all weights from the store, and adapters beside them (NULL: none). The arena must outlive the model. */
int model_open(struct arena *a, struct backend *be, const struct config *config, const struct tensor_store *store,
               const struct weights_adapters *adapters, struct model *out, struct err *err);
void model_close(struct backend *be, struct model *m);

/* A checkpoint as a tensor store; checkpoint and store must outlive model_open, not more. */
struct tensor_store model_checkpoint_store(const struct checkpoint *c);
/* Weights come from `store`: model_checkpoint_store, or what stands before it. A checkpoint whose weights another program quantised in its own way is refused by that method's name. */
int model_open_checkpoint(struct arena *a, struct backend *be, const struct checkpoint *c, const struct tensor_store *store,
                          const struct weights_adapters *adapters, struct model *out, struct err *err);

#endif
