/* Files of sockets on Windows: there are none that HTTP clients know. */
#include "os/win32.h"

int os_socket_file_clear(const char *path, struct err *err) {
    return err_set(err, ERR_EUNSUPPORTED, "%s: sockets in the file system are not supported on Windows; use an address such as 127.0.0.1",
                   path);
}
