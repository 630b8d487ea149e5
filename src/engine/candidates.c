/* Lists of candidates and cuts through them. */
#include "engine/candidates.h"

#include "base/bits.h"

#include <math.h>
#include <string.h>

enum { N_BUCKETS = 1024, FEW = 2048, N_BUCKETS_FEW = 64, SORT_MAX = 24, SPARSE = 16, SAMPLED = 32, N_SPAN_GROUPS = ROW_SPAN / ROW_GROUP };

/* ---- places ------------------------------------------------------------------------------------------------------------ */

void candidates_set(struct candidates *c, const float *x, const int32_t *ids, int32_t n) {
    c->x = x;
    c->ids = ids;
    c->n = n;
    c->scale = 0;
    c->n_gone = 0;
    c->best = c->w->k->peaks(x, n, c->w->peaks, &c->least);
}

float *candidates_own(struct candidates *c) {
    struct sampler_work *w = c->w;
    if (c->x == w->kept_x) return w->kept_x;
    if (c->x != w->x) memcpy(w->x, c->x, (size_t)c->n * sizeof *w->x);
    c->x = w->x;
    return w->x;
}

int32_t candidates_list(struct candidates *c, float bar) {
    return (int32_t)c->w->k->list(c->x, c->n, c->w->peaks, bar, c->w->list, c->w->list_x);
}

void candidates_keep(struct candidates *c, int32_t n) {
    struct sampler_work *w = c->w;
    for (int32_t i = 0; i < n; i++)
        w->kept_ids[i] = candidates_id(c, w->list[i]); /* in place: what is read lies at or behind what is written */
    memcpy(w->kept_x, w->list_x, (size_t)n * sizeof *w->kept_x);
    candidates_set(c, w->kept_x, w->kept_ids, n);
}

int32_t candidates_first(const struct candidates *c) {
    int32_t at = 0;
    while (c->w->peaks[at / ROW_GROUP] < c->best) at += ROW_GROUP;
    while (c->x[at] < c->best) at++;
    return at;
}

/* ---- masks ------------------------------------------------------------------------------------------------------------- */

/* Both masks as one. */
static const uint32_t *join_masks(uint32_t *out, const uint32_t *mask, const uint32_t *allowed, int32_t n) {
    if (!mask || !allowed) return mask ? mask : allowed;
    for (int32_t i = 0; i < (n + 31) / 32; i++) out[i] = mask[i] & allowed[i];
    return out;
}

/* The bits of a word that stand for tokens. */
static uint32_t mask_word(const uint32_t *bits, int32_t i, int32_t n) {
    return n - 32 * i < 32 ? bits[i] & ((UINT32_C(1) << (n - 32 * i)) - 1) : bits[i];
}

/* More than so many tokens are allowed; the rest is not counted. */
static bool allows_more(const uint32_t *bits, int32_t n, int32_t than) {
    int32_t count = 0;
    for (int32_t i = 0; i < (n + 31) / 32 && count <= than; i++) count += bits_count(mask_word(bits, i, n));
    return count > than;
}

void candidates_masked(struct candidates *c, const float *x, const uint32_t *mask, const uint32_t *allowed) {
    struct sampler_work *w = c->w;
    int32_t n = 0;
    *c = (struct candidates){.w = w, .x = x, .n = w->vocab, .least = -INFINITY};
    const uint32_t *bits = join_masks(w->bits, mask, allowed, c->n);
    if (allows_more(bits, c->n, c->n / SPARSE)) {
        c->best = w->k->mask(x, bits, c->n, w->x, w->peaks);
        c->x = w->x;
        return;
    }
    for (int32_t i = 0; i < (c->n + 31) / 32; i++)
        for (uint32_t word = mask_word(bits, i, c->n); word; word &= word - 1) w->list[n++] = 32 * i + bits_first(word);
    for (int32_t i = 0; i < n; i++) w->list_x[i] = x[w->list[i]];
    candidates_keep(c, n);
}

