/* The schedule: which jobs have a place, which rows the next step computes, who gives way when blocks run out.
 *
 * A job waits until it is admitted, then runs until it ends or is preempted. A preempted job waits at the head of the queue.
 */
#include "engine/engine_internal.h"

/* ---- in and out ------------------------------------------------------------------------------------------------------- */

void schedule_push(struct engine *e, struct job *j) {
    j->seq.slot = -1;
    j->next = NULL;
    *e->waiting_end = j;
    e->waiting_end = &j->next;
    e->n_waiting++;
    e->live.n_prompt_tokens += j->spec.n_tokens;
}

static void remove_running(struct engine *e, struct job *j) {
    int32_t i = 0;
    while (e->running[i] != j) i++;
    memmove(&e->running[i], &e->running[i + 1], (size_t)(e->n_running - i - 1) * sizeof *e->running);
    e->n_running--;
    j->is_running = false;
}

static void remove_link(struct engine *e, struct job **link) {
    struct job *j = *link;
    *link = j->next;
    if (e->waiting_end == &j->next) e->waiting_end = link;
    e->n_waiting--;
    j->next = NULL;
}

static void remove_waiting(struct engine *e, struct job *j) {
    struct job **link = &e->waiting;
    while (*link != j) link = &(*link)->next;
    remove_link(e, link);
}

void schedule_end(struct engine *e, struct job *j, enum job_finish finish, const struct err *why) {
    if (j->is_running) remove_running(e, j);
    else remove_waiting(e, j);
    flight_forget(e, j);
    choose_end(e, j);
    if (e->prefix && j->is_placed && finish != JOB_ERROR) prefix_keep(e->prefix, &j->seq);
    int32_t n_done = j->seq.n_done;
    speculate_end(e, j);
    if (j->is_placed) sequence_free(&j->seq, &e->runner.kv);
    j->seq.n_done = n_done; /* for the job's figures */
    job_put_end(j, finish, why);
}

void schedule_end_all(struct engine *e, enum job_finish finish, const struct err *why) {
    while (e->n_running) schedule_end(e, e->running[e->n_running - 1], finish, why);
    while (e->waiting) schedule_end(e, e->waiting, finish, why);
}

/* ---- admission -------------------------------------------------------------------------------------------------------- */

/* Gives a job its sequence: tables sized for the longest it may become. */
static bool give_place(struct engine *e, struct job *j) {
    if (!sequence_init(&j->seq, &e->runner.kv, j->n_limit + 1)) return false;
    for (int32_t i = 0; i < j->spec.n_tokens; i++) sequence_append(&j->seq, j->spec.tokens[i]);
    j->seq.n_prompt = j->spec.n_tokens;
    sequence_place_pictures(&j->seq, j->spec.pictures, j->spec.n_pictures, j->spec.places);
    sequence_see(&j->seq, &e->runner.kv, j->spec.states);
    j->seq.adapters = j->spec.adapters;
    j->seq.tree = j->tree;
    j->is_placed = true;
    speculate_begin(e, j);
    j->begun_ns = os_clock_ns();
    return true;
}

static int32_t blocks_of(const struct engine *e, int32_t n_positions, int32_t c) {
    int32_t need = (n_positions + KV_BLOCK - 1) / KV_BLOCK, window = e->runner.kv.layout.classes[c].window;
    int32_t most = (window + e->runner.limits.rows) / KV_BLOCK + 2;
    return window > 0 && most < need ? most : need;
}

/* Whether there are blocks for so many positions, beside those that running prompts will still need. Admitting more jobs than that would lead to
 * preemption. */
static bool fits(const struct engine *e, int32_t n_positions) {
    for (int32_t c = 0; c < kv_token_classes(&e->runner.kv.layout); c++) {
        int64_t need = blocks_of(e, n_positions, c);
        for (int32_t i = 0; i < e->n_running; i++) {
            int32_t more = blocks_of(e, e->running[i]->seq.n_tokens + 1, c) - e->running[i]->seq.n_blocks[c];
            if (more > 0) need += more;
        }
        if (need > e->runner.kv.pools[c].n_free + e->runner.kv.pools[c].n_idle) return false;
    }
    return true;
}

/* Begins with what the prefix cache knows of the tokens: at first, and again after preemption. A prompt whose rows are wanted must compute
 * them. */
