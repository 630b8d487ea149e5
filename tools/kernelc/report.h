/* What ptxas -v says about each kernel: registers, spills, stack, shared memory. */
#ifndef KERNELC_REPORT_H
#define KERNELC_REPORT_H

#include "tool.h"

struct kernel_use {
    struct str name; /* as in the image: mangled unless extern "C" */
    int registers, stack_bytes, spill_store_bytes, spill_load_bytes, shared_bytes;
};

/* Reads ptxas' words; kernels that only spoke of properties are given as well. Returns how many there are in *out. */
int report_parse(struct arena *a, struct str text, struct kernel_use **out);
/* The words without ptxas' statistics: warnings, if any. */
void report_rest(struct str text, struct sb *out);
/* Whether a kernel's name matches one of the comma-separated patterns. */
bool report_matches(const char *patterns, struct str name);

#endif
