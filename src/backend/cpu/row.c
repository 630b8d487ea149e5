/* The reference of row.h, and which set is used. */
#include "base/fmath.h"
#include "os/cpu.h"

struct lanes {
    double of[4];
};

#include "backend/cpu/row_tmpl.h"

static float row_exp(float d) {
    float magic = m_fmaf(d, ROW_LOG2E, ROW_MAGIC), n = magic - ROW_MAGIC, r = m_fmaf(n, -ROW_LN2, d), p = ROW_C5;
    uint32_t bits, whole;
    p = m_fmaf(p, r, ROW_C4);
    p = m_fmaf(p, r, ROW_C3);
    p = m_fmaf(p, r, ROW_C2);
    p = m_fmaf(p, r, ROW_C1);
    p = m_fmaf(p, r, 1.0f);
    memcpy(&bits, &p, sizeof bits);
    memcpy(&whole, &magic, sizeof whole);
    bits += whole << 23;
    memcpy(&p, &bits, sizeof p);
    return p;
}

static void add_folded(struct lanes *to, const float *e) {
    for (int l = 0; l < 4; l++)
        to->of[l] += (double)(((e[l] + e[16 + l]) + (e[8 + l] + e[24 + l])) + ((e[4 + l] + e[20 + l]) + (e[12 + l] + e[28 + l])));
}

INLINE float drop_of(float x, float best, float scale) {
    float d = (x - best) * scale;
    return d > ROW_FLOOR ? d : ROW_FLOOR;
}

INLINE void weigh_group(const float *x, float *p, float best, float scale, const bool is_scaled, struct lanes *sum) {
    (void)is_scaled;
    for (int i = 0; i < ROW_GROUP; i++) p[i] = row_exp(drop_of(x[i], best, scale));
    add_folded(sum, p);
}

INLINE int moment_group(const float *x, const float *p, float best, struct lanes *sum) {
    float d[ROW_GROUP];
    int count = 0;
    for (int i = 0; i < ROW_GROUP; i++) {
        d[i] = p[i] * drop_of(x[i], best, 1);
        count += x[i] > -INFINITY;
    }
    add_folded(sum, d);
    return count;
}

INLINE double lanes_fold(struct lanes a) {
    return (a.of[0] + a.of[1]) + (a.of[2] + a.of[3]);
}

INLINE float peak_groups(const float *x, float *peaks) {
    float best = -INFINITY;
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

const struct row_kernels row_ref = {peaks, mask, weigh, moment};

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
