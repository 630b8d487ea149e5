/* Examining the machine. The GPUs are asked by the CUDA backend's own probe, so that what is said here is what would run. */
#include "tools/doctor.h"

#include "backend/cuda/device/probe.h"
#include "backend/xla/find.h"
#include "hub/short_names.h"
#include "hub/store.h"
#include "os/cpu.h"
#include "os/os.h"
#include "tools/paths.h"

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

/* Which of the well-known models run within so much memory. */
static void add_models(struct arena *a, const char *where, uint64_t bytes, struct doctor_report *r) {
    struct sb names = {0};
    bool any = hub_short_fitting(bytes, &names) > 0;
    if (any)
        add(r, "models", DOCTOR_OK,
            str_fmt(a, "the largest of their kind that fit %s (%.1f GiB) with 4 bits, by estimate: %s", where, gib(bytes), names.p),
            (struct str){0});
    else
        add(r, "models", DOCTOR_NOTE, str_fmt(a, "no well-known model fits %s (%.1f GiB)", where, gib(bytes)),
            STR("close other programs; the built-in model runs in 30 MB"));
    sb_free(&names);
}

static void examine_memory(struct arena *a, struct doctor_report *r) {
    struct os_memory m;
    os_memory(&m);
    bool low = m.available < UINT64_C(1) << 30;
    add(r, "memory", low ? DOCTOR_NOTE : DOCTOR_OK, str_fmt(a, "%.1f GiB, %.1f GiB available", gib(m.total), gib(m.available)),
        low ? STR("close other programs, or raise the container's memory limit") : (struct str){0});
    add_models(a, "into memory", m.available, r);
}

/* The folder itself need not exist yet: the disk is that of the nearest parent, which then has to take the new folder. */
static int disk_free_near(struct arena *a, const char *path, uint64_t *out, bool *out_can_write, struct err *err) {
    struct str p = str_of(path);
    int code = os_disk_free(path, out, err);
    while (code && p.n > 1) {
        size_t cut = p.n - 1;
        while (cut > 0 && p.p[cut] != '/' && p.p[cut] != '\\') cut--;
        p = str_sub(p, 0, cut ? cut : 1);
        code = os_disk_free(str_cstr(a, p), out, err);
    }
    *out_can_write = code == ERR_OK && os_can_write(str_cstr(a, p));
    return code;
}

static void examine_store(struct arena *a, const struct store_options *o, struct doctor_report *r) {
    uint64_t free_bytes = 0;
    struct os_stat st;
    struct err err;
    const char *dir = store_models_dir(a, o);
    if (!dir) {
        add(r, "store", DOCTOR_PROBLEM, STR("no place for downloaded models: the home folder is unknown"),
            STR("set MLXCEL_MODELS_DIR to a folder"));
        return;
    }
    bool exists = os_stat(dir, &st, NULL) == 0, can_write;
    if (exists && !st.is_dir) {
        add(r, "store", DOCTOR_PROBLEM, str_fmt(a, "%s is not a folder", dir), STR("remove it, or set MLXCEL_MODELS_DIR to a folder"));
        return;
    }
    if (disk_free_near(a, dir, &free_bytes, &can_write, &err)) {
        add(r, "store", DOCTOR_PROBLEM, str_of(str_cstr(a, str_of(err.msg))), STR("set MLXCEL_MODELS_DIR to a folder that can be read"));
        return;
    }
    if (!can_write) {
        add(r, "store", DOCTOR_NOTE, str_fmt(a, "%s cannot be %s: no model can be downloaded", dir, exists ? "written" : "made"),
            STR("set MLXCEL_MODELS_DIR, or MLXCEL_HOME, to a folder that can be written"));
        return;
    }
    bool low = free_bytes < UINT64_C(5) << 30;
    add(r, "store", low ? DOCTOR_NOTE : DOCTOR_OK, str_fmt(a, "%s%s, %.1f GiB free", dir, exists ? "" : " (not made yet)", gib(free_bytes)),
        low ? STR("free some space, or set MLXCEL_MODELS_DIR to another disk") : (struct str){0});
}

/* ---- the GPU -------------------------------------------------------------------------------------------------- */

static const char *const gpu_fixes[] = {
    [CUDA_NO_KERNELS] = "take a release, or build with -DMLXCEL_CUDA=on (docs/cuda-kernels.md); the CPU is used",
    [CUDA_NO_DRIVER] = "to use an NVIDIA GPU, install its driver; the CPU is used",
    [CUDA_DRIVER_OLD] = "update the NVIDIA driver; the CPU is used",
    [CUDA_DRIVER_FAILS] = "cure what the driver says, then try again; the CPU is used",
    [CUDA_NO_DEVICE] = "give this machine or container a GPU (docker: --gpus all); CUDA_VISIBLE_DEVICES may hide it",
    [CUDA_NOT_COVERED] = "see the table in docs/cuda-kernels.md; the CPU is used",
};

