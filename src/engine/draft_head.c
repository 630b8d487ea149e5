/* Drafts of a head (model/draft_head.h): it reads the states of the rows that the model has computed, and guesses on from the last of them.
 *
 * Its runner belongs to the drafter. Each sequence has one of its own there, whose row i is the model's row base + i with the token behind that: rows in front
 * of `base` came out of the prefix cache, and nobody has their states. Rows wait until a draft is wanted, or until there are too many of them. What is guessed
 * is computed with the head's own states and cut off again: when the model has computed those rows, the true ones take their place.
 */
#include "engine/draft_head.h"

#include "model/draft_head.h"

enum { WAITING_MAX = DRAFT_MAX + 1 };

struct head_follower {
    struct sequence seq;
    struct picture_rows given[2]; /* states of the rows of a step: those that waited, or the head's own; those of the model's last step */
    int32_t base;                 /* -1: it has seen nothing */
    int32_t n_waiting;            /* rows behind seq.n_done whose states are kept */
    float *waiting;               /* [DRAFT_STATES][WAITING_MAX][hidden] */
    float *own;                   /* [hidden] the head's state of the last row */
    bool is_asked;                /* its rows are in a draft's steps */
    bool is_lost;                 /* there was no room, or the device failed */
};

static struct head_drafter *of(struct drafter *d) {
    return (struct head_drafter *)d;
}

static int32_t width_of(const struct head_drafter *d) {
    return d->runner.model->spec.hidden;
}

/* ---- sequences ---------------------------------------------------------------------------------------------------------- */

static void *begin(struct drafter *drafter, int32_t capacity, int32_t vocab) {
    struct head_drafter *d = of(drafter);
    struct head_follower *f = mem_alloc(sizeof *f);
    size_t width = (size_t)width_of(d);
    (void)vocab;
    f->is_lost = !sequence_init(&f->seq, &d->runner.kv, capacity + DRAFT_MAX);
    f->waiting = mem_alloc(((size_t)d->head->taps.n * WAITING_MAX + 1) * width * sizeof(float));
    f->own = f->waiting + (size_t)d->head->taps.n * WAITING_MAX * width;
    f->base = -1;
    return f;
}

static void end(struct drafter *drafter, void *state) {
    struct head_follower *f = state;
    sequence_free(&f->seq, &of(drafter)->runner.kv);
    mem_free(f->waiting);
    mem_free(f);
}

static void forget(struct head_drafter *d, struct head_follower *f) {
    sequence_drop(&f->seq, &d->runner.kv);
    f->seq.n_tokens = f->n_waiting = 0;
    f->base = -1;
}

static void settle(struct drafter *drafter, void *state, int32_t n_tokens) {
    if (n_tokens == 0) forget(of(drafter), state);
}

/* The model's row behind those that are here. */
static int32_t next_row(const struct head_follower *f) {
    return f->base + f->seq.n_done + f->n_waiting;
}

/* The sequence still is what the rows here were made of. */
static bool stands(const struct head_follower *f, const int32_t *tokens, int32_t n_tokens) {
    if (f->base < 0 || next_row(f) > n_tokens - 1) return false;
    return f->seq.n_done == 0 || f->seq.tokens[f->seq.n_done - 1] == tokens[f->base + f->seq.n_done];
}

static float *waiting_at(const struct head_drafter *d, const struct head_follower *f, int32_t set, int32_t row) {
    return f->waiting + ((int64_t)set * WAITING_MAX + row) * width_of(d);
}

/* ---- rows --------------------------------------------------------------------------------------------------------------- */

/* The sequence gets the tokens of its next n rows, and the states of the first n_waiting of them. */
static void place_waiting(const struct head_drafter *d, struct head_follower *f, const int32_t *tokens, int32_t n) {
    f->seq.n_tokens = f->seq.n_done;
    for (int32_t i = 0; i < n; i++) sequence_append(&f->seq, tokens[f->base + f->seq.n_done + i + 1]);
    f->given[0] = (struct picture_rows){.first = f->seq.n_done, .n = f->n_waiting};
    for (int32_t k = 0; k < d->head->taps.n; k++) f->given[0].rows[k] = waiting_at(d, f, k, 0);
    f->seq.pictures = f->given;
    f->seq.n_pictures = 1;
    f->seq.n_prompt = f->seq.n_tokens;
}

