/* CUDA toolkits on this machine: where they are, which one is taken and why the others are not. */
#ifndef KERNELC_TOOLKIT_H
#define KERNELC_TOOLKIT_H

#include "backend/cuda/device/arch.h"
#include "tool.h"

enum { MAX_TOOLKITS = 32, MAX_ARCHS = 64 };

struct toolkit {
    const char *root, *nvcc;           /* nvcc NULL: there is none in it */
    const char *found_by;              /* "CUDA_PATH", "PATH", "/usr/local", "registry" ... */
    int version;                       /* 1000 * major + 10 * minor; 0: unknown */
    const char *version_text;          /* "13.0.88" */
    struct cuda_arch archs[MAX_ARCHS]; /* that it compiles for */
    int n_archs;
    const char *problem; /* why it cannot be taken, or NULL */
    const char *note;    /* something worth knowing about it, or NULL */
};

struct toolkits {
    struct toolkit items[MAX_TOOLKITS]; /* newest first */
    int n, chosen;                      /* -1: none is suitable */
};

struct toolkit_wish {
    const char *only;              /* --toolkit: exactly this folder, or NULL */
    const char *const *folders;    /* --search: look here instead of in the usual places; NULL-terminated, or NULL */
    const struct cuda_arch *archs; /* that it must compile for */
    int n_archs;
    int driver_version; /* of this machine's driver where the kernels are meant for it; 0: does not matter */
};

void toolkits_find(struct arena *a, const struct toolkit_wish *wish, struct toolkits *out);
/* All of them, one line each, the chosen one marked, with reasons. */
void toolkits_print(const struct toolkits *all, struct sb *out);

#endif
