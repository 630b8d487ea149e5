/* Examining the machine. The GPU driver is opened only to ask it who it is; nothing is left loaded. */
#include "api/doctor.h"

#include "os/cpu.h"
#include "os/os.h"

#include <stdio.h>

static void add(struct doctor_report *r, const char *topic, enum doctor_level level, struct str text, struct str fix) {
    if (r->n < sizeof r->findings / sizeof *r->findings) r->findings[r->n++] = (struct doctor_finding){topic, level, text, fix};
}

static double gib(uint64_t bytes) {
    return (double)bytes / (1 << 30);
}

static void examine_processor(struct arena *a, struct doctor_report *r) {
    add(r, "processor", DOCTOR_OK, str_fmt(a, "%s, %d cores, %d threads usable", os_cpu_name(), os_core_count(), os_cpu_count()),
        (struct str){0});
    struct sb names = {0};
    cpu_describe(&names);
    uint32_t wanted = CPU_AVX2 | CPU_NEON;
    bool slow = !(cpu_flags() & wanted);
    add(r, "features", slow ? DOCTOR_NOTE : DOCTOR_OK, str_copy(a, sb_str(&names)),
        slow ? STR("without AVX2 (or NEON) the portable kernels run, many times slower; use a machine made after 2013") : (struct str){0});
    sb_free(&names);
}

static void examine_memory(struct arena *a, struct doctor_report *r) {
    struct os_memory m;
    os_memory(&m);
    bool low = m.available < UINT64_C(1) << 30;
    add(r, "memory", low ? DOCTOR_NOTE : DOCTOR_OK, str_fmt(a, "%.1f GiB, %.1f GiB available", gib(m.total), gib(m.available)),
        low ? STR("close other programs, or raise the container's memory limit") : (struct str){0});
}

/* The folder itself need not exist yet: the disk is that of the nearest parent. */
static int disk_free_near(struct arena *a, const char *path, uint64_t *out, struct err *err) {
    struct str p = str_of(path);
    int code = os_disk_free(path, out, err);
    while (code && p.n > 1) {
        size_t cut = p.n - 1;
        while (cut > 0 && p.p[cut] != '/' && p.p[cut] != '\\') cut--;
        p = str_sub(p, 0, cut ? cut : 1);
        code = os_disk_free(str_cstr(a, p), out, err);
    }
    return code;
}

static void examine_store(struct arena *a, const char *models_dir, struct doctor_report *r) {
    const char *root = os_cache_root();
    uint64_t free_bytes = 0;
    struct os_stat st;
    struct err err;
    if (!models_dir && !root) {
        add(r, "store", DOCTOR_PROBLEM, STR("no place for downloaded models: the home folder is unknown"),
            STR("set MLXCEL_MODELS_DIR to a folder"));
        return;
    }
    const char *dir = models_dir ? models_dir : str_fmt(a, "%s/mlxcel/models", root).p;
    bool exists = os_stat(dir, &st, NULL) == 0;
    if (exists && !st.is_dir) {
        add(r, "store", DOCTOR_PROBLEM, str_fmt(a, "%s is not a folder", dir), STR("remove it, or set MLXCEL_MODELS_DIR to a folder"));
        return;
    }
    if (disk_free_near(a, dir, &free_bytes, &err)) {
        add(r, "store", DOCTOR_PROBLEM, str_of(str_cstr(a, str_of(err.msg))), STR("set MLXCEL_MODELS_DIR to a folder that can be read"));
        return;
    }
    bool low = free_bytes < UINT64_C(5) << 30;
    add(r, "store", low ? DOCTOR_NOTE : DOCTOR_OK, str_fmt(a, "%s%s, %.1f GiB free", dir, exists ? "" : " (not made yet)", gib(free_bytes)),
        low ? STR("free some space, or set MLXCEL_MODELS_DIR to another disk") : (struct str){0});
}

/* ---- the GPU driver ------------------------------------------------------------------------------------------- */

struct driver {
    int (*init)(unsigned flags);
    int (*driver_version)(int *out);
    int (*device_count)(int *out);
    int (*device_name)(char *out, int bytes, int device);
    int (*device_memory)(size_t *out, int device);
    int (*device_attribute)(int *out, int attribute, int device);
};

enum { ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76, DRIVER_WANTED = 12000 };

