/* NCCL for ranks that are threads of one process, whose device memory is the heap's: libnccl.so.2 for tests. Sums, gathers and broadcasts are
 * carried out, in the order of ranks, when the last rank has brought its part; what nccl.h forbids is refused and remembered (fake_nccl_complaint).
 *
 * Told by fake_nccl_set (in this process) or the environment variable FAKE_NCCL (in others), items separated by ';':
 *   version=22105[:RANK]   what ncclGetVersion says (to that rank)
 *   fail=NAME:K[:RANK]     the K-th call of that function (by that rank) fails; NAME async: behind the K-th sum, gather or broadcast an error appears
 *   queued                 sums, gathers and broadcasts return before they are done, as NCCL's do; fake_nccl_idle tells whether a stream has
 *                          come to its end. Otherwise they return when all ranks have come, as a stream without a queue would have it
 *   stuck                  ncclCommInitRank waits for ever for a rank that has failed; otherwise it notices. stuck=all: it always does
 *   log=FILE               one line for each call: RANK NAME ARGUMENTS
 * Calls that name no communicator are those of the rank that fake_nccl_rank has told for the thread.
 * FAKE_LACKS: the library has no ncclCommAbort. FAKE_OLDER: none of the functions that may be missing. */
#include "backend/cuda/device/nccl_types.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _WIN32
#include <windows.h>
#define EXPORT __declspec(dllexport)
#else
#include <sched.h>
#define EXPORT __attribute__((visibility("default")))
#endif

enum { RANKS = 64, GROUPS = 64, COMMS = 256, OPS = 16, LOOKS = 200, LIMIT_MS = 120000, ANY_RANK = -1 };

enum call {
#define NCCL_FN(need, since, result, name, arguments) CALL_##name,
#include "backend/cuda/device/nccl.def"
#undef NCCL_FN
    CALL_async,
    N_CALLS
};

static const char *const call_names[] = {
#define NCCL_FN(need, since, result, name, arguments) #name,
#include "backend/cuda/device/nccl.def"
#undef NCCL_FN
    "async"};

/* A sum, gather or broadcast as one rank asks for it. */
struct wish {
    enum call call;
    struct ncclComm *comm;
    const void *in;
    void *out;
    size_t n;
    int type, op, root;
    CUstream stream;
};

struct op {
    uint64_t number; /* from 1 on; 0: never used */
    int n_wishes;
    struct wish wishes[RANKS]; /* by rank; comm NULL: has not come */
};

struct group {
    ncclUniqueId id;
    int n, n_closed; /* n 0: nobody has come */
    bool is_broken;  /* a rank has failed to come, or has aborted */
    struct ncclComm *members[RANKS];
    struct op ops[OPS];
    uint64_t n_done;
};

struct ncclComm {
    struct group *group;
    int rank;
    bool is_closed, has_error;
    uint64_t n_asked; /* its wishes so far */
    CUstream stream;  /* of the last */
};

static struct {
    struct group groups[GROUPS];
    int n_groups;
    struct ncclComm comms[COMMS];
    int n_comms;
    int version, version_rank, other_version; /* other_version: of version_rank */
    int fail, fail_at, fail_rank;             /* enum call, or -1 */
    int n_calls[N_CALLS];                     /* of fail_rank */
    bool is_queued, is_stuck, are_all_stuck;
    char log[1024], complaint[256];
} fake;

static atomic_flag is_locked = ATOMIC_FLAG_INIT;
static _Atomic int n_stuck;
static _Atomic bool is_released;
static bool is_configured;
static _Thread_local int thread_rank = ANY_RANK;
static _Thread_local char last_error[256];
struct open_group {
    int depth, n;
    ncclResult_t error;
    struct wish wishes[RANKS * 2];
};
static _Thread_local struct open_group own_group;

/* clang 14 for Arm looks up memory of a thread between a comparison and its jump, and in a library that changes the flags. So it must not know what this returns. */
static struct open_group *group_of_thread(void) {
    struct open_group *volatile own = &own_group;
    return own;
}

/* ---- threads --------------------------------------------------------------------------------------------------------- */

static void pause_for(int ms) {
#ifdef _WIN32
    Sleep((DWORD)ms);
#else
    if (ms) nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
    else sched_yield();
#endif
}

static void lock(void) {
    while (atomic_flag_test_and_set(&is_locked)) pause_for(0);
}

static void unlock(void) {
    atomic_flag_clear(&is_locked);
}

