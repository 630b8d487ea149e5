/* The server: one loop with its connections, and the models behind it. */
#ifndef MLXCEL_SERVER_SERVER_H
#define MLXCEL_SERVER_SERVER_H

#include "api/service.h"

#include <stdatomic.h>

/* Whether models think that can do either and whose requests do not say: as the template has it, or not. In the order of auto|on|off. */
enum messages_thinking { THINKING_AUTO, THINKING_ON, THINKING_OFF };

/* How a model's requests are answered that say nothing themselves, and how long it stays. */
struct server_settings {
    struct sampling_given sampling;
    int32_t max_new; /* tokens of an answer; -1: no limit */
    bool has_seed;
    int64_t seed;
    enum messages_thinking thinking;
    enum session_pooling pooling; /* of embeddings */
    bool prefills;                /* an answer at the end of a chat's messages is gone on with */
    bool shifts;                  /* an answer goes on where the context is full, and forgets what was before */
    int64_t keep_ms;              /* after which a model that nobody asks for is unloaded, where there are several; 0: never */
};

struct server_model {
    const char *name;          /* what requests call it; NULL (one model alone): by its folder */
    const struct str *aliases; /* [n_aliases] further names of it */
    size_t n_aliases;
    struct session_options session;
    struct server_settings settings;
    bool is_preloaded; /* at the start; one model alone always is */
    bool is_stored;    /* in the store, from which it can be removed */
};

/* How far a model is that is brought into the store, and whether nobody wants the rest. */
struct server_progress {
    atomic_bool stop;
    atomic_ullong done, total; /* bytes; total 0: unknown yet */
};

/* The store behind a server: models come and go while it runs. The functions are called from any thread, and take their time. */
struct server_store {
    /* From the hub, or what is left of it; says how it is served: *out lives as long as the server. */
    int (*pull)(void *user, struct str name, struct server_progress *progress, const struct server_model **out, struct err *err);
    /* Its files; nobody has them open. */
    int (*remove)(void *user, struct str name, struct err *err);
    void *user;
};

struct server;
/* A server inside of another program, on a thread of its own: it catches no signals and writes nothing to standard output. The functions are
 * called on its thread. */
struct server_inside {
    void (*on_ready)(void *user, struct server *server, int32_t port); /* requests are taken; from now on server_end may be called */
    void (*on_over)(void *user);                                       /* and from now on no more */
    void *user;
};

struct server_options {
    const struct server_inside *inside; /* NULL: the server is the process */
    const struct server_store *store;   /* NULL: the models below are all that there will be */
    const struct server_model *models;  /* [n_models], at least one */
    size_t n_models;
    int32_t models_max; /* that are loaded at once */
    const char *host;   /* addresses and paths of sockets, separated by commas */
    int32_t port;       /* 0: any */
    int32_t n_queue;    /* requests that wait beyond those that run */
    int32_t n_conns;
    size_t body_bytes;
    int64_t deadline_ms; /* of a request; 0: none */
    int64_t drain_ms;    /* for the requests that run when the server is told to end */
    int64_t ping_ms;     /* silence after which a stream gets a comment; 0: never */
    const struct str *keys, *origins, *hosts;
    size_t n_keys, n_origins, n_hosts;
    const char *cert_path, *key_path; /* TLS; NULL: plain */
    bool json_log, open_page;
    bool verbose;           /* answers tell how they were made, where their form has room for it */
    const char *slot_dir;   /* folder of saved slots; NULL: they are neither saved nor restored */
    bool fetches_pictures;  /* at public addresses of https that requests name */
    bool no_page, no_slots; /* the chat page and GET /slots are not there */
};

/* One of the hosts as a socket's path: "unix:/run/mlxcel.sock", or anything with a slash. {NULL, 0}: it is an address. */
struct str server_socket_path(struct str host);

/* What can be wrong with the options and shows before anything is opened: certificates, addresses. */
int server_check(const struct server_options *options, struct err *err);
/* The URLs of the server, in the arena: "http://127.0.0.1:8080", "unix:/run/mlxcel.sock". */
size_t server_urls(struct arena *a, const struct server_options *options, struct str **out);
/* Serves until the process, or the server by server_end, is told to end; returns after what was running has been answered. */
int server_run(const struct server_options *options, struct err *err);
/* From any thread; the server ends soon. */
void server_end(struct server *s);

#endif
