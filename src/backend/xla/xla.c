/* The xla backend: one model's context on a plugin's device. */
#include "backend/xla/xla.h"

#include "os/os.h"

static void xla_close(struct backend *be) {
    struct xla *x = (struct xla *)be;
    xla_kv_close(be);
    oplist_free(&x->base.list);
    mem_free(x->block);
    mem_free(x->args);
    mem_free(x->results);
    mem_free(x->pieces);
    mem_free(x->wanted);
    mem_free(x->stage);
    arena_free(&x->arena);
    mem_free(x);
}

/* XLA tries dozens of product kernels of its own for each shape: in float32, which is for comparing rather than for speed, that is 15 s of
 * compiling on 16 cores for a prompt of Llama-3.2-1B. Who sets the option in XLA_FLAGS decides. */
static bool wants_library(const struct xla *x) {
    const char *flags = x->device->flags;
    return !x->half && xla_is_kind(x->pjrt, STR("cuda")) && (!flags || str_find(str_of(flags), STR("triton_gemm"), 0) == STR_NONE);
}

static int xla_open(struct device *d, const struct backend_options *options, struct backend **out, struct err *err) {
    (void)err;
    struct xla *x = mem_alloc(sizeof *x);
    x->base = (struct backend){.type = &xla_backend, .device = d, .precision = options->precision, .gives = true};
    x->device = (struct xla_device *)d;
    x->pjrt = &x->device->pjrt;
    x->n_places = x->device->n_places;
    x->half = options->precision == PRECISION_BF16 || (options->precision == PRECISION_AUTO && !x->device->is_cpu);
    x->library_products = wants_library(x);
    *out = &x->base;
    return ERR_OK;
}

static void xla_describe(struct backend *be, struct sb *out) {
    struct xla *x = (struct xla *)be;
    sb_fmt(out, "xla (%s, ", x->pjrt->platform);
    if (x->pjrt->n_used > 1) sb_fmt(out, "%d devices, ", x->pjrt->n_used);
    sb_fmt(out, "%s, PJRT %d.%d, %s)", x->pjrt->device_kind[0] ? x->pjrt->device_kind : "one device", x->pjrt->major, x->pjrt->minor,
           x->half ? "bf16" : "f32");
}

const struct backend_type xla_backend = {
    .name = "xla",
    .device_open = xla_device_open,
    .device_close = xla_device_close,
    .memory = xla_device_memory,
    .open = xla_open,
    .close = xla_close,
    .weight_bind = xla_weight_bind,
    .weight_release = xla_weight_release,
    .kv_number_bytes = xla_kv_number_bytes,
    .kv_open = xla_kv_open,
    .kv_close = xla_kv_close,
    .block_copy = xla_block_copy,
    .slot_copy = xla_slot_copy,
    .begin = xla_begin,
    .end = xla_end,
    .reserve = xla_reserve,
    .read = xla_read,
    .describe = xla_describe,
};
