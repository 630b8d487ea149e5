/* A turn of the engine: takes new and cancelled jobs, runs a step, hands out events. Also what the owner's thread calls: submitting, reading events. */
#include "engine/engine_internal.h"

#include "engine/spare.h"

enum { SNAPSHOT_BYTES_MAX = 512 << 20, FIRST_CHUNK = 256, LEAST_CHUNK = 16 };

/* ---- the beginning ---------------------------------------------------------------------------------------------------- */

/* Slots for snapshots of recurrent state: two for each sequence, as far as memory allows. */
static int32_t count_snapshots(const struct kv_layout *layout, int32_t seqs) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < layout->n_states; i++) bytes += layout->states[i].elements * (int64_t)sizeof(float);
    if (bytes == 0) return 0;
    int64_t most = SNAPSHOT_BYTES_MAX / bytes;
    return most < 2 * (int64_t)seqs ? (int32_t)most : 2 * seqs;
}

/* Blocks that jobs hold, and those that are kept for prefixes alone. */
static void count_blocks(const struct kv *kv, struct engine_stats *s) {
    s->blocks_total = s->blocks_used = s->blocks_cached = 0;
    for (int32_t c = 0; c < kv->layout.n_classes; c++) {
        const struct kv_pool *pool = &kv->pools[c];
        s->blocks_total += pool->n_blocks - 1;
        s->blocks_used += pool->n_blocks - 1 - pool->n_free - pool->n_idle;
        s->blocks_cached += pool->n_idle;
    }
}

static void publish_stats(struct engine *e) {
    e->live.n_running = e->n_running;
    e->live.n_waiting = e->n_waiting;
    if (e->n_running == 0) e->live.rows_prefill = e->live.rows_decode = 0;
    count_blocks(&e->runner.kv, &e->live);
    if (e->prefix) e->live.blocks_away = prefix_away(e->prefix), e->live.n_returned_tokens = prefix_returned(e->prefix);
    os_mutex_lock(e->lock);
    e->stats = e->live;
    bool has_news = e->ready != NULL;
    os_mutex_unlock(e->lock);
    if (has_news && e->options.notify) e->options.notify(e->options.user);
}

int engine_open(const struct model *m, struct backend *be, const struct engine_options *options, struct engine **out, struct err *err) {
    struct engine *e = mem_alloc(sizeof *e);
    e->options = *options;
    stats_init(&e->live);
    e->stats = e->live;
    struct runner_limits limits = options->limits;
    int32_t n_snapshots = options->prefix ? count_snapshots(&m->spec.kv, limits.seqs) : 0;
    limits.snapshots = n_snapshots;
    int code = speculate_open(e, &limits, m, be, err);
    if (!code) code = runner_open(m, be, &limits, &e->runner, err);
    if (!code && options->prefix && options->cache_ram) {
        code = spare_open(be, &e->runner.kv.layout, options->cache_ram, &e->spare, err);
        if (code) runner_close(&e->runner);
    }
    if (code) {
        speculate_close(e);
        mem_free(e);
        return code;
    }
    e->waiting_end = &e->waiting;
    e->inbox_end = &e->inbox;
    e->ready_end = &e->ready;
    e->lock = os_mutex_create();
    e->constraints_lock = os_mutex_create();
    e->wake = os_cond_create();
    e->running = mem_alloc((size_t)e->runner.limits.seqs * sizeof *e->running);
    e->chosen = mem_alloc((size_t)e->runner.limits.logits * sizeof *e->chosen);
    e->choosing = mem_alloc((size_t)e->runner.limits.seqs * sizeof *e->choosing);
    e->free_slots = mem_alloc((size_t)e->runner.limits.seqs * sizeof *e->free_slots);
    for (int32_t i = 0; i < e->runner.limits.seqs; i++) e->free_slots[e->n_free_slots++] = i;
    for (int i = 0; i < FLIGHTS; i++) {
        e->flights[i] = mem_alloc(sizeof *e->flights[i]);
        e->flights[i]->rows = mem_alloc((size_t)e->runner.limits.seqs * sizeof *e->flights[i]->rows);
    }
    if (be->device->step_ms > 0 || options->max_step_ms > 0) e->chunk = FIRST_CHUNK;
    struct prefix_options prefix = {.kv = &e->runner.kv, .backend = be, .spec = &m->spec, .n_snapshots = n_snapshots, .spare = e->spare};
    if (options->prefix) e->prefix = prefix_open(&prefix);
    publish_stats(e);
    *out = e;
    return ERR_OK;
}

void engine_set_text(struct engine *e, const struct tok *tok, const struct output_format *format,
                     const struct output_reasoning *reasoning) {
    e->tok = tok;
    e->format = format;
    e->reasoning = reasoning;
}

