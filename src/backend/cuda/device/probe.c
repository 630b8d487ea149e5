/* Probing the driver and its devices. */
#include "backend/cuda/device/probe.h"

#include <stdio.h>

static double gib(uint64_t bytes) {
    return (double)bytes / (1 << 30);
}

/* ---- one device ----------------------------------------------------------------------------------------------- */

static int attribute(const struct cuda_driver *d, CUdevice handle, CUdevice_attribute which) {
    int value = 0;
    return d->cuDeviceGetAttribute(&value, which, handle) == CUDA_SUCCESS ? value : 0;
}

static void format_uuid(const CUuuid *uuid, char out[41]) {
    int n = snprintf(out, 41, "GPU-");
    for (int i = 0; i < 16; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;
        n += snprintf(out + n, (size_t)(41 - n), "%s%02x", dash ? "-" : "", (unsigned char)uuid->bytes[i]);
    }
}

static int read_device(const struct cuda_driver *d, int i, struct cuda_device *dev) {
    CUuuid uuid = {{0}};
    size_t total = 0;
    struct err *err = &dev->reason;
    TRY(cuda_check(d, d->cuDeviceGet(&dev->handle, i), err, "GPU %d", i));
    TRY(cuda_check(d, d->cuDeviceGetName(dev->name, sizeof dev->name - 1, dev->handle), err, "asking GPU %d for its name", i));
    TRY(cuda_check(d, d->cuDeviceTotalMem(&total, dev->handle), err, "asking GPU %d for its memory", i));
    if (d->cuDeviceGetPCIBusId(dev->pci_id, sizeof dev->pci_id, dev->handle) != CUDA_SUCCESS) dev->pci_id[0] = 0;
    if (d->cuDeviceGetUuid(&uuid, dev->handle) == CUDA_SUCCESS) format_uuid(&uuid, dev->uuid);
    dev->total_bytes = total;
    dev->capability = attribute(d, dev->handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
                      attribute(d, dev->handle, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    dev->n_sm = attribute(d, dev->handle, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    dev->display = attribute(d, dev->handle, CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT) != 0;
    if (attribute(d, dev->handle, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE) == CU_COMPUTEMODE_PROHIBITED)
        return err_set(err, ERR_EDEVICE, "GPU %d (%s) is in the compute mode Prohibited: nvidia-smi -i %d -c 0 allows its use", i,
                       dev->name, i);
    return 0;
}

/* Which image runs on the device, or why none does. */
static int cover_device(struct cuda_probe *p, struct cuda_device *dev) {
    struct cuda_arch later;
    if (cuda_pack_covers(&p->pack, dev->capability, p->driver.version, &dev->image)) {
        dev->covered = true;
        return 0;
    }
    if (cuda_pack_covers(&p->pack, dev->capability, 1 << 30, &later))
        return err_set(
            &dev->reason, ERR_EUNSUPPORTED,
            "GPU %d (%s): the driver is too old for this build's kernels: it speaks CUDA %d.%d (driver %d), they need CUDA %d.%d (driver %d or "
            "newer)",
            dev->index, dev->name, p->driver.version / 1000, p->driver.version % 1000 / 10, cuda_branch_of(p->driver.version),
            p->pack.toolkit / 1000, 0, cuda_branch_of(p->pack.toolkit / 1000 * 1000));
    struct sb have = {0};
    cuda_pack_describe(&p->pack, &have);
    const struct cuda_support *row = cuda_support_of(dev->capability);
    if (row)
        sb_fmt(&have, "; those for %s run it, from driver %d on: take a release, or build with -DMLXCEL_CUDA=on", row->image, row->driver);
    else sb_fmt(&have, "; no build covers it, the first is %d.%d", CUDA_FIRST / 10, CUDA_FIRST % 10);
    err_set(&dev->reason, ERR_EUNSUPPORTED,
            "GPU %d (%s) has compute capability %d.%d, which this build does not cover: its kernels are for %s", dev->index, dev->name,
            dev->capability / 10, dev->capability % 10, have.p);
    sb_free(&have);
    return ERR_EUNSUPPORTED;
}

/* The driver tells free memory only inside a context. A device on which no context can be made is in exclusive use or broken, and is left out. */
static int ask_free(const struct cuda_driver *d, struct cuda_device *dev) {
    CUcontext before = NULL, context = NULL;
    size_t free_bytes = 0, total = 0;
    d->cuCtxGetCurrent(&before);
    TRY(cuda_check(d, d->cuDevicePrimaryCtxRetain(&context, dev->handle), &dev->reason, "opening GPU %d (%s)", dev->index, dev->name));
    int code = cuda_check(d, d->cuCtxSetCurrent(context), &dev->reason, "opening GPU %d (%s)", dev->index, dev->name);
    if (code == 0)
        code =
            cuda_check(d, d->cuMemGetInfo(&free_bytes, &total), &dev->reason, "asking GPU %d (%s) for free memory", dev->index, dev->name);
    d->cuCtxSetCurrent(before);
    d->cuDevicePrimaryCtxRelease(dev->handle);
    dev->free_bytes = free_bytes;
    return code;
}

/* ---- all of them ---------------------------------------------------------------------------------------------- */

static enum cuda_state start_driver(struct cuda_probe *p, const char *path) {
    int code = cuda_driver_open(&p->driver, path, &p->reason);
    if (code == ERR_ENOTFOUND) return CUDA_NO_DRIVER;
    if (code) return CUDA_DRIVER_OLD;
    CUresult result = p->driver.cuInit(0);
    if (result == CUDA_ERROR_NO_DEVICE) {
        cuda_check(&p->driver, result, &p->reason, "the NVIDIA driver (CUDA %d.%d) started", p->driver.version / 1000,
                   p->driver.version % 1000 / 10);
        return CUDA_NO_DEVICE;
    }
    if (cuda_check(&p->driver, result, &p->reason, "the NVIDIA driver does not start")) return CUDA_DRIVER_FAILS;
    if (cuda_check(&p->driver, p->driver.cuDeviceGetCount(&p->n_devices), &p->reason, "counting the GPUs")) return CUDA_DRIVER_FAILS;
    if (p->n_devices <= 0) {
        err_set(&p->reason, ERR_EDEVICE, "the driver sees no GPU (check nvidia-smi and CUDA_VISIBLE_DEVICES)");
        return CUDA_NO_DEVICE;
    }
    if (p->n_devices > CUDA_MAX_DEVICES) p->n_devices = CUDA_MAX_DEVICES;
    return CUDA_READY;
}

static void no_kernels(struct cuda_probe *p) {
    if (p->reason.code == 0)
        err_set(&p->reason, ERR_EUNSUPPORTED,
                "this mlxcel was built without CUDA kernels: build it with -DMLXCEL_CUDA=on (or prebuilt), or take a release");
    p->state = CUDA_NO_KERNELS;
}

/* No device is covered: the reason of the only device, or a sentence that lists the devices and the architectures of our kernels. */
static void none_covered(struct cuda_probe *p) {
    p->state = CUDA_NOT_COVERED;
    p->reason = p->devices[0].reason;
    struct cuda_arch arch;
    bool old = cuda_pack_covers(&p->pack, p->devices[0].capability, 1 << 30, &arch);
    if (old && p->reason.code == ERR_EUNSUPPORTED) p->state = CUDA_DRIVER_OLD;
    if (p->n_devices == 1 || old) return;
    struct sb devices = {0}, have = {0};
    for (int i = 0; i < p->n_devices; i++)
        sb_fmt(&devices, "%s%d.%d", i ? ", " : "", p->devices[i].capability / 10, p->devices[i].capability % 10);
    cuda_pack_describe(&p->pack, &have);
    err_set(&p->reason, ERR_EUNSUPPORTED,
            "none of the %d GPUs is covered: they have compute capability %s, this build's kernels are for %s", p->n_devices, devices.p,
            have.p);
    sb_free(&devices);
    sb_free(&have);
}

void cuda_probe_run(struct cuda_probe *p, const struct cuda_probe_args *args) {
    *p = (struct cuda_probe){0};
    if (args->pack) p->pack = *args->pack;
    else if (cuda_pack_embedded(&p->pack, &p->reason)) p->pack.n_rows = 0;
    p->state = start_driver(p, args->driver_path);
    if (p->state != CUDA_READY) return;
    int n_covered = 0;
    for (int i = 0; i < p->n_devices; i++) {
        struct cuda_device *dev = &p->devices[i];
        dev->index = i;
        bool fine = read_device(&p->driver, i, dev) == 0 && (p->pack.n_rows == 0 || cover_device(p, dev) == 0);
        if (fine && args->want_free) dev->covered = ask_free(&p->driver, dev) == 0 && dev->covered;
        n_covered += dev->covered;
    }
    if (p->pack.n_rows == 0) no_kernels(p);
    else if (n_covered == 0) none_covered(p);
}

int cuda_probe_choose(struct cuda_probe *p, int wanted, int *out_i, struct err *err) {
    if (p->state != CUDA_READY && (wanted < 0 || p->n_devices == 0)) {
        *err = p->reason;
        return err->code;
    }
    if (wanted >= p->n_devices)
        return err_set(err, ERR_EARG, "there is no GPU %d: the driver has %d, numbered from 0", wanted, p->n_devices);
    int best = -1, n_covered = 0;
    for (int i = 0; i < p->n_devices; i++) n_covered += p->devices[i].covered;
    for (int i = 0; i < p->n_devices; i++) {
        struct cuda_device *dev = &p->devices[i];
        if (!dev->covered || (wanted >= 0 && i != wanted)) continue;
        if (n_covered > 1 && wanted < 0 && dev->free_bytes == 0 && ask_free(&p->driver, dev)) {
            dev->covered = false;
            continue;
        }
        if (best < 0 || dev->free_bytes > p->devices[best].free_bytes) best = i;
    }
    if (best < 0) {
        struct cuda_device *dev = &p->devices[wanted >= 0 ? wanted : 0];
        *err = dev->reason.code ? dev->reason : p->reason;
        return err->code ? err->code : err_set(err, ERR_EDEVICE, "no GPU can be used");
    }
    *out_i = best;
    return 0;
}

bool cuda_devices_alike(const struct cuda_device *a, const struct cuda_device *b) {
    return a->capability == b->capability && strcmp(a->name, b->name) == 0;
}

bool cuda_devices_reach(const struct cuda_probe *p, const struct cuda_device *a, const struct cuda_device *b) {
    int to = 0, back = 0;
    if (a->index == b->index) return true;
    if (!p->driver.cuDeviceCanAccessPeer) return false;
    return !p->driver.cuDeviceCanAccessPeer(&to, a->handle, b->handle) && !p->driver.cuDeviceCanAccessPeer(&back, b->handle, a->handle) &&
           to && back;
}

void cuda_device_describe(const struct cuda_device *dev, struct sb *out) {
    const struct cuda_support *row = cuda_support_of(dev->capability);
    sb_fmt(out, "GPU %d: %s, compute capability %d.%d%s%s%s, %.1f GiB", dev->index, dev->name, dev->capability / 10, dev->capability % 10,
           row ? " (" : "", row ? row->family : "", row ? ")" : "", gib(dev->total_bytes));
    if (dev->free_bytes) sb_fmt(out, " (%.1f GiB free)", gib(dev->free_bytes));
    char arch[16];
    cuda_arch_format((struct cuda_arch){dev->image.number, dev->image.suffix == 'p' ? 0 : dev->image.suffix}, arch);
    if (dev->covered) sb_fmt(out, ", kernels %s%s", dev->image.suffix == 'p' ? "from PTX " : "", arch);
}

int cuda_memory_error(const struct cuda_device *dev, const char *what, uint64_t wanted_bytes, uint64_t free_bytes, uint64_t kept_bytes,
                      struct err *err) {
    char kept[64] = "";
    if (kept_bytes) snprintf(kept, sizeof kept, " (%.2f GiB of that are kept back)", gib(kept_bytes));
    return err_set(
        err, ERR_EMEMORY,
        "GPU %d (%s) has too little memory for %s: %.2f GiB wanted, %.2f GiB of %.2f GiB free%s; end other programs that use it, take a "
        "smaller model or context, or use --device cpu",
        dev->index, dev->name, what, gib(wanted_bytes), gib(free_bytes), gib(dev->total_bytes), kept);
}
