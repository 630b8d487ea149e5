/* The weights of a rank behind the first, from the checkpoint that the first has. */
#ifndef MLXCEL_TESTS_GOLDEN_MATE_H
#define MLXCEL_TESTS_GOLDEN_MATE_H

#include "engine/team.h"
#include "model/model.h"

static inline int mate_open(void *checkpoint, struct arena *a, struct backend *be, struct model *out, struct err *err) {
    struct tensor_store store = model_checkpoint_store(checkpoint);
    return model_open_checkpoint(a, be, checkpoint, &store, NULL, out, err);
}

#endif
