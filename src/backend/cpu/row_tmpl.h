/* The kernels of row.h over groups of 32 numbers. A file of one instruction set defines these, then includes this:
 *
 *   struct lanes                                         four sums in double
 *   double lanes_fold(struct lanes)                      (0 + 1) + (2 + 3)
 *   void weigh_group(x, p, best, scale, is_scaled, sum)  p = e^d, d = (x - best) * scale and at least ROW_FLOOR; adds fold(p) to the lanes.
 *                                                        Without is_scaled the scale is 1
 *   int moment_group(x, p, best, sum)                    adds fold(p * d), d = x - best and at least ROW_FLOOR; how many x are above -infinity
 *   float peak_groups(x, peaks)                          the largest of each of 4 groups and of all four; NaN where one is
 *   float mask_group(x, word, out)                       32 numbers to out, -infinity where the word's bit is 0; their largest, NaN where one is
 *
 * fold: eight vectors e0 ... e7 of four to one, ((e0 + e4) + (e2 + e6)) + ((e1 + e5) + (e3 + e7)), then to double.
 * e^d = 2^n * poly(d - n ln2), poly by Horner's scheme, every step one fused product. Adding ROW_MAGIC rounds to the nearest whole number
 * and leaves it in the low bits. Down to ROW_FLOOR one constant for ln2 is precise enough, and the result is a normal number. */
#include "backend/cpu/row.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

struct lanes;
INLINE double lanes_fold(struct lanes a);
INLINE void weigh_group(const float *x, float *p, float best, float scale, const bool is_scaled, struct lanes *sum);
INLINE int moment_group(const float *x, const float *p, float best, struct lanes *sum);
INLINE float peak_groups(const float *x, float *peaks);
INLINE float mask_group(const float *x, uint32_t word, float *out);

#define ROW_FLOOR (-86.0f)
#define ROW_MAGIC 12582912.0f /* 1.5 * 2^23 */
#define ROW_LOG2E 1.44269504f
#define ROW_LN2 0.693147182f
/* 1 + C1 r + ... + C5 r^5 for |r| <= ln2 / 2: relative error 9.2e-8 */
#define ROW_C1 0.999999702f
#define ROW_C2 0.499991477f
#define ROW_C3 0.166676387f
#define ROW_C4 0.0418981612f
#define ROW_C5 0.00829027221f

/* The end of a row as a group of its own, filled up. */
static void fill_group(float *room, const float *x, int64_t n, float with) {
    for (int64_t i = 0; i < ROW_GROUP; i++) room[i] = i < n ? x[i] : with;
}

INLINE double weigh_all(const struct row_weigh *a, const bool is_scaled) {
    const float *x = a->x, *peaks = a->peaks, best = a->best, scale = a->scale;
    float *p = a->p, room[2][ROW_GROUP];
    double sum = 0;
    for (int64_t first = 0; first < a->n; first += ROW_SPAN) {
        struct lanes lanes = {0};
        int64_t i = first, last = first + ROW_SPAN < a->n ? first + ROW_SPAN : a->n;
        for (; i + ROW_GROUP <= last; i += ROW_GROUP) {
            if ((peaks[i / ROW_GROUP] - best) * scale < ROW_LEAST) memset(p + i, 0, ROW_GROUP * sizeof *p);
            else weigh_group(x + i, p + i, best, scale, is_scaled, &lanes);
        }
        if (i < last) {
            fill_group(room[0], x + i, last - i, -INFINITY);
            weigh_group(room[0], room[1], best, scale, is_scaled, &lanes);
            memcpy(p + i, room[1], (size_t)(last - i) * sizeof *p);
        }
        sum += a->spans[first / ROW_SPAN] = lanes_fold(lanes);
    }
    return sum;
}

static double weigh(const struct row_weigh *a) {
    return a->scale == 1 ? weigh_all(a, false) : weigh_all(a, true);
}

static double moment(const float *x, const float *p, int64_t n, float best, int64_t *out_count) {
    struct lanes sum = {0};
    float room[2][ROW_GROUP];
    int64_t i = 0;
    *out_count = 0;
    for (; i + ROW_GROUP <= n; i += ROW_GROUP) *out_count += moment_group(x + i, p + i, best, &sum);
    if (i < n) {
        fill_group(room[0], x + i, n - i, -INFINITY);
        fill_group(room[1], p + i, n - i, 0);
        *out_count += moment_group(room[0], room[1], best, &sum);
    }
    return lanes_fold(sum);
}

/* The largest so far; NaN stays. */
INLINE float most_of(float a, float b) {
    return b > a || b != b ? b : a;
}

static float peaks(const float *x, int64_t n, float *peaks) {
    float best = -INFINITY, room[4 * ROW_GROUP], of[4];
    int64_t i = 0;
    for (; i + 4 * ROW_GROUP <= n; i += 4 * ROW_GROUP) best = most_of(best, peak_groups(x + i, peaks + i / ROW_GROUP));
    if (i == n) return best;
    for (int64_t k = 0; k < 4 * ROW_GROUP; k++) room[k] = i + k < n ? x[i + k] : -INFINITY;
    best = most_of(best, peak_groups(room, of));
    memcpy(peaks + i / ROW_GROUP, of, (size_t)row_groups(n - i) * sizeof *of);
    return best;
}

static float mask(const float *x, const uint32_t *bits, int64_t n, float *out, float *peaks) {
    float best = -INFINITY, room[ROW_GROUP];
    int64_t i = 0;
    for (; i + ROW_GROUP <= n; i += ROW_GROUP) best = most_of(best, peaks[i / ROW_GROUP] = mask_group(x + i, bits[i / ROW_GROUP], out + i));
    if (i == n) return best;
    fill_group(room, x + i, n - i, -INFINITY);
    best = most_of(best, peaks[i / ROW_GROUP] = mask_group(room, bits[i / ROW_GROUP], room));
    memcpy(out + i, room, (size_t)(n - i) * sizeof *out);
    return best;
}
