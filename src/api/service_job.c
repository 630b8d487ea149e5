/* One job: its parameters copied at the border, and on the engine's thread a token's way to text, stop strings and the box. */
#include "api/service_internal.h"

#include "base/hash.h"
#include "os/os.h"

static const double first_bounds[] = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
static const double between_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5};

static void observe(struct histogram *h, const double *bounds, double value) {
    h->bounds = bounds;
    h->n_bounds = HISTOGRAM_MAX;
    int32_t i = 0;
    while (i < HISTOGRAM_MAX && value > bounds[i]) i++;
    h->counts[i]++;
    h->n++;
    h->sum += value;
}

static int copy_sampling(struct service_job *j, const struct service_request *r, struct err *err) {
    struct service *s = j->service;
    TRY(sampler_check(&r->sampling, s->info.vocab, err));
    j->sampling = r->sampling;
    struct sampler_bias *bias = arena_new(&j->arena, struct sampler_bias, r->sampling.n_bias + 1);
    for (int32_t i = 0; i < r->sampling.n_bias; i++) bias[i] = r->sampling.bias[i];
    j->sampling.bias = bias;
    j->sampling.dry_breakers = r->breakers ? sampling_breakers(s->session, &j->arena, r->breakers, r->n_breakers) : s->breakers;
    if (!r->has_seed) j->sampling.seed = hash_pair(os_clock_ns() ^ (uint64_t)os_process_id(), ++s->n_seeds);
    return stop_init(&j->stop, &j->arena, r->stops, r->n_stops, err);
}

void service_job_set_deadline(struct service_job *j, int64_t deadline_ms) {
    j->submit_ns = os_clock_ns();
    if (deadline_ms > 0) j->deadline_ns = j->submit_ns + (uint64_t)deadline_ms * 1000000;
}

static int copy_request(struct service_job *j, const struct service_request *r, struct err *err) {
    const struct service_info *info = &j->service->info;
    if (r->n_tokens < 1) return err_set(err, ERR_EARG, "the prompt is empty");
    if (r->n_tokens > info->context || (r->n_tokens == info->context && r->max_new != 0))
        return err_set(err, ERR_ELIMIT, "the prompt has %d tokens, and the model's context holds %d with the answer", r->n_tokens,
                       info->context);
    for (int32_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= info->vocab)
            return err_set(err, ERR_EARG, "token %d is outside the vocabulary of %d", r->tokens[i], info->vocab);
    TRY(copy_sampling(j, r, err));
    j->tokens = arena_copy(&j->arena, r->tokens, (size_t)r->n_tokens * sizeof *r->tokens);
    j->n_tokens = r->n_tokens;
    j->max_new = r->max_new;
    j->ignore_eos = r->ignore_eos;
    j->user = r->user;
    j->group = r->group;
    j->is_further = r->is_further;
    service_job_set_deadline(j, r->deadline_ms);
    j->usage.n_prompt = r->n_tokens;
    return ERR_OK;
}

struct service_job *service_job_create(struct service *s, const struct service_request *request, struct err *err) {
    struct service_job *j = mem_alloc(sizeof *j);
    j->service = s;
    tok_stream_init(&j->stream, s->session->tok, true);
    if (copy_request(j, request, err)) {
        service_job_destroy(j);
        return NULL;
    }
    return j;
}

void service_job_destroy(struct service_job *j) {
    for (int i = 0; i < 2; i++) {
        sb_free(&j->boxes[i].text);
        mem_free(j->boxes[i].tokens);
        mem_free(j->boxes[i].tops);
    }
    mem_free(j->vectors);
    tok_stream_free(&j->stream);
    stop_free(&j->stop);
    sb_free(&j->raw);
    sb_free(&j->text);
    arena_free(&j->arena);
    mem_free(j);
}

/* ---- on the engine's thread ------------------------------------------------------------------------------------------ */

int32_t service_on_choose(void *user, const struct engine_choice *c, struct err *err) {
    struct service_job *j = user;
    struct sampler_input in = {
        .logits = c->logits, .history = c->history, .n_history = c->n_history, .n_prompt = j->n_tokens, .state = &j->state};
    return sampler_choose(j->service->works[c->worker], &j->sampling, &in, &j->result, err);
}

static void *grow(void *p, size_t need, size_t *capacity, size_t size) {
    if (need <= *capacity) return p;
    *capacity = need < 32 ? 32 : need * 2;
    return mem_realloc(p, *capacity * size);
}

