/* The list of backends, and how one is opened on a device. */
#include "backend/backend.h"
#include "backend/lead.h"

static const struct backend_type *const backend_types[] = {&cpu_backend, &cuda_backend, &trace_backend, &xla_backend, NULL};

const struct backend_type *backend_find(struct str name) {
    for (const struct backend_type *const *t = backend_types; *t; t++)
        if (str_is(name, (*t)->name)) return *t;
    return NULL;
}

int backend_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err) {
    TRY(d->type->open(d, options, out, err));
    device_hold(d);
    if (!options->comm || options->comm->size == 1) return ERR_OK;
    if (!(*out)->sums) {
        backend_close(*out);
        *out = NULL;
        return err_set(err, ERR_EUNSUPPORTED, "--tensor-parallel runs on CPUs and NVIDIA GPUs, and this is %s; use --device cpu or cuda",
                       d->type->name);
    }
    (*out)->comm = options->comm;
    if (options->comm->rank == 0) lead_begin(*out);
    return ERR_OK;
}

void backend_close(struct backend *be) {
    if (!be) return;
    struct device *d = be->device;
    be->type->close(be);
    device_release(d);
}

int backend_kv_check(int32_t bits, const struct kv_class *k, struct err *err) {
    if (k->v_width == 0)
        return err_set(err, ERR_EUNSUPPORTED,
                       "--kv-bits %d: this model keeps one compressed row for all heads, in 16 bits only; leave it out", bits);
    bool fits = k->k_width % 16 == 0 && k->v_width % 16 == 0 && k->k_width <= KV_PACKED_WIDTH_MAX && k->v_width <= KV_PACKED_WIDTH_MAX;
    if (fits) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "--kv-bits %d: heads of %d and %d elements; it takes multiples of 16 up to %d: leave it out",
                   bits, k->k_width, k->v_width, KV_PACKED_WIDTH_MAX);
}
