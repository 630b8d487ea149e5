/* The parameters of a generation, from a request's JSON. Every number passes one table with its range; what is out of range,
 * of another type or not finite is refused by name. */
#ifndef MLXCEL_SERVER_PARAMS_H
#define MLXCEL_SERVER_PARAMS_H

#include "api/service.h"
#include "server/api_error.h"

enum param_sets { PARAMS_CHAT = 1, PARAMS_COMPLETION = 2, PARAMS_EMBEDDING = 4, PARAMS_LLAMA = 8 };

enum { PARAMS_STOPS_MAX = 16, PARAMS_STOP_BYTES_MAX = 1024, PARAMS_BREAKERS_MAX = 64, PARAMS_CHOICES_MAX = 128 };

struct params {
    struct job_spec job; /* what the engine gets, but for the prompt; what it points at lies in the arena */
    int32_t vocab;
    const struct service *service; /* makes tokens of words in logit_bias; NULL: only ids are taken */
    /* what is the wire's alone */
    int32_t n;
    bool stream, logprobs, echo;
    bool include_usage, usage_always; /* in a stream: behind all pieces; in each of them too */
    bool keeps_tokens;                /* the answer names its tokens, also without log-probabilities */
    bool timings_always;              /* in a stream: in each piece */
    bool verbose;                     /* the answer tells how it was made */
    int64_t max_new_ms;               /* after the first token, once there is a new line; 0: no limit */
    int32_t slot;                     /* named in the answer: slots all know the same */
};

/* set: PARAMS_CHAT, PARAMS_COMPLETION or PARAMS_LLAMA. Before the call *out holds the defaults: job.sampling, job.has_seed, job.max_new (-1: none
 * is set), job.shifts, vocab and service. Refuses, by name, fields that ask for what is not there yet. */
int params_read(struct arena *a, yyjson_val *body, enum param_sets set, struct params *out, struct api_error *e);

#endif
