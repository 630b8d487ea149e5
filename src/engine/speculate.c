/* Steps with drafts: a job's row may have some behind it that hold a draft of its next tokens.
 *
 * The model's own tokens are chosen one after the other, each when all before it stand, so that grammar, samplers, stop strings and limits see what they
 * would have seen without drafts. The first row whose token is not the draft's is the last that counts. What later rows wrote into the cache lies
 * behind everything that is kept, and is written again. Recurrent state cannot be cut: it is copied before the step and put back, and the rows that counted are
 * computed once more with the next one.
 */
#include "engine/engine_internal.h"

#include "model/spec.h"

static bool is_recurrent(const struct engine *e) {
    return e->runner.kv.layout.n_states > 0;
}

/* ---- the engine's beginning and end -------------------------------------------------------------------------------------- */

enum { DRAFT_ROWS_MAX = 64 /* of a step, for all its jobs */ };

int speculate_open(struct engine *e, struct runner_limits *limits, const struct model *m, struct backend *be, struct err *err) {
    static struct drafter ngram = {&draft_ngram, 0};
    if (e->options.draft <= DRAFT_NONE || m->spec.is_encoder) return ERR_OK;
    if (be->row_more <= 0)
        return err_set(err, ERR_EUNSUPPORTED, "--draft is for the CPU and CUDA, and this runs on %s; leave it out", be->type->name);
    if (e->options.max_draft <= 0 || e->options.max_draft > DRAFT_MAX) e->options.max_draft = DRAFT_MAX;
    int32_t rows = limits->seqs * e->options.max_draft;
    if (rows > DRAFT_ROWS_MAX) rows = DRAFT_ROWS_MAX;
    if (limits->logits < limits->seqs) limits->logits = limits->seqs;
    limits->logits += rows;
    if (limits->rows < limits->seqs + rows) limits->rows = limits->seqs + rows;
    limits->drafts = true;
    bool is_recurrent = m->spec.kv.n_states > 0;
    if (is_recurrent) limits->snapshots += limits->seqs;
    e->drafters[DRAFT_NGRAM] = &ngram;
    e->asks = mem_alloc((size_t)limits->seqs * sizeof *e->asks);
    e->asking = mem_alloc((size_t)limits->seqs * sizeof(struct job *));
    return ERR_OK;
}

void speculate_close(struct engine *e) {
    for (int i = 0; i < N_DRAFTS; i++)
        if (e->drafters[i] && e->drafters[i]->type->close) e->drafters[i]->type->close(e->drafters[i]);
    mem_free(e->asks);
    mem_free(e->asking);
}

/* ---- a job's beginning and end ------------------------------------------------------------------------------------------ */

enum draft_from speculate_from(const struct engine *e, const struct job_spec *s) {
    return s->draft == DRAFT_USUAL ? e->options.draft : s->draft;
}

int speculate_check(const struct engine *e, const struct job_spec *s, struct err *err) {
    if (s->max_draft < 0 || s->max_draft > DRAFT_MAX) return err_set(err, ERR_EARG, "drafts have 0 to %d tokens", DRAFT_MAX);
    if (s->draft <= DRAFT_NONE || e->drafters[s->draft]) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "drafts of that kind are off here; --draft turns them on");
}

void speculate_begin(struct engine *e, struct job *j) {
    struct job_draft *d = &j->draft;
    enum draft_from from = speculate_from(e, &j->spec);
    d->snapshot = -1;
    d->drafter = from > DRAFT_NONE && j->n_limit > j->spec.n_tokens + 1 ? e->drafters[from] : NULL;
    if (!d->drafter) return;
    if (is_recurrent(e)) d->snapshot = kv_slot_get(&e->runner.kv);
    if (is_recurrent(e) && d->snapshot < 0) {
        d->drafter = NULL;
        return;
    }
    d->most = j->spec.max_draft ? j->spec.max_draft : e->options.max_draft;
    d->state = d->drafter->type->begin(d->drafter, j->seq.capacity, e->runner.model->spec.vocab);
    draft_pace_init(&d->pace, d->drafter->type);
}

void speculate_end(struct engine *e, struct job *j) {
    struct job_draft *d = &j->draft;
    if (!d->drafter) return;
    d->drafter->type->end(d->drafter, d->state);
    if (d->snapshot >= 0) kv_slot_put(&e->runner.kv, d->snapshot);
    d->drafter = NULL;
    d->n = 0;
}

void speculate_moved(struct job *j) {
    struct job_draft *d = &j->draft;
    if (d->drafter) d->drafter->type->settle(d->drafter, d->state, 0);
    d->n_again = 0;
}

/* ---- proposals ---------------------------------------------------------------------------------------------------------- */

/* Rows behind the next one that have the same rope tables as it. */
static int32_t rows_alike(const struct engine *e, const struct sequence *s, int32_t most) {
    const struct spec *spec = &e->runner.model->spec;
    for (int32_t i = 0; i < spec->n_ropes; i++) {
        const struct rope_spec *r = &spec->ropes[i];
        int32_t room = r->original_len - s->n_tokens; /* the next row is the last of n_tokens */
        if (r->table < 0 || (room < 0 && r->scaling == SCALE_LONGROPE)) continue;
        if (room < most) most = room < 0 ? 0 : room;
    }
    return most;
}

