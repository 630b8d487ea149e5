/* The service's thread: loading, orders in, steps, events out; and the owner's side of the border.
 *
 * A job ends in three acts: the engine's last event (job->job becomes NULL), the thread forgets it (is_done), the owner lets
 * it go (is_released). It is destroyed by whoever comes last, told apart under the lock.
 */
#include "api/service_internal.h"

#include "base/log.h"
#include "os/os.h"

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

static int load(struct service *s, struct err *err) {
    s->options.session.prefix_cache = true;
    TRY(session_open(&s->options.session, &s->session, err));
    TRY(session_text_load(s->session, err));
    const struct runner_limits *limits = engine_limits(s->session->engine);
    make_name(s);
    if (!session_has_template(s->session)) log_warn("%s has no chat template: chats get a plain User/Assistant form", s->name.p);
    session_describe(s->session, &s->description);
    s->info = (struct service_info){.name = s->name.p,
                                    .description = s->description.p,
                                    .vocab = session_vocab(s->session),
                                    .context = session_context(s->session),
                                    .kv_bits = session_kv_bits(s->session),
                                    .n_seqs = limits->seqs,
                                    .width = embed_width(s->session->engine),
                                    .has_template = session_has_template(s->session),
                                    .sampling = sampler_defaults()};
    s->info.sampling.temperature = 1;
    sampling_resolve(s->session, &s->options.sampling, &s->info.sampling);
    s->breakers = sampling_breakers(s->session, &s->arena, NULL, 0);
    s->n_works = engine_workers(s->session->engine);
    s->works = mem_alloc((size_t)s->n_works * sizeof *s->works);
    for (int32_t i = 0; i < s->n_works; i++) s->works[i] = sampler_work_create(s->info.vocab);
    return ERR_OK;
}

/* ---- the thread's loop ------------------------------------------------------------------------------------------------- */

static void start_job(struct service *s, struct service_job *j) {
    struct err err;
    struct engine_request r = {
        .tokens = j->tokens, .n_tokens = j->n_tokens, .max_new = j->max_new, .on_event = service_on_event, .user = j, .group = j->group};
    if (!j->ignore_eos) r.eos = session_eos(s->session, &r.n_eos);
    if (!sampler_is_plain(&j->sampling)) r.choose = service_on_choose;
    if (s->n_active == s->active_capacity) {
        s->active_capacity = s->active_capacity ? 2 * s->active_capacity : 64;
        s->active = mem_realloc(s->active, (size_t)s->active_capacity * sizeof *s->active);
    }
    s->active[s->n_active++] = j;
    s->live.n_prompt_tokens += j->usage.n_prompt;
    if (j->inputs) return;
    if (engine_submit(s->session->engine, &r, &j->job, &err)) service_job_end(j, JOB_ERROR, &err);
}

/* The thread is through with a job whose last event is out. */
static void forget(struct service *s, int32_t i) {
    struct service_job *j = s->active[i];
    s->active[i] = s->active[--s->n_active];
    os_mutex_lock(s->lock);
    j->is_done = true;
    s->n_held--;
    s->n_further -= j->is_further;
    os_mutex_unlock(s->lock);
    if (j->is_let_go) service_job_destroy(j);
}

static void let_go(struct service *s, struct service_job *j) {
    os_mutex_lock(s->lock);
    bool done = j->is_done;
    os_mutex_unlock(s->lock);
    if (done) {
        service_job_destroy(j);
        return;
    }
    j->is_let_go = true;
    j->want = JOB_CANCELLED;
}

/* Waits for something to do, then takes it; false when the service closes. */
static bool take_orders(struct service *s) {
    os_mutex_lock(s->lock);
    while (!s->quit && !s->inbox && !s->released && s->n_active == 0) os_cond_wait(s->wake, s->lock);
    bool go_on = !s->quit;
    struct service_job *in = s->inbox, *out = s->released;
    s->inbox = s->released = NULL;
    s->inbox_end = &s->inbox;
    os_mutex_unlock(s->lock);
    while (in) {
        struct service_job *next = in->next_in;
        start_job(s, in);
        in = next;
    }
    while (out) {
        struct service_job *next = out->next_out;
        let_go(s, out);
        out = next;
    }
    return go_on;
}

