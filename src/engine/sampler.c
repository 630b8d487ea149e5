/* The sampler's chain. Sums are in double and in a fixed order, so that a seed gives the same text on every machine whose
 * logits are the same. */
#include "engine/sampler.h"

#include "base/arena.h"
#include "base/fmath.h"
#include "base/rng.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

/* Repetitions count up to this length. More would change nothing, and the limit keeps the search linear. */
enum { DRY_MATCH_MAX = 128, MIROSTAT_TOP = 100 };
/* The best k of n candidates are picked by a heap if k <= HEAP_MAX or k <= n / HEAP_SHARE. Otherwise all are sorted by a radix sort over their keys. */
enum { HEAP_MAX = 256, HEAP_SHARE = 32, DIGIT_BITS = 8, N_DIGIT_VALUES = 1 << DIGIT_BITS, BUCKET_BITS = 11, N_BUCKETS = 1 << BUCKET_BITS };

struct candidate {
    int32_t id;
    float logit;
    float key; /* what the order is by */
    float p;   /* relative probability, where a step has computed it */
};

struct sampler_work {
    int32_t vocab;
    struct candidate *items, *spare; /* [vocab] */
    uint64_t *keys[2];               /* [vocab] */
    uint32_t *counts;                /* [vocab] all 0 between calls */
};

struct chain {
    const struct sampler_params *p;
    const struct sampler_input *in;
    struct sampler_work *w;
    struct candidate *c; /* [n]; by id until a step orders them */
    int32_t n;
};

struct sampler_params sampler_defaults(void) {
    return (struct sampler_params){.top_p = 1,
                                   .typical_p = 1,
                                   .repetition = 1,
                                   .last_n = -1,
                                   .n_top = -1,
                                   .xtc_threshold = 0.1f,
                                   .dry_base = 1.75f,
                                   .dry_allowed = 2,
                                   .dry_last_n = -1,
                                   .mirostat_tau = 5,
                                   .mirostat_eta = 0.1f,
                                   .dynatemp_exponent = 1};
}

/* ---- parameters by name ---------------------------------------------------------------------------------------------- */

#define AT(member) offsetof(struct sampler_params, member)

const struct sampler_field sampler_fields[] = {
    {"temperature", "temp", AT(temperature), false, 0, 100},
    {"top_k", NULL, AT(top_k), true, 0, INT32_MAX},
    {"top_p", NULL, AT(top_p), false, 1e-9, 1},
    {"min_p", NULL, AT(min_p), false, 0, 1},
    {"typical_p", NULL, AT(typical_p), false, 1e-9, 1},
    {"xtc_probability", NULL, AT(xtc_probability), false, 0, 1},
    {"xtc_threshold", NULL, AT(xtc_threshold), false, 0, 1},
    {"repetition_penalty", "repeat_penalty", AT(repetition), false, 1e-3, 1e3},
    {"repeat_last_n", "repetition_context_size", AT(last_n), true, -1, INT32_MAX},
    {"frequency_penalty", NULL, AT(frequency), false, -100, 100},
    {"presence_penalty", NULL, AT(presence), false, -100, 100},
    {"dry_multiplier", NULL, AT(dry_multiplier), false, 0, 100},
    {"dry_base", NULL, AT(dry_base), false, 1, 100},
    {"dry_allowed_length", NULL, AT(dry_allowed), true, 1, INT32_MAX},
    {"dry_penalty_last_n", NULL, AT(dry_last_n), true, -1, INT32_MAX},
    {"mirostat", NULL, AT(mirostat), true, 0, 2},
    {"mirostat_tau", NULL, AT(mirostat_tau), false, 0, 100},
    {"mirostat_eta", NULL, AT(mirostat_eta), false, 0, 100},
    {"dynatemp_range", NULL, AT(dynatemp_range), false, 0, 100},
    {"dynatemp_exponent", NULL, AT(dynatemp_exponent), false, 0, 100},
};
const size_t n_sampler_fields = sizeof sampler_fields / sizeof *sampler_fields;

const struct sampler_field *sampler_field_find(struct str name) {
    for (size_t i = 0; i < n_sampler_fields; i++)
        if (str_is(name, sampler_fields[i].name) || (sampler_fields[i].other && str_is(name, sampler_fields[i].other)))
            return &sampler_fields[i];
    return NULL;
}

