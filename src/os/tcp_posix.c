/* Connections between ranks on POSIX systems. */
#include "os/tcp_system.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef MSG_NOSIGNAL
enum { SEND_FLAGS = MSG_NOSIGNAL };
#else
enum { SEND_FLAGS = 0 }; /* the program ignores SIGPIPE */
#endif

void os_tcp_begin(void) {}

int os_tcp_reason(void) {
    return errno;
}

bool os_tcp_would_wait(int reason) {
    return reason == EAGAIN || reason == EWOULDBLOCK || reason == EINTR;
}

bool os_tcp_is_under_way(int reason) {
    return reason == EINPROGRESS || reason == EINTR;
}

bool os_tcp_went_again(int reason) {
    return reason == ECONNABORTED;
}

const char *os_tcp_no_address(int code) {
    return gai_strerror(code);
}

int os_tcp_timed_out(void) {
    return ETIMEDOUT;
}

bool os_tcp_set_up(os_socket fd) {
    int one = 1;
    if (fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC)) return false;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one); /* of a listener: nothing */
#ifdef SO_NOSIGPIPE
    setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &one, sizeof one);
#endif
    return true;
}

void os_tcp_use_again(os_socket fd) {
    int one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
}

int os_tcp_poll(struct pollfd *p, int n, int timeout_ms) {
    return poll(p, (nfds_t)n, timeout_ms);
}

int64_t os_tcp_send(struct os_tcp *t, const struct os_tcp_piece pieces[2]) {
    struct iovec parts[2] = {{(void *)(uintptr_t)pieces[0].p, pieces[0].n}, {(void *)(uintptr_t)pieces[1].p, pieces[1].n}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = sendmsg(t->fd, &message, SEND_FLAGS);
    return n >= 0 ? n : os_tcp_would_wait(errno) ? 0 : -1;
}

int64_t os_tcp_receive(struct os_tcp *t, void *data, size_t n) {
    ssize_t got = recv(t->fd, data, n, 0);
    if (got > 0) return got;
    return got < 0 && os_tcp_would_wait(errno) ? 0 : -1;
}

void os_tcp_finish(struct os_tcp *t) {
    shutdown(t->fd, SHUT_WR);
}

void os_tcp_close_socket(os_socket fd) {
    close(fd);
}
