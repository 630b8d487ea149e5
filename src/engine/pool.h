/* Pooling: the hidden states of a text become one vector, and a chain of small stages behind that.
 *
 * The stages are what embedding models and rerankers have behind their layers: dense layers, a norm, the length made 1. They run on the host, once
 * for each text.
 */
#ifndef MLXCEL_ENGINE_POOL_H
#define MLXCEL_ENGINE_POOL_H

#include "backend/ops.h"

/* How the hidden states of a prompt become one vector. */
enum job_pooling {
    POOL_MEAN,      /* the mean over all positions */
    POOL_LAST,      /* the last position's */
    POOL_FIRST,     /* the first position's */
    POOL_MAX,       /* the largest of all positions, number by number */
    POOL_WEIGHTED,  /* the mean, where position i counts i + 1 times */
    POOL_MEAN_ROOT, /* the sum divided by the root of how many there are */
    POOL_NONE,      /* not at all: each position's as it is */
};

enum pool_stage_kind {
    STAGE_DENSE, /* act(w x + b) */
    STAGE_NORM,  /* layer norm */
    STAGE_UNIT,  /* of length 1 */
};

struct pool_stage {
    enum pool_stage_kind kind;
    int32_t in, out;
    const float *w; /* [out][in]; of a norm [in] */
    const float *b; /* [out]; NULL: none */
    enum act_kind act;
    float eps; /* of a norm */
};

/* Outlives the engine that its jobs run on. */
struct pool_head {
    const struct pool_stage *stages; /* [n] */
    int32_t n;
    int32_t width, widest; /* of the result; of anything between */
};

struct pool_sum {
    double *sum; /* [width] */
    double weight;
    int64_t n; /* positions that count */
};

/* Adds n rows of `width`, of positions first and on; those before `skip` do not count. */
void pool_add(struct pool_sum *s, enum job_pooling how, const float *rows, int32_t width, int32_t first, int32_t n, int32_t skip);
/* The vector: pooled, then through the head, or of length 1 without one. `scratch` has room for twice the widest. False: there are no finite
 * numbers. */
bool pool_finish(const struct pool_sum *s, enum job_pooling how, int32_t width, const struct pool_head *head, float *scratch, float *out);

#endif
