/* Which GPUs of this machine a session takes, and how they share a model: each has a part of every layer (ranks), or some of the layers. */
#ifndef MLXCEL_API_GPUS_H
#define MLXCEL_API_GPUS_H

#include "api/session.h"
#include "backend/split/split.h"

enum gpus_how { GPUS_ONE, GPUS_RANKS, GPUS_LAYERS };

struct gpus {
    enum gpus_how how;
    int32_t n;                         /* of how: GPUs with a part of the model; 1 with GPUS_ONE */
    char names[SPLIT_CARDS_MAX][32];   /* "cuda:1" */
    struct device *p[SPLIT_CARDS_MAX]; /* that were opened: with GPUS_LAYERS, held until gpus_close */
    bool may_grow;                     /* nobody named a GPU: where the model does not fit one, others may be taken */
    bool fits_heads;                   /* the number of ranks is ours to choose: one that divides the heads */
    char why[160];                     /* for the start-up line; "": nothing is to be told */
};

/* By --device, --split, --tensor-parallel and --pipeline-parallel; what contradicts another is refused. is_gpu: the device can only be a GPU, or is one where
 * there is any. Nothing is opened. */
int gpus_choose(const struct session_options *o, bool is_gpu, struct gpus *out, struct err *err);
/* Opens those that have layers. */
int gpus_open(struct gpus *g, uint64_t memory_limit, struct err *err);
void gpus_close(struct gpus *g);
/* "cuda:0,cuda:1" */
const char *gpus_list(struct arena *a, const struct gpus *g);
/* Takes the GPU with the most free memory beside those that were taken, for layers. False: there is no other. `first` is the one that a session opened by
 * itself. */
bool gpus_grow(struct gpus *g, struct device *first, uint64_t memory_limit);

#endif
