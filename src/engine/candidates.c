/* Lists of candidates and cuts through them. */
#include "engine/candidates.h"

#include "base/bits.h"

#include <math.h>
#include <string.h>

enum { N_BUCKETS = 1024, SORT_MAX = 24, SPARSE = 16 };

/* ---- places ------------------------------------------------------------------------------------------------------------ */

void candidates_set(struct candidates *c, const float *x, const int32_t *ids, int32_t n) {
    c->x = x;
    c->ids = ids;
    c->n = n;
    c->scale = 0;
    c->best = c->w->k->peaks(x, n, c->w->peaks);
}

float *candidates_own(struct candidates *c) {
    struct sampler_work *w = c->w;
    if (c->x == w->kept_x) return w->kept_x;
    if (c->x != w->x) memcpy(w->x, c->x, (size_t)c->n * sizeof *w->x);
    c->x = w->x;
    return w->x;
}

/* Places of numbers that are at least bar, upwards; groups by their peaks. */
static int32_t list_from(const float *x, int32_t n, const float *peaks, float bar, int32_t *list) {
    int32_t found = 0;
    for (int32_t first = 0; first < n; first += ROW_GROUP) {
        if (peaks[first / ROW_GROUP] < bar) continue;
        int32_t last = first + ROW_GROUP < n ? first + ROW_GROUP : n;
        for (int32_t i = first; i < last; i++) {
            list[found] = i;
            found += x[i] >= bar;
        }
    }
    return found;
}

int32_t candidates_list(struct candidates *c, float bar) {
    return list_from(c->x, c->n, c->w->peaks, bar, c->w->list);
}

void candidates_keep(struct candidates *c, int32_t n) {
    struct sampler_work *w = c->w;
    for (int32_t i = 0; i < n; i++) { /* in place: what is read lies at or behind what is written */
        int32_t at = w->list[i];
        w->kept_ids[i] = candidates_id(c, at);
        w->kept_x[i] = c->x[at];
    }
    candidates_set(c, w->kept_x, w->kept_ids, n);
}

int32_t candidates_first(const struct candidates *c) {
    int32_t at = 0;
    while (c->w->peaks[at / ROW_GROUP] < c->best) at += ROW_GROUP;
    while (c->x[at] < c->best) at++;
    return at;
}

/* ---- masks ------------------------------------------------------------------------------------------------------------- */

/* Both masks as one; how many tokens it allows. */
static int32_t join_masks(uint32_t *out, const uint32_t *mask, const uint32_t *allowed, int32_t n) {
    int32_t n_words = (n + 31) / 32, count = 0;
    for (int32_t i = 0; i < n_words; i++) out[i] = (mask ? mask[i] : UINT32_MAX) & (allowed ? allowed[i] : UINT32_MAX);
    if (n % 32) out[n_words - 1] &= (UINT32_C(1) << n % 32) - 1;
    for (int32_t i = 0; i < n_words; i++) count += bits_count(out[i]);
    return count;
}

void candidates_masked(struct candidates *c, const float *x, const uint32_t *mask, const uint32_t *allowed) {
    struct sampler_work *w = c->w;
    int32_t n = 0;
    *c = (struct candidates){.w = w, .x = x, .n = w->vocab};
    if (join_masks(w->bits, mask, allowed, c->n) > c->n / SPARSE) {
        c->best = w->k->mask(x, w->bits, c->n, w->x, w->peaks);
        c->x = w->x;
        return;
    }
    for (int32_t i = 0; i < (c->n + 31) / 32; i++)
        for (uint32_t word = w->bits[i]; word; word &= word - 1) w->list[n++] = 32 * i + bits_first(word);
    candidates_keep(c, n);
}

/* ---- probabilities ----------------------------------------------------------------------------------------------------- */

double candidates_weigh(struct candidates *c, double temperature) {
    float scale = temperature > 1e-30 ? (float)(1 / temperature) : 1e30f;
    if (c->scale == scale) return c->sum;
    c->scale = scale;
    return c->sum = c->w->k->weigh(&(struct row_weigh){c->x, c->n, c->best, scale, c->w->peaks, c->w->p, c->w->spans});
}

double candidates_mean(struct candidates *c, int64_t *out_count) {
    double sum = candidates_weigh(c, 1);
    return c->w->k->moment(c->x, c->w->p, c->n, c->best, out_count) / sum;
}

void candidates_drop(struct candidates *c, const int32_t *places, int32_t n) {
    float *p = c->w->p;
    double *spans = c->w->spans;
    for (int32_t i = 0; i < n; i++) p[places[i]] = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t first = places[i] / ROW_SPAN * ROW_SPAN, last = first + ROW_SPAN < c->n ? first + ROW_SPAN : c->n;
        double sum = 0;
        for (int32_t k = first; k < last; k++) sum += (double)p[k];
        spans[first / ROW_SPAN] = sum;
    }
    c->sum = 0;
    for (int32_t i = 0; i < (int32_t)row_spans(c->n); i++) c->sum += spans[i];
}

/* Span by span, then one by one. What rounding leaves over belongs to the last that can come. */
int32_t candidates_at(const struct candidates *c, double mass) {
    const float *p = c->w->p;
    const double *spans = c->w->spans;
    int32_t span = 0, n_spans = (int32_t)row_spans(c->n), last;
    for (int32_t i = 0; i < n_spans; i++) {
        if (spans[i] <= ROW_NONE) continue;
        span = i;
        if (mass < spans[i]) break;
        mass -= spans[i];
    }
    last = span * ROW_SPAN;
    for (int32_t i = last; i < c->n && i < (span + 1) * ROW_SPAN; i++) {
        if (p[i] <= ROW_NONE) continue;
        last = i;
        mass -= (double)p[i];
        if (mass < 0) break;
    }
    return last;
}

