/* Passes over one row of logits, for the sampler on the host: the largest of every few numbers, exponentials with their sums, masks.
 *
 * Every instruction set gives the same bits: operations, fused products and the order of sums are fixed here, and row_ref is the
 * readable truth. No allocation, no threads.
 */
#ifndef MLXCEL_BACKEND_CPU_ROW_H
#define MLXCEL_BACKEND_CPU_ROW_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers whose largest is kept together; numbers whose sum is. */
enum { ROW_GROUP = 32, ROW_SPAN = 512 };

/* What is not more likely than e^ROW_LEAST of the best cannot come: all of a row together is less than a rounding of the best. Its p is
 * something up to ROW_NONE. */
#define ROW_LEAST (-32.0f)
#define ROW_NONE 1.27e-14f

static inline int64_t row_groups(int64_t n) {
    return (n + ROW_GROUP - 1) / ROW_GROUP;
}
static inline int64_t row_spans(int64_t n) {
    return (n + ROW_SPAN - 1) / ROW_SPAN;
}

/* p = e^((x - best) * scale): 1 for the best; the exponential's own error is below 2.4e-7. */
struct row_weigh {
    const float *x; /* [n] no NaN, none above best */
    int64_t n;
    float best, scale;
    const float *peaks; /* [row_groups(n)] of x */
    float *p;           /* [n] */
    double *spans;      /* [row_spans(n)] sums of p */
};

struct row_kernels {
    /* The largest of each group, and of all; NaN where one number of the row is. */
    float (*peaks)(const float *x, int64_t n, float *peaks);
    /* The same of the numbers whose bit is set; the others are -infinity. All go to out, which may be x. */
    float (*mask)(const float *x, const uint32_t *bits, int64_t n, float *out, float *peaks);
    /* Fills p and spans; the sum of the spans, one after the other. */
    double (*weigh)(const struct row_weigh *a);
    /* The sum of p * (x - best), and how many x are more than -infinity. */
    double (*moment)(const float *x, const float *p, int64_t n, float best, int64_t *out_count);
};

extern const struct row_kernels row_ref, row_neon, row_avx2; /* those of another architecture are not there */
/* The best for these flags (os/cpu.h). */
const struct row_kernels *row_select(uint32_t flags);

#endif
