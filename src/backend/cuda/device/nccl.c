/* Ranks that add up and gather by NCCL. Knows no models and no ops: addresses, sizes and a stream.
 *
 * Joining is done in step: each rank says in one exchange which NCCL it has, or why it has none, so that all refuse together. NCCL's own joining
 * waits for all ranks without a limit and cannot be called off. So a thread of its own does it, and the ranks ask each other meanwhile how far they are. */
#include "backend/cuda/device/nccl.h"

#include "base/arena.h"
#include "base/log.h"
#include "os/os.h"

#include <stdatomic.h>

enum { ROUND_MS = 50, GRACE_MS = 1000, JOIN_MS = 300000 };

struct nccl {
    struct comm *comm;
    struct nccl_library lib;
    ncclComm_t ranks;
    struct err reason; /* of the first failure; its code is 0 until then */
};

/* What a rank tells the others. */
struct word {
    int32_t code;    /* of its error */
    int32_t is_echo; /* the error is that another rank has one */
    int32_t version;
    uint32_t state;
    ncclUniqueId id; /* rank 0's counts */
    char msg[ERR_MESSAGE_BYTES];
};

enum launch_state { STARTING, READY, FAILED, LEFT };

/* ncclCommInitRank on its way. */
struct launch {
    struct nccl_library lib;
    const struct cuda_driver *driver;
    CUcontext context;
    ncclUniqueId id;
    int32_t rank, size;
    struct os_thread *thread;
    _Atomic uint32_t state; /* enum launch_state */
    ncclComm_t ranks;
    ncclResult_t result;
    struct err err;
    struct launch *next; /* of those that are LEFT */
};

/* Launches that nobody waits for any more and that NCCL still has; who opens the next one puts away what has ended. */
static _Atomic(struct launch *) left_behind;

static void say(struct word *w, const struct err *reason) {
    w->code = reason->code;
    memcpy(w->msg, reason->msg, sizeof w->msg);
}

/* Every rank's word reaches every rank. Where some have an error, all get the same of them. */
static int exchange(struct comm *c, const struct word *own, struct word *all, struct err *err) {
    int32_t bad = -1;
    TRY(comm_all_gather(c, own, sizeof *own, all, (size_t)c->size * sizeof *all, err));
    for (int32_t r = 0; r < c->size; r++)
        if (all[r].code && (bad < 0 || (all[bad].is_echo && !all[r].is_echo))) bad = r;
    if (bad < 0) return ERR_OK;
    all[bad].msg[sizeof all[bad].msg - 1] = 0;
    return c->size == 1 ? err_set(err, all[bad].code, "%s", all[bad].msg) : err_set(err, all[bad].code, "rank %d: %s", bad, all[bad].msg);
}

/* ---- joining --------------------------------------------------------------------------------------------------------- */

/* The library, and rank 0's id, from which NCCL listens. */
static int begin(struct launch *l, const struct nccl_options *o, struct err *err) {
    TRY(nccl_library_open(&l->lib, o->path, err));
    if (l->driver) TRY(cuda_check(l->driver, l->driver->cuCtxGetCurrent(&l->context), err, "finding the context of rank %d", l->rank));
    if (l->rank != 0) return ERR_OK;
    return nccl_library_check(&l->lib, NULL, l->lib.ncclGetUniqueId(&l->id), err, "ncclGetUniqueId");
}

static int agree(struct comm *c, struct launch *l, const struct nccl_options *o, struct word *all, struct err *err) {
    struct word own = {0};
    struct err reason;
    if (begin(l, o, &reason)) say(&own, &reason);
    own.version = l->lib.version;
    own.id = l->id;
    TRY(exchange(c, &own, all, err));
    for (int32_t r = 1; r < c->size; r++)
        if (all[r].version != all[0].version)
            return err_set(err, ERR_EUNSUPPORTED, "rank %d has NCCL %s, and rank 0 has NCCL %s: all ranks need the same", r,
                           nccl_library_version(all[r].version).text, nccl_library_version(all[0].version).text);
    l->id = all[0].id;
    return ERR_OK;
}

