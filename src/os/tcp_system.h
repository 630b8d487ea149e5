/* Sockets of either system under one name, for the files of os/tcp*. */
#ifndef MLXCEL_OS_TCP_SYSTEM_H
#define MLXCEL_OS_TCP_SYSTEM_H

#ifdef _WIN32
#include <winsock2.h>
#include <ws2tcpip.h>
typedef SOCKET os_socket;
#define OS_NO_SOCKET INVALID_SOCKET
#else
#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
typedef int os_socket;
#define OS_NO_SOCKET (-1)
#endif

#include "os/os_internal.h"
#include "os/tcp.h"

struct os_tcp {
    os_socket fd;
};

/* Before the first socket; again and again does no harm. */
void os_tcp_begin(void);
/* The system's number of what went wrong last. */
int os_tcp_reason(void);
bool os_tcp_would_wait(int reason);      /* nothing to do now */
bool os_tcp_is_under_way(int reason);    /* a connection that is being made */
bool os_tcp_went_again(int reason);      /* who called is gone before it was accepted */
const char *os_tcp_no_address(int code); /* why a name has none */
int os_tcp_timed_out(void);              /* the number for that */
bool os_tcp_set_up(os_socket fd);        /* never waits; small pieces go at once; not for child processes */
void os_tcp_use_again(os_socket fd);     /* the port of a listener that has just ended */
int os_tcp_poll(struct pollfd *p, int n, int timeout_ms);
void os_tcp_close_socket(os_socket fd);

#endif
