/* The parameters of a generation, from a request's JSON. Every number passes one table with its range; what is out of range,
 * of another type or not finite is refused by name. */
#ifndef MLXCEL_SERVER_PARAMS_H
#define MLXCEL_SERVER_PARAMS_H

#include "api/service.h"
#include "server/api_error.h"

enum param_sets { PARAMS_CHAT = 1, PARAMS_COMPLETION = 2 };

enum { PARAMS_STOPS_MAX = 16, PARAMS_STOP_BYTES_MAX = 1024, PARAMS_BREAKERS_MAX = 64, PARAMS_CHOICES_MAX = 128 };

struct params {
    struct sampler_params sampling; /* its plain numbers; the rest is added by params_sampling */
    int32_t vocab;
    int64_t seed, max_tokens, n, top_logprobs;
    bool has_seed, stream, include_usage, logprobs, echo, ignore_eos;
    struct str stops[PARAMS_STOPS_MAX];
    size_t n_stops;
    struct sampler_bias *bias; /* in the arena */
    int32_t n_bias;
    struct str *breakers; /* in the arena; NULL: the usual ones */
    size_t n_breakers;
};

/* set: PARAMS_CHAT or PARAMS_COMPLETION. out->sampling holds the defaults before the call, out->vocab the model's. Refuses, by name, fields that ask for
 * what is not there yet. */
int params_read(struct arena *a, yyjson_val *body, enum param_sets set, struct params *out, struct api_error *e);
/* As the service wants them. */
struct sampler_params params_sampling(const struct params *p);

#endif