static void attach(struct engine *e, struct job *j) {
    if (!e->prefix || j->seq.n_done > 0 || j->spec.rows != ROWS_NONE || j->spec.is_fresh) return;
    bool is_saved = j->spec.cache == CACHE_SAVE;
    if (is_saved)
        sequence_append(&j->seq, TOKEN_OF_THE_HOST); /* no token is chosen behind it, so its last position may come from the cache, too */
    int32_t n = prefix_attach(e->prefix, &j->seq);
    if (is_saved) j->seq.n_tokens--;
    if (j->was_attached) return;
    j->was_attached = true;
    j->n_cached = n;
    e->live.n_cached_tokens += n;
    if (n) e->live.n_prefix_hits++;
    else e->live.n_prefix_misses++;
}

static int32_t count_group(const struct engine *e, uint64_t group) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_running; i++) n += e->running[i]->group == group;
    return n;
}

/* Who comes next: what was preempted, then the request that has the fewest jobs running, then the one that came first. So one request of many
 * jobs leaves room for others, and none waits for ever: a request that has none running is in order of arrival. */
static struct job **next_waiting(struct engine *e) {
    struct job **best = &e->waiting;
    int32_t fewest = INT32_MAX;
    if (e->waiting->is_placed) return best;
    for (struct job **p = &e->waiting; *p && fewest > 0; p = &(*p)->next) {
        int32_t n = (*p)->group ? count_group(e, (*p)->group) : 0;
        if (n >= fewest) continue;
        best = p;
        fewest = n;
    }
    return best;
}

void schedule_admit(struct engine *e) {
    while (e->waiting && e->n_running < e->runner.limits.seqs) {
        struct job **link = next_waiting(e), *j = *link;
        if (j->spec.cache > CACHE_SAVE) {
            enum job_finish finish = prompt_cache_change(e, j);
            schedule_end(e, j, finish, finish == JOB_ERROR ? &j->why : NULL);
            continue;
        }
        if (j->spec.rows == ROWS_NONE && j->spec.cache == CACHE_USED && j->n_limit <= j->spec.n_tokens) { /* nothing is wanted of it */
            schedule_end(e, j, JOB_LENGTH, NULL);
            continue;
        }
        if (e->n_running > 0 && !fits(e, (j->is_placed ? j->seq.n_tokens : j->spec.n_tokens) + 1)) return;
        if (!j->is_placed && !give_place(e, j)) return;
        remove_link(e, link);
        attach(e, j);
        j->is_running = true;
        e->running[e->n_running++] = j;
        if (j->spec.cache == CACHE_SAVE && j->seq.n_done == j->seq.n_tokens) { /* all of it is known */
            enum job_finish finish = prompt_cache_collect(e, j);
            schedule_end(e, j, finish, finish == JOB_ERROR ? &j->why : NULL);
        }
    }
}

/* ---- shortage --------------------------------------------------------------------------------------------------------- */

/* The youngest running job goes back to the head of the queue; false when `keep` is the only one. */
static bool preempt(struct engine *e, const struct job *keep) {
    struct job *j = e->running[e->n_running - 1];
    if (j == keep) return false;
    if (e->prefix) prefix_keep(e->prefix, &j->seq);
    sequence_drop(&j->seq, &e->runner.kv);
    e->n_running--;
    j->is_running = false;
    j->next = e->waiting;
    if (!e->waiting) e->waiting_end = &j->next;
    e->waiting = j;
    e->n_waiting++;
    e->live.n_preempted++;
    return true;
}

/* Blocks for n more rows; cached ones that nobody reads are given up for them. */
static bool reserve(struct engine *e, struct sequence *s, int32_t n) {
    struct kv *kv = &e->runner.kv;
    while (!sequence_reserve(s, kv, n)) {
        bool more = false;
        for (int32_t c = 0; c < kv_token_classes(&kv->layout) && e->prefix; c++)
            if ((s->n_done + n + KV_BLOCK - 1) / KV_BLOCK - s->n_blocks[c] > kv->pools[c].n_free) more |= prefix_evict(e->prefix, c);
        if (!more) return false;
    }
    return true;
}

/* ---- pictures that are looked at ---------------------------------------------------------------------------------------- */

