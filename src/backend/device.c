/* Devices: who holds one, and what is taken of its memory. */
#include "backend/backend.h"

int device_open(const struct backend_type *type, const struct device_options *options, struct device **out, struct err *err) {
    TRY(type->device_open(options, out, err));
    (*out)->type = type;
    (*out)->limit = options->memory_limit;
    atomic_store(&(*out)->n_holders, 1);
    return ERR_OK;
}

struct device *device_hold(struct device *d) {
    atomic_fetch_add(&d->n_holders, 1);
    return d;
}

void device_release(struct device *d) {
    if (d && atomic_fetch_sub(&d->n_holders, 1) == 1) d->type->device_close(d);
}

void device_memory(struct device *d, uint64_t *out_free, uint64_t *out_total) {
    d->type->memory(d, out_free, out_total);
    uint64_t limit = d->plan_limit && (!d->limit || d->plan_limit < d->limit) ? d->plan_limit : d->limit;
    if (limit == 0) return;
    uint64_t used = atomic_load(&d->used), left = used < limit ? limit - used : 1; /* 0 would mean that nobody knows */
    if (*out_free == 0 || left < *out_free) *out_free = left;
    if (*out_total == 0 || limit < *out_total) *out_total = limit;
}

int device_take(struct device *d, size_t bytes, const char *what, struct err *err) {
    uint64_t used = atomic_fetch_add(&d->used, bytes) + bytes;
    if (d->limit == 0 || used <= d->limit) return ERR_OK;
    device_give(d, bytes);
    return err_set(err, ERR_EMEMORY, "%s: %.2f GB do not fit the memory limit of %.2f GB, of which %.2f GB are taken", what,
                   (double)bytes * 1e-9, (double)d->limit * 1e-9, (double)(used - bytes) * 1e-9);
}

void device_give(struct device *d, size_t bytes) {
    atomic_fetch_sub(&d->used, bytes);
}
