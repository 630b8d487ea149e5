/* Passes over a row by vectors of eight; compiled with AVX2 and FMA. */
#include "backend/cpu/row.h"

#include <immintrin.h>

struct lanes {
    __m256d of;
};

#include "backend/cpu/row_tmpl.h"

INLINE __m256 row_exp(__m256 d) {
    __m256 most = _mm256_set1_ps(ROW_MAGIC), magic = _mm256_fmadd_ps(d, _mm256_set1_ps(ROW_LOG2E), most), n = _mm256_sub_ps(magic, most);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(ROW_LN2), d), p = _mm256_set1_ps(ROW_C5);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ROW_C4));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ROW_C3));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ROW_C2));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(ROW_C1));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(magic), 23)));
}

INLINE void add_folded(struct lanes *to, const __m256 e[4]) {
    __m256 both = _mm256_add_ps(_mm256_add_ps(e[0], e[2]), _mm256_add_ps(e[1], e[3]));
    to->of = _mm256_add_pd(to->of, _mm256_cvtps_pd(_mm_add_ps(_mm256_castps256_ps128(both), _mm256_extractf128_ps(both, 1))));
}

INLINE double lanes_fold(struct lanes a) {
    __m128d low = _mm256_castpd256_pd128(a.of), high = _mm256_extractf128_pd(a.of, 1);
    return _mm_cvtsd_f64(_mm_add_sd(low, _mm_unpackhi_pd(low, low))) + _mm_cvtsd_f64(_mm_add_sd(high, _mm_unpackhi_pd(high, high)));
}

#define FOUR _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++)

INLINE void weigh_group(const float *x, float *p, float best, float scale, const bool is_scaled, struct lanes *sum) {
    __m256 d[4], e[4];
    FOUR d[i] = _mm256_sub_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(best));
    if (is_scaled) FOUR d[i] = _mm256_mul_ps(d[i], _mm256_set1_ps(scale));
    FOUR d[i] = _mm256_max_ps(d[i], _mm256_set1_ps(ROW_FLOOR));
    FOUR e[i] = row_exp(d[i]);
    FOUR _mm256_storeu_ps(p + 8 * i, e[i]);
    add_folded(sum, e);
}

INLINE int moment_group(const float *x, const float *p, float best, struct lanes *sum) {
    __m256 e[4];
    int count = 0;
    FOUR {
        __m256 at = _mm256_loadu_ps(x + 8 * i), d = _mm256_max_ps(_mm256_sub_ps(at, _mm256_set1_ps(best)), _mm256_set1_ps(ROW_FLOOR));
        count += __builtin_popcount((unsigned)_mm256_movemask_ps(_mm256_cmp_ps(at, _mm256_set1_ps(-INFINITY), _CMP_GT_OQ)));
        e[i] = _mm256_mul_ps(_mm256_loadu_ps(p + 8 * i), d);
    }
    add_folded(sum, e);
    return count;
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

INLINE float peak_groups(const float *x, float *peaks) {
    float best = -INFINITY;
    for (int g = 0; g < 4; g++) {
        __m256 at[4];
        FOUR at[i] = _mm256_loadu_ps(x + g * ROW_GROUP + 8 * i);
        best = most_of(best, peaks[g] = most_of_group(at));
    }
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

const struct row_kernels row_avx2 = {peaks, mask, weigh, moment};