/* Gives the others a turn; false when this has gone on for so long that it would never end. Locked before and after. */
static bool wait_a_little(int *turns) {
    unlock();
    pause_for(*turns < LOOKS ? 0 : 1);
    lock();
    return ++*turns < LOOKS + LIMIT_MS;
}

/* ---- what it was told -------------------------------------------------------------------------------------------------- */

static int number_after(const char *text, int otherwise) {
    const char *colon = strchr(text, ':');
    return colon ? (int)strtol(colon + 1, NULL, 10) : otherwise;
}

static void take_fail(const char *value) {
    size_t n = strcspn(value, ":");
    for (int i = 0; i < N_CALLS; i++)
        if (strlen(call_names[i]) == n && strncmp(call_names[i], value, n) == 0) fake.fail = i;
    fake.fail_at = number_after(value, 1);
    fake.fail_rank = value[n] ? number_after(value + n + 1, ANY_RANK) : ANY_RANK;
}

static void take_item(const char *item) {
    const char *value = strchr(item, '=');
    value = value ? value + 1 : "";
    if (strncmp(item, "version=", 8) == 0) {
        int rank = number_after(value, ANY_RANK);
        *(rank == ANY_RANK ? &fake.version : &fake.other_version) = (int)strtol(value, NULL, 10);
        fake.version_rank = rank;
    }
    if (strncmp(item, "fail=", 5) == 0) take_fail(value);
    if (strncmp(item, "log=", 4) == 0) snprintf(fake.log, sizeof fake.log, "%s", value);
    fake.is_queued |= strcmp(item, "queued") == 0;
    fake.is_stuck |= strcmp(item, "stuck") == 0;
    fake.are_all_stuck |= strcmp(item, "stuck=all") == 0;
}

static void configure(const char *text) {
    memset(&fake, 0, sizeof fake);
    fake.version = 22105;
    fake.version_rank = fake.fail_rank = ANY_RANK;
    fake.fail = -1;
    is_configured = true;
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    for (char *item = copy, *next; item && *item; item = next) {
        next = strchr(item, ';');
        if (next) *next++ = 0;
        take_item(item);
    }
}

EXPORT void fake_nccl_set(const char *text);
EXPORT void fake_nccl_rank(int rank);
EXPORT const char *fake_nccl_complaint(void); /* the first thing that was wrong; "": nothing */
EXPORT int fake_nccl_alive(void);             /* communicators that nobody closed */
EXPORT int fake_nccl_idle(CUstream stream);   /* what was put into it is done */
EXPORT int fake_nccl_stuck(void);             /* threads that wait for ever */
EXPORT void fake_nccl_release(void);          /* lets them go, with a communicator each, as a network that comes back would */

void fake_nccl_set(const char *text) {
    lock();
    configure(text);
    unlock();
}

void fake_nccl_rank(int rank) {
    thread_rank = rank;
}

const char *fake_nccl_complaint(void) {
    return fake.complaint;
}

int fake_nccl_alive(void) {
    int n = 0;
    lock();
    for (int i = 0; i < fake.n_comms; i++) n += !fake.comms[i].is_closed;
    unlock();
    return n;
}

int fake_nccl_idle(CUstream stream) {
    bool is_idle = true;
    lock();
    for (int i = 0; i < fake.n_comms; i++) {
        const struct ncclComm *c = &fake.comms[i];
        if (c->stream == stream && !c->is_closed) is_idle &= c->group->n_done >= c->n_asked;
    }
    unlock();
    return is_idle;
}

int fake_nccl_stuck(void) {
    return atomic_load(&n_stuck);
}

void fake_nccl_release(void) {
    atomic_store(&is_released, true);
    while (atomic_load(&n_stuck)) pause_for(1);
    atomic_store(&is_released, false);
}

static ncclResult_t wrong(const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(last_error, sizeof last_error, fmt, args);
    va_end(args);
    if (!fake.complaint[0]) memcpy(fake.complaint, last_error, sizeof fake.complaint);
    return ncclInvalidUsage;
}

static bool is_told_to_fail(enum call call, int rank) {
    if (fake.fail_rank != ANY_RANK && fake.fail_rank != rank) return false;
    return ++fake.n_calls[call] == fake.fail_at && fake.fail == (int)call;
}

