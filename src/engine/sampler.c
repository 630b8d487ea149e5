/* The sampler's chain. Sums are in double and in a fixed order, so that a seed gives the same text on every machine whose
 * logits are the same. */
#include "engine/sampler.h"

#include "base/arena.h"
#include "base/fmath.h"
#include "base/rng.h"
#include "engine/candidates.h"
#include "os/cpu.h"

#include <assert.h>
#include <string.h>

/* A longer repetition is as hopeless as one of this length, and the search stays linear. */
enum { DRY_MATCH_MAX = 128, MIROSTAT_TOP = 100 };
/* Logarithms and exponentials are rounded: what is this near to a bar is compared once more. */
#define SLACK 1e-3

struct chain {
    const struct sampler_params *p;
    const struct sampler_input *in;
    struct candidates c;
    float *x;   /* the row while it is shaped */
    bool saves; /* it is the caller's: what is changed is noted */
    int32_t n_saved;
    int32_t gone[GONE_MAX]; /* places that XTC takes out of the draw */
    int32_t n_gone;
};

static bool penalizes_seen(const struct sampler_params *p) {
    return p->repetition != 1;
}

static bool penalizes_counted(const struct sampler_params *p) {
    return p->frequency != 0 || p->presence != 0;
}

static bool wants_dry(const struct sampler_params *p) {
    return p->dry_multiplier > 0 && p->dry_last_n != 0;
}

static bool is_shaped(const struct sampler_params *p) {
    return p->n_bias > 0 || penalizes_seen(p) || penalizes_counted(p) || wants_dry(p);
}

bool sampler_is_plain(const struct sampler_params *p) {
    return p->temperature == 0 && !is_shaped(p) && p->n_top < 0;
}

struct sampler_work *sampler_work_create(int32_t vocab) {
    struct sampler_work *w = mem_alloc(sizeof *w);
    size_t n = (size_t)vocab, n_groups = (size_t)row_groups(vocab);
    w->vocab = vocab;
    w->k = row_select(cpu_flags());
    w->x = mem_alloc(n * sizeof *w->x);
    w->saved_x = mem_alloc((n / SAVED_SHARE + 1) * sizeof *w->saved_x);
    w->saved_ids = mem_alloc((n / SAVED_SHARE + 1) * sizeof *w->saved_ids);
    w->kept_x = mem_alloc(n * sizeof *w->kept_x);
    w->kept_ids = mem_alloc(n * sizeof *w->kept_ids);
    w->keys = mem_alloc(n * sizeof *w->keys);
    w->spans = mem_alloc((size_t)row_spans(vocab) * sizeof *w->spans);
    w->folds = mem_alloc(n_groups * ROW_LANES * sizeof *w->folds);
    w->peaks = mem_alloc(n_groups * sizeof *w->peaks);
    w->upper = mem_alloc((size_t)row_groups((int64_t)n_groups) * sizeof *w->upper);
    w->list = mem_alloc((n + 1) * sizeof *w->list); /* a list is written one ahead */
    w->narrow = mem_alloc((n + 1) * sizeof *w->narrow);
    w->list_x = mem_alloc((n + 1) * sizeof *w->list_x);
    w->list_p = mem_alloc(n * sizeof *w->list_p);
    w->list_spans = mem_alloc((size_t)row_spans(vocab) * sizeof *w->list_spans);
    w->counts = mem_alloc(n * sizeof *w->counts);
    w->bits = mem_alloc((n / 32 + 1) * sizeof *w->bits);
    w->seen = mem_alloc((n / 32 + 1) * sizeof *w->seen);
    return w;
}

void sampler_work_destroy(struct sampler_work *w) {
    if (!w) return;
    void *const all[] = {w->x,    w->saved_x, w->saved_ids, w->kept_x, w->kept_ids,   w->keys,   w->spans, w->folds, w->peaks, w->upper,
                         w->list, w->narrow,  w->list_x,    w->list_p, w->list_spans, w->counts, w->bits,  w->seen,  w};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) mem_free(all[i]);
}

/* ---- shaping ------------------------------------------------------------------------------------------------------- */

