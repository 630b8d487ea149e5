/* A PJRT plugin as a device: found, opened, and asked what it is. */
#include "backend/xla/xla.h"

#include "backend/xla/find.h"
#include "base/log.h"
#include "os/os.h"

enum { ROWS_DEFAULT = 512, PLACES_DEFAULT = 4 };

void xla_device_close(struct device *base) {
    struct xla_device *d = (struct xla_device *)base;
    if (d->pjrt.client) pjrt_close(&d->pjrt);
    arena_free(&d->arena);
    mem_free(d);
}

/* "cuda", "cuda:1", "cpu:0-7": the kind, which the plugin was chosen by, and the number, or the first and the last of several that a program runs on. */
static int wanted_devices(const char *name, struct pjrt_options *out, struct err *err) {
    struct str rest = str_of(name ? name : ""), kind, first;
    int64_t n, last;
    out->device = -1;
    if (!str_split_next(&rest, ':', &kind) || rest.n == 0) return ERR_OK;
    struct str number = rest;
    str_split_next(&rest, '-', &first);
    if (!str_to_int64(first, &n) || n < 0 || n > 1023)
        return err_set(err, ERR_EARG, "--xla-device %s: \"%.*s\" is no device number", name, STR_ARG(number));
    out->device = (int)n;
    if (first.n == number.n) return ERR_OK;
    if (!str_to_int64(rest, &last) || n != 0 || last < 1 || last >= PJRT_DEVICES_MAX)
        return err_set(err, ERR_EARG, "--xla-device %s: several devices are given as %.*s:0-N, with N from 1 to %d", name, STR_ARG(kind),
                       PJRT_DEVICES_MAX - 1);
    out->n_used = (int)last + 1;
    return ERR_OK;
}

/* XLA's own names: a GPU calls itself cuda, rocm or gpu; the CPU cpu or Host. */
bool xla_is_kind(const struct pjrt *p, struct str kind) {
    return str_is(kind, p->platform) || (str_is(kind, "gpu") && (!strcmp(p->platform, "cuda") || !strcmp(p->platform, "rocm"))) ||
           (str_is(kind, "cuda") && !strcmp(p->platform, "gpu")) || (str_is(kind, "cpu") && !strcmp(p->platform, "Host"));
}

static int open_plugin(struct xla_device *d, const struct device_options *o, struct err *err) {
    struct pjrt_options options = {.memory_fraction = o->xla.memory_fraction, .no_preallocate = o->xla.no_preallocate};
    struct str rest = str_of(o->name ? o->name : ""), kind = {0};
    str_split_next(&rest, ':', &kind);
    if (o->xla.unused) log_warn("%s is set and unused: the xla backend runs PJRT plugins, see --xla-plugin", o->xla.unused);
    TRY(wanted_devices(o->name, &options, err));
    TRY(xla_plugin_choose(&d->arena, &o->xla, o->name, &options.plugin, err));
    TRY(pjrt_open(&options, &d->pjrt, err));
    if (kind.n && !xla_is_kind(&d->pjrt, kind))
        return err_set(err, ERR_ENOTFOUND, "%s runs on %s, not on %.*s", options.plugin, d->pjrt.platform, STR_ARG(kind));
    return ERR_OK;
}

/* Where compiled programs are kept; NULL: nowhere. */
static const char *cache_dir(struct xla_device *d, const struct xla_options *o) {
    const char *root = os_cache_root();
    if (o->cache) return strcmp(o->cache, "off") ? str_cstr(&d->arena, str_of(o->cache)) : NULL;
    return root ? str_fmt(&d->arena, "%s/mlxcel/xla", root).p : NULL;
}

static const char *keep(struct xla_device *d, const char *text) {
    return text ? str_cstr(&d->arena, str_of(text)) : NULL;
}

int xla_device_open(const struct device_options *options, struct device **out, struct err *err) {
    struct xla_device *d = mem_alloc(sizeof *d);
    d->base.rows_default = ROWS_DEFAULT;
    d->base.places_default = PLACES_DEFAULT;
    d->n_places = options->xla.n_programs ? options->xla.n_programs : XLA_PROGRAMS;
    int code = open_plugin(d, options, err);
    if (code) {
        xla_device_close(&d->base);
        return code;
    }
    d->is_cpu = xla_is_kind(&d->pjrt, STR("cpu"));
    d->base.is_gpu = !d->is_cpu;
    d->cache_dir = cache_dir(d, &options->xla);
    d->dump_dir = keep(d, options->xla.dump);
    d->flags = keep(d, options->xla.flags);
    *out = &d->base;
    return ERR_OK;
}

void xla_device_memory(struct device *base, uint64_t *out_free, uint64_t *out_total) {
    struct xla_device *d = (struct xla_device *)base;
    uint64_t used = 0;
    if (pjrt_memory(&d->pjrt, &used, out_total)) {
        *out_free = (used < *out_total ? *out_total - used : 0) * (uint64_t)d->pjrt.n_used;
        *out_total *= (uint64_t)d->pjrt.n_used;
        return;
    }
    struct os_memory m;
    os_memory(&m);
    *out_free = m.available;
    *out_total = m.total;
}
