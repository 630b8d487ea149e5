/* Opening a session: model, device, weights, cache. */
#include "api/session_internal.h"

#include "base/log.h"
#include "os/os.h"

/* Without a wish: the model's context, or as much as fits. */
static int32_t pick_context(const struct session *s, int32_t rows, int32_t seqs) {
    int32_t context = spec_longest(&s->model.spec, s->options.context);
    if (s->options.context > 0) return s->options.context < context ? s->options.context : context;
    if (s->options.kv_tokens > 0) return s->options.kv_tokens < context ? (int32_t)s->options.kv_tokens : context;
    return preflight_context(s, rows, seqs);
}

static int read_eos(struct session *s, struct err *err) {
    int64_t *ids;
    size_t n;
    TRY(config_eos_ids(&s->arena, &s->config, s->has_checkpoint && s->checkpoint.has_generation ? &s->checkpoint.generation : NULL, &ids,
                       &n, err));
    s->eos = arena_new(&s->arena, int32_t, n + 1);
    for (size_t i = 0; i < n; i++) s->eos[s->n_eos++] = (int32_t)ids[i];
    return ERR_OK;
}

/* The device by its name. Automatic: the GPU where one can be used, else the CPU, and the reason is kept for the start-up line. What was
 * asked for by name and cannot be had is an error. */
static int find_device(const struct session_options *o, uint64_t limit, struct device **out, struct err *no_gpu, struct err *err) {
    struct str device = str_of(o->device ? o->device : "auto"), name = device, rest = device;
    str_split_next(&rest, ':', &name);
    bool is_auto = str_is(device, "auto") && !o->backend;
    const char *backend = o->backend ? o->backend : is_auto || str_is(name, "cuda") || str_is(name, "gpu") ? "cuda" : "cpu";
    if (!o->backend && !is_auto && strcmp(backend, "cuda") != 0 && !str_is(device, "cpu"))
        return err_set(err, ERR_EARG, "--device \"%.*s\" is not known; use auto, cpu, cuda or cuda:N", STR_ARG(device));
    const struct backend_type *type = backend_find(str_of(backend));
    if (!type) return err_set(err, ERR_EARG, "there is no backend \"%s\"", backend);
    struct rank_device place;
    TRY(session_ranks_device(o, strcmp(backend, "cuda") == 0, 0, &place, err));
    if (limit && (!place.options.memory_limit || limit < place.options.memory_limit)) place.options.memory_limit = limit;
    place.options.xla = o->xla;
    if (!is_auto) return device_open(type, &place.options, out, err);
    if (device_open(type, &place.options, out, no_gpu) == ERR_OK) return ERR_OK;
    TRY(session_ranks_device(o, false, 0, &place, err));
    place.options.memory_limit = limit;
    return device_open(&cpu_backend, &place.options, out, err);
}

bool session_takes_gpus(const struct session_options *o) {
    bool is_list = o->device && strchr(o->device, ',') && o->n_ranks < 2;
    return o->split != SESSION_SPLIT_USUAL || o->n_stages > 1 || o->n_ranks == RANKS_AUTO || is_list;
}

int session_device_open(const struct session_options *options, uint64_t memory_limit, struct device **out, struct err *err) {
    struct err no_gpu = {0};
    if (session_takes_gpus(options))
        return err_set(err, ERR_EARG,
                       "several GPUs share one model alone; leave --split, --pipeline-parallel and --tensor-parallel auto out, "
                       "and name one by --device");
    return find_device(options, memory_limit, out, &no_gpu, err);
}

/* Whether the options can mean a GPU. */
static bool may_be_gpu(const struct session_options *o) {
    struct str device = str_of(o->device ? o->device : "auto");
    if (o->backend) return strcmp(o->backend, "cuda") == 0;
    return str_is(device, "auto") || str_starts(device, STR("cuda")) || str_starts(device, STR("gpu"));
}

/* The device that was given, or one or several of its own. */
static int open_device(struct session *s, struct err *err) {
    struct session_options *o = &s->options;
    if (o->shared_device) {
        s->device = device_hold(o->shared_device);
        return ERR_OK;
    }
    TRY(gpus_choose(o, may_be_gpu(o), &s->gpus, err));
    if (s->gpus.how == GPUS_LAYERS) {
        TRY(gpus_open(&s->gpus, o->gpu_memory, err));
        s->device = device_hold(s->gpus.p[0]);
        return ERR_OK;
    }
    if (o->n_ranks == RANKS_AUTO) o->n_ranks = 1;
    if (s->gpus.how == GPUS_RANKS) o->n_ranks = s->gpus.n;
    if (s->gpus.names[0][0]) o->device = gpus_list(&s->arena, &s->gpus);
    return find_device(o, 0, &s->device, &s->no_gpu, err);
}

