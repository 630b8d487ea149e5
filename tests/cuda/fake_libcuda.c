/* A CUDA driver that exists only to be probed: libcuda.so.1 or nvcuda.dll for tests, with as many GPUs as it is told.
 *
 * Told by fake_cuda_set (in this process) or the environment variable FAKE_CUDA (in others), items separated by ';':
 *   version=13000  init=CODE  count=CODE  retain=CODE  load=CODE  alloc=CODE         results of those calls
 *   device=CAPABILITY|NAME|MiB TOTAL|MiB FREE[|prohibited][|display]                 one per GPU
 * Device memory is the heap's, copies are memcpy, kernels do nothing. What is not modelled answers NOT_SUPPORTED. With
 * FAKE_LACKS defined, the library has only cuInit and cuDriverGetVersion, as a broken installation might. */
#include "backend/cuda/device/driver_types.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define EXPORT __declspec(dllexport)
#else
#define EXPORT __attribute__((visibility("default")))
#endif

enum { MAX_DEVICES = 20, MIB = 1 << 20 };

struct fake_device {
    int capability;
    char name[96];
    size_t total, free, used;
    bool prohibited, display;
};

static struct {
    int version, init, count, retain, load, alloc;
    struct fake_device devices[MAX_DEVICES];
    int n_devices, current; /* current: the device of the context that is set, -1 for none */
} fake;

static bool configured;

static void add_device(const char *text) {
    struct fake_device *d = &fake.devices[fake.n_devices];
    char copy[256], *field[6] = {0};
    int n = 0;
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = copy; p && n < 6; n++) {
        field[n] = p;
        p = strchr(p, '|');
        if (p) *p++ = 0;
    }
    if (n < 4 || fake.n_devices >= MAX_DEVICES) return;
    d->capability = (int)strtol(field[0], NULL, 10);
    snprintf(d->name, sizeof d->name, "%s", field[1]);
    d->total = (size_t)strtoull(field[2], NULL, 10) * MIB;
    d->free = (size_t)strtoull(field[3], NULL, 10) * MIB;
    for (int i = 4; i < n; i++) {
        d->prohibited |= strcmp(field[i], "prohibited") == 0;
        d->display |= strcmp(field[i], "display") == 0;
    }
    fake.n_devices++;
}

EXPORT void fake_cuda_set(const char *text);

void fake_cuda_set(const char *text) {
    memset(&fake, 0, sizeof fake);
    fake.version = 13000;
    fake.current = -1;
    configured = true;
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *item = copy, *next; item && *item; item = next) {
        next = strchr(item, ';');
        if (next) *next++ = 0;
        char *value = strchr(item, '=');
        if (!value) continue;
        *value++ = 0;
        const struct {
            const char *name;
            int *to;
        } rows[] = {{"version", &fake.version}, {"init", &fake.init}, {"count", &fake.count},
                    {"retain", &fake.retain},   {"load", &fake.load}, {"alloc", &fake.alloc}};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
            if (strcmp(item, rows[i].name) == 0) *rows[i].to = (int)strtol(value, NULL, 10);
        if (strcmp(item, "device") == 0) add_device(value);
    }
}

static void configure(void) {
    const char *text = getenv("FAKE_CUDA");
    if (!configured) fake_cuda_set(text ? text : "");
}

#define CUDA_FN(need, since, name, symbol, arguments) EXPORT CUresult symbol arguments;
#include "backend/cuda/device/driver.def"
#undef CUDA_FN

CUresult cuInit(unsigned int flags) {
    configure();
    return flags ? CUDA_ERROR_INVALID_VALUE : (CUresult)fake.init;
}

CUresult cuDriverGetVersion(int *version) {
    configure();
    *version = fake.version;
    return CUDA_SUCCESS;
}

#ifndef FAKE_LACKS

/* Which symbols are modelled below; the others get a body from the list. MODELLED(x) is 1 where MODELLED_x is defined. */
#define MODELLED_cuInit ~, 1
#define MODELLED_cuDriverGetVersion ~, 1
#define MODELLED_cuGetErrorName ~, 1
#define MODELLED_cuGetErrorString ~, 1
#define MODELLED_cuDeviceGet ~, 1
#define MODELLED_cuDeviceGetCount ~, 1
#define MODELLED_cuDeviceGetName ~, 1
#define MODELLED_cuDeviceGetAttribute ~, 1
#define MODELLED_cuDeviceTotalMem_v2 ~, 1
#define MODELLED_cuDeviceGetUuid_v2 ~, 1
#define MODELLED_cuDeviceGetPCIBusId ~, 1
#define MODELLED_cuDevicePrimaryCtxRetain ~, 1
#define MODELLED_cuDevicePrimaryCtxRelease_v2 ~, 1
#define MODELLED_cuCtxSetCurrent ~, 1
#define MODELLED_cuCtxGetCurrent ~, 1
#define MODELLED_cuMemGetInfo_v2 ~, 1
#define MODELLED_cuMemAlloc_v2 ~, 1
#define MODELLED_cuMemFree_v2 ~, 1
#define MODELLED_cuMemcpyHtoD_v2 ~, 1
#define MODELLED_cuMemcpyDtoH_v2 ~, 1
#define MODELLED_cuModuleLoadDataEx ~, 1
#define MODELLED_cuModuleUnload ~, 1
#define MODELLED_cuModuleGetFunction ~, 1
#define MODELLED_cuLaunchKernel ~, 1
#define MODELLED_cuCtxSynchronize ~, 1

