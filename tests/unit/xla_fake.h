/* The fake PJRT plugin (tests/xla/fake_plugin.c), for the unit tests that steer it. */
#ifndef MLXCEL_TESTS_XLA_FAKE_H
#define MLXCEL_TESTS_XLA_FAKE_H

#include "../test_paths.h"
#include "unit.h"

#include "os/os.h"

struct xla_fake {
    const char *path;
    void (*set)(const char *mode); /* how it is wrong or fails; "": not at all */
    int (*alive)(void);            /* objects that nobody freed */
    int (*compiled)(void);         /* programs, since it was loaded */
};

/* Loads it and sets its mode; skips the case where it was not built. */
static inline struct xla_fake xla_fake_open(struct arena *a, const char *mode) {
    struct xla_fake f = {0};
    struct str exe = str_of(test_exe_path());
    size_t cut = exe.n;
    while (cut > 0 && exe.p[cut - 1] != '/' && exe.p[cut - 1] != '\\') cut--;
    f.path = str_fmt(a, "%.*sfake-pjrt/fake_pjrt.so", (int)cut, exe.p).p;
    struct os_dl *lib;
    struct err err;
    if (os_stat(f.path, &(struct os_stat){0}, NULL)) unit_skip("the fake plugin was not built");
    CHECK_OK(os_dl_open(f.path, OS_DL_ANY, &lib, &err), err);
    CHECK(os_dl_symbol(lib, "fake_pjrt_set", &f.set) && os_dl_symbol(lib, "fake_pjrt_alive", &f.alive) &&
          os_dl_symbol(lib, "fake_pjrt_compiled", &f.compiled));
    f.set(mode);
    return f;
}

/* A way to be wrong, and what is to come of it. */
struct xla_fault {
    const char *mode;
    int code;
    const char *says;
};

static inline void xla_fake_said(const struct xla_fault *f, const struct err *err) {
    if (str_find(str_of(err->msg), str_of(f->says), 0) == STR_NONE) unit_fail(__FILE__, __LINE__, "%s: said \"%s\"", f->mode, err->msg);
}

#endif
