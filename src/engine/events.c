/* Events: tokens and text into a job's mailbox on the turning thread, out of it on the owner's.
 *
 * A job ends in three acts: its last event (finish), the turning thread forgets it (is_done), the owner lets it go (is_released). Whoever
 * comes last destroys it; the lock tells who that is.
 */
#include "engine/engine_internal.h"

/* ---- the turning thread ----------------------------------------------------------------------------------------------- */

static void *grow(void *p, size_t need, size_t *capacity, size_t size) {
    if (need <= *capacity) return p;
    *capacity = need < 32 ? 32 : need * 2;
    return mem_realloc(p, *capacity * size);
}

static void put_token(struct token_list *l, int32_t id, const struct sampler_result *r) {
    l->p = grow(l->p, l->n + 1, &l->capacity, sizeof *l->p);
    l->p[l->n++] = (struct job_token){id, r->logprob, r->n_top};
    l->tops = grow(l->tops, l->n_tops + (size_t)r->n_top, &l->tops_capacity, sizeof *l->tops);
    for (int32_t i = 0; i < r->n_top; i++) l->tops[l->n_tops++] = r->top[i];
}

/* With the lock held. */
static void mark_ready(struct job *j) {
    struct engine *e = j->engine;
    if (j->is_ready || j->is_released) return;
    j->is_ready = true;
    j->next_ready = NULL;
    *e->ready_end = j;
    e->ready_end = &j->next_ready;
}

/* With the lock held: what the chain gave goes into the mailbox. */
static void put_text(struct job *j) {
    struct mailbox *b = &j->mailboxes[j->i_mailbox];
    output_pieces_append(&b->pieces, &j->pieces);
    output_pieces_clear(&j->pieces);
    if (j->n_pending > MAILBOX_TOKENS_MAX || b->pieces.text.n > MAILBOX_BYTES_MAX) j->is_full = true;
}

/* With the lock held. */
static void put_usage(struct job *j) {
    j->usage.n_cached = j->n_cached;
    j->usage.n_forgotten = j->n_forgotten;
    j->usage.n_drafted = j->draft.n_drafted;
    j->usage.n_accepted = j->draft.n_accepted;
    if (j->n_forgotten == 0) j->usage.n_read = j->seq.n_done < j->spec.n_tokens ? j->seq.n_done : j->spec.n_tokens;
    if (!j->first_ns) return;
    j->usage.prompt_seconds = (double)(j->first_ns - j->submit_ns) * 1e-9;
    j->usage.new_seconds = (double)(j->last_ns - j->first_ns) * 1e-9;
}

static bool ends_a_call(const struct output_pieces *o) {
    for (size_t i = 0; i < o->n; i++)
        if (o->p[i].kind == OUTPUT_CALL_END) return true;
    return false;
}

bool job_put_token(struct job *j, int32_t token, bool is_eos) {
    struct os_mutex *lock = j->engine->lock;
    bool stops = j->spec.wants_text && !is_eos && chain_push(&j->chain, token, &j->pieces);
    bool thinks = j->spec.wants_text && chain_is_reasoning(&j->chain);
    if (j->spec.one_call && ends_a_call(&j->pieces)) stops = true;
    stats_token(j);
    os_mutex_lock(lock);
    put_text(j);
    put_usage(j);
    j->usage.n_new++;
    j->usage.n_reasoning += thinks;
    j->n_pending++;
    if (!is_eos) put_token(&j->mailboxes[j->i_mailbox].tokens, token, &j->result);
    mark_ready(j);
    os_mutex_unlock(lock);
    return stops;
}

void job_put_score(struct job *j, int32_t token, const struct sampler_result *r) {
    os_mutex_lock(j->engine->lock);
    put_token(&j->mailboxes[j->i_mailbox].scores, token, r);
    os_mutex_unlock(j->engine->lock);
}

void job_put_progress(struct job *j) {
    struct os_mutex *lock = j->engine->lock;
    os_mutex_lock(lock);
    struct mailbox *b = &j->mailboxes[j->i_mailbox];
    put_usage(j);
    b->reads = grow(b->reads, b->n_reads + 1, &b->reads_capacity, sizeof *b->reads);
    b->reads[b->n_reads++] = j->usage.n_read;
    mark_ready(j);
    os_mutex_unlock(lock);
}