/* Ends what must end, forgets what has ended. */
static void settle(struct service *s) {
    uint64_t now = os_clock_ns();
    for (int32_t i = 0; i < s->n_active;) {
        struct service_job *j = s->active[i];
        if (!j->is_over && !j->want && j->deadline_ns && now > j->deadline_ns) j->want = JOB_DEADLINE;
        if (!j->is_over && j->want) {
            if (j->inputs) service_embed_stop(j, j->want);
            else engine_cancel(s->session->engine, j->job);
        }
        if (j->is_over) forget(s, i);
        else i++;
    }
}

static void count_blocks(struct service *s) {
    const struct kv *kv = &engine_runner(s->session->engine)->kv;
    s->live.blocks_total = s->live.blocks_used = s->live.blocks_cached = 0;
    for (int32_t c = 0; c < kv->layout.n_classes; c++) {
        s->live.blocks_total += kv->pools[c].n_blocks - 1;
        s->live.blocks_used += kv->pools[c].n_blocks - 1 - kv->pools[c].n_free - kv->pools[c].n_idle;
        s->live.blocks_cached += kv->pools[c].n_idle;
    }
}

static void publish_stats(struct service *s) {
    struct engine_stats e = engine_stats(s->session->engine);
    struct service_stats *live = &s->live;
    live->n_waiting = e.n_waiting;
    live->n_running = e.n_running;
    live->rows_prefill = e.n_running ? e.rows_prefill : 0;
    live->rows_decode = e.n_running ? e.rows_decode : 0;
    live->n_steps = e.n_steps;
    live->n_preempted = e.n_preempted;
    live->n_prefix_hits = e.n_prefix_hits;
    live->n_prefix_misses = e.n_prefix_misses;
    live->n_cached_tokens = e.n_cached;
    count_blocks(s);
    os_mutex_lock(s->lock);
    s->stats = *live;
    bool news = s->ready != NULL;
    os_mutex_unlock(s->lock);
    if (news) s->options.notify(s->options.user);
}

static void end_all(struct service *s) {
    for (int32_t i = 0; i < s->n_active; i++) s->active[i]->want = JOB_CANCELLED;
    settle(s);
    publish_stats(s);
}

/* Nothing that this process asks of the device can succeed any more. What waits is answered with that, and the owner ends. */
static void fail_lost(struct service *s, const struct err *why) {
    if (!s->session->backend->lost || atomic_load(&s->state) == SERVICE_FAILED) return;
    os_mutex_lock(s->lock);
    err_set(&s->why, ERR_EDEVICE, "the device is lost and the program must be started again: %s",
            why->code ? why->msg : "it failed while embeddings were made");
    os_mutex_unlock(s->lock);
    atomic_store(&s->state, SERVICE_FAILED);
    s->options.notify(s->options.user);
}

static void run(void *user) {
    struct service *s = user;
    struct err err = {0};
    int code = load(s, &err);
    os_mutex_lock(s->lock);
    s->why = err;
    os_mutex_unlock(s->lock);
    atomic_store(&s->state, code ? SERVICE_FAILED : SERVICE_READY);
    if (!code) publish_stats(s);
    s->options.notify(s->options.user);
    if (code) return;
    while (take_orders(s)) {
        bool idle;
        settle(s);
        if (engine_step(s->session->engine, &idle, &err)) log_error("a step failed and ended its requests: %s", err.msg);
        service_embed_some(s);
        settle(s);
        publish_stats(s);
        fail_lost(s, &err);
    }
    end_all(s);
}

/* ---- the owner's side -------------------------------------------------------------------------------------------------- */

