/* What this program was built from and what it can use here, for --version and bug reports. */
#ifndef MLXCEL_API_BUILD_H
#define MLXCEL_API_BUILD_H

#include "base/str.h"

struct build {
    const char *version;         /* "0.1.0" */
    const char *commit;          /* "unknown" outside a git checkout */
    const char *compiler;        /* "GNU 12.2.0" */
    const char *target;          /* "linux-x86_64" */
    const char *const *backends; /* [n_backends] that this program contains */
    size_t n_backends;
    struct str cpu_features; /* in use, separated by spaces */
};

void build_describe(struct arena *a, struct build *out);

#endif
