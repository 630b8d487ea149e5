/* The processor as a device. */
#include "backend/cpu/cpu_device.h"

#include "base/arena.h"
#include "os/os.h"

enum { ROWS_DEFAULT = 512, PLACES_DEFAULT = 4 };

int cpu_device_open(const struct device_options *options, struct device **out, struct err *err) {
    struct cpu_device *d = mem_alloc(sizeof *d);
    d->base.rows_default = ROWS_DEFAULT;
    d->base.places_default = PLACES_DEFAULT;
    d->lock = os_mutex_create();
    d->moved = os_cond_create();
    int code = pool_create(options->n_threads > 0 ? options->n_threads : os_core_count(), &d->pool, err);
    if (code) {
        cpu_device_close(&d->base);
        return code;
    }
    *out = &d->base;
    return ERR_OK;
}

void cpu_device_close(struct device *base) {
    struct cpu_device *d = (struct cpu_device *)base;
    pool_destroy(d->pool);
    os_cond_destroy(d->moved);
    os_mutex_destroy(d->lock);
    mem_free(d);
}

void cpu_device_memory(struct device *base, uint64_t *out_free, uint64_t *out_total) {
    struct os_memory m;
    (void)base;
    os_memory(&m);
    *out_free = m.available;
    *out_total = m.total;
}

void cpu_device_enter(struct cpu_device *d) {
    os_mutex_lock(d->lock);
    uint64_t turn = d->n_asked++;
    while (turn != d->n_served) os_cond_wait(d->moved, d->lock);
    os_mutex_unlock(d->lock);
}

void cpu_device_leave(struct cpu_device *d) {
    os_mutex_lock(d->lock);
    d->n_served++;
    if (d->n_served != d->n_asked) os_cond_broadcast(d->moved);
    os_mutex_unlock(d->lock);
}

void cpu_device_each(struct device *base, int64_t n, device_items_fn *fn, void *ctx) {
    struct cpu_device *d = (struct cpu_device *)base;
    cpu_device_enter(d);
    pool_run(d->pool, n, 1, fn, ctx);
    cpu_device_leave(d);
}

int32_t cpu_device_workers(const struct device *base) {
    return pool_threads(((const struct cpu_device *)base)->pool);
}

void *cpu_pages_alloc(struct device *d, size_t bytes, const char *what, struct err *err) {
    if (device_take(d, bytes, what, err)) return NULL;
    void *p = os_pages_alloc(bytes, err);
    if (p) return p;
    device_give(d, bytes);
    err_prefix(err, "%s", what);
    return NULL;
}

void cpu_pages_free(struct device *d, void *p, size_t bytes) {
    if (!p) return;
    os_pages_free(p, bytes);
    device_give(d, bytes);
}
