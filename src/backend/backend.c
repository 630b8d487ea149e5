/* The list of backends. One that is not built is one #if here and nowhere else. */
#include "backend/backend.h"

static const struct backend_type *const backend_types[] = {&cpu_backend, &cuda_backend, &trace_backend, &xla_backend, NULL};

const struct backend_type *backend_find(struct str name) {
    for (const struct backend_type *const *t = backend_types; *t; t++)
        if (str_is(name, (*t)->name)) return *t;
    return NULL;
}
