/* Passes over a row by vectors of eight; compiled with AVX2 and FMA. */
#include "backend/cpu/row.h"

#include <immintrin.h>

struct four {
    __m128 of;
};
struct lanes {
    __m256d of;
};

#include "backend/cpu/row_tmpl.h"

INLINE __m256 row_exp(const struct curve *c, __m256 d) {
    __m256 most = _mm256_set1_ps(ROW_MAGIC), magic = _mm256_fmadd_ps(d, _mm256_set1_ps(c->log2e), most), n = _mm256_sub_ps(magic, most);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(c->ln2), d), p = _mm256_set1_ps(c->c[3]);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c->c[2]));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c->c[1]));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(c->c[0]));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(magic), 23)));
}

INLINE struct four both_halves(__m256 a) {
    return (struct four){_mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1))};
}

INLINE void lanes_add(struct lanes *to, struct four a) {
    to->of = _mm256_add_pd(to->of, _mm256_cvtps_pd(a.of));
}

INLINE void four_store(float *to, struct four a) {
    _mm_storeu_ps(to, a.of);
}

INLINE struct four four_all(float a) {
    return (struct four){_mm_set1_ps(a)};
}

INLINE double lanes_fold(struct lanes a) {
    __m128d low = _mm256_castpd256_pd128(a.of), high = _mm256_extractf128_pd(a.of, 1);
    return _mm_cvtsd_f64(_mm_add_sd(low, _mm_unpackhi_pd(low, low))) + _mm_cvtsd_f64(_mm_add_sd(high, _mm_unpackhi_pd(high, high)));
}

#define FOUR _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)

INLINE struct part weigh_group(const struct curve *c, const float *x, float *p, const struct pass pass) {
    __m256 d[4], e[4];
    struct part out;
    FOUR d[i] = _mm256_sub_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(c->best));
    if (pass.extremes) FOUR d[i] = _mm256_mul_ps(d[i], _mm256_set1_ps(c->before));
    if (pass.bounds) FOUR d[i] = _mm256_max_ps(d[i], _mm256_set1_ps(c->floor));
    FOUR e[i] = row_exp(c, d[i]);
    if (pass.stores) FOUR _mm256_storeu_ps(p + 8 * i, e[i]);
    out.fold = both_halves(_mm256_add_ps(_mm256_add_ps(e[0], e[2]), _mm256_add_ps(e[1], e[3])));
    if (pass.moments) {
        __m256 sum = _mm256_mul_ps(e[0], d[0]);
        for (int i = 1; i < 4; i++) sum = _mm256_fmadd_ps(e[i], d[i], sum);
        out.moment = both_halves(sum);
    }
    return out;
}

INLINE int count_group(const float *x) {
    int count = 0;
    FOUR count +=
        __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(-INFINITY), _CMP_GT_OQ)));
    return count;
}

INLINE uint32_t above_group(const float *x, float bar) {
    uint32_t word = 0;
    FOUR word |= (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(bar), _CMP_GE_OQ)) << 8 * i;
    return word;
}

INLINE float most_lane(__m256 a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

/* The largest of 32, NaN where one of them is. */
INLINE float most_of_group(const __m256 a[4]) {
    __m256 odd = _mm256_or_ps(_mm256_cmp_ps(a[0], a[1], _CMP_UNORD_Q), _mm256_cmp_ps(a[2], a[3], _CMP_UNORD_Q));
    return _mm256_movemask_ps(odd) ? NAN : most_lane(_mm256_max_ps(_mm256_max_ps(a[0], a[1]), _mm256_max_ps(a[2], a[3])));
}

INLINE float peak_groups(const float *x, float *peaks, struct four *least) {
    float best = -INFINITY;
    __m256 low = _mm256_set1_ps(INFINITY);
    for (int g = 0; g < 4; g++) {
        __m256 at[4];
        FOUR at[i] = _mm256_loadu_ps(x + g * ROW_GROUP + 8 * i);
        FOUR low = _mm256_min_ps(low, at[i]);
        best = most_of(best, peaks[g] = most_of_group(at));
    }
    least->of = _mm_min_ps(least->of, _mm_min_ps(_mm256_castps256_ps128(low), _mm256_extractf128_ps(low, 1)));
    return best;
}

INLINE float mask_group(const float *x, uint32_t word, float *out) {
    const __m256i bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256 at[4];
    FOUR {
        __m256i is_set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int32_t)(word >> 8 * i)), bits), bits);
        at[i] = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), _mm256_loadu_ps(x + 8 * i), _mm256_castsi256_ps(is_set));
        _mm256_storeu_ps(out + 8 * i, at[i]);
    }
    return most_of_group(at);
}

const struct row_kernels row_avx2 = {peaks, mask, weigh, refold, count, list};
