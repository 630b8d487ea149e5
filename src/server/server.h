/* The server: one loop with its connections, and the models behind it. */
#ifndef MLXCEL_SERVER_SERVER_H
#define MLXCEL_SERVER_SERVER_H

#include "api/service.h"

/* Whether models think that can do either and whose requests do not say: as the template has it, or not. In the order of auto|on|off. */
enum messages_thinking { THINKING_AUTO, THINKING_ON, THINKING_OFF };

struct server_model {
    const char *name; /* what requests call it; NULL (one model alone): by its folder */
    struct session_options session;
    bool is_preloaded; /* at the start; one model alone always is */
};

struct server_options {
    const struct server_model *models; /* [n_models], at least one */
    size_t n_models;
    int32_t models_max;             /* that are loaded at once */
    int64_t keep_ms;                /* after which a model that nobody asks for is unloaded, where there are several; 0: never */
    struct sampling_given sampling; /* for requests that say nothing themselves */
    const char *host;
    int32_t port;    /* 0: any */
    int32_t n_queue; /* requests that wait beyond those that run */
    int32_t n_conns;
    size_t body_bytes;
    int64_t deadline_ms; /* of a request; 0: none */
    int64_t ping_ms;     /* silence after which a stream gets a comment; 0: never */
    const struct str *keys, *origins, *hosts;
    size_t n_keys, n_origins, n_hosts;
    const char *cert_path, *key_path; /* TLS; NULL: plain */
    enum session_pooling pooling;     /* of embeddings */
    bool prefills;                    /* an answer at the end of a chat's messages is gone on with */
    bool json_log, open_page;
    enum messages_thinking thinking;
    bool verbose;           /* answers tell how they were made, where their form has room for it */
    bool no_page, no_slots; /* the chat page and GET /slots are not there */
    int32_t max_new;        /* tokens of an answer whose request does not say; -1: no limit */
    bool has_seed;          /* requests that say no seed have this one */
    int64_t seed;
};

/* Serves until the process is told to end; returns after what was running has been answered. */
int server_run(const struct server_options *options, struct err *err);

#endif
