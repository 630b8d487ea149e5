/* Connections between processes that compute together: plain TCP, whose reader knows how many bytes come next and has nothing else to do meanwhile. The
 * server's connections are libuv's.
 *
 * (1) Nothing here waits, but for what has a time limit. Small pieces go out at once (TCP_NODELAY).
 * (2) A connection belongs to one thread at a time.
 */
#ifndef MLXCEL_OS_TCP_H
#define MLXCEL_OS_TCP_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct os_tcp;

struct os_tcp_address {
    unsigned char bytes[16]; /* in the order of the network */
    int n;                   /* 4 of IPv4 or 16 of IPv6 */
    int port;
};

struct os_tcp_piece {
    const void *p;
    size_t n;
};

enum { OS_TCP_TEXT = 64 };

/* The first address that a name has. ERR_ENOTFOUND: it has none now. */
int os_tcp_resolve(const char *host, int port, struct os_tcp_address *out, struct err *err);
/* "10.0.0.1:29500" */
const char *os_tcp_text(const struct os_tcp_address *a, char out[OS_TCP_TEXT]);

int os_tcp_listen(const struct os_tcp_address *at, struct os_tcp **out, struct err *err); /* port 0: any */
/* *out NULL: nobody came in time. */
int os_tcp_accept(struct os_tcp *listener, int timeout_ms, struct os_tcp **out, struct err *err);
int os_tcp_connect(const struct os_tcp_address *to, int timeout_ms, struct os_tcp **out, struct err *err);
void os_tcp_own_address(const struct os_tcp *t, struct os_tcp_address *out);
void os_tcp_peer_address(const struct os_tcp *t, struct os_tcp_address *out);

/* Bytes of the two pieces, one behind the other, that went out; 0: none can now; below 0: the connection is gone. */
int64_t os_tcp_send(struct os_tcp *t, const struct os_tcp_piece pieces[2]);
/* Bytes that have come, n at most; 0: none have yet; below 0: the connection is gone. */
int64_t os_tcp_receive(struct os_tcp *t, void *data, size_t n);

struct os_tcp_wish {
    struct os_tcp *t;
    bool sends, receives;
};
enum { OS_TCP_WISHES_MAX = 128 };
/* Until one of them can, or is gone, or the time is over. */
void os_tcp_wait(const struct os_tcp_wish *wishes, int n, int timeout_ms);

void os_tcp_finish(struct os_tcp *t); /* nothing more is sent; what the other side sends can still be read */
void os_tcp_close(struct os_tcp *t);  /* NULL is fine */

#endif
