/* engine/sampler: each step of the chain, draws that follow the distribution and nothing else, bad logits. */
#include "unit.h"

#include "base/fmath.h"
#include "base/hash.h"
#include "base/rng.h"
#include "engine/sampler.h"

#include <stdlib.h>
#include <string.h>

enum { VOCAB = 8, N_DRAWS = 20000 };

/* Probabilities 0.4 0.3 0.15 0.1 0.05 and three masked tokens, out of order. */
static const double wanted[VOCAB] = {0.1, 0, 0.4, 0.05, 0, 0.3, 0.15, 0};
static float logits[VOCAB];

static void fill(void) {
    for (int i = 0; i < VOCAB; i++) logits[i] = wanted[i] > 0 ? (float)(m_log(wanted[i]) + 3) : -INFINITY;
}

static int32_t choose(const struct sampler_params *p, const int32_t *history, int32_t n_history, int32_t n_prompt,
                      struct sampler_result *result, struct err *err) {
    struct sampler_work *w = sampler_work_create(VOCAB);
    struct sampler_input in = {.logits = logits, .history = history, .n_history = n_history, .n_prompt = n_prompt};
    int32_t token = sampler_choose(w, p, &in, result, err);
    sampler_work_destroy(w);
    return token;
}

/* Shares of the tokens over many seeds, against what they should be. */
static void check_shares(const struct sampler_params *params, const double want[VOCAB]) {
    struct sampler_work *w = sampler_work_create(VOCAB);
    struct sampler_params p = *params;
    struct err err;
    int counts[VOCAB] = {0};
    int32_t history[1] = {1};
    double sum = 0;
    for (int i = 0; i < VOCAB; i++) sum += want[i];
    for (uint64_t seed = 0; seed < N_DRAWS; seed++) {
        p.seed = hash_mix(seed + 1);
        int32_t token =
            sampler_choose(w, &p, &(struct sampler_input){.logits = logits, .history = history, .n_history = 1, .n_prompt = 1}, NULL, &err);
        CHECK(token >= 0 && token < VOCAB);
        counts[token]++;
    }
    for (int i = 0; i < VOCAB; i++) CHECK_NEAR((double)counts[i] / N_DRAWS, want[i] / sum, want[i] > 0 ? 0.015 : 0);
    sampler_work_destroy(w);
}

static void draws_follow_the_distribution(void) {
    fill();
    struct sampler_params p = sampler_defaults();
    p.temperature = 1;
    check_shares(&p, wanted);
    double hot[VOCAB];
    for (int i = 0; i < VOCAB; i++) hot[i] = wanted[i] > 0 ? sqrt(wanted[i]) : 0;
    p.temperature = 2;
    check_shares(&p, hot);
}

static void cuts_keep_what_they_say(void) {
    fill();
    struct sampler_params p = sampler_defaults();
    p.temperature = 1;
    p.top_k = 2;
    check_shares(&p, (const double[VOCAB]){[2] = 0.4, [5] = 0.3});
    p.top_k = 0;
    p.top_p = 0.69f;
    check_shares(&p, (const double[VOCAB]){[2] = 0.4, [5] = 0.3});
    p.top_p = 0.71f;
    check_shares(&p, (const double[VOCAB]){[2] = 0.4, [5] = 0.3, [6] = 0.15});
    p.top_p = 1;
    p.min_p = 0.3f; /* of 0.4: 0.12 */
    check_shares(&p, (const double[VOCAB]){[2] = 0.4, [5] = 0.3, [6] = 0.15});
    p.min_p = 0;
    p.typical_p = 0.29f; /* the entropy is 1.39: 0.3 is nearest to it */
    check_shares(&p, (const double[VOCAB]){[5] = 0.3});
}

static void a_draw_depends_on_seed_and_position_alone(void) {
    fill();
    struct sampler_params p = sampler_defaults();
    struct err err;
    p.temperature = 1;
    p.seed = 7;
    int32_t history[64] = {0}, first[64], differ = 0;
    for (int32_t n = 1; n < 64; n++) first[n] = choose(&p, history, n, 1, NULL, &err);
    for (int32_t n = 63; n > 0; n--) CHECK_INT(choose(&p, history, n, 1, NULL, &err), first[n]);
    p.seed = 8;
    for (int32_t n = 1; n < 64; n++) differ += choose(&p, history, n, 1, NULL, &err) != first[n];
    CHECK(differ > 10);
}

