/* The name of a cache entry: a hash of everything that decides what the compiler makes. */
#ifndef KERNELC_KEY_H
#define KERNELC_KEY_H

#include "base/map.h"
#include "build.h"

enum { KEY_CHARS = 40 };

struct key {
    char text[KEY_CHARS + 1];
    struct map files; /* that were read; map_free */
};

/* flags: what will be passed to nvcc besides paths. */
int key_of(struct arena *a, const char *file, const struct args_list *flags, const struct build_args *args, struct key *out,
           struct err *err);

#endif
