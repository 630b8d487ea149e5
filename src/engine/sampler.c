/* The sampler's chain. Sums are in double and in a fixed order, so that a seed gives the same text on every machine whose
 * logits are the same. */
#include "engine/sampler.h"

#include "base/arena.h"
#include "base/fmath.h"
#include "base/rng.h"

#include <assert.h>
#include <string.h>

struct candidate {
    int32_t id;
    float logit;
    float key; /* what the order is by */
    float p;   /* relative probability, where a step has computed it */
};

struct sampler_work {
    int32_t vocab;
    struct candidate *items;
    uint32_t *counts; /* [vocab] all 0 between calls */
};

struct chain {
    const struct sampler_params *p;
    const struct sampler_input *in;
    struct sampler_work *w;
    struct candidate *c; /* [n]; by id until a step orders them */
    int32_t n;
};

struct sampler_params sampler_defaults(void) {
    return (struct sampler_params){.top_p = 1, .typical_p = 1, .repetition = 1, .last_n = -1, .n_top = -1};
}

static bool within(double value, double min, double max) {
    return value >= min && value <= max; /* false for what is no number */
}

int sampler_check(const struct sampler_params *p, int32_t vocab, struct err *err) {
    const struct {
        const char *name;
        double value, min, max;
    } rows[] = {
        {"temperature", (double)p->temperature, 0, 100},
        {"top_k", p->top_k, 0, INT32_MAX},
        {"top_p", (double)p->top_p, 1e-9, 1},
        {"min_p", (double)p->min_p, 0, 1},
        {"typical_p", (double)p->typical_p, 1e-9, 1},
        {"repetition_penalty", (double)p->repetition, 1e-3, 1e3},
        {"repeat_last_n", p->last_n, -1, INT32_MAX},
        {"frequency_penalty", (double)p->frequency, -100, 100},
        {"presence_penalty", (double)p->presence, -100, 100},
        {"logit_bias", p->n_bias, 0, SAMPLER_BIAS_MAX},
        {"top_logprobs", p->n_top, -1, SAMPLER_TOP_MAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!within(rows[i].value, rows[i].min, rows[i].max))
            return err_set(err, ERR_EARG, "%s is out of range: %g to %g", rows[i].name, rows[i].min, rows[i].max);
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

bool sampler_is_plain(const struct sampler_params *p) {
    return p->temperature == 0 && p->n_bias == 0 && !has_penalties(p) && p->n_top < 0;
}

struct sampler_work *sampler_work_create(int32_t vocab) {
    struct sampler_work *w = mem_alloc(sizeof *w);
    w->vocab = vocab;
    w->items = mem_alloc((size_t)vocab * sizeof *w->items);
    w->counts = mem_alloc((size_t)vocab * sizeof *w->counts);
    return w;
}

void sampler_work_destroy(struct sampler_work *w) {
    if (!w) return;
    mem_free(w->items);
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
static void order(struct candidate *c, int32_t n, int32_t k) {
    if (k > n) k = n;
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

/* Keeps the first candidates in the order of their keys that hold `share` of the sum. */
static void keep_share(struct chain *s, double share, double sum) {
    double held = 0;
    int32_t ordered = 0, kept = 0;
    while (kept < s->n) {
        if (kept == ordered) { /* a few are enough most of the time */
            ordered = ordered == 0 && s->n > 256 ? 256 : s->n;
            order(s->c, s->n, ordered);
            held = 0;
            kept = 0;
        }
        for (; kept < ordered; kept++) {
            held += (double)s->c[kept].p;
            if (held >= share * sum) {
                s->n = kept + 1;
                return;
            }
        }
    }
}

static void add_bias(struct chain *s) {
    for (int32_t i = 0; i < s->p->n_bias; i++) s->c[s->p->bias[i].token].logit += s->p->bias[i].bias;
}

static void penalize(struct chain *s) {
    const struct sampler_input *in = s->in;
    uint32_t *counts = s->w->counts;
    int32_t first = s->p->last_n < 0 || s->p->last_n > in->n_history ? 0 : in->n_history - s->p->last_n;
    for (int32_t i = first; i < in->n_history && s->p->repetition != 1; i++) {
        struct candidate *c = &s->c[in->history[i]];
        if (counts[c->id]++ == 0) c->logit = c->logit > 0 ? c->logit / s->p->repetition : c->logit * s->p->repetition;
    }
    for (int32_t i = first; i < in->n_history; i++) counts[in->history[i]] = 0;
    for (int32_t i = in->n_prompt; i < in->n_history; i++) counts[in->history[i]]++;
    for (int32_t i = in->n_prompt; i < in->n_history; i++) {
        struct candidate *c = &s->c[in->history[i]];
        if (counts[c->id] == 0) continue;
        c->logit -= (float)counts[c->id] * s->p->frequency + s->p->presence;
        counts[c->id] = 0;
    }
}

static void key_by_logit(struct chain *s) {
    for (int32_t i = 0; i < s->n; i++) s->c[i].key = s->c[i].logit;
}

static void cut_top_k(struct chain *s) {
    if (s->p->top_k >= s->n) return;
    key_by_logit(s);
    order(s->c, s->n, s->p->top_k);
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

static bool wants_bias(const struct sampler_params *p) {
    return p->n_bias > 0;
}
static bool draws(const struct sampler_params *p) {
    return p->temperature > 0;
}
static bool wants_top_k(const struct sampler_params *p) {
    return draws(p) && p->top_k > 0;
}
static bool wants_typical(const struct sampler_params *p) {
    return draws(p) && p->typical_p < 1;
}
static bool wants_top_p(const struct sampler_params *p) {
    return draws(p) && p->top_p < 1;
}
static bool wants_min_p(const struct sampler_params *p) {
    return draws(p) && p->min_p > 0;
}

struct step {
    bool (*wanted)(const struct sampler_params *p);
    void (*run)(struct chain *s);
};

/* The chain, in this order. What shapes logits finds the candidates by id; what cuts gets none that are masked. */
static const struct step shaping[] = {{wants_bias, add_bias}, {has_penalties, penalize}, {NULL, NULL}};
static const struct step cuts[] = {{wants_top_k, cut_top_k},
                                   {wants_typical, cut_typical},
                                   {wants_top_p, cut_top_p},
                                   {wants_min_p, cut_min_p},
                                   {NULL, NULL}};

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

static int32_t draw(struct chain *s) {
    double sum = weigh(s, (double)s->p->temperature);
    double left = rng_uniform(s->p->seed, (uint64_t)s->in->n_history, 0) * sum;
    int32_t last = -1;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->c[i].p <= 0) continue;
        last = s->c[i].id;
        left -= (double)s->c[i].p;
        if (left < 0) break;
    }
    return last;
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
    if (n_top > vocab) n_top = vocab;
    order(s->c, vocab, n_top);
    for (int32_t i = 0; i < n_top; i++)
        if (s->c[i].key > -INFINITY) out->top[out->n_top++] = (struct sampler_top){s->c[i].id, (float)((double)s->c[i].key - norm)};
}

/* Drops masked tokens; -1 when something is no number. */
static int32_t drop_masked(struct chain *s) {
    int32_t kept = 0;
    for (int32_t i = 0; i < s->n; i++) {
        if (s->c[i].logit == -INFINITY) continue;
        if (!isfinite(s->c[i].logit)) return -1;
        s->c[kept++] = s->c[i];
    }
    return s->n = kept;
}

int32_t sampler_choose(struct sampler_work *w, const struct sampler_params *p, const struct sampler_input *in, struct sampler_result *out,
                       struct err *err) {
    struct chain s = {.p = p, .in = in, .w = w, .c = w->items, .n = w->vocab};
    for (int32_t i = 0; i < w->vocab; i++) s.c[i] = (struct candidate){.id = i, .logit = in->logits[i]};
    run_steps(&s, shaping);
    int32_t n = drop_masked(&s);
    if (n <= 0) {
        err_set(err, ERR_EDEVICE, n < 0 ? "the model gave logits that are no numbers" : "no token can be chosen: all are masked");
        return -1;
    }
    run_steps(&s, cuts);
    int32_t token = draws(p) ? draw(&s) : best_of(&s);
    assert(token >= 0 && token < w->vocab);
    if (p->n_top >= 0) report(&s, token, out);
    return token;
}