static void penalties_and_bias_move_the_best(void) {
    fill();
    struct sampler_params p = sampler_defaults();
    struct err err;
    const int32_t history[] = {2, 2, 5, 2};
    CHECK_INT(choose(&p, history, 4, 2, NULL, &err), 2);
    p.presence = 0.5f; /* both 2 and 5 stand in the answer: -0.5 each */
    CHECK_INT(choose(&p, history, 4, 2, NULL, &err), 2);
    CHECK_INT(choose(&p, history, 4, 3, NULL, &err), 5); /* 5 belongs to the prompt now */
    p.presence = 0;
    p.frequency = 0.2f;
    CHECK_INT(choose(&p, history, 4, 0, NULL, &err), 5); /* 2 three times, 5 once */
    p.frequency = 0;
    p.repetition = 2;
    CHECK_INT(choose(&p, history, 4, 4, NULL, &err), 6); /* 2.08 / 2, 1.80 / 2, 1.10 */
    p.last_n = 1;
    CHECK_INT(choose(&p, history, 4, 4, NULL, &err), 5);
    p = sampler_defaults();
    struct sampler_bias bias[] = {{3, 50}, {2, -100}};
    p.bias = bias;
    p.n_bias = 2;
    CHECK_INT(choose(&p, history, 4, 4, NULL, &err), 3);
}

static void logprobs_are_the_models(void) {
    fill();
    struct sampler_params p = sampler_defaults();
    struct sampler_result r;
    struct err err;
    struct sampler_bias bias = {3, 50};
    const int32_t history[] = {1};
    p.n_top = 6;
    p.bias = &bias;
    p.n_bias = 1;
    CHECK_INT(choose(&p, history, 1, 1, &r, &err), 3);
    CHECK_NEAR((double)r.logprob, m_log(0.05), 1e-5);
    CHECK_INT(r.n_top, 5); /* masked ones are not reported */
    CHECK_INT(r.top[0].token, 2);
    CHECK_INT(r.top[4].token, 3);
    CHECK_NEAR((double)r.top[1].logprob, m_log(0.3), 1e-5);
}

/* Behind the cuts: the two that are left hold everything. */
static void logprobs_of_the_draw(void) {
    fill();
    struct sampler_params p = sampler_defaults();
    struct sampler_result r;
    struct err err;
    const int32_t history[] = {1};
    p.n_top = 6;
    p.top_is_drawn = true;
    CHECK_INT(choose(&p, history, 1, 1, &r, &err), 2); /* without a draw there is one */
    CHECK_INT(r.n_top, 1);
    CHECK_NEAR((double)r.logprob, 0, 0);
    p.temperature = 1;
    p.top_k = 2;
    int32_t token = choose(&p, history, 1, 1, &r, &err);
    CHECK_INT(r.n_top, 2);
    CHECK_NEAR(m_exp((double)r.top[0].logprob) + m_exp((double)r.top[1].logprob), 1, 1e-6);
    CHECK_NEAR((double)r.top[0].logprob, m_log(0.4 / 0.7), 1e-5);
    CHECK_NEAR((double)r.logprob, (double)r.top[token == r.top[1].token].logprob, 1e-6);
}

static void tokens_that_may_not_come(void) {
    fill();
    struct sampler_work *w = sampler_work_create(VOCAB);
    struct sampler_params p = sampler_defaults();
    struct err err;
    const int32_t history[] = {1}, never[] = {2, 5};
    const uint32_t allowed[VOCAB / 32 + 1] = {1u << 3 | 1u << 6}, two[VOCAB / 32 + 1] = {1u << 2 | 1u << 3};
    struct sampler_input in = {.logits = logits, .history = history, .n_history = 1, .n_prompt = 1};
    CHECK_INT(sampler_choose(w, &p, &in, NULL, &err), 2);
    in.never = never;
    in.n_never = 2;
    CHECK_INT(sampler_choose(w, &p, &in, NULL, &err), 6);
    in.n_never = 0;
    in.allowed = allowed;
    CHECK_INT(sampler_choose(w, &p, &in, NULL, &err), 6);
    in.mask = two; /* both must allow it */
    CHECK_INT(sampler_choose(w, &p, &in, NULL, &err), 3);
    in.n_never = 1;
    in.never = (const int32_t[]){3};
    CHECK_INT(sampler_choose(w, &p, &in, NULL, &err), -1);
    sampler_work_destroy(w);
}