/* Not every device has a small cache: there it is refused rather than forgotten. */
static int check_kv_bits(const struct session *s, struct err *err) {
    int32_t bits = s->options.kv_bits;
    if (bits == 0 || bits == 16 || s->backend->kv_bits == bits) return ERR_OK;
    return err_set(err, ERR_EARG, "--kv-bits %d is for the CPU%s and this runs on %s; leave it out, or use --device cpu%s", bits,
                   bits == 8 ? " and CUDA" : "", s->backend->type->name, s->options.backend ? " without --backend" : "");
}

int session_backend_open(struct session *s, struct err *err) {
    const struct session_options *o = &s->options;
    const struct placement *p = &s->placement;
    struct backend_options options = {.precision = (enum precision)o->precision, .no_fuse = o->no_fuse, .kv_bits = o->kv_bits};
    struct device *devices[SIDES_MAX] = {[SIDE_CARD] = s->device};
    if (s->team) options.comm = team_comm(s->team);
    if (!p->is_split) {
        TRY(backend_open(s->device, &options, &s->backend, err));
        return check_kv_bits(s, err);
    }
    for (int32_t i = 1; i < p->plan.n_cards; i++) devices[SIDE_CARD + i] = s->gpus.p[i];
    if (placement_has_host(p))
        TRY(device_open(&cpu_backend, &(struct device_options){.n_threads = o->n_threads}, &devices[SIDE_HOST], err));
    bool is_none = p->plan.first_layers[SIDE_CARD] == p->plan.n_layers; /* of the layers is a GPU's */
    int code =
        is_none ? backend_open(devices[SIDE_HOST], &options, &s->backend, err) : split_open(devices, &options, &p->plan, &s->backend, err);
    device_release(devices[SIDE_HOST]);
    return code ? code : check_kv_bits(s, err);
}

enum { ENCODER_PLACES = 64 };

/* Rows, places and cache, as asked for or as they suit the device. */
static int pick_limits(const struct session *s, struct runner_limits *out, struct err *err) {
    const struct session_options *o = &s->options;
    const struct device *d = s->backend->device;
    bool is_encoder = s->model.spec.is_encoder; /* its cache is one layer's, and a place is taken for one step alone */
    bool fills = o->n_seqs < 0 && d->cache_share > 0 && o->kv_tokens == 0 && !is_encoder; /* the cache takes what is free */
    int32_t rows = s->placement.is_split && split_is(s->backend) ? s->placement.rows : d->rows_default;
    *out = (struct runner_limits){.rows = o->n_rows > 0 ? o->n_rows : rows,
                                  .seqs = o->n_seqs > 0   ? o->n_seqs
                                          : o->n_seqs < 0 ? (is_encoder ? ENCODER_PLACES : d->places_default)
                                                          : 1,
                                  .kv_tokens = o->kv_tokens,
                                  .keeps_context = o->context > 0 && !o->force};
    if (out->rows < out->seqs) out->rows = out->seqs;
    out->logits = o->n_logits < 0 ? out->rows : o->n_logits;
    if (fills) {
        out->kv_share = d->cache_share * (o->memory_share > 0 ? o->memory_share : 1);
        out->context = o->context;
        return ERR_OK;
    }
    out->context = pick_context(s, out->rows, out->seqs);
    return o->kv_tokens ? ERR_OK : preflight_cache(s, out->context, out->rows, out->seqs, err);
}

static int open_all(struct session *s, struct err *err) {
    const struct session_options *o = &s->options;
    TRY(open_device(s, err));
    TRY(session_model_open(s, err));
    if (!s->team) session_vision_open(s);
    else err_set(&s->vision_why, ERR_EUNSUPPORTED, "pictures are not computed with --tensor-parallel");
    if (s->model.is_prefix && !s->backend->gives)
        return err_set(err, ERR_EUNSUPPORTED, "a prompt of this model sees itself both ways, which %s does not compute; use --device cpu",
                       s->backend->type->name);
    TRY(read_eos(s, err));
    struct engine_options engine = {.exact = o->precision == SESSION_EXACT,
                                    .identity = s->identity,
                                    .prefix = o->prefix_cache && !s->model.spec.is_encoder && !s->model.is_prefix,
                                    .cache_ram = o->cache_ram,
                                    .max_step_ms = o->max_step_ms,
                                    .draft = o->draft,
                                    .max_draft = o->max_draft,
                                    .eos = s->eos,
                                    .n_eos = s->n_eos,
                                    .n_queue = o->n_queue,
                                    .adapters = s->adapter_scales,
                                    .notify = o->notify,
                                    .user = o->notify_user};
    TRY(session_head_open(s, err));
    TRY(pick_limits(s, &engine.limits, err));
    TRY(engine_open(&s->model, s->backend, &engine, &s->engine, err));
    if (s->head) return session_head_set(s, err);
    return o->draft == DRAFT_MODEL ? session_draft_open(s, err) : ERR_OK;
}

