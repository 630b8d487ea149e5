/* The self-benchmark: which of two kernels is the faster one here, where processors differ.
 *
 * Only kernels that give the same bits are candidates, so that no result ever depends on a clock. Today that is one pair:
 * products by tiles (AMX) and by vectors (VNNI), which are close for 4 to 16 rows; beyond that the flags decide alone. It
 * takes under a millisecond. Where it takes more than five, the machine is busy with something else: its times say nothing,
 * and the choice by flags stays. A level that is named by --cpu is taken as it is.
 */
#ifndef MLXCEL_BACKEND_CPU_TUNE_H
#define MLXCEL_BACKEND_CPU_TUNE_H

#include "backend/cpu/kern.h"

enum { TUNE_STEPS = 4 };

struct tune {
    bool measured;
    struct {
        int64_t n_rows;
        double few, many; /* seconds of a call by panel_few and by panel */
    } steps[TUNE_STEPS];
};

/* Seconds that a call by each of the two takes for so many rows; false: they could not be measured. */
typedef bool tune_time_fn(void *ctx, const struct kernels *k, int64_t n_rows, double *out_few, double *out_many);

/* Sets k->many_rows by what `time` says: the least number of rows from which on `panel` is not the slower one. */
void tune_choose(struct kernels *k, tune_time_fn *time, void *ctx, struct tune *out);
/* The same by the clock, unless there is nothing to choose from or a level was named. */
void tune_kernels(struct kernels *k, struct tune *out);
/* One line: what was chosen, and why. */
void tune_describe(const struct kernels *k, const struct tune *t, struct sb *out);

#endif
