/* The kernels of row.h over groups of 32 numbers. A file of one instruction set defines these, then includes this:
 *
 *   struct four                                  four numbers
 *   struct lanes                                 four sums in double
 *   void lanes_add(struct lanes *, struct four)
 *   double lanes_fold(struct lanes)              (0 + 1) + (2 + 3)
 *   void four_store(float *, struct four)
 *   struct four four_all(float)                  four times the same
 *   struct part weigh_group(c, x, p, pass)       p = e^(d * scale), d = x - best; fold(p), and product(p, d) with pass.moments. Without
 *                                                pass.stores p is not written; with pass.bounds d is at least c->floor, without it no d is
 *                                                below; with pass.extremes d is multiplied by c->before first
 *   int count_group(x)                           how many x are above -infinity
 *   uint32_t above_group(x, bar)                 bits of those that are at least bar
 *   float peak_groups(x, peaks, least)           the largest of each of 4 groups and of all four; NaN where one is. least: lower where one is
 *   float mask_group(x, word, out)               32 numbers to out, -infinity where the word's bit is 0; their largest, NaN where one is
 *
 * fold: eight vectors e0 ... e7 of four to one, ((e0 + e4) + (e2 + e6)) + ((e1 + e5) + (e3 + e7)).
 * product: a0 = e0 d0, then e2 d2, e4 d4, e6 d6 added by fused products, the same of the odd ones; the two together.
 * e^(d s) = 2^n * poly(d - n ln2 / s), poly by Horner's scheme, every step one fused product; its coefficients have the powers of s in them.
 * Adding ROW_MAGIC rounds to the nearest whole number and leaves it in the low bits. Down to ROW_FLOOR one constant for ln2 is precise
 * enough, and the result is a normal number. */
#include "backend/cpu/row.h"

#include "base/bits.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* What one call wants; constants, so that each kind of pass is compiled by itself. */
struct pass {
    bool bounds, stores, moments, extremes;
};

/* What one group adds to its span's sum and to the moment. */
struct part {
    struct four fold, moment;
};

/* The exponential at a scale. */
struct curve {
    /* for loads as vectors: ROW_MAGIC, c[2] to c[0], 1, best and floor four times each; before, log2e, ln2, c[3] */
    _Alignas(64) float table[8][4];
    float best, before, floor, log2e, ln2, c[4];
};

struct lanes;
INLINE void lanes_add(struct lanes *to, struct four a);
INLINE double lanes_fold(struct lanes a);
INLINE void four_store(float *to, struct four a);
INLINE struct four four_all(float a);
INLINE struct part weigh_group(const struct curve *c, const float *x, float *p, const struct pass pass);
INLINE int count_group(const float *x);
INLINE uint32_t above_group(const float *x, float bar);
INLINE float peak_groups(const float *x, float *peaks, struct four *least);
INLINE float mask_group(const float *x, uint32_t word, float *out);

#define ROW_FLOOR (-86.0f)
#define ROW_MAGIC 12582912.0f /* 1.5 * 2^23 */
#define ROW_LOG2E 1.44269504f
#define ROW_LN2 0.693147182f
/* 1 + c[0] r + ... + c[3] r^4 for |r| <= ln2 / 2: relative error 2.9e-6, 3e-7 in the mean. One more would cost a fifteenth of the time, and
 * no draw can tell. */
static const float coefficients[4] = {0.9999668f, 0.50003016f, 0.16787498f, 0.041513816f};
/* Scales whose fourth power is an ordinary number; others are multiplied by before. */
#define LOW_SCALE 1e-3f
#define HIGH_SCALE 1e4f

static struct curve curve_of(float best, float scale) {
    bool is_extreme = !(scale >= LOW_SCALE && scale <= HIGH_SCALE);
    float s = is_extreme ? 1 : scale, power = 1;
    struct curve c = {.best = best, .before = is_extreme ? scale : 1, .floor = ROW_FLOOR / s, .log2e = ROW_LOG2E * s, .ln2 = ROW_LN2 / s};
    for (int i = 0; i < 4; i++) c.c[i] = coefficients[i] * (power *= s);
    const float fours[7] = {ROW_MAGIC, c.c[2], c.c[1], c.c[0], 1, c.best, c.floor};
    for (int i = 0; i < 28; i++) c.table[i / 4][i % 4] = fours[i / 4];
    memcpy(c.table[7], (const float[4]){c.before, c.log2e, c.ln2, c.c[3]}, sizeof c.table[7]);
    return c;
}