/* Tokens that a draft of the job may have now; *rows and *logits: what the step has room for. */
static int32_t most_for(const struct engine *e, const struct job *j, int32_t rows, int32_t logits) {
    const struct job_draft *d = &j->draft;
    int32_t most = d->most, left = j->n_limit - j->seq.n_tokens - 1; /* one more is chosen than was guessed */
    if (most > left) most = left;
    if (most > rows) most = rows;
    if (most > logits) most = logits;
    return most > 0 ? rows_alike(e, &j->seq, most) : 0;
}

/* Its next token is known, and all before it are computed, but those that have to be once more. */
static bool is_due(const struct job *j) {
    const struct sequence *s = &j->seq;
    return j->draft.drafter && s->n_done >= j->spec.n_tokens && s->n_tokens - s->n_done == 1 + j->draft.n_again &&
           s->tokens[s->n_tokens - 1] >= 0;
}

/* Asks the drafters of some jobs, one type after the other. */
static void ask(struct draft_ask *asks, struct job **jobs, int32_t n) {
    for (int32_t first = 0, end; first < n; first = end) {
        struct drafter *d = jobs[first]->draft.drafter;
        for (end = first + 1; end < n && jobs[end]->draft.drafter == d;) end++;
        d->type->propose(d, asks + first, end - first);
    }
}

static struct draft_ask ask_for(struct job *j, int32_t n_tokens, int32_t most) {
    return (struct draft_ask){.state = j->draft.state, .tokens = j->seq.tokens, .n_tokens = n_tokens, .most = most, .out = j->draft.tokens};
}

/* Rows of the next step that are there without drafts. */
static int32_t count_rows_anyway(const struct engine *e) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_running; i++)
        n += e->running[i]->seq.n_done >= e->running[i]->spec.n_tokens ? 1 + e->running[i]->draft.n_again : 0;
    return n;
}

/* What the backend knows of its rows, which may change while it works. Rows of a state are computed again. */
static struct draft_cost cost_of(const struct engine *e, const struct job_draft *d) {
    const struct backend *be = e->runner.backend;
    return (struct draft_cost){be->row_first, be->row_more * (is_recurrent(e) ? 2 : 1) + d->drafter->cost};
}

/* Where the device runs ahead, the length was chosen when the job decided to wait for its token. */
static int32_t length_of(const struct engine *e, struct job_draft *d, int32_t n_rows, int32_t most) {
    struct draft_cost cost = cost_of(e, d);
    if (!e->runner.backend->runs_ahead) return draft_pace_length(&d->pace, d->kind, &cost, n_rows, most);
    return d->n_hoped < most ? d->n_hoped : most;
}

void speculate_propose(struct engine *e) {
    const struct runner_limits *l = &e->runner.limits;
    int32_t n = 0, n_rows = count_rows_anyway(e), rows = l->rows - l->seqs, logits = e->n_extra;
    if (!e->asks) return;
    for (int32_t i = 0; i < e->n_running; i++) rows -= e->running[i]->draft.n_again;
    for (int32_t i = 0; i < e->n_running; i++) {
        struct job *j = e->running[i];
        j->draft.n = 0;
        if (!is_due(j)) continue;
        int32_t most = most_for(e, j, rows, logits);
        if (j->draft.drafter->type->is_dear && most > 0) most = length_of(e, &j->draft, n_rows, most);
        if (most <= 0) continue;
        e->asks[n] = ask_for(j, j->seq.n_tokens, most);
        e->asking[n++] = j;
    }
    ask(e->asks, e->asking, n);
    for (int32_t i = 0; i < n; i++) {
        struct job_draft *d = &e->asking[i]->draft;
        int32_t most = e->asks[i].n;
        if (most > rows) most = rows;
        if (most > logits) most = logits;
        if (most <= 0) continue;
        d->kind = e->asks[i].kind;
        d->n = d->drafter->type->is_dear ? most : length_of(e, d, n_rows, most);
        rows -= d->n;
        logits -= d->n;
    }
}

/* Whether the job should wait for its next token, because a draft may follow it: a device that runs ahead would not. */
static void look_ahead(struct engine *e, struct job *j, int32_t n_known) {
    struct job_draft *d = &j->draft;
    d->n_hoped = 0;
    if (!e->runner.backend->runs_ahead || !d->drafter || n_known < j->spec.n_tokens || n_known > j->seq.n_tokens) return;
    struct draft_cost cost = cost_of(e, d);
    struct draft_ask a = ask_for(j, n_known, d->most);
    if (d->drafter->type->is_dear) {
        d->n_hoped = draft_pace_length(&d->pace, 0, &cost, count_rows_anyway(e), d->most);
        return;
    }
    d->drafter->type->propose(d->drafter, &a, 1);
    if (a.n > 0) d->n_hoped = draft_pace_length(&d->pace, a.kind, &cost, count_rows_anyway(e), a.n);
}

