/* Choosing GPUs: the options are read as wishes, then the driver is asked which GPUs there are, of what kind, and whether they reach each other's memory. */
#include "api/gpus.h"

#include "backend/cuda/device/gpu.h"

#include <stdio.h>

static bool is_usable(const struct cuda_device *d) {
    return d->covered && d->reason.code == 0;
}

/* ---- wishes ----------------------------------------------------------------------------------------------------------- */

static bool wants_layers(const struct session_options *o) {
    return o->split == SESSION_SPLIT_LAYER || o->n_stages > 1;
}

static const char *layers_option(const struct session_options *o) {
    return o->n_stages > 1 ? "--pipeline-parallel" : "--split layer";
}

static bool names_several(const struct session_options *o) {
    return o->device && strchr(o->device, ',');
}

static bool names_one(const struct session_options *o) {
    return o->device && strchr(o->device, ':') && !names_several(o);
}

static int check_wishes(const struct session_options *o, bool is_gpu, struct err *err) {
    bool is_cut = o->n_ranks > 1 || o->n_ranks == RANKS_AUTO;
    if (o->n_stages > 1 && o->split == SESSION_SPLIT_TENSOR)
        return err_set(err, ERR_EARG, "--pipeline-parallel divides layers, and --split tensor does not; leave one out");
    if (wants_layers(o) && o->world.size > 1)
        return err_set(err, ERR_EARG, "%s is for the GPUs of one process, and this is one of %d; leave it out", layers_option(o),
                       o->world.size);
    if (wants_layers(o) && is_cut)
        return err_set(err, ERR_EARG, "%s and --tensor-parallel do not go together; leave one out", layers_option(o));
    if (wants_layers(o) && !is_gpu)
        return err_set(err, ERR_EARG, "%s is for GPUs, and this runs on %s; leave it out", layers_option(o),
                       o->backend ? o->backend : o->device);
    if (o->split == SESSION_SPLIT_TENSOR && !is_cut && !is_gpu)
        return err_set(err, ERR_EARG, "--split tensor is for GPUs; elsewhere --tensor-parallel N says how many ranks there are");
    if (names_one(o) && (wants_layers(o) || o->split == SESSION_SPLIT_TENSOR))
        return err_set(err, ERR_EARG, "--device %s is one GPU; name several, with commas between them, or --device cuda", o->device);
    return ERR_OK;
}

/* ---- what there is ------------------------------------------------------------------------------------------------------ */

/* The GPUs that may be taken: those that --device names, or all that can be used. */
struct offer {
    struct cuda_probe probe;
    int32_t n, at[SPLIT_CARDS_MAX]; /* in probe.devices */
    bool is_twice;                  /* one is named more than once */
};

static int offer_named(const char *list, struct offer *f, struct err *err) {
    struct str rest = str_of(list), name, digits, word;
    while (str_split_next(&rest, ',', &name)) {
        int64_t i;
        digits = name;
        bool is_name = str_split_next(&digits, ':', &word) && (str_is(word, "cuda") || str_is(word, "gpu"));
        if (!is_name || !str_to_int64(digits, &i) || i < 0)
            return err_set(err, ERR_EARG, "--device %s: \"%.*s\" is no GPU; they are called cuda:0, cuda:1 and so on", list, STR_ARG(name));
        if (f->n == SPLIT_CARDS_MAX) return err_set(err, ERR_EARG, "--device %s names more than %d GPUs", list, SPLIT_CARDS_MAX);
        int chosen;
        TRY(cuda_probe_choose(&f->probe, i < CUDA_MAX_DEVICES ? (int)i : CUDA_MAX_DEVICES, &chosen, err));
        for (int32_t k = 0; k < f->n; k++) f->is_twice |= f->at[k] == chosen;
        f->at[f->n++] = chosen;
    }
    return ERR_OK;
}

static int make_offer(const struct session_options *o, struct offer *f, struct err *err) {
    cuda_probe_run(&f->probe, &(struct cuda_probe_args){0});
    if (names_several(o)) return offer_named(o->device, f, err);
    for (int i = 0; i < f->probe.n_devices && f->n < SPLIT_CARDS_MAX; i++)
        if (is_usable(&f->probe.devices[i])) f->at[f->n++] = i;
    return ERR_OK;
}

