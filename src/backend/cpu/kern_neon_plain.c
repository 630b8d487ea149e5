/* NEON: panels of plain weights by multiply-adds of four rows. */
#include "backend/cpu/kern_neon.h"

enum { SUMS = 16, ROWS_MAX = 4 };

/* a * b[lane] + c */
static inline __attribute__((always_inline)) vf v_fma_lane(vf a, vf b, const int lane, vf c) {
    return lane == 0   ? vfmaq_laneq_f32(c, a, b, 0)
           : lane == 1 ? vfmaq_laneq_f32(c, a, b, 1)
           : lane == 2 ? vfmaq_laneq_f32(c, a, b, 2)
                       : vfmaq_laneq_f32(c, a, b, 3);
}
#define PLAIN_LANES

#include "backend/cpu/kern_plain_tmpl.h"

void kern_neon_plain(struct kernels *k) {
    fill_plain_kernels(k);
}
