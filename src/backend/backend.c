/* The list of backends, and how one is opened on a device. */
#include "backend/backend.h"

static const struct backend_type *const backend_types[] = {&cpu_backend, &cuda_backend, &trace_backend, &xla_backend, NULL};

const struct backend_type *backend_find(struct str name) {
    for (const struct backend_type *const *t = backend_types; *t; t++)
        if (str_is(name, (*t)->name)) return *t;
    return NULL;
}

int backend_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err) {
    TRY(d->type->open(d, options, out, err));
    device_hold(d);
    return ERR_OK;
}

void backend_close(struct backend *be) {
    if (!be) return;
    struct device *d = be->device;
    be->type->close(be);
    device_release(d);
}
