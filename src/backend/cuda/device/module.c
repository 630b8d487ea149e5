/* Kernels by number: every image that fits the device is loaded when the GPU is opened, never in a step. */
#include "backend/cuda/device/gpu.h"

enum { EARLY_ARCH = 90 }; /* the first whose kernels can wait for another kernel */

static const struct {
    const char *file, *symbol;
    bool is_early;
} kernels[N_KERNELS] = {
#define KERNEL(file, symbol) [KERNEL_##symbol] = {#file, #symbol, false},
#define EARLY(file, symbol) [KERNEL_##symbol] = {#file, #symbol, true},
#include "backend/cuda/device/kernels.def"
#undef KERNEL
};

const char *cuda_kernel_name(enum kernel_id id) {
    return kernels[id].symbol;
}

/* A kernel that wants more than 48 KB of shared memory must say so before its first launch. */
static int allow_shared(struct cuda_gpu *g, CUfunction f, const char *name, struct err *err) {
    int fixed = 0;
    CUDA_TRY(g, g->d->cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f), "kernel %s", name);
    int room = g->shared_max - fixed;
    CUDA_TRY(g, g->d->cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, room), "kernel %s", name);
    return ERR_OK;
}

/* *out_arch: the architecture that the file was compiled for. */
static int load_file(struct cuda_gpu *g, const char *file, CUmodule *out, int *out_arch, struct err *err) {
    const struct pack_row *row = cuda_image_find(&g->probe.pack, str_of(file), g->sm, g->d->version);
    void *image;
    size_t bytes;
    *out = NULL;
    if (!row) return ERR_OK; /* the file has kernels for other architectures only */
    if (g->n_modules == CUDA_MODULES_MAX) return err_set(err, ERR_EINTERNAL, "more than %d kernel files", CUDA_MODULES_MAX);
    *out_arch = row->arch;
    TRY(cuda_image_unpack(&g->probe.pack, row, &image, &bytes, err));
    int code = cuda_check(g->d, g->d->cuModuleLoadDataEx(out, image, 0, NULL, NULL), err, "loading the kernels of %s.cu", file);
    mem_free(image);
    if (!code) g->modules[g->n_modules++] = *out;
    return code;
}

int cuda_modules_load(struct cuda_gpu *g, struct err *err) {
    CUmodule module = NULL;
    int arch = 0;
    for (int i = 0; i < N_KERNELS; i++) {
        if (i == 0 || strcmp(kernels[i].file, kernels[i - 1].file) != 0) TRY(load_file(g, kernels[i].file, &module, &arch, err));
        if (!module) continue;
        CUDA_TRY(g, g->d->cuModuleGetFunction(&g->functions[i], module, kernels[i].symbol), "kernel %s", kernels[i].symbol);
        TRY(allow_shared(g, g->functions[i], kernels[i].symbol, err));
        g->begins_early[i] = kernels[i].is_early && arch >= EARLY_ARCH;
    }
    if (!g->functions[KERNEL_linear_ref])
        return err_set(err, ERR_EUNSUPPORTED,
                       "the program's kernels do not cover this GPU; build with -DMLXCEL_CUDA=on, or use --device cpu");
    return ERR_OK;
}
