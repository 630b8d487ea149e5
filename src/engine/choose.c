/* Choosing tokens: on the device where it can, else by the sampler on the host, several rows at once.
 *
 * The device knows bias, penalties, top-k, top-p, min-p, temperature, masks and log-probabilities. What else a job may ask for (typical-p, XTC,
 * DRY, mirostat, a dynamic temperature, a very large top-k) stays here. Both give the same token for the same logits, seed and position.
 */
#include "engine/engine_internal.h"

#include "base/fmath.h"

/* ---- the device ------------------------------------------------------------------------------------------------------- */

static bool has_penalties(const struct sampler_params *p) {
    return (p->repetition != 1 && p->last_n != 0) || p->frequency != 0 || p->presence != 0;
}

static bool has_tables(const struct sampler_params *p) {
    return has_penalties(p) || p->n_bias > 0;
}

/* Whether only the host can sample by these parameters. At temperature 0 the cuts do not matter. */
static bool needs_host(const struct sampler_params *p) {
    bool draws = p->temperature > 0;
    return p->dry_multiplier > 0 || p->top_is_drawn ||
           (draws && (p->typical_p < 1 || p->xtc_probability > 0 || p->mirostat || p->dynatemp_range > 0 || p->top_k > CHOICE_TOP_K_MAX));
}

/* Whether tokens are banned in ways that the device does not know. */
static bool has_bans(const struct job *j) {
    return j->allowed || j->spec.n_bad_words || j->seq.n_tokens - j->spec.n_tokens < j->spec.min_new;
}

bool choose_on_device(const struct engine *e, const struct job *j, int32_t n_drafts) {
    const struct sampler_params *p = &j->spec.sampling;
    if (has_bans(j) || j->spec.replay) return false;
    if (n_drafts && (has_tables(p) || bound_holds(j))) return false; /* tables and masks follow token by token */
    return e->runner.backend->chooses ? !needs_host(p) : sampler_is_plain(p) && !bound_holds(j);
}

/* ---- masks ------------------------------------------------------------------------------------------------------------ */

static size_t mask_words(const struct engine *e) {
    return gram_mask_words(e->vocab);
}

/* Room for the i-th mask of a step. */
static uint32_t *mask_at(struct engine *e, int32_t i) {
    return e->masks + (size_t)i * mask_words(e);
}

/* For rows that the host chooses from. */
static void use_own_room(struct engine *e) {
    if (!e->own_masks) e->own_masks = mem_alloc((size_t)e->runner.limits.seqs * mask_words(e) * sizeof *e->masks);
    e->masks = e->own_masks;
}

/* For rows that the device chooses from. */
static int use_device_room(struct engine *e, struct err *err) {
    struct backend *be = e->runner.backend;
    return be->type->mask_room(be, e->runner.limits.seqs, (int32_t)mask_words(e), &e->masks, err);
}

/* One mask of the n; several threads make them at once. */
static void make_masks(void *ctx, int64_t first, int64_t last, int32_t worker) {
    struct engine *e = ctx;
    (void)worker;
    for (int64_t i = first; i < last; i++) bound_mask(e->choosing[i]->job, mask_at(e, (int32_t)i));
}

static void make_all_masks(struct engine *e, int32_t n) {
    struct device *d = e->runner.backend->device;
    if (n > 1 && d->type->each) d->type->each(d, n, make_masks, e);
    else make_masks(e, 0, n, 0);
}

/* The biases by token: one entry for each token, with the sum of its biases. */
static int32_t gather_bias(const struct sampler_params *p, struct choice_bias *out) {
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_bias; i++) {
        int32_t k = 0;
        while (k < n && out[k].token != p->bias[i].token) k++;
        if (k == n) out[n++] = (struct choice_bias){p->bias[i].token, 0};
        out[k].bias += p->bias[i].bias;
    }
    return n;
}

/* The device counts tokens for penalties in tables of its own. They start with the history up to now. */
static int begin_tables(struct engine *e, struct job *j, struct err *err) {
    const struct sampler_params *p = &j->spec.sampling;
    struct backend *be = e->runner.backend;
    struct choice_bias *bias = mem_alloc((size_t)(p->n_bias + 1) * sizeof *bias);
    j->choice_slot = e->free_slots[--e->n_free_slots];
    j->n_bias = gather_bias(p, bias);
    struct choice_tables t = {.history = j->seq.tokens,
                              .n_history = j->seq.n_tokens,
                              .n_prompt = j->spec.n_tokens,
                              .n_slots = e->runner.limits.seqs,
                              .vocab = e->runner.model->spec.vocab,
                              .last_n = p->last_n,
                              .bias = bias,
                              .n_bias = j->n_bias};
    int code = be->type->choice_begin(be, j->choice_slot, &t, err);
    mem_free(bias);
    return code;
}

void choose_end(struct engine *e, struct job *j) {
    if (j->choice_slot < 0) return;
    e->free_slots[e->n_free_slots++] = j->choice_slot;
    j->choice_slot = -1;
}