/* The end of a row as a group of its own, filled up. */
static void fill_group(float *room, const float *x, int64_t n, float with) {
    for (int64_t i = 0; i < ROW_GROUP; i++) room[i] = i < n ? x[i] : with;
}

static const float no_fold[ROW_LANES];

/* Floats as whole numbers in the same order. */
INLINE int32_t order_of(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits ^ (int32_t)((uint32_t)(bits >> 31) >> 1);
}

/* The first peak, in that order, whose group counts: the others' are e^ROW_LEAST of the best at most. Comparing whole numbers leaves the
 * units for floats to the exponentials. */
static int32_t first_that_counts(const struct row_weigh *a) {
    int32_t low = order_of(-INFINITY), high = order_of(a->best);
    while (low < high) {
        int32_t middle = (int32_t)(((int64_t)low + high) >> 1), bits = middle ^ (int32_t)((uint32_t)(middle >> 31) >> 1);
        float peak;
        memcpy(&peak, &bits, sizeof peak);
        if ((peak - a->best) * a->scale >= ROW_LEAST) high = middle;
        else low = middle + 1;
    }
    return low;
}

INLINE bool is_passed(const struct row_weigh *a, const struct pass pass, int64_t at, int32_t first) {
    if (!a->peaks || order_of(a->peaks[at / ROW_GROUP]) >= first) return false;
    if (pass.stores) memset(a->p + at, 0, ROW_GROUP * sizeof *a->p);
    if (a->folds) memcpy(a->folds + at / ROW_GROUP * ROW_LANES, no_fold, sizeof no_fold);
    return true;
}

static struct part weigh_rest(const struct row_weigh *a, const struct curve *c, int64_t at) {
    float room[2][ROW_GROUP];
    fill_group(room[0], a->x + at, a->n - at, -INFINITY);
    struct part out = weigh_group(c, room[0], room[1], (struct pass){true, true, true, true});
    if (a->p) memcpy(a->p + at, room[1], (size_t)(a->n - at) * sizeof(float));
    return out;
}

/* A group's part to the sums. */
INLINE void add_part(const struct row_weigh *a, const struct pass pass, int64_t at, struct part part, struct lanes *sum,
                     struct lanes *moment) {
    lanes_add(sum, part.fold);
    if (a->folds) four_store(a->folds + at / ROW_GROUP * ROW_LANES, part.fold);
    if (pass.moments) lanes_add(moment, part.moment);
}

/* The call is copied, and nothing has the address of the sums: all of them stay in registers. */
INLINE double weigh_all(const struct row_weigh *call, const struct curve *c, const struct pass pass) {
    const struct row_weigh a = *call;
    const int32_t first_peak = a.peaks ? first_that_counts(call) : 0;
    struct lanes moment = {0};
    double sum = 0;
    for (int64_t first = 0; first < a.n; first += ROW_SPAN) {
        struct lanes lanes = {0};
        int64_t i = first, last = first + ROW_SPAN < a.n ? first + ROW_SPAN : a.n;
        for (; i + ROW_GROUP <= last; i += ROW_GROUP)
            if (!is_passed(&a, pass, i, first_peak))
                add_part(&a, pass, i, weigh_group(c, a.x + i, pass.stores ? a.p + i : NULL, pass), &lanes, &moment);
        if (i < last) add_part(&a, pass, i, weigh_rest(call, c, i), &lanes, &moment);
        sum += a.spans[first / ROW_SPAN] = lanes_fold(lanes);
    }
    if (pass.moments) *a.moment = lanes_fold(moment);
    return sum;
}

static double weigh(const struct row_weigh *a) {
    const struct curve c = curve_of(a->best, a->scale);
    bool bounds = !(a->least - a->best >= c.floor);
    if (c.before != 1) {
        if (a->p) return weigh_all(a, &c, (struct pass){true, true, false, true});
        return weigh_all(a, &c, (struct pass){true, false, false, true});
    }
    if (a->p) return weigh_all(a, &c, (struct pass){true, true, false, false});
    if (a->moment && bounds) return weigh_all(a, &c, (struct pass){true, false, true, false});
    if (a->moment) return weigh_all(a, &c, (struct pass){false, false, true, false});
    return bounds ? weigh_all(a, &c, (struct pass){true, false, false, false})
                  : weigh_all(a, &c, (struct pass){false, false, false, false});
}

