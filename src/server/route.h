/* Requests to handlers. Each family of endpoints is one file with a table of routes; route.c lists the tables.
 *
 * A call is one request on its way: checked and routed on the loop's thread, prepared (JSON, templates, tokens) on a worker's,
 * started on the loop's again. Where there are several models it waits, once its JSON is read, until the one that it names is loaded.
 * It ends by call_end, from whichever answer is complete or when the client is gone.
 */
#ifndef MLXCEL_SERVER_ROUTE_H
#define MLXCEL_SERVER_ROUTE_H

#include "api/service.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/wire.h"

struct server;
struct served;
struct server_settings;
struct call;

enum route_flags {
    ROUTE_PUBLIC = 1,         /* without a key */
    ROUTE_WITHOUT_MODEL = 2,  /* also while none is loaded */
    ROUTE_OF_ALL = 4,         /* of several models together: also while none of them is loaded */
    ROUTE_TAKES_LIST = 8,     /* the body may be a JSON list */
    ROUTE_TAKES_NOTHING = 16, /* or empty, which is {} */
    ROUTE_WATCHED = 32        /* programs that watch a server ask it again and again: not in the log of every request */
};

struct route {
    const char *method, *path;
    unsigned flags;
    int (*prepare)(struct call *c); /* on a worker; NULL: none. Nonzero: c->error is the answer */
    void (*start)(struct call *c);  /* on the loop; answers, or begins to */
};

struct call {
    struct server *server;
    struct service *service;                /* of its model; NULL: none is loaded, or none is chosen yet */
    const struct server_settings *settings; /* of the same model; NULL where service is */
    struct http_exchange *exchange;
    const struct route *route;
    const struct wire *wire; /* how its protocol speaks */
    uint64_t number;         /* of the request, from 1 */
    uint64_t begun_ns;
    struct arena arena;
    yyjson_val *body; /* of a prepared call: the JSON object */
    struct api_error error;
    uv_work_t work;
    void *state;                                   /* the route's */
    void (*on_gone)(struct call *c);               /* the client left; frees what the route holds. call_end follows */
    void (*on_drained)(struct call *c);            /* all bytes have left */
    void (*on_tick)(struct call *c, uint64_t now); /* about once a second */
    const float *adapters;                         /* [n_adapters of its model] scale of each; NULL: as /lora-adapters has them */
    const char *adapter;                           /* the name of the one that it was asked of; NULL: of the model itself */
    struct served *model;                          /* that it holds or waits for; NULL: none, or there is one alone */
    bool is_waiting;
    bool keeps;         /* it says how long its model stays */
    int64_t keep_ms;    /* so long; 0: not at all, -1: for ever */
    uint64_t pinged_ns; /* while it waits: when its client last heard of it */
    struct call *next_waiting;
    struct call *next, **link;
};

/* What a job's user begins with: told, on the loop, when the job has events. */
struct job_listener {
    void (*on_ready)(struct job_listener *listener);
};

/* Whether a request's body is worth reading: what it asks for is there, and it may. */
bool route_accepts(void *user, const struct http_request *q); /* user: struct server */
/* Takes the exchange through checks to its route. */
void route_handle(void *user, struct http_exchange *x); /* user: struct server */
/* Its model is loaded: the call is prepared and started. */
void route_go_on(struct call *c);
/* A sign of life for one that still waits for its model, where its answer is a stream. */
void route_ping(struct call *c);
/* Answers what never becomes a request: counted and marked as every answer is. */
void route_refuse(void *user, struct http_exchange *x, int32_t status, const char *why); /* user: struct server */

/* A whole answer; each of these ends the call. */
void call_reply(struct call *c, int32_t status, const char *type, struct str body);
void call_reply_json(struct call *c, int32_t status, struct str json);
void call_reply_error(struct call *c); /* c->error; in a stream, as its last frame */
void call_end_stream(struct call *c, struct str last);
/* Frees the call. The exchange must be answered, streaming to its end, or gone. */
void call_end(struct call *c);

extern const struct route routes_chat[], routes_completions[], routes_embeddings[], routes_models[], routes_health[], routes_metrics[],
    routes_page[], routes_lcpp_completion[], routes_lcpp_server[], routes_lcpp_slots[], routes_rerank[], routes_lcpp_infill[],
    routes_tokens[], routes_ollama[], routes_ollama_models[], routes_ollama_store[], routes_anthropic[], routes_responses[];

#endif
