/* Ranks that are processes, each with a GPU: what they do together are calls of NCCL between the launches of a program. Such programs are no graphs. */
#include "backend/cuda/context/context.h"

#include "os/os.h"

int cuda_calls_open(struct cuda *c, struct err *err) {
    return nccl_open(c->base.comm, &(struct nccl_options){.driver = c->d}, &c->ranks.nccl, err);
}

/* Rows of numbers from one place to another. */
static int copy_rows(struct cuda *c, struct k_view from, struct k_view to, struct err *err) {
    struct k_elem a = {.a = from, .y = to};
    void *params[] = {&a};
    if (from.width == 0 || from.rows == 0) return ERR_OK;
    CUDA_TRY(c,
             c->d->cuLaunchKernel(c->gpu->functions[KERNEL_elem_convert], ceil_div(from.width, 256), (unsigned int)from.rows, 1, 256, 1, 1,
                                  0, c->stream, params, NULL),
             "copying rows of ranks");
    return ERR_OK;
}

static struct k_view rows_at(CUdeviceptr p, int64_t stride, int32_t width, int32_t rows) {
    return (struct k_view){.p = p, .row_stride = stride, .head_stride = width, .dtype = K_F32, .heads = 1, .width = width, .rows = rows};
}

static int call_sum(struct cuda *c, const struct cuda_call *call, struct err *err) {
    return nccl_sum(c->ranks.nccl, call->in, call->out, (size_t)call->total, c->stream, err);
}

/* NCCL puts the parts behind each other; those of several rows are sorted by row then. Ranks tell each other how wide their parts are. */
static int call_gather(struct cuda *c, const struct cuda_call *call, struct err *err) {
    struct comm *comm = c->base.comm;
    int32_t widths[COMM_RANKS_MAX];
    size_t bytes[COMM_RANKS_MAX];
    CUdeviceptr parts = call->parts + (CUdeviceptr)call->rows * (CUdeviceptr)call->whole * sizeof(float), at = 0;
    TRY(comm_all_gather(comm, &call->width, sizeof call->width, widths, (size_t)comm->size * sizeof *widths, err));
    for (int32_t r = 0; r < comm->size; r++) bytes[r] = (size_t)call->rows * (size_t)widths[r] * sizeof(float);
    TRY(copy_rows(c, rows_at(call->in, call->in_stride, call->width, call->rows),
                  rows_at(call->parts, call->width, call->width, call->rows), err));
    TRY(nccl_gather(c->ranks.nccl, call->parts, parts, bytes, c->stream, err));
    for (int32_t r = 0; r < comm->size; r++) {
        TRY(copy_rows(c, rows_at(parts, widths[r], widths[r], call->rows), rows_at(call->out + at, call->out_stride, widths[r], call->rows),
                      err));
        parts += bytes[r];
        at += (CUdeviceptr)widths[r] * sizeof(float);
    }
    return ERR_OK;
}

/* What the first rank has, to all. */
static int call_tell(struct cuda *c, const struct cuda_call *call, struct err *err) {
    size_t bytes[COMM_RANKS_MAX] = {(size_t)call->total * sizeof(float)};
    return nccl_gather(c->ranks.nccl, call->in, call->out, bytes, c->stream, err);
}

int cuda_call(struct cuda *c, const struct cuda_call *call, struct err *err) {
    static int (*const calls[])(struct cuda *, const struct cuda_call *,
                                struct err *) = {[CALL_SUM] = call_sum, [CALL_GATHER] = call_gather, [CALL_TELL] = call_tell};
    return calls[call->kind](c, call, err);
}

int cuda_calls_wait(struct cuda *c, CUevent event, struct err *err) {
    struct nccl *n = c->ranks.nccl;
    while (n && (event ? c->d->cuEventQuery(event) : c->d->cuStreamQuery(c->stream)) == CUDA_ERROR_NOT_READY) {
        TRY(nccl_check(n, err));
        os_thread_yield();
    }
    return ERR_OK;
}
