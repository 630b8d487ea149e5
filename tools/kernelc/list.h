/* kernels.list: which .cu file is compiled for which architectures, with which flags, and which kernels must not spill. */
#ifndef KERNELC_LIST_H
#define KERNELC_LIST_H

#include "backend/cuda/device/arch.h"
#include "toolkit.h"

/* From the list's folder to the program's sources, of which kernels include what the host knows too. */
#define SOURCES "../src"

enum { MAX_FILES = 128, MAX_FLAGS = 16 };

struct target {
    struct cuda_arch arch;
    bool ptx;
};

struct target_set {
    struct target items[MAX_ARCHS];
    int n;
};

struct list_row {
    const char *file; /* relative to the list's folder */
    const char *name; /* without ".cu" */
    struct target_set targets;
    const char *flags[MAX_FLAGS + 1];
    int n_flags;
    const char *no_spill; /* glob patterns, comma-separated, of kernels whose spill is an error; NULL: none */
    int64_t spill_bytes;  /* stored and loaded, that are none yet */
};

struct kernel_list {
    const char *folder;
    struct target_set defaults;
    struct list_row rows[MAX_FILES];
    int n_rows;
};

int list_load(struct arena *a, const char *path, struct kernel_list *out, struct err *err);

/* "89 90a", "8.9;9.0": what the user asks for. Commas, blanks and semicolons separate. */
int list_parse_archs(const char *text, struct cuda_arch *out, int *out_n, struct err *err);
/* Keeps of every row what the wanted devices run: the best image of the row's own, or the capability itself where a default row
 * has none. "90a" asks for exactly that. PTX goes. Rows without an image left are dropped. */
void list_narrow(struct kernel_list *list, const struct cuda_arch *wanted, int n_wanted);
/* Every architecture that any row is compiled for, ascending. */
int list_archs(const struct kernel_list *list, struct cuda_arch out[MAX_ARCHS]);

#endif
