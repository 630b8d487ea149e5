/* A context as a rank: desks, through which kernels of all ranks exchange numbers (kernels/ranks.cu).
 *
 * Ranks are threads of this process, each with a GPU of its own, or several on one. (Between processes NCCL is asked instead: ranks_nccl.c.) A desk is memory of the rank's GPU where every rank can reach it, else of the
 * host, which all can reach. Desks are opened with the first list, by the ranks' own threads: opening is an exchange. */
#include "backend/cuda/context/context.h"

/* What a rank tells the others about itself. */
struct card {
    CUcontext context;
    CUdevice device;
    CUdeviceptr desk;
    volatile uint32_t *gave_up;
    int32_t reaches_all, n_sharing;
};

static int show_cards(struct cuda *c, const struct card *own, struct card *all, struct err *err) {
    return comm_all_gather(c->base.comm, own, sizeof *own, all, (size_t)c->base.comm->size * sizeof *all, err);
}

/* Whether this GPU reads and writes the memory of all the others. Reaching one that is reached already is no error. */
static bool reaches_all(struct cuda *c, const struct card *all) {
    for (int32_t r = 0; r < c->base.comm->size; r++) {
        int can = 0;
        if (all[r].device == c->gpu->about->handle) continue;
        if (!c->d->cuDeviceCanAccessPeer || !c->d->cuCtxEnablePeerAccess) return false;
        if (c->d->cuDeviceCanAccessPeer(&can, c->gpu->about->handle, all[r].device) || !can) return false;
        CUresult code = c->d->cuCtxEnablePeerAccess(all[r].context, 0);
        if (code && code != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return false;
    }
    return true;
}

static int open_desk(struct cuda *c, bool is_hosts, CUdeviceptr *out, struct err *err) {
    struct cuda_ranks *k = &c->ranks;
    if (!is_hosts) {
        TRY(cuda_alloc(c, DESK_BYTES, "what ranks exchange", &k->desk, err));
        *out = k->desk;
    } else {
        CUDA_TRY(c, c->d->cuMemHostAlloc(&k->host_desk, DESK_BYTES, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
                 "pinned memory for what ranks exchange");
        CUDA_TRY(c, c->d->cuMemHostGetDevicePointer(out, k->host_desk, 0), "pinned memory for what ranks exchange");
    }
    TRY(cuda_alloc(c, 2 * sizeof(uint32_t), "rounds of ranks", &k->rounds, err));
    CUDA_TRY(c, c->d->cuMemsetD32Async(k->rounds, 0, 2, c->stream), "clearing rounds");
    CUDA_TRY(c, c->d->cuMemsetD32Async(*out, 0, DESK_BYTES / sizeof(uint32_t), c->stream), "clearing a desk");
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "clearing a desk"); /* before others write there */
    return ERR_OK;
}

static int open_desks(struct cuda *c, struct err *err) {
    struct comm *comm = c->base.comm;
    struct cuda_ranks *k = &c->ranks;
    struct card all[RANKS_MAX],
        own = {.context = c->gpu->context, .device = c->gpu->about->handle, .gave_up = c->gave_up, .n_sharing = c->gpu->n_sharing};
    int32_t sharing = 1;
    bool is_hosts = false;
    if (comm->size > RANKS_MAX) return err_set(err, ERR_EUNSUPPORTED, "%d ranks on GPUs; there may be %d", comm->size, RANKS_MAX);
    TRY(show_cards(c, &own, all, err));
    own.reaches_all = reaches_all(c, all);
    TRY(show_cards(c, &own, all, err));
    for (int32_t r = 0; r < comm->size; r++) {
        is_hosts = is_hosts || !all[r].reaches_all;
        if (all[r].n_sharing > sharing) sharing = all[r].n_sharing;
    }
    /* Blocks that wait take multiprocessors. Ranks that share a GPU leave enough of them for the lists of the others, whose blocks must run at once. */
    k->n_blocks = DESK_BLOCKS / sharing > 0 ? DESK_BLOCKS / sharing : 1;
    TRY(open_desk(c, is_hosts, &own.desk, err));
    TRY(show_cards(c, &own, all, err));
    for (int32_t r = 0; r < comm->size; r++) k->desks[r] = all[r].desk, k->gave_up[r] = all[r].gave_up;
    return ERR_OK;
}

int cuda_ranks_open(struct cuda *c, struct err *err) {
    struct cuda_ranks *k = &c->ranks;
    if (!c->base.comm || k->is_open) return ERR_OK;
    TRY(k->by_nccl ? cuda_calls_open(c, err) : open_desks(c, err));
    k->is_open = true;
    return ERR_OK;
}

/* Kernels of the others wait for this rank's, and memory that is freed waits for kernels: nobody launches a step before all have lowered it. */
int cuda_ranks_meet(struct cuda *c, struct err *err) {
    char none = 0;
    if (!c->base.comm || c->ranks.nccl) return ERR_OK;
    c->ranks.is_at_work = true;
    return comm_all_gather(c->base.comm, &none, 0, &none, 0, err);
}

void cuda_ranks_rest(struct cuda *c) {
    struct err unread;
    if (c->ranks.nccl) { /* closing is a meeting, too */
        nccl_close(c->ranks.nccl);
        c->ranks.nccl = NULL;
        c->ranks.is_open = false;
    }
    if (!c->ranks.is_at_work) return;
    c->d->cuStreamSynchronize(c->stream);
    cuda_ranks_meet(c, &unread);
    c->ranks.is_at_work = false;
}

int cuda_ranks_result(struct cuda *c, int code) {
    for (int32_t r = 0; code && c->ranks.is_open && !c->ranks.nccl && r < c->base.comm->size; r++) *c->ranks.gave_up[r] = GAVE_UP_RANK;
    return code;
}

void cuda_ranks_close(struct cuda *c) {
    cuda_free(c, &c->ranks.desk);
    cuda_free(c, &c->ranks.rounds);
    if (c->ranks.host_desk) c->d->cuMemFreeHost(c->ranks.host_desk);
}