static void keep(const struct head_drafter *d, struct head_follower *f, const struct draft_seen *seen, int32_t from, int32_t n) {
    size_t bytes = (size_t)n * (size_t)width_of(d) * sizeof(float);
    for (int32_t k = 0; k < d->head->taps.n && n > 0; k++)
        memcpy(waiting_at(d, f, k, f->n_waiting), seen->states[k] + (int64_t)(from - seen->first) * width_of(d), bytes);
    f->n_waiting += n;
}

/* Computes the rows that wait and n more from the model's row `from` on; nothing is chosen. */
static bool read_rows(struct head_drafter *d, struct head_follower *f, const struct draft_seen *seen, int32_t from, int32_t n) {
    struct runner *r = &d->runner;
    struct err err;
    place_waiting(d, f, seen->tokens, f->n_waiting + n);
    f->given[1] = (struct picture_rows){.first = f->seq.n_done + f->n_waiting, .n = n};
    for (int32_t k = 0; k < d->head->taps.n; k++) f->given[1].rows[k] = seen->states[k] + (int64_t)(from - seen->first) * width_of(d);
    f->seq.n_pictures = 2;
    f->n_waiting = 0;
    while (f->seq.n_done < f->seq.n_tokens) {
        int32_t rows = f->seq.n_tokens - f->seq.n_done < r->limits.rows ? f->seq.n_tokens - f->seq.n_done : r->limits.rows;
        if (f->seq.n_done + rows >= r->limits.context || !sequence_reserve(&f->seq, &r->kv, rows)) return false;
        batch_clear(&r->batch);
        batch_add(&r->batch, &f->seq, rows, rows - 1, true);
        if (runner_run(r, &err)) return false;
        sequence_advance(&f->seq, &r->kv, rows);
    }
    return true;
}

static void observe(struct drafter *drafter, const struct draft_seen *seen) {
    struct head_drafter *d = of(drafter);
    struct head_follower *f = seen->state;
    int32_t last = seen->first + seen->n; /* behind the last row */
    if (f->is_lost) return;
    if (!stands(f, seen->tokens, seen->n_tokens) || next_row(f) < seen->first) forget(d, f);
    if (f->base < 0) f->base = seen->first;
    int32_t from = next_row(f), n = last - from;
    if (n <= 0) return;
    if (f->n_waiting + n > WAITING_MAX) { /* the last one waits, because what it guesses may be wanted */
        f->is_lost = !read_rows(d, f, seen, from, n - 1);
        from = last - 1;
        n = 1;
    }
    keep(d, f, seen, from, n);
}

/* ---- drafts ------------------------------------------------------------------------------------------------------------- */

/* One more row: the token that was guessed, with the head's own state. */
static void place_guess(const struct head_drafter *d, struct head_follower *f, int32_t token) {
    sequence_append(&f->seq, token);
    f->given[0] = (struct picture_rows){.first = f->seq.n_done, .n = 1};
    f->given[0].rows[d->head->own_set] = f->own;
}

/* Rows of one ask; false: it has none in this step. */
static bool add_rows(struct head_drafter *d, struct draft_ask *a) {
    struct head_follower *f = a->state;
    struct runner *r = &d->runner;
    int32_t n = f->seq.n_tokens - f->seq.n_done;
    if (a->n >= a->most) return false;
    if (f->seq.n_tokens >= r->limits.context || n > r->limits.rows - r->batch.step.n_rows || !sequence_reserve(&f->seq, &r->kv, n)) {
        a->most = a->n;
        return false;
    }
    batch_add(&r->batch, &f->seq, n, n - 1, false);
    f->seq.n_done += n;
    return true;
}

