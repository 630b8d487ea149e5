/* Activations for nested panels on x86, and what stands behind a span's codes. All sets here read what any of them wrote.
 *
 * 64 inputs of a tile's rows lie together, whatever the groups are, so that they are a tile of AMX as they lie: q[tiles][spans][4][tile][64].
 * Sums of groups are whole numbers of 13 bits, kept in two bytes, and two groups are one operand: [tiles][spans][tile][groups]. A row of a
 * span has the room of as many floats, and uses half of it.
 */
#ifndef MLXCEL_BACKEND_CPU_KERN_NESTED_X86_H
#define MLXCEL_BACKEND_CPU_KERN_NESTED_X86_H

#include "backend/cpu/kern.h"

enum { NESTED_STEP = 64, NESTED_STEPS = PACK_SPAN / NESTED_STEP, NESTED_GROUPS_MAX = PACK_SPAN / 16 };

struct nested_acts {
    int8_t *q;
    int16_t *sums;
    float *scale;
};

/* One row of a span. The next 64 inputs are tile * 64 bytes behind; the next row of the tile 64, its sums 2 * groups, its scale 1. */
static inline struct nested_acts nested_acts_at(const struct quant_acts *x, int64_t row, int64_t span) {
    int64_t first = row / x->tile * x->tile, m = row % x->tile, at = span * x->tile;
    float *sums = x->sum + first * x->n_groups + (at + m) * (PACK_SPAN / x->group);
    return (struct nested_acts){.q = x->q + first * x->in + at * PACK_SPAN + m * NESTED_STEP,
                                .sums = (int16_t *)(void *)sums,
                                .scale = x->scale + first * acts_spans(x->in) + at + m};
}

#endif
