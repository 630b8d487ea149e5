/* The processor as a device: its workers, and whose turn it is to use them. */
#ifndef MLXCEL_BACKEND_CPU_CPU_DEVICE_H
#define MLXCEL_BACKEND_CPU_CPU_DEVICE_H

#include "backend/backend.h"
#include "backend/cpu/pool.h"

struct cpu_device {
    struct device base;
    struct pool *pool;
    struct os_mutex *lock; /* for what follows */
    struct os_cond *moved;
    uint64_t n_asked, n_served; /* turns */
};

int cpu_device_open(const struct device_options *options, struct device **out, struct err *err);
void cpu_device_close(struct device *d);
void cpu_device_memory(struct device *d, uint64_t *out_free, uint64_t *out_total);
void cpu_device_each(struct device *d, int64_t n, device_items_fn *fn, void *ctx);
int32_t cpu_device_workers(const struct device *d);

/* One thread at a time runs jobs on the pool. Who asks first is served first, so that two models take turns step by step. */
void cpu_device_enter(struct cpu_device *d);
void cpu_device_leave(struct cpu_device *d);

/* Pages within the device's budget. The bytes are counted until they are given back. */
void *cpu_pages_alloc(struct device *d, size_t bytes, const char *what, struct err *err);
void cpu_pages_free(struct device *d, void *p, size_t bytes); /* NULL is fine */

#endif
