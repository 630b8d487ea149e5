/* HTTP/1.1 over libuv: connections, their time limits, replies and streams. Knows requests and bytes, no JSON, no models.
 *
 * (1) Everything here runs on the loop's thread.
 * (2) A connection handles one request at a time; what comes behind it waits, and is bounded.
 * (3) An exchange (a request and its answer) outlives its connection: `conn` becomes NULL when the client is gone, and
 *     on_gone is called. It is freed when nobody holds it: the connection until the answer is complete, the handler by
 *     http_hold and http_release.
 * (4) A connection that broke the protocol is answered and closed, never read on.
 */
#ifndef MLXCEL_SERVER_HTTP_H
#define MLXCEL_SERVER_HTTP_H

#include "server/http_parse.h"

#include <uv.h>

struct http_server;
struct http_conn;
struct tls_context;

struct http_exchange {
    struct http_request request;
    struct http_conn *conn; /* NULL: the client is gone, or the answer is complete */
    struct sb headers;      /* further headers of the answer, "Name: value\r\n" each */
    int32_t n_holds;
    int32_t status; /* of the answer, once it began */
    bool streaming;
    void *state;                                 /* the handler's */
    void (*on_gone)(struct http_exchange *x);    /* the client left before the answer was complete */
    void (*on_drained)(struct http_exchange *x); /* everything that was written has left */
};

struct http_options {
    uv_loop_t *loop;
    const char *host; /* as listen_open takes it */
    int32_t port;     /* 0: any */
    struct http_limits limits;
    int32_t n_conns;         /* most at once; further ones get 503 */
    struct tls_context *tls; /* NULL: plain */
    /* Asked when the head of a request with a body is there. False: it is handled at once without its body, which must end in an error;
     * then the connection is closed. */
    bool (*accept)(void *user, const struct http_request *r);
    void (*handle)(void *user, struct http_exchange *x);
    /* Must answer at once, with this status, what is no request or exceeds a limit. Without a whole head the exchange's request is empty. */
    void (*refuse)(void *user, struct http_exchange *x, int32_t status, const char *why);
    void *user;
};

int http_server_open(const struct http_options *options, struct http_server **out, struct err *err);
/* Of the addresses; 0: it listens on sockets alone. */
int32_t http_server_port(const struct http_server *s);
int32_t http_server_n_conns(const struct http_server *s);
/* No new connections; idle ones are closed, others after their answer. */
void http_server_drain(struct http_server *s);
/* Closes everything; the memory is freed when the loop has run the closing callbacks, then on_closed is called. */
void http_server_close(struct http_server *s, void (*on_closed)(void *user), void *user);

void http_hold(struct http_exchange *x);
void http_release(struct http_exchange *x);

/* A whole answer; ends the exchange for the connection. The body is copied. */
void http_reply(struct http_exchange *x, int32_t status, const char *content_type, struct str body);
/* An answer of unknown length. */
void http_stream_begin(struct http_exchange *x, int32_t status, const char *content_type);
void http_stream_write(struct http_exchange *x, struct str data);
void http_stream_end(struct http_exchange *x);
/* Whether the client said that it sends no more: it waits for the answer, or it is gone. Writing finds out: what is sent to one that is
 * gone comes back as a reset. */
bool http_is_half_closed(const struct http_exchange *x);
/* Bytes that the client has not taken yet. */
size_t http_pending(const struct http_exchange *x);

#endif