double sampler_field_get(const struct sampler_params *p, const struct sampler_field *f) {
    const char *at = (const char *)p + f->offset;
    return f->is_int ? (double)*(const int32_t *)at : (double)*(const float *)at;
}

static bool within(double value, double min, double max) {
    return value >= min && value <= max; /* false for what is no number */
}

bool sampler_field_set(struct sampler_params *p, const struct sampler_field *f, double value) {
    char *at = (char *)p + f->offset;
    if (!within(value, f->min, f->max) || (f->is_int && value != floor(value))) return false;
    if (f->is_int) *(int32_t *)at = (int32_t)value;
    else *(float *)at = (float)value;
    return true;
}

int sampler_check(const struct sampler_params *p, int32_t vocab, struct err *err) {
    for (size_t i = 0; i < n_sampler_fields; i++) {
        const struct sampler_field *f = &sampler_fields[i];
        if (!within(sampler_field_get(p, f), f->min, f->max))
            return err_set(err, ERR_EARG, "%s is out of range: %g to %g", f->name, f->min, f->max);
    }
    if (!within(p->n_bias, 0, SAMPLER_BIAS_MAX)) return err_set(err, ERR_EARG, "logit_bias takes at most %d tokens", SAMPLER_BIAS_MAX);
    if (!within(p->n_top, -1, SAMPLER_TOP_MAX)) return err_set(err, ERR_EARG, "top_logprobs is out of range: 0 to %d", SAMPLER_TOP_MAX);
    for (int32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].token < 0 || p->bias[i].token >= vocab)
            return err_set(err, ERR_EARG, "logit_bias: token %d is outside the vocabulary of %d", p->bias[i].token, vocab);
        if (!within((double)p->bias[i].bias, -1e6, 1e6))
            return err_set(err, ERR_EARG, "logit_bias of token %d is out of range", p->bias[i].token);
    }
    return ERR_OK;
}

static bool has_penalties(const struct sampler_params *p) {
    return p->repetition != 1 || p->frequency != 0 || p->presence != 0;
}

static bool wants_dry(const struct sampler_params *p) {
    return p->dry_multiplier > 0 && p->dry_last_n != 0;
}

bool sampler_is_plain(const struct sampler_params *p) {
    return p->temperature == 0 && p->n_bias == 0 && !has_penalties(p) && !wants_dry(p) && p->n_top < 0;
}

struct sampler_work *sampler_work_create(int32_t vocab) {
    struct sampler_work *w = mem_alloc(sizeof *w);
    w->vocab = vocab;
    w->items = mem_alloc((size_t)vocab * sizeof *w->items);
    w->spare = mem_alloc((size_t)vocab * sizeof *w->spare);
    for (int i = 0; i < 2; i++) w->keys[i] = mem_alloc((size_t)vocab * sizeof *w->keys[i]);
    w->counts = mem_alloc((size_t)vocab * sizeof *w->counts);
    return w;
}

void sampler_work_destroy(struct sampler_work *w) {
    if (!w) return;
    mem_free(w->items);
    mem_free(w->spare);
    for (int i = 0; i < 2; i++) mem_free(w->keys[i]);
    mem_free(w->counts);
    mem_free(w);
}

/* ---- order ------------------------------------------------------------------------------------------------------- */

/* a stands behind b; of equal ones the higher id. */
static bool worse(const struct candidate *a, const struct candidate *b) {
    return a->key < b->key || (a->key == b->key && a->id > b->id);
}

static void swap(struct candidate *a, struct candidate *b) {
    struct candidate t = *a;
    *a = *b;
    *b = t;
}

/* A heap with the worst on top. */
static void sift(struct candidate *c, int32_t n, int32_t i) {
    for (;;) {
        int32_t child = 2 * i + 1;
        if (child >= n) return;
        if (child + 1 < n && worse(&c[child + 1], &c[child])) child++;
        if (!worse(&c[child], &c[i])) return;
        swap(&c[child], &c[i]);
        i = child;
    }
}

