/* Passes over one row of logits, for the sampler on the host: the largest of every few numbers, exponentials with their sums, masks.
 *
 * Every instruction set gives the same bits: operations, fused products and the order of sums are fixed here, and row_ref is the
 * readable truth. No allocation, no threads.
 */
#ifndef MLXCEL_BACKEND_CPU_ROW_H
#define MLXCEL_BACKEND_CPU_ROW_H

#include <stdbool.h>
#include <stdint.h>

/* Numbers whose largest is kept together; numbers whose sum is; parts of which that sum is made. */
enum { ROW_GROUP = 32, ROW_SPAN = 512, ROW_LANES = 4 };

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

/* p = e^((x - best) * scale): 1 for the best; the exponential's own error is below 3e-6. */
struct row_weigh {
    const float *x; /* [n] no NaN, none above best */
    int64_t n;
    float best, scale, least; /* none is below least; -infinity where it is not known */
    const float *peaks;       /* [row_groups(n)] of x; NULL: no group is passed over */
    float *p;                 /* [n]; NULL: only the sums, which is faster */
    double *spans;            /* [row_spans(n)] sums of p */
    float *folds;             /* [ROW_LANES * row_groups(n)] the parts of which a span's sum is made; NULL: not wanted */
    double *moment;           /* the sum of p * (x - best), at a scale of 1 and without p; NULL: not wanted */
};

struct row_kernels {
    /* The largest of each group, and of all; NaN where one number of the row is. *out_least: the least of all. */
    float (*peaks)(const float *x, int64_t n, float *peaks, float *out_least);
    /* The same of the numbers whose bit is set; the others are -infinity. All go to out, which may be x. */
    float (*mask)(const float *x, const uint32_t *bits, int64_t n, float *out, float *peaks);
    /* Fills what the call has room for; the sum of the spans, one after the other. */
    double (*weigh)(const struct row_weigh *a);
    /* The folds of some groups once more; nothing else is filled. */
    void (*refold)(const struct row_weigh *a, const int32_t *groups, int32_t n);
    /* How many numbers are more than -infinity. */
    int64_t (*count)(const float *x, int64_t n);
    /* Places of the numbers that are at least bar, upwards, and the numbers, each with room for one more than there are; how many. */
    int64_t (*list)(const float *x, int64_t n, const float *peaks, float bar, int32_t *places, float *out);
};

extern const struct row_kernels row_ref, row_neon, row_avx2; /* those of another architecture are not there */
/* The best for these flags (os/cpu.h). */
const struct row_kernels *row_select(uint32_t flags);

#endif
