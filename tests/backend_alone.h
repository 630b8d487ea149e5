/* A backend's context on a device of its own, for tests that run one thing. */
#ifndef MLXCEL_TESTS_BACKEND_ALONE_H
#define MLXCEL_TESTS_BACKEND_ALONE_H

#include "backend/backend.h"

static inline int backend_open_alone(const struct backend_type *type, const struct device_options *device,
                                     const struct backend_options *options, struct backend **out, struct err *err) {
    struct device *d;
    TRY(device_open(type, device, &d, err));
    int code = backend_open(d, options, out, err);
    device_release(d);
    return code;
}

#endif