/* The k best come first, in order; the others follow in none. */
static void order_by_heap(struct candidate *c, int32_t n, int32_t k) {
    for (int32_t i = k / 2 - 1; i >= 0; i--) sift(c, k, i);
    for (int32_t i = k; i < n; i++)
        if (worse(&c[0], &c[i])) {
            swap(&c[0], &c[i]);
            sift(c, k, 0);
        }
    for (int32_t end = k - 1; end > 0; end--) {
        swap(&c[0], &c[end]);
        sift(c, end, 0);
    }
}

/* Orders keys as whole numbers: a better key has a smaller number. 0 and -0 have the same. */
static uint32_t rank_bits(float key) {
    uint32_t bits;
    key += 0.0f;
    memcpy(&bits, &key, sizeof bits);
    return bits & UINT32_C(0x80000000) ? bits : ~bits & UINT32_C(0x7FFFFFFF);
}

/* One pass of a stable sort by the digit at `shift`; false, and nothing moved, where all have the same. */
static bool sort_by_digit(const uint64_t *from, uint64_t *to, int32_t n, int shift) {
    int32_t starts[N_DIGIT_VALUES] = {0}, at = 0;
    for (int32_t i = 0; i < n; i++) starts[from[i] >> shift & (N_DIGIT_VALUES - 1)]++;
    if (starts[from[0] >> shift & (N_DIGIT_VALUES - 1)] == n) return false;
    for (int32_t v = 0; v < N_DIGIT_VALUES; v++) {
        int32_t count = starts[v];
        starts[v] = at;
        at += count;
    }
    for (int32_t i = 0; i < n; i++) to[starts[from[i] >> shift & (N_DIGIT_VALUES - 1)]++] = from[i];
    return true;
}

/* The first n in order, in a time that does not depend on how they lie. What is sorted is the key's rank above the id. */
static void order_by_digits(struct chain *s, int32_t n) {
    uint64_t *from = s->w->keys[0], *to = s->w->keys[1];
    uint32_t *places = s->w->counts;
    bool by_id = true; /* they mostly lie so already */
    for (int32_t i = 0; i < n; i++) {
        from[i] = (uint64_t)rank_bits(s->c[i].key) << 32 | (uint32_t)s->c[i].id;
        by_id = by_id && (i == 0 || s->c[i - 1].id < s->c[i].id);
        places[s->c[i].id] = (uint32_t)i;
    }
    for (int shift = by_id ? 32 : 0; shift < 64; shift += DIGIT_BITS) {
        if (!sort_by_digit(from, to, n, shift)) continue;
        uint64_t *t = from;
        from = to;
        to = t;
    }
    memcpy(s->w->spare, s->c, (size_t)n * sizeof *s->c);
    for (int32_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)from[i];
        s->c[i] = s->w->spare[places[id]];
        places[id] = 0;
    }
}

/* The k best come first, in order; the others follow in any. */
static void order(struct chain *s, int32_t k) {
    if (k > s->n) k = s->n;
    if (k <= HEAP_MAX || k <= s->n / HEAP_SHARE) order_by_heap(s->c, s->n, k);
    else order_by_digits(s, s->n);
}

/* Moves the best candidates to the front, as many as together hold about `mass`, and returns how many. They keep their order. Whole buckets of
 * near keys are moved, so that no candidate left behind is better than one that was moved. */
static int32_t gather_best(struct chain *s, double mass) {
    double held[N_BUCKETS] = {0}, sum = 0;
    uint32_t last = 0;
    int32_t kept = 0, n_rest = 0;
    for (int32_t i = 0; i < s->n; i++) held[rank_bits(s->c[i].key) >> (32 - BUCKET_BITS)] += (double)s->c[i].p;
    while (last < N_BUCKETS - 1 && (sum += held[last]) < mass) last++;
    for (int32_t i = 0; i < s->n; i++) {
        if (rank_bits(s->c[i].key) >> (32 - BUCKET_BITS) <= last) s->c[kept++] = s->c[i];
        else s->w->spare[n_rest++] = s->c[i];
    }
    memcpy(s->c + kept, s->w->spare, (size_t)n_rest * sizeof *s->c);
    return kept;
}

/* ---- steps --------------------------------------------------------------------------------------------------------- */

/* Relative probabilities at this temperature; the sum of all. */
static double weigh(struct chain *s, double temperature) {
    float best = s->c[0].logit;
    double sum = 0;
    for (int32_t i = 1; i < s->n; i++)
        if (s->c[i].logit > best) best = s->c[i].logit;
    for (int32_t i = 0; i < s->n; i++) {
        s->c[i].p = (float)m_exp(((double)s->c[i].logit - (double)best) / temperature);
        sum += (double)s->c[i].p;
    }
    return sum;
}

