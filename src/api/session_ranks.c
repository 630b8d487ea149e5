/* A model cut for several ranks: the session's own backend is the first of them, and the others are threads of this process; or each is a process, and the
 * session's backend is one of them (docs/ranks.md). */
#include "api/session_internal.h"

#include "api/build.h"
#include "api/identity.h"
#include "base/hash.h"
#include "base/log.h"
#include "comm/tcp.h"
#include "engine/follow.h"
#include "os/os.h"

#include <stdio.h>

static bool is_process(const struct session_options *o) {
    return o->world.size > 1;
}

static int32_t threads_of(const struct session_options *o) {
    if (o->n_ranks < 2 || is_process(o)) return o->n_threads;
    int32_t n = (o->n_threads > 0 ? o->n_threads : os_core_count()) / o->n_ranks;
    return n > 0 ? n : 1;
}

/* ---- devices ------------------------------------------------------------------------------------------------------- */

/* The n-th of a list of names with commas between them; empty: it has not so many. */
static struct str name_at(const char *list, int32_t n) {
    struct str rest = str_of(list ? list : ""), name = {0};
    for (int32_t i = 0; i <= n; i++)
        if (!str_split_next(&rest, ',', &name)) return (struct str){0};
    return name;
}

/* Ranks on GPUs: those that a list names, else as many as there are ranks, from the first on. */
static int name_gpu(const struct session_options *o, int32_t rank, struct rank_device *out, struct err *err) {
    const char *device = o->device && strcmp(o->device, "auto") != 0 ? o->device : "cuda";
    struct str name = name_at(device, rank);
    bool is_list = strchr(device, ','), is_one = strchr(device, ':') && !is_list;
    if (is_one)
        return err_set(err, ERR_EARG,
                       "--device %s is one GPU, and there are %d ranks: name one for each, with commas between them, or --device cuda",
                       device, o->n_ranks);
    if (is_list && (!name.n || name_at(device, o->n_ranks).n || name.n >= sizeof out->name))
        return err_set(err, ERR_EARG, "--device %s must name a GPU for each of the %d ranks", device, o->n_ranks);
    if (is_list) snprintf(out->name, sizeof out->name, "%.*s", STR_ARG(name));
    else snprintf(out->name, sizeof out->name, "cuda:%d", rank);
    out->options.name = out->name;
    for (int32_t i = 0; i < o->n_ranks && is_list; i++) out->options.n_sharing += str_eq(name_at(device, i), name);
    return ERR_OK;
}

int session_ranks_device(const struct session_options *o, bool is_gpu, int32_t rank, struct rank_device *out, struct err *err) {
    bool cuts = o->n_ranks > 1 && !is_process(o);
    *out = (struct rank_device){.options = {.n_threads = threads_of(o), .memory_limit = is_gpu ? o->gpu_memory : 0}};
    if (is_gpu && cuts) return name_gpu(o, rank, out, err);
    if (o->device && strchr(o->device, ','))
        return err_set(err, ERR_EARG, "--device %s names several devices; that is for GPUs of one process", o->device);
    bool is_any = !o->device || strcmp(o->device, "auto") == 0 || strcmp(o->device, "cuda") == 0;
    if (is_gpu && is_process(o) && is_any && o->world.rank_here >= 0) {
        snprintf(out->name, sizeof out->name, "cuda:%d", o->world.rank_here);
        out->options.name = out->name;
    } else out->options.name = o->device && strcmp(o->device, "auto") != 0 ? o->device : NULL;
    return ERR_OK;
}

/* ---- processes ----------------------------------------------------------------------------------------------------- */

static int identity(const struct session *s, uint64_t *out, struct err *err) {
    const struct session_options *o = &s->options;
    if (s->has_checkpoint) return identity_of(&s->checkpoint, 0, out, err);
    *out = hash_bytes(o->shape, strlen(o->shape), hash_pair(o->seed, (uint64_t)o->bits * 2 + o->f16 + ((uint64_t)o->n_layers << 32)));
    return ERR_OK;
}

/* Ranks of different kinds would compute, and compute nonsense: what all of them compute must be the same bits, such as a router's choice. */
static int join(struct session *s, struct err *err) {
    static const char *const precisions[] = {"auto", "exact", "f32", "bf16"};
    const struct session_options *o = &s->options;
    const struct session_world *w = &o->world;
    struct build build;
    uint64_t id;
    char checkpoint[24], kv_bits[16];
    TRY(identity(s, &id, err));
    build_describe(&s->arena, &build);
    snprintf(checkpoint, sizeof checkpoint, "%016llx", (unsigned long long)id);
    snprintf(kv_bits, sizeof kv_bits, "%d", o->kv_bits ? o->kv_bits : 16);
    bool is_exact = o->precision == SESSION_EXACT; /* the same bits with all kernels */
    const char *version = str_fmt(&s->arena, "%s (%s, %s)", build.version, build.commit, build.target).p;
    const struct comm_fact facts[] = {
        {"the version of mlxcel", version},
        {"the checkpoint", checkpoint},
        {"--precision", precisions[o->precision]},
        {"--kv-bits", kv_bits},
        {"the kind of device (--device)", s->device->type->name},
        {"the processor (--cpu)", is_exact || s->device->is_gpu ? "any" : str_cstr(&s->arena, build.cpu_features)}};
    struct comm_tcp_options options = {.rank = w->rank,
                                       .size = w->size,
                                       .host = w->host,
                                       .port = w->port,
                                       .secret = w->secret,
                                       .join_ms = w->join_ms,
                                       .silence_ms = w->silence_ms,
                                       .facts = facts,
                                       .n_facts = sizeof facts / sizeof *facts,
                                       .ends_process = true,
                                       .on_fail = w->on_lost,
                                       .user = w->user};
    log_info("rank %d of %d: waiting for all at %s:%d", w->rank, w->size, w->host, w->port);
    TRY(team_join(&options, &s->team, err));
    if (w->on_joined) w->on_joined(w->user);
    return ERR_OK;
}

