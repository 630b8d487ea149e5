/* Drafts of a smaller model on the same device: it reads what the large one has, and its own best tokens are the guess.
 *
 * Its runner is an engine's that has no jobs. Each sequence has one of its own there, which follows the large model's: what was guessed wrong is cut off, and
 * what is new is read with the next guess. Blocks behind a window go back for tokens that stand, never for guesses.
 */
#include "engine/engine_internal.h"

#include "model/spec.h"

struct draft_model {
    struct drafter base;
    struct runner *runner;
    const int32_t *to_draft, *to_target; /* tokens of one vocabulary in the other; -1: there is none. NULL: they are the same */
    int32_t n_target, n_draft;           /* tokens */
    struct draft_ask **asks;             /* [seqs] those whose rows are in the step */
    struct step_chosen *chosen;          /* [logits] */
};

struct follower {
    struct sequence seq; /* in the draft model's tokens */
    int32_t n_stand;     /* tokens of it that the last ask had */
    bool is_lost;        /* some token has no counterpart */
};

static void *begin(struct drafter *d, int32_t capacity, int32_t vocab) {
    struct draft_model *m = (struct draft_model *)d;
    struct follower *f = mem_alloc(sizeof *f);
    (void)vocab;
    f->is_lost = !sequence_init(&f->seq, &m->runner->kv, capacity + DRAFT_MAX);
    return f;
}

static void end(struct drafter *d, void *state) {
    struct draft_model *m = (struct draft_model *)d;
    struct follower *f = state;
    sequence_free(&f->seq, &m->runner->kv);
    mem_free(f);
}

static void cut(struct follower *f, int32_t n) {
    if (f->seq.n_tokens > n) f->seq.n_tokens = n;
    if (f->seq.n_done > n) f->seq.n_done = n;
    if (f->n_stand > n) f->n_stand = n;
}

static void settle(struct drafter *d, void *state, int32_t n_tokens) {
    struct draft_model *m = (struct draft_model *)d;
    struct follower *f = state;
    if (n_tokens == 0) sequence_drop(&f->seq, &m->runner->kv);
    if (n_tokens < f->n_stand) cut(f, n_tokens);
}

static int32_t mapped(const int32_t *map, int32_t n, int32_t token) {
    return token < 0 || token >= n ? -1 : map ? map[token] : token;
}

/* The follower's tokens become those of the ask; what was guessed right stays computed. */
static bool follow(const struct draft_model *m, struct follower *f, const struct draft_ask *a) {
    int32_t n = f->n_stand < a->n_tokens ? f->n_stand : a->n_tokens;
    while (n < a->n_tokens && n < f->seq.n_tokens && f->seq.tokens[n] == mapped(m->to_draft, m->n_target, a->tokens[n])) n++;
    cut(f, n);
    for (; n < a->n_tokens; n++) {
        int32_t token = mapped(m->to_draft, m->n_target, a->tokens[n]);
        if (token < 0 || token >= m->n_draft) f->is_lost = true;
        if (f->is_lost) return false;
        sequence_append(&f->seq, token);
    }
    f->n_stand = a->n_tokens;
    f->seq.n_prompt = a->n_tokens;
    sequence_advance(&f->seq, &m->runner->kv, 0);
    if (f->seq.n_done == a->n_tokens) f->seq.n_done--; /* its last row is wanted */
    return true;
}

/* Rows of one ask; false: it has none in this step. */
static bool add_rows(struct draft_model *m, struct draft_ask *a) {
    struct follower *f = a->state;
    struct runner *r = m->runner;
    int32_t n = f->seq.n_tokens - f->seq.n_done, room = r->limits.rows - r->batch.step.n_rows;
    bool is_whole = n <= room;
    if (a->n >= a->most || f->is_lost || f->seq.n_tokens >= r->limits.context || room <= 0) return false;
    if (!is_whole) n = room;
    if (!sequence_reserve(&f->seq, &r->kv, n)) {
        a->most = a->n;
        return false;
    }
    batch_add(&r->batch, &f->seq, n, is_whole ? n - 1 : n, false);
    f->seq.n_done += n;
    return true;
}

