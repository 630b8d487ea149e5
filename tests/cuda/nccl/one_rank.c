/* The NCCL of this machine, by one rank: the library has every function of nccl.def and a version that is served; then, where there is a GPU, sums and gathers in its
 * memory give back what was brought. More ranks would take more GPUs: NCCL refuses two ranks on one. Skipped where there is no library or no GPU.
 *
 * usage: cuda_nccl [LIBRARY]     without it: libnccl.so.2 where the loader finds it (LD_LIBRARY_PATH) */
#include "backend/cuda/device/nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1 << 20, SINCE_LAST_ERROR = 21300 };

struct one {
    const char *path;
    struct nccl_library lib;
    struct cuda_driver d;
    struct comm *comm;
    struct nccl *nccl;
    CUdeviceptr in, out;
    float brought[N], got[N];
};

#define TRY_CU(call, ...) TRY(cuda_check(&o->d, (call), err, __VA_ARGS__))

static int check_library(struct one *o, struct err *err) {
    printf("%s is NCCL %s\n", o->lib.path, nccl_library_version(o->lib.version).text);
    if (o->lib.version >= SINCE_LAST_ERROR && !o->lib.ncclGetLastError) return err_set(err, ERR_EUNSUPPORTED, "it lacks ncclGetLastError");
    if (!strstr(o->lib.ncclGetErrorString(ncclInvalidUsage), "invalid usage"))
        return err_set(err, ERR_EUNSUPPORTED, "result 5 is \"%s\"", o->lib.ncclGetErrorString(ncclInvalidUsage));
    return ERR_OK;
}

static int open_gpu(struct one *o, struct err *err) {
    CUdevice device;
    CUcontext context;
    TRY(cuda_driver_open(&o->d, NULL, err));
    TRY_CU(o->d.cuInit(0), "cuInit");
    TRY_CU(o->d.cuDeviceGet(&device, 0), "finding GPU 0");
    TRY_CU(o->d.cuDevicePrimaryCtxRetain(&context, device), "opening GPU 0");
    return cuda_check(&o->d, o->d.cuCtxSetCurrent(context), err, "using GPU 0");
}

static int check_open(struct one *o, struct err *err) {
    TRY_CU(o->d.cuMemAlloc(&o->in, sizeof o->brought), "allocating");
    TRY_CU(o->d.cuMemAlloc(&o->out, sizeof o->brought), "allocating");
    for (int i = 0; i < N; i++) o->brought[i] = (float)i / 3.0f;
    TRY_CU(o->d.cuMemcpyHtoD(o->in, o->brought, sizeof o->brought), "copying to the GPU");
    TRY(comm_threads_open(1, &o->comm, err));
    return nccl_open(o->comm, &(struct nccl_options){.driver = &o->d, .path = o->path}, &o->nccl, err);
}

/* The default stream carries it out; what comes back are the bits that were brought. */
static int compare(struct one *o, CUdeviceptr from, size_t bytes, struct err *err) {
    TRY_CU(o->d.cuCtxSynchronize(), "waiting");
    TRY(nccl_check(o->nccl, err));
    memset(o->got, 0, sizeof o->got);
    TRY_CU(o->d.cuMemcpyDtoH(o->got, from, bytes), "copying from the GPU");
    return memcmp(o->got, o->brought, bytes) == 0 ? ERR_OK : err_set(err, ERR_EDEVICE, "other numbers came back");
}

static int check_sum(struct one *o, struct err *err) {
    TRY(nccl_sum(o->nccl, o->in, o->out, N, NULL, err));
    return compare(o, o->out, sizeof o->brought, err);
}

static int check_sum_in_place(struct one *o, struct err *err) {
    TRY(nccl_sum(o->nccl, o->in, o->in, N, NULL, err));
    return compare(o, o->in, sizeof o->brought, err);
}

static int check_gather(struct one *o, struct err *err) {
    size_t bytes = 1001;
    static const float zeros[N];
    TRY_CU(o->d.cuMemcpyHtoD(o->out, zeros, sizeof zeros), "copying to the GPU");
    TRY(nccl_gather(o->nccl, o->in, o->out, &bytes, NULL, err));
    return compare(o, o->out, bytes, err);
}

static const struct step {
    const char *name;
    int (*run)(struct one *o, struct err *err);
} steps[] = {{"library", check_library},
             {"open", check_open},
             {"sum", check_sum},
             {"sum in place", check_sum_in_place},
             {"gather", check_gather}};
enum { N_STEPS = sizeof steps / sizeof steps[0] };

int main(int argc, char **argv) {
    static struct one o;
    struct err err = {0};
    int n_passed = 0, n_failed = 0, n_wanted = N_STEPS;
    o.path = argc > 1 ? argv[1] : NULL;
    int code = nccl_library_open(&o.lib, o.path, &err);
    if (code == ERR_ENOTFOUND && !o.path) {
        printf("skipped: %s\n0 passed, 0 failed, %d skipped\n", err.msg, N_STEPS);
        return EXIT_SUCCESS;
    }
    if (!code && open_gpu(&o, &err)) {
        printf("skipped all but the library: %s\n", err.msg);
        n_wanted = 1;
    }
    for (int i = 0; i < n_wanted && !n_failed; i++) {
        if (!code) code = steps[i].run(&o, &err);
        if (code) printf("FAILED %s: %s\n", steps[i].name, err.msg);
        n_passed += !code;
        n_failed += code != 0;
    }
    nccl_close(o.nccl);
    comm_close(o.comm);
    printf("%d passed, %d failed, %d skipped\n", n_passed, n_failed, N_STEPS - n_passed - n_failed);
    return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