/* Sorts the candidates and keeps the first ones, until they hold `share` of the sum. gather_best estimates how many that takes, so that usually only
 * those are sorted. Its sum is rounded differently: if the estimate is too small, all are sorted. */
static void keep_share(struct chain *s, double share, double sum) {
    double held = 0;
    int32_t n_all = s->n, kept = 0, n_ordered = n_all > HEAP_MAX ? gather_best(s, share * sum) : n_all;
    s->n = n_ordered;
    order(s, n_ordered);
    while (kept < n_all && held < share * sum) {
        if (kept == n_ordered) {
            s->n = n_ordered = n_all;
            order(s, n_all);
        }
        held += (double)s->c[kept++].p;
    }
    s->n = kept;
}

static void add_bias(struct chain *s) {
    for (int32_t i = 0; i < s->p->n_bias; i++) s->c[s->p->bias[i].token].logit += s->p->bias[i].bias;
}

static void penalize(struct chain *s) {
    const struct sampler_input *in = s->in;
    uint32_t *counts = s->w->counts;
    int32_t first = s->p->last_n < 0 || s->p->last_n > in->n_history ? 0 : in->n_history - s->p->last_n;
    for (int32_t i = first; i < in->n_history && s->p->repetition != 1; i++) {
        if (in->history[i] & PICTURE_TOKEN) continue;
        struct candidate *c = &s->c[in->history[i]];
        if (counts[c->id]++ == 0) c->logit = c->logit > 0 ? c->logit / s->p->repetition : c->logit * s->p->repetition;
    }
    for (int32_t i = first; i < in->n_history; i++)
        if (!(in->history[i] & PICTURE_TOKEN)) counts[in->history[i]] = 0;
    for (int32_t i = in->n_prompt; i < in->n_history; i++) counts[in->history[i]]++;
    for (int32_t i = in->n_prompt; i < in->n_history; i++) {
        struct candidate *c = &s->c[in->history[i]];
        if (counts[c->id] == 0) continue;
        c->logit -= (float)counts[c->id] * s->p->frequency + s->p->presence;
        counts[c->id] = 0;
    }
}

static bool breaks(const struct sampler_input *in, int32_t token) {
    return (token & PICTURE_TOKEN) || (in->breakers && in->breakers[token / 32] >> (token % 32) & 1);
}

/* How far the text before place i of the window equals its end. */
static int32_t match_length(const int32_t *window, int32_t n, int32_t i, int32_t limit) {
    int32_t length = 0;
    while (length < limit && length < i && window[i - 1 - length] == window[n - 1 - length]) length++;
    return length;
}

/* "Don't repeat yourself": what would go on with a sequence that stood there before loses by the sequence's length. */
static void penalize_repetition(struct chain *s) {
    const struct sampler_params *p = s->p;
    const struct sampler_input *in = s->in;
    int32_t n = p->dry_last_n < 0 || p->dry_last_n > in->n_history ? in->n_history : p->dry_last_n, limit = 0;
    const int32_t *window = in->history + (in->n_history - n);
    uint32_t *longest = s->w->counts;
    while (limit < n && limit < DRY_MATCH_MAX && !breaks(in, window[n - 1 - limit])) limit++;
    if (limit < p->dry_allowed) return;
    for (int32_t i = 1; i < n; i++) {
        uint32_t length = (uint32_t)match_length(window, n, i, limit);
        if (!(window[i] & PICTURE_TOKEN) && length > longest[window[i]]) longest[window[i]] = length;
    }
    for (int32_t i = 1; i < n; i++) {
        if (window[i] & PICTURE_TOKEN) continue;
        struct candidate *c = &s->c[window[i]];
        int32_t over = (int32_t)longest[c->id] - p->dry_allowed;
        if (over >= 0) c->logit -= (float)((double)p->dry_multiplier * m_pow((double)p->dry_base, over));
        longest[c->id] = 0;
    }
}

static void key_by_logit(struct chain *s) {
    for (int32_t i = 0; i < s->n; i++) s->c[i].key = s->c[i].logit;
}

