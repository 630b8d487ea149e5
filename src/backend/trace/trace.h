/* Op lists as text: one line per op, "layer outputs = kind inputs arguments". */
#ifndef MLXCEL_BACKEND_TRACE_H
#define MLXCEL_BACKEND_TRACE_H

#include "backend/ops.h"

struct backend;

void trace_print(const struct oplist *l, struct sb *out);
/* The text of the last step that a trace backend was given. */
struct str trace_text(const struct backend *be);

#endif