/* Notes a logit before it is changed. */
static void save(struct chain *s, int32_t token) {
    if (!s->saves) return;
    s->c.w->saved_ids[s->n_saved] = token;
    s->c.w->saved_x[s->n_saved++] = s->x[token];
}

static void add_bias(struct chain *s) {
    for (int32_t i = 0; i < s->p->n_bias; i++) {
        save(s, s->p->bias[i].token);
        s->x[s->p->bias[i].token] += s->p->bias[i].bias;
    }
}

/* Sets the token's bit; whether it was not set. */
static bool is_new(uint32_t *bits, int32_t token) {
    uint32_t *word = &bits[token / 32], bit = UINT32_C(1) << token % 32;
    bool is_clear = !(*word & bit);
    *word |= bit;
    return is_clear;
}

/* Tokens of the history, each once. */
static void penalize_seen(struct chain *s) {
    const struct sampler_input *in = s->in;
    uint32_t *seen = s->c.w->seen;
    int32_t first = s->p->last_n < 0 || s->p->last_n > in->n_history ? 0 : in->n_history - s->p->last_n;
    for (int32_t i = first; i < in->n_history; i++) {
        int32_t token = in->history[i];
        if ((token & PICTURE_TOKEN) || !is_new(seen, token)) continue;
        float x = s->x[token];
        save(s, token);
        s->x[token] = x > 0 ? x / s->p->repetition : x * s->p->repetition;
    }
    for (int32_t i = first; i < in->n_history; i++)
        if (!(in->history[i] & PICTURE_TOKEN)) seen[in->history[i] / 32] = 0;
}

