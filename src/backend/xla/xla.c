/* The xla backend: opening a plugin, describing it. */
#include "backend/xla/xla.h"

#include "backend/xla/find.h"
#include "os/os.h"

static void xla_close(struct backend *be) {
    struct xla *x = (struct xla *)be;
    if (x->pjrt.client) {
        xla_kv_close(be);
        pjrt_close(&x->pjrt);
    }
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

/* "cuda", "cuda:1", "cpu": the kind, which the plugin was chosen by, and the number. */
static int wanted_device(const char *name, int *out, struct err *err) {
    struct str rest = str_of(name ? name : ""), kind;
    int64_t n;
    *out = -1;
    if (!str_split_next(&rest, ':', &kind) || rest.n == 0) return ERR_OK;
    if (!str_to_int64(rest, &n) || n < 0 || n > 1023)
        return err_set(err, ERR_EARG, "--xla-device %s: \"%.*s\" is no device number", name, STR_ARG(rest));
    *out = (int)n;
    return ERR_OK;
}

/* XLA's own names: a GPU calls itself cuda, rocm or gpu; the CPU cpu or Host. */
static bool is_kind(const struct pjrt *p, struct str kind) {
    return str_is(kind, p->platform) || (str_is(kind, "gpu") && (!strcmp(p->platform, "cuda") || !strcmp(p->platform, "rocm"))) ||
           (str_is(kind, "cuda") && !strcmp(p->platform, "gpu")) || (str_is(kind, "cpu") && !strcmp(p->platform, "Host"));
}

static int open_plugin(struct xla *x, const struct backend_options *o, struct err *err) {
    struct pjrt_options options = {.memory_fraction = o->xla_memory_fraction, .no_preallocate = o->xla_no_preallocate};
    struct str rest = str_of(o->device ? o->device : ""), kind = {0};
    str_split_next(&rest, ':', &kind);
    xla_warn_unused();
    TRY(wanted_device(o->device, &options.device, err));
    TRY(xla_plugin_choose(&x->arena, o->xla_plugin, o->device, &options.plugin, err));
    TRY(pjrt_open(&options, &x->pjrt, err));
    if (kind.n && !is_kind(&x->pjrt, kind))
        return err_set(err, ERR_ENOTFOUND, "%s runs on %s, not on %.*s", options.plugin, x->pjrt.platform, STR_ARG(kind));
    return ERR_OK;
}

/* Where compiled programs are kept: MLXCEL_XLA_CACHE ("off": nowhere), else the user's cache folder. */
static const char *cache_dir(struct xla *x) {
    const char *wanted = os_env("MLXCEL_XLA_CACHE"), *root = os_cache_root();
    if (wanted) return strcmp(wanted, "off") ? str_cstr(&x->arena, str_of(wanted)) : NULL;
    return root ? str_fmt(&x->arena, "%s/mlxcel/xla", root).p : NULL;
}

/* How many programs are kept in memory: MLXCEL_XLA_PROGRAMS. */
static int count_places(struct xla *x, struct err *err) {
    const char *wanted = os_env("MLXCEL_XLA_PROGRAMS");
    int64_t n = XLA_PROGRAMS;
    if (wanted && (!str_to_int64(str_of(wanted), &n) || n < 1 || n > XLA_PROGRAMS_MAX))
        return err_set(err, ERR_EARG, "MLXCEL_XLA_PROGRAMS=%s: it must be a number from 1 to %d", wanted, XLA_PROGRAMS_MAX);
    x->n_places = (int32_t)n;
    return ERR_OK;
}

/* XLA tries dozens of product kernels of its own for each shape: in float32, which is for comparing rather than for speed, that is 15 s of
 * compiling on 16 cores for a prompt of Llama-3.2-1B. Who sets the option in XLA_FLAGS decides. */
static bool wants_library(const struct xla *x) {
    const char *flags = os_env("XLA_FLAGS");
    return !x->half && is_kind(&x->pjrt, STR("cuda")) && (!flags || str_find(str_of(flags), STR("triton_gemm"), 0) == STR_NONE);
}

static int xla_open(const struct backend_options *options, struct backend **out, struct err *err) {
    struct xla *x = mem_alloc(sizeof *x);
    x->base.type = &xla_backend;
    x->base.precision = options->precision;
    int code = count_places(x, err);
    if (!code) code = open_plugin(x, options, err);
    if (code) {
        xla_close(&x->base);
        return code;
    }
    x->is_cpu = is_kind(&x->pjrt, STR("cpu"));
    x->half = options->precision == PRECISION_BF16 || (options->precision == PRECISION_AUTO && !x->is_cpu);
    x->pjrt.library_products = wants_library(x);
    x->cache_dir = cache_dir(x);
    if (os_env("MLXCEL_XLA_DUMP")) x->dump_dir = str_cstr(&x->arena, str_of(os_env("MLXCEL_XLA_DUMP")));
    *out = &x->base;
    return ERR_OK;
}

static void xla_memory(struct backend *be, uint64_t *out_free, uint64_t *out_total) {
    struct xla *x = (struct xla *)be;
    uint64_t used = 0;
    if (pjrt_memory(&x->pjrt, &used, out_total)) {
        *out_free = used < *out_total ? *out_total - used : 0;
        return;
    }
    struct os_memory m;
    os_memory(&m);
    *out_free = m.available;
    *out_total = m.total;
}

static void xla_describe(struct backend *be, struct sb *out) {
    struct xla *x = (struct xla *)be;
    sb_fmt(out, "xla (%s, %s, PJRT %d.%d, %s)", x->pjrt.platform, x->pjrt.device_kind[0] ? x->pjrt.device_kind : "one device",
           x->pjrt.major, x->pjrt.minor, x->half ? "bf16" : "f32");
}

const struct backend_type xla_backend = {
    .name = "xla",
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
    .memory = xla_memory,
    .describe = xla_describe,
};