bool schedule_lacks_states(const struct job *j) {
    return j->seq.states && !j->seq.has_states;
}

bool schedule_awaits_states(const struct engine *e) {
    bool any = false;
    for (int32_t i = 0; i < e->n_running; i++) any |= schedule_lacks_states(e->running[i]);
    return any;
}

/* A job whose states find no blocks waits for those of others; job_create has seen to it that all of them are enough for one. */
int schedule_states(struct engine *e, struct err *err) {
    for (int32_t i = 0; i < e->n_running; i++) {
        struct sequence *s = &e->running[i]->seq;
        if (!schedule_lacks_states(e->running[i]) || !sequence_reserve_states(s, &e->runner.kv)) continue;
        TRY(runner_states(&e->runner, s, err));
        s->has_states = true;
    }
    return ERR_OK;
}

/* ---- one step --------------------------------------------------------------------------------------------------------- */

/* The first of the next n rows that is wanted; n: none. Rows that were handed on before a preemption are not wanted again, but the last one
 * is, for the token that follows. */
static int32_t first_wanted(const struct job *j, int32_t n, int32_t n_drafts) {
    if (n_drafts) return n - 1 - n_drafts;
    int32_t first = j->seq.n_done + n == j->seq.n_tokens ? n - 1 : n;
    bool wants_all = job_wants_logits(j) || (j->spec.rows == ROWS_HIDDEN && j->spec.pooling != POOL_LAST);
    if (!wants_all || j->n_seen >= j->spec.n_tokens) return first;
    int32_t unseen = j->n_seen > j->seq.n_done ? j->n_seen - j->seq.n_done : 0;
    return unseen < first ? unseen : first;
}

static bool wants_hidden(const struct job *j) {
    return j->spec.rows == ROWS_HIDDEN;
}

/* Adds n rows of a job to the batch, whose blocks are there. The last n_drafts of them hold a draft of tokens behind the last. */
static void add_rows(struct engine *e, struct flight *f, struct job *j, int32_t n, int32_t n_drafts) {
    struct batch *b = &e->runner.batch;
    int32_t first = first_wanted(j, n, n_drafts);
    struct flight_row row = {
        .n_rows = n, .n_drafts = n_drafts, .i_wanted = wants_hidden(j) ? b->n_hidden : b->step.n_logits, .n_wanted = n - first};
    if (!wants_hidden(j) && row.n_wanted > 1) e->n_extra -= row.n_wanted - 1;
    for (int32_t i = 0; i < n_drafts; i++) sequence_append(&j->seq, j->draft.tokens[i]);
    batch_add(b, &j->seq, n, first, wants_hidden(j));
    j->seq.n_tokens -= n_drafts;
    flight_add(e, f, j, row);
    j->is_planned = true;
}

/* A decode row, for which others give way, and rows of a draft, for which nobody does. How many rows; 0: there are no blocks to be had. */
static int32_t add_decode_rows(struct engine *e, struct flight *f, struct job *j) {
    int32_t n = j->seq.n_tokens - j->seq.n_done, n_drafts = j->draft.n;
    while (!reserve(e, &j->seq, n))
        if (!preempt(e, j)) return 0;
    if (n_drafts && !sequence_reserve(&j->seq, &e->runner.kv, n + n_drafts)) n_drafts = 0;
    add_rows(e, f, j, n + n_drafts, n_drafts);
    return n + n_drafts;
}

/* Whether the job cannot be in the next step: the host has to choose its last token first, or that token was the last one wanted, or the mask of the
 * next token depends on it. */
static bool must_wait(const struct job *j) {
    if (schedule_lacks_states(j)) return true;
    int32_t last = j->seq.tokens[j->seq.n_tokens - 1];
    return last == TOKEN_OF_THE_HOST ||
           (last < 0 && (j->seq.n_tokens >= j->n_limit || bound_holds(j) || job_nears_close(j) || j->draft.n_hoped > 0));
}

static bool is_decoding(const struct job *j) {
    return j->seq.n_tokens - j->seq.n_done == 1 + j->draft.n_again && j->seq.n_done > 0;
}

/* Rows that see each other are in one step, or wait for one with more room. */
static int32_t whole_part(const struct engine *e, const struct job *j, int32_t n, int32_t room) {
    return n <= room && (!job_wants_logits(j) || n <= e->n_extra + 1) ? n : 0;
}