/* Every call begins here: it is written down, and fails where that was asked for. */
static ncclResult_t enter(enum call call, int rank, const char *fmt, ...) {
    if (!is_configured) configure(getenv("FAKE_NCCL"));
    last_error[0] = 0;
    FILE *f = fake.log[0] ? fopen(fake.log, "ab") : NULL;
    if (f) {
        va_list args;
        va_start(args, fmt);
        fprintf(f, "%d %s", rank, call_names[call]);
        vfprintf(f, fmt, args);
        fprintf(f, "\n");
        va_end(args);
        fclose(f);
    }
    if (!is_told_to_fail(call, rank)) return ncclSuccess;
    snprintf(last_error, sizeof last_error, "%s was told to fail\n", call_names[call]);
    return ncclInternalError;
}

/* ---- the library ------------------------------------------------------------------------------------------------------- */

#define NCCL_FN(need, since, result, name, arguments) EXPORT result name arguments;
#include "backend/cuda/device/nccl.def"
#undef NCCL_FN

ncclResult_t ncclGetVersion(int *version) {
    lock();
    ncclResult_t result = enter(CALL_ncclGetVersion, thread_rank, "");
    *version = fake.version_rank != ANY_RANK && fake.version_rank == thread_rank ? fake.other_version : fake.version;
    unlock();
    return result;
}

const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const words[] = {"no error",         "unhandled cuda error", "unhandled system error",          "internal error",
                                        "invalid argument", "invalid usage",        "remote process exited or failed", "in progress"};
    return (int)result < 8 ? words[result] : "unknown result code";
}

#ifndef FAKE_OLDER
const char *ncclGetLastError(ncclComm_t comm) {
    (void)comm;
    return last_error;
}
#endif

static const char magic[] = "an id of the fake NCCL";

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    lock();
    ncclResult_t result = enter(CALL_ncclGetUniqueId, thread_rank, "");
    if (result == ncclSuccess && fake.n_groups == GROUPS) result = wrong("more than %d groups", GROUPS);
    if (result == ncclSuccess) {
        memset(id, 0, sizeof *id);
        snprintf(id->internal, sizeof id->internal, "%s %d", magic, fake.n_groups);
        id->internal[sizeof id->internal - 1] = 'e'; /* all of its bytes must arrive */
        fake.groups[fake.n_groups++].id = *id;
    }
    unlock();
    return result;
}

static struct group *find_group(const ncclUniqueId *id) {
    for (int i = 0; i < fake.n_groups; i++)
        if (memcmp(&fake.groups[i].id, id, sizeof *id) == 0) return &fake.groups[i];
    return NULL;
}

static ncclResult_t come(struct group *g, int n_ranks, int rank, struct ncclComm **out) {
    if (n_ranks < 1 || n_ranks > RANKS || rank < 0 || rank >= n_ranks) return wrong("there is no rank %d among %d", rank, n_ranks);
    if (g->n && g->n != n_ranks) return wrong("rank %d wants %d ranks, and others want %d", rank, n_ranks, g->n);
    if (g->members[rank]) return wrong("two ranks come as rank %d", rank);
    if (fake.n_comms == COMMS) return wrong("more than %d communicators", COMMS);
    struct ncclComm *c = &fake.comms[fake.n_comms++];
    *c = (struct ncclComm){.group = g, .rank = rank};
    g->n = n_ranks;
    g->members[rank] = *out = c;
    return ncclSuccess;
}

static bool are_all_here(const struct group *g) {
    for (int i = 0; i < g->n; i++)
        if (!g->members[i]) return false;
    return true;
}

/* Until fake_nccl_release; others make their calls meanwhile. */
static void stay_stuck(void) {
    unlock();
    atomic_fetch_add(&n_stuck, 1);
    while (!atomic_load(&is_released)) pause_for(20);
    lock();
    atomic_fetch_sub(&n_stuck, 1);
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank) {
    int turns = 0;
    lock();
    ncclResult_t result = enter(CALL_ncclCommInitRank, rank, " n=%d", n_ranks);
    struct group *g = find_group(&id);
    if (!g) result = wrong("rank %d has an id that nobody made", rank);
    else if (result != ncclSuccess) g->is_broken = true;
    else result = come(g, n_ranks, rank, comm);
    bool is_stuck = result == ncclSuccess && fake.are_all_stuck;
    while (result == ncclSuccess && !is_stuck && !are_all_here(g)) {
        if (g->is_broken && fake.is_stuck) is_stuck = true;
        else if (g->is_broken) (*comm)->is_closed = true, result = ncclRemoteError;
        else if (!wait_a_little(&turns)) result = wrong("rank %d waits for ranks that do not come", rank);
    }
    if (is_stuck) stay_stuck();
    unlock();
    return result;
}