/* The repetition penalty looks back last_n tokens. When this row's token enters that window, this is the token that leaves it; -1: none. */
static int32_t leaving_token(const struct job *j) {
    int32_t last_n = j->spec.sampling.last_n, at = j->seq.n_tokens - last_n - 1;
    return last_n > 0 && at >= 0 && j->seq.tokens[at] < PICTURE_TOKEN ? j->seq.tokens[at] : -1;
}

static struct step_choice plain_choice(void) {
    return (struct step_choice){.top_p = 1, .repetition = 1, .slot = -1, .leaves = -1, .mask = -1, .n_top = -1};
}

/* position: tokens before the one that is chosen. */
static int fill_choice(struct engine *e, struct job *j, int32_t position, struct step_choice *out, struct err *err) {
    const struct sampler_params *p = &j->spec.sampling;
    bool is_new = has_tables(p) && j->choice_slot < 0;
    if (is_new) TRY(begin_tables(e, j, err));
    *out = plain_choice();
    out->seed = p->seed;
    out->position = position;
    out->temperature = p->temperature;
    out->n_top = p->n_top;
    if (p->temperature > 0) out->top_k = p->top_k, out->top_p = p->top_p, out->min_p = p->min_p;
    if (!has_tables(p)) return ERR_OK;
    out->slot = j->choice_slot;
    out->n_bias = j->n_bias;
    out->repetition = p->last_n == 0 ? 1 : p->repetition;
    out->frequency = p->frequency;
    out->presence = p->presence;
    out->counts_input = !is_new;
    out->leaves = is_new ? -1 : leaving_token(j);
    return ERR_OK;
}

/* Which parts of the device's choosing these parameters need: bits of enum choice_work. */
static unsigned work_of(const struct sampler_params *p) {
    bool cuts = p->temperature > 0 && (p->top_k > 0 || p->top_p < 1);
    unsigned work = CHOICE_DRAWS;
    if (sampler_is_plain(p)) return 0;
    if (has_tables(p)) work |= CHOICE_SHAPES;
    if (p->n_top >= 0 || cuts) work |= CHOICE_LISTS;
    if (cuts && (p->top_k == 0 || p->top_k > CHOICE_SHORT)) work |= CHOICE_COUNTS;
    return work;
}

/* The mask of a bound job: one that another row has already, or the next. */
static int32_t mask_of(const struct engine *e, int32_t n_masks, const struct job *j) {
    int32_t i = 0;
    while (i < n_masks && !bound_masks_alike(e->choosing[i]->job, j)) i++;
    return i;
}

/* Masks for rows that the device chooses from and whose job is bound. Requests with the same grammar are often in the same state: their mask is made and sent
 * once. e->choosing has a row for each mask. */
static int prepare_masks(struct engine *e, struct flight *f, struct err *err) {
    struct step *s = &e->runner.batch.step;
    s->n_masks = 0;
    for (int32_t i = 0; i < f->n; i++) {
        struct flight_row *r = &f->rows[i];
        r->i_mask = -1;
        if (!r->chooses || !r->on_device || !bound_holds(r->job)) continue;
        r->i_mask = mask_of(e, s->n_masks, r->job);
        if (r->i_mask == s->n_masks) e->choosing[s->n_masks++] = r;
    }
    if (s->n_masks == 0) return ERR_OK;
    TRY(use_device_room(e, err));
    make_all_masks(e, s->n_masks);
    s->masks = e->masks;
    s->mask_words = (int32_t)mask_words(e);
    e->runner.batch.chooses |= CHOICE_DRAWS | CHOICE_SHAPES;
    return ERR_OK;
}

int choose_prepare(struct engine *e, struct flight *f, struct err *err) {
    struct batch *b = &e->runner.batch;
    TRY(prepare_masks(e, f, err));
    for (int32_t i = 0; i < f->n; i++) {
        const struct flight_row *r = &f->rows[i];
        if (r->chooses && r->on_device) b->chooses |= work_of(&r->job->spec.sampling);
    }
    if (!b->chooses) return ERR_OK;
    for (int32_t i = 0; i < b->step.n_logits; i++) b->step.choices[i] = plain_choice();
    for (int32_t i = 0; i < f->n; i++) {
        const struct flight_row *r = &f->rows[i];
        for (int32_t k = 0; k <= r->n_drafts && r->chooses && r->on_device; k++)
            TRY(fill_choice(e, r->job, r->at + k, &b->step.choices[r->i_choice + k], err));
        if (r->n_drafts && !r->on_device) choose_end(e, r->job); /* the device's tables do not see what the host chooses */
    }
    for (int32_t i = 0; i < f->n; i++) {
        const struct flight_row *r = &f->rows[i];
        if (r->i_mask >= 0) b->step.choices[r->i_choice].mask = r->i_mask;
    }
    return ERR_OK;
}

