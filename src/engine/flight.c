/* Steps in flight: launched, their results not yet taken.
 *
 * A device that runs ahead gets the next step before the results of the last one are read. The rows of that next step name their tokens by the
 * rows that choose them; the device looks there. A job that ends meanwhile has computed one row too many: its results are dropped. What such a row
 * wrote into the cache lies behind everything that was kept, and whoever gets the block writes it later, in the device's order.
 *
 * At launch a sequence goes on as if the step were done: its rows are counted, and a token that will be chosen has its place already, with a number
 * below 0 in it. When the results come, the token takes that place.
 */
#include "engine/engine_internal.h"

#include <math.h>

/* ---- launch ----------------------------------------------------------------------------------------------------------- */

/* Whether the job's next token is chosen from a row of this step. */
static bool chooses(const struct job *j, const struct flight_row *r) {
    return r->n_wanted > 0 && j->spec.rows != ROWS_HIDDEN && j->n_limit > j->spec.n_tokens &&
           j->seq.n_done + r->n_rows - r->n_drafts == j->seq.n_tokens;
}

void flight_add(struct engine *e, struct flight *f, struct job *j, struct flight_row row) {
    row.job = j;
    row.first = j->seq.n_done;
    row.chooses = chooses(j, &row);
    row.on_device = row.chooses && choose_on_device(e, j, row.n_drafts);
    row.is_open = row.chooses;
    row.i_choice = row.i_wanted + row.n_wanted - 1 - row.n_drafts;
    row.at = j->seq.n_tokens;
    row.token = -1;
    f->reads_logits |= job_wants_logits(j) || (row.chooses && !row.on_device && !j->spec.replay);
    f->reads_hidden |= j->spec.rows == ROWS_HIDDEN && row.n_wanted > 0;
    f->reads_states |= speculate_reads_states(j);
    f->rows[f->n++] = row;
}

/* Moves the sequence on as if the step were done; see above. */
static void advance(struct engine *e, struct flight_row *r) {
    struct job *j = r->job;
    j->draft.n_again = 0;
    if (r->n_drafts) {
        speculate_advance(e, r);
        return;
    }
    sequence_advance(&j->seq, &e->runner.kv, r->n_rows);
    if (e->prefix && (j->seq.n_done == j->seq.n_prompt || j->seq.n_done == prefix_pause(e->prefix, &j->seq)))
        prefix_keep(e->prefix, &j->seq);
    if (r->chooses) sequence_append(&j->seq, r->on_device ? -1 - r->i_choice : TOKEN_OF_THE_HOST);
}

int flight_launch(struct engine *e, struct flight *f, struct err *err) {
    struct runner *r = &e->runner;
    TRY(choose_prepare(e, f, err));
    f->n_logits = r->batch.step.n_logits;
    f->n_hidden = r->batch.n_hidden;
    mem_guard_begin("engine step");
    int code = speculate_launch(e, f, err);
    if (!code) code = runner_run(r, err);
    mem_guard_end();
    for (int32_t i = 0; i < f->n && !code; i++) advance(e, &f->rows[i]);
    e->live.n_steps++;
    e->live.n_step_jobs += f->n;
    return code;
}

void flight_forget(struct engine *e, const struct job *j) {
    for (int32_t k = 0; k < e->n_flights; k++)
        for (int32_t i = 0; i < e->flights[k]->n; i++)
            if (e->flights[k]->rows[i].job == j) e->flights[k]->rows[i].job = NULL;
}

/* ---- rows of the prompt ----------------------------------------------------------------------------------------------- */

/* first: the position of the first row that is wanted. */
static void add_states(const struct engine *e, const struct flight_row *r, int32_t first) {
    int32_t width = engine_width(e);
    const struct job_spec *s = &r->job->spec;
    const float *rows = e->hidden + (int64_t)r->i_wanted * width;
    if (s->pooling == POOL_NONE) memcpy(r->job->vectors + (int64_t)first * width, rows, (size_t)r->n_wanted * (size_t)width * sizeof *rows);
    else pool_add(&r->job->pooled, s->pooling, rows, width, first, r->n_wanted, s->n_skip);
}

