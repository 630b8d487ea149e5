/* The CUDA driver, opened at run time: the only thing that we need from NVIDIA, and only where a GPU is to be used.
 *
 * A call is d->cuMemAlloc(...) and gives a CUresult; cuda_check turns it into our errors. (1) The library comes from the
 * system's own places: the loader's path, WSL's and NixOS's folders on Linux, System32 alone on Windows. (2) Functions are
 * found by their versioned names (driver.def), never through cuGetProcAddress. (3) The library is never unloaded: drivers
 * leave threads behind. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_DRIVER_H
#define MLXCEL_BACKEND_CUDA_DEVICE_DRIVER_H

#include "backend/cuda/device/driver_types.h"
#include "base/err.h"

#include <stdbool.h>

struct cuda_driver {
    const char *path; /* the name under which the library was found */
    int version;      /* newest CUDA that it speaks: 1000 * major + 10 * minor */
#define CUDA_FN(need, since, name, symbol, arguments) CUresult(*name) arguments;
#include "backend/cuda/device/driver.def"
#undef CUDA_FN
};

/* Finds the driver and its functions and asks for its version; cuInit is left to the caller. path NULL: the system's places;
 * else exactly this file (tests). ERR_ENOTFOUND: no driver here, the everyday case. ERR_EUNSUPPORTED: a driver that is too old
 * or lacks functions; d->version holds its version where it told one. */
int cuda_driver_open(struct cuda_driver *d, const char *path, struct err *err);

/* 0 for CUDA_SUCCESS; else fills err with "WHAT: CUDA_ERROR_X (code): reason" and gives ERR_EMEMORY for exhausted memory,
 * ERR_EDEVICE for the rest. fmt names what was attempted: "copying %s". */
int cuda_check(const struct cuda_driver *d, CUresult result, struct err *err, const char *fmt, ...) MLXCEL_PRINTF(4, 5);

const char *cuda_result_name(const struct cuda_driver *d, CUresult result); /* d may be NULL */
const char *cuda_result_meaning(CUresult result);                           /* "" when there is nothing to add */
/* After these the context is lost: every later call fails, and only a new process (or context) helps. */
bool cuda_result_is_fatal(CUresult result);

/* The symbols of driver.def, in order, NULL at the end: what the library must export. */
const char *const *cuda_driver_symbols(void);

/* CUDA versions and the driver branches that brought them. */
enum {
    CUDA_FLOOR = 12040, /* the oldest driver that is served at all (550) */
    CUDA_FULL = 13000   /* the driver of our own toolkit: every image loads (580) */
};
int cuda_branch_of(int version); /* 13000 -> 580; 0 when it is older than the list */

#endif