#define SECOND(a, b, ...) b
#define EXPAND(...) SECOND(__VA_ARGS__)
#define MODELLED(symbol) EXPAND(MODELLED_##symbol, 0, 0)
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#define BODY_1(symbol, arguments)
#define BODY_0(symbol, arguments)        \
    CUresult symbol arguments {          \
        return CUDA_ERROR_NOT_SUPPORTED; \
    }
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
#define CUDA_FN(need, since, name, symbol, arguments) CAT(BODY_, MODELLED(symbol))(symbol, arguments)
#include "backend/cuda/device/driver.def"
#undef CUDA_FN

static bool is_device(CUdevice device) {
    return device >= 0 && device < fake.n_devices;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = NULL;
    if ((int)error != 12345) return CUDA_ERROR_INVALID_VALUE; /* the one that our list does not have */
    *name = "CUDA_ERROR_OF_TOMORROW";
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = (int)error == 12345 ? "not invented yet" : NULL;
    return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGetCount(int *count) {
    *count = fake.n_devices;
    return (CUresult)fake.count;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int bytes, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    snprintf(name, (size_t)bytes, "%s", fake.devices[device].name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    *bytes = is_device(device) ? fake.devices[device].total : 0;
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    for (int i = 0; i < 16; i++) uuid->bytes[i] = (char)(0xa0 + i + device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
    snprintf(id, (size_t)bytes, "0000:%02x:00.0", 0x17 + device);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    const struct fake_device *d = &fake.devices[device];
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = d->capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = d->capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: *value = d->display; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: *value = d->prohibited ? CU_COMPUTEMODE_PROHIBITED : CU_COMPUTEMODE_DEFAULT; break;
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

/* A context is the address of its device. */
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    if (fake.retain) return (CUresult)fake.retain;
    *context = (CUcontext)&fake.devices[device];
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    fake.current = context ? (int)((struct fake_device *)context - fake.devices) : -1;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    *context = fake.current >= 0 ? (CUcontext)&fake.devices[fake.current] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    if (fake.current < 0) return CUDA_ERROR_INVALID_CONTEXT;
    *free_bytes = fake.devices[fake.current].free - fake.devices[fake.current].used;
    *total_bytes = fake.devices[fake.current].total;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
    if (fake.current < 0) return CUDA_ERROR_INVALID_CONTEXT;
    struct fake_device *d = &fake.devices[fake.current];
    if (fake.alloc) return (CUresult)fake.alloc;
    if (bytes > d->free - d->used) return CUDA_ERROR_OUT_OF_MEMORY;
    size_t *data = calloc(1, bytes + sizeof(size_t) * 2);
    if (!data) return CUDA_ERROR_OUT_OF_MEMORY;
    data[0] = bytes;
    d->used += bytes;
    *address = (CUdeviceptr)(uintptr_t)(data + 2);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr address) {
    size_t *data = (size_t *)(uintptr_t)address;
    if (fake.current < 0 || !data) return CUDA_ERROR_INVALID_VALUE;
    fake.devices[fake.current].used -= data[-2];
    free(data - 2);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

/* Accepts what looks like machine code for a GPU or PTX. */
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int n_options, CUjit_option *options, void **values) {
    static int modules;
    (void)n_options, (void)options, (void)values;
    if (fake.load) return (CUresult)fake.load;
    bool elf = memcmp(image, "\177ELF", 4) == 0, ptx = !elf && strstr(image, ".version") != NULL;
    if (!elf && !ptx) return CUDA_ERROR_INVALID_IMAGE;
    *module = (CUmodule)&modules;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
    return module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    if (!module || !name[0]) return CUDA_ERROR_NOT_FOUND;
    *function = (CUfunction)module;
    return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                        unsigned int block_y, unsigned int block_z, unsigned int dynamic_bytes, CUstream stream, void **arguments,
                        void **extra) {
    bool empty = !grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z;
    return !function || empty ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

#endif