/* ---- probabilities ----------------------------------------------------------------------------------------------------- */

static double weigh(const struct candidates *c, double *moment) {
    struct sampler_work *w = c->w;
    return w->k->weigh(&(struct row_weigh){.x = c->x,
                                           .n = c->n,
                                           .best = c->best,
                                           .scale = c->scale,
                                           .least = c->least,
                                           .peaks = w->peaks,
                                           .spans = w->spans,
                                           .folds = w->folds,
                                           .moment = moment});
}

static float scale_of(double temperature) {
    return temperature > 1e-30 ? (float)(1 / temperature) : 1e30f;
}

void candidates_scale(struct candidates *c, double temperature) {
    if (c->scale == scale_of(temperature)) return;
    c->scale = scale_of(temperature);
    c->sum = 0;
}

double candidates_weigh(struct candidates *c, double temperature) {
    candidates_scale(c, temperature);
    if (c->sum <= 0) c->sum = weigh(c, NULL); /* the best alone has 1 */
    return c->sum;
}

double candidates_mean(struct candidates *c) {
    double moment;
    c->scale = 1;
    c->sum = weigh(c, &moment);
    return moment / c->sum;
}

int64_t candidates_count(const struct candidates *c) {
    return c->least > -INFINITY ? c->n : c->w->k->count(c->x, c->n);
}

/* n of p from a place on, without those that are gone. */
static void weigh_part(const struct candidates *c, int32_t first, int32_t n, float *p) {
    double sum;
    c->w->k->weigh(&(struct row_weigh){.x = c->x + first,
                                       .n = n,
                                       .best = c->best,
                                       .scale = c->scale,
                                       .least = -INFINITY,
                                       .peaks = c->w->peaks + first / ROW_GROUP,
                                       .p = p,
                                       .spans = &sum});
    for (int32_t i = 0; i < c->n_gone; i++)
        if (c->gone[i] >= first && c->gone[i] < first + n) p[c->gone[i] - first] = 0;
}

static int32_t part_size(const struct candidates *c, int32_t first, int32_t size) {
    return first + size < c->n ? size : c->n - first;
}

float candidates_p(const struct candidates *c, int32_t place) {
    float p[ROW_GROUP];
    int32_t first = place / ROW_GROUP * ROW_GROUP;
    weigh_part(c, first, part_size(c, first, ROW_GROUP), p);
    return p[place - first];
}

static double sum_of_spans(const struct candidates *c) {
    double sum = 0;
    for (int32_t i = 0; i < (int32_t)row_spans(c->n); i++) sum += c->w->spans[i];
    return sum;
}

void candidates_drop(struct candidates *c, const int32_t *places, int32_t n) {
    memcpy(c->gone, places, (size_t)n * sizeof *places);
    c->n_gone = n;
    for (int32_t i = 0; i < n; i++) {
        int32_t first = places[i] / ROW_SPAN * ROW_SPAN, size = part_size(c, first, ROW_SPAN);
        float p[ROW_SPAN];
        double sum = 0;
        weigh_part(c, first, size, p);
        for (int32_t k = 0; k < size; k++) sum += (double)p[k];
        c->w->spans[first / ROW_SPAN] = sum;
    }
    c->sum = sum_of_spans(c);
}

