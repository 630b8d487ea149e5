/* Models: opened, described, closed. */
#include "lib/lib_internal.h"

#include "base/log.h"

#include <stdatomic.h>

enum { LOGIT_ROWS = 32 };

void mlxcel_model_options_init(mlxcel_model_options *options, size_t struct_size) {
    mlxcel_model_options full = {.queue = -1, .logit_rows = LOGIT_ROWS};
    lib_options_write(options, struct_size, &full, sizeof full);
}

/* ---- opening ------------------------------------------------------------------------------------------------------------ */

static void on_load(void *user, uint64_t done, uint64_t total) {
    struct mlxcel_model *m = user;
    m->progress(m->progress_user, MLXCEL_STAGE_LOAD, done, total);
}

static int check_range(const char *name, int32_t value, int32_t least, int32_t most, struct err *err) {
    if (value >= least && value <= most) return ERR_OK;
    return err_set(err, ERR_EARG, "%s is %d; it lies between %d and %d", name, value, least, most);
}

static int check_numbers(const mlxcel_model_options *o, struct err *err) {
    TRY(check_range("precision", o->precision, 0, MLXCEL_PRECISION_BF16, err));
    TRY(check_range("threads", o->threads, 0, 4096, err));
    TRY(check_range("context", o->context, 0, INT32_MAX, err));
    TRY(check_range("parallel", o->parallel, 0, 4096, err));
    TRY(check_range("queue", o->queue, -1, INT32_MAX, err));
    TRY(check_range("logit_rows", o->logit_rows, 0, 65536, err));
    if (o->kv_bits != 0 && o->kv_bits != 4 && o->kv_bits != 8 && o->kv_bits != 16)
        return err_set(err, ERR_EARG, "kv_bits is %d; it is 0, 4, 8 or 16", o->kv_bits);
    return ERR_OK;
}

static const char *keep(struct mlxcel_model *m, const char *text) {
    return text ? str_cstr(&m->arena, str_of(text)) : NULL;
}

/* The model's folder; what is not on this machine is downloaded. */
static int find_model(struct mlxcel_model *m, const mlxcel_model_options *o, struct session_options *out, struct err *err) {
    struct lib_download download = {.progress = m->progress, .user = m->progress_user};
    struct store_options store;
    if (!o->model || strcmp(o->model, "built-in") == 0) return ERR_OK;
    if (!*o->model) return err_set(err, ERR_EARG, "the model's name is empty; NULL is the built-in model");
    TRY(lib_store_options(&m->arena, o->store, &download, &store, err));
    return store_resolve(&m->arena, &store, keep(m, o->model), &out->model, &out->name, err);
}

static int make_session(struct mlxcel_model *m, const mlxcel_model_options *o, struct session_options *out, struct err *err) {
    *out = (struct session_options){.device = keep(m, o->device),
                                    .precision = (enum session_precision)o->precision,
                                    .n_threads = o->threads,
                                    .context = o->context,
                                    .n_seqs = o->parallel ? o->parallel : -1,
                                    .n_logits = o->logit_rows,
                                    .kv_bits = o->kv_bits,
                                    .force = o->force != 0};
    if (o->chat_template) out->template = str_copy(&m->arena, str_of(o->chat_template));
    m->progress = o->progress;
    m->progress_user = o->user;
    if (m->progress) out->on_load = on_load, out->load_user = m;
    TRY(check_numbers(o, err));
    TRY(find_model(m, o, out, err));
    TRY(lib_device_hold(out, &m->device, err));
    out->shared_device = m->device;
    return ERR_OK;
}

static int wait_loaded(struct mlxcel_model *m, struct err *err) {
    for (;;) {
        uint32_t seen = atomic_load(&m->n_news);
        switch (service_state(m->service, err)) {
        case SERVICE_READY: return ERR_OK;
        case SERVICE_FAILED: return err->code;
        case SERVICE_LOADING: os_wait_on(&m->n_news, seen, -1);
        }
    }
}