static const struct cuda_device *offered(const struct offer *f, int32_t i) {
    return &f->probe.devices[f->at[i]];
}

/* Why these n cannot be ranks of equal parts; "": they can. */
static bool may_be_ranks(const struct offer *f, int32_t n, char why[160]) {
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < i; k++) {
            const struct cuda_device *a = offered(f, k), *b = offered(f, i);
            bool alike = cuda_devices_alike(a, b);
            if (alike && cuda_devices_reach(&f->probe, a, b)) continue;
            snprintf(why, 160, "cuda:%d and cuda:%d %s", a->index, b->index,
                     alike ? "do not reach each other's memory" : "are of different kinds");
            return false;
        }
    return true;
}

/* ---- choosing ----------------------------------------------------------------------------------------------------------- */

static void take(const struct offer *f, enum gpus_how how, int32_t n, struct gpus *out) {
    out->how = n > 1 ? how : GPUS_ONE;
    out->n = n > 0 ? n : 1;
    for (int32_t i = 0; i < n; i++) snprintf(out->names[i], sizeof out->names[i], "cuda:%d", offered(f, i)->index);
}

static int choose_layers(const struct session_options *o, const struct offer *f, struct gpus *out, struct err *err) {
    int32_t n = o->n_stages > 1 ? o->n_stages : f->n;
    if (names_several(o) && n != f->n)
        return err_set(err, ERR_EARG, "--device %s must name a GPU for each of the %d of --pipeline-parallel", o->device, n);
    if (f->n == 0) return err_set(err, ERR_EARG, "%s needs GPUs: %s", layers_option(o), f->probe.reason.msg);
    if (n > f->n) return err_set(err, ERR_EARG, "--pipeline-parallel %d: GPUs that can be used here: %d", n, f->n);
    take(f, GPUS_LAYERS, n, out);
    if (n == 1) snprintf(out->why, sizeof out->why, "--split layer: there is one GPU");
    return ERR_OK;
}

/* As many as there are, from the first on, up to one that does not go with those before it. */
static void choose_ranks(const struct offer *f, struct gpus *out) {
    char why[160] = "";
    int32_t n = 1;
    while (n < f->n && may_be_ranks(f, n + 1, why)) n++;
    take(f, GPUS_RANKS, f->n ? n : 0, out);
    out->fits_heads = true;
    if (n < f->n) snprintf(out->why, sizeof out->why, "%d rank%s, since %.120s", n, n == 1 ? "" : "s", why);
    else
        snprintf(out->why, sizeof out->why, f->n < 2 ? "one rank, since %s" : "a rank for each GPU",
                 f->n ? "there is one GPU" : "no GPU can be used");
}

/* Of GPUs that are named, with no word how. */
static int choose_usual(const struct session_options *o, const struct offer *f, struct gpus *out, struct err *err) {
    char why[160];
    bool needs_layers = o->gpu_layers.kind != SHARE_USUAL || o->cpu_experts.kind != SHARE_USUAL;
    if (f->is_twice)
        return err_set(err, ERR_EARG, "--device %s names a GPU twice; that is for --tensor-parallel N and --split layer", o->device);
    if (!needs_layers && may_be_ranks(f, f->n, why)) {
        take(f, GPUS_RANKS, f->n, out);
        snprintf(out->why, sizeof out->why, "split by tensor, since the GPUs are alike and reach each other's memory");
        return ERR_OK;
    }
    take(f, GPUS_LAYERS, f->n, out);
    if (needs_layers) snprintf(out->why, sizeof out->why, "split by layer, as --gpu-layers and --cpu-experts want it");
    else snprintf(out->why, sizeof out->why, "split by layer, since %.120s", why);
    return ERR_OK;
}

static int choose(const struct session_options *o, struct offer *f, struct gpus *out, struct err *err) {
    TRY(make_offer(o, f, err));
    if (wants_layers(o)) return choose_layers(o, f, out, err);
    if (o->n_ranks == RANKS_AUTO || !names_several(o)) {
        choose_ranks(f, out);
        return ERR_OK;
    }
    if (o->split != SESSION_SPLIT_TENSOR) return choose_usual(o, f, out, err);
    take(f, GPUS_RANKS, f->n, out);
    return ERR_OK;
}