/* The sum of a span from the parts of its groups, in the order of the kernels. */
static double sum_of_folds(const struct candidates *c, int32_t span) {
    double lanes[ROW_LANES] = {0};
    int32_t first = span * N_SPAN_GROUPS, n = (int32_t)row_groups(c->n), last = first + N_SPAN_GROUPS < n ? first + N_SPAN_GROUPS : n;
    for (int32_t i = ROW_LANES * first; i < ROW_LANES * last; i++) lanes[i % ROW_LANES] += (double)c->w->folds[i];
    return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

void candidates_mend(struct candidates *c, const int32_t *tokens, int32_t n) {
    struct sampler_work *w = c->w;
    float best, least, p[ROW_GROUP];
    const uint32_t all = UINT32_MAX;
    int32_t n_groups = 0;
    memset(w->bits, 0, ((size_t)row_groups(c->n) / 32 + 1) * sizeof *w->bits); /* one for each group */
    for (int32_t i = 0; i < n; i++) {
        int32_t group = tokens[i] / ROW_GROUP;
        if (c->x[tokens[i]] < c->least) c->least = c->x[tokens[i]];
        if (w->bits[group / 32] >> group % 32 & 1) continue;
        w->bits[group / 32] |= UINT32_C(1) << group % 32;
        w->list[n_groups++] = group;
        w->k->mask(c->x + group * ROW_GROUP, &all, part_size(c, group * ROW_GROUP, ROW_GROUP), p, &w->peaks[group]);
    }
    best = w->k->peaks(w->peaks, row_groups(c->n), w->upper, &least);
    if (!(best == c->best)) { /* every p is another */
        c->best = best;
        c->scale = 0;
        return;
    }
    w->k->refold(&(struct row_weigh){.x = c->x, .n = c->n, .best = best, .scale = c->scale, .peaks = w->peaks, .folds = w->folds}, w->list,
                 n_groups);
    for (int32_t i = 0; i < (int32_t)row_spans(c->n); i++)
        if (w->bits[i / 2] >> i % 2 * N_SPAN_GROUPS & 0xFFFF) w->spans[i] = sum_of_folds(c, i);
    c->sum = sum_of_spans(c);
}

/* Span by span, then one by one. What rounding leaves over belongs to the last that can come. */
int32_t candidates_at(const struct candidates *c, double mass) {
    float p[ROW_SPAN];
    const double *spans = c->w->spans;
    int32_t span = 0, n_spans = (int32_t)row_spans(c->n), first, last, size;
    for (int32_t i = 0; i < n_spans; i++) {
        if (spans[i] <= ROW_NONE) continue;
        span = i;
        if (mass < spans[i]) break;
        mass -= spans[i];
    }
    first = last = span * ROW_SPAN;
    size = part_size(c, first, ROW_SPAN);
    weigh_part(c, first, size, p);
    for (int32_t i = 0; i < size; i++) {
        if (p[i] <= ROW_NONE) continue;
        last = first + i;
        mass -= (double)p[i];
        if (mass < 0) break;
    }
    return last;
}

/* ---- lists ------------------------------------------------------------------------------------------------------------- */

double candidates_list_weigh(struct candidates *c, int32_t n) {
    struct sampler_work *w = c->w;
    return w->k->weigh(&(struct row_weigh){
        .x = w->list_x, .n = n, .best = c->best, .scale = c->scale, .least = -INFINITY, .p = w->list_p, .spans = w->list_spans});
}

/* ---- orders ------------------------------------------------------------------------------------------------------------ */

/* A number that is the smaller the better the key; both zeros are one. */
static uint32_t rank_of(float key) {
    uint32_t bits;
    key += 0.0f;
    memcpy(&bits, &key, sizeof bits);
    return bits & UINT32_C(0x80000000) ? bits : ~bits & UINT32_C(0x7FFFFFFF);
}

/* Where a cut ends: better keys are before it, and equal ones up to this one in the list. */
struct cut {
    float key;
    int32_t last;
};

static bool is_before(struct cut cut, float key, int32_t at) {
    return key > cut.key || (key == cut.key && at <= cut.last);
}

/* Few places of a list by their keys, the best first; they stand upwards, so equal ones stay in order. */
static void sort_few(const float *keys, int32_t *list, int32_t n) {
    for (int32_t i = 1; i < n; i++) {
        int32_t at = list[i], k = i;
        for (; k > 0 && keys[list[k - 1]] < keys[at]; k--) list[k] = list[k - 1];
        list[k] = at;
    }
}

/* Numbers in the order of their keys, of which a bucket is left. */
struct search {
    const float *keys, *weights; /* weights NULL: each is 1 */
    int32_t *list;               /* [n] places in both */
    int32_t n;
    double mass;
    uint32_t low; /* the best rank, and how many of the bits above it tell a bucket */
    int shift;
};

static double weight_at(const struct search *s, int32_t place) {
    return s->weights ? (double)s->weights[place] : 1;
}

static uint32_t bucket_of(const struct search *s, int32_t place) {
    return (rank_of(s->keys[place]) - s->low) >> s->shift;
}

struct ranks {
    uint32_t low, high;
};

static struct ranks ranks_add(struct ranks r, uint32_t rank) {
    return (struct ranks){rank < r.low ? rank : r.low, rank > r.high ? rank : r.high};
}

static struct ranks ranks_of_all(const float *keys, int32_t n) {
    struct ranks out = {UINT32_MAX, 0};
    for (int32_t i = 0; i < n; i++) out = ranks_add(out, rank_of(keys[i]));
    return out;
}

static struct ranks ranks_of_list(const struct search *s) {
    struct ranks out = {UINT32_MAX, 0};
    for (int32_t i = 0; i < s->n; i++) out = ranks_add(out, rank_of(s->keys[s->list[i]]));
    return out;
}

/* How many buckets there are to be, each with a range of ranks. */
static uint32_t set_buckets(struct search *s, struct ranks r) {
    uint32_t most = s->n < FEW ? N_BUCKETS_FEW : N_BUCKETS;
    s->low = r.low;
    s->shift = 0;
    while ((r.high - r.low) >> s->shift >= most) s->shift++;
    return ((r.high - r.low) >> s->shift) + 1;
}

/* The bucket in which the mass is reached, and the mass less what is before it. */
static uint32_t find_bucket(struct search *s, const double *held, uint32_t n) {
    uint32_t at = 0;
    for (; at < n - 1 && held[at] < s->mass; at++) s->mass -= held[at];
    return at;
}

/* All of n: the bucket's places into the list. */
static void narrow_all(struct search *s, uint32_t n_buckets) {
    double held[N_BUCKETS];
    int32_t kept = 0;
    memset(held, 0, n_buckets * sizeof *held);
    for (int32_t i = 0; i < s->n; i++) held[bucket_of(s, i)] += weight_at(s, i);
    uint32_t bucket = find_bucket(s, held, n_buckets);
    for (int32_t i = 0; i < s->n; i++) {
        s->list[kept] = i;
        kept += bucket_of(s, i) == bucket;
    }
    s->n = kept;
}

/* The same of what is listed. */
static void narrow_list(struct search *s, uint32_t n_buckets) {
    double held[N_BUCKETS];
    int32_t kept = 0;
    memset(held, 0, n_buckets * sizeof *held);
    for (int32_t i = 0; i < s->n; i++) held[bucket_of(s, s->list[i])] += weight_at(s, s->list[i]);
    uint32_t bucket = find_bucket(s, held, n_buckets);
    for (int32_t i = 0; i < s->n; i++) {
        int32_t at = s->list[i];
        s->list[kept] = at;
        kept += bucket_of(s, at) == bucket;
    }
    s->n = kept;
}

/* Where, in the order of keys, the weights (NULL: each is 1) reach mass. */
static struct cut find_cut(struct sampler_work *w, const float *keys, const float *weights, int32_t n, double mass) {
    struct search s = {.keys = keys, .weights = weights, .list = w->narrow, .n = n, .mass = mass};
    struct ranks ranks = ranks_of_all(keys, n);
    int32_t at = 0;
    if (n > SORT_MAX && ranks.low != ranks.high) narrow_all(&s, set_buckets(&s, ranks));
    else
        for (int32_t i = 0; i < n; i++) s.list[i] = i;
    while (s.n > SORT_MAX) {
        ranks = ranks_of_list(&s);
        if (ranks.low == ranks.high) break;
        narrow_list(&s, set_buckets(&s, ranks));
    }
    if (s.n <= SORT_MAX) sort_few(keys, s.list, s.n);
    for (; at < s.n - 1; at++)
        if ((s.mass -= weight_at(&s, s.list[at])) <= 0) break;
    return (struct cut){keys[s.list[at]], s.list[at]};
}

/* A bar that at least k numbers reach: the k-th of their groups' peaks, found through the peaks' own. -infinity where groups are too few. */
static float bar_of_top(struct sampler_work *w, const float *peaks, int32_t n, int32_t k) {
    int32_t n_upper = (int32_t)row_groups(n), n_list;
    float least;
    if (k > n) return -INFINITY;
    if (k > n_upper) return find_cut(w, peaks, NULL, n, k).key;
    w->k->peaks(peaks, n, w->upper, &least);
    n_list = (int32_t)w->k->list(peaks, n, w->upper, find_cut(w, w->upper, NULL, n_upper, k).key, w->list, w->list_x);
    return find_cut(w, w->list_x, NULL, n_list, k).key;
}

/* Of n that are listed those stay that are before the cut. */
static int32_t list_cut(struct sampler_work *w, const float *keys, int32_t n, struct cut cut) {
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        bool stays = is_before(cut, keys[i], i);
        w->list[kept] = w->list[i];
        w->list_x[kept] = w->list_x[i];
        kept += stays;
    }
    return kept;
}