static int init_rank(struct launch *l, struct err *err) {
    if (l->driver) TRY(cuda_check(l->driver, l->driver->cuCtxSetCurrent(l->context), err, "taking the context of rank %d", l->rank));
    l->result = l->lib.ncclCommInitRank(&l->ranks, l->size, l->id, l->rank);
    return nccl_library_check(&l->lib, NULL, l->result, err, "ncclCommInitRank of rank %d among %d", l->rank, l->size);
}

static void run_launch(void *user) {
    struct launch *l = user;
    int code = init_rank(l, &l->err);
    if (code) l->ranks = NULL;
    bool is_left = atomic_exchange(&l->state, code ? FAILED : READY) == LEFT;
    os_wake_all(&l->state);
    if (is_left && l->ranks) l->lib.ncclCommAbort(l->ranks);
}

static void put_left(struct launch *l) {
    l->next = atomic_load(&left_behind);
    while (!atomic_compare_exchange_weak(&left_behind, &l->next, l)) {}
}

static void clear_left(void) {
    for (struct launch *l = atomic_exchange(&left_behind, NULL), *next; l; l = next) {
        next = l->next;
        if (atomic_load(&l->state) == LEFT) {
            put_left(l);
            continue;
        }
        os_thread_join(l->thread);
        mem_free(l);
    }
}

/* Until NCCL has answered, or for so long. */
static bool wait_for_launch(struct launch *l, int32_t ms) {
    uint64_t until = os_clock_ns() + (uint64_t)ms * 1000000;
    while (atomic_load(&l->state) == STARTING && os_clock_ns() < until) os_wait_on(&l->state, STARTING, ms);
    return atomic_load(&l->state) != STARTING;
}

/* Rank 0's clock counts, so that all give up together. */
static int wait_for_all(struct comm *c, struct launch *l, int32_t join_ms, struct word *all, struct err *err) {
    uint64_t until = os_clock_ns() + (uint64_t)join_ms * 1000000;
    for (int32_t n_ready = 0; n_ready < c->size;) {
        struct word own = {.state = wait_for_launch(l, ROUND_MS) ? atomic_load(&l->state) : STARTING};
        struct err late;
        if (own.state == FAILED) {
            say(&own, &l->err);
            own.is_echo = l->result == ncclRemoteError;
        } else if (c->rank == 0 && os_clock_ns() > until) {
            err_set(&late, ERR_ENETWORK,
                    "NCCL has not brought %d ranks together within %d s (ncclCommInitRank): NCCL_SOCKET_IFNAME names the network, and "
                    "NCCL_DEBUG=INFO shows what it tries",
                    c->size, join_ms / 1000);
            say(&own, &late);
        }
        TRY(exchange(c, &own, all, err));
        n_ready = 0;
        for (int32_t r = 0; r < c->size; r++) n_ready += all[r].state == READY;
    }
    return ERR_OK;
}

/* NCCL usually notices that another rank has gone; where it does not, the thread stays behind. */
static void leave(struct launch *l) {
    uint32_t starting = STARTING;
    if (l->thread) {
        wait_for_launch(l, GRACE_MS);
        if (atomic_compare_exchange_strong(&l->state, &starting, LEFT)) {
            put_left(l);
            return;
        }
        os_thread_join(l->thread);
    }
    if (l->ranks) l->lib.ncclCommAbort(l->ranks);
    mem_free(l);
}

static int join(struct comm *c, struct launch *l, const struct nccl_options *o, struct err *err) {
    struct word *all = mem_alloc((size_t)c->size * sizeof *all);
    int code = agree(c, l, o, all, err);
    if (!code) {
        if (os_thread_start(&l->thread, run_launch, l, "nccl", &l->err)) {
            l->thread = NULL;
            atomic_store(&l->state, FAILED);
        }
        code = wait_for_all(c, l, o->join_ms ? o->join_ms : JOIN_MS, all, err);
    }
    mem_free(all);
    return code;
}

int nccl_open(struct comm *comm, const struct nccl_options *o, struct nccl **out, struct err *err) {
    clear_left();
    struct launch *l = mem_alloc(sizeof *l);
    l->driver = o->driver;
    l->rank = comm->rank;
    l->size = comm->size;
    int code = join(comm, l, o, err);
    if (code) {
        leave(l);
        return code;
    }
    os_thread_join(l->thread);
    struct nccl *n = mem_alloc(sizeof *n);
    *n = (struct nccl){.comm = comm, .lib = l->lib, .ranks = l->ranks};
    mem_free(l);
    *out = n;
    return ERR_OK;
}

