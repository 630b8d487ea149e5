/* A model's context on a GPU, opened and closed. */
#include "backend/cuda/context/context.h"

void cuda_close(struct backend *be) {
    struct cuda *c = (struct cuda *)be;
    cuda_kv_close(be);
    cuda_free(c, &c->scratch);
    cuda_free(c, &c->op_scratch);
    cuda_free(c, &c->dequantised);
    cuda_places_close(c);
    cuda_passing_close(c);
    cuda_free(c, &c->given);
    cuda_free(c, &c->counters);
    cuda_free(c, &c->staging);
    cuda_ranks_close(c);
    if (c->bounce) c->d->cuMemFreeHost(c->bounce);
    if (c->gave_up) c->d->cuMemFreeHost((void *)(uintptr_t)c->gave_up);
    for (int i = 0; i < 2; i++)
        if (c->bounced[i]) c->d->cuEventDestroy(c->bounced[i]);
    if (c->launched) c->d->cuEventDestroy(c->launched);
    for (int32_t i = 0; i < c->n_timers; i++) c->d->cuEventDestroy(c->timers[i]);
    mem_free(c->timers);
    if (c->stream) c->d->cuStreamDestroy(c->stream);
    mem_free(c->pieces);
    plan_free(&c->plan);
    oplist_free(&c->base.list);
    mem_free(c->groups);
    mem_free(c->program.launches);
    mem_free(c->program.values);
    mem_free(c->program.args);
    mem_free(c->program.loans);
    mem_free(c);
}

/* Counters begin at zero. The host's word is pinned memory that a kernel can write when it gives up, and that we can read without a copy. */
static int open_counters(struct cuda *c, struct err *err) {
    void *word;
    CUdeviceptr address;
    TRY(cuda_alloc(c, COUNTERS * sizeof(uint32_t), "counters", &c->counters, err));
    CUDA_TRY(c, c->d->cuMemsetD32Async(c->counters, 0, COUNTERS, c->stream), "clearing counters");
    CUDA_TRY(c, c->d->cuMemHostAlloc(&word, sizeof *c->gave_up, CU_MEMHOSTALLOC_DEVICEMAP), "pinned memory");
    c->gave_up = word;
    *c->gave_up = 0;
    CUDA_TRY(c, c->d->cuMemHostGetDevicePointer(&address, word, 0), "pinned memory");
    return cuda_upload(c, c->counters + COUNTERS_HOST * sizeof(uint32_t), &address, sizeof address, "counters", err);
}

static int open_context(struct cuda *c, struct err *err) {
    TRY(cuda_use(c, err));
    CUDA_TRY(c, c->d->cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING), "a stream");
    CUDA_TRY(c, c->d->cuMemHostAlloc((void **)&c->bounce, 2 * (size_t)BOUNCE_BYTES, 0), "pinned memory");
    for (int i = 0; i < 2; i++) CUDA_TRY(c, c->d->cuEventCreate(&c->bounced[i], CU_EVENT_DISABLE_TIMING), "an event");
    return open_counters(c, err);
}

int cuda_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err) {
    struct cuda *c = mem_alloc(sizeof *c);
    c->base = (struct backend){.type = &cuda_backend,
                               .device = d,
                               .precision = options->precision,
                               .mixes_rows = true,
                               .reads_shared = true,
                               .runs_ahead = true,
                               .gives = true,
                               .looks = true,
                               .sums = true,
                               .row_first = 0.5, /* until a list of several rows is seen (run.c) */
                               .row_more = 0.15};
    c->gpu = (struct cuda_gpu *)d;
    c->d = c->gpu->d;
    c->exact = options->precision == PRECISION_EXACT || options->precision == PRECISION_F32;
    c->no_fuse = options->no_fuse;
    c->kept_back = RESERVE_BYTES;
    c->base.kv_bits = options->kv_bits == 8 ? 8 : 0; /* the caller refuses a wish that was not fulfilled */
    c->base.chooses = c->gpu->functions[KERNEL_choose_draw] != NULL;
    c->base.takes_inputs = true;
    c->base.adapts = c->gpu->functions[KERNEL_adapt_up] != NULL;
    c->base.rows_max = MAX_GRID_Y / 2; /* rows are the second dimension of a grid, and wide products have two for each */
    c->base.tower_rows_max = MAX_GRID_Y;
    c->ranks.by_nccl = options->comm && (options->by_nccl || options->comm->n_here < options->comm->size);
    int code = open_context(c, err);
    if (code) {
        cuda_close(&c->base);
        return code;
    }
    *out = &c->base;
    return ERR_OK;
}