/* A communicator that can be used. Handles are never used twice, so a closed one is known. */
static ncclResult_t know(struct ncclComm *c, const char *call) {
    if (c < fake.comms || c >= fake.comms + fake.n_comms) return wrong("%s of a communicator that there is not", call);
    if (c->is_closed) return wrong("%s of a communicator that was closed", call);
    return ncclSuccess;
}

static int rank_of(const struct ncclComm *c) {
    return c >= fake.comms && c < fake.comms + fake.n_comms ? c->rank : ANY_RANK;
}

static ncclResult_t close_comm(struct ncclComm *c, enum call call) {
    ncclResult_t told = enter(call, rank_of(c), ""), result = know(c, call_names[call]);
    if (result == ncclSuccess && group_of_thread()->depth) result = wrong("%s within a group", call_names[call]);
    if (result != ncclSuccess) return result;
    c->is_closed = true;
    c->group->n_closed++;
    return told;
}

/* Waits for the other ranks, as the true one may. */
ncclResult_t ncclCommDestroy(ncclComm_t c) {
    int turns = 0;
    lock();
    ncclResult_t result = close_comm(c, CALL_ncclCommDestroy);
    while (result == ncclSuccess && !c->group->is_broken && c->group->n_closed < c->group->n)
        if (!wait_a_little(&turns)) result = wrong("rank %d waits in ncclCommDestroy for ranks that do not come", c->rank);
    if (result == ncclSuccess && c->group->n_done < c->n_asked) result = wrong("rank %d destroys what is at work", c->rank);
    unlock();
    return result;
}

#ifndef FAKE_LACKS
ncclResult_t ncclCommAbort(ncclComm_t c) {
    lock();
    ncclResult_t result = close_comm(c, CALL_ncclCommAbort);
    if (result != ncclInvalidUsage) c->group->is_broken = true;
    unlock();
    return result;
}
#endif

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *error) {
    lock();
    ncclResult_t result = enter(CALL_ncclCommGetAsyncError, rank_of(c), "");
    if (result == ncclSuccess) result = know(c, "ncclCommGetAsyncError");
    if (result == ncclSuccess) *error = c->has_error ? ncclInternalError : c->group->is_broken ? ncclRemoteError : ncclSuccess;
    unlock();
    return result;
}

/* ---- sums, gathers, broadcasts ------------------------------------------------------------------------------------------- */

static size_t type_bytes(int type) {
    return type == ncclFloat32 ? sizeof(float) : type == ncclInt8 ? 1 : 0;
}

static bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

static ncclResult_t check_wish(const struct wish *w) {
    const char *name = call_names[w->call];
    size_t bytes = w->n * type_bytes(w->type), n_out = w->call == CALL_ncclAllGather ? (size_t)w->comm->group->n : 1;
    const char *place = (const char *)w->out + (w->call == CALL_ncclAllGather ? (size_t)w->comm->rank * bytes : 0);
    bool reads = w->call != CALL_ncclBroadcast || w->root == w->comm->rank;
    if (!bytes) return wrong("%s of %zu numbers of type %d", name, w->n, w->type);
    if (w->call == CALL_ncclAllReduce && w->type != ncclFloat32) return wrong("%s of type %d", name, w->type);
    if (w->op != ncclSum) return wrong("%s with operation %d", name, w->op);
    if (w->root < 0 || w->root >= w->comm->group->n) return wrong("%s from rank %d of %d", name, w->root, w->comm->group->n);
    if (!w->out || (reads && !w->in)) return wrong("%s without memory", name);
    if (reads && w->in != place && overlap(w->in, bytes, w->out, bytes * n_out)) return wrong("%s reads where it writes", name);
    return ncclSuccess;
}

static void carry_out(struct group *g, struct op *op) {
    const struct wish *first = &op->wishes[0];
    size_t bytes = first->n * type_bytes(first->type), total = bytes * (first->call == CALL_ncclAllGather ? (size_t)g->n : 1);
    char *whole = malloc(total);
    if (!whole) abort();
    if (first->call == CALL_ncclBroadcast) memcpy(whole, op->wishes[first->root].in, bytes);
    for (int r = 0; r < g->n && first->call == CALL_ncclAllGather; r++) memcpy(whole + (size_t)r * bytes, op->wishes[r].in, bytes);
    for (size_t i = 0; i < first->n && first->call == CALL_ncclAllReduce; i++) {
        float sum = ((const float *)first->in)[i];
        for (int r = 1; r < g->n; r++) sum += ((const float *)op->wishes[r].in)[i];
        memcpy(whole + i * sizeof sum, &sum, sizeof sum);
    }
    for (int r = 0; r < g->n; r++) memcpy(op->wishes[r].out, whole, total);
    free(whole);
    g->n_done = op->number;
}