static void take(struct head_drafter *d, struct draft_ask *a, int32_t token, const float *state) {
    struct head_follower *f = a->state;
    int32_t n = d->runner.model->spec.vocab, target = token < 0 || token >= n ? -1 : d->head->to_target ? d->head->to_target[token] : token;
    if (target < 0) {
        a->most = a->n;
        return;
    }
    a->out[a->n++] = target;
    memcpy(f->own, state, (size_t)width_of(d) * sizeof *state);
    place_guess(d, f, target);
}

/* One step for all asks that want more; false: none does, or the device failed, and the drafts are as long as they are. */
static bool run_step(struct head_drafter *d, struct draft_ask *asks, int32_t n) {
    struct runner *r = &d->runner;
    const float *states[STATE_TAPS];
    struct err err;
    int32_t n_asks = 0;
    batch_clear(&r->batch);
    for (int32_t i = 0; i < n; i++)
        if (add_rows(d, &asks[i])) d->asks[n_asks++] = &asks[i];
    if (n_asks == 0 || runner_run(r, &err) || runner_chosen(r, 0, n_asks, d->chosen, &err) || runner_taps(r, states, &err)) return false;
    for (int32_t i = 0; i < n_asks; i++) {
        const struct step_seq *s = &r->batch.step.seqs[i];
        take(d, d->asks[i], d->chosen[i].token, states[0] + (int64_t)(s->row + s->n_rows - 1) * width_of(d));
    }
    return true;
}

/* Rows of the model's own tokens stay, those of guesses go. */
static void cut(struct head_drafter *d, const struct draft_ask *a) {
    struct head_follower *f = a->state;
    if (!f->is_asked) return;
    f->seq.n_done = a->n_tokens - 1 - f->base;
    if (a->n == 0) f->seq.n_done -= f->n_waiting; /* nothing was computed */
    else f->n_waiting = 0;
    f->seq.n_tokens = f->seq.n_done;
    sequence_advance(&f->seq, &d->runner.kv, 0);
}

static void propose(struct drafter *drafter, struct draft_ask *asks, int32_t n) {
    struct head_drafter *d = of(drafter);
    for (int32_t i = 0; i < n; i++) {
        struct head_follower *f = asks[i].state;
        asks[i].n = asks[i].kind = 0;
        f->is_asked = !f->is_lost && stands(f, asks[i].tokens, asks[i].n_tokens) && f->n_waiting > 0 && next_row(f) == asks[i].n_tokens - 1;
        if (f->is_asked) place_waiting(d, f, asks[i].tokens, f->n_waiting);
        else asks[i].most = 0;
    }
    while (run_step(d, asks, n)) {}
    for (int32_t i = 0; i < n; i++) cut(d, &asks[i]);
}

static void close_head(struct drafter *drafter) {
    struct head_drafter *d = of(drafter);
    runner_close(&d->runner);
    mem_free(d->asks);
    mem_free(d->chosen);
    mem_free(d);
}

static const struct draft_type draft_head_type = {.name = "head",
                                                  .hopes = {0.7f},
                                                  .is_dear = true,
                                                  .begin = begin,
                                                  .end = end,
                                                  .propose = propose,
                                                  .settle = settle,
                                                  .observe = observe,
                                                  .close = close_head};

int engine_set_head(struct engine *e, enum draft_from from, const struct draft_head *head, struct backend *be, double cost,
                    struct err *err) {
    const struct runner_limits *l = &e->runner.limits;
    struct runner_limits limits = {.context = l->context, .rows = l->rows, .seqs = l->seqs, .logits = l->seqs, .kv_tokens = l->kv_tokens};
    struct head_drafter *d = mem_alloc(sizeof *d);
    if (limits.rows < l->seqs * WAITING_MAX) limits.rows = l->seqs * WAITING_MAX;
    d->base = (struct drafter){.type = &draft_head_type, .cost = cost};
    d->head = head;
    if (runner_open(&head->model, be, &limits, &d->runner, err)) {
        mem_free(d);
        return err->code;
    }
    d->asks = mem_alloc((size_t)limits.seqs * sizeof(struct draft_ask *));
    d->chosen = mem_alloc((size_t)limits.seqs * sizeof *d->chosen);
    e->drafters[from] = &d->base;
    return ERR_OK;
}
