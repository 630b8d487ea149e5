/* NCCL, opened at run time: ranks with a GPU each, in processes of their own, add up and gather what lies in the memory of their GPUs.
 *
 * The group's comm brings the ranks together and carries reasons of failures; the numbers go by NCCL. (1) All ranks call the same functions in the
 * same order, with the same sizes, each in its one thread, which has the comm meanwhile. (2) A call puts work into the stream and returns; the
 * memory is in use until the stream has come there. (3) All ranks get the same bits. NCCL chooses the order in which it adds, so these need not
 * be the bits that comm_all_reduce gives. (4) A sum or gather that fails fails the group (comm_fail): from then on every call of every
 * rank gives that reason. A rank whose stream waits for one that has failed gets on when it closes. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_NCCL_H
#define MLXCEL_BACKEND_CUDA_DEVICE_NCCL_H

#include "backend/cuda/device/driver.h"
#include "backend/cuda/device/nccl_types.h"
#include "comm/comm.h"

/* ---- the library ---------------------------------------------------------------------------------------------------- */

enum { NCCL_FLOOR = 21000 }; /* the oldest version that is served: 2.10 */

struct nccl_library {
    const char *path; /* the name under which it was found */
    int version;      /* 10000 * major + 100 * minor + patch */
#define NCCL_FN(need, since, result, name, arguments) result(*name) arguments;
#include "backend/cuda/device/nccl.def"
#undef NCCL_FN
};

/* Finds the library and its functions and asks for its version. path NULL: libnccl.so.2 where the loader finds it; else exactly this file.
 * ERR_ENOTFOUND: there is none, and the message says how people get it. ERR_EUNSUPPORTED: too old, or it lacks functions. */
int nccl_library_open(struct nccl_library *l, const char *path, struct err *err);

/* 0 for ncclSuccess; else fills err with "WHAT: NCCL's words (code): NCCL's last error". comm may be NULL. */
int nccl_library_check(const struct nccl_library *l, ncclComm_t comm, ncclResult_t result, struct err *err, const char *fmt, ...)
    MLXCEL_PRINTF(5, 6);

struct nccl_version_text {
    char text[16];
};
struct nccl_version_text nccl_library_version(int version); /* 22105: "2.21.5" */

/* ---- the group ------------------------------------------------------------------------------------------------------- */

struct nccl;

struct nccl_options {
    const struct cuda_driver
        *driver;      /* NCCL begins in a thread of its own, with the caller's context. NULL: there are no contexts (tests) */
    const char *path; /* of the library, as above */
    int32_t join_ms;  /* until all ranks have found each other; 0: 300 s */
};

/* Joins all ranks of the group. All of them succeed, or all have the same error and the comm can be used as before. The comm must outlive it. */
int nccl_open(struct comm *comm, const struct nccl_options *o, struct nccl **out, struct err *err);

/* out[i] = the sum of in[i] over the ranks; in and out are the same or do not overlap. */
int nccl_sum(struct nccl *n, CUdeviceptr in, CUdeviceptr out, size_t floats, CUstream stream, struct err *err);

/* bytes[r] from each rank r, behind each other in `out`; every rank brings the same list. */
int nccl_gather(struct nccl *n, CUdeviceptr in, CUdeviceptr out, const size_t *bytes, CUstream stream, struct err *err);

/* An error that came after the call which began the work. Who waits for a stream asks this now and then: the work of a rank that is gone never ends. */
int nccl_check(struct nccl *n, struct err *err);

/* All ranks close, before their comm; NULL is fine. Where one has failed, the others' work is ended rather than waited for. */
void nccl_close(struct nccl *n);

#endif