static void refold(const struct row_weigh *a, const int32_t *groups, int32_t n) {
    const struct curve c = curve_of(a->best, a->scale);
    const int32_t first_peak = first_that_counts(a);
    for (int32_t i = 0; i < n; i++) {
        int64_t at = (int64_t)groups[i] * ROW_GROUP;
        bool is_whole = at + ROW_GROUP <= a->n;
        if (is_whole && is_passed(a, (struct pass){0}, at, first_peak)) continue;
        struct part part = is_whole ? weigh_group(&c, a->x + at, NULL, (struct pass){true, false, false, true}) : weigh_rest(a, &c, at);
        four_store(a->folds + groups[i] * ROW_LANES, part.fold);
    }
}

static int64_t count(const float *x, int64_t n) {
    int64_t i = 0, found = 0;
    float room[ROW_GROUP];
    for (; i + ROW_GROUP <= n; i += ROW_GROUP) found += count_group(x + i);
    if (i == n) return found;
    fill_group(room, x + i, n - i, -INFINITY);
    return found + count_group(room);
}

/* Of a group many one by one without a jump, fewer by their bits. */
enum { MANY = 12 };

static int64_t list_group(const float *x, int64_t n, int64_t first, float bar, int64_t found, int32_t *places, float *out) {
    bool is_whole = first + ROW_GROUP <= n;
    uint32_t word = is_whole ? above_group(x + first, bar) : 0;
    if (is_whole && bits_count(word) <= MANY) {
        for (; word; word &= word - 1, found++) {
            places[found] = (int32_t)first + bits_first(word);
            out[found] = x[places[found]];
        }
        return found;
    }
    for (int64_t i = first; i < n && i < first + ROW_GROUP; i++) {
        places[found] = (int32_t)i;
        out[found] = x[i];
        found += x[i] >= bar;
    }
    return found;
}

/* Groups by their peaks, as many at a time as a group has numbers. */
static int64_t list(const float *x, int64_t n, const float *peaks, float bar, int32_t *places, float *out) {
    int64_t found = 0, n_groups = row_groups(n);
    float room[ROW_GROUP];
    for (int64_t g = 0; g < n_groups; g += ROW_GROUP) {
        bool is_whole = g + ROW_GROUP <= n_groups;
        if (!is_whole) fill_group(room, peaks + g, n_groups - g, -INFINITY);
        uint32_t word = above_group(is_whole ? peaks + g : room, bar);
        for (; word; word &= word - 1) {
            int64_t first = (g + bits_first(word)) * ROW_GROUP;
            if (first < n) found = list_group(x, n, first, bar, found, places, out);
        }
    }
    return found;
}

/* The largest so far; NaN stays. */
INLINE float most_of(float a, float b) {
    return b > a || b != b ? b : a;
}

static float least_of(struct four a) {
    float of[ROW_LANES], least = INFINITY;
    four_store(of, a);
    for (int l = 0; l < ROW_LANES; l++) least = of[l] < least ? of[l] : least;
    return least;
}

static float peaks(const float *x, int64_t n, float *peaks, float *out_least) {
    float best = -INFINITY, room[4 * ROW_GROUP], of[4], rest = INFINITY;
    struct four least = four_all(INFINITY), ignored = least;
    int64_t i = 0;
    for (; i + 4 * ROW_GROUP <= n; i += 4 * ROW_GROUP) best = most_of(best, peak_groups(x + i, peaks + i / ROW_GROUP, &least));
    for (int64_t k = 0; k < 4 * ROW_GROUP; k++) {
        room[k] = i + k < n ? x[i + k] : -INFINITY;
        if (i + k < n && x[i + k] < rest) rest = x[i + k];
    }
    *out_least = least_of(least) < rest ? least_of(least) : rest;
    if (i == n) return best;
    best = most_of(best, peak_groups(room, of, &ignored));
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