int gpus_choose(const struct session_options *o, bool is_gpu, struct gpus *out, struct err *err) {
    *out = (struct gpus){.how = GPUS_ONE, .n = 1};
    TRY(check_wishes(o, is_gpu, err));
    bool is_auto = o->n_ranks == RANKS_AUTO, is_process = o->world.size > 1;
    bool is_told = o->n_ranks > 1 || is_process; /* session_ranks.c names the GPUs */
    if (is_auto && !is_gpu) snprintf(out->why, sizeof out->why, "one rank, since auto counts GPUs");
    if (is_told || !is_gpu || (is_auto && names_one(o))) return ERR_OK;
    out->may_grow = !names_several(o) && !names_one(o) && !is_auto && o->split == SESSION_SPLIT_USUAL;
    if (!is_auto && !wants_layers(o) && !names_several(o) && o->split != SESSION_SPLIT_TENSOR) return ERR_OK;
    struct offer *f = mem_alloc(sizeof *f);
    int code = choose(o, f, out, err);
    mem_free(f);
    return code;
}

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

/* One that is named several times divides its memory; a step that must be short on one must be so on all. */
static void settle(struct gpus *g) {
    for (int32_t i = 0; i < g->n; i++) {
        uint64_t available = 0, total = 0, n = 0;
        for (int32_t k = 0; k < g->n; k++) n += strcmp(g->names[i], g->names[k]) == 0;
        device_memory(g->p[i], &available, &total);
        if (n > 1) g->p[i]->plan_limit = atomic_load(&g->p[i]->used) + available / n;
        if (g->p[i]->step_ms && (!g->p[0]->step_ms || g->p[i]->step_ms < g->p[0]->step_ms)) g->p[0]->step_ms = g->p[i]->step_ms;
    }
}

static int open_one(struct gpus *g, int32_t i, uint64_t memory_limit, struct err *err) {
    struct device_options options = {.name = g->names[i], .memory_limit = memory_limit};
    return device_open(&cuda_backend, &options, &g->p[i], err);
}

int gpus_open(struct gpus *g, uint64_t memory_limit, struct err *err) {
    for (int32_t i = 0; i < g->n; i++) TRY(open_one(g, i, memory_limit, err));
    settle(g);
    return ERR_OK;
}

void gpus_close(struct gpus *g) {
    for (int32_t i = 0; i < SPLIT_CARDS_MAX; i++) device_release(g->p[i]);
    *g = (struct gpus){.how = GPUS_ONE, .n = 1};
}

const char *gpus_list(struct arena *a, const struct gpus *g) {
    struct str list = str_of(g->names[0]);
    for (int32_t i = 1; i < g->n; i++) list = str_fmt(a, "%.*s,%s", STR_ARG(list), g->names[i]);
    return str_cstr(a, list);
}

/* The usable GPU with the most free memory that is not taken; -1: there is none. */
static int best_other(const struct cuda_probe *p, const struct gpus *g) {
    int best = -1;
    for (int i = 0; i < p->n_devices; i++) {
        char name[32];
        bool is_taken = !is_usable(&p->devices[i]) || p->devices[i].free_bytes <= RESERVE_BYTES;
        snprintf(name, sizeof name, "cuda:%d", p->devices[i].index);
        for (int32_t k = 0; k < g->n; k++) is_taken |= strcmp(g->names[k], name) == 0;
        if (!is_taken && (best < 0 || p->devices[i].free_bytes > p->devices[best].free_bytes)) best = i;
    }
    return best;
}

bool gpus_grow(struct gpus *g, struct device *first, uint64_t memory_limit) {
    struct err unread;
    if (!g->p[0]) {
        g->p[0] = device_hold(first);
        snprintf(g->names[0], sizeof g->names[0], "cuda:%d", ((const struct cuda_gpu *)first)->about->index);
    }
    struct cuda_probe *p = mem_alloc(sizeof *p);
    cuda_probe_run(p, &(struct cuda_probe_args){.want_free = true});
    int best = g->n < SPLIT_CARDS_MAX ? best_other(p, g) : -1;
    if (best >= 0) snprintf(g->names[g->n], sizeof g->names[g->n], "cuda:%d", p->devices[best].index);
    mem_free(p);
    if (best < 0 || open_one(g, g->n, memory_limit, &unread)) return false;
    g->how = GPUS_LAYERS;
    g->n++;
    settle(g);
    return true;
}
