/* A GPU as a device: opened through the driver alone, its kernels loaded once for all models on it. */
#include "backend/cuda/device/gpu.h"

enum { ROWS_DEFAULT = 2048, PLACES_DEFAULT = 64 }; /* long chunks pay: a GPU dequantises each layer once for all rows of a step */
#define CACHE_SHARE 0.9

int cuda_gpu_use(struct cuda_gpu *g, struct err *err) {
    CUDA_TRY(g, g->d->cuCtxSetCurrent(g->context), "using GPU %d", g->about->index);
    return ERR_OK;
}

void cuda_gpu_close(struct device *base) {
    struct cuda_gpu *g = (struct cuda_gpu *)base;
    if (g->has_context) {
        cuda_gpu_use(g, NULL);
        for (int i = 0; i < g->n_modules; i++) g->d->cuModuleUnload(g->modules[i]);
        g->d->cuDevicePrimaryCtxRelease(g->about->handle);
    }
    mem_free(g);
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

static int read_attributes(struct cuda_gpu *g, struct err *err) {
    int cooperative = 0;
    const struct {
        CUdevice_attribute what;
        int *to;
    } asked[] = {{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &g->n_sm},
                 {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &g->shared_max},
                 {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, &cooperative}};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        CUDA_TRY(g, g->d->cuDeviceGetAttribute(asked[i].to, asked[i].what, g->about->handle), "asking GPU %d", g->about->index);
    g->n_sm = g->n_sm > g->n_sharing ? g->n_sm / g->n_sharing : 1;
    g->can_run_lists = cooperative != 0;
    g->sm = g->about->capability;
    g->base.step_ms = g->about->display ? 150 : 0; /* Windows kills work that keeps a display's GPU busy for 2 s */
    return ERR_OK;
}

static int open_gpu(struct cuda_gpu *g, const char *name, struct err *err) {
    int wanted, i_device = 0;
    TRY(wanted_device(name, &wanted, err));
    cuda_probe_run(&g->probe, &(struct cuda_probe_args){0});
    TRY(cuda_probe_choose(&g->probe, wanted, &i_device, err));
    g->d = &g->probe.driver;
    g->about = &g->probe.devices[i_device];
    CUDA_TRY(g, g->d->cuDevicePrimaryCtxRetain(&g->context, g->about->handle), "opening GPU %d", g->about->index);
    g->has_context = true;
    TRY(cuda_gpu_use(g, err));
    TRY(read_attributes(g, err));
    return cuda_modules_load(g, err);
}

int cuda_gpu_open(const struct device_options *options, struct device **out, struct err *err) {
    struct cuda_gpu *g = mem_alloc(sizeof *g);
    g->base.is_gpu = true;
    g->base.shares = true;
    g->base.rows_default = ROWS_DEFAULT;
    g->base.places_default = PLACES_DEFAULT;
    g->base.cache_share = CACHE_SHARE;
    g->n_sharing = options->n_sharing > 1 ? options->n_sharing : 1;
    int code = open_gpu(g, options->name, err);
    if (code) {
        cuda_gpu_close(&g->base);
        return code;
    }
    *out = &g->base;
    return ERR_OK;
}

/* Free memory without the part that is kept back. Where nothing is left the answer is one byte, since 0 means that the driver does not say. */
void cuda_gpu_memory(struct device *base, uint64_t *out_free, uint64_t *out_total) {
    struct cuda_gpu *g = (struct cuda_gpu *)base;
    size_t free_bytes = 0, total = 0;
    cuda_gpu_use(g, NULL);
    CUresult code = g->d->cuMemGetInfo(&free_bytes, &total);
    *out_free = code ? 0 : free_bytes > RESERVE_BYTES ? (free_bytes - RESERVE_BYTES) / (size_t)g->n_sharing : 1;
    *out_total = total;
}