static void put_token(struct box *b, int32_t id, const struct sampler_result *r) {
    b->tokens = grow(b->tokens, b->n_tokens + 1, &b->tokens_capacity, sizeof *b->tokens);
    b->tokens[b->n_tokens++] = (struct service_token){id, r->logprob, r->n_top};
    b->tops = grow(b->tops, b->n_tops + (size_t)r->n_top, &b->tops_capacity, sizeof *b->tops);
    for (int32_t i = 0; i < r->n_top; i++) b->tops[b->n_tops++] = r->top[i];
}

/* With the lock held. */
static void mark_ready(struct service_job *j) {
    struct service *s = j->service;
    if (j->is_ready || j->is_released) return;
    j->is_ready = true;
    j->next_ready = NULL;
    *s->ready_end = j;
    s->ready_end = &j->next_ready;
}

static void count_time(struct service_job *j) {
    struct service_stats *live = &j->service->live;
    uint64_t now = os_clock_ns();
    if (j->first_ns == 0) {
        j->first_ns = now;
        observe(&live->first_token, first_bounds, (double)(now - j->submit_ns) * 1e-9);
    } else {
        observe(&live->between_tokens, between_bounds, (double)(now - j->last_ns) * 1e-9);
    }
    j->last_ns = now;
    live->n_new_tokens++;
}

/* The token's text through the stop strings into j->text. */
static void add_text(struct service_job *j, int32_t token) {
    struct err err;
    sb_clear(&j->raw);
    if (tok_stream_push(&j->stream, token, &j->raw, &err)) return;
    if (stop_push(&j->stop, sb_str(&j->raw), &j->text)) j->want = JOB_STOP;
}

static void flush_text(struct service_job *j) {
    struct err err;
    sb_clear(&j->raw);
    if (tok_stream_flush(&j->stream, &j->raw, &err) == ERR_OK) stop_push(&j->stop, sb_str(&j->raw), &j->text);
    stop_flush(&j->stop, &j->text);
}

static enum service_finish finish_of(const struct service_job *j, enum finish finish) {
    switch (finish) {
    case FINISH_NONE: return JOB_GOES_ON;
    case FINISH_EOS: return JOB_STOP;
    case FINISH_LENGTH: return j->stop.matched >= 0 ? JOB_STOP : JOB_LENGTH;
    case FINISH_CANCELLED: return j->want ? j->want : JOB_CANCELLED;
    case FINISH_ERROR: return JOB_ERROR;
    }
    return JOB_ERROR;
}

struct piece {
    int32_t token, n_cached;
    bool is_listed; /* among the tokens with log-probabilities */
    enum service_finish finish;
    const struct err *why;
};

/* Puts j->text, the token and how it ends into the box. */
static void publish(struct service_job *j, const struct piece *p) {
    struct service *s = j->service;
    os_mutex_lock(s->lock);
    struct box *b = &j->boxes[j->i_box];
    sb_put(&b->text, sb_str(&j->text));
    if (p->token >= 0) {
        j->usage.n_new++;
        j->usage.n_cached = p->n_cached;
        j->n_pending++;
        if (p->is_listed) put_token(b, p->token, &j->result);
    }
    if (j->first_ns) {
        j->usage.prompt_seconds = (double)(j->first_ns - j->submit_ns) * 1e-9;
        j->usage.new_seconds = (double)(j->last_ns - j->first_ns) * 1e-9;
    }
    if (j->n_pending > BOX_TOKENS_MAX || b->text.n > BOX_BYTES_MAX) j->want = JOB_CANCELLED;
    j->finish = p->finish;
    if (p->finish == JOB_ERROR && p->why) j->err = *p->why;
    mark_ready(j);
    os_mutex_unlock(s->lock);
    sb_clear(&j->text);
}

void service_on_event(void *user, const struct engine_event *event) {
    struct service_job *j = user;
    bool is_text = event->token >= 0 && event->finish != FINISH_EOS;
    if (event->token >= 0) count_time(j);
    if (is_text) add_text(j, event->token);
    enum service_finish finish = finish_of(j, event->finish); /* the last token may have completed a stop string */
    if (event->finish) {
        if (event->finish == FINISH_EOS || event->finish == FINISH_LENGTH) flush_text(j);
        j->job = NULL;
        j->is_over = true;
        j->service->live.n_finished[finish]++;
    }
    publish(j, &(struct piece){event->token, event->n_cached, is_text && j->sampling.n_top >= 0, finish, event->err});
}

void service_job_end(struct service_job *j, enum service_finish finish, const struct err *why) {
    j->service->live.n_finished[finish]++;
    j->is_over = true;
    publish(j, &(struct piece){.token = -1, .finish = finish, .why = why});
}