static void cut_top_k(struct chain *s) {
    if (s->p->top_k >= s->n) return;
    key_by_logit(s);
    order(s, s->p->top_k);
    s->n = s->p->top_k;
}

/* Keeps what is nearest to the expected surprise. */
static void cut_typical(struct chain *s) {
    double sum = weigh(s, 1), entropy = 0;
    for (int32_t i = 0; i < s->n; i++)
        if (s->c[i].p > 0) entropy -= (double)s->c[i].p / sum * m_log((double)s->c[i].p / sum);
    for (int32_t i = 0; i < s->n; i++) s->c[i].key = s->c[i].p > 0 ? (float)-fabs(-m_log((double)s->c[i].p / sum) - entropy) : -INFINITY;
    keep_share(s, (double)s->p->typical_p, sum);
}

static void cut_top_p(struct chain *s) {
    double sum = weigh(s, 1);
    key_by_logit(s);
    keep_share(s, (double)s->p->top_p, sum);
}

static void cut_min_p(struct chain *s) {
    int32_t kept = 0;
    weigh(s, 1); /* the best has 1 */
    for (int32_t i = 0; i < s->n; i++)
        if (s->c[i].p >= s->p->min_p) s->c[kept++] = s->c[i];
    s->n = kept;
}

/* Drops all but the least of the tokens that hold the threshold: the exciting ones stay. By its own random number. */
static void cut_top_choices(struct chain *s) {
    if (rng_uniform(s->p->seed, (uint64_t)s->in->n_history, 1) >= (double)s->p->xtc_probability) return;
    double bar = weigh(s, 1) * (double)s->p->xtc_threshold;
    int32_t least = -1, n_above = 0, kept = 0;
    key_by_logit(s);
    for (int32_t i = 0; i < s->n; i++) {
        if ((double)s->c[i].p < bar) continue;
        n_above++;
        if (least < 0 || worse(&s->c[i], &s->c[least])) least = i;
    }
    if (n_above < 2) return;
    for (int32_t i = 0; i < s->n; i++)
        if (i == least || (double)s->c[i].p < bar) s->c[kept++] = s->c[i];
    s->n = kept;
}

static bool wants_bias(const struct sampler_params *p) {
    return p->n_bias > 0;
}
static bool draws(const struct sampler_params *p) {
    return p->temperature > 0;
}
static bool wants_top_k(const struct sampler_params *p) {
    return p->top_k > 0;
}
static bool wants_typical(const struct sampler_params *p) {
    return p->typical_p < 1;
}
static bool wants_top_p(const struct sampler_params *p) {
    return p->top_p < 1;
}
static bool wants_min_p(const struct sampler_params *p) {
    return p->min_p > 0;
}
static bool wants_xtc(const struct sampler_params *p) {
    return p->xtc_probability > 0 && p->xtc_threshold <= 0.5f;
}

struct step {
    bool (*wanted)(const struct sampler_params *p);
    void (*run)(struct chain *s);
};

/* The chain, in this order. What shapes logits finds the candidates by id; what cuts gets none that are masked. */
static const struct step shaping[] = {{wants_bias, add_bias}, {has_penalties, penalize}, {wants_dry, penalize_repetition}, {NULL, NULL}};
static const struct step cuts[] = {{wants_top_k, cut_top_k}, {wants_typical, cut_typical}, {wants_top_p, cut_top_p},
                                   {wants_min_p, cut_min_p}, {wants_xtc, cut_top_choices}, {NULL, NULL}};

static void run_steps(struct chain *s, const struct step *steps) {
    for (; steps->run; steps++)
        if (steps->wanted(s->p)) steps->run(s);
}

/* ---- the whole ------------------------------------------------------------------------------------------------------- */

static int32_t best_of(const struct chain *s) {
    int32_t best = 0;
    for (int32_t i = 1; i < s->n; i++)
        if (s->c[i].logit > s->c[best].logit) best = i;
    return s->c[best].id;
}

/* The temperature; a dynamic one is high where the candidates are many and even, low where one stands out. */
static double temperature_of(struct chain *s) {
    double t = (double)s->p->temperature, range = (double)s->p->dynatemp_range, entropy = 0;
    if (range <= 0 || s->n < 2) return t;
    double low = t > range ? t - range : 0, sum = weigh(s, 1);
    for (int32_t i = 0; i < s->n; i++)
        if (s->c[i].p > 0) entropy -= (double)s->c[i].p / sum * m_log((double)s->c[i].p / sum);
    double share = entropy / m_log((double)s->n);
    return low + (t + range - low) * m_pow(share < 0 ? 0 : share > 1 ? 1 : share, (double)s->p->dynatemp_exponent);
}