static void take_chosen(struct flight_row *r, const struct step_chosen *c) {
    struct sampler_result *out = &r->job->result;
    double norm = (double)c->largest + m_log((double)c->sum);
    r->token = c->token;
    if (r->job->spec.sampling.n_top < 0 || c->token < 0) return;
    out->logprob = (float)((double)c->logit - norm);
    out->n_top = c->n_top > 0 ? c->n_top : 0;
    for (int32_t i = 0; i < out->n_top; i++) out->top[i] = (struct sampler_top){c->top_tokens[i], (float)((double)c->top_logits[i] - norm)};
}

/* ---- the host --------------------------------------------------------------------------------------------------------- */

static const float *row_of(const struct engine *e, const struct flight_row *r) {
    return e->logits + (int64_t)r->i_choice * e->runner.model->spec.vocab;
}

/* Whether the answer ends with all tokens of a bad word but its last one. */
static bool completes(const struct job_words *w, const int32_t *tokens, int32_t n_tokens, int32_t n_prompt) {
    if (w->n == 0 || w->n - 1 > n_tokens - n_prompt) return false;
    return memcmp(tokens + n_tokens - (w->n - 1), w->p, (size_t)(w->n - 1) * sizeof *w->p) == 0;
}

/* Writes the tokens that must not come next into the job's scratch; returns how many. */
static int32_t find_bans(const struct engine *e, struct job *j, int32_t at) {
    const struct job_spec *s = &j->spec;
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_bad_words; i++)
        if (completes(&s->bad_words[i], j->seq.tokens, at, s->n_tokens)) j->never[n++] = s->bad_words[i].p[s->bad_words[i].n - 1];
    if (at - s->n_tokens >= s->min_new) return n;
    for (int32_t i = 0; i < e->options.n_eos; i++) j->never[n++] = e->options.eos[i];
    for (int32_t i = 0; i < s->n_end_tokens; i++) j->never[n++] = s->end_tokens[i];
    return n;
}

static void choose_items(void *ctx, int64_t first, int64_t last, int32_t worker) {
    struct engine *e = ctx;
    for (int64_t i = first; i < last; i++)
        if (bound_holds(e->choosing[i]->job)) bound_mask(e->choosing[i]->job, mask_at(e, (int32_t)i));
    mem_guard_begin("choosing a token");
    for (int64_t i = first; i < last; i++) {
        struct flight_row *r = e->choosing[i];
        struct job *j = r->job;
        const uint32_t *mask = bound_holds(j) ? mask_at(e, (int32_t)i) : NULL;
        struct sampler_input in = {.mask = mask,
                                   .logits = row_of(e, r),
                                   .history = j->seq.tokens,
                                   .n_history = r->at,
                                   .n_prompt = j->spec.n_tokens,
                                   .breakers = j->breakers,
                                   .state = &j->state,
                                   .allowed = j->allowed,
                                   .never = j->never,
                                   .n_never = find_bans(e, j, r->at)};
        r->token = sampler_choose(e->works[worker], &j->spec.sampling, &in, &j->result, &j->why);
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

/* Rows whose tokens the device did not choose, by all workers at once. */
static void choose_on_host(struct engine *e, struct flight *f) {
    struct device *d = e->runner.backend->device;
    int32_t n = 0;
    for (int32_t i = 0; i < f->n; i++)
        if (f->rows[i].job && f->rows[i].is_open && !f->rows[i].on_device && !f->rows[i].job->spec.replay) e->choosing[n++] = &f->rows[i];
    if (n == 0) return;
    make_works(e);
    for (int32_t i = 0; i < n; i++)
        if (bound_holds(e->choosing[i]->job)) use_own_room(e);
    if (n > 1 && d->type->each) d->type->each(d, n, choose_items, e);
    else choose_items(e, 0, n, 0);
}

static int32_t replayed(const struct job *j, int32_t at) {
    int32_t i = at - j->spec.n_tokens;
    return i < j->spec.n_replay ? j->spec.replay[i] : j->spec.replay[j->spec.n_replay - 1];
}

void choose_tokens(struct engine *e, struct flight *f) {
    for (int32_t i = 0; i < f->n; i++) {
        struct flight_row *r = &f->rows[i];
        if (!r->job || !r->is_open) continue;
        if (r->job->spec.replay) r->token = replayed(r->job, r->at);
        if (!r->on_device) continue;
        take_chosen(r, &e->chosen[r->i_choice]);
        if (r->token < 0) err_set(&r->job->why, ERR_EDEVICE, "the model gave no finite logits");
    }
    choose_on_host(e, f);
}

void choose_scores(struct engine *e, struct job *j, int32_t first, int32_t n_rows, const float *logits) {
    struct sampler_result result;
    int32_t vocab = e->runner.model->spec.vocab;
    make_works(e);
    for (int32_t i = 0; i < n_rows && first + i + 1 < j->spec.n_tokens; i++) {
        int32_t next = j->spec.tokens[first + i + 1];
        sampler_report(e->works[0], logits + (int64_t)i * vocab, next, j->spec.sampling.n_top, &result);
        job_put_score(j, next, &result);
    }
}

void choose_free(struct engine *e) {
    for (int32_t i = 0; i < e->n_works; i++) sampler_work_destroy(e->works[i]);
    mem_free(e->works);
    mem_free(e->own_masks);
}
