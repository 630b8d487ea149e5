/* The server's inside, for its own files and the routes that report on it. */
#ifndef MLXCEL_SERVER_SERVER_INTERNAL_H
#define MLXCEL_SERVER_SERVER_INTERNAL_H

#include "server/browser.h"
#include "server/guard.h"
#include "server/models.h"
#include "server/route.h"
#include "server/server.h"

struct server {
    struct server_options options;
    uv_loop_t loop;
    uv_async_t wake;
    uv_signal_t signals[3];
    uv_work_t first_work;
    uv_timer_t tick, drain;
    uv_process_t browsers[BROWSER_OPENERS];
    struct http_server *http;
    struct served *models; /* a list, those that were removed too: models_first */
    bool is_one;           /* models_is_one */
    struct pull *pulls;    /* models that are on their way into the store */
    int64_t n_closed;      /* times that a model was closed, and its memory free again */
    struct guard *guard;
    struct response_store *responses;
    struct tls_context *tls;
    struct call *calls;
    bool announced, draining, closing;
    atomic_bool is_told_to_end; /* by another thread of the program that it is inside of */
    uint64_t drain_ns;
    struct err why;  /* the model could not be loaded */
    int64_t started; /* seconds since 1970 */
    /* figures */
    int64_t n_requests, n_answers[6]; /* by the status' first digit */
    uint64_t n_ids;
};

/* A fresh id with this prefix, in the arena. */
struct str server_new_id(struct server *s, struct arena *a, const char *prefix);
/* Of what computes the answers: it is another where the program, the model or its device is. In the arena of the call. */
struct str server_fingerprint(struct call *c);

#endif
