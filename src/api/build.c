/* What this program was built from: the version file, the commit and the compiler, as the build recorded them. */
#include "api/build.h"

#include "backend/backend.h"
#include "os/cpu.h"

#include "build_info.h"

/* Those that a user may choose; a build need not have all of them. */
static const char *const backend_names[] = {"cpu", "cuda", "xla"};
enum { N_BACKEND_NAMES = sizeof backend_names / sizeof *backend_names };

void build_describe(struct arena *a, struct build *out) {
    struct sb features = {0};
    const char **backends = arena_new(a, const char *, N_BACKEND_NAMES);
    size_t n_backends = 0;
    for (size_t i = 0; i < N_BACKEND_NAMES; i++)
        if (backend_find(str_of(backend_names[i]))) backends[n_backends++] = backend_names[i];
    cpu_describe(&features);
    *out = (struct build){
        .version = MLXCEL_VERSION,
        .commit = MLXCEL_COMMIT,
        .compiler = MLXCEL_COMPILER,
        .target = MLXCEL_TARGET,
        .backends = backends,
        .n_backends = n_backends,
        .cpu_features = str_copy(a, sb_str(&features)),
    };
    sb_free(&features);
}