const struct runner_limits *engine_limits(const struct engine *e) {
    return &e->runner.limits;
}

int32_t engine_width(const struct engine *e) {
    return (int32_t)e->runner.model->spec.hidden;
}

/* ---- the owner -------------------------------------------------------------------------------------------------------- */

static int create_all(struct engine *e, const struct job_spec *specs, int32_t n, struct job **out, struct err *err) {
    for (int32_t i = 0; i < n; i++) {
        out[i] = job_create(e, &specs[i], err);
        if (out[i]) continue;
        while (i > 0) job_destroy(out[--i]);
        return err->code;
    }
    return ERR_OK;
}

/* With the lock held. */
static void enqueue(struct engine *e, struct job *j) {
    e->n_held++;
    e->n_further += j->is_further;
    *e->inbox_end = j;
    e->inbox_end = &j->next_in;
    j->older = e->newest;
    if (e->newest) e->newest->newer = j;
    e->newest = j;
}

int engine_submit(struct engine *e, const struct job_spec *specs, int32_t n, struct job **out, struct err *err) {
    TRY(create_all(e, specs, n, out, err));
    uint64_t group = n > 1 ? ++e->n_groups : 0;
    for (int32_t i = 0; i < n; i++) {
        out[i]->group = group;
        out[i]->is_further = i > 0;
    }
    os_mutex_lock(e->lock);
    int32_t n_requests = e->n_held - e->n_further, most = e->runner.limits.seqs + e->options.n_queue;
    bool full = e->quit || (e->options.n_queue >= 0 && n_requests >= most);
    for (int32_t i = 0; i < n && !full; i++) enqueue(e, out[i]);
    os_cond_signal(e->wake);
    os_mutex_unlock(e->lock);
    if (!full) return ERR_OK;
    for (int32_t i = 0; i < n; i++) job_destroy(out[i]);
    return err_set(err, ERR_EBUSY, "all places are taken and the queue is full");
}

struct engine_stats engine_stats(struct engine *e) {
    os_mutex_lock(e->lock);
    struct engine_stats s = e->stats;
    int32_t n_held = e->n_held; /* also those that the turning thread has not seen yet */
    os_mutex_unlock(e->lock);
    s.n_waiting = n_held > s.n_running ? n_held - s.n_running : 0;
    return s;
}

void engine_quit(struct engine *e) {
    os_mutex_lock(e->lock);
    e->quit = true;
    os_cond_signal(e->wake);
    os_mutex_unlock(e->lock);
}

/* ---- one turn --------------------------------------------------------------------------------------------------------- */

bool engine_wait(struct engine *e) {
    os_mutex_lock(e->lock);
    while (!e->quit && !e->inbox && !e->orders && e->n_running == 0 && e->n_waiting == 0 && e->n_flights == 0)
        os_cond_wait(e->wake, e->lock);
    bool go_on = !e->quit;
    os_mutex_unlock(e->lock);
    return go_on;
}

/* Ends a job that its owner cancelled or released. */
static void obey(struct engine *e, struct job *j) {
    os_mutex_lock(e->lock);
    bool is_done = j->is_done, is_released = j->is_released;
    j->is_ordered = false;
    if (is_done && is_released) job_unlist(j);
    os_mutex_unlock(e->lock);
    if (!is_done) schedule_end(e, j, JOB_CANCELLED, NULL);
    else if (is_released) job_destroy(j);
}

static void take_orders(struct engine *e) {
    os_mutex_lock(e->lock);
    struct job *in = e->inbox, *order = e->orders;
    e->inbox = e->orders = NULL;
    e->inbox_end = &e->inbox;
    os_mutex_unlock(e->lock);
    while (in) {
        struct job *next = in->next_in;
        schedule_push(e, in);
        in = next;
    }
    while (order) {
        struct job *next = order->next_order;
        obey(e, order);
        order = next;
    }
}

static bool is_late(const struct job *j, uint64_t now) {
    return j->deadline_ns && now > j->deadline_ns;
}

static void end_late(struct engine *e) {
    uint64_t now = os_clock_ns();
    for (int32_t i = e->n_running; i-- > 0;)
        if (is_late(e->running[i], now)) schedule_end(e, e->running[i], JOB_DEADLINE, NULL);
    for (struct job *j = e->waiting, *next; j; j = next) {
        next = j->next;
        if (is_late(j, now)) schedule_end(e, j, JOB_DEADLINE, NULL);
    }
}

