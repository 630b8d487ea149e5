/* The CUDA backend: opens a device through the driver alone, loads the kernels, and describes itself. */
#include "backend/cuda/cuda.h"

int cuda_use(struct cuda *c, struct err *err) {
    CUDA_TRY(c, c->d->cuCtxSetCurrent(c->context), "using GPU %d", c->device->index);
    return ERR_OK;
}

static void cuda_close(struct backend *be) {
    struct cuda *c = (struct cuda *)be;
    if (c->has_context) {
        cuda_kv_close(be);
        cuda_free(c, &c->scratch);
        cuda_free(c, &c->op_scratch);
        cuda_free(c, &c->widened);
        cuda_free(c, &c->counters);
        cuda_free(c, &c->staging);
        if (c->bounce) c->d->cuMemFreeHost(c->bounce);
        if (c->gave_up) c->d->cuMemFreeHost((void *)(uintptr_t)c->gave_up);
        for (int i = 0; i < 2; i++)
            if (c->bounced[i]) c->d->cuEventDestroy(c->bounced[i]);
        for (int i = 0; i < c->n_modules; i++) c->d->cuModuleUnload(c->modules[i]);
        if (c->stream) c->d->cuStreamDestroy(c->stream);
        c->d->cuDevicePrimaryCtxRelease(c->device->handle);
    }
    plan_free(&c->plan);
    oplist_free(&c->base.list);
    mem_free(c->program.launches);
    mem_free(c->program.args);
    mem_free(c);
}

/* "cuda", "cuda:1" or "gpu:1": the number, -1 for none. */
static int wanted_device(const char *name, int *out, struct err *err) {
    *out = -1;
    struct str s = str_of(name ? name : ""), word;
    if (!str_split_next(&s, ':', &word) || s.n == 0) return ERR_OK;
    int64_t n;
    if (!str_to_int64(s, &n) || n < 0 || n > 1023)
        return err_set(err, ERR_EARG, "--device %s: \"%.*s\" is no GPU number", name, STR_ARG(s));
    *out = (int)n;
    return ERR_OK;
}

static int read_attributes(struct cuda *c, struct err *err) {
    CUDA_TRY(c, c->d->cuDeviceGetAttribute(&c->n_sm, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->device->handle), "asking GPU %d",
             c->device->index);
    CUDA_TRY(c, c->d->cuDeviceGetAttribute(&c->shared_max, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, c->device->handle),
             "asking GPU %d", c->device->index);
    int cooperative = 0;
    CUDA_TRY(c, c->d->cuDeviceGetAttribute(&cooperative, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, c->device->handle), "asking GPU %d",
             c->device->index);
    c->can_run_lists = cooperative != 0;
    c->sm = c->device->capability;
    c->base.step_ms = c->device->display ? 150 : 0; /* Windows ends what runs on a display's GPU for 2 s */
    return ERR_OK;
}

/* What blocks of a launch count together is zero; the host's word is where a kernel that gives up can write it and we can read it for nothing. */
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

static int open_device(struct cuda *c, struct err *err) {
    CUDA_TRY(c, c->d->cuDevicePrimaryCtxRetain(&c->context, c->device->handle), "opening GPU %d", c->device->index);
    c->has_context = true;
    TRY(cuda_use(c, err));
    CUDA_TRY(c, c->d->cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING), "a stream");
    CUDA_TRY(c, c->d->cuMemHostAlloc((void **)&c->bounce, 2 * (size_t)BOUNCE_BYTES, 0), "pinned memory");
    for (int i = 0; i < 2; i++) CUDA_TRY(c, c->d->cuEventCreate(&c->bounced[i], CU_EVENT_DISABLE_TIMING), "an event");
    TRY(read_attributes(c, err));
    TRY(open_counters(c, err));
    return cuda_modules_load(c, err);
}

static int cuda_open(const struct backend_options *options, struct backend **out, struct err *err) {
    struct cuda *c = mem_alloc(sizeof *c);
    c->base.type = &cuda_backend;
    c->base.mixes_rows = true;
    c->base.precision = options->precision;
    c->exact = options->precision == PRECISION_EXACT || options->precision == PRECISION_F32;
    c->no_fuse = options->no_fuse;
    c->kept_back = RESERVE_BYTES;
    c->base.rows_max = MAX_GRID_Y / 2; /* rows are a grid's second dimension; wide products have two for each */
    int wanted, i_device = 0;
    int code = wanted_device(options->device, &wanted, err);
    if (!code) {
        cuda_probe_run(&c->probe, &(struct cuda_probe_args){0});
        code = cuda_probe_choose(&c->probe, wanted, &i_device, err);
    }
    if (!code) {
        c->d = &c->probe.driver;
        c->device = &c->probe.devices[i_device];
        code = open_device(c, err);
    }
    if (code) {
        cuda_close(&c->base);
        return code;
    }
    *out = &c->base;
    return ERR_OK;
}

/* On a device that is watched, a step is waited for: how long it took is what the next one's size depends on. */
static int end_watched(struct backend *be, const struct step *step, struct err *err) {
    struct cuda *c = (struct cuda *)be;
    TRY(cuda_end(be, step, err));
    return be->step_ms ? cuda_note_lost(c, cuda_wait(c, err)) : ERR_OK;
}

/* What can be had: not what is kept back. Where that is all there is, one byte, since none means that nobody knows. */
static void cuda_memory(struct backend *be, uint64_t *out_free, uint64_t *out_total) {
    struct cuda *c = (struct cuda *)be;
    size_t free_bytes = 0, total = 0;
    cuda_use(c, NULL);
    CUresult code = c->d->cuMemGetInfo(&free_bytes, &total);
    *out_free = code ? 0 : free_bytes > RESERVE_BYTES ? free_bytes - RESERVE_BYTES : 1;
    *out_total = total;
}

static void cuda_describe(struct backend *be, struct sb *out) {
    struct cuda *c = (struct cuda *)be;
    char arch[16];
    bool ptx = c->device->image.suffix == 'p';
    cuda_arch_format((struct cuda_arch){c->device->image.number, ptx ? 0 : c->device->image.suffix}, arch);
    sb_fmt(out, "cuda:%d (%s, %s %s, driver for CUDA %d.%d%s)", c->device->index, c->device->name, ptx ? "PTX" : "sm", arch,
           c->d->version / 1000, c->d->version % 1000 / 10, c->exact ? ", exact" : "");
}

const struct backend_type cuda_backend = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .weight_bind = cuda_weight_bind,
    .weight_release = cuda_weight_release,
    .kv_number_bytes = cuda_kv_number_bytes,
    .kv_open = cuda_kv_open,
    .kv_close = cuda_kv_close,
    .block_copy = cuda_block_copy,
    .slot_copy = cuda_slot_copy,
    .begin = cuda_begin,
    .end = end_watched,
    .reserve = cuda_reserve,
    .read = cuda_read,
    .memory = cuda_memory,
    .describe = cuda_describe,
};
