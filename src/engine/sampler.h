/* The sampler: one token from one row of logits.
 *
 * A chain of steps works on a list of candidates: bias, penalties, the cuts (top-k, typical, top-p, min-p), temperature;
 * then one random draw. A further kind of sampling is one more row in the chain's table in sampler.c.
 *
 * (1) A draw depends on the seed, the position and the logits alone: batch, preemption and device do not change it.
 * (2) Nothing is kept between tokens; penalties are counted from the history each time.
 * (3) Nothing allocates but sampler_work_create; one work serves all requests of a thread.
 * (4) A token that is not a number or is masked is never chosen: that is an error of the request.
 *
 * The parameters are plain data, so that the layers above pass them through.
 */
#ifndef MLXCEL_ENGINE_SAMPLER_H
#define MLXCEL_ENGINE_SAMPLER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLER_TOP_MAX = 20, SAMPLER_BIAS_MAX = 1024 };

struct sampler_bias {
    int32_t token;
    float bias;
};

struct sampler_params {
    float temperature; /* 0: the largest logit */
    int32_t top_k;     /* 0: all */
    float top_p;       /* 1: all */
    float min_p;       /* 0: all */
    float typical_p;   /* 1: all */
    float repetition;  /* 1: none; divides (multiplies, below 0) logits of tokens seen in prompt and answer */
    int32_t last_n;    /* how far back repetition looks; -1: everything */
    float frequency;   /* subtracted for each time the token stands in the answer */
    float presence;    /* subtracted once when it does */
    uint64_t seed;
    const struct sampler_bias *bias; /* [n_bias] */
    int32_t n_bias;
    int32_t n_top; /* log-probabilities: -1 none, 0 of the token itself, else of so many most likely ones too */
};

/* Greedy, no cuts, no penalties. */
struct sampler_params sampler_defaults(void);
/* Refuses what is not a number or out of range. */
int sampler_check(const struct sampler_params *p, int32_t vocab, struct err *err);
/* True when the largest raw logit is all that is asked for. */
bool sampler_is_plain(const struct sampler_params *p);

struct sampler_work;
struct sampler_work *sampler_work_create(int32_t vocab);
void sampler_work_destroy(struct sampler_work *w);

struct sampler_input {
    const float *logits;    /* [vocab], left as they are */
    const int32_t *history; /* prompt and answer */
    int32_t n_history, n_prompt;
};

struct sampler_top {
    int32_t token;
    float logprob;
};

/* Log-probabilities under the model itself, before bias, penalties and temperature. */
struct sampler_result {
    float logprob;
    int32_t n_top;
    struct sampler_top top[SAMPLER_TOP_MAX]; /* most likely first */
};

/* The token, or -1 with an error. *out is filled when p->n_top >= 0. */
int32_t sampler_choose(struct sampler_work *w, const struct sampler_params *p, const struct sampler_input *in, struct sampler_result *out,
                       struct err *err);

#endif
