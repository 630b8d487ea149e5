/* Fusion: a peephole pass over a finished op list. forward() never knows of it; conformance holds the fused list
 * against the plain one. */
#ifndef MLXCEL_BACKEND_FUSE_H
#define MLXCEL_BACKEND_FUSE_H

#include "backend/ops.h"

/* Rewrites the list in place: ADD whose sum is normed right after it becomes ADD_NORM. */
void fuse_list(struct oplist *l);

#endif
