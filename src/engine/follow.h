/* Ranks behind the first one: each has a model and a backend of its own, and does what the first rank's backend is asked to do (backend/lead.h). */
#ifndef MLXCEL_ENGINE_FOLLOW_H
#define MLXCEL_ENGINE_FOLLOW_H

#include "model/forward.h"

/* Until the first rank ends. A failure of this rank is told to all; one of another rank is an error here. */
int follow_calls(const struct model *m, struct backend *be, struct err *err);

#endif
