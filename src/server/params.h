/* The parameters of a generation, from a request's JSON. Every number passes one table with its range; what is out of range,
 * of another type or not finite is refused by name. */
#ifndef MLXCEL_SERVER_PARAMS_H
#define MLXCEL_SERVER_PARAMS_H

#include "api/service.h"
#include "server/api_error.h"

enum param_sets { PARAMS_CHAT = 1, PARAMS_COMPLETION = 2 };

enum { PARAMS_STOPS_MAX = 16, PARAMS_CHOICES_MAX = 128 };

struct params {
    double temperature, top_p, min_p, typical_p, repetition, frequency, presence;
    int64_t top_k, last_n, seed, max_tokens, n, top_logprobs;
    bool has_seed, stream, include_usage, logprobs, echo, ignore_eos;
    struct str stops[PARAMS_STOPS_MAX];
    size_t n_stops;
    struct sampler_bias *bias; /* in the arena */
    int32_t n_bias;
};

/* set: PARAMS_CHAT or PARAMS_COMPLETION. Refuses, by name, fields that ask for what is not there yet. */
int params_read(struct arena *a, yyjson_val *body, enum param_sets set, struct params *out, struct api_error *e);
/* As the service wants them. */
struct sampler_params params_sampling(const struct params *p);

#endif
