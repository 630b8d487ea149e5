/* Opening NCCL's library and speaking of its results. Knows no ranks: nccl.c does. */
#include "backend/cuda/device/nccl.h"

#include "base/str.h"
#include "os/os.h"

#include <stdio.h>

struct function_row {
    const char *symbol;
    bool required;
    int since;
    size_t offset; /* of its pointer in struct nccl_library */
};

enum need { OPTIONAL, REQUIRED };

static const struct function_row functions[] = {
#define NCCL_FN(need, since, result, name, arguments) {#name, need == REQUIRED, since, offsetof(struct nccl_library, name)},
#include "backend/cuda/device/nccl.def"
#undef NCCL_FN
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

static int open_file(const char *path, struct os_dl **out, const char **out_name, struct err *err) {
    struct err reason = {0};
    *out_name = path ? path : "libnccl.so.2";
    if (os_dl_open(*out_name, path ? OS_DL_ANY : OS_DL_SYSTEM_ONLY, out, &reason) == 0) return ERR_OK;
    return err_set(err, ERR_ENOTFOUND,
                   "%s. NCCL moves numbers between the GPUs of ranks, on Linux: install NVIDIA's package libnccl2, or the package "
                   "nvidia-nccl-cu12 by pip with its folder nvidia/nccl/lib in LD_LIBRARY_PATH",
                   reason.msg);
}

/* Up to 2.8 a version had one digit less. */
static int plain_version(int version) {
    return version < 10000 ? version / 1000 * 10000 + version % 1000 : version;
}

struct nccl_version_text nccl_library_version(int version) {
    struct nccl_version_text v;
    snprintf(v.text, sizeof v.text, "%d.%d.%d", version / 10000 % 1000, version / 100 % 100, version % 100);
    return v;
}

int nccl_library_open(struct nccl_library *l, const char *path, struct err *err) {
    struct os_dl *lib = NULL;
    *l = (struct nccl_library){0};
    TRY(open_file(path, &lib, &l->path, err));
    const struct function_row *missing = NULL;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        bool found = os_dl_symbol(lib, functions[i].symbol, (char *)l + functions[i].offset);
        if (!found && functions[i].required && !missing) missing = &functions[i];
    }
    if (l->ncclGetVersion && l->ncclGetErrorString) {
        TRY(nccl_library_check(l, NULL, l->ncclGetVersion(&l->version), err, "%s: ncclGetVersion", l->path));
        l->version = plain_version(l->version);
        /* The better message where both are wrong: a function is usually missing because the library is old. */
        if (l->version < NCCL_FLOOR)
            return err_set(err, ERR_EUNSUPPORTED, "%s is NCCL %s, and mlxcel needs %s or newer", l->path,
                           nccl_library_version(l->version).text, nccl_library_version(NCCL_FLOOR).text);
    }
    if (missing)
        return err_set(err, ERR_EUNSUPPORTED, "%s lacks %s, which NCCL has since %s: install NCCL again", l->path, missing->symbol,
                       nccl_library_version(missing->since).text);
    return ERR_OK;
}

static int code_of(ncclResult_t result) {
    static const struct {
        ncclResult_t result;
        int code;
    } rows[] = {{ncclSystemError, ERR_ENETWORK},
                {ncclRemoteError, ERR_ENETWORK},
                {ncclInvalidArgument, ERR_EINTERNAL},
                {ncclInvalidUsage, ERR_EINTERNAL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].result == result) return rows[i].code;
    return ERR_EDEVICE;
}

int nccl_library_check(const struct nccl_library *l, ncclComm_t comm, ncclResult_t result, struct err *err, const char *fmt, ...) {
    if (result == ncclSuccess) return ERR_OK;
    char what[120];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *words = l->ncclGetErrorString(result);
    struct str last = str_trim(str_of(l->ncclGetLastError ? l->ncclGetLastError(comm) : NULL));
    return err_set(err, code_of(result), "%s: %s (%d)%s%.*s", what, words ? words : "no reason given", (int)result, last.n ? ": " : "",
                   STR_ARG(last));
}
