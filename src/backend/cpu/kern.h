/* The innermost loops of one instruction set.
 *
 * No allocation, no threads, no OS, no globals. Rows are contiguous, pointers need no alignment beyond their element.
 * kern_ref is the readable truth: its results are the same bits on every platform (fixed lanes, no contraction). Better
 * sets override what they have, oldest to newest (kern.c).
 */
#ifndef MLXCEL_BACKEND_CPU_KERN_H
#define MLXCEL_BACKEND_CPU_KERN_H

#include "backend/ops.h"
#include "tensor/quant.h"

struct kernels {
    const char *isa; /* for the start-up line and --version */
    float (*dot)(const float *a, const float *b, int64_t n);
    void (*axpy)(float *y, const float *x, float scale, int64_t n); /* y += scale * x */
    void (*unpack)(const struct format *f, const struct quant_row *row, int64_t first, int64_t n, float *out);
    void (*act)(float *x, int64_t n, const struct act_args *a);     /* in place */
    float (*exp_sum)(float *x, int64_t n, float max);               /* x = exp(x - max); returns the sum */
    double (*sum_squares)(const float *x, int64_t n);
    double (*sum)(const float *x, int64_t n);
};

void kern_ref(struct kernels *k);
/* Fills k for the flags of os/cpu.h, reference first. */
void kern_select(struct kernels *k, uint32_t flags);

#endif