static bool is_same(const struct wish *a, const struct wish *b) {
    return a->call == b->call && a->n == b->n && a->type == b->type && a->op == b->op && a->root == b->root;
}

/* The rank's part of its next operation. The last rank to come carries it out. */
static ncclResult_t put(const struct wish *w) {
    struct ncclComm *c = w->comm;
    struct group *g = c->group;
    struct op *op = &g->ops[(c->n_asked + 1) % OPS];
    if (op->number != c->n_asked + 1) {
        if (op->n_wishes && op->n_wishes < g->n) return wrong("rank %d is more than %d operations ahead", c->rank, OPS);
        *op = (struct op){.number = c->n_asked + 1};
    }
    for (int r = 0; r < g->n; r++)
        if (op->wishes[r].comm && !is_same(&op->wishes[r], w))
            return wrong("operation %d is %s of %zu by rank %d, and %s of %zu by rank %d", (int)op->number, call_names[w->call], w->n,
                         c->rank, call_names[op->wishes[r].call], op->wishes[r].n, r);
    c->n_asked++;
    c->stream = w->stream;
    op->wishes[c->rank] = *w;
    if (++op->n_wishes == g->n) carry_out(g, op);
    if (is_told_to_fail(CALL_async, c->rank)) c->has_error = true;
    return ncclSuccess;
}

static ncclResult_t wait_until_done(struct ncclComm *c) {
    int turns = 0;
    while (c->group->n_done < c->n_asked && !c->group->is_broken && !c->has_error)
        if (!wait_a_little(&turns)) return wrong("rank %d waits for work that others do not bring", c->rank);
    return c->group->n_done >= c->n_asked || c->has_error ? ncclSuccess : ncclRemoteError;
}

static ncclResult_t ask(const struct wish *w) {
    struct open_group *open = group_of_thread();
    lock();
    ncclResult_t result = enter(w->call, rank_of(w->comm), " n=%zu type=%d root=%d", w->n, w->type, w->root);
    if (result == ncclSuccess) result = know(w->comm, call_names[w->call]);
    if (result == ncclSuccess) result = check_wish(w);
    if (open->depth) {
        if (result != ncclSuccess) open->error = result;
        else open->wishes[open->n++ % (RANKS * 2)] = *w;
    } else {
        if (result == ncclSuccess) result = put(w);
        if (result == ncclSuccess && !fake.is_queued) result = wait_until_done(w->comm);
    }
    unlock();
    return result;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, CUstream stream) {
    return ask(&(struct wish){CALL_ncclAllReduce, comm, in, out, n, (int)type, (int)op, 0, stream});
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t type, ncclComm_t comm, CUstream stream) {
    return ask(&(struct wish){CALL_ncclAllGather, comm, in, out, n, (int)type, ncclSum, 0, stream});
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t type, int root, ncclComm_t comm, CUstream stream) {
    return ask(&(struct wish){CALL_ncclBroadcast, comm, in, out, n, (int)type, ncclSum, root, stream});
}

ncclResult_t ncclGroupStart(void) {
    struct open_group *open = group_of_thread();
    lock();
    ncclResult_t result = enter(CALL_ncclGroupStart, thread_rank, "");
    if (result == ncclSuccess && open->depth++ == 0) open->n = 0, open->error = ncclSuccess;
    unlock();
    return result;
}

/* What stands in a group begins when its outermost end comes; one that holds a failure does nothing. */
ncclResult_t ncclGroupEnd(void) {
    struct open_group *open = group_of_thread();
    lock();
    ncclResult_t result = enter(CALL_ncclGroupEnd, thread_rank, " n=%d", open->n);
    if (!open->depth) result = wrong("ncclGroupEnd without ncclGroupStart");
    else if (--open->depth == 0) {
        if (result == ncclSuccess) result = open->error;
        for (int i = 0; i < open->n && result == ncclSuccess; i++) result = put(&open->wishes[i]);
        for (int i = 0; i < open->n && result == ncclSuccess && !fake.is_queued; i++) result = wait_until_done(open->wishes[i].comm);
    }
    unlock();
    return result;
}
