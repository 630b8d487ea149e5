/* The sampler: one token from one row of logits.
 *
 * A chain of steps works on a list of candidates: bias, penalties, DRY, the cuts (top-k, typical, top-p, min-p, XTC),
 * temperature; then one random draw. Mirostat stands in place of the cuts. A further kind of sampling is one more row in the
 * chain's table in sampler.c.
 *
 * (1) A draw depends on the seed, the position and the logits alone: batch, preemption and device do not change it.
 * (2) Nothing is kept between tokens but mirostat's one number, in the caller's hands; penalties are counted from the history
 *     each time.
 * (3) Nothing allocates but sampler_work_create; one work serves all requests of a thread.
 * (4) A token that is not a number or is masked is never chosen: that is an error of the request.
 *
 * The parameters are plain data, so that the layers above pass them through.
 */
#ifndef MLXCEL_ENGINE_SAMPLER_H
#define MLXCEL_ENGINE_SAMPLER_H

#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

enum { SAMPLER_TOP_MAX = 20, SAMPLER_BIAS_MAX = 1024 };

struct sampler_bias {
    int32_t token;
    float bias;
};

/* Tokens of a history with this bit stand for parts of pictures: no word is penalised for them. */
enum { PICTURE_TOKEN = 1 << 30 };

struct sampler_params {
    float temperature;                    /* 0: the largest logit */
    int32_t top_k;                        /* 0: all */
    float top_p;                          /* 1: all */
    float min_p;                          /* 0: all */
    float typical_p;                      /* 1: all */
    float repetition;                     /* 1: none; divides (multiplies, below 0) logits of tokens seen in prompt and answer */
    int32_t last_n;                       /* how far back repetition looks; -1: everything */
    float frequency;                      /* subtracted for each time the token stands in the answer */
    float presence;                       /* subtracted once when it does */
    float xtc_probability, xtc_threshold; /* sometimes drops all but the least of the tokens that hold the threshold */
    float dry_multiplier, dry_base;       /* 0: none; a token that goes on with a repetition loses multiplier * base^(length - allowed) */
    int32_t dry_allowed, dry_last_n;      /* repetitions shorter than this are free; how far back it looks, -1: everything */
    const struct str *breakers;           /* [n_breakers] no repetition goes across a token with one of these in it; NULL: the usual ones */
    size_t n_breakers;
    int32_t mirostat; /* 0, 1, 2: instead of the cuts, aims at a surprise of tau bits */
    float mirostat_tau, mirostat_eta;
    float dynatemp_range, dynatemp_exponent; /* 0: none; the temperature follows the entropy within +- range */
    uint64_t seed;
    const struct sampler_bias *bias; /* [n_bias] */
    int32_t n_bias;
    int32_t n_top;     /* log-probabilities: -1 none, 0 of the token itself, else of so many most likely ones too */
    bool top_is_drawn; /* they are those that the token was drawn by, behind penalties, cuts and temperature */
};

/* Greedy, no cuts, no penalties. */
struct sampler_params sampler_defaults(void);

/* Every plain number among the parameters, by the name that requests, generation_config.json and the terminal use. */
struct sampler_field {
    const char *name, *other; /* other: a second name, or NULL */
    size_t offset;
    bool is_int;
    double min, max;
};
extern const struct sampler_field sampler_fields[];
extern const size_t n_sampler_fields;
const struct sampler_field *sampler_field_find(struct str name); /* NULL when there is none */
double sampler_field_get(const struct sampler_params *p, const struct sampler_field *f);
/* False, and nothing set, for what is out of range or not whole where it must be. */
bool sampler_field_set(struct sampler_params *p, const struct sampler_field *f, double value);

/* Refuses what is not a number or out of range. */
int sampler_check(const struct sampler_params *p, int32_t vocab, struct err *err);
/* True when the largest raw logit is all that is asked for. */
bool sampler_is_plain(const struct sampler_params *p);

struct sampler_work;
struct sampler_work *sampler_work_create(int32_t vocab);
void sampler_work_destroy(struct sampler_work *w);

/* What mirostat remembers from token to token; begins zeroed. */
struct sampler_state {
    bool begun;
    double mu;
};

struct sampler_input {
    const float *logits;    /* [vocab] in memory that can be written: changed meanwhile, and left as they were */
    const int32_t *history; /* prompt and answer */
    int32_t n_history, n_prompt;
    const uint32_t *breakers;    /* [vocab / 32 + 1] bits: tokens that no repetition of DRY goes across; NULL: none */
    struct sampler_state *state; /* of the request; only mirostat needs it */
    const uint32_t *mask;        /* [vocab / 32 + 1] bits: tokens that may be chosen; NULL: all */
    const uint32_t *allowed;     /* the same once more: both must allow a token */
    const int32_t *never;        /* [n_never] tokens that may not */
    int32_t n_never;
};

struct sampler_top {
    int32_t token;
    float logprob;
};

/* Log-probabilities under the model itself, before bias, penalties and temperature; with top_is_drawn those behind them. */
struct sampler_result {
    float logprob;
    int32_t n_top;
    struct sampler_top top[SAMPLER_TOP_MAX]; /* most likely first */
};

/* Log-probabilities of a token, and of the n_top most likely ones, behind a row of logits. */
void sampler_report(struct sampler_work *w, const float *logits, int32_t token, int32_t n_top, struct sampler_result *out);

/* The token, or -1 with an error. *out is filled when p->n_top >= 0. */
int32_t sampler_choose(struct sampler_work *w, const struct sampler_params *p, const struct sampler_input *in, struct sampler_result *out,
                       struct err *err);

#endif