/* How many rows of a prompt the step may take. */
static int32_t chunk_of(const struct engine *e, const struct job *j) {
    const struct runner *r = &e->runner;
    int32_t n = j->seq.n_tokens - j->seq.n_done, room = r->limits.rows - r->batch.step.n_rows;
    if (r->model->spec.is_encoder) return n <= room ? n : 0; /* every row sees all others: they are in one step */
    if (r->model->is_prefix && j->seq.n_done < j->seq.n_prompt) return whole_part(e, j, j->seq.n_prompt - j->seq.n_done, room);
    if (e->options.chunk > 0 && n > e->options.chunk) n = e->options.chunk;
    bool is_watched = e->chunk > 0 && (r->backend->device->step_ms > 0 || e->live.rows_decode > 0);
    if (is_watched && n > e->chunk - e->live.rows_prefill) n = e->chunk - e->live.rows_prefill;
    if (job_wants_logits(j) && n > e->n_extra + 1) n = e->n_extra + 1;
    if (n > room) n = room;
    int32_t pause = e->prefix ? prefix_pause(e->prefix, &j->seq) : 0;
    if (j->seq.n_done < pause && pause < j->seq.n_done + n) n = pause - j->seq.n_done;
    n = sequence_rows_alike(&j->seq, &r->model->spec, e->options.exact, n);
    const struct picture_rows *cut = sequence_cut_picture(&j->seq, j->seq.n_done + n);
    if (!cut) return n;
    if (cut->first > j->seq.n_done) return cut->first - j->seq.n_done;
    return whole_part(e, j, cut->first + cut->n - j->seq.n_done, room);
}

/* A device that computes either logits or hidden states in a step does both in turn. */
static void choose_kind(struct engine *e) {
    bool any[2] = {false, false};
    if (e->runner.backend->mixes_rows) return;
    for (int32_t i = 0; i < e->n_running; i++) any[wants_hidden(e->running[i])] = true;
    e->hidden_turn = any[0] && any[1] ? !e->hidden_turn : any[1];
}

static bool has_turn(const struct engine *e, const struct job *j) {
    return e->runner.backend->mixes_rows || wants_hidden(j) == e->hidden_turn;
}

/* Decode rows first, then prompt chunks, as far as the rows last. */
static void fill_batch(struct engine *e, struct flight *f) {
    struct runner *r = &e->runner;
    batch_clear(&r->batch);
    *f = (struct flight){.rows = f->rows};
    e->live.rows_decode = e->live.rows_prefill = 0;
    e->n_extra = r->limits.logits - r->limits.seqs;
    choose_kind(e);
    for (int32_t i = 0; i < e->n_running; i++) {
        e->running[i]->is_planned = false;
        sequence_follow_rope(&e->running[i]->seq, &r->kv, &r->model->spec, e->options.exact);
    }
    speculate_propose(e);
    for (int32_t i = 0; i < e->n_running; i++) {
        struct job *j = e->running[i];
        if (is_decoding(j) && has_turn(e, j) && !must_wait(j)) e->live.rows_decode += add_decode_rows(e, f, j);
    }
    for (int32_t i = 0; i < e->n_running; i++) {
        struct job *j = e->running[i];
        if (j->is_planned || is_decoding(j) || !has_turn(e, j) || must_wait(j)) continue;
        int32_t n = chunk_of(e, j);
        if (n <= 0 || !reserve(e, &j->seq, n)) break; /* a prompt never preempts: it waits until blocks are free */
        add_rows(e, f, j, n, 0);
        e->live.rows_prefill += n;
    }
}

/* If no job can go on for want of blocks, the youngest gives way. A job that is alone and still has no room is ended: it will never have any. */
void schedule_plan(struct engine *e, struct flight *f, bool is_ahead) {
    struct job *oldest = e->running[0];
    mem_guard_begin("engine plan");
    fill_batch(e, f);
    while (f->n == 0 && !is_ahead && preempt(e, oldest)) fill_batch(e, f);
    mem_guard_end();
    if (f->n || is_ahead) return;
    struct err why;
    err_set(&why, ERR_EMEMORY, "the KV cache is too small for %d tokens", oldest->seq.n_tokens);
    schedule_end(e, oldest, JOB_ERROR, &why);
}
