/* A connection's inside, for http.c, http_reply.c and tls.c. */
#ifndef MLXCEL_SERVER_HTTP_INTERNAL_H
#define MLXCEL_SERVER_HTTP_INTERNAL_H

#include "server/http.h"
#include "server/listen.h"

enum conn_state {
    CONN_IDLE,    /* between requests */
    CONN_READING, /* a request has begun */
    CONN_BUSY,    /* a request is being answered */
    CONN_LINGER,  /* answered and shut down; what the client still sends is thrown away */
    CONN_CLOSED,
};

struct http_conn {
    union listen_stream peer; /* first: libuv's handle is the connection */
    struct http_server *server;
    struct http_conn *next, **link;
    enum conn_state state;
    struct http_parse parse;
    struct http_exchange *exchange; /* being read or answered */
    struct sb waiting;              /* bytes behind the current request */
    uint64_t since_ns;              /* the state's beginning */
    uint64_t came_ns, went_ns;      /* the last byte from the client, and to it: one that talks on need not take anything */
    size_t n_ignored, ignored_max;  /* bytes thrown away while lingering, and how many may be */
    size_t last_queued;             /* bytes that waited to be sent at the last tick */
    bool close_after, reading_paused, is_http10, is_head, handling;
    bool is_ended, is_shut; /* the client sends no more; we do not, and all has left */
    int32_t n_probes;       /* of whether it still reads, since it ended */
    uint64_t probe_ns;      /* the next one */
    struct tls *tls;
};

struct http_server {
    struct listeners listeners;
    uv_timer_t timer;
    struct http_options options;
    struct http_conn *conns;
    int32_t n_conns;
    bool draining, closing;
    int32_t n_handles; /* of ours that are open */
    void (*on_closed)(void *user);
    void *closed_user;
};

/* Plain bytes in, to be parsed. */
void conn_input(struct http_conn *c, const char *data, size_t n);
/* The client sends no more. */
void conn_ended(struct http_conn *c);
/* Bytes out: through TLS where there is one. */
void conn_send(struct http_conn *c, struct str data);
/* Bytes out as they are. */
void conn_write(struct http_conn *c, struct str data);
void conn_close(struct http_conn *c);
/* The answer is complete: the next request, or the end. */
void conn_answered(struct http_conn *c);

#endif