int session_open(const struct session_options *options, struct session **out, struct err *err) {
    struct session *s = mem_alloc(sizeof *s);
    s->options = *options;
    int code = open_all(s, err);
    if (code) {
        session_ranks_fail(s, err);
        session_close(s);
        return code;
    }
    *out = s;
    return ERR_OK;
}

int session_follow(const struct session_options *options, struct err *err) {
    struct session *s = mem_alloc(sizeof *s);
    s->options = *options;
    int code = open_device(s, err);
    if (!code) code = session_model_open(s, err);
    if (!code) code = session_ranks_follow(s, err);
    if (code) session_ranks_fail(s, err);
    session_close(s);
    return code;
}

int session_plan(const struct session_options *options, struct sb *out, struct err *err) {
    struct session *s = mem_alloc(sizeof *s);
    s->options = *options;
    int code = open_device(s, err);
    if (!code && (s->device->shares || options->gpu_layers.kind || options->cpu_experts.kind)) {
        code = session_model_plan(s, err);
        if (!code) placement_describe(&s->placement, out);
        if (!code && *s->gpus.why) sb_fmt(out, ", %s", s->gpus.why);
    }
    session_close(s);
    return code;
}

void session_close(struct session *s) {
    if (!s) return;
    engine_close(s->engine);
    session_close(s->draft);
    session_head_close(s);
    session_text_close(s);
    session_vision_close(s);
    if (s->has_model) model_close(s->backend, &s->model);
    backend_close(s->backend);
    team_close(s->team);
    device_release(s->device);
    gpus_close(&s->gpus);
    if (s->has_checkpoint) checkpoint_close(&s->checkpoint);
    arena_free(&s->arena);
    mem_free(s);
}

const char *session_weight_format(const struct session *s, char out[32]) {
    const struct weight *w = s->model.weights.layers[0][ROLE_DOWN].w;
    if (!w) w = s->model.weights.layers[0][ROLE_EXPERT_DOWN].w;
    return w ? format_name(&w->format, out) : "";
}

/* What went where, as it was bound. */
static void describe_places(const struct session *s, struct sb *out) {
    struct placement p = s->placement;
    for (int32_t i = 0; i <= p.plan.n_cards && split_is(s->backend); i++) p.weights[i] = split_weight_bytes(s->backend, i);
    sb_puts(out, ": ");
    placement_describe(&p, out);
}

void session_describe(const struct session *s, struct sb *out) {
    char format[32];
    const char *weights = session_weight_format(s, format);
    sb_fmt(out, "%s (%.*s", s->name, STR_ARG(s->config.text_type));
    if (*weights) sb_fmt(out, ", %s", weights);
    sb_puts(out, ") on ");
    s->backend->type->describe(s->backend, out);
    if (s->placement.is_split) describe_places(s, out);
    if (s->team) sb_fmt(out, ", %d ranks", s->options.n_ranks);
    if (*s->gpus.why) sb_fmt(out, ", %s", s->gpus.why);
    const struct runner_limits *l = engine_limits(s->engine);
    sb_fmt(out, ", context %d", l->context);
    if (l->seqs > 1) sb_fmt(out, ", %d requests at once, cache of %lld tokens", l->seqs, (long long)l->kv_tokens);
    if (s->options.context > spec_longest(&s->model.spec, s->options.context)) sb_puts(out, ", all that this model has");
    if (s->backend->kv_bits) sb_fmt(out, ", cache of %d bits", s->backend->kv_bits);
    if (s->no_gpu.code == ERR_ENOTFOUND) sb_puts(out, " (no GPU driver here)");
    else if (s->no_gpu.code) sb_fmt(out, " (not on a GPU: %s)", s->no_gpu.msg);
}

int32_t session_vocab(const struct session *s) {
    return s->model.spec.vocab;
}

int32_t session_context(const struct session *s) {
    return engine_limits(s->engine)->context;
}

int32_t session_kv_bits(const struct session *s) {
    return s->backend->kv_bits;
}