/* Tokens of the answer, by how often each stands in it. */
static void penalize_counted(struct chain *s) {
    const struct sampler_input *in = s->in;
    uint32_t *counts = s->c.w->counts;
    for (int32_t i = in->n_prompt; i < in->n_history; i++) counts[in->history[i]]++;
    for (int32_t i = in->n_prompt; i < in->n_history; i++) {
        int32_t id = in->history[i];
        if (counts[id] == 0) continue;
        save(s, id);
        s->x[id] -= (float)counts[id] * s->p->frequency + s->p->presence;
        counts[id] = 0;
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
    uint32_t *longest = s->c.w->counts;
    while (limit < n && limit < DRY_MATCH_MAX && !breaks(in, window[n - 1 - limit])) limit++;
    if (limit < p->dry_allowed) return;
    for (int32_t i = 1; i < n; i++) {
        uint32_t length = (uint32_t)match_length(window, n, i, limit);
        if (!(window[i] & PICTURE_TOKEN) && length > 0 && length > longest[window[i]]) longest[window[i]] = length;
    }
    for (int32_t i = 1; i < n; i++) {
        if ((window[i] & PICTURE_TOKEN) || window[i - 1] != window[n - 1] || longest[window[i]] == 0) continue; /* as long as nothing */
        int32_t over = (int32_t)longest[window[i]] - p->dry_allowed;
        if (over >= 0) {
            save(s, window[i]);
            s->x[window[i]] -= (float)((double)p->dry_multiplier * m_pow((double)p->dry_base, over));
        }
        longest[window[i]] = 0;
    }
}

/* ---- cuts ---------------------------------------------------------------------------------------------------------- */

static void cut_top_k(struct chain *s) {
    candidates_top(&s->c, s->p->top_k);
}

/* Keeps what is nearest to the expected surprise, which is that of the mean logit. */
static void cut_typical(struct chain *s) {
    struct candidates *c = &s->c;
    double middle = candidates_mean(c), mass = (double)s->p->typical_p * c->sum;
    int32_t n = candidates_list_mass(c, -2 * middle + SLACK, mass); /* the best is as far from the middle as the least of these */
    for (int32_t i = 0; i < n; i++) c->w->keys[i] = (float)-fabs((double)c->w->list_x[i] - (double)c->best - middle);
    candidates_share(c, c->w->keys, n, mass);
}

static void cut_top_p(struct chain *s) {
    double mass = (double)s->p->top_p * candidates_weigh(&s->c, 1);
    int32_t n = candidates_list_mass(&s->c, 4, mass);
    candidates_share(&s->c, s->c.w->list_x, n, mass);
}

static void cut_min_p(struct chain *s) {
    struct candidates *c = &s->c;
    double reach = m_log((double)s->p->min_p);
    int32_t kept = 0, n = candidates_list(c, (float)((double)c->best + reach - SLACK));
    for (int32_t i = 0; i < n; i++) {
        double d = (double)c->w->list_x[i] - (double)c->best;
        if (d > reach + SLACK || (float)m_exp(d) >= s->p->min_p) candidates_list_move(c, kept++, i); /* the best has 1 */
    }
    candidates_keep(c, kept);
}

/* Lists what has at least `bar` of p; how many. */
static int32_t list_likely(struct candidates *c, double bar) {
    int32_t kept = 0;
    double reach = bar > 0 ? (m_log(bar) - SLACK) / (double)c->scale : -INFINITY;
    int32_t n = candidates_list(c, (float)((double)c->best + reach));
    candidates_list_weigh(c, n);
    for (int32_t i = 0; i < n; i++)
        if ((double)c->w->list_p[i] >= bar) candidates_list_move(c, kept++, i);
    return kept;
}

/* Drops all but the least of the tokens that hold the threshold: the exciting ones stay. By its own random number. */
static void cut_top_choices(struct chain *s) {
    struct candidates *c = &s->c;
    if (rng_uniform(s->p->seed, (uint64_t)s->in->n_history, 1) >= (double)s->p->xtc_probability) return;
    int32_t *list = c->w->list, n = list_likely(c, candidates_weigh(c, 1) * (double)s->p->xtc_threshold), least = 0;
    if (n < 2) return;
    for (int32_t i = 1; i < n; i++)
        if (c->x[list[i]] <= c->x[list[least]]) least = i;
    list[least] = list[--n];
    if (n <= GONE_MAX && s->p->dynatemp_range <= 0) { /* nobody looks at the logits any more */
        memcpy(s->gone, list, (size_t)n * sizeof *list);
        s->n_gone = n;
        return;
    }
    float *x = candidates_own(c);
    for (int32_t i = 0; i < n; i++) x[list[i]] = -INFINITY;
    candidates_set(c, x, c->ids, c->n);
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

struct stage {
    bool (*wanted)(const struct sampler_params *p);
    void (*run)(struct chain *s);
};

/* The chain, in this order. What shapes logits finds the candidates by id; what cuts gets none that are masked. */
static const struct stage shaping[] = {{wants_bias, add_bias},
                                       {penalizes_seen, penalize_seen},
                                       {penalizes_counted, penalize_counted},
                                       {wants_dry, penalize_repetition},
                                       {NULL, NULL}};
static const struct stage cuts[] = {{wants_top_k, cut_top_k}, {wants_typical, cut_typical}, {wants_top_p, cut_top_p},
                                    {wants_min_p, cut_min_p}, {wants_xtc, cut_top_choices}, {NULL, NULL}};

static void run_stages(struct chain *s, const struct stage *stages) {
    for (; stages->run; stages++)
        if (stages->wanted(s->p)) stages->run(s);
}

/* ---- the draw ------------------------------------------------------------------------------------------------------ */

/* The temperature; a dynamic one is high where the candidates are many and even, low where one stands out. */
static double temperature_of(struct chain *s) {
    struct candidates *c = &s->c;
    double t = (double)s->p->temperature, range = (double)s->p->dynatemp_range;
    if (range <= 0) return t;
    int64_t n = candidates_count(c);
    if (n < 2) return t;
    double low = t > range ? t - range : 0, mean = candidates_mean(c);
    double share = (m_log(c->sum) - mean) / m_log((double)n);
    return low + (t + range - low) * m_pow(share < 0 ? 0 : share > 1 ? 1 : share, (double)s->p->dynatemp_exponent);
}

/* A candidate by its share of the sum, which goes over the tokens in the order of their numbers. So nothing depends on how a cut finds what it
 * keeps, and a device needs no sorted rows. */
static int32_t pick(struct chain *s) {
    return candidates_at(&s->c, rng_uniform(s->p->seed, (uint64_t)s->in->n_history, 0) * s->c.sum);
}

/* How many candidates mirostat keeps by its first version: from the slope of the most likely ones in Zipf's picture. */
static int32_t zipf_count(struct chain *s, double mu) {
    struct candidates *c = &s->c;
    const float *p = c->w->list_p;
    int32_t n = candidates_best(c, MIROSTAT_TOP);
    double tb = 0, tt = 0;
    candidates_list_weigh(c, n);
    for (int32_t i = 0; i + 1 < n && p[i + 1] > ROW_NONE; i++) {
        double t = m_log((double)(i + 2) / (double)(i + 1)), b = m_log((double)p[i] / (double)p[i + 1]);
        tb += t * b;
        tt += t * t;
    }
    double slope = tt > 0 ? tb / tt : 1, over = slope - 1;
    double k = m_pow(over * m_pow(2, mu) / (1 - m_pow((double)c->w->vocab, -over)), 1 / slope);
    return k >= 1 && k < (double)c->n ? (int32_t)k : k >= (double)c->n || isnan(k) ? c->n : 1;
}

/* Keeps what surprises by no more than mu bits, the best in any case. */
static void cut_surprise(struct candidates *c, double mu) {
    double bar = c->sum * m_pow(2, -mu);
    if (((double)c->least - (double)c->best) * (double)c->scale - SLACK >= m_log(bar)) return; /* all of them */
    int32_t n = bar > 1 ? 0 : list_likely(c, bar);                                             /* the best has 1 */
    if (n == 0) {
        c->w->list[n++] = candidates_first(c);
        c->w->list_x[0] = c->best;
    }
    candidates_keep(c, n);
}

static int32_t draw_mirostat(struct chain *s, double temperature) {
    struct sampler_state *state = s->in->state;
    struct candidates *c = &s->c;
    assert(state);
    if (!state->begun) *state = (struct sampler_state){true, 2 * (double)s->p->mirostat_tau};
    if (s->p->mirostat == 1) candidates_top(c, zipf_count(s, state->mu));
    else cut_surprise(c, state->mu);
    double sum = candidates_weigh(c, temperature);
    int32_t at = pick(s);
    state->mu -= (double)s->p->mirostat_eta * (-m_log((double)candidates_p(c, at) / sum) / m_log(2) - (double)s->p->mirostat_tau);
    return at;
}

/* The place of the token; *is_drawn: by the probabilities that the work has. */
static int32_t draw(struct chain *s, bool *is_drawn) {
    *is_drawn = false;
    if (!draws(s->p)) return candidates_first(&s->c);
    if (s->p->mirostat == 0) run_stages(s, cuts);
    double temperature = temperature_of(s);
    if (temperature <= 0) return candidates_first(&s->c);
    candidates_weigh(&s->c, temperature);
    if (s->n_gone) candidates_drop(&s->c, s->gone, s->n_gone);
    *is_drawn = true;
    return s->p->mirostat ? draw_mirostat(s, temperature) : pick(s);
}

/* ---- log-probabilities --------------------------------------------------------------------------------------------- */

/* The most likely tokens of the whole row, and what log-probabilities are less than logits. */
static double report_top(struct candidates *c, int32_t n_top, struct sampler_result *out) {
    double norm = (double)c->best + m_log(candidates_weigh(c, 1));
    int32_t n = n_top > 0 ? candidates_best(c, n_top) : 0;
    out->n_top = 0;
    for (int32_t i = 0; i < n; i++)
        if (c->w->list_x[i] > -INFINITY)
            out->top[out->n_top++] = (struct sampler_top){c->w->list[i], (float)((double)c->w->list_x[i] - norm)};
    return norm;
}

/* The candidates as they were when the one at this place was taken. Without a draw there was but that one. */
static void report_drawn(struct chain *s, int32_t at, bool is_drawn, struct sampler_result *out) {
    struct candidates *c = &s->c;
    *out = (struct sampler_result){.n_top = s->p->n_top > 0, .top = {{candidates_id(c, at), 0}}};
    if (!is_drawn) return;
    double norm = m_log(c->sum);
    out->logprob = (float)(m_log((double)candidates_p(c, at)) - norm);
    out->n_top = 0;
    int32_t n = s->p->n_top > 0 ? candidates_best(c, s->p->n_top + c->n_gone) : 0;
    for (int32_t i = 0; i < n && out->n_top < s->p->n_top; i++) {
        int32_t place = c->w->list[i];
        float p = candidates_p(c, place);
        if (p > ROW_NONE) out->top[out->n_top++] = (struct sampler_top){candidates_id(c, place), (float)(m_log((double)p) - norm)};
    }
}

void sampler_report(struct sampler_work *w, const float *logits, int32_t token, int32_t n_top, struct sampler_result *out) {
    struct candidates c = {.w = w};
    candidates_set(&c, logits, NULL, w->vocab);
    out->logprob = (float)((double)logits[token] - report_top(&c, n_top, out));
}

/* ---- the whole ----------------------------------------------------------------------------------------------------- */

static int32_t fail(float best, struct err *err) {
    err_set(err, ERR_EDEVICE, best == -INFINITY ? "no token can be chosen: all are masked" : "the model gave logits that are no numbers");
    return -1;
}

/* At most so many logits are changed. */
static int64_t count_changes(const struct chain *s) {
    const struct sampler_input *in = s->in;
    int64_t n = (int64_t)s->p->n_bias + in->n_never;
    if (penalizes_seen(s->p)) n += in->n_history;
    if (penalizes_counted(s->p)) n += in->n_history - in->n_prompt;
    return wants_dry(s->p) ? n + in->n_history : n;
}

/* Bias, penalties and tokens that must not come; in the caller's row, to be mended, where they are few. */
static void shape(struct chain *s) {
    const struct sampler_input *in = s->in;
    struct sampler_work *w = s->c.w;
    s->x = (float *)in->logits; /* sampler.h asks for memory that can be written */
    if (!is_shaped(s->p) && !in->n_never) return;
    s->saves = count_changes(s) <= w->vocab / SAVED_SHARE;
    if (!s->saves) s->x = memcpy(w->x, in->logits, (size_t)w->vocab * sizeof *w->x);
    run_stages(s, shaping);
    for (int32_t i = 0; i < in->n_never; i++) {
        save(s, in->never[i]);
        s->x[in->never[i]] = -INFINITY;
    }
}

/* What was noted first was there first. */
static void mend(struct chain *s) {
    for (int32_t i = s->n_saved - 1; i >= 0; i--) s->x[s->c.w->saved_ids[i]] = s->c.w->saved_x[i];
}

int32_t sampler_choose(struct sampler_work *w, const struct sampler_params *p, const struct sampler_input *in, struct sampler_result *out,
                       struct err *err) {
    struct chain s = {.p = p, .in = in, .c = {.w = w}};
    bool reports_model = p->n_top >= 0 && !p->top_is_drawn, is_drawn = false;
    double norm = 0;
    int32_t token = -1;
    if (reports_model) {
        candidates_set(&s.c, in->logits, NULL, w->vocab);
        if (!isfinite(s.c.best)) return fail(s.c.best, err);
        norm = report_top(&s.c, p->n_top, out);
    }
    shape(&s);
    if (in->mask || in->allowed) candidates_masked(&s.c, s.x, in->mask, in->allowed);
    else if (!reports_model || s.x != in->logits) candidates_set(&s.c, s.x, NULL, w->vocab);
    else if (s.n_saved) candidates_mend(&s.c, w->saved_ids, s.n_saved);
    if (isfinite(s.c.best)) {
        int32_t at = draw(&s, &is_drawn);
        token = candidates_id(&s.c, at);
        assert(token >= 0 && token < w->vocab);
        if (p->n_top >= 0 && p->top_is_drawn) report_drawn(&s, at, is_drawn, out);
    }
    mend(&s);
    if (token < 0) return fail(s.c.best, err);
    if (reports_model) out->logprob = (float)((double)in->logits[token] - norm);
    return token;
}
