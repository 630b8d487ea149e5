/* Device memory, and waiting for what was launched. */
#include "backend/cuda/context/context.h"

int cuda_use(struct cuda *c, struct err *err) {
    return cuda_gpu_use(c->gpu, err);
}

/* A refusal by the driver gets our message too: another program may have taken the memory in between, or what is free lies in pieces. */
static int alloc(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err) {
    size_t free_bytes = 0, total = 0;
    CUDA_TRY(c, c->d->cuMemGetInfo(&free_bytes, &total), "asking for free memory");
    bool fits = free_bytes >= c->kept_back && free_bytes - c->kept_back >= bytes;
    CUresult code = fits ? c->d->cuMemAlloc(out, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (code) *out = 0;
    if (code == CUDA_ERROR_OUT_OF_MEMORY) return cuda_memory_error(c->gpu->about, what, bytes, free_bytes, c->kept_back, err);
    CUDA_TRY(c, code, "memory for %s", what);
    return ERR_OK;
}

/* Notes how large a piece is, so that its bytes can be given back. */
static void note_piece(struct cuda *c, CUdeviceptr p, size_t bytes) {
    if (c->n_pieces == c->pieces_capacity) {
        c->pieces_capacity = c->pieces_capacity ? 2 * c->pieces_capacity : 256;
        c->pieces = mem_realloc(c->pieces, (size_t)c->pieces_capacity * sizeof *c->pieces);
    }
    c->pieces[c->n_pieces++] = (struct cuda_piece){p, bytes};
}

int cuda_alloc(struct cuda *c, size_t bytes, const char *what, CUdeviceptr *out, struct err *err) {
    *out = 0;
    if (bytes == 0) return ERR_OK;
    TRY(device_take(c->base.device, bytes, what, err));
    int code = alloc(c, bytes, what, out, err);
    if (code) device_give(c->base.device, bytes);
    else note_piece(c, *out, bytes);
    return code;
}

void cuda_free(struct cuda *c, CUdeviceptr *p) {
    if (!*p) return;
    int32_t i = c->n_pieces - 1; /* the last piece is the likeliest: memory is mostly freed in reverse order */
    while (c->pieces[i].p != *p) i--;
    device_give(c->base.device, c->pieces[i].bytes);
    c->pieces[i] = c->pieces[--c->n_pieces];
    c->d->cuMemFree(*p);
    *p = 0;
}

/* The copy names our stream. One without a stream might arrive after kernels that were launched later, since our stream does not wait for others. */
int cuda_upload(struct cuda *c, CUdeviceptr to, const void *from, size_t bytes, const char *what, struct err *err) {
    CUDA_TRY(c, c->d->cuMemcpyHtoDAsync(to, from, bytes, c->stream), "uploading %s", what);
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "uploading %s", what);
    return ERR_OK;
}

void cuda_graphs_drop(struct cuda *c) {
    for (int32_t i = 0; i < c->n_graphs; i++) {
        c->d->cuGraphExecDestroy(c->graphs[i].exec);
        cuda_free(c, &c->graphs[i].instrs);
    }
    c->n_graphs = 0;
    c->replay = NULL;
}

/* ---- waiting -------------------------------------------------------------------------------------------------- */

/* After blocks gave up waiting (kernels/sync.cuh) the results of the step are worthless. The other counters are zero again when the launch has ended. */
int cuda_check_waits(struct cuda *c, struct err *err) {
    uint32_t why = *c->gave_up;
    if (!why) return ERR_OK;
    *c->gave_up = 0;
    CUDA_TRY(c, c->d->cuMemsetD32Async(c->counters + COUNTERS_GAVE_UP * sizeof(uint32_t), 0, 1, c->stream), "clearing counters");
    if (why == GAVE_UP_RANK) return err_set(err, ERR_EDEVICE, "GPU %d: another rank has failed", c->gpu->about->index);
    if (c->base.comm)
        return err_set(err, ERR_EDEVICE, "GPU %d: waited half a minute for another rank's part of a sum", c->gpu->about->index);
    return err_set(
        err, ERR_EDEVICE,
        "GPU %d: blocks of a step waited for each other in vain, since not all of its %d multiprocessors ran them at once: another "
        "program (a debugger, MPS) holds some of them; end it, or use --device cpu",
        c->gpu->about->index, c->gpu->n_sm);
}

int cuda_grow(struct cuda *c, size_t need, const char *what, CUdeviceptr *p, size_t *bytes, struct err *err) {
    if (need <= *bytes) return ERR_OK;
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "waiting for earlier steps");
    cuda_graphs_drop(c); /* they hold the address */
    cuda_free(c, p);
    *bytes = 0;
    TRY(cuda_alloc(c, need, what, p, err));
    *bytes = need;
    return ERR_OK;
}

int cuda_wait(struct cuda *c, struct err *err) {
    TRY(cuda_calls_wait(c, NULL, err));
    CUDA_TRY(c, c->d->cuStreamSynchronize(c->stream), "running a step");
    return cuda_check_waits(c, err);
}

/* After a fault in a kernel, or when the GPU is gone, every call of the driver gives the same error. */
int cuda_note_lost(struct cuda *c, int code) {
    if (code && cuda_result_is_fatal(c->d->cuStreamSynchronize(c->stream))) c->base.device->lost = true;
    return code;
}