/* Candidates by the numbers of their tokens, whatever a cut has made of their order. */
static void order_by_id(struct chain *s) {
    uint32_t *places = s->w->counts;
    int32_t n = 0;
    bool is_done = true;
    for (int32_t i = 1; i < s->n && is_done; i++) is_done = s->c[i - 1].id < s->c[i].id;
    if (is_done) return;
    memcpy(s->w->spare, s->c, (size_t)s->n * sizeof *s->c);
    for (int32_t i = 0; i < s->n; i++) places[s->c[i].id] = (uint32_t)i + 1;
    for (int32_t id = 0; n < s->n; id++) {
        if (places[id] == 0) continue;
        s->c[n++] = s->w->spare[places[id] - 1];
        places[id] = 0;
    }
}

/* Draws a candidate by its share of the sum. The sum goes over the tokens in the order of their ids. So the result does not depend on the order in
 * which a cut left the candidates, and a device does not have to sort. */
static const struct candidate *pick(struct chain *s, double sum) {
    order_by_id(s);
    double left = rng_uniform(s->p->seed, (uint64_t)s->in->n_history, 0) * sum;
    const struct candidate *last = NULL;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->c[i].p <= 0) continue;
        last = &s->c[i];
        left -= (double)last->p;
        if (left < 0) break;
    }
    return last;
}

/* How many candidates mirostat keeps by its first version: from the slope of the most likely ones in Zipf's picture. */
static int32_t zipf_count(struct chain *s, double mu) {
    int32_t n = s->n < MIROSTAT_TOP ? s->n : MIROSTAT_TOP;
    double tb = 0, tt = 0;
    order(s, n);
    for (int32_t i = 0; i + 1 < n && s->c[i + 1].p > 0; i++) {
        double t = m_log((double)(i + 2) / (double)(i + 1)), b = m_log((double)s->c[i].p / (double)s->c[i + 1].p);
        tb += t * b;
        tt += t * t;
    }
    double slope = tt > 0 ? tb / tt : 1, over = slope - 1;
    double k = m_pow(over * m_pow(2, mu) / (1 - m_pow((double)s->w->vocab, -over)), 1 / slope);
    return k >= 1 && k < (double)s->n ? (int32_t)k : k >= (double)s->n || isnan(k) ? s->n : 1;
}

/* Keeps what surprises by no more than mu bits, the best in any case. */
static void cut_surprise(struct chain *s, double sum, double mu) {
    int32_t kept = 0, best = 0;
    for (int32_t i = 1; i < s->n; i++)
        if (worse(&s->c[best], &s->c[i])) best = i;
    for (int32_t i = 0; i < s->n; i++)
        if (i == best || (s->c[i].p > 0 && -m_log((double)s->c[i].p / sum) / m_log(2) <= mu)) s->c[kept++] = s->c[i];
    s->n = kept;
}

static const struct candidate *draw_mirostat(struct chain *s, double sum) {
    struct sampler_state *state = s->in->state;
    assert(state);
    if (!state->begun) *state = (struct sampler_state){true, 2 * (double)s->p->mirostat_tau};
    key_by_logit(s);
    if (s->p->mirostat == 1) {
        int32_t k = zipf_count(s, state->mu);
        order(s, k);
        s->n = k;
    } else {
        cut_surprise(s, sum, state->mu);
    }
    sum = 0;
    for (int32_t i = 0; i < s->n; i++) sum += (double)s->c[i].p;
    const struct candidate *c = pick(s, sum);
    state->mu -= (double)s->p->mirostat_eta * (-m_log((double)c->p / sum) / m_log(2) - (double)s->p->mirostat_tau);
    return c;
}

static int32_t draw(struct chain *s) {
    if (s->p->mirostat == 0) run_steps(s, cuts);
    double temperature = temperature_of(s);
    if (temperature <= 0) return best_of(s);
    double sum = weigh(s, temperature);
    return (s->p->mirostat ? draw_mirostat(s, sum) : pick(s, sum))->id;
}