int32_t engine_next_chunk(int32_t chunk, int32_t n_rows, double ms, int32_t limit_ms, int32_t most) {
    double aim = 0.8 * limit_ms, fits = n_rows * aim / (ms > 0.01 ? ms : 0.01); /* rows, if each takes as long as these did */
    if (ms > limit_ms) chunk = fits > n_rows / 2 ? (int32_t)fits : n_rows / 2;
    else if (n_rows >= chunk && ms < aim) chunk = fits < 2 * chunk ? (int32_t)fits : 2 * chunk;
    if (chunk < LEAST_CHUNK) chunk = LEAST_CHUNK;
    return chunk < most ? chunk : most;
}

/* Adapts the size of chunks to the time that this step took, for devices that must not be busy for long and for readers of other answers. The step
 * began when it was launched, or when the step before it ended, whichever was later. It has ended, because its results have been read. */
static void watch_time(struct engine *e, const struct flight *f) {
    int32_t device_ms = e->runner.backend->device->step_ms, limit = device_ms > 0 ? device_ms : f->n_decode ? e->options.max_step_ms : 0;
    uint64_t now = os_clock_ns(), begun = e->collected_ns > f->launched_ns ? e->collected_ns : f->launched_ns;
    e->collected_ns = now;
    if (limit > 0 && f->n_prefill > 0)
        e->chunk = engine_next_chunk(e->chunk, f->n_prefill, (double)(now - begun) / 1e6, limit, e->runner.limits.rows);
}

/* The next step, if there is one to run now. */
static int launch_step(struct engine *e, struct err *err) {
    struct flight *f = e->flights[e->n_flights];
    if (e->n_running == 0) return ERR_OK;
    schedule_plan(e, f, e->n_flights > 0);
    if (f->n == 0) return ERR_OK;
    f->n_prefill = e->live.rows_prefill;
    f->n_decode = e->live.rows_decode;
    f->launched_ns = os_clock_ns();
    TRY(flight_launch(e, f, err));
    e->n_flights++;
    return ERR_OK;
}

static int collect_oldest(struct engine *e, struct err *err) {
    struct flight *f = e->flights[0];
    int code = flight_collect(e, f, e->n_flights - 1, err);
    watch_time(e, f);
    e->n_flights--;
    memmove(&e->flights[0], &e->flights[1], (FLIGHTS - 1) * sizeof *e->flights);
    e->flights[FLIGHTS - 1] = f;
    return code;
}

/* Whether the next step may be launched before the results of the one in flight have come. Not where the time of each step is measured. */
static bool can_run_ahead(const struct engine *e) {
    const struct backend *be = e->runner.backend;
    const struct flight *f = e->flights[0];
    return be->runs_ahead && be->device->step_ms == 0 && !f->reads_logits && !f->reads_hidden && !f->reads_states;
}

/* Launches a step, and the one behind it where the device runs ahead; then takes the results of the oldest. */
static int run_step(struct engine *e, struct err *err) {
    if (e->n_flights == 0) TRY(schedule_states(e, err));
    if (e->n_flights == 0) TRY(launch_step(e, err));
    if (e->n_flights == 1 && can_run_ahead(e) && !schedule_awaits_states(e)) TRY(launch_step(e, err));
    return e->n_flights ? collect_oldest(e, err) : ERR_OK;
}

int engine_turn(struct engine *e, bool *out_idle, struct err *err) {
    take_orders(e);
    end_late(e);
    schedule_admit(e);
    int code = run_step(e, err);
    if (code) {
        e->n_flights = 0;
        schedule_end_all(e, JOB_ERROR, err);
    }
    *out_idle = e->n_running == 0 && e->n_waiting == 0 && e->n_flights == 0;
    publish_stats(e);
    return code;
}

/* ---- the end ---------------------------------------------------------------------------------------------------------- */

void engine_close(struct engine *e) {
    if (!e) return;
    struct err why;
    err_set(&why, ERR_ECANCELLED, "the engine was closed");
    take_orders(e);
    schedule_end_all(e, JOB_ERROR, &why);
    while (e->newest) { /* that nobody released */
        struct job *j = e->newest;
        e->newest = j->older;
        job_destroy(j);
    }
    choose_free(e);
    speculate_close(e);
    constraint_free_all(e);
    for (int i = 0; i < FLIGHTS; i++) {
        mem_free(e->flights[i]->rows);
        mem_free(e->flights[i]);
    }
    mem_free(e->hidden);
    mem_free(e->free_slots);
    prefix_close(e->prefix);
    spare_close(e->spare);
    runner_close(&e->runner);
    os_cond_destroy(e->wake);
    os_mutex_destroy(e->lock);
    arena_free(&e->arena);
    mem_free(e->running);
    mem_free(e->chosen);
    mem_free(e->choosing);
    mem_free(e);
}
