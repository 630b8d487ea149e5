/* Devices as the operating system and the driver tell them. */
#include "api/machine.h"

#include "backend/cuda/device/probe.h"
#include "os/os.h"

#include <stdio.h>

static void describe_cpu(struct machine_device *out) {
    struct os_memory memory;
    os_memory(&memory);
    *out = (struct machine_device){.name = "cpu", .is_usable = true, .total_bytes = memory.total, .free_bytes = memory.available};
    snprintf(out->description, sizeof out->description, "%s, %d cores", os_cpu_name(), os_core_count());
}

static void describe_gpu(const struct cuda_device *d, struct machine_device *out) {
    struct sb text = {0};
    cuda_device_describe(d, &text);
    *out = (struct machine_device){.is_usable = d->reason.code == 0, .total_bytes = d->total_bytes, .free_bytes = d->free_bytes};
    snprintf(out->name, sizeof out->name, "cuda:%d", d->index);
    snprintf(out->description, sizeof out->description, "%.220s", d->reason.code ? d->reason.msg : text.p);
    sb_free(&text);
}

bool machine_device_get(size_t index, struct machine_device *out) {
    if (index == 0) {
        describe_cpu(out);
        return true;
    }
    struct cuda_probe *p = mem_alloc(sizeof *p);
    cuda_probe_run(p, &(struct cuda_probe_args){.want_free = true});
    bool has = index <= (size_t)p->n_devices;
    if (has) describe_gpu(&p->devices[index - 1], out);
    mem_free(p);
    return has;
}
