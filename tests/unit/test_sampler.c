/* engine/sampler: each step of the chain, draws that follow the distribution and nothing else, bad logits. */
#include "unit.h"

#include "base/fmath.h"
#include "base/hash.h"
#include "engine/sampler.h"

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
        int32_t token = sampler_choose(w, &p, &(struct sampler_input){logits, history, 1, 1, NULL}, NULL, &err);
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
        CHECK(sampler_choose(w, &p, &(struct sampler_input){row, history, 1, 1, NULL}, NULL, &err) < WIDE / 2);
    }
    sampler_work_destroy(w);
}

const struct unit_suite unit_sampler = {
    "sampler",
    (const struct unit_case[]){{"draws_follow_the_distribution", draws_follow_the_distribution},
                               {"cuts_keep_what_they_say", cuts_keep_what_they_say},
                               {"a_draw_depends_on_seed_and_position_alone", a_draw_depends_on_seed_and_position_alone},
                               {"penalties_and_bias_move_the_best", penalties_and_bias_move_the_best},
                               {"logprobs_are_the_models", logprobs_are_the_models},
                               {"bad_logits_are_errors", bad_logits_are_errors},
                               {"bad_parameters_are_refused", bad_parameters_are_refused},
                               {"wide_rows", wide_rows},
                               {0}},
};