static bool driver_load(struct os_dl *lib, struct driver *d) {
    return os_dl_symbol(lib, "cuInit", &d->init) && os_dl_symbol(lib, "cuDriverGetVersion", &d->driver_version) &&
           os_dl_symbol(lib, "cuDeviceGetCount", &d->device_count) && os_dl_symbol(lib, "cuDeviceGetName", &d->device_name) &&
           os_dl_symbol(lib, "cuDeviceTotalMem_v2", &d->device_memory) && os_dl_symbol(lib, "cuDeviceGetAttribute", &d->device_attribute);
}

static const struct {
    int code;
    const char *text, *fix;
} init_failures[] = {
    {34, "the driver library is the toolkit's stub, not a driver", "take the toolkit's stubs folder out of the library path"},
    {100, "the driver finds no GPU", "give this machine or container a GPU (docker: --gpus all); CUDA_VISIBLE_DEVICES may hide it"},
    {802, "the driver is still starting", "wait for the fabric manager, then try again"},
    {803, "the driver library and the kernel module differ in version", "restart the machine after the driver's update"},
    {804, "the driver's compatibility package does not support this GPU", "remove the compatibility package"},
    {999, "the driver reports an unknown error", "restart the machine; look for NVRM lines in the system log"},
};

static void add_init_failure(struct arena *a, struct doctor_report *r, int code) {
    for (size_t i = 0; i < sizeof init_failures / sizeof *init_failures; i++)
        if (init_failures[i].code == code) {
            add(r, "gpu", DOCTOR_NOTE, str_of(init_failures[i].text), str_of(init_failures[i].fix));
            return;
        }
    add(r, "gpu", DOCTOR_NOTE, str_fmt(a, "the driver does not start (error %d)", code), STR("reinstall NVIDIA's driver"));
}

static void examine_device(struct arena *a, const struct driver *d, int i, struct doctor_report *r) {
    char name[128] = "";
    size_t bytes = 0;
    int major = 0, minor = 0;
    if (d->device_name(name, sizeof name - 1, i) || d->device_memory(&bytes, i) || d->device_attribute(&major, ATTRIBUTE_MAJOR, i) ||
        d->device_attribute(&minor, ATTRIBUTE_MINOR, i)) {
        add(r, "gpu", DOCTOR_PROBLEM, str_fmt(a, "GPU %d does not answer", i), STR("restart the machine"));
        return;
    }
    bool old = major * 10 + minor < 75;
    add(r, "gpu", old ? DOCTOR_NOTE : DOCTOR_OK,
        str_fmt(a, "GPU %d: %s, %.1f GiB, compute capability %d.%d", i, name, gib(bytes), major, minor),
        old ? STR("GPUs before Turing (7.5) are not used; the CPU is") : (struct str){0});
}

static void examine_driver(struct arena *a, const struct driver *d, struct doctor_report *r) {
    int version = 0, n_devices = 0;
    int code = d->init(0);
    if (code) {
        add_init_failure(a, r, code);
        return;
    }
    d->driver_version(&version);
    bool old = version < DRIVER_WANTED;
    add(r, "gpu", old ? DOCTOR_NOTE : DOCTOR_OK, str_fmt(a, "NVIDIA driver for CUDA %d.%d", version / 1000, version % 1000 / 10),
        old ? STR("install NVIDIA's driver 525 or newer") : (struct str){0});
    d->device_count(&n_devices);
    for (int i = 0; i < n_devices && i < 8; i++) examine_device(a, d, i, r);
}

static void examine_gpu(struct arena *a, struct doctor_report *r) {
    static const char *const names[] = {"libcuda.so.1", "nvcuda.dll"};
    struct os_dl *lib = NULL;
    struct driver d;
    for (size_t i = 0; i < 2 && !lib; i++)
        if (os_dl_open(names[i], OS_DL_SYSTEM_ONLY, &lib, NULL)) lib = NULL;
    if (!lib)
        add(r, "gpu", DOCTOR_NOTE, STR("no NVIDIA driver on this machine; the CPU is used"),
            STR("to use an NVIDIA GPU, install its driver, 525 or newer"));
    else if (!driver_load(lib, &d))
        add(r, "gpu", DOCTOR_NOTE, STR("the NVIDIA driver is too old"), STR("install NVIDIA's driver 525 or newer"));
    else examine_driver(a, &d, r);
    os_dl_close(lib);
}

void doctor_examine(struct arena *a, const char *models_dir, struct doctor_report *out) {
    struct str system;
    *out = (struct doctor_report){0};
    os_describe(a, &system);
    add(out, "system", DOCTOR_OK, system, (struct str){0});
    examine_processor(a, out);
    examine_memory(a, out);
    examine_store(a, models_dir, out);
    examine_gpu(a, out);
}
