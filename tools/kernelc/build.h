/* Compiling the list: one job per file and target, in parallel, from the cache where nothing changed, packed into one file.
 *
 * (1) A cache entry is named by the hash of everything that reaches the compiler: source, included files, flags, target and the
 * versions of nvcc and of the host compiler. (2) The packed file depends on nothing else: no times, no paths, no order of
 * finishing. (3) The first failure in list order is reported in full; running jobs end, no new ones start. */
#ifndef KERNELC_BUILD_H
#define KERNELC_BUILD_H

#include "host.h"
#include "list.h"

struct build_args {
    const struct kernel_list *list;
    const struct toolkit *toolkit;
    const struct host *host;
    const char *out; /* kernels.bin */
    const char *cache_dir;
    const char *depfile;   /* gets every file that was read, as make writes it; or NULL */
    const char *old_ptxas; /* of toolkit 12.4 or older, or NULL: PTX then keeps its header */
    int n_threads;
    bool allow_unsupported, report, quiet;
    bool spills_pass; /* kernels that must not spill and do are named, and that is all */
};

/* 0, or an error whose message is one line; the details went to standard error before. */
int build_run(struct arena *a, const struct build_args *args, struct err *err);

#endif
