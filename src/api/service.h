/* A service: a model behind its own thread, for callers that must never wait.
 *
 * The thread loads the model and then owns the session and its engine. Requests cross over by service_submit, answers come
 * back as events that pile up in the request's job until they are taken. Whoever takes them is woken by the notify function.
 *
 * (1) notify is called from the engine's thread and may only wake somebody (uv_async_send).
 * (2) The engine never waits for a reader: a job whose events are not taken is cancelled when its box is full.
 * (3) submit, next_ready, take and release belong to one thread at a time, the owner's. Encoding and looking at tokens are
 *     safe from any thread once the state is ready.
 * (4) A job lives until it is released. Releasing one that still runs cancels it at the next step.
 */
#ifndef MLXCEL_API_SERVICE_H
#define MLXCEL_API_SERVICE_H

#include "api/sampling.h"
#include "base/json.h"

struct service;
struct service_job;

struct service_options {
    struct session_options session; /* its strings must live as long as the service */
    const char *name;               /* what the model is called; NULL: by its folder */
    struct sampling_given sampling; /* for requests that say nothing themselves */
    int32_t n_queue;                /* requests that may wait beyond those that run */
    void (*notify)(void *user);
    void *user;
};

enum service_state { SERVICE_LOADING, SERVICE_READY, SERVICE_FAILED };

/* Returns at once; the state becomes ready, or failed, later (with a notify). It also fails when the device is lost: jobs then end with errors,
 * and no more are taken. */
int service_open(const struct service_options *options, struct service **out, struct err *err);
/* Ends what still runs; waits for the thread. Jobs must have been released. */
void service_close(struct service *s);
/* *out_why is filled when it failed; it may be NULL. */
enum service_state service_state(struct service *s, struct err *out_why);

struct service_info {
    const char *name;        /* of the model */
    const char *description; /* one line: model, format, device, context */
    int32_t vocab, context;
    int32_t kv_bits; /* 8 or 4: the cache of --kv-bits; 0: as the precision wants it */
    int32_t n_seqs;  /* requests at once */
    int32_t width;   /* numbers of an embedding */
    bool has_template;
    struct sampler_params sampling; /* what a request begins with: as options and generation_config.json say, else drawn at temperature 1 */
};
/* When ready. */
const struct service_info *service_info(const struct service *s);

/* ---- text ----------------------------------------------------------------------------------------------------------- */

struct service_ids {
    int32_t *p; /* in the arena */
    int32_t n;
};
/* Text as it is; special tokens that are written in it count only with parse_special. */
int service_encode(const struct service *s, struct arena *a, struct str text, bool parse_special, struct service_ids *out, struct err *err);
/* A conversation through the model's template: an object with messages, add_generation_prompt and further keywords.
 * Control tokens come from the template alone. *out_text is the rendered prompt. */
int service_encode_chat(const struct service *s, struct arena *a, yyjson_val *input, struct service_ids *out, struct str *out_text,
                        struct err *err);
int service_decode(const struct service *s, const int32_t *ids, int32_t n, struct sb *out, struct err *err);
/* The bytes of a token; of a special one its name. */
struct str service_token_text(const struct service *s, int32_t id);

/* ---- requests ------------------------------------------------------------------------------------------------------- */

struct service_request { /* all of it is copied */
    const int32_t *tokens;
    int32_t n_tokens;
    int32_t max_new; /* -1: until the end or the context is full */
    bool ignore_eos;
    bool has_seed;                  /* else one is made up */
    struct sampler_params sampling; /* dry_breakers is the service's own affair */
    const struct str *breakers;     /* [n_breakers] of DRY; NULL: the usual ones */
    size_t n_breakers;
    const struct str *stops;
    size_t n_stops;
    int64_t deadline_ms; /* from now; 0: none */
    uint64_t group;      /* generations of one request share a number other than 0 */
    bool is_further;     /* one more of a group that was taken: the queue's limit counts requests */
    void *user;
};

/* SERVICE_STOP and its like are macros of windows.h. */
enum service_finish {
    JOB_GOES_ON,
    JOB_STOP,      /* end-of-text token or a stop string */
    JOB_LENGTH,    /* max_new, or the context is full */
    JOB_CANCELLED, /* released, or its events were not taken */
    JOB_DEADLINE,
    JOB_ERROR,
    N_SERVICE_FINISHES,
};

struct service_token {
    int32_t id;
    float logprob;
    int32_t n_top; /* its rows in `tops`, one token's after another's */
};

struct service_usage {
    int32_t n_prompt, n_cached, n_new;
    double prompt_seconds, new_seconds; /* from submission to the first token; from there to the last */
};

struct service_events {
    struct str text;                    /* new text; complete characters */
    const struct service_token *tokens; /* that it was made from, where log-probabilities were asked for; else none */
    size_t n_tokens;
    const struct sampler_top *tops;
    enum service_finish finish;
    struct err err; /* JOB_ERROR: why */
    struct service_usage usage;
    const float *vectors; /* [inputs, width] of an embedding that is done */
};

/* ERR_EBUSY: the queue is full. ERR_ELIMIT: the prompt does not fit the context. ERR_EARG: anything else in the request. */
int service_submit(struct service *s, const struct service_request *request, struct service_job **out, struct err *err);

/* In the order of the choices auto|mean|last. Auto: as the model's own files say, else the mean. */
enum service_pooling { SERVICE_POOL_AUTO, SERVICE_POOL_MEAN, SERVICE_POOL_LAST };

struct service_embed_request { /* all of it is copied */
    const struct service_ids *inputs;
    size_t n_inputs;
    enum service_pooling pooling;
    int64_t deadline_ms; /* from now; 0: none */
    void *user;
};
/* One job for all inputs; it ends with its vectors and JOB_STOP. Errors as service_submit. */
int service_embed(struct service *s, const struct service_embed_request *request, struct service_job **out, struct err *err);
/* The next job that has events, or NULL. */
struct service_job *service_next_ready(struct service *s);
void *service_job_user(const struct service_job *job);
/* Takes what has come so far; valid until the next take of this job. */
void service_take(struct service_job *job, struct service_events *out);
void service_release(struct service_job *job);

/* ---- figures -------------------------------------------------------------------------------------------------------- */

enum { HISTOGRAM_MAX = 12 };
struct histogram {
    const double *bounds; /* upper ends; one more bucket has none */
    int32_t n_bounds;
    uint64_t counts[HISTOGRAM_MAX + 1], n;
    double sum;
};

struct service_stats {
    int32_t n_waiting, n_running;
    int32_t rows_prefill, rows_decode; /* of the last step */
    int64_t n_steps, n_preempted, n_prompt_tokens, n_new_tokens, n_cached_tokens;
    int64_t n_prefix_hits, n_prefix_misses;
    int32_t blocks_total, blocks_used, blocks_cached; /* used: by requests; cached: kept for prefixes alone */
    int64_t n_finished[N_SERVICE_FINISHES];
    struct histogram first_token, between_tokens; /* seconds */
};
struct service_stats service_stats(struct service *s);

#endif
