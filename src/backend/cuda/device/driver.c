/* Opening the CUDA driver and speaking of its results. Knows no devices: probe.c does. */
#include "backend/cuda/device/driver.h"

#include "base/str.h"
#include "os/os.h"

#include <stdarg.h>
#include <stdio.h>

/* Where the driver's library may be. The loader's own path comes first; the folders are those that it does not search. */
static const struct {
    const char *name;
    enum os_dl_where where;
} places[] = {
    {"nvcuda.dll", OS_DL_SYSTEM_ONLY},
    {"libcuda.so.1", OS_DL_SYSTEM_ONLY},
    {"/usr/lib/wsl/lib/libcuda.so.1", OS_DL_ANY},
    {"/run/opengl-driver/lib/libcuda.so.1", OS_DL_ANY},
};

/* First driver branch of each CUDA version, newest first. */
static const struct {
    int version, branch;
} branches[] = {
    {13000, 580}, {12090, 575}, {12080, 570}, {12070, 565}, {12060, 560}, {12050, 555}, {12040, 550}, {12030, 545},
    {12020, 535}, {12010, 530}, {12000, 525}, {11080, 520}, {11070, 515}, {11060, 510}, {11050, 495}, {11040, 470},
    {11030, 465}, {11020, 460}, {11010, 455}, {11000, 450}, {10020, 440}, {10010, 418}, {10000, 410},
};

struct function_row {
    const char *symbol;
    bool required;
    int since;
    size_t offset; /* of its pointer in struct cuda_driver */
};

enum need { OPTIONAL, REQUIRED };

static const struct function_row functions[] = {
#define CUDA_FN(need, since, name, symbol, arguments) {#symbol, need == REQUIRED, since, offsetof(struct cuda_driver, name)},
#include "backend/cuda/device/driver.def"
#undef CUDA_FN
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

const char *const *cuda_driver_symbols(void) {
    static const char *const symbols[] = {
#define CUDA_FN(need, since, name, symbol, arguments) #symbol,
#include "backend/cuda/device/driver.def"
#undef CUDA_FN
        NULL};
    return symbols;
}

int cuda_branch_of(int version) {
    for (size_t i = 0; i < sizeof branches / sizeof branches[0]; i++)
        if (version >= branches[i].version) return branches[i].branch;
    return 0;
}

static int open_library(const char *path, struct os_dl **out, const char **out_name, struct err *err) {
    if (path) {
        *out_name = path;
        return os_dl_open(path, OS_DL_ANY, out, err);
    }
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        *out_name = places[i].name;
        if (os_dl_open(places[i].name, places[i].where, out, NULL) == 0) return 0;
    }
    return err_set(err, ERR_ENOTFOUND,
                   "no NVIDIA driver on this machine (its library cannot be loaded): install the driver of your GPU, %d or newer",
                   cuda_branch_of(CUDA_FLOOR));
}

static int too_old(const struct cuda_driver *d, struct err *err) {
    return err_set(
        err, ERR_EUNSUPPORTED,
        "the NVIDIA driver is too old: it speaks CUDA %d.%d (driver %d), mlxcel needs CUDA %d.%d (driver %d or newer; %d for the full set "
        "of kernels)",
        d->version / 1000, d->version % 1000 / 10, cuda_branch_of(d->version), CUDA_FLOOR / 1000, CUDA_FLOOR % 1000 / 10,
        cuda_branch_of(CUDA_FLOOR), cuda_branch_of(CUDA_FULL));
}

int cuda_driver_open(struct cuda_driver *d, const char *path, struct err *err) {
    struct os_dl *lib = NULL;
    *d = (struct cuda_driver){0};
    TRY(open_library(path, &lib, &d->path, err));
    const struct function_row *missing = NULL;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        bool found = os_dl_symbol(lib, functions[i].symbol, (char *)d + functions[i].offset);
        if (!found && functions[i].required && !missing) missing = &functions[i];
    }
    /* The version is the better message where both are wrong: a function is usually missing because the driver is old. */
    if (d->cuDriverGetVersion && d->cuDriverGetVersion(&d->version) == CUDA_SUCCESS && d->version < CUDA_FLOOR) return too_old(d, err);
    if (missing)
        return err_set(err, ERR_EUNSUPPORTED, "%s lacks %s, which every driver since CUDA %d.%d has: reinstall the NVIDIA driver", d->path,
                       missing->symbol, missing->since / 1000, missing->since % 1000 / 10);
    return 0;
}

const char *cuda_result_name(const struct cuda_driver *d, CUresult result) {
    switch ((int)result) {
#define CUDA_RESULT(name, value, meaning) \
    case value:                           \
        return #name;
#include "backend/cuda/device/results.def"
#undef CUDA_RESULT
    }
    const char *name = NULL;
    if (d && d->cuGetErrorName && d->cuGetErrorName(result, &name) == CUDA_SUCCESS && name) return name;
    return "an error that this version does not know";
}

const char *cuda_result_meaning(CUresult result) {
    switch ((int)result) {
#define CUDA_RESULT(name, value, meaning) \
    case value:                           \
        return meaning;
#include "backend/cuda/device/results.def"
#undef CUDA_RESULT
    }
    return "";
}

bool cuda_result_is_fatal(CUresult result) {
    static const int fatal[] = {CUDA_ERROR_ECC_UNCORRECTABLE,
                                CUDA_ERROR_NVLINK_UNCORRECTABLE,
                                CUDA_ERROR_CONTAINED,
                                CUDA_ERROR_ILLEGAL_ADDRESS,
                                CUDA_ERROR_LAUNCH_TIMEOUT,
                                CUDA_ERROR_ASSERT,
                                CUDA_ERROR_HARDWARE_STACK_ERROR,
                                CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                CUDA_ERROR_MISALIGNED_ADDRESS,
                                CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                CUDA_ERROR_INVALID_PC,
                                CUDA_ERROR_LAUNCH_FAILED,
                                CUDA_ERROR_UNKNOWN};
    for (size_t i = 0; i < sizeof fatal / sizeof fatal[0]; i++)
        if ((int)result == fatal[i]) return true;
    return false;
}

int cuda_check(const struct cuda_driver *d, CUresult result, struct err *err, const char *fmt, ...) {
    if (result == CUDA_SUCCESS) return 0;
    char what[200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *reason = cuda_result_meaning(result);
    if (!reason[0] && (!d->cuGetErrorString || d->cuGetErrorString(result, &reason) != CUDA_SUCCESS || !reason)) reason = "no reason given";
    int code = result == CUDA_ERROR_OUT_OF_MEMORY ? ERR_EMEMORY : ERR_EDEVICE;
    return err_set(err, code, "%s: %s (%d): %s", what, cuda_result_name(d, result), (int)result, reason);
}
