/* Where a server listens: addresses and sockets in the file system, several of them at once. */
#ifndef MLXCEL_SERVER_LISTEN_H
#define MLXCEL_SERVER_LISTEN_H

#include "base/str.h"

#include <uv.h>

enum { LISTENERS_MAX = 16 };

/* A stream of either kind; the first member of whatever libuv hands back. */
union listen_stream {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct listeners {
    union listen_stream all[LISTENERS_MAX];
    int32_t n;
    int32_t port; /* of the addresses; 0: there is none among them */
    bool is_one;  /* of all that were asked for */
};

bool listen_is_socket(const union listen_stream *s);
/* A handle of the kind that accepts what came to `listener`. */
int listen_init_peer(const union listen_stream *listener, uv_loop_t *loop, union listen_stream *out);

/* Whether each of them is an address or a path. */
int listen_check(const char *hosts, struct err *err);
/* hosts: addresses and paths, separated by commas. Of port 0 the system chooses one, which all addresses get. Where it fails, the first `n`
 * handles are open all the same, and for the caller to close. data: of each handle. */
int listen_open(struct listeners *l, uv_loop_t *loop, const char *hosts, int32_t port, uv_connection_cb on_connection, void *data,
                struct err *err);
/* Their URLs in the arena, at least one: "http://127.0.0.1:8080", "unix:/run/mlxcel.sock". */
size_t listen_urls(struct arena *a, const char *hosts, int32_t port, bool has_tls, struct str **out);

#endif