static void add_device(struct arena *a, const struct cuda_device *dev, struct doctor_report *r) {
    struct sb text = {0};
    cuda_device_describe(dev, &text);
    sb_fmt(&text, ", %s, PCI %s", dev->uuid, dev->pci_id);
    if (dev->display) sb_puts(&text, ", drives a display");
    bool good = dev->reason.code == 0;
    add(r, "gpu", good ? DOCTOR_OK : DOCTOR_NOTE, str_copy(a, sb_str(&text)),
        good ? (struct str){0} : str_copy(a, str_of(dev->reason.msg)));
    if (good && dev->free_bytes) add_models(a, str_fmt(a, "onto GPU %d", dev->index).p, dev->free_bytes, r);
    sb_free(&text);
}

/* How several GPUs would share a model. */
static void add_together(struct arena *a, const struct cuda_probe *p, struct doctor_report *r) {
    uint64_t free_bytes = 0;
    int n = 0;
    bool alike = true, reach = true;
    for (int i = 0; i < p->n_devices; i++) {
        const struct cuda_device *d = &p->devices[i];
        if (d->reason.code) continue;
        n++;
        free_bytes += d->free_bytes;
        for (int k = 0; k < i; k++) {
            if (p->devices[k].reason.code) continue;
            alike = alike && cuda_devices_alike(d, &p->devices[k]);
            reach = reach && cuda_devices_reach(p, d, &p->devices[k]);
        }
    }
    if (n < 2) return;
    const char *why = !alike  ? "are of different kinds"
                      : reach ? "are alike and reach each other's memory"
                              : "do not reach each other's memory";
    add(r, "gpu", DOCTOR_OK,
        str_fmt(a, "%d GPUs %s: several of them share a model by %s (docs/ranks.md)", n, why,
                alike && reach ? "--tensor-parallel auto or --split layer" : "--split layer"),
        (struct str){0});
    add_models(a, str_fmt(a, "onto %d GPUs", n).p, free_bytes, r);
}

static void examine_gpu(struct arena *a, struct doctor_report *r) {
    struct cuda_probe *p = arena_new(a, struct cuda_probe, 1);
    struct sb kernels = {0};
    cuda_probe_run(p, &(struct cuda_probe_args){.want_free = true});
    cuda_pack_describe(&p->pack, &kernels);
    if (p->driver.version)
        add(r, "gpu", DOCTOR_OK,
            str_fmt(a, "NVIDIA driver for CUDA %d.%d (branch %d), kernels in this program: %s", p->driver.version / 1000,
                    p->driver.version % 1000 / 10, cuda_branch_of(p->driver.version), kernels.p),
            (struct str){0});
    for (int i = 0; i < p->n_devices; i++) add_device(a, &p->devices[i], r);
    add_together(a, p, r);
    if (p->state != CUDA_READY) add(r, "gpu", DOCTOR_NOTE, str_copy(a, str_of(p->reason.msg)), str_of(gpu_fixes[p->state]));
    sb_free(&kernels);
}

/* Plugins for the xla backend, with the line that uses each. None is opened: that would load hundreds of megabytes. */
static void examine_plugins(struct arena *a, const struct xla_options *o, struct doctor_report *r) {
    struct xla_plugins found;
    xla_plugins_find(a, o, &found);
    for (int32_t i = 0; i < found.n; i++)
        add(r, "xla", DOCTOR_OK, str_fmt(a, "PJRT plugin for %.*s: %.*s", STR_ARG(found.items[i].device), STR_ARG(found.items[i].path)),
            str_fmt(a, "to use it, run with --backend xla --xla-plugin %.*s", STR_ARG(found.items[i].path)));
}

void doctor_examine(struct arena *a, const struct store_options *store, const struct xla_options *xla, struct doctor_report *out) {
    struct str system;
    *out = (struct doctor_report){0};
    os_describe(a, &system);
    add(out, "system", DOCTOR_OK, system, (struct str){0});
    examine_processor(a, out);
    examine_memory(a, out);
    examine_store(a, store, out);
    examine_gpu(a, out);
    examine_plugins(a, xla, out);
}

/* ---- a model ---------------------------------------------------------------------------------------------------- */

int doctor_examine_model(struct arena *a, const struct session_options *o, struct doctor_report *r, struct err *err) {
    struct device *gpu;
    struct err why = {0};
    struct paths_report report;
    if (device_open(&cuda_backend, &(struct device_options){.name = o->device}, &gpu, &why)) {
        add(r, "kernels", DOCTOR_OK, STR("no GPU to choose kernels for: the model runs on the CPU"), (struct str){0});
        return ERR_OK;
    }
    int code = paths_examine(o, gpu, &report, err);
    for (int i = 0; i < PATHS_STEPS && !code; i++) {
        struct sb text = {0};
        bool is_slow = paths_slow_share(&report.steps[i].paths) > PATHS_LIMIT;
        paths_describe(&report.steps[i], &text);
        add(r, "kernels", is_slow ? DOCTOR_NOTE : DOCTOR_OK, str_copy(a, sb_str(&text)),
            is_slow ? STR("docs/slow-paths.md says what these kernels are and which other formats avoid them") : (struct str){0});
        sb_free(&text);
    }
    device_release(gpu);
    return code;
}