/* The best token behind the last row, if it was computed. */
static void take(struct draft_model *m, struct draft_ask *a, int32_t token) {
    struct follower *f = a->state;
    int32_t out = mapped(m->to_target, m->n_draft, token);
    if (out < 0 || out >= m->n_target) {
        a->most = a->n;
        return;
    }
    a->out[a->n++] = out;
    sequence_append(&f->seq, token);
}

/* One step for all asks that want more; false: none does, or the device failed, and the drafts are as long as they are. */
static bool run_step(struct draft_model *m, struct draft_ask *asks, int32_t n) {
    struct runner *r = m->runner;
    struct err err;
    int32_t n_asks = 0;
    batch_clear(&r->batch);
    for (int32_t i = 0; i < n; i++)
        if (add_rows(m, &asks[i])) m->asks[n_asks++] = &asks[i];
    if (n_asks == 0 || runner_run(r, &err)) return false;
    int32_t n_logits = r->batch.step.n_logits, k = 0;
    if (n_logits && runner_chosen(r, 0, n_logits, m->chosen, &err)) return false;
    for (int32_t i = 0; i < n_asks; i++) {
        const struct follower *f = m->asks[i]->state;
        if (f->seq.n_done == f->seq.n_tokens) take(m, m->asks[i], m->chosen[k++].token);
    }
    return true;
}

static void propose(struct drafter *d, struct draft_ask *asks, int32_t n) {
    struct draft_model *m = (struct draft_model *)d;
    for (int32_t i = 0; i < n; i++) {
        struct follower *f = asks[i].state;
        asks[i].n = asks[i].kind = 0;
        if (f->is_lost || !follow(m, f, &asks[i])) asks[i].most = 0;
    }
    while (run_step(m, asks, n)) {}
}

static void draft_model_close(struct drafter *d) {
    struct draft_model *m = (struct draft_model *)d;
    mem_free(m->asks);
    mem_free(m->chosen);
    mem_free(m);
}

static const struct draft_type draft_model = {.name = "model",
                                              .hopes = {0.7f},
                                              .is_dear = true,
                                              .begin = begin,
                                              .end = end,
                                              .propose = propose,
                                              .settle = settle,
                                              .close = draft_model_close};

static int check(const struct engine *e, const struct engine *draft, struct err *err) {
    const struct spec *s = &draft->runner.model->spec;
    if (s->is_encoder) return err_set(err, ERR_EUNSUPPORTED, "the draft model is an encoder and writes no text");
    if (s->kv.n_states)
        return err_set(err, ERR_EUNSUPPORTED,
                       "the draft model has recurrent layers, whose state cannot go back; take one with attention alone");
    for (int32_t i = 0; i < s->n_ropes; i++)
        if (s->ropes[i].table >= 0)
            return err_set(err, ERR_EUNSUPPORTED, "the draft model's positions depend on the length of the text; take another one");
    if (draft->runner.limits.seqs < e->runner.limits.seqs)
        return err_set(err, ERR_EARG, "the draft model has %d places, and the model %d", draft->runner.limits.seqs, e->runner.limits.seqs);
    return ERR_OK;
}

int engine_set_draft(struct engine *e, struct engine *draft, const struct draft_map *map, struct err *err) {
    TRY(check(e, draft, err));
    struct draft_model *m = mem_alloc(sizeof *m);
    m->base.type = &draft_model;
    m->base.cost = map->cost;
    m->runner = &draft->runner;
    m->to_draft = map->to_draft;
    m->to_target = map->to_target;
    m->n_target = e->runner.model->spec.vocab;
    m->n_draft = draft->runner.model->spec.vocab;
    m->asks = mem_alloc((size_t)draft->runner.limits.seqs * sizeof(struct draft_ask *));
    m->chosen = mem_alloc((size_t)draft->runner.limits.logits * sizeof *m->chosen);
    e->drafters[DRAFT_MODEL] = &m->base;
    return ERR_OK;
}