/* ---- orders ------------------------------------------------------------------------------------------------------------ */

/* A number that is the smaller the better the key; both zeros are one. */
static uint32_t rank_of(float key) {
    uint32_t bits;
    key += 0.0f;
    memcpy(&bits, &key, sizeof bits);
    return bits & UINT32_C(0x80000000) ? bits : ~bits & UINT32_C(0x7FFFFFFF);
}

/* Where a cut ends: better keys are before it, and equal ones up to this place. */
struct cut {
    float key;
    int32_t last;
};

static bool is_before(struct cut cut, float key, int32_t place) {
    return key > cut.key || (key == cut.key && place <= cut.last);
}

/* Few places by their keys, the best first; they stand upwards, so equal ones stay in order. */
static void sort_few(const float *keys, int32_t *list, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        int32_t at = list[i], k = i;
        for (; k > 0 && keys[list[k - 1]] < keys[at]; k--) list[k] = list[k - 1];
        list[k] = at;
    }
}

struct search {
    const float *keys, *weights; /* weights NULL: each is 1 */
    int32_t *list;
    int32_t n;
    double mass;
    uint32_t low, high; /* ranks of all that are listed */
};

static double weight_at(const struct search *s, int32_t place) {
    return s->weights ? (double)s->weights[place] : 1;
}

static void find_ranks(struct search *s) {
    s->low = UINT32_MAX;
    s->high = 0;
    for (int32_t i = 0; i < s->n; i++) {
        uint32_t rank = rank_of(s->keys[s->list[i]]);
        s->low = rank < s->low ? rank : s->low;
        s->high = rank > s->high ? rank : s->high;
    }
}

/* Leaves the bucket in which the mass is reached. */
static void narrow(struct search *s) {
    double held[N_BUCKETS] = {0};
    uint32_t bucket = 0;
    int shift = 0;
    int32_t kept = 0;
    while ((s->high - s->low) >> shift >= N_BUCKETS) shift++;
    for (int32_t i = 0; i < s->n; i++) held[(rank_of(s->keys[s->list[i]]) - s->low) >> shift] += weight_at(s, s->list[i]);
    for (; bucket < (s->high - s->low) >> shift && held[bucket] < s->mass; bucket++) s->mass -= held[bucket];
    for (int32_t i = 0; i < s->n; i++) {
        int32_t at = s->list[i];
        s->list[kept] = at;
        kept += (rank_of(s->keys[at]) - s->low) >> shift == bucket;
    }
    s->n = kept;
}

/* Where, in the order of keys, the weights of the listed places (NULL: all of n) reach mass. */
static struct cut find_cut(struct sampler_work *w, const float *keys, const float *weights, const int32_t *list, int32_t n, double mass) {
    struct search s = {.keys = keys, .weights = weights, .list = w->narrow, .n = n, .mass = mass};
    for (int32_t i = 0; i < n; i++) s.list[i] = list ? list[i] : i;
    for (;;) {
        find_ranks(&s);
        if (s.n <= SORT_MAX || s.low == s.high) break;
        narrow(&s);
    }
    if (s.low != s.high) sort_few(keys, s.list, s.n);
    int32_t at = 0;
    for (; at < s.n - 1; at++)
        if ((s.mass -= weight_at(&s, s.list[at])) <= 0) break;
    return (struct cut){keys[s.list[at]], s.list[at]};
}

/* A bar that at least k numbers reach: the k-th of their groups' peaks, found through the peaks' own. -infinity where groups are too few. */
static float bar_of_top(struct sampler_work *w, const float *peaks, int32_t n, int32_t k) {
    int32_t n_upper = (int32_t)row_groups(n), n_list;
    if (k > n) return -INFINITY;
    if (k > n_upper) return find_cut(w, peaks, NULL, NULL, n, k).key;
    w->k->peaks(peaks, n, w->upper);
    n_list = list_from(peaks, n, w->upper, find_cut(w, w->upper, NULL, NULL, n_upper, k).key, w->list);
    return find_cut(w, peaks, NULL, w->list, n_list, k).key;
}

/* Places of the k largest, upwards, in the work's list. */
static int32_t list_top(struct sampler_work *w, const float *keys, int32_t n, int32_t k) {
    int32_t kept = 0, n_list = list_from(keys, n, w->peaks, bar_of_top(w, w->peaks, (int32_t)row_groups(n), k), w->list);
    struct cut cut = find_cut(w, keys, NULL, w->list, n_list, k);
    for (int32_t i = 0; i < n_list; i++)
        if (is_before(cut, keys[w->list[i]], w->list[i])) w->list[kept++] = w->list[i];
    return kept;
}

void candidates_top(struct candidates *c, int32_t k) {
    if (k < c->n) candidates_keep(c, list_top(c->w, c->x, c->n, k));
}

int32_t candidates_best(struct candidates *c, const float *keys, int32_t k) {
    struct sampler_work *w = c->w;
    if (keys != c->x) w->k->peaks(keys, c->n, w->peaks);
    int32_t n_list = list_top(w, keys, c->n, k < c->n ? k : c->n);
    sort_few(keys, w->list, n_list);
    return n_list;
}

void candidates_share(struct candidates *c, const float *keys, int32_t n, double mass) {
    int32_t *list = c->w->list, kept = 0;
    struct cut cut = find_cut(c->w, keys, c->w->p, list, n, mass);
    for (int32_t i = 0; i < n; i++)
        if (is_before(cut, keys[list[i]], list[i])) list[kept++] = list[i];
    candidates_keep(c, kept);
}
