/* Dynamic libraries on POSIX systems. OS_DL_SYSTEM_ONLY asks for a bare name, which the loader seeks in its own places. */
#include "os/os_internal.h"

#include <dlfcn.h>

/* The handle itself is the object: there is nothing to keep beside it. */
struct os_dl;

int os_dl_open(const char *name, enum os_dl_where where, struct os_dl **out, struct err *err) {
    if (where == OS_DL_SYSTEM_ONLY && strchr(name, '/'))
        return os_fail_text(err, ERR_EARG, "load", name, "a system library has no folder in its name");
    void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *reason = dlerror();
        return os_fail_text(err, ERR_ENOTFOUND, "load", name, reason ? reason : "unknown reason");
    }
    *out = handle;
    return 0;
}

bool os_dl_symbol(struct os_dl *lib, const char *name, void *out_function_pointer) {
    void *address = dlsym((void *)lib, name);
    memcpy(out_function_pointer, &address, sizeof address);
    return address != NULL;
}