static void report(struct chain *s, int32_t token, struct sampler_result *out) {
    const float *logits = s->in->logits;
    int32_t vocab = s->w->vocab, n_top = s->p->n_top;
    double best = -INFINITY, sum = 0;
    for (int32_t i = 0; i < vocab; i++)
        if ((double)logits[i] > best) best = (double)logits[i];
    for (int32_t i = 0; i < vocab; i++) sum += m_exp((double)logits[i] - best);
    double norm = best + m_log(sum);
    out->logprob = (float)((double)logits[token] - norm);
    out->n_top = 0;
    if (n_top == 0) return;
    for (int32_t i = 0; i < vocab; i++) s->c[i] = (struct candidate){.id = i, .logit = logits[i], .key = logits[i]};
    s->n = vocab;
    if (n_top > vocab) n_top = vocab;
    order(s, n_top);
    for (int32_t i = 0; i < n_top; i++)
        if (s->c[i].key > -INFINITY) out->top[out->n_top++] = (struct sampler_top){s->c[i].id, (float)((double)s->c[i].key - norm)};
}

/* Reports the candidates as they were at the draw. Without a draw there is only the chosen one. */
static void report_drawn(struct chain *s, int32_t token, struct sampler_result *out) {
    double sum = 0;
    *out = (struct sampler_result){.n_top = s->p->n_top > 0, .top = {{token, 0}}};
    if (!draws(s->p)) return;
    for (int32_t i = 0; i < s->n; i++) {
        s->c[i].key = s->c[i].p;
        sum += (double)s->c[i].p;
        if (s->c[i].id == token) out->logprob = s->c[i].p;
    }
    double norm = m_log(sum);
    int32_t n_top = s->p->n_top < s->n ? s->p->n_top : s->n;
    out->logprob = (float)(m_log((double)out->logprob) - norm);
    out->n_top = 0;
    if (n_top == 0) return;
    order(s, n_top);
    for (int32_t i = 0; i < n_top; i++)
        if (s->c[i].key > 0) out->top[out->n_top++] = (struct sampler_top){s->c[i].id, (float)(m_log((double)s->c[i].key) - norm)};
}

/* Drops masked tokens; -1 when something is no number. */
static int32_t drop_masked(struct chain *s) {
    const uint32_t *mask = s->in->mask, *allowed = s->in->allowed;
    int32_t kept = 0;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->c[i].logit == -INFINITY) continue;
        if (!isfinite(s->c[i].logit)) return -1;
        if (mask && !(mask[s->c[i].id / 32] >> s->c[i].id % 32 & 1)) continue;
        if (allowed && !(allowed[s->c[i].id / 32] >> s->c[i].id % 32 & 1)) continue;
        s->c[kept++] = s->c[i];
    }
    return s->n = kept;
}

void sampler_report(struct sampler_work *w, const float *logits, int32_t token, int32_t n_top, struct sampler_result *out) {
    struct sampler_params p = {.n_top = n_top};
    struct sampler_input in = {.logits = logits};
    struct chain s = {.p = &p, .in = &in, .w = w, .c = w->items, .n = w->vocab};
    report(&s, token, out);
}

int32_t sampler_choose(struct sampler_work *w, const struct sampler_params *p, const struct sampler_input *in, struct sampler_result *out,
                       struct err *err) {
    struct chain s = {.p = p, .in = in, .w = w, .c = w->items, .n = w->vocab};
    for (int32_t i = 0; i < w->vocab; i++) s.c[i] = (struct candidate){.id = i, .logit = in->logits[i]};
    run_steps(&s, shaping);
    for (int32_t i = 0; i < in->n_never; i++) s.c[in->never[i]].logit = -INFINITY;
    int32_t n = drop_masked(&s);
    if (n <= 0) {
        err_set(err, ERR_EDEVICE, n < 0 ? "the model gave logits that are no numbers" : "no token can be chosen: all are masked");
        return -1;
    }
    int32_t token = draws(p) ? draw(&s) : best_of(&s);
    assert(token >= 0 && token < w->vocab);
    if (p->n_top >= 0 && p->top_is_drawn) report_drawn(&s, token, out);
    else if (p->n_top >= 0) report(&s, token, out);
    return token;
}
