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

/* Two vectors of weights with one input of each of four rows. Compilers make copies of the sums here, an eighth of the work. */
#define TWO(at, from)                                                                                                         \
    __asm__("ldp %q[w0], %q[w1], [%[p], #" #from "]\n"                                                                        \
            "fmla %[a].4s, %[w0].4s, %[x0].s[" #at "]\nfmla %[b].4s, %[w0].4s, %[x1].s[" #at "]\n"                            \
            "fmla %[c].4s, %[w0].4s, %[x2].s[" #at "]\nfmla %[d].4s, %[w0].4s, %[x3].s[" #at "]\n"                            \
            "fmla %[e].4s, %[w1].4s, %[x0].s[" #at "]\nfmla %[f].4s, %[w1].4s, %[x1].s[" #at "]\n"                            \
            "fmla %[g].4s, %[w1].4s, %[x2].s[" #at "]\nfmla %[h].4s, %[w1].4s, %[x3].s[" #at "]"                              \
            : [w0] "=&w"(w0), [w1] "=&w"(w1), [a] "+w"(s[0]), [b] "+w"(s[1]), [c] "+w"(s[2]), [d] "+w"(s[3]), [e] "+w"(s[4]), \
              [f] "+w"(s[5]), [g] "+w"(s[6]), [h] "+w"(s[7])                                                                  \
            : [p] "r"(p), [x0] "w"(x0), [x1] "w"(x1), [x2] "w"(x2), [x3] "w"(x3), "m"(*(const unsigned char(*)[PANEL_FOUR_INPUTS])p))

/* One input with all sixteen rows of the panel. */
#define INPUT(at, low, high) \
    do {                     \
        s = acc;             \
        TWO(at, low);        \
        s = acc + 8;         \
        TWO(at, high);       \
    } while (0)

enum { PANEL_FOUR_INPUTS = 4 * PANEL_ROWS * (int)sizeof(float) };

static inline __attribute__((always_inline)) void add_block_f32(const unsigned char *p, const float *x, const float *ahead, vf *acc) {
    for (int i = 0; i < PACK_PLAIN_GROUP; i += 4, p += PANEL_FOUR_INPUTS) {
        vf x0 = v_load(x + i), x1 = v_load(x + PACK_PLAIN_GROUP + i), x2 = v_load(x + 2 * PACK_PLAIN_GROUP + i),
           x3 = v_load(x + 3 * PACK_PLAIN_GROUP + i), w0, w1, *s = acc;
        __builtin_prefetch(ahead + 4 * i); /* eight lines in all: four rows */
        INPUT(0, 0, 32);
        INPUT(1, 64, 96);
        INPUT(2, 128, 160);
        INPUT(3, 192, 224);
    }
}

#include "backend/cpu/kern_plain_tmpl.h"

void kern_neon_plain(struct kernels *k) {
    fill_plain_kernels(k);
}
