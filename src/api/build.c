/* What this program was built from: the version file, the commit and the compiler, as the build recorded them. */
#include "api/build.h"

#include "mlxcel.h"
#include "os/cpu.h"

#include "build_info.h"

static const char *const backends[] = {NULL};

const char *mlxcel_version(void) {
    return MLXCEL_VERSION;
}

void build_describe(struct arena *a, struct build *out) {
    struct sb features = {0};
    cpu_describe(&features);
    *out = (struct build){
        .version = MLXCEL_VERSION,
        .commit = MLXCEL_COMMIT,
        .compiler = MLXCEL_COMPILER,
        .target = MLXCEL_TARGET,
        .backends = backends,
        .n_backends = sizeof backends / sizeof *backends - 1,
        .cpu_features = str_copy(a, sb_str(&features)),
    };
    sb_free(&features);
}
