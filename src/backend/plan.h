/* Memory planning: where each value of an op list lies in the step's scratch memory.
 *
 * Values whose lives do not overlap share memory. The plan is a pure function of the list, so that equal lists give
 * equal addresses. Planning allocates only while its tables grow.
 */
#ifndef MLXCEL_BACKEND_PLAN_H
#define MLXCEL_BACKEND_PLAN_H

#include "backend/ops.h"

enum { PLAN_ALIGN = 256 };

struct plan {
    int64_t *offsets; /* [n_values] bytes from the start of scratch memory */
    int32_t capacity;
    int32_t *next, *dead; /* [n_values], [n_ops]: values by the op after which they are dead */
    int32_t ops_capacity;
    int64_t bytes; /* scratch memory that the list needs */
    struct plan_hole *holes;
    int32_t n_holes, holes_capacity;
};

void plan_make(struct plan *p, const struct oplist *l);
void plan_free(struct plan *p);

#endif