/* With the lock held: the turning thread will not look at the job again, unless it stands among the orders. True: nobody will. */
static bool forget(struct job *j) {
    struct engine *e = j->engine;
    j->is_done = true;
    e->n_held--;
    e->n_further -= j->is_further;
    return j->is_released && !j->is_ordered;
}

void job_unlist(struct job *j) {
    struct engine *e = j->engine;
    if (j->newer) j->newer->older = j->older;
    else e->newest = j->older;
    if (j->older) j->older->newer = j->newer;
}

void job_put_end(struct job *j, enum job_finish finish, const struct err *why) {
    struct engine *e = j->engine;
    if (j->spec.wants_text && j->spec.max_new != 0 && finish != JOB_ERROR) chain_flush(&j->chain, finish == JOB_LENGTH, &j->pieces);
    stats_end(j, finish);
    os_mutex_lock(e->lock);
    put_text(j);
    put_usage(j);
    j->finish = finish;
    if (why) j->err = *why;
    mark_ready(j);
    bool gone = forget(j);
    if (gone) job_unlist(j);
    os_mutex_unlock(e->lock);
    if (gone) job_destroy(j);
}

/* ---- the owner -------------------------------------------------------------------------------------------------------- */

struct job *engine_next_ready(struct engine *e) {
    os_mutex_lock(e->lock);
    struct job *j = e->ready;
    if (j) {
        e->ready = j->next_ready;
        if (!e->ready) e->ready_end = &e->ready;
        j->is_ready = false;
    }
    os_mutex_unlock(e->lock);
    return j;
}

void job_take(struct job *j, struct job_events *out) {
    os_mutex_lock(j->engine->lock);
    struct mailbox *full = &j->mailboxes[j->i_mailbox], *empty = &j->mailboxes[j->i_mailbox ^= 1];
    output_pieces_clear(&empty->pieces);
    empty->tokens.n = empty->tokens.n_tops = empty->scores.n = empty->scores.n_tops = empty->n_reads = 0;
    j->n_pending = 0;
    *out = (struct job_events){.pieces = &full->pieces,
                               .tokens = full->tokens.p,
                               .n_tokens = full->tokens.n,
                               .tops = full->tokens.tops,
                               .scores = full->scores.p,
                               .n_scores = full->scores.n,
                               .score_tops = full->scores.tops,
                               .reads = full->reads,
                               .n_reads = full->n_reads,
                               .finish = j->finish,
                               .stopped_by = j->finish == JOB_STOP ? chain_stopped_by(&j->chain) : -1,
                               .err = j->err,
                               .usage = j->usage,
                               .vectors = j->finish == JOB_STOP ? j->vectors : NULL,
                               .n_vectors = job_n_vectors(j),
                               .saved = j->finish == JOB_STOP ? j->saved : NULL,
                               .n_saved = j->finish == JOB_STOP ? j->n_saved : 0};
    os_mutex_unlock(j->engine->lock);
}

/* With the lock held: the turning thread is to end the job. */
static void order_end(struct job *j) {
    struct engine *e = j->engine;
    j->wants_cancel = true;
    if (j->is_ordered || j->is_done) return;
    j->is_ordered = true;
    j->next_order = e->orders;
    e->orders = j;
    os_cond_signal(e->wake);
}

void job_cancel(struct job *j) {
    struct engine *e = j->engine;
    os_mutex_lock(e->lock);
    order_end(j);
    os_mutex_unlock(e->lock);
}

/* With the lock held. */
static void unlink_ready(struct job *j) {
    struct engine *e = j->engine;
    if (!j->is_ready) return;
    struct job **p = &e->ready;
    while (*p != j) p = &(*p)->next_ready;
    *p = j->next_ready;
    if (e->ready_end == &j->next_ready) e->ready_end = p;
    j->is_ready = false;
}

void job_release(struct job *j) {
    struct engine *e = j->engine;
    os_mutex_lock(e->lock);
    unlink_ready(j);
    j->is_released = true;
    bool gone = j->is_done && !j->is_ordered;
    if (gone) job_unlist(j);
    else order_end(j);
    os_mutex_unlock(e->lock);
    if (gone) job_destroy(j);
}