static void bad_logits_are_errors(void) {
    struct sampler_params p = sampler_defaults();
    struct err err;
    const int32_t history[] = {1};
    for (int i = 0; i < VOCAB; i++) logits[i] = -INFINITY;
    CHECK_INT(choose(&p, history, 1, 1, NULL, &err), -1);
    CHECK_INT(err.code, ERR_EDEVICE);
    fill();
    logits[3] = NAN;
    CHECK_INT(choose(&p, history, 1, 1, NULL, &err), -1);
    p.temperature = 1;
    CHECK_INT(choose(&p, history, 1, 1, NULL, &err), -1);
    logits[3] = INFINITY;
    CHECK_INT(choose(&p, history, 1, 1, NULL, &err), -1);
}

static void bad_parameters_are_refused(void) {
    struct sampler_params p = sampler_defaults();
    struct err err;
    CHECK_INT(sampler_check(&p, VOCAB, &err), ERR_OK);
    p.temperature = NAN;
    CHECK_INT(sampler_check(&p, VOCAB, &err), ERR_EARG);
    p.temperature = -1;
    CHECK_INT(sampler_check(&p, VOCAB, &err), ERR_EARG);
    p = sampler_defaults();
    p.top_p = 0;
    CHECK_INT(sampler_check(&p, VOCAB, &err), ERR_EARG);
    p = sampler_defaults();
    struct sampler_bias bias = {VOCAB, 1};
    p.bias = &bias;
    p.n_bias = 1;
    CHECK_INT(sampler_check(&p, VOCAB, &err), ERR_EARG);
}

/* Many candidates: the quick way (the best 256 only) and the full order must keep the same set. */
static void wide_rows(void) {
    enum { WIDE = 3000 };
    static float row[WIDE];
    struct sampler_work *w = sampler_work_create(WIDE);
    struct sampler_params p = sampler_defaults();
    struct err err;
    const int32_t history[] = {1};
    p.temperature = 1;
    p.top_p = 0.5f;
    for (int i = 0; i < WIDE; i++) row[i] = 0; /* all alike: half of them stay, those with the lowest ids */
    for (uint64_t seed = 0; seed < 200; seed++) {
        p.seed = hash_mix(seed + 1);
        CHECK(sampler_choose(w, &p, &(struct sampler_input){.logits = row, .history = history, .n_history = 1, .n_prompt = 1}, NULL, &err) <
              WIDE / 2);
    }
    sampler_work_destroy(w);
}

/* ---- the quick orders against a plain one ------------------------------------------------------------------------------ */

enum { N_WIDE = 20000, N_WIDEST = 70000 };

struct plain {
    int32_t id;
    float logit, p;
};

static int by_logit(const void *left, const void *right) {
    const struct plain *a = left, *b = right;
    if (a->logit < b->logit || a->logit > b->logit) return a->logit < b->logit ? 1 : -1;
    return (a->id > b->id) - (a->id < b->id);
}