int session_ranks_follow(struct session *s, struct err *err) {
    return follow_calls(&s->model, s->backend, err);
}

void session_ranks_fail(struct session *s, const struct err *reason) {
    if (s->team) comm_fail(team_comm(s->team), reason);
}

/* ---- both ---------------------------------------------------------------------------------------------------------- */

static bool divides_heads(const struct spec *spec, int32_t n) {
    for (int32_t i = 0; i < spec->n_layers; i++) {
        int32_t heads = spec->layers[i].attn.heads, kv_heads = spec->layers[i].attn.kv_heads;
        if (heads % n || (kv_heads % n && (!kv_heads || n % kv_heads))) return false;
    }
    return true;
}

int session_ranks_fit(struct session *s, struct err *err) {
    struct gpus *g = &s->gpus;
    struct arena a = {0};
    struct spec spec;
    int32_t n = s->options.n_ranks;
    if (!g->fits_heads || n < 2) return ERR_OK;
    int code = spec_resolve(&a, &s->config, &spec, err);
    while (!code && n > 1 && !divides_heads(&spec, n)) n--;
    arena_free(&a);
    if (code || n == s->options.n_ranks) return code;
    snprintf(g->why, sizeof g->why, "%d rank%s, since %d GPUs do not divide the heads", n, n == 1 ? "" : "s", g->n);
    g->n = s->options.n_ranks = n;
    s->options.device = gpus_list(&s->arena, g);
    return ERR_OK;
}

int session_ranks_open(struct session *s, struct err *err) {
    const struct session_options *o = &s->options;
    if (o->n_ranks < 2) return ERR_OK;
    if (o->draft == DRAFT_MODEL || o->draft == DRAFT_MTP)
        return err_set(err, ERR_EUNSUPPORTED, "models and heads that draft do not run with --tensor-parallel; use --draft ngram");
    if (o->n_adapters)
        return err_set(err, ERR_EUNSUPPORTED, "--adapter is not computed with --tensor-parallel; fuse it into the model first");
    if (s->placement.is_split) return err_set(err, ERR_EARG, "--tensor-parallel and --gpu-layers do not go together; leave one out");
    return is_process(o) ? join(s, err) : team_open(o->n_ranks, &s->team, err);
}

struct source {
    struct session *s;
    const struct tensor_store *store;
};

static int open_model(void *user, struct arena *a, struct backend *be, struct model *out, struct err *err) {
    const struct source *from = user;
    struct session *s = from->s;
    return s->has_checkpoint ? model_open_checkpoint(a, be, &s->checkpoint, from->store, NULL, out, err)
                             : model_open(a, be, &s->config, from->store, NULL, out, err);
}

/* All ranks have caches of the same length: the first plans with what the GPU with the least memory has. */
static void plan_with_least(struct session *s) {
    struct device *d = s->device;
    uint64_t least = team_free_bytes(s->team), available = 0, total = 0;
    device_memory(d, &available, &total);
    if (d->is_gpu && least < available) d->plan_limit = atomic_load(&d->used) + least;
}

int session_ranks_start(struct session *s, const struct tensor_store *store, struct err *err) {
    const struct session_options *o = &s->options;
    struct source from = {s, store};
    double own = (double)s->model.weights.bytes * 1e-9;
    if (!s->team) return ERR_OK;
    if (is_process(o)) {
        log_info("rank %d of %d has %.3f GB of the weights", o->world.rank, o->world.size, own);
        return ERR_OK;
    }
    struct rank_device places[COMM_RANKS_MAX];
    struct device_options devices[COMM_RANKS_MAX];
    for (int32_t i = 1; i < o->n_ranks; i++) {
        TRY(session_ranks_device(o, s->device->is_gpu, i, &places[i], err));
        devices[i] = places[i].options;
    }
    struct backend_options options = {.precision = (enum precision)o->precision, .no_fuse = o->no_fuse, .kv_bits = o->kv_bits};
    TRY(team_start(s->team, s->device->type, devices, &options, open_model, &from, err));
    plan_with_least(s);
    log_info("%d ranks: the first has %.3f GB of the weights, another %.3f GB at most", o->n_ranks, own,
             (double)team_weight_bytes(s->team) * 1e-9);
    return ERR_OK;
}
