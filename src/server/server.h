/* The server: one loop with its connections, one service behind it. */
#ifndef MLXCEL_SERVER_SERVER_H
#define MLXCEL_SERVER_SERVER_H

#include "api/service.h"

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
    bool prefills;                    /* an answer at the end of a chat's messages is gone on with */
    bool json_log, open_page;
};

/* Serves until the process is told to end; returns after what was running has been answered. */
int server_run(const struct server_options *options, struct err *err);

#endif
