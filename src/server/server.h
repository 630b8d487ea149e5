/* The server: one loop with its connections, one service behind it. */
#ifndef MLXCEL_SERVER_SERVER_H
#define MLXCEL_SERVER_SERVER_H

#include "api/service.h"

/* Whether models think that can do either and whose requests do not say: as the template has it, or not. In the order of auto|on|off. */
enum messages_thinking { THINKING_AUTO, THINKING_ON, THINKING_OFF };

struct server_options {
    struct session_options session;
    struct sampling_given sampling; /* for requests that say nothing themselves */
    const char *name;               /* of the model; NULL: by its folder */
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
    enum service_pooling pooling;     /* of embeddings */
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
