/* The service's thread: it loads the model, then turns the engine until the service is closed. */
#include "api/service_internal.h"

#include "base/log.h"
#include "os/os.h"

#include <stdatomic.h>

/* ---- loading ----------------------------------------------------------------------------------------------------------- */

/* The last part of the path. */
static void make_name(struct service *s) {
    const struct session_options *o = &s->options.session;
    const char *given = s->options.name ? s->options.name : o->name ? o->name : o->model ? o->model : o->shape ? o->shape : "built-in";
    struct str path = str_of(given);
    while (path.n > 1 && (path.p[path.n - 1] == '/' || path.p[path.n - 1] == '\\')) path.n--;
    size_t from = path.n;
    while (from > 0 && path.p[from - 1] != '/' && path.p[from - 1] != '\\') from--;
    sb_put(&s->name, s->options.name ? str_of(given) : str_from(path, from));
}

static void fill_info(struct service *s) {
    char format[32];
    s->info = (struct service_info){.name = s->name.p,
                                    .description = s->description.p,
                                    .path = s->options.session.model,
                                    .type = str_cstr(&s->session->arena, s->session->config.text_type),
                                    .weights = str_cstr(&s->session->arena, str_of(session_weight_format(s->session, format))),
                                    .weight_bytes = s->session->checkpoint.total_bytes,
                                    .on_gpu = strcmp(s->session->backend->device->type->name, "cpu") != 0,
                                    .vocab = session_vocab(s->session),
                                    .context = session_context(s->session),
                                    .kv_bits = session_kv_bits(s->session),
                                    .n_seqs = engine_limits(s->session->engine)->seqs,
                                    .width = s->session->embedder.width ? s->session->embedder.width : engine_width(s->session->engine),
                                    .adapters = s->options.session.adapters,
                                    .n_adapters = s->options.session.n_adapters,
                                    .drafts = s->options.session.draft > DRAFT_NONE,
                                    .has_template = session_has_template(s->session),
                                    .takes_pictures = s->session->vision != NULL,
                                    .format = s->session->format,
                                    .reasoning = s->session->reasoning,
                                    .sampling = sampler_defaults()};
    s->info.sampling.temperature = 1;
    sampling_resolve(s->session, &s->options.sampling, &s->info.sampling);
}

static void set_state(struct service *s, enum service_state state, const struct err *why) {
    os_mutex_lock(s->lock);
    bool is_over = atomic_load(&s->state) == SERVICE_FAILED; /* which nothing changes, and the first reason counts */
    if (!is_over) s->why = *why;
    if (!is_over) atomic_store(&s->state, state);
    os_mutex_unlock(s->lock);
    if (!is_over) s->options.notify(s->options.user);
}

/* From the thread that looks after the other ranks: without one of them nothing is computed. */
static void on_rank_lost(void *user, const struct err *reason) {
    struct err why;
    err_set(&why, ERR_EDEVICE, "the ranks must be started again: %s", reason->msg);
    set_state(user, SERVICE_FAILED, &why);
}

static int load(struct service *s, struct err *err) {
    struct session_options *o = &s->options.session;
    o->prefix_cache = true;
    o->n_queue = s->options.n_queue;
    o->notify = s->options.notify;
    o->notify_user = s->options.user;
    o->world.on_lost = on_rank_lost;
    o->world.user = s;
    TRY(session_open(o, &s->session, err));
    TRY(session_text_load(s->session, err));
    make_name(s);
    if (!session_has_template(s->session)) log_warn("%s has no chat template: chats get a plain User/Assistant form", s->name.p);
    session_describe(s->session, &s->description);
    fill_info(s);
    return ERR_OK;
}

/* ---- the thread -------------------------------------------------------------------------------------------------------- */

/* Nothing that this process asks of the device can succeed any more. What waits is answered with that, and the owner ends. */
static void fail_lost(struct service *s, const struct err *reason) {
    struct err why;
    if (!s->session->backend->device->lost || atomic_load(&s->state) == SERVICE_FAILED) return;
    err_set(&why, ERR_EDEVICE, "the device is lost and the program must be started again: %s", reason->msg);
    set_state(s, SERVICE_FAILED, &why);
}

static bool is_closed(struct service *s) {
    os_mutex_lock(s->lock);
    bool quit = s->quit;
    os_mutex_unlock(s->lock);
    return quit;
}

static void run(void *user) {
    struct service *s = user;
    struct err err = {0};
    bool idle;
    int code = load(s, &err);
    set_state(s, code ? SERVICE_FAILED : SERVICE_READY, &err);
    while (!code && !is_closed(s) && engine_wait(s->session->engine)) {
        if (!engine_turn(s->session->engine, &idle, &err)) continue;
        log_error("a step failed and ended its requests: %s", err.msg);
        fail_lost(s, &err);
    }
}

/* ---- the owner's side -------------------------------------------------------------------------------------------------- */

int service_open(const struct service_options *options, struct service **out, struct err *err) {
    struct service *s = mem_alloc(sizeof *s);
    s->options = *options;
    s->lock = os_mutex_create();
    int code = os_thread_start(&s->thread, run, s, "engine", err);
    if (code) {
        service_close(s);
        return code;
    }
    *out = s;
    return ERR_OK;
}

void service_close(struct service *s) {
    if (!s) return;
    os_mutex_lock(s->lock);
    s->quit = true;
    os_mutex_unlock(s->lock);
    if (atomic_load(&s->state) != SERVICE_LOADING && s->session && s->session->engine) engine_quit(s->session->engine);
    if (s->thread) os_thread_join(s->thread);
    session_close(s->session);
    sb_free(&s->name);
    sb_free(&s->description);
    os_mutex_destroy(s->lock);
    mem_free(s);
}

enum service_state service_state(struct service *s, struct err *out_why) {
    enum service_state state = (enum service_state)atomic_load(&s->state);
    if (state == SERVICE_FAILED && out_why) {
        os_mutex_lock(s->lock);
        *out_why = s->why;
        os_mutex_unlock(s->lock);
    }
    return state;
}

int service_check(struct service *s, struct err *err) {
    switch (service_state(s, NULL)) {
    case SERVICE_READY: return ERR_OK;
    case SERVICE_LOADING: return err_set(err, ERR_EBUSY, "the model is being loaded");
    case SERVICE_FAILED: break;
    }
    return err_set(err, ERR_EDEVICE, "the model has failed, and the server ends; its log says why");
}

const struct service_info *service_info(const struct service *s) {
    return &s->info;
}

int service_submit(struct service *s, const struct job_spec *specs, int32_t n, struct job **out, struct err *err) {
    TRY(service_check(s, err));
    return engine_submit(s->session->engine, specs, n, out, err);
}

float *service_adapter_scales(struct service *s) {
    return s->session->adapter_scales;
}

struct job *service_next_ready(struct service *s) {
    return service_state(s, NULL) == SERVICE_LOADING || !s->session ? NULL : engine_next_ready(s->session->engine);
}

struct engine_stats service_stats(struct service *s) {
    return service_state(s, NULL) == SERVICE_LOADING || !s->session ? (struct engine_stats){0} : engine_stats(s->session->engine);
}
