/* A model cut for several ranks, which are threads of this process: the session's own backend is the first of them (docs/ranks.md). */
#include "api/session_internal.h"

#include "base/log.h"
#include "os/os.h"

int32_t session_ranks_threads(const struct session_options *o) {
    if (o->n_ranks < 2) return o->n_threads;
    int32_t n = (o->n_threads > 0 ? o->n_threads : os_core_count()) / o->n_ranks;
    return n > 0 ? n : 1;
}

int session_ranks_open(struct session *s, struct err *err) {
    const struct session_options *o = &s->options;
    if (o->n_ranks < 2) return ERR_OK;
    if (o->draft == DRAFT_MODEL || o->draft == DRAFT_MTP)
        return err_set(err, ERR_EUNSUPPORTED, "models and heads that draft do not run with --tensor-parallel; use --draft ngram");
    if (o->n_adapters)
        return err_set(err, ERR_EUNSUPPORTED, "--adapter is not computed with --tensor-parallel; fuse it into the model first");
    if (s->placement.is_split) return err_set(err, ERR_EARG, "--tensor-parallel and --gpu-layers do not go together; leave one out");
    return team_open(o->n_ranks, &s->team, err);
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
    if (!s->team) return ERR_OK;
    struct device_options device = {.n_threads = session_ranks_threads(o)};
    struct backend_options options = {.precision = (enum precision)o->precision, .no_fuse = o->no_fuse, .kv_bits = o->kv_bits};
    TRY(team_start(s->team, &device, &options, open_model, &from, err));
    log_info("%d ranks: the first has %.3f GB of the weights, another %.3f GB at most", o->n_ranks, (double)s->model.weights.bytes * 1e-9,
             (double)team_weight_bytes(s->team) * 1e-9);
    return ERR_OK;
}
