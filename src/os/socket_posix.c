/* Sockets on POSIX systems: whether a file of one is in the way, and what libraries ask for. The server's own are libuv's. */
#include "os/os_internal.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Somebody answers there. */
static bool is_live(const struct sockaddr_un *address) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) return true; /* unknown: nothing is taken away */
    bool is_refused = connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    close(fd);
    return !is_refused;
}

int os_socket_file_clear(const char *path, struct err *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof address.sun_path)
        return err_set(err, ERR_EARG, "%s is too long for a socket: %zu bytes at most", path, sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (lstat(path, &st)) return errno == ENOENT ? ERR_OK : os_fail(err, errno, "look at", path);
    if (!S_ISSOCK(st.st_mode)) return err_set(err, ERR_EARG, "%s is there and is no socket; name another path", path);
    if (is_live(&address)) return err_set(err, ERR_EBUSY, "another program listens on %s; name another path", path);
    return os_remove(path, err);
}

intptr_t os_socket_open(int family, int type, int protocol) {
    return socket(family, type, protocol);
}

int os_socket_family(int family) {
    return family == AF_INET ? 4 : family == AF_INET6 ? 6 : 0;
}