static int by_id(const void *left, const void *right) {
    const struct plain *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

static double plain_weigh(struct plain *c, int32_t n, double temperature) {
    float best = c[0].logit;
    double sum = 0;
    for (int32_t i = 1; i < n; i++) best = c[i].logit > best ? c[i].logit : best;
    for (int32_t i = 0; i < n; i++) {
        c[i].p = (float)m_exp(((double)c[i].logit - (double)best) / temperature);
        sum += (double)c[i].p;
    }
    return sum;
}

/* top-k, top-p and a draw, with everything sorted by the C library first. */
static int32_t plain_choice(const float *row, int32_t n, const struct sampler_params *p, int32_t n_history) {
    static struct plain c[N_WIDEST];
    int32_t kept = 0, last = 0;
    for (int32_t i = 0; i < n; i++)
        if (row[i] > -INFINITY) c[kept++] = (struct plain){i, row[i], 0};
    if (p->top_k > 0 && p->top_k < kept) {
        qsort(c, (size_t)kept, sizeof *c, by_logit);
        kept = p->top_k;
    }
    if (p->top_p < 1) {
        double sum = plain_weigh(c, kept, 1), held = 0;
        qsort(c, (size_t)kept, sizeof *c, by_logit);
        for (int32_t i = 0; i < kept; i++) {
            held += (double)c[i].p;
            if (held >= (double)p->top_p * sum) kept = i + 1;
        }
    }
    qsort(c, (size_t)kept, sizeof *c, by_id);
    double left = rng_uniform(p->seed, (uint64_t)n_history, 0) * plain_weigh(c, kept, (double)p->temperature);
    for (int32_t i = 0; i < kept && left >= 0; i++) {
        if (c[i].p <= 0) continue;
        last = i;
        left -= (double)c[i].p;
    }
    return c[last].id;
}

/* Logits of one kind: evenly spread, in few steps, all alike, of all sizes, mostly masked. */
static float wide_logit(int kind, uint64_t hash) {
    double unit = (double)(hash >> 11) * 0x1p-53;
    switch (kind) {
    case 0: return (float)(8 * unit - 4);
    case 1: return (float)floor(8 * unit) * 0.25f - 1;
    case 2: return 0;
    case 3: {
        static const float sizes[] = {1e30f, -1e30f, 0.0f, -0.0f, 1e-40f, -1e-40f, 3e38f, -3e38f, 1, -1};
        return sizes[hash % 10];
    }
    case 4: return hash % 8 ? -INFINITY : (float)(unit * 3);
    default: return (float)(-m_log(unit + 1e-12) * 3); /* a few stand out, as models have it */
    }
}

static void orders_agree_with_a_plain_one(void) {
    static const float shares[] = {0.05f, 0.5f, 0.95f, 0.9999f, 0.99999994f, 1};
    static const int32_t widths[] = {1, 255, 256, 257, 2000, N_WIDE}, tops[] = {0, 3, 256, 257, 1500};
    static float row[N_WIDE];
    struct err err;
    const int32_t history[] = {1, 2, 3};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        struct sampler_work *work = sampler_work_create(widths[w]);
        for (int kind = 0; kind < 6; kind++) {
            for (int32_t i = 0; i < widths[w]; i++) row[i] = wide_logit(kind, hash_pair((uint64_t)kind, (uint64_t)i));
            if (widths[w] == 1) row[0] = 1;
            for (uint64_t i = 0; i < sizeof shares / sizeof *shares * (sizeof tops / sizeof *tops); i++) {
                struct sampler_params p = sampler_defaults();
                p.temperature = i % 2 ? 1.5f : 0.7f;
                p.top_p = shares[i % 6];
                p.top_k = tops[i / 6];
                p.seed = hash_mix(i + 1);
                CHECK_INT(sampler_choose(work, &p,
                                         &(struct sampler_input){.logits = row, .history = history, .n_history = 3, .n_prompt = 1}, NULL,
                                         &err),
                          plain_choice(row, widths[w], &p, 3));
            }
        }
        sampler_work_destroy(work);
    }
}

/* Keys that are no logits, and candidates that an earlier cut left out of order: typical after top-k. */
static void typical_after_top_k(void) {
    enum { WIDE = 3000, KEPT = 1000 };
    static float row[WIDE];
    struct sampler_work *w = sampler_work_create(WIDE);
    struct sampler_params p = sampler_defaults();
    struct err err;
    const int32_t history[] = {1};
    p.temperature = 1;
    p.top_k = KEPT;
    p.typical_p = 0.5f; /* all that stay are alike: the first half by id */
    for (int i = 0; i < WIDE; i++) row[i] = i % 3 == 1 ? 2 : -5;
    for (uint64_t seed = 0; seed < 200; seed++) {
        p.seed = hash_mix(seed + 1);
        int32_t token =
            sampler_choose(w, &p, &(struct sampler_input){.logits = row, .history = history, .n_history = 1, .n_prompt = 1}, NULL, &err);
        CHECK(token % 3 == 1 && token / 3 < KEPT / 2);
    }
    sampler_work_destroy(w);
}

