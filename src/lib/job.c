/* Handles of jobs: events taken from the engine, and handed out one by one. */
#include "lib/lib_internal.h"

/* ---- the handle --------------------------------------------------------------------------------------------------------- */

struct mlxcel_job *lib_job_create(struct mlxcel_model *m, struct err *err) {
    struct mlxcel_job *j = mem_try(sizeof *j);
    if (!j) {
        err_set(err, ERR_EMEMORY, "no memory for a job");
        return NULL;
    }
    j->model = m;
    return j;
}

void lib_job_drop(struct mlxcel_job *j) {
    arena_free(&j->scratch);
    mem_free(j);
}

static void list_job(struct mlxcel_job *j) {
    struct mlxcel_model *m = j->model;
    j->older = m->newest;
    if (m->newest) m->newest->newer = j;
    m->newest = j;
    m->n_holders++;
    j->i_bell = m->i_bell++ % LIB_BELLS;
}

static void unlist_called(struct mlxcel_job *j) {
    struct mlxcel_model *m = j->model;
    if (!j->is_called) return;
    struct mlxcel_job **p = &m->called;
    while (*p != j) p = &(*p)->next_called;
    *p = j->next_called;
    if (m->called_end == &j->next_called) m->called_end = p;
}

bool lib_job_destroy(struct mlxcel_job *j) {
    struct mlxcel_model *m = j->model;
    if (j->job) job_release(j->job);
    unlist_called(j);
    if (j->newer) j->newer->older = j->older;
    else m->newest = j->older;
    if (j->older) j->older->newer = j->newer;
    lib_job_drop(j);
    return --m->n_holders == 0;
}

static int submit_all(struct mlxcel_model *m, struct job_spec *specs, int32_t n, struct mlxcel_job **jobs, struct err *err) {
    struct job **inner = mem_try((size_t)n * sizeof *inner + 1);
    if (!inner) return err_set(err, ERR_EMEMORY, "no memory for %d jobs", n);
    for (int32_t i = 0; i < n; i++) specs[i].user = jobs[i];
    os_mutex_lock(m->lock);
    int code = service_submit(m->service, specs, n, inner, err);
    for (int32_t i = 0; i < n && !code; i++) {
        jobs[i]->job = inner[i];
        list_job(jobs[i]);
    }
    os_mutex_unlock(m->lock);
    mem_free(inner);
    return code;
}

int lib_jobs_submit(struct mlxcel_model *m, struct job_spec *specs, int32_t n, struct mlxcel_job **jobs, struct err *err) {
    int code = submit_all(m, specs, n, jobs, err);
    for (int32_t i = 0; i < n && code; i++) {
        lib_job_drop(jobs[i]);
        jobs[i] = NULL;
    }
    return code;
}

void mlxcel_cancel(mlxcel_job *j) {
    if (!j) return;
    os_mutex_lock(j->model->lock);
    if (j->job && !j->is_over) job_cancel(j->job);
    os_mutex_unlock(j->model->lock);
}

void mlxcel_job_free(mlxcel_job *j) {
    if (!j) return;
    struct mlxcel_model *m = j->model;
    os_mutex_lock(m->lock);
    if (lib_events_inside(j)) {
        j->is_freed = true; /* the events thread does the rest */
        os_mutex_unlock(m->lock);
        return;
    }
    while (j->in_call) lib_job_await(j, 0);
    bool gone = lib_job_destroy(j);
    os_mutex_unlock(m->lock);
    if (gone) lib_model_destroy(m);
}

/* ---- events ------------------------------------------------------------------------------------------------------------- */

void mlxcel_event_init(mlxcel_event *event, size_t struct_size) {
    mlxcel_event full = {.text = "", .id = "", .stopped_by = -1};
    lib_options_write(event, struct_size, &full, sizeof full);
}

/* With the lock held. Of a job whose model was closed, that it was cancelled. */
static void take(struct mlxcel_job *j, struct job_events *out) {
    static const struct output_pieces no_pieces;
    j->is_ready = false;
    if (j->job) {
        job_take(j->job, out);
        return;
    }
    *out = (struct job_events){.pieces = &no_pieces, .finish = JOB_CANCELLED, .stopped_by = -1};
    out->usage.n_prompt = j->last.n_prompt;
    out->usage.n_new = j->last.n_new;
}

