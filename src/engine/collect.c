/* The results of a step: rows are handed on, tokens chosen, jobs ended. */
#include "engine/engine_internal.h"

#include <math.h>

/* ---- tokens ----------------------------------------------------------------------------------------------------------- */

/* Whether the step brought the row that a job's next token is chosen from. */
static bool chooses(const struct job *j) {
    return j->n_wanted > 0 && j->spec.rows != ROWS_HIDDEN && j->n_limit > j->spec.n_tokens && j->seq.n_done + j->n_rows == j->seq.n_tokens;
}

static const float *last_row(const struct engine *e, const struct job *j) {
    return e->logits + (int64_t)(j->i_wanted + j->n_wanted - 1) * e->runner.model->spec.vocab;
}

static void choose_items(void *ctx, int64_t first, int64_t last, int32_t worker) {
    struct engine *e = ctx;
    mem_guard_begin("choosing a token");
    for (int64_t i = first; i < last; i++) {
        struct job *j = e->choosing[i];
        struct sampler_input in = {.logits = last_row(e, j),
                                   .history = j->seq.tokens,
                                   .n_history = j->seq.n_tokens,
                                   .n_prompt = j->spec.n_tokens,
                                   .breakers = j->breakers,
                                   .state = &j->state};
        j->token = sampler_choose(e->works[worker], &j->spec.sampling, &in, &j->result, &j->why);
    }
    mem_guard_end();
}

static void make_works(struct engine *e) {
    const struct device *d = e->runner.backend->device;
    if (e->works) return;
    e->n_works = d->type->each ? d->type->n_workers(d) : 1;
    e->works = mem_alloc((size_t)e->n_works * sizeof *e->works);
    for (int32_t i = 0; i < e->n_works; i++) e->works[i] = sampler_work_create(e->runner.model->spec.vocab);
}

/* Tokens of all jobs; those that are more than the largest logit by all workers at once. */
static void choose_all(struct engine *e) {
    struct device *d = e->runner.backend->device;
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        struct job *j = e->running[i];
        if (!j->n_rows || !chooses(j)) continue;
        if (!sampler_is_plain(&j->spec.sampling)) {
            e->choosing[n++] = j;
            continue;
        }
        j->token = e->best[j->i_wanted + j->n_wanted - 1];
        if (j->token < 0) err_set(&j->why, ERR_EDEVICE, "the model gave no finite logits");
    }
    if (n == 0) return;
    make_works(e);
    if (n > 1 && d->type->each) d->type->each(d, n, choose_items, e);
    else choose_items(e, 0, n, 0);
}

static bool is_eos(const struct engine *e, const struct job *j, int32_t token) {
    for (int32_t i = 0; i < e->options.n_eos && !j->spec.ignore_eos; i++)
        if (e->options.eos[i] == token) return true;
    return false;
}

/* The chosen token goes out; how the job ends by it, if it does. */
static enum job_finish take_token(struct engine *e, struct job *j) {
    if (j->token < 0) return JOB_ERROR;
    bool eos = is_eos(e, j, j->token);
    sequence_append(&j->seq, j->token);
    if (job_put_token(j, j->token, eos) || eos) return JOB_STOP;
    if (j->seq.n_tokens >= j->n_limit) return JOB_LENGTH;
    return j->is_full ? JOB_CANCELLED : JOB_GOES_ON;
}

/* ---- rows of the prompt ----------------------------------------------------------------------------------------------- */

static void add_states(const struct engine *e, struct job *j) {
    int32_t width = engine_width(e);
    const float *rows = e->hidden + (int64_t)j->i_wanted * width;
    for (int32_t i = 0; i < j->n_wanted; i++)
        for (int32_t k = 0; k < width; k++) j->sum[k] += (double)rows[(int64_t)i * width + k];
}

