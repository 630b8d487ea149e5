/* The C++ compiler that nvcc uses as its preprocessor: nothing of ours is compiled by it, but nvcc does not start without. */
#ifndef KERNELC_HOST_H
#define KERNELC_HOST_H

#include "toolkit.h"

enum { MAX_HOSTS = 40 };

struct host {
    const char *path;     /* what -ccbin gets */
    const char *kind;     /* "gcc", "clang", "cl" */
    const char *found_by; /* "NVCC_CCBIN", "PATH", "vswhere" */
    int version;          /* major of gcc and clang; _MSC_VER of cl */
    const char *problem;
};

struct hosts {
    struct host items[MAX_HOSTS];
    int n, chosen;
};

struct host_wish {
    const char *only;              /* --ccbin or NVCC_CCBIN: this one and no other */
    const struct toolkit *toolkit; /* whose limits count; NULL: none is known */
    bool allow_unsupported;
};

void hosts_find(struct arena *a, const struct host_wish *wish, struct hosts *out);
void hosts_print(const struct hosts *all, struct sb *out);

#endif