static void put_usage(struct mlxcel_job *j) {
    const struct job_usage *u = &j->events.usage;
    mlxcel_event *e = &j->last;
    e->n_prompt = u->n_prompt;
    e->n_read = u->n_read;
    e->n_cached = u->n_cached;
    e->n_new = u->n_new;
    e->n_reasoning = u->n_reasoning;
    e->prompt_seconds = u->prompt_seconds;
    e->new_seconds = u->new_seconds;
}

static void put_text(struct mlxcel_job *j, struct str text) {
    j->last.text = str_cstr(&j->scratch, text);
    j->last.text_bytes = text.n;
}

static bool put_progress(struct mlxcel_job *j) {
    if (!j->wants_progress || j->events.n_reads == 0) return false;
    j->last.kind = MLXCEL_EVENT_PROGRESS;
    return true;
}

static bool put_tokens(struct mlxcel_job *j) {
    const struct job_events *ev = &j->events;
    size_t n = ev->n_tokens, n_tops = 0;
    if (!j->wants_tokens || n == 0) return false;
    for (size_t i = 0; i < n; i++) n_tops += (size_t)ev->tokens[i].n_top;
    int32_t *tokens = arena_new(&j->scratch, int32_t, n), *counts = arena_new(&j->scratch, int32_t, n);
    int32_t *top_tokens = arena_new(&j->scratch, int32_t, n_tops + 1);
    float *logprobs = arena_new(&j->scratch, float, n), *top_logprobs = arena_new(&j->scratch, float, n_tops + 1);
    for (size_t i = 0; i < n; i++) {
        tokens[i] = ev->tokens[i].id;
        counts[i] = ev->tokens[i].n_top;
        logprobs[i] = ev->tokens[i].logprob;
    }
    for (size_t i = 0; i < n_tops; i++) {
        top_tokens[i] = ev->tops[i].token;
        top_logprobs[i] = ev->tops[i].logprob;
    }
    j->last.kind = MLXCEL_EVENT_TOKENS;
    j->last.tokens = tokens;
    j->last.n_tokens = n;
    j->last.n_tops = counts;
    j->last.top_tokens = top_tokens;
    j->last.top_logprobs = top_logprobs;
    if (j->wants_logprobs) j->last.logprobs = logprobs;
    return true;
}

/* The next piece of text that says something. */
static bool put_piece(struct mlxcel_job *j) {
    static const int32_t kinds[] = {[OUTPUT_CONTENT] = MLXCEL_EVENT_TEXT,      [OUTPUT_REASONING] = MLXCEL_EVENT_REASONING,
                                    [OUTPUT_CALL] = MLXCEL_EVENT_CALL,         [OUTPUT_ARGUMENTS] = MLXCEL_EVENT_ARGUMENTS,
                                    [OUTPUT_CALL_END] = MLXCEL_EVENT_CALL_END, [OUTPUT_CALL_CUT] = MLXCEL_EVENT_CALL_END};
    const struct output_pieces *all = j->events.pieces;
    while (j->i_piece < all->n) {
        const struct output_piece *p = &all->p[j->i_piece++];
        struct str text = output_piece_text(all, p);
        bool is_text = p->kind == OUTPUT_CONTENT || p->kind == OUTPUT_REASONING || p->kind == OUTPUT_ARGUMENTS;
        if (is_text && text.n == 0) continue;
        j->last.kind = kinds[p->kind];
        j->last.call = p->call < 0 ? 0 : p->call;
        put_text(j, text);
        if (p->kind == OUTPUT_CALL) j->last.id = str_cstr(&j->scratch, output_piece_id(all, p));
        return true;
    }
    return false;
}

