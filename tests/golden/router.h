/* How near the reference's routers were to another choice of experts, row by row. */
#ifndef MLXCEL_TESTS_ROUTER_H
#define MLXCEL_TESTS_ROUTER_H

#include "backend/backend.h"

/* Makes an opened CPU backend note the gaps of every step from now on. One backend at a time. */
void router_watch(struct backend *be);

/* The smallest gap of a row of the last step, over all routers; INFINITY where there are none. */
float router_gap(int32_t row);

#endif
