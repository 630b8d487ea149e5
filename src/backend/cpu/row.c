/* The reference of row.h, and which set is used. */
#include "backend/cpu/row.h"

#include "base/fmath.h"
#include "os/cpu.h"

struct four {
    float of[ROW_LANES];
};
struct lanes {
    double of[ROW_LANES];
};

#include "backend/cpu/row_tmpl.h"

/* e^(d * scale), d from c->floor on */
static float row_exp(const struct curve *c, float d) {
    float magic = m_fmaf(d, c->log2e, ROW_MAGIC), n = magic - ROW_MAGIC, r = m_fmaf(n, -c->ln2, d), p = c->c[3];
    uint32_t bits, whole;
    for (int i = 2; i >= 0; i--) p = m_fmaf(p, r, c->c[i]);
    p = m_fmaf(p, r, 1.0f);
    memcpy(&bits, &p, sizeof bits);
    memcpy(&whole, &magic, sizeof whole);
    bits += whole << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

INLINE void lanes_add(struct lanes *to, struct four a) {
    for (int l = 0; l < ROW_LANES; l++) to->of[l] += (double)a.of[l];
}

INLINE void four_store(float *to, struct four a) {
    memcpy(to, a.of, sizeof a.of);
}

INLINE struct four four_all(float a) {
    return (struct four){{a, a, a, a}};
}

INLINE struct part weigh_group(const struct curve *c, const float *x, float *p, const struct pass pass) {
    struct part out;
    float d[ROW_GROUP], e[ROW_GROUP];
    for (int i = 0; i < ROW_GROUP; i++) {
        d[i] = (x[i] - c->best) * c->before;
        if (d[i] < c->floor) d[i] = c->floor;
        e[i] = row_exp(c, d[i]);
    }
    for (int l = 0; l < ROW_LANES; l++) {
        float sum[2] = {e[l] * d[l], e[4 + l] * d[4 + l]};
        for (int i = 8 + l; i < ROW_GROUP; i += 4) sum[i / 4 % 2] = m_fmaf(e[i], d[i], sum[i / 4 % 2]);
        out.fold.of[l] = ((e[l] + e[16 + l]) + (e[8 + l] + e[24 + l])) + ((e[4 + l] + e[20 + l]) + (e[12 + l] + e[28 + l]));
        out.moment.of[l] = sum[0] + sum[1];
    }
    if (pass.stores) memcpy(p, e, sizeof e);
    return out;
}

INLINE int count_group(const float *x) {
    int count = 0;
    for (int i = 0; i < ROW_GROUP; i++) count += x[i] > -INFINITY;
    return count;
}

INLINE uint32_t above_group(const float *x, float bar) {
    uint32_t word = 0;
    for (int i = 0; i < ROW_GROUP; i++) word |= (uint32_t)(x[i] >= bar) << i;
    return word;
}

INLINE double lanes_fold(struct lanes a) {
    return (a.of[0] + a.of[1]) + (a.of[2] + a.of[3]);
}

INLINE float peak_groups(const float *x, float *peaks, struct four *least) {
    float best = -INFINITY;
    for (int i = 0; i < 4 * ROW_GROUP; i++) least->of[i % ROW_LANES] = x[i] < least->of[i % ROW_LANES] ? x[i] : least->of[i % ROW_LANES];
    for (int g = 0; g < 4; g++) best = most_of(best, peaks[g] = mask_group(x + g * ROW_GROUP, UINT32_MAX, (float[ROW_GROUP]){0}));
    return best;
}

INLINE float mask_group(const float *x, uint32_t word, float *out) {
    float best = -INFINITY;
    for (int i = 0; i < ROW_GROUP; i++) {
        out[i] = word >> i & 1 ? x[i] : -INFINITY;
        best = most_of(best, out[i]);
    }
    return best;
}

const struct row_kernels row_ref = {peaks, mask, weigh, refold, count, list};

const struct row_kernels *row_select(uint32_t flags) {
#if defined(__x86_64__)
    if (flags & CPU_AVX2) return &row_avx2;
#elif defined(__aarch64__)
    if (flags & CPU_NEON) return &row_neon;
#else
    (void)flags;
#endif
    return &row_ref;
}