static bool put_end(struct mlxcel_job *j) {
    const struct job_events *ev = &j->events;
    j->has_events = false;
    if (!ev->finish) return false;
    _Static_assert(MLXCEL_FINISH_STOP == (int)JOB_STOP && MLXCEL_FINISH_ERROR == (int)JOB_ERROR, "in the engine's order");
    j->last.kind = MLXCEL_EVENT_END;
    j->last.finish = (int32_t)ev->finish;
    j->last.stopped_by = ev->stopped_by;
    if (ev->finish == JOB_ERROR) {
        j->last.code = ev->err.code;
        put_text(j, str_of(ev->err.msg));
    }
    j->is_over = true;
    return true;
}

/* What is taken at once comes out in this order. */
static bool (*const parts[])(struct mlxcel_job *j) = {put_progress, put_tokens, put_piece, put_end};
enum { PART_PIECE = 2, PART_END = 3 };

bool lib_job_next(struct mlxcel_job *j) {
    if (j->is_over) return true;
    if (!j->has_events && !j->is_ready) return false;
    if (!j->has_events) {
        take(j, &j->events);
        j->has_events = true;
        j->part = 0;
        j->i_piece = 0;
    }
    arena_reset(&j->scratch);
    mlxcel_event_init(&j->last, sizeof j->last);
    put_usage(j);
    while (j->part <= PART_END) {
        bool has = parts[j->part](j);
        if (!has || j->part != PART_PIECE) j->part++;
        if (has) return true;
    }
    return lib_job_next(j); /* there may be more already */
}

/* ---- waiting ------------------------------------------------------------------------------------------------------------ */

/* When a wait of so many milliseconds is over; 0: never. */
static uint64_t deadline_of(int32_t timeout_ms) {
    return timeout_ms < 0 ? 0 : os_clock_ns() + (uint64_t)timeout_ms * 1000000 + 1;
}

/* With the lock held: until the engine has events; false: the time has passed. */
static bool wait_ready(struct mlxcel_job *j, uint64_t deadline_ns) {
    while (!j->is_ready)
        if (!lib_job_await(j, deadline_ns)) return false;
    return true;
}

int lib_tokens_check(const struct mlxcel_model *m, const char *function, const int32_t *tokens, size_t n, size_t least, struct err *err) {
    if (!m || !tokens) return err_set(err, ERR_EARG, "%s: the model or the tokens are NULL", function);
    if (n < least) return err_set(err, ERR_EARG, "%s needs %zu token%s at least", function, least, least > 1 ? "s" : "");
    if (n > INT32_MAX) return err_set(err, ERR_ELIMIT, "%s: %zu tokens are too many", function, n);
    return lib_events_check(function, err);
}

int lib_job_wait(struct mlxcel_job *j, struct job_events *out, struct err *err) {
    os_mutex_lock(j->model->lock);
    do {
        wait_ready(j, 0);
        take(j, out);
    } while (!out->finish);
    os_mutex_unlock(j->model->lock);
    switch (out->finish) {
    case JOB_ERROR: return err_set(err, out->err.code, "%s", out->err.msg);
    case JOB_CANCELLED: return err_set(err, ERR_ECANCELLED, "the job was cancelled");
    case JOB_DEADLINE: return err_set(err, ERR_ECANCELLED, "the job took longer than its deadline allows");
    default: return ERR_OK;
    }
}

static int next(mlxcel_job *j, int32_t timeout_ms, mlxcel_event *event, struct err *err) {
    if (!j) return err_set(err, ERR_EARG, "mlxcel_next: the job is NULL");
    if (j->on_event) return err_set(err, ERR_EARG, "mlxcel_next: the job has a callback, which gets its events");
    TRY(lib_events_check("mlxcel_next", err));
    uint64_t deadline = deadline_of(timeout_ms);
    os_mutex_lock(j->model->lock);
    bool has = lib_job_next(j);
    while (!has && wait_ready(j, deadline)) has = lib_job_next(j);
    os_mutex_unlock(j->model->lock);
    mlxcel_event none;
    mlxcel_event_init(&none, sizeof none);
    return lib_struct_write(event, has ? &j->last : &none, sizeof none, "mlxcel_event", err);
}

int32_t mlxcel_next(mlxcel_job *job, int32_t timeout_ms, mlxcel_event *event, mlxcel_error *error) {
    struct err err = {0};
    return lib_result(error, next(job, timeout_ms, event, &err), &err);
}