/* ---- a step ------------------------------------------------------------------------------------------------------------- */

int speculate_launch(struct engine *e, const struct flight *f, struct err *err) {
    struct backend *be = e->runner.backend;
    for (int32_t i = 0; i < f->n && is_recurrent(e); i++)
        if (f->rows[i].n_drafts) TRY(be->type->slot_copy(be, f->rows[i].job->seq.slot, f->rows[i].job->draft.snapshot, err));
    return ERR_OK;
}

/* Blocks behind a window are given back when their rows cannot come again. */
static void count_rows(struct engine *e, struct job *j, int32_t n) {
    if (is_recurrent(e)) j->seq.n_done += n;
    else sequence_advance(&j->seq, &e->runner.kv, n);
}

void speculate_advance(struct engine *e, const struct flight_row *r) {
    struct job *j = r->job;
    j->draft.n_kept = 0;
    count_rows(e, j, r->n_rows - r->n_drafts);
    sequence_append(&j->seq, TOKEN_OF_THE_HOST);
}

void speculate_compare(struct engine *e, const struct flight_row *r) {
    struct job_draft *d = &r->job->draft;
    bool agrees = r->i_draft < r->n_drafts && r->token == d->tokens[r->i_draft];
    if (r->i_draft == 0) d->n_drafted += r->n_drafts, e->live.n_drafted_tokens += r->n_drafts;
    d->n_kept += agrees;
    d->n_accepted += agrees;
    e->live.n_accepted_tokens += agrees;
}

bool speculate_goes_on(struct engine *e, struct flight_row *r) {
    struct job *j = r->job;
    const struct sequence *s = &j->seq;
    if (r->i_draft >= r->n_drafts || s->n_tokens != r->at + 1 || s->n_done != r->at) return false;
    if (r->token != j->draft.tokens[r->i_draft]) return false;
    if (r->on_device && bound_holds(j)) return false; /* the device chose without a mask: that row is computed again */
    r->i_draft++;
    r->i_choice++;
    r->at++;
    count_rows(e, j, 1);
    sequence_append(&j->seq, TOKEN_OF_THE_HOST);
    return true;
}

/* The state goes back to where the step began, if not all of its rows counted. */
static int restore_state(struct engine *e, const struct flight_row *r, struct err *err) {
    struct job *j = r->job;
    struct backend *be = e->runner.backend;
    if (!is_recurrent(e) || j->seq.n_done != r->at) return ERR_OK; /* it was dropped, and begins anew */
    if (r->i_draft == r->n_drafts) {
        sequence_advance(&j->seq, &e->runner.kv, 0);
        return ERR_OK;
    }
    j->seq.n_done = r->first;
    j->draft.n_again = r->at - r->first;
    return be->type->slot_copy(be, j->draft.snapshot, j->seq.slot, err);
}

int speculate_settle(struct engine *e, const struct flight_row *r, struct err *err) {
    struct job *j = r->job;
    struct job_draft *d = &j->draft;
    if (!d->drafter || !r->chooses) return ERR_OK;
    if (r->n_drafts) {
        draft_pace_count(&d->pace, d->kind, r->n_drafts, d->n_kept);
        d->drafter->type->settle(d->drafter, d->state, j->seq.n_tokens);
        TRY(restore_state(e, r, err));
    }
    look_ahead(e, j, r->at + 1);
    return ERR_OK;
}

/* ---- states ------------------------------------------------------------------------------------------------------------- */

static const struct draft_type *observer_of(const struct job *j) {
    return j && j->draft.drafter && j->draft.drafter->type->observe ? j->draft.drafter->type : NULL;
}

bool speculate_reads_states(const struct job *j) {
    return observer_of(j) != NULL;
}

/* Rows that were computed from tokens that stand, and whose next token is known. */
static int32_t count_standing(const struct flight_row *r) {
    const struct sequence *s = &r->job->seq;
    int32_t end = r->first + r->n_rows;
    if (end > s->n_done) end = s->n_done;
    if (end > s->n_tokens - 1) end = s->n_tokens - 1;
    return end - r->first;
}

int speculate_observe(struct engine *e, const struct flight *f, struct err *err) {
    struct runner *r = &e->runner;
    const float *taps[STATE_TAPS];
    bool is_read = false;
    for (int32_t i = 0; i < f->n; i++) {
        const struct draft_type *type = observer_of(f->rows[i].job);
        if (!type) continue;
        if (!is_read) TRY(runner_taps(r, taps, err));
        is_read = true;
        const struct job *j = f->rows[i].job;
        struct draft_seen seen = {j->draft.state, j->seq.tokens, j->seq.n_tokens, f->rows[i].first, count_standing(&f->rows[i]), {NULL}};
        int64_t from = (int64_t)r->batch.step.seqs[i].row * r->model->spec.hidden;
        for (int32_t k = 0; k < r->model->taps.n; k++) seen.states[k] = taps[k] + from;
        if (seen.n > 0) type->observe(j->draft.drafter, &seen);
    }
    return ERR_OK;
}
