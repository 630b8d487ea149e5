/* What a service and its jobs hold; for the files of api/ only. */
#ifndef MLXCEL_API_SERVICE_INTERNAL_H
#define MLXCEL_API_SERVICE_INTERNAL_H

#include "api/service.h"
#include "api/session_internal.h"
#include "engine/embed.h"
#include "engine/stop.h"

#include <stdatomic.h>

enum { BOX_TOKENS_MAX = 4096, BOX_BYTES_MAX = 1 << 20 }; /* events that nobody took; more cancel the job */

struct box {
    struct sb text;
    struct service_token *tokens;
    struct sampler_top *tops;
    size_t n_tokens, tokens_capacity, n_tops, tops_capacity;
};

struct service_job {
    struct service *service;
    void *user;
    /* fixed at submission */
    struct arena arena;
    int32_t *tokens, n_tokens, max_new;
    bool ignore_eos;
    struct sampler_params sampling;
    uint64_t submit_ns, deadline_ns, group;
    bool is_further;
    struct service_ids *inputs; /* [n_inputs] of an embedding; else NULL */
    size_t n_inputs;
    enum embed_pooling pooling;
    float *vectors; /* [n_inputs, width], filled by the engine thread before the end */
    /* the engine thread's */
    struct job *job;            /* NULL before it is submitted and after it ended */
    size_t n_begun, n_embedded; /* inputs */
    struct err embed_why;       /* why one of them could not be */
    bool is_over;               /* its last event is out */
    struct tok_stream stream;
    struct stop stop;
    struct sampler_result result;
    struct sampler_state state;
    struct sb raw, text; /* scratch: of one token */
    uint64_t first_ns, last_ns;
    enum service_finish want; /* it must end, and this is what the end will mean */
    bool is_let_go;           /* its release was seen */
    /* under the service's lock */
    struct box boxes[2];
    int32_t i_box; /* the one that is written */
    enum service_finish finish;
    struct err err;
    struct service_usage usage;
    bool is_ready, is_released, is_done; /* done: the engine thread forgot it */
    size_t n_pending;                    /* tokens since the last take */
    struct service_job *next_ready, *next_in, *next_out;
};

struct service {
    struct service_options options;
    struct session *session;
    struct service_info info;
    struct arena arena;
    const uint32_t *breakers; /* the usual ones */
    struct os_thread *thread;
    struct sampler_work **works; /* [n_works] one for each worker of the engine */
    int32_t n_works;
    struct sb description, name;
    struct service_job **active; /* the engine thread's, as is embed */
    struct embed *embed;         /* texts of all jobs that want vectors; NULL until the first of them */
    int32_t n_active, active_capacity;
    struct service_stats live; /* the engine thread's; published after each step */
    _Atomic int state;
    struct os_mutex *lock; /* for all below */
    struct os_cond *wake;
    struct err why;
    bool quit;
    struct service_job *inbox, **inbox_end; /* new ones */
    struct service_job *released;           /* let go while they ran */
    struct service_job *ready, **ready_end; /* with events */
    int32_t n_held, n_further;              /* submitted and not done; those among them that the queue's limit does not count */
    struct service_stats stats;
    uint64_t n_seeds;
};

/* service_job.c */
engine_fn service_on_event;
engine_choose_fn service_on_choose;
struct service_job *service_job_create(struct service *s, const struct service_request *request, struct err *err);
void service_job_destroy(struct service_job *j);
/* Ends a job that the engine does not have; with the lock not held. */
void service_job_end(struct service_job *j, enum service_finish finish, const struct err *why);

void service_job_set_deadline(struct service_job *j, int64_t deadline_ms);

/* Hands a job over to the thread; destroys it when the queue is full. */
int service_enqueue(struct service *s, struct service_job *j, struct service_job **out, struct err *err);
/* service_embed.c: one batch of texts of the active jobs that want vectors. */
void service_embed_some(struct service *s);
void service_embed_stop(struct service_job *j, enum service_finish finish);

#endif
