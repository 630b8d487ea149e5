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

int32_t session_ranks_threads(const struct session_options *o) {
    if (o->n_ranks < 2 || is_process(o)) return o->n_threads;
    int32_t n = (o->n_threads > 0 ? o->n_threads : os_core_count()) / o->n_ranks;
    return n > 0 ? n : 1;
}

/* ---- processes ----------------------------------------------------------------------------------------------------- */

static int identity(const struct session *s, uint64_t *out, struct err *err) {
    const struct session_options *o = &s->options;
    if (s->has_checkpoint) return identity_of(&s->checkpoint, 0, out, err);
    *out = hash_bytes(o->shape, strlen(o->shape), hash_pair(o->seed, (uint64_t)o->bits * 2 + o->f16));
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
    const struct comm_fact facts[] = {{"the version of mlxcel", version},
                                      {"the checkpoint", checkpoint},
                                      {"--precision", precisions[o->precision]},
                                      {"--kv-bits", kv_bits},
                                      {"the processor (--cpu)", is_exact ? "any" : str_cstr(&s->arena, build.cpu_features)}};
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

int session_ranks_start(struct session *s, const struct tensor_store *store, struct err *err) {
    const struct session_options *o = &s->options;
    struct source from = {s, store};
    double own = (double)s->model.weights.bytes * 1e-9;
    if (!s->team) return ERR_OK;
    if (is_process(o)) {
        log_info("rank %d of %d has %.3f GB of the weights", o->world.rank, o->world.size, own);
        return ERR_OK;
    }
    struct device_options device = {.n_threads = session_ranks_threads(o)};
    struct backend_options options = {.precision = (enum precision)o->precision, .no_fuse = o->no_fuse, .kv_bits = o->kv_bits};
    TRY(team_start(s->team, &device, &options, open_model, &from, err));
    log_info("%d ranks: the first has %.3f GB of the weights, another %.3f GB at most", o->n_ranks, own,
             (double)team_weight_bytes(s->team) * 1e-9);
    return ERR_OK;
}
