/* Connections between ranks: what both systems have alike. */
#include "os/tcp_system.h"

#include "base/arena.h"

#include <stdio.h>

/* ---- addresses ----------------------------------------------------------------------------------------------------- */

static socklen_t to_system(const struct os_tcp_address *a, struct sockaddr_storage *out) {
    memset(out, 0, sizeof *out);
    if (a->n == 4) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)a->port);
        memcpy(&v4->sin_addr, a->bytes, 4);
        return sizeof *v4;
    }
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons((uint16_t)a->port);
    memcpy(&v6->sin6_addr, a->bytes, 16);
    return sizeof *v6;
}

static void from_system(const struct sockaddr_storage *from, struct os_tcp_address *out) {
    *out = (struct os_tcp_address){0};
    out->n = os_socket_address(from->ss_family, from, out->bytes);
    out->port = ntohs(((const struct sockaddr_in *)from)->sin_port); /* in the same place for both kinds */
}

int os_tcp_resolve(const char *host, int port, struct os_tcp_address *out, struct err *err) {
    struct addrinfo *list = NULL, wanted = {.ai_socktype = SOCK_STREAM};
    os_tcp_begin();
    int code = getaddrinfo(host, NULL, &wanted, &list);
    if (code) return err_set(err, ERR_ENOTFOUND, "%.200s has no address: %s", host, os_tcp_no_address(code));
    struct sockaddr_storage first = {0};
    memcpy(&first, list->ai_addr, list->ai_addrlen < sizeof first ? list->ai_addrlen : sizeof first);
    freeaddrinfo(list);
    from_system(&first, out);
    out->port = port;
    return ERR_OK;
}

const char *os_tcp_text(const struct os_tcp_address *a, char out[OS_TCP_TEXT]) {
    char text[INET6_ADDRSTRLEN] = "";
    os_tcp_begin();
    inet_ntop(a->n == 4 ? AF_INET : AF_INET6, a->bytes, text, sizeof text);
    snprintf(out, OS_TCP_TEXT, a->n == 4 ? "%s:%d" : "[%s]:%d", text, a->port);
    return out;
}

void os_tcp_own_address(const struct os_tcp *t, struct os_tcp_address *out) {
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    getsockname(t->fd, (struct sockaddr *)&address, &n);
    from_system(&address, out);
}

void os_tcp_peer_address(const struct os_tcp *t, struct os_tcp_address *out) {
    struct sockaddr_storage address = {0};
    socklen_t n = sizeof address;
    getpeername(t->fd, (struct sockaddr *)&address, &n);
    from_system(&address, out);
}

/* ---- opening and closing ------------------------------------------------------------------------------------------- */

/* Takes the socket; one that cannot be set up is closed. */
static int wrap(os_socket fd, struct os_tcp **out, struct err *err) {
    if (!os_tcp_set_up(fd)) {
        int code = os_fail(err, os_tcp_reason(), "set up", "a connection");
        os_tcp_close_socket(fd);
        return code;
    }
    *out = mem_alloc(sizeof **out);
    (*out)->fd = fd;
    return ERR_OK;
}

static int open_for(const struct os_tcp_address *a, struct os_tcp **out, struct err *err) {
    os_tcp_begin();
    os_socket fd = socket(a->n == 4 ? AF_INET : AF_INET6, SOCK_STREAM, 0);
    return fd == OS_NO_SOCKET ? os_fail(err, os_tcp_reason(), "open", "a connection") : wrap(fd, out, err);
}

int os_tcp_listen(const struct os_tcp_address *at, struct os_tcp **out, struct err *err) {
    struct sockaddr_storage address;
    socklen_t n = to_system(at, &address);
    struct os_tcp *t;
    char text[OS_TCP_TEXT];
    TRY(open_for(at, &t, err));
    os_tcp_use_again(t->fd);
    if (bind(t->fd, (const struct sockaddr *)&address, n) || listen(t->fd, 128)) {
        int code = os_fail(err, os_tcp_reason(), "listen on", os_tcp_text(at, text));
        os_tcp_close(t);
        return code;
    }
    *out = t;
    return ERR_OK;
}

int os_tcp_accept(struct os_tcp *listener, int timeout_ms, struct os_tcp **out, struct err *err) {
    *out = NULL;
    os_tcp_wait(&(struct os_tcp_wish){.t = listener, .receives = true}, 1, timeout_ms);
    os_socket fd = accept(listener->fd, NULL, NULL);
    if (fd != OS_NO_SOCKET) return wrap(fd, out, err);
    int reason = os_tcp_reason();
    return os_tcp_would_wait(reason) || os_tcp_went_again(reason) ? ERR_OK : os_fail(err, reason, "accept", "a connection");
}

/* The system's number of what became of it. */
static int connected(const struct os_tcp *t, int timeout_ms) {
    int reason = 0;
    socklen_t n = sizeof reason;
    struct pollfd p = {.fd = t->fd, .events = POLLOUT};
    if (os_tcp_poll(&p, 1, timeout_ms) <= 0) return os_tcp_timed_out();
    return getsockopt(t->fd, SOL_SOCKET, SO_ERROR, (void *)&reason, &n) ? os_tcp_reason() : reason;
}

int os_tcp_connect(const struct os_tcp_address *to, int timeout_ms, struct os_tcp **out, struct err *err) {
    struct sockaddr_storage address;
    socklen_t n = to_system(to, &address);
    struct os_tcp *t;
    char text[OS_TCP_TEXT];
    TRY(open_for(to, &t, err));
    int reason = connect(t->fd, (const struct sockaddr *)&address, n) ? os_tcp_reason() : 0;
    if (os_tcp_is_under_way(reason)) reason = connected(t, timeout_ms);
    if (reason) {
        os_tcp_close(t);
        return os_fail(err, reason, "connect to", os_tcp_text(to, text));
    }
    *out = t;
    return ERR_OK;
}

void os_tcp_close(struct os_tcp *t) {
    if (!t) return;
    os_tcp_close_socket(t->fd);
    mem_free(t);
}

/* ---- waiting ------------------------------------------------------------------------------------------------------- */

void os_tcp_wait(const struct os_tcp_wish *wishes, int n, int timeout_ms) {
    struct pollfd p[OS_TCP_WISHES_MAX];
    for (int i = 0; i < n; i++)
        p[i] =
            (struct pollfd){.fd = wishes[i].t->fd, .events = (short)((wishes[i].sends ? POLLOUT : 0) | (wishes[i].receives ? POLLIN : 0))};
    os_tcp_poll(p, n, timeout_ms);
}
