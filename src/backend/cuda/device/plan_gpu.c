/* A GPU that only plans: it has the kernels and the sizes of a true one, and a driver that does nothing. What the backend chooses on it is what it
 * would choose there, and no memory is taken. */
#include "backend/cuda/device/gpu.h"

/* Addresses that nobody follows, each of its own. */
static _Atomic uint64_t next_address = UINT64_C(1) << 40;

static CUresult plan_alloc(CUdeviceptr *address, size_t bytes) {
    *address = atomic_fetch_add(&next_address, (bytes + 511) / 256 * 256);
    return CUDA_SUCCESS;
}
static CUresult plan_free(CUdeviceptr address) {
    (void)address;
    return CUDA_SUCCESS;
}
static CUresult plan_info(size_t *free_bytes, size_t *total_bytes) {
    *free_bytes = *total_bytes = (size_t)1 << 46;
    return CUDA_SUCCESS;
}
static CUresult plan_host_alloc(void **out, size_t bytes, unsigned int flags) {
    (void)flags;
    *out = mem_try(bytes);
    return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
static CUresult plan_host_free(void *p) {
    mem_free(p);
    return CUDA_SUCCESS;
}
static CUresult plan_host_pointer(CUdeviceptr *address, void *p, unsigned int flags) {
    (void)p, (void)flags;
    return plan_alloc(address, sizeof(uint32_t));
}
static CUresult plan_use(CUcontext context) {
    (void)context;
    return CUDA_SUCCESS;
}
static CUresult plan_stream(CUstream *out, unsigned int flags) {
    (void)flags;
    *out = NULL;
    return CUDA_SUCCESS;
}
static CUresult plan_event(CUevent *out, unsigned int flags) {
    (void)flags;
    *out = NULL;
    return CUDA_SUCCESS;
}
static CUresult plan_wait(CUstream stream) {
    (void)stream;
    return CUDA_SUCCESS;
}
static CUresult plan_wait_event(CUevent event) {
    (void)event;
    return CUDA_SUCCESS;
}
static CUresult plan_record(CUevent event, CUstream stream) {
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult plan_copy(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
    (void)to, (void)from, (void)bytes, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult plan_set_8(CUdeviceptr to, unsigned char value, size_t n, CUstream stream) {
    (void)to, (void)value, (void)n, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult plan_set_32(CUdeviceptr to, unsigned int value, size_t n, CUstream stream) {
    (void)to, (void)value, (void)n, (void)stream;
    return CUDA_SUCCESS;
}
static CUresult plan_launch(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                            unsigned int block_y, unsigned int block_z, unsigned int dynamic_bytes, CUstream stream, void **arguments,
                            void **extra) {
    (void)function, (void)grid_x, (void)grid_y, (void)grid_z, (void)block_x, (void)block_y, (void)block_z;
    (void)dynamic_bytes, (void)stream, (void)arguments, (void)extra;
    return CUDA_SUCCESS;
}
static CUresult plan_map(CUtensorMap *map, CUtensorMapDataType type, unsigned int rank, void *address, const uint64_t *dims,
                         const uint64_t *strides, const unsigned int *box, const unsigned int *element_strides,
                         CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                         CUtensorMapFloatOOBfill fill) {
    (void)type, (void)rank, (void)address, (void)dims, (void)strides, (void)box, (void)element_strides;
    (void)interleave, (void)swizzle, (void)promotion, (void)fill;
    memset(map, 0, sizeof *map);
    return CUDA_SUCCESS;
}

static const struct cuda_driver plan_driver = {.path = "none",
                                               .version = CUDA_FULL,
                                               .cuCtxSetCurrent = plan_use,
                                               .cuMemGetInfo = plan_info,
                                               .cuMemAlloc = plan_alloc,
                                               .cuMemFree = plan_free,
                                               .cuMemHostAlloc = plan_host_alloc,
                                               .cuMemFreeHost = plan_host_free,
                                               .cuMemHostGetDevicePointer = plan_host_pointer,
                                               .cuMemcpyHtoDAsync = plan_copy,
                                               .cuMemsetD8Async = plan_set_8,
                                               .cuMemsetD32Async = plan_set_32,
                                               .cuStreamCreate = plan_stream,
                                               .cuStreamSynchronize = plan_wait,
                                               .cuEventCreate = plan_event,
                                               .cuEventSynchronize = plan_wait_event,
                                               .cuEventRecord = plan_record,
                                               .cuLaunchKernel = plan_launch};

struct device *cuda_gpu_for_plans(const struct cuda_gpu *like) {
    struct cuda_gpu *g = mem_alloc(sizeof *g);
    g->base.type = &cuda_backend;
    g->base.is_gpu = g->base.shares = true;
    g->base.rows_default = like->base.rows_default;
    atomic_store(&g->base.n_holders, 1);
    g->probe.driver = plan_driver;
    if (like->d->cuTensorMapEncodeTiled) g->probe.driver.cuTensorMapEncodeTiled = plan_map;
    g->d = &g->probe.driver;
    g->probe.devices[0] = *like->about;
    g->about = &g->probe.devices[0];
    memcpy(g->functions, like->functions, sizeof g->functions);
    memcpy(g->begins_early, like->begins_early, sizeof g->begins_early);
    g->n_sm = like->n_sm, g->sm = like->sm, g->shared_max = like->shared_max;
    g->can_run_lists = like->can_run_lists;
    return &g->base;
}