int service_open(const struct service_options *options, struct service **out, struct err *err) {
    struct service *s = mem_alloc(sizeof *s);
    s->options = *options;
    s->lock = os_mutex_create();
    s->wake = os_cond_create();
    s->inbox_end = &s->inbox;
    s->ready_end = &s->ready;
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
    if (s->thread) {
        os_mutex_lock(s->lock);
        s->quit = true;
        os_cond_signal(s->wake);
        os_mutex_unlock(s->lock);
        os_thread_join(s->thread);
    }
    while (s->released) {
        struct service_job *j = s->released;
        s->released = j->next_out;
        service_job_destroy(j);
    }
    for (int32_t i = 0; i < s->n_works; i++) sampler_work_destroy(s->works[i]);
    mem_free(s->works);
    embed_close(s->embed);
    session_close(s->session);
    arena_free(&s->arena);
    mem_free(s->active);
    sb_free(&s->name);
    sb_free(&s->description);
    os_cond_destroy(s->wake);
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

const struct service_info *service_info(const struct service *s) {
    return &s->info;
}

int service_enqueue(struct service *s, struct service_job *j, struct service_job **out, struct err *err) {
    os_mutex_lock(s->lock);
    bool full = s->quit || (!j->is_further && s->n_held - s->n_further >= s->info.n_seqs + s->options.n_queue);
    if (!full) {
        s->n_held++;
        s->n_further += j->is_further;
        *s->inbox_end = j;
        s->inbox_end = &j->next_in;
        os_cond_signal(s->wake);
    }
    os_mutex_unlock(s->lock);
    if (full) {
        service_job_destroy(j);
        return err_set(err, ERR_EBUSY, "all slots are busy and the queue is full");
    }
    *out = j;
    return ERR_OK;
}

int service_submit(struct service *s, const struct service_request *request, struct service_job **out, struct err *err) {
    if (service_state(s, NULL) != SERVICE_READY) return err_set(err, ERR_EBUSY, "the model is being loaded");
    struct service_job *j = service_job_create(s, request, err);
    return j ? service_enqueue(s, j, out, err) : err->code;
}

struct service_job *service_next_ready(struct service *s) {
    os_mutex_lock(s->lock);
    struct service_job *j = s->ready;
    if (j) {
        s->ready = j->next_ready;
        if (!s->ready) s->ready_end = &s->ready;
        j->is_ready = false;
    }
    os_mutex_unlock(s->lock);
    return j;
}

void *service_job_user(const struct service_job *job) {
    return job->user;
}

void service_take(struct service_job *j, struct service_events *out) {
    os_mutex_lock(j->service->lock);
    struct box *full = &j->boxes[j->i_box], *empty = &j->boxes[j->i_box ^= 1];
    sb_clear(&empty->text);
    empty->n_tokens = empty->n_tops = 0;
    j->n_pending = 0;
    *out = (struct service_events){.text = sb_str(&full->text),
                                   .tokens = full->tokens,
                                   .n_tokens = full->n_tokens,
                                   .tops = full->tops,
                                   .finish = j->finish,
                                   .err = j->err,
                                   .usage = j->usage,
                                   .vectors = j->finish == JOB_STOP ? j->vectors : NULL};
    os_mutex_unlock(j->service->lock);
}

/* With the lock held. */
static void unlink_ready(struct service *s, struct service_job *j) {
    if (!j->is_ready) return;
    for (struct service_job **p = &s->ready; *p; p = &(*p)->next_ready)
        if (*p == j) {
            *p = j->next_ready;
            if (s->ready_end == &j->next_ready) s->ready_end = p;
            break;
        }
    j->is_ready = false;
}

void service_release(struct service_job *j) {
    struct service *s = j->service;
    os_mutex_lock(s->lock);
    unlink_ready(s, j);
    j->is_released = true;
    bool done = j->is_done;
    if (!done) {
        j->next_out = s->released;
        s->released = j;
        os_cond_signal(s->wake);
    }
    os_mutex_unlock(s->lock);
    if (done) service_job_destroy(j);
}

struct service_stats service_stats(struct service *s) {
    os_mutex_lock(s->lock);
    struct service_stats stats = s->stats;
    int32_t n_held = s->n_held; /* also those that the thread has not seen yet */
    os_mutex_unlock(s->lock);
    stats.n_waiting = n_held > stats.n_running ? n_held - stats.n_running : 0;
    return stats;
}