static int open_model(struct mlxcel_model *m, const mlxcel_model_options *given, struct err *err) {
    mlxcel_model_options o;
    struct service_options service = {.notify = lib_events_notify, .user = m};
    mlxcel_model_options_init(&o, sizeof o);
    TRY(lib_options_read(&o, sizeof o, given, "mlxcel_model_options", err));
    TRY(make_session(m, &o, &service.session, err));
    service.n_queue = o.queue;
    TRY(service_open(&service, &m->service, err));
    TRY(wait_loaded(m, err));
    m->template = str_cstr(&m->arena, service_template(m->service));
    atomic_store(&m->is_open, true);
    return os_thread_start(&m->thread, lib_events_run, m, "events", err);
}

static int create(const mlxcel_model_options *options, mlxcel_model **out, struct err *err) {
    if (!out) return err_set(err, ERR_EARG, "mlxcel_model_open: out is NULL");
    *out = NULL;
    TRY(lib_events_check("mlxcel_model_open", err));
    TRY(lib_begin(err));
    struct mlxcel_model *m = mem_try(sizeof *m);
    if (!m) return err_set(err, ERR_EMEMORY, "no memory for a model");
    m->lock = os_mutex_create();
    m->called_end = &m->called;
    m->n_holders = 1;
    int code = open_model(m, options, err);
    if (code) mlxcel_model_close(m);
    else *out = m;
    return code;
}

int32_t mlxcel_model_open(const mlxcel_model_options *options, mlxcel_model **out, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, create(options, out, &err), &err);
}

/* ---- closing ------------------------------------------------------------------------------------------------------------ */

/* Jobs that nobody has freed end now; whoever waits for one is woken by the bells that are returned. What was taken of their events lies in the engine's memory and goes with it. */
static uint64_t end_jobs(struct mlxcel_model *m) {
    uint64_t bells = 0;
    for (struct mlxcel_job *j = m->newest; j; j = j->older) {
        if (j->job) job_release(j->job);
        j->job = NULL;
        j->has_events = false;
        j->is_ready = true;
        if (j->on_event) lib_events_call(j);
        bells |= lib_job_news(j);
    }
    return bells;
}

void mlxcel_model_close(mlxcel_model *m) {
    if (!m) return;
    if (lib_events_inside(NULL)) {
        log_error("mlxcel_model_close in a callback does nothing: close the model when the callback has returned");
        return;
    }
    os_mutex_lock(m->lock);
    m->quits = true;
    uint64_t bells = end_jobs(m);
    os_mutex_unlock(m->lock);
    lib_events_ring(m, bells);
    lib_events_wake(m);
    if (m->thread) os_thread_join(m->thread);
    service_close(m->service);
    lib_device_release(m->device);
    m->service = NULL;
    m->device = NULL;
    os_mutex_lock(m->lock);
    bool gone = --m->n_holders == 0;
    os_mutex_unlock(m->lock);
    if (gone) lib_model_destroy(m);
}

void lib_model_destroy(struct mlxcel_model *m) {
    os_mutex_destroy(m->lock);
    arena_free(&m->arena);
    mem_free(m);
}

/* ---- what it is --------------------------------------------------------------------------------------------------------- */

static int describe(const mlxcel_model *m, mlxcel_model_info *out, struct err *err) {
    if (!m) return err_set(err, ERR_EARG, "mlxcel_model_info_get: the model is NULL");
    const struct service_info *i = service_info(m->service);
    mlxcel_model_info full = {.name = i->name,
                              .description = i->description,
                              .path = i->path ? i->path : "",
                              .type = i->type,
                              .weights = i->weights,
                              .chat_template = m->template,
                              .weight_bytes = i->weight_bytes,
                              .vocab = i->vocab,
                              .context = i->context,
                              .parallel = i->n_seqs,
                              .width = i->width,
                              .kv_bits = i->kv_bits,
                              .on_gpu = i->on_gpu,
                              .has_template = i->has_template,
                              .has_tools = i->format != NULL};
    return lib_struct_write(out, &full, sizeof full, "mlxcel_model_info", err);
}

int32_t mlxcel_model_info_get(const mlxcel_model *model, mlxcel_model_info *out, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, describe(model, out, &err), &err);
}