/* Hidden states that are handed out without pooling must be finite, too. */
static bool are_finite(const float *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

static enum job_finish finish_vector(const struct engine *e, struct job *j) {
    int32_t width = engine_width(e);
    bool ok = j->spec.pooling == POOL_NONE ? are_finite(j->vectors, (int64_t)width * job_n_vectors(j))
                                           : pool_finish(&j->pooled, j->spec.pooling, width, j->spec.head, j->scratch, j->vectors);
    if (ok) return JOB_STOP;
    err_set(&j->why, ERR_EDEVICE, "the model gave no finite states");
    return JOB_ERROR;
}

/* Hands out the logits or hidden states of prompt rows that the job asked for. */
static void hand_rows(struct engine *e, const struct flight_row *r) {
    struct job *j = r->job;
    int32_t end = r->first + r->n_rows, first = end - r->n_wanted;
    if (j->spec.rows == ROWS_NONE || r->n_wanted == 0 || end > j->spec.n_tokens) return;
    if (j->spec.rows == ROWS_HIDDEN) add_states(e, r, first);
    int32_t n_old = j->n_seen > first ? j->n_seen - first : 0; /* handed on before a preemption */
    if (job_wants_logits(j) && n_old < r->n_wanted) {
        const float *logits = e->logits + (int64_t)(r->i_wanted + n_old) * e->runner.model->spec.vocab;
        if (j->spec.rows == ROWS_SCORES) choose_scores(e, j, first + n_old, r->n_wanted - n_old, logits);
        else j->spec.on_rows(j->spec.rows_user, first + n_old, r->n_wanted - n_old, logits);
    }
    j->n_seen = end;
}

/* ---- results ---------------------------------------------------------------------------------------------------------- */

/* What the host needs of the step. `age`: steps that were launched since. */
static int read_results(struct engine *e, const struct flight *f, int32_t age, struct err *err) {
    struct runner *r = &e->runner;
    e->logits = NULL;
    if (f->reads_logits) TRY(runner_logits(r, &e->logits, err));
    if (f->n_logits) TRY(runner_chosen(r, age, f->n_logits, e->chosen, err));
    if (!f->reads_hidden) return ERR_OK;
    if (!e->hidden) e->hidden = mem_alloc((size_t)r->limits.rows * (size_t)engine_width(e) * sizeof *e->hidden);
    return runner_hidden(r, e->hidden, err);
}

static bool is_eos(const struct engine *e, const struct job *j, int32_t token) {
    for (int32_t i = 0; i < e->options.n_eos && !j->spec.ignore_eos; i++)
        if (e->options.eos[i] == token) return true;
    for (int32_t i = 0; i < j->spec.n_end_tokens; i++)
        if (j->spec.end_tokens[i] == token) return true;
    return false;
}

/* Takes back a token that the device chose before the constraint began, and that the constraint does not allow. The row that it was chosen from is
 * computed again. Where the cache cannot go back (windows, recurrent state), the whole sequence is computed again. */
static enum job_finish take_back(struct engine *e, const struct flight_row *r) {
    struct job *j = r->job;
    const struct kv_layout *layout = &e->runner.kv.layout;
    bool can_go_back = layout->n_states == 0;
    for (int32_t c = 0; c < kv_token_classes(layout); c++) can_go_back &= layout->classes[c].window == 0;
    if (j->bound.refused == r->at) {
        err_set(&j->why, ERR_EDEVICE, "the device chose a token that the grammar does not allow");
        return JOB_ERROR;
    }
    j->bound.refused = r->at;
    j->seq.n_tokens = r->at;
    choose_end(e, j); /* its tables have counted what was not said */
    if (can_go_back) j->seq.n_done = r->at - 1;
    else sequence_drop(&j->seq, &e->runner.kv);
    return JOB_GOES_ON;
}

/* Appends tokens that nobody chose: those that end reasoning after its limit, or text that the grammar leaves no alternative to. */
static enum job_finish put_forced(struct engine *e, struct job *j, const struct tok_ids *ids) {
    for (size_t i = 0; i < ids->n; i++) {
        if (j->seq.n_tokens >= j->n_limit && !shift_job(e, j)) return JOB_LENGTH;
        enum bound_says says = bound_take(j, ids->p[i]);
        sequence_append(&j->seq, ids->p[i]);
        j->result = (struct sampler_result){0};
        if (job_put_token(j, ids->p[i], false) || says == BOUND_ENDS) return JOB_STOP;
    }
    choose_end(e, j);
    bound_look(j);
    return j->seq.n_tokens >= j->n_limit && !shift_job(e, j) ? JOB_LENGTH : JOB_GOES_ON;
}

/* Appends forced text without running the model for it. If log-probabilities are wanted, the model runs for each token, with a mask that allows that
 * token alone: the answer is the same. */
static enum job_finish jump(struct engine *e, struct job *j) {
    bound_force(j);
    if (j->spec.sampling.n_top >= 0 || !bound_is_forced(j)) return JOB_GOES_ON;
    enum job_finish finish = put_forced(e, j, &j->bound.next);
    j->bound.next.n = 0;
    return finish;
}

/* The chosen token goes out; how the job ends by it, if it does. */
static enum job_finish take_token(struct engine *e, const struct flight_row *r) {
    struct job *j = r->job;
    if (r->token < 0) return JOB_ERROR;
    enum bound_says says = bound_take(j, r->token);
    if (says == BOUND_REFUSES) return take_back(e, r);
    bool eos = is_eos(e, j, r->token);
    j->seq.tokens[r->at] = r->token;
    if (job_put_token(j, r->token, eos) || eos || says == BOUND_ENDS) return JOB_STOP;
    bound_look(j);
    bool is_last = j->seq.n_tokens == r->at + 1; /* no later token has been asked for */
    if (r->at + 1 >= j->n_limit && !shift_job(e, j)) return JOB_LENGTH;
    if (job_thinks_too_long(j)) return put_forced(e, j, &j->closing);
    if (is_last && bound_holds(j) && !bound_is_forced(j)) {
        enum job_finish finish = jump(e, j);
        if (finish) return finish;
    }
    return j->is_full ? JOB_CANCELLED : JOB_GOES_ON;
}

static enum job_finish collect_row(struct engine *e, const struct flight_row *r) {
    struct job *j = r->job;
    int32_t end = r->first + r->n_rows;
    hand_rows(e, r);
    if (r->first < j->spec.n_tokens && j->spec.wants_progress && j->n_forgotten == 0) job_put_progress(j);
    if (r->chooses) return take_token(e, r);
    if (end < j->spec.n_tokens || j->n_limit > j->spec.n_tokens) return JOB_GOES_ON;
    if (j->spec.cache == CACHE_SAVE) return prompt_cache_collect(e, j);
    return j->spec.rows == ROWS_HIDDEN ? finish_vector(e, j) : j->spec.rows == ROWS_SCORES ? JOB_LENGTH : JOB_STOP;
}

/* One token of a row at most; the row stays open where a draft brings another. */
static int collect_token(struct engine *e, struct flight_row *r, struct err *err) {
    struct job *j = r->job;
    if (r->n_drafts) speculate_compare(e, r);
    enum job_finish finish = collect_row(e, r);
    if (finish) {
        schedule_end(e, j, finish, finish == JOB_ERROR ? &j->why : NULL);
        return ERR_OK;
    }
    r->is_open = speculate_goes_on(e, r);
    return r->is_open ? ERR_OK : speculate_settle(e, r, err);
}

/* Every job's first token, then the second of those whose draft has come true so far, and so on: so threads choose for all jobs at once. */
int flight_collect(struct engine *e, struct flight *f, int32_t age, struct err *err) {
    TRY(read_results(e, f, age, err));
    for (bool is_first = true, any = true; any; is_first = false) {
        choose_tokens(e, f);
        any = false;
        for (int32_t i = 0; i < f->n; i++) {
            struct flight_row *r = &f->rows[i];
            if (!r->job || !(r->is_open || is_first)) continue; /* it ended while the step ran, or has all its tokens */
            TRY(collect_token(e, r, err));
            any |= r->job && r->is_open;
        }
    }
    return e->runner.model->taps.n ? speculate_observe(e, f, err) : ERR_OK;
}
