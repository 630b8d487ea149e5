/* Shared by the two ways to run experts: dequantised rows (cpu_moe.c) and panels (cpu_moe_panels.c). */
#ifndef MLXCEL_BACKEND_CPU_CPU_MOE_H
#define MLXCEL_BACKEND_CPU_CPU_MOE_H

#include "backend/cpu/cpu.h"

/* The shared scratch memory of one op: products of every pair, then the lists. */
struct experts_job {
    struct cpu *c;
    const struct op *op;
    int32_t k;
    float *inner;           /* [pairs, 2, inner]: gate (then the activated product), up; panels have the pairs in the order of the list */
    int32_t *pairs;         /* row * k + choice, expert by expert, ascending within each */
    int32_t *starts;        /* [experts + 1] into pairs */
    int32_t *used;          /* experts with pairs, ascending */
    int32_t n_used, n_here; /* pairs of experts that are here */
    float *more;            /* what panels need beyond that */
};

int32_t cpu_pair_expert(const struct experts_job *job, int64_t pair);
float cpu_pair_weight(const struct experts_job *job, int64_t pair);
/* The activated product of one pair in place of its gate. */
void cpu_activate_expert(const struct experts_job *job, float *h);

bool cpu_experts_packed(const struct experts_args *a);
void cpu_experts_panels(const struct experts_job *job);
int64_t cpu_experts_panel_floats(const struct op *op);

#endif
