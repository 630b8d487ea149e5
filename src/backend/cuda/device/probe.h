/* What this machine has for CUDA: driver, devices, which of them our kernels cover, and in words why not.
 *
 * One table (cuda_support, in support.c) says which GPU family runs which image from which driver on; the probe, `mlxcel doctor`,
 * docs/cuda-kernels.md and docs/cuda-compatibility.md are made from it. */
#ifndef MLXCEL_BACKEND_CUDA_DEVICE_PROBE_H
#define MLXCEL_BACKEND_CUDA_DEVICE_PROBE_H

#include "backend/cuda/device/driver.h"
#include "backend/cuda/device/image.h"

struct cuda_support {
    int capability; /* 10 * major + minor */
    const char *family, *gpus;
    const char *image; /* of a full build: "90a"; "PTX" where the driver compiles */
    int driver;        /* branch from which that image loads */
    int driver_ptx;    /* branch from which the PTX image serves instead; 0: no such drivers know the GPU */
};
enum { CUDA_FIRST = 75 /* the oldest capability that CUDA 13 compiles for */, CUDA_SUPPORT_ROWS = 11 };
extern const struct cuda_support cuda_support_rows[CUDA_SUPPORT_ROWS];
const struct cuda_support *cuda_support_of(int capability); /* NULL: no build covers it */
void cuda_support_page(struct sb *out);                     /* docs/cuda-compatibility.md */

enum cuda_state {
    CUDA_READY,
    CUDA_NO_KERNELS, /* built without them */
    CUDA_NO_DRIVER,  /* the everyday machine without an NVIDIA GPU */
    CUDA_DRIVER_OLD,
    CUDA_DRIVER_FAILS, /* it is there and does not start */
    CUDA_NO_DEVICE,
    CUDA_NOT_COVERED, /* devices, but no image for them */
};

struct cuda_device {
    int index; /* the driver's number */
    CUdevice handle;
    char name[96], pci_id[16], uuid[41]; /* "0000:17:00.0", "GPU-xxxxxxxx-..." */
    int capability, n_sm;
    uint64_t total_bytes, free_bytes; /* free is 0 where it was not asked for or could not be told */
    bool covered, display;            /* display: the system ends kernels that run for seconds */
    struct cuda_arch image;           /* the best; suffix 'p' is PTX */
    struct err reason;                /* why it cannot be used; code 0 when it can */
};

enum { CUDA_MAX_DEVICES = 16 };

struct cuda_probe {
    enum cuda_state state;
    struct err reason; /* one sentence; empty when ready */
    struct cuda_driver driver;
    struct cuda_pack pack;
    struct cuda_device devices[CUDA_MAX_DEVICES];
    int n_devices;
};

struct cuda_probe_args {
    const char *driver_path;      /* NULL: the system's */
    const struct cuda_pack *pack; /* NULL: the embedded one */
    bool want_free;               /* ask for free memory, which opens a context on each covered device (tens of milliseconds each) */
};

/* Never fails: what is wrong is in state and reason, and devices hold what could be found out. */
void cuda_probe_run(struct cuda_probe *p, const struct cuda_probe_args *args);

/* The device to use: `wanted` by index, or -1 for the covered one with the most free memory. On success the index into
 * p->devices; else an error that says why that device, or every device, cannot be used. */
int cuda_probe_choose(struct cuda_probe *p, int wanted, int *out_i, struct err *err);

/* Of one kind; whether each reaches the memory of the other. */
bool cuda_devices_alike(const struct cuda_device *a, const struct cuda_device *b);
bool cuda_devices_reach(const struct cuda_probe *p, const struct cuda_device *a, const struct cuda_device *b);

/* "GPU 0: NVIDIA H200, compute capability 9.0, 139.8 GiB (139.2 GiB free), kernels 90a" */
void cuda_device_describe(const struct cuda_device *dev, struct sb *out);

/* The message for a device whose memory does not suffice; gives ERR_EMEMORY. kept_bytes: of those that are free, which we leave alone. */
int cuda_memory_error(const struct cuda_device *dev, const char *what, uint64_t wanted_bytes, uint64_t free_bytes, uint64_t kept_bytes,
                      struct err *err);

#endif