/* Tens of thousands hold the mass: where the cut is looked for comes from a sample. */
static void cuts_of_flat_rows(void) {
    static float row[N_WIDEST];
    static const float shares[] = {0.5f, 0.9f, 0.99f};
    struct sampler_work *work = sampler_work_create(N_WIDEST);
    struct err err;
    const int32_t history[] = {1, 2, 3};
    for (uint64_t i = 0; i < N_WIDEST; i++) row[i] = wide_logit(0, hash_pair(8, i)) + wide_logit(0, hash_pair(9, i));
    for (uint64_t i = 0; i < 6; i++) {
        struct sampler_params p = sampler_defaults();
        p.temperature = i % 2 ? 1.5f : 1;
        p.top_p = shares[i % 3];
        p.seed = hash_mix(i + 1);
        CHECK_INT(
            sampler_choose(work, &p, &(struct sampler_input){.logits = row, .history = history, .n_history = 3, .n_prompt = 1}, NULL, &err),
            plain_choice(row, N_WIDEST, &p, 3));
    }
    sampler_work_destroy(work);
}

/* Who asks for log-probabilities gets the same tokens, and the row is as it was. */
static void logprobs_change_no_draw(void) {
    static float row[N_WIDE], before[N_WIDE];
    struct sampler_work *work = sampler_work_create(N_WIDE);
    struct sampler_result result;
    struct err err;
    int32_t history[400];
    for (uint64_t i = 0; i < N_WIDE; i++) row[i] = before[i] = wide_logit(5, hash_pair(10, i));
    for (uint64_t i = 0; i < 400; i++) history[i] = (int32_t)(hash_pair(11, i % 300) % N_WIDE);
    for (uint64_t i = 0; i < 60; i++) {
        struct sampler_input in = {.logits = row, .history = history, .n_history = 400, .n_prompt = 100};
        struct sampler_params p = sampler_defaults();
        p.temperature = i % 2 ? 1 : 1.7f;
        p.repetition = 1.3f;
        p.frequency = i % 3 ? 0 : 0.3f;
        p.bias = &(struct sampler_bias){history[7], i % 5 ? 2 : 30}; /* with 30 another is the best */
        p.n_bias = 1;
        p.seed = hash_mix(i + 1);
        int32_t alone = sampler_choose(work, &p, &in, NULL, &err);
        p.n_top = 5;
        CHECK_INT(sampler_choose(work, &p, &in, &result, &err), alone);
        CHECK(memcmp(row, before, sizeof row) == 0);
    }
    sampler_work_destroy(work);
}

const struct unit_suite unit_sampler = {
    "sampler",
    (const struct unit_case[]){{"draws_follow_the_distribution", draws_follow_the_distribution},
                               {"cuts_keep_what_they_say", cuts_keep_what_they_say},
                               {"a_draw_depends_on_seed_and_position_alone", a_draw_depends_on_seed_and_position_alone},
                               {"penalties_and_bias_move_the_best", penalties_and_bias_move_the_best},
                               {"logprobs_are_the_models", logprobs_are_the_models},
                               {"logprobs_of_the_draw", logprobs_of_the_draw},
                               {"tokens_that_may_not_come", tokens_that_may_not_come},
                               {"bad_logits_are_errors", bad_logits_are_errors},
                               {"bad_parameters_are_refused", bad_parameters_are_refused},
                               {"wide_rows", wide_rows},
                               {"orders_agree_with_a_plain_one", orders_agree_with_a_plain_one},
                               {"typical_after_top_k", typical_after_top_k},
                               {"cuts_of_flat_rows", cuts_of_flat_rows},
                               {"logprobs_change_no_draw", logprobs_change_no_draw},
                               {0}},
};