/* Lists the k largest, upwards. */
static int32_t list_top(struct candidates *c, int32_t k) {
    struct sampler_work *w = c->w;
    int32_t n = candidates_list(c, bar_of_top(w, w->peaks, (int32_t)row_groups(c->n), k));
    return list_cut(w, w->list_x, n, find_cut(w, w->list_x, NULL, n, k));
}

void candidates_top(struct candidates *c, int32_t k) {
    if (k < c->n) candidates_keep(c, list_top(c, k));
}

int32_t candidates_best(struct candidates *c, int32_t k) {
    struct sampler_work *w = c->w;
    int32_t n = list_top(c, k < c->n ? k : c->n);
    sort_few(c->x, w->list, n);
    for (int32_t i = 0; i < n; i++) w->list_x[i] = c->x[w->list[i]];
    return n;
}

void candidates_share(struct candidates *c, const float *keys, int32_t n, double mass) {
    candidates_keep(c, list_cut(c->w, keys, n, find_cut(c->w, keys, c->w->list_p, n, mass)));
}

/* A bar that leaves out a little less than is beyond the mass, as a sample of the groups has it; NaN where groups are few. */
static float bar_of_mass(struct candidates *c, double mass) {
    struct sampler_work *w = c->w;
    int32_t n = 0;
    for (int32_t first = 0; first + ROW_GROUP <= c->n; first += SAMPLED * ROW_GROUP, n += ROW_GROUP)
        memcpy(w->list_x + n, c->x + first, ROW_GROUP * sizeof *c->x);
    if (n < 64 * ROW_GROUP) return NAN;
    candidates_list_weigh(c, n);
    for (int32_t i = 0; i < n; i++) w->keys[i] = -w->list_x[i]; /* from the least likely on: they are many and much alike */
    return -find_cut(w, w->keys, w->list_p, n, (c->sum - mass) * 0.8 / SAMPLED).key;
}

int32_t candidates_list_mass(struct candidates *c, double reach, double mass) {
    bool is_sampled = false;
    for (;;) {
        bool is_all = reach > (double)-ROW_LEAST; /* what is further counts as nothing */
        int32_t n = candidates_list(c, is_all ? -INFINITY : (float)((double)c->best - reach));
        if (candidates_list_weigh(c, n) >= mass || is_all) return n;
        reach = reach * 1.5 + 1;
        if (is_sampled || n < FEW / 4) continue;
        float bar = bar_of_mass(c, mass);
        is_sampled = true;
        if (bar < c->best) reach = (double)c->best - (double)bar;
    }
}
