/* Sockets on Windows: there are no files of them that HTTP clients know; and what libraries ask for. */
#include <winsock2.h>

#include "os/win32.h"

int os_socket_file_clear(const char *path, struct err *err) {
    return err_set(err, ERR_EUNSUPPORTED, "%s: sockets in the file system are not supported on Windows; use an address such as 127.0.0.1",
                   path);
}

intptr_t os_socket_open(int family, int type, int protocol) {
    return (intptr_t)socket(family, type, protocol);
}

int os_socket_family(int family) {
    return family == AF_INET ? 4 : family == AF_INET6 ? 6 : 0;
}
