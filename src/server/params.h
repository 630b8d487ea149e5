/* The parameters of a generation, from a request's JSON. Every number passes one table with its range; what is out of range,
 * of another type or not finite is refused by name. */
#ifndef MLXCEL_SERVER_PARAMS_H
#define MLXCEL_SERVER_PARAMS_H

#include "api/service.h"
#include "server/api_error.h"

enum param_sets { PARAMS_CHAT = 1, PARAMS_COMPLETION = 2, PARAMS_EMBEDDING = 4 };

enum { PARAMS_STOPS_MAX = 16, PARAMS_STOP_BYTES_MAX = 1024, PARAMS_BREAKERS_MAX = 64, PARAMS_CHOICES_MAX = 128 };

struct params {
    struct job_spec job; /* what the engine gets, but for the prompt; what it points at lies in the arena */
    int32_t vocab;
    /* what is the wire's alone */
    int32_t n;
    bool stream, logprobs, echo;
    bool include_usage, usage_always; /* in a stream: behind all pieces; in each of them too */
};

/* set: PARAMS_CHAT or PARAMS_COMPLETION. out->job.sampling holds the defaults before the call, out->vocab the model's. Refuses, by name,
 * fields that ask for what is not there yet. */
int params_read(struct arena *a, yyjson_val *body, enum param_sets set, struct params *out, struct api_error *e);

#endif
