/* A GPU as a device: its driver and its kernels, which all models on it share. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_GPU_H
#define MLXCEL_BACKEND_CUDA_DEVICE_GPU_H

#include "backend/backend.h"
#include "backend/cuda/device/probe.h"

enum kernel_id {
#define KERNEL(file, symbol) KERNEL_##symbol,
#include "backend/cuda/device/kernels.def"
#undef KERNEL
    N_KERNELS
};

enum { CUDA_MODULES_MAX = 64 };

/* A GPU: its driver and its kernels, shared by the models on it. Nothing in it changes once it is open. */
struct cuda_gpu {
    struct device base;
    struct cuda_probe probe;
    struct cuda_driver *d;     /* of the probe */
    struct cuda_device *about; /* of the probe: what the driver says about this GPU */
    CUcontext context;
    CUmodule modules[CUDA_MODULES_MAX];
    int n_modules;
    CUfunction functions[N_KERNELS]; /* NULL: not compiled for this GPU */
    bool begins_early[N_KERNELS]; /* in a graph the kernel may start before the one in front of it has ended, and waits for it by itself */
    int n_sharing;                /* ranks on this GPU */
    int n_sm, sm, shared_max;     /* n_sm: of this rank */
    bool has_context;
    bool can_run_lists; /* blocks of one launch may wait for each other */
};

/* Bytes of the GPU that loading leaves free: on Windows a full GPU spills into system memory instead of failing. A model that runs may use them, so
 * that it does not stop when another program has taken the rest. */
enum { RESERVE_BYTES = 256 << 20 };

/* Returns with an error unless the call of the driver succeeds. c: any struct whose field d is the driver. */
#define CUDA_TRY(c, call, ...) TRY(cuda_check((c)->d, (call), err, __VA_ARGS__))

int cuda_gpu_open(const struct device_options *options, struct device **out, struct err *err);
void cuda_gpu_close(struct device *d);
void cuda_gpu_memory(struct device *d, uint64_t *out_free, uint64_t *out_total);
/* The calling thread uses this GPU from now on. */
int cuda_gpu_use(struct cuda_gpu *g, struct err *err);
int cuda_modules_load(struct cuda_gpu *g, struct err *err);
const char *cuda_kernel_name(enum kernel_id id);

/* A device that only plans, and whose kernels and sizes are those of another (plan_gpu.c). Released with device_release. */
struct device *cuda_gpu_for_plans(const struct cuda_gpu *like);

#endif