/* ---- calls ----------------------------------------------------------------------------------------------------------- */

/* Tells the others. What failed first is the reason: a rank that lost another one knows less than that one. */
static int give_up(struct nccl *n, const struct err *own, struct err *err) {
    n->reason = *own;
    comm_fail(n->comm, own);
    comm_broadcast(n->comm, 0, NULL, 0, &n->reason);
    return err_set(err, n->reason.code, "%s", n->reason.msg);
}

static int finish(struct nccl *n, ncclResult_t result, const char *call, struct err *err) {
    struct err own;
    if (nccl_library_check(&n->lib, n->ranks, result, &own, "%s", call)) return give_up(n, &own, err);
    return ERR_OK;
}

static int is_well(const struct nccl *n, struct err *err) {
    return n->reason.code ? err_set(err, n->reason.code, "%s", n->reason.msg) : ERR_OK;
}

static void *place(CUdeviceptr address) {
    return (void *)(uintptr_t)address;
}

int nccl_sum(struct nccl *n, CUdeviceptr in, CUdeviceptr out, size_t floats, CUstream stream, struct err *err) {
    TRY(is_well(n, err));
    if (!floats) return ERR_OK;
    return finish(n, n->lib.ncclAllReduce(place(in), place(out), floats, ncclFloat32, ncclSum, n->ranks, stream), "ncclAllReduce", err);
}

static bool are_equal(const size_t *bytes, int32_t n) {
    for (int32_t r = 1; r < n; r++)
        if (bytes[r] != bytes[0]) return false;
    return true;
}

/* A group that was begun is ended whatever happens inside it. */
static int gather_parts(struct nccl *n, CUdeviceptr in, CUdeviceptr out, const size_t *bytes, CUstream stream, struct err *err) {
    ncclResult_t result = ncclSuccess, end;
    const char *call = "ncclBroadcast";
    TRY(finish(n, n->lib.ncclGroupStart(), "ncclGroupStart", err));
    for (int32_t r = 0; r < n->comm->size && result == ncclSuccess; r++) {
        if (bytes[r])
            result = n->lib.ncclBroadcast(place(r == n->comm->rank ? in : out), place(out), bytes[r], ncclInt8, r, n->ranks, stream);
        out += bytes[r];
    }
    end = n->lib.ncclGroupEnd();
    if (result == ncclSuccess) result = end, call = "ncclGroupEnd";
    return finish(n, result, call, err);
}

int nccl_gather(struct nccl *n, CUdeviceptr in, CUdeviceptr out, const size_t *bytes, CUstream stream, struct err *err) {
    TRY(is_well(n, err));
    if (!are_equal(bytes, n->comm->size)) return gather_parts(n, in, out, bytes, stream, err);
    if (!bytes[0]) return ERR_OK;
    return finish(n, n->lib.ncclAllGather(place(in), place(out), bytes[0], ncclInt8, n->ranks, stream), "ncclAllGather", err);
}

int nccl_check(struct nccl *n, struct err *err) {
    ncclResult_t behind = ncclSuccess;
    TRY(is_well(n, err));
    TRY(finish(n, n->lib.ncclCommGetAsyncError(n->ranks, &behind), "ncclCommGetAsyncError", err));
    return finish(n, behind == ncclInProgress ? ncclSuccess : behind, "work of NCCL (ncclCommGetAsyncError)", err);
}

/* ncclCommDestroy waits for the other ranks, so it is called where all of them are well. */
void nccl_close(struct nccl *n) {
    char here = 1, all[COMM_RANKS_MAX];
    struct err err;
    if (!n) return;
    nccl_check(n, NULL);
    if (!n->reason.code) comm_all_gather(n->comm, &here, sizeof here, all, (size_t)n->comm->size, &n->reason);
    const char *call = n->reason.code ? "ncclCommAbort" : "ncclCommDestroy";
    ncclResult_t result = n->reason.code ? n->lib.ncclCommAbort(n->ranks) : n->lib.ncclCommDestroy(n->ranks);
    if (nccl_library_check(&n->lib, NULL, result, &err, "%s", call)) log_warn("%s", err.msg);
    mem_free(n);
}
