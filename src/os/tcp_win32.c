/* Connections between ranks on Windows. */
#include "os/tcp_system.h"

#include "os/win32.h"

#include <stdatomic.h>

void os_tcp_begin(void) {
    static _Atomic bool has_begun;
    WSADATA unread;
    if (!atomic_exchange(&has_begun, true)) WSAStartup(MAKEWORD(2, 2), &unread);
}

int os_tcp_reason(void) {
    return WSAGetLastError();
}

bool os_tcp_would_wait(int reason) {
    return reason == WSAEWOULDBLOCK || reason == WSAEINTR;
}

bool os_tcp_is_under_way(int reason) {
    return reason == WSAEWOULDBLOCK || reason == WSAEINPROGRESS;
}

bool os_tcp_went_again(int reason) {
    return reason == WSAECONNRESET;
}

const char *os_tcp_no_address(int code) {
    return gai_strerrorA(code);
}

int os_tcp_timed_out(void) {
    return WSAETIMEDOUT;
}

bool os_tcp_set_up(os_socket fd) {
    u_long on = 1;
    BOOL one = TRUE;
    if (ioctlsocket(fd, FIONBIO, &on)) return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, (const char *)&one, sizeof one);
    return true;
}

void os_tcp_use_again(os_socket fd) {
    (void)fd; /* as it is; the option would let others take the port */
}

int os_tcp_poll(struct pollfd *p, int n, int timeout_ms) {
    if (n) return WSAPoll(p, (ULONG)n, timeout_ms);
    os_sleep_ms(timeout_ms);
    return 0;
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

void os_tcp_finish(struct os_tcp *t) {
    shutdown(t->fd, SD_SEND);
}

void os_tcp_close_socket(os_socket fd) {
    closesocket(fd);
}
