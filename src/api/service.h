/* A service: a model behind its own thread, for callers that must never wait.
 *
 * The thread loads the model and then turns its engine. Jobs cross over by service_submit; their events are taken by the
 * functions of engine/job.h. Whoever takes them is woken by the notify function.
 *
 * (1) notify is called from the service's thread, which does not compute meanwhile: it may wake somebody (uv_async_send), and take a lock that nobody
 *     holds for long.
 * (2) Submitting, taking and releasing belong to one thread at a time, the owner's. Encoding and looking at tokens are
 *     safe from any thread once the state is ready.
 */
#ifndef MLXCEL_API_SERVICE_H
#define MLXCEL_API_SERVICE_H

#include "api/sampling.h"
#include "base/json.h"
#include "engine/engine.h"

struct service;

struct service_options {
    struct session_options session; /* its strings must live as long as the service; queue and notify are set by the service */
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
/* Ends what still runs; waits for the thread. Jobs that were not released are gone. */
void service_close(struct service *s);
/* *out_why is filled when it failed; it may be NULL. */
enum service_state service_state(struct service *s, struct err *out_why);
/* Whether requests are taken, else what those who ask are told: ERR_EBUSY while the model is being loaded, ERR_EDEVICE once it failed. */
int service_check(struct service *s, struct err *err);

struct service_info {
    const char *name;        /* of the model */
    const char *description; /* one line: model, format, device, context */
    const char *path;        /* the model's folder; NULL: it has none */
    const char *type;        /* model_type of its config */
    const char *weights;     /* how the numbers of its layers are stored */
    uint64_t weight_bytes;   /* of its checkpoint; 0: it has none */
    bool on_gpu;
    int32_t vocab, context;
    int32_t kv_bits;                        /* 8 or 4: the cache of --kv-bits; 0: as the precision wants it */
    int32_t n_seqs;                         /* requests at once */
    int32_t width;                          /* numbers of an embedding */
    const struct session_adapter *adapters; /* [n_adapters] */
    int32_t n_adapters;
    bool drafts; /* requests have drafts, if they do not say otherwise */
    bool has_template;
    bool takes_pictures;
    const struct output_format *format;       /* how the model writes calls; NULL: its template shows no way */
    const struct output_reasoning *reasoning; /* its markers of reasoning; NULL: the usual ones */
    struct sampler_params sampling; /* what a request begins with: as options and generation_config.json say, else drawn at temperature 1 */
};
/* When ready. */
const struct service_info *service_info(const struct service *s);

/* ---- text ----------------------------------------------------------------------------------------------------------- */

struct service_ids {
    int32_t *p; /* in the arena */
    int32_t n;
};
enum service_encoding {
    SERVICE_ADD_SPECIAL = 1,   /* the tokens that the model wants around a text, such as the one for its beginning */
    SERVICE_PARSE_SPECIAL = 2, /* special tokens that are written in the text become tokens */
};
/* Text as it is. flags: of enum service_encoding. */
int service_encode(const struct service *s, struct arena *a, struct str text, unsigned flags, struct service_ids *out, struct err *err);
/* The token that is written so in the vocabulary; -1: there is none. */
int32_t service_token_id(const struct service *s, struct str token);
/* The source of the chat template; empty: the model has none. */
struct str service_template(const struct service *s);
/* A conversation through the model's template: an object with messages, add_generation_prompt and further keywords.
 * Control tokens come from the template alone. *out_text is the rendered prompt. */
int service_encode_chat(const struct service *s, struct arena *a, yyjson_val *input, struct service_ids *out, struct str *out_text,
                        struct err *err);
/* Pictures through the model's tower, which all requests share: it may take seconds. An error says which picture, and why. */
struct session_pictures;
struct service_pictures {
    const struct session_pictures *encoded; /* in the arena; NULL: none */
};
int service_pictures(struct service *s, struct arena *a, const struct str *files, size_t n, struct service_pictures *out, struct err *err);
/* As service_encode_chat, with pictures where the messages have parts of the type "image"; they go into the job. */
int service_encode_pictures(const struct service *s, struct arena *a, yyjson_val *input, const struct service_pictures *pictures,
                            struct service_ids *out, struct str *out_text, struct job_spec *job, struct err *err);
/* Whether a rendered prompt leaves the model inside its reasoning. */
bool service_thinks(const struct service *s, struct str prompt);
/* Whether the model may begin reasoning by itself behind this prompt: it does not end with reasoning that is over. */
bool service_may_think(const struct service *s, struct str prompt);
/* Whether a message that goes on with this text goes on inside its reasoning. */
bool service_thinks_inside(const struct service *s, struct str text);
/* A constraint that jobs of this service may have: compiled, or refused with the reason. From any thread. */
int service_prepare_constraint(struct service *s, const struct constraint_source *source, struct sb *warnings, struct err *err);
/* What an answer that calls tools is held to. */
struct service_calls {
    struct output_tools tools;
    bool in_parallel;          /* several calls in one answer */
    bool is_required;          /* the answer is calls and nothing else; else calls that the model makes are held to the tools */
    struct str content_schema; /* the answer is calls, or content by this JSON schema; {NULL, 0}: content is free */
};
/* False where nobody can say how the model's calls are written. Strings lie in the arena. */
bool service_force_calls(const struct service *service, struct arena *a, const struct service_calls *calls, struct constraint_source *out);
/* What was asked for by an option or field; name NULL: nothing was. */
struct service_wish {
    const char *name;
    struct gram_source grammar;
};
/* Tools that an answer may call, or must. */
struct service_tools {
    yyjson_val *list; /* NULL: none */
    struct str name;  /* the one that is to be called; {NULL, 0}: any */
    bool is_required, one_at_a_time;
};
/* Both together, compiled: *out, in the arena; NULL: the answer is free. After an error *at is the name of what it is about. */
int service_hold(struct service *s, struct arena *a, const struct service_wish *wish, const struct service_tools *tools,
                 const struct constraint_source **out, const char **at, struct err *err);
/* GBNF for an answer that is one of these texts. */
struct str service_choice_grammar(struct arena *a, const struct str *choices, size_t n);
int service_decode(const struct service *s, const int32_t *ids, int32_t n, struct sb *out, struct err *err);
/* The bytes of a token; of a special one its name. */
struct str service_token_text(const struct service *s, int32_t id);
/* What the token is in an answer's text: of a special one nothing. */
struct str service_token_bytes(const struct service *s, int32_t id);

/* ---- jobs ------------------------------------------------------------------------------------------------------------ */

/* The jobs of one request, all or none; errors as service_check and engine_submit. From the owner's thread, as everything in job.h. */
int service_submit(struct service *s, const struct job_spec *specs, int32_t n, struct job **out, struct err *err);

/* As session_embedding. When ready. */
int service_embedding(const struct service *s, enum session_pooling wanted, struct str prompt, struct session_embedding *out,
                      struct err *err);

/* As session_encode_embedding and session_cut; the tokens lie in the arena. When ready. */
int service_encode_embedding(const struct service *s, struct arena *a, const struct session_embedding *how, struct str text,
                             struct service_ids *out, struct err *err);
void service_cut(const struct service *s, struct service_ids *ids, int32_t most);

/* As session_judge and session_encode_question. When ready. */
int service_judge(const struct service *s, enum job_pooling *out_pooling, const struct pool_head **out_head, struct err *err);
int service_encode_question(const struct service *s, struct arena *a, const struct session_question *q, struct service_ids *out,
                            struct err *err);

/* ---- a prompt's cache in a file ------------------------------------------------------------------------------------------ */

struct service_prompt {
    const int32_t *tokens; /* [n_tokens] of a question and, behind it, its answer */
    int32_t n_tokens;
    int32_t n_asked;       /* of them, the question's; 0: all. Where the model's cache cannot be cut, it is saved for these alone */
    const float *adapters; /* [n_adapters] scale of each; NULL: as service_adapter_scales has them */
};
struct service_saved; /* a file that was read */

/* Whether a file name from outside is one plain name on every system: no separators, drives, "..", device names. */
bool service_name_safe(struct str name);
/* A job for service_submit. CACHE_SAVE computes what is not known of the prompt and copies its cache. When it is done, events have `saved`:
 * service_write_prompt puts it into a file, from any thread, before the job is released. usage.n_prompt: tokens that are saved. CACHE_ERASE forgets
 * what is known of the prompt, but what other prompts share. */
struct job_spec service_prompt_job(const struct service_prompt *p, enum job_cache what);
int service_write_prompt(const struct job_events *ev, const char *path, struct err *err);
/* Reads a file and checks that it is whole and this model's. From any thread; when ready. */
int service_read_prompt(const struct service *s, const char *path, struct service_saved **out, struct err *err);
void service_saved_free(struct service_saved *f); /* NULL is fine */
uint64_t service_saved_bytes(const struct service_saved *f);
struct service_prompt service_saved_prompt(const struct service_saved *f);
/* The job that puts it into the cache, so that prompts that begin alike find it there; the file is freed behind it. usage.n_cached: tokens. */
struct job_spec service_restore_job(const struct service_saved *f);

/* The scales of adapters, [n_adapters], for jobs that have none of their own. From the owner's thread; when ready. */
float *service_adapter_scales(struct service *s);

/* The next job that has events, or NULL. */
struct job *service_next_ready(struct service *s);
struct engine_stats service_stats(struct service *s);

#endif
