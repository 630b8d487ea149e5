/* Connections between ranks on Windows. */
#include <winsock2.h>
#include <ws2tcpip.h>

#include "os/tcp.h"

#include "base/arena.h"
#include "os/os_internal.h"
#include "os/win32.h"

#include <stdatomic.h>
#include <stdio.h>

struct os_tcp {
    SOCKET fd;
};

/* Before the first socket; again and again does no harm. */
static void begin(void) {
    static _Atomic bool has_begun;
    WSADATA unread;
    if (!atomic_exchange(&has_begun, true)) WSAStartup(MAKEWORD(2, 2), &unread);
}

static int to_system(const struct os_tcp_address *a, struct sockaddr_storage *out) {
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
    begin();
    int code = getaddrinfo(host, NULL, &wanted, &list);
    if (code) return err_set(err, ERR_ENOTFOUND, "%.200s has no address (%d)", host, code);
    struct sockaddr_storage first = {0};
    memcpy(&first, list->ai_addr, list->ai_addrlen < sizeof first ? list->ai_addrlen : sizeof first);
    freeaddrinfo(list);
    from_system(&first, out);
    out->port = port;
    return ERR_OK;
}

const char *os_tcp_text(const struct os_tcp_address *a, char out[OS_TCP_TEXT]) {
    char text[INET6_ADDRSTRLEN] = "";
    begin();
    inet_ntop(a->n == 4 ? AF_INET : AF_INET6, a->bytes, text, sizeof text);
    snprintf(out, OS_TCP_TEXT, a->n == 4 ? "%s:%d" : "[%s]:%d", text, a->port);
    return out;
}

/* Takes the socket. */
static int wrap(SOCKET fd, struct os_tcp **out) {
    u_long on = 1;
    BOOL one = TRUE;
    ioctlsocket(fd, FIONBIO, &on);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, (const char *)&one, sizeof one);
    *out = mem_alloc(sizeof **out);
    (*out)->fd = fd;
    return ERR_OK;
}

static int open_for(const struct os_tcp_address *a, struct os_tcp **out, struct err *err) {
    begin();
    SOCKET fd = socket(a->n == 4 ? AF_INET : AF_INET6, SOCK_STREAM, 0);
    if (fd == INVALID_SOCKET) return os_fail(err, WSAGetLastError(), "open", "a connection");
    return wrap(fd, out);
}

int os_tcp_listen(const struct os_tcp_address *at, struct os_tcp **out, struct err *err) {
    struct sockaddr_storage address;
    int n = to_system(at, &address);
    struct os_tcp *t;
    char text[OS_TCP_TEXT];
    TRY(open_for(at, &t, err));
    if (bind(t->fd, (const struct sockaddr *)&address, n) || listen(t->fd, 128)) {
        int code = os_fail(err, WSAGetLastError(), "listen on", os_tcp_text(at, text));
        os_tcp_close(t);
        return code;
    }
    *out = t;
    return ERR_OK;
}

int os_tcp_accept(struct os_tcp *listener, int timeout_ms, struct os_tcp **out, struct err *err) {
    *out = NULL;
    os_tcp_wait(&(struct os_tcp_wish){.t = listener, .receives = true}, 1, timeout_ms);
    SOCKET fd = accept(listener->fd, NULL, NULL);
    if (fd != INVALID_SOCKET) return wrap(fd, out);
    int reason = WSAGetLastError();
    bool is_none = reason == WSAEWOULDBLOCK || reason == WSAECONNRESET || reason == WSAEINTR;
    return is_none ? ERR_OK : os_fail(err, reason, "accept", "a connection");
}

/* The system's number of what became of it. */
static int connected(const struct os_tcp *t, int timeout_ms) {
    int reason = 0, n = sizeof reason;
    WSAPOLLFD p = {.fd = t->fd, .events = POLLOUT};
    if (WSAPoll(&p, 1, timeout_ms) <= 0) return WSAETIMEDOUT;
    return getsockopt(t->fd, SOL_SOCKET, SO_ERROR, (char *)&reason, &n) ? WSAGetLastError() : reason;
}

int os_tcp_connect(const struct os_tcp_address *to, int timeout_ms, struct os_tcp **out, struct err *err) {
    struct sockaddr_storage address;
    int n = to_system(to, &address);
    struct os_tcp *t;
    char text[OS_TCP_TEXT];
    TRY(open_for(to, &t, err));
    int reason = connect(t->fd, (const struct sockaddr *)&address, n) ? WSAGetLastError() : 0;
    if (reason == WSAEWOULDBLOCK || reason == WSAEINPROGRESS) reason = connected(t, timeout_ms);
    if (reason) {
        os_tcp_close(t);
        return os_fail(err, reason, "connect to", os_tcp_text(to, text));
    }
    *out = t;
    return ERR_OK;
}

void os_tcp_own_address(const struct os_tcp *t, struct os_tcp_address *out) {
    struct sockaddr_storage address = {0};
    int n = sizeof address;
    getsockname(t->fd, (struct sockaddr *)&address, &n);
    from_system(&address, out);
}

void os_tcp_peer_address(const struct os_tcp *t, struct os_tcp_address *out) {
    struct sockaddr_storage address = {0};
    int n = sizeof address;
    getpeername(t->fd, (struct sockaddr *)&address, &n);
    from_system(&address, out);
}

enum { PIECE_MAX = 1 << 30 }; /* lengths have 32 bits here */

static ULONG length(size_t n) {
    return (ULONG)(n < PIECE_MAX ? n : PIECE_MAX);
}

int64_t os_tcp_send(struct os_tcp *t, const struct os_tcp_piece pieces[2]) {
    WSABUF parts[2] = {{length(pieces[0].n), (char *)(uintptr_t)pieces[0].p}, {length(pieces[1].n), (char *)(uintptr_t)pieces[1].p}};
    DWORD n = 0;
    if (WSASend(t->fd, parts, 2, &n, 0, NULL, NULL) == 0) return n;
    return WSAGetLastError() == WSAEWOULDBLOCK ? 0 : -1;
}

int64_t os_tcp_receive(struct os_tcp *t, void *data, size_t n) {
    int got = recv(t->fd, data, (int)length(n), 0);
    if (got > 0) return got;
    return got < 0 && WSAGetLastError() == WSAEWOULDBLOCK ? 0 : -1;
}

void os_tcp_wait(const struct os_tcp_wish *wishes, int n, int timeout_ms) {
    WSAPOLLFD p[OS_TCP_WISHES_MAX];
    for (int i = 0; i < n; i++)
        p[i] = (WSAPOLLFD){.fd = wishes[i].t->fd, .events = (SHORT)((wishes[i].sends ? POLLOUT : 0) | (wishes[i].receives ? POLLIN : 0))};
    if (n) WSAPoll(p, (ULONG)n, timeout_ms);
    else os_sleep_ms(timeout_ms);
}

void os_tcp_finish(struct os_tcp *t) {
    shutdown(t->fd, SD_SEND);
}

void os_tcp_close(struct os_tcp *t) {
    if (!t) return;
    closesocket(t->fd);
    mem_free(t);
}
