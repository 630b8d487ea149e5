/* The model of a session: made up, or from a checkpoint, telling how much of it has been read. */
#include "api/session_internal.h"

#include "api/identity.h"
#include "api/model_folder.h"
#include "api/synth.h"
#include "base/hash.h"

/* A model's tensors, counted as they are read or made up. Backends read in the thread that opens the session. */
struct watch {
    struct tensor_store inner;
    const struct session_options *options;
    uint64_t done, total;
};

static bool watch_find(void *user, struct str name, struct tensor_info *out) {
    const struct watch *w = user;
    return w->inner.find(w->inner.user, name, out);
}

static int watch_read(void *user, const struct tensor_info *t, uint64_t offset, void *dst, size_t n, struct err *err) {
    struct watch *w = user;
    TRY(w->inner.read(w->inner.user, t, offset, dst, n, err));
    w->done += n;
    if (w->done < w->total) w->options->on_load(w->options->load_user, w->done, w->total); /* some tensors are read twice */
    return ERR_OK;
}

static int watch_format(void *user, struct str path, struct format *out, struct err *err) {
    const struct watch *w = user;
    return w->inner.format(w->inner.user, path, out, err);
}

static struct str watch_name_at(void *user, size_t i) {
    const struct watch *w = user;
    return w->inner.name_at(w->inner.user, i);
}

/* The files of the adapters, open while the weights are bound. */
static int open_adapters(struct session *s, struct weights_adapters *out, struct err *err) {
    const struct session_options *o = &s->options;
    float *scales = arena_new(&s->arena, float, o->n_adapters + 1);
    out->p = arena_new(&s->arena, struct adapter, o->n_adapters + 1);
    if (o->n_adapters && !s->backend->adapts)
        return err_set(err, ERR_EUNSUPPORTED, "--adapter is computed on the CPU or on one GPU, and this runs on %s; use --device cpu",
                       s->backend->type->name);
    for (int32_t i = 0; i < o->n_adapters; i++) {
        TRY(adapter_open(o->adapters[i].path, &out->p[i], err));
        scales[i] = o->adapters[i].scale;
    }
    s->adapter_scales = scales;
    return ERR_OK;
}

/* From one of the two kinds of store, told or not. */
static int open_from(struct session *s, struct tensor_store inner, uint64_t total, struct err *err) {
    const struct session_options *o = &s->options;
    struct watch w = {.inner = inner, .options = o, .total = total};
    struct tensor_store told = {.find = watch_find, .read = watch_read, .format = watch_format, .user = &w};
    struct tensor_store *store = o->on_load ? &told : &inner;
    if (inner.name_at) told.name_at = watch_name_at;
    store->may_be_unread = o->force;
    struct weights_adapters adapters = {.n = o->n_adapters};
    int code = open_adapters(s, &adapters, err);
    if (!code)
        code = s->has_checkpoint ? model_open_checkpoint(&s->arena, s->backend, &s->checkpoint, store, &adapters, &s->model, err)
                                 : model_open(&s->arena, s->backend, &s->config, store, &adapters, &s->model, err);
    s->has_model = !code;
    if (!code) code = session_ranks_start(s, store, err);
    for (int32_t i = 0; i < adapters.n && !code && o->prefix_cache; i++)
        code = identity_of(&adapters.p[i].file, s->identity, &s->identity, err);
    for (int32_t i = 0; i < adapters.n; i++) adapter_close(&adapters.p[i]);
    if (o->on_load) o->on_load(o->load_user, total, total);
    return code;
}

/* Where it will run; and whether what runs on one device fits it. */
static int open_places(struct session *s, struct tensor_store *store, uint64_t total, struct err *err) {
    store->may_be_unread = s->options.force;
    TRY(session_ranks_fit(s, err));
    TRY(placement_choose(s, store, total, false, err));
    TRY(session_ranks_open(s, err));
    TRY(session_backend_open(s, err));
    return split_is(s->backend) ? ERR_OK : preflight_weights(s, total, err);
}

static int open_made_up(struct session *s, struct err *err) {
    const struct session_options *o = &s->options;
    struct synth *synth;
    struct synth_args args = {.shape = str_of(o->shape), .n_layers = o->n_layers, .bits = o->bits, .f16 = o->f16, .seed = o->seed};
    TRY(synth_create(&s->arena, &args, &synth, err));
    s->config = *synth_config(synth);
    struct tensor_store store = synth_store(synth);
    TRY(open_places(s, &store, synth_bytes(synth), err));
    s->name = o->shape;
    s->identity =
        hash_bytes(o->shape, strlen(o->shape), hash_pair(o->seed, (uint64_t)o->bits * 2 + o->f16 + ((uint64_t)o->n_layers << 32)));
    s->embedder = (struct embedder){.width = 0, .i_usual = -1};
    return open_from(s, store, synth_bytes(synth), err);
}

int session_model_plan(struct session *s, struct err *err) {
    TRY(model_folder_open(s->options.model, &s->checkpoint, err));
    s->has_checkpoint = true;
    s->config = s->checkpoint.config;
    struct tensor_store store = model_checkpoint_store(&s->checkpoint);
    store.may_be_unread = true;
    TRY(session_ranks_fit(s, err));
    return placement_choose(s, &store, s->checkpoint.total_bytes, true, err);
}

int session_model_open(struct session *s, struct err *err) {
    const struct session_options *o = &s->options;
    if (o->shape) return open_made_up(s, err);
    TRY(model_folder_open(o->model, &s->checkpoint, err));
    s->has_checkpoint = true;
    s->config = s->checkpoint.config;
    struct tensor_store store = model_checkpoint_store(&s->checkpoint);
    TRY(open_places(s, &store, s->checkpoint.total_bytes, err));
    if (o->prefix_cache) TRY(identity_of(&s->checkpoint, 0, &s->identity, err));
    s->name = o->name ? o->name : o->model ? o->model : "built-in model";
    TRY(open_from(s, store, s->checkpoint.total_bytes, err));
    embedder_read(&s->arena, &s->checkpoint, s->model.spec.hidden, &s->embedder, &s->embedder_why); /* told when embeddings are asked for */
    judge_read(&s->arena, &s->checkpoint, &s->model.spec, &s->judge, &s->judge_why);
    return ERR_OK;
}