/* The sum of the states becomes a vector of length 1. */
static enum job_finish normalize(const struct engine *e, struct job *j) {
    int32_t width = engine_width(e);
    double square = 0;
    for (int32_t i = 0; i < width; i++) square += j->sum[i] * j->sum[i];
    if (!isfinite(square) || square <= 0) {
        err_set(&j->why, ERR_EDEVICE, "the model gave no finite states");
        return JOB_ERROR;
    }
    double scale = 1 / sqrt(square);
    for (int32_t i = 0; i < width; i++) j->vector[i] = (float)(j->sum[i] * scale);
    return JOB_STOP;
}

/* Rows of this step that were wanted for themselves. */
static void hand_rows(struct engine *e, struct job *j) {
    int32_t end = j->seq.n_done + j->n_rows, first = end - j->n_wanted;
    if (j->spec.rows == ROWS_NONE || j->n_wanted == 0 || end > j->spec.n_tokens) return;
    if (j->spec.rows == ROWS_HIDDEN) add_states(e, j);
    int32_t n_old = j->n_seen > first ? j->n_seen - first : 0; /* handed on before a preemption */
    if (j->spec.rows == ROWS_LOGITS && n_old < j->n_wanted)
        j->spec.on_rows(j->spec.rows_user, first + n_old, j->n_wanted - n_old,
                        e->logits + (int64_t)(j->i_wanted + n_old) * e->runner.model->spec.vocab);
    j->n_seen = end;
}

/* ---- the whole step --------------------------------------------------------------------------------------------------- */

/* What the host needs of the step: logits only where somebody looks at more than the largest. */
static int read_results(struct engine *e, struct err *err) {
    struct runner *r = &e->runner;
    bool needs_logits = false;
    e->logits = NULL;
    for (int32_t i = 0; i < e->n_running; i++) {
        const struct job *j = e->running[i];
        if (j->n_rows && j->n_wanted > 0)
            needs_logits |= j->spec.rows == ROWS_LOGITS || (chooses(j) && !sampler_is_plain(&j->spec.sampling));
    }
    if (needs_logits) TRY(runner_logits(r, &e->logits, err));
    if (r->batch.step.n_logits) TRY(runner_best(r, e->best, err));
    if (r->batch.n_hidden == 0) return ERR_OK;
    if (!e->hidden) e->hidden = mem_alloc((size_t)r->limits.rows * (size_t)engine_width(e) * sizeof *e->hidden);
    return runner_hidden(r, e->hidden, err);
}

/* Whether the prompt was all that the job wanted, and it is read. */
static bool is_read(const struct job *j) {
    return j->seq.n_done == j->spec.n_tokens && j->n_limit <= j->spec.n_tokens;
}

static enum job_finish collect_job(struct engine *e, struct job *j) {
    bool has_token = chooses(j), was_reading = j->seq.n_done < j->spec.n_tokens;
    hand_rows(e, j);
    sequence_advance(&j->seq, &e->runner.kv, j->n_rows);
    if (e->prefix && (j->seq.n_done == j->seq.n_prompt || j->seq.n_done == prefix_pause(e->prefix, &j->seq)))
        prefix_keep(e->prefix, &j->seq);
    if (has_token) return take_token(e, j);
    if (is_read(j)) return j->spec.rows == ROWS_HIDDEN ? normalize(e, j) : JOB_STOP;
    if (was_reading && j->spec.wants_progress) job_put_progress(j);
    return JOB_GOES_ON;
}

int collect_step(struct engine *e, struct err *err) {
    TRY(read_results(e, err));
    choose_all(e);
    for (int32_t i = 0; i < e->n_running;) {
        struct job *j = e->running[i];
        enum job_finish finish = j->n_rows ? collect_job(e, j) : JOB_GOES_ON;
        if (finish) schedule_end(e, j, finish, finish == JOB_ERROR ? &j->why : NULL);
        else i++;
    }
    return ERR_OK;
}

void collect_free(struct engine *e) {
    for (int32_t i = 0; i < e->n_works; i++) sampler_work_destroy(e->works[i]);
    mem_free(e->works);
    mem_free(e->hidden);
}
