/* Numbers that nobody can guess, as libuv asks the system for them. */
#include "os/random.h"

#include <uv.h>

int os_random(void *out, size_t n, struct err *err) {
    int code = uv_random(NULL, NULL, out, n, 0, NULL);
    return code ? err_set(err, ERR_EIO, "the system has no random numbers: %s", uv_strerror(code)) : ERR_OK;
}
