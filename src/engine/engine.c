/* The engine: admission, planning of a step, running it, handing out tokens. */
#include "engine/engine.h"

#include "engine/prefix.h"
#include "os/os.h"

#include <assert.h>
#include <math.h>

struct job {
    struct sequence seq;
    int32_t n_limit; /* tokens at which it ends */
    int32_t *eos, n_eos;
    bool want_logits, placed; /* placed: its sequence holds a slot and tables */
    bool was_attached;        /* the prefix cache was asked */
    int32_t n_cached;         /* positions of its prompt that it knew */
    int32_t i_logits, n_rows; /* of the current step: its row among the logits (-1: none), its rows */
    int32_t token;            /* chosen in this step; -1: none could be */
    struct err why;           /* then */
    engine_fn *on_event;
    engine_choose_fn *choose;
    void *user;
    uint64_t group;
    struct job *next; /* in the queue of waiting jobs */
};

struct engine {
    struct runner runner;
    struct engine_options options;
    struct prefix *prefix; /* NULL: none */
    struct job **running;  /* [seqs] by age, oldest first */
    int32_t n_running, n_waiting;
    struct job *waiting, **waiting_end;
    int32_t *best;             /* [rows] */
    struct job **choosing;     /* [seqs] those of this step that choose by themselves */
    const float *logits;       /* of this step, where somebody needs them */
    engine_guest_fn *give_way; /* see engine_invite; NULL: nobody */
    void *guest;
    int32_t chunk; /* most prompt rows of a step, where the device is watched; else 0 */
    struct engine_stats stats;
};

enum { SNAPSHOT_BYTES_MAX = 512 << 20, FIRST_CHUNK = 256, LEAST_CHUNK = 16 };

/* Slots for snapshots of recurrent state: two for each sequence, as far as memory allows. */
static int32_t count_snapshots(const struct kv_layout *layout, int32_t seqs) {
    int64_t bytes = 0;
    for (int32_t i = 0; i < layout->n_states; i++) bytes += layout->states[i].elements * (int64_t)sizeof(float);
    if (bytes == 0) return 0;
    int64_t most = SNAPSHOT_BYTES_MAX / bytes;
    return most < 2 * (int64_t)seqs ? (int32_t)most : 2 * seqs;
}

int engine_open(const struct model *m, struct backend *be, const struct engine_options *options, struct engine **out, struct err *err) {
    struct engine *e = mem_alloc(sizeof *e);
    e->options = *options;
    e->waiting_end = &e->waiting;
    struct runner_limits limits = options->limits;
    if (options->prefix) limits.snapshots = count_snapshots(&m->spec.kv, limits.seqs);
    int code = runner_open(m, be, &limits, &e->runner, err);
    if (code) {
        mem_free(e);
        return code;
    }
    e->running = mem_alloc((size_t)e->runner.limits.seqs * sizeof *e->running);
    e->best = mem_alloc((size_t)e->runner.limits.rows * sizeof *e->best);
    e->choosing = mem_alloc((size_t)e->runner.limits.seqs * sizeof *e->choosing);
    if (be->step_ms > 0) e->chunk = FIRST_CHUNK;
    struct prefix_options prefix = {.kv = &e->runner.kv, .backend = be, .spec = &m->spec, .n_snapshots = limits.snapshots};
    if (options->prefix) e->prefix = prefix_open(&prefix);
    *out = e;
    return ERR_OK;
}

static void job_free(struct engine *e, struct job *j) {
    if (j->placed) sequence_free(&j->seq, &e->runner.kv);
    else mem_free(j->seq.tokens);
    mem_free(j->eos);
    mem_free(j);
}

static void end_job(struct engine *e, struct job *j, enum finish finish, int32_t token, const float *logits, const struct err *why) {
    j->on_event(j->user, &(struct engine_event){.token = token, .finish = finish, .n_cached = j->n_cached, .logits = logits, .err = why});
    if (e->prefix && j->placed && finish != FINISH_ERROR) prefix_keep(e->prefix, &j->seq);
    job_free(e, j);
}

static void remove_running(struct engine *e, int32_t i) {
    memmove(&e->running[i], &e->running[i + 1], (size_t)(e->n_running - i - 1) * sizeof *e->running);
    e->n_running--;
}

static void end_all(struct engine *e, const struct err *why) {
    while (e->n_running) end_job(e, e->running[--e->n_running], FINISH_ERROR, -1, NULL, why);
    while (e->waiting) {
        struct job *j = e->waiting;
        e->waiting = j->next;
        end_job(e, j, FINISH_ERROR, -1, NULL, why);
    }
    e->waiting_end = &e->waiting;
    e->n_waiting = 0;
}

void engine_close(struct engine *e) {
    if (!e) return;
    struct err why;
    err_set(&why, ERR_ECANCELLED, "the engine was closed");
    end_all(e, &why);
    prefix_close(e->prefix);
    runner_close(&e->runner);
    mem_free(e->running);
    mem_free(e->best);
    mem_free(e->choosing);
    mem_free(e);
}

static int check_prompt(const struct engine *e, const struct engine_request *r, struct err *err) {
    int32_t vocab = e->runner.model->spec.vocab, context = e->runner.limits.context;
    if (r->n_tokens < 1) return err_set(err, ERR_EARG, "the prompt is empty");
    if (r->n_tokens > context) return err_set(err, ERR_ELIMIT, "the prompt has %d tokens, the context holds %d", r->n_tokens, context);
    for (int32_t i = 0; i < r->n_tokens; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= vocab)
            return err_set(err, ERR_EARG, "token %d is outside the vocabulary of %d", r->tokens[i], vocab);
    return ERR_OK;
}

int engine_submit(struct engine *e, const struct engine_request *r, struct job **out, struct err *err) {
    TRY(check_prompt(e, r, err));
    int32_t context = e->runner.limits.context;
    struct job *j = mem_alloc(sizeof *j);
    j->n_limit = r->max_new < 0 || r->max_new > context - r->n_tokens ? context : r->n_tokens + r->max_new;
    j->seq.tokens = mem_alloc((size_t)r->n_tokens * sizeof *j->seq.tokens);
    memcpy(j->seq.tokens, r->tokens, (size_t)r->n_tokens * sizeof *r->tokens);
    j->seq.n_tokens = j->seq.n_prompt = r->n_tokens;
    j->eos = mem_alloc((size_t)(r->n_eos + 1) * sizeof *j->eos);
    if (r->n_eos) memcpy(j->eos, r->eos, (size_t)r->n_eos * sizeof *r->eos);
    j->n_eos = r->n_eos;
    j->want_logits = r->want_logits;
    j->on_event = r->on_event;
    j->choose = r->choose;
    j->user = r->user;
    j->group = r->group;
    *e->waiting_end = j;
    e->waiting_end = &j->next;
    e->n_waiting++;
    if (out) *out = j;
    return ERR_OK;
}

void engine_cancel(struct engine *e, struct job *job) {
    for (int32_t i = 0; i < e->n_running; i++)
        if (e->running[i] == job) {
            remove_running(e, i);
            end_job(e, job, FINISH_CANCELLED, -1, NULL, NULL);
            return;
        }
    for (struct job **p = &e->waiting; *p; p = &(*p)->next)
        if (*p == job) {
            *p = job->next;
            if (e->waiting_end == &job->next) e->waiting_end = p;
            e->n_waiting--;
            end_job(e, job, FINISH_CANCELLED, -1, NULL, NULL);
            return;
        }
}

/* Gives a job its sequence: tables sized for the longest it may become. */
static bool place(struct engine *e, struct job *j) {
    struct sequence fresh;
    if (!sequence_init(&fresh, &e->runner.kv, j->n_limit + 1)) return false;
    memcpy(fresh.tokens, j->seq.tokens, (size_t)j->seq.n_tokens * sizeof *fresh.tokens);
    fresh.n_tokens = j->seq.n_tokens;
    fresh.n_prompt = j->seq.n_prompt;
    mem_free(j->seq.tokens);
    j->seq = fresh;
    j->placed = true;
    return true;
}

static int32_t blocks_of(const struct engine *e, int32_t n_positions, int32_t c) {
    int32_t need = (n_positions + KV_BLOCK - 1) / KV_BLOCK, window = e->runner.kv.layout.classes[c].window;
    int32_t most = (window + e->runner.limits.rows) / KV_BLOCK + 2;
    return window > 0 && most < need ? most : need;
}

/* Admitting more than that invites preemption. */
bool engine_fits(const struct engine *e, int32_t n_positions) {
    for (int32_t c = 0; c < e->runner.kv.layout.n_classes; c++) {
        int64_t need = blocks_of(e, n_positions, c);
        for (int32_t i = 0; i < e->n_running; i++) {
            int32_t more = blocks_of(e, e->running[i]->seq.n_tokens + 1, c) - e->running[i]->seq.n_blocks[c];
            if (more > 0) need += more;
        }
        if (need > e->runner.kv.pools[c].n_free + e->runner.kv.pools[c].n_idle) return false;
    }
    return true;
}

/* Begins with what is known of its tokens: at first, and again after it was preempted. */
static void attach(struct engine *e, struct job *j) {
    if (!e->prefix || j->seq.n_done > 0) return;
    int32_t n = prefix_attach(e->prefix, &j->seq);
    if (j->was_attached) return;
    j->was_attached = true;
    j->n_cached = n;
    e->stats.n_cached += n;
    if (n) e->stats.n_prefix_hits++;
    else e->stats.n_prefix_misses++;
}

static int32_t count_group(const struct engine *e, uint64_t group) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_running; i++) n += e->running[i]->group == group;
    return n;
}

/* Who comes next: what was preempted, then the request that has the fewest generations running, then the one that came first. So one
 * request of many generations leaves room for others, and none waits for ever: a request that has none running is in order of arrival. */
static struct job **next_waiting(struct engine *e) {
    struct job **best = &e->waiting;
    int32_t fewest = INT32_MAX;
    if (e->waiting->placed) return best;
    for (struct job **p = &e->waiting; *p && fewest > 0; p = &(*p)->next) {
        int32_t n = (*p)->group ? count_group(e, (*p)->group) : 0;
        if (n >= fewest) continue;
        best = p;
        fewest = n;
    }
    return best;
}

static void admit(struct engine *e) {
    while (e->waiting && e->n_running < e->runner.limits.seqs) {
        struct job **link = next_waiting(e), *j = *link;
        if (e->n_running > 0 && !engine_fits(e, j->seq.n_tokens + 1)) return;
        if (!j->placed && !place(e, j)) return;
        *link = j->next;
        if (e->waiting_end == &j->next) e->waiting_end = link;
        e->n_waiting--;
        j->next = NULL;
        attach(e, j);
        e->running[e->n_running++] = j;
    }
}

/* The youngest running job goes back to the head of the queue; false when `keep` is the only one. */
static bool preempt(struct engine *e, const struct job *keep) {
    struct job *j = e->running[e->n_running - 1];
    if (j == keep) return false;
    if (e->prefix) prefix_keep(e->prefix, &j->seq);
    sequence_drop(&j->seq, &e->runner.kv);
    e->n_running--;
    j->next = e->waiting;
    if (!e->waiting) e->waiting_end = &j->next;
    e->waiting = j;
    e->n_waiting++;
    e->stats.n_preempted++;
    return true;
}

void engine_invite(struct engine *e, engine_guest_fn *give_way, void *guest) {
    e->give_way = give_way;
    e->guest = guest;
}

/* Gives blocks back that others hold: the guest's, then those of the youngest running job. */
static bool make_room(struct engine *e, const struct job *keep) {
    return (e->give_way && e->give_way(e->guest)) || preempt(e, keep);
}

/* Blocks for n more rows; cached ones that nobody reads are given up for them. */
bool engine_reserve(struct engine *e, struct sequence *s, int32_t n) {
    struct kv *kv = &e->runner.kv;
    while (!sequence_reserve(s, kv, n)) {
        bool more = false;
        for (int32_t c = 0; c < kv->layout.n_classes && e->prefix; c++)
            if ((s->n_done + n + KV_BLOCK - 1) / KV_BLOCK - s->n_blocks[c] > kv->pools[c].n_free) more |= prefix_evict(e->prefix, c);
        if (!more) return false;
    }
    return true;
}

/* Adds n rows of a job to the batch; makes room by preemption. False when there is none to be made. */
static bool add_rows(struct engine *e, struct job *j, int32_t n) {
    struct runner *r = &e->runner;
    while (!engine_reserve(e, &j->seq, n))
        if (!make_room(e, j)) return false;
    bool last = j->seq.n_done + n == j->seq.n_tokens;
    j->i_logits = last ? r->batch.step.n_logits : -1;
    j->n_rows = n;
    batch_add(&r->batch, &j->seq, n, last ? LOGITS_LAST : LOGITS_NONE);
    return true;
}

static bool is_decoding(const struct job *j) {
    return j->seq.n_tokens - j->seq.n_done == 1 && j->seq.n_done > 0;
}

/* Decode rows first, then prompt chunks, as far as the rows last. */
static void plan(struct engine *e) {
    struct runner *r = &e->runner;
    batch_clear(&r->batch);
    e->stats.rows_decode = e->stats.rows_prefill = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        struct job *j = e->running[i];
        j->n_rows = 0;
        sequence_follow_rope(&j->seq, &r->kv, &r->model->spec, e->options.exact);
    }
    for (int32_t i = 0; i < e->n_running; i++)
        if (is_decoding(e->running[i])) {
            if (add_rows(e, e->running[i], 1)) e->stats.rows_decode++;
        }
    for (int32_t i = 0; i < e->n_running; i++) {
        struct job *j = e->running[i];
        if (j->n_rows || is_decoding(j)) continue;
        int32_t n = j->seq.n_tokens - j->seq.n_done, room = r->limits.rows - r->batch.step.n_rows;
        if (e->options.chunk > 0 && n > e->options.chunk) n = e->options.chunk;
        if (e->chunk > 0 && n > e->chunk - e->stats.rows_prefill) n = e->chunk - e->stats.rows_prefill;
        if (n > room) n = room;
        int32_t pause = e->prefix ? prefix_pause(e->prefix, &j->seq) : 0;
        if (j->seq.n_done < pause && pause < j->seq.n_done + n) n = pause - j->seq.n_done;
        n = sequence_rows_alike(&j->seq, &r->model->spec, e->options.exact, n);
        if (n == 0) break;
        if (!engine_reserve(e, &j->seq, n)) break; /* a prompt never preempts: it waits until blocks are free */
        if (add_rows(e, j, n)) e->stats.rows_prefill += n;
    }
}

/* Plans until somebody has rows. Requests that hold each other up give way, the youngest first; one that is alone and has no room will never
 * have any. */
static void plan_some(struct engine *e) {
    struct job *oldest = e->running[0];
    mem_guard_begin("engine plan");
    plan(e);
    while (e->runner.batch.step.n_rows == 0 && make_room(e, oldest)) plan(e);
    mem_guard_end();
    if (e->runner.batch.step.n_rows) return;
    struct err why;
    err_set(&why, ERR_EMEMORY, "the KV cache is too small for %d tokens", oldest->seq.n_tokens);
    remove_running(e, 0);
    end_job(e, oldest, FINISH_ERROR, -1, NULL, &why);
}

static const float *row_of(const struct engine *e, const struct job *j) {
    return e->logits ? e->logits + (int64_t)j->i_logits * e->runner.model->spec.vocab : NULL;
}

static void choose_items(void *ctx, int64_t first, int64_t last, int32_t worker) {
    struct engine *e = ctx;
    mem_guard_begin("choosing a token");
    for (int64_t i = first; i < last; i++) {
        struct job *j = e->choosing[i];
        struct engine_choice choice = {.logits = row_of(e, j),
                                       .vocab = e->runner.model->spec.vocab,
                                       .history = j->seq.tokens,
                                       .n_history = j->seq.n_tokens,
                                       .worker = worker};
        j->token = j->choose(j->user, &choice, &j->why);
    }
    mem_guard_end();
}

/* Tokens of all rows; those that are more than the largest logit by all workers at once. */
static void choose_all(struct engine *e) {
    struct backend *be = e->runner.backend;
    int32_t n = 0;
    for (int32_t i = 0; i < e->n_running; i++) {
        struct job *j = e->running[i];
        if (!j->n_rows || j->i_logits < 0) continue;
        if (j->choose) {
            e->choosing[n++] = j;
            continue;
        }
        j->token = e->best[j->i_logits];
        if (j->token < 0) err_set(&j->why, ERR_EDEVICE, "the model gave no finite logits");
    }
    if (n > 1 && be->type->each) be->type->each(be, n, choose_items, e);
    else choose_items(e, 0, n, 0);
}

static bool is_eos(const struct job *j, int32_t token) {
    for (int32_t i = 0; i < j->n_eos; i++)
        if (j->eos[i] == token) return true;
    return false;
}

/* Handles the result of one job; true when the job ended. */
static bool finish_row(struct engine *e, struct job *j) {
    const float *row = row_of(e, j);
    int32_t token = j->token;
    if (token < 0) {
        end_job(e, j, FINISH_ERROR, -1, NULL, &j->why);
        return true;
    }
    sequence_append(&j->seq, token);
    enum finish finish = is_eos(j, token) ? FINISH_EOS : j->seq.n_tokens >= j->n_limit ? FINISH_LENGTH : FINISH_NONE;
    if (finish) {
        end_job(e, j, finish, token, row, NULL);
        return true;
    }
    j->on_event(j->user, &(struct engine_event){.token = token, .n_cached = j->n_cached, .logits = row});
    return false;
}

static int collect(struct engine *e, struct err *err) {
    bool need = false;
    e->logits = NULL;
    for (int32_t i = 0; i < e->n_running; i++)
        need |= e->running[i]->n_rows && e->running[i]->i_logits >= 0 && (e->running[i]->choose || e->running[i]->want_logits);
    if (need) TRY(runner_logits(&e->runner, &e->logits, err));
    TRY(runner_best(&e->runner, e->best, err));
    choose_all(e);
    for (int32_t i = 0; i < e->n_running;) {
        struct job *j = e->running[i];
        bool ended = false;
        if (j->n_rows) {
            sequence_advance(&j->seq, &e->runner.kv, j->n_rows);
            if (e->prefix && (j->seq.n_done == j->seq.n_prompt || j->seq.n_done == prefix_pause(e->prefix, &j->seq)))
                prefix_keep(e->prefix, &j->seq);
            if (j->i_logits >= 0) ended = finish_row(e, j);
        }
        if (ended) remove_running(e, i);
        else i++;
    }
    return ERR_OK;
}

/* A request of no new tokens ends before it is computed. */
static void end_empty(struct engine *e) {
    for (int32_t i = 0; i < e->n_running;) {
        struct job *j = e->running[i];
        if (j->seq.n_tokens >= j->n_limit) {
            remove_running(e, i);
            end_job(e, j, FINISH_LENGTH, -1, NULL, NULL);
        } else {
            i++;
        }
    }
}

int32_t engine_next_chunk(int32_t chunk, int32_t n_rows, double ms, int32_t limit_ms, int32_t most) {
    if (ms > limit_ms) chunk = n_rows / 2;
    else if (n_rows >= chunk && ms * 3 < limit_ms) chunk *= 2;
    if (chunk < LEAST_CHUNK) chunk = LEAST_CHUNK;
    return chunk < most ? chunk : most;
}

/* Fits the chunks to a device that must not be busy for long. The results have been read, so the step is over. */
static void watch_time(struct engine *e, uint64_t started_ns) {
    int32_t limit = e->runner.backend->step_ms, n_rows = e->stats.rows_prefill;
    if (e->chunk > 0 && n_rows > 0)
        e->chunk = engine_next_chunk(e->chunk, n_rows, (double)(os_clock_ns() - started_ns) / 1e6, limit, e->runner.limits.rows);
}

int32_t engine_done(const struct job *job) {
    return job->seq.n_done;
}

int engine_step(struct engine *e, bool *out_idle, struct err *err) {
    admit(e);
    end_empty(e);
    *out_idle = e->n_running == 0 && e->n_waiting == 0;
    if (e->n_running == 0) return ERR_OK;
    plan_some(e);
    int code = ERR_OK;
    uint64_t started_ns = os_clock_ns();
    mem_guard_begin("engine step");
    if (e->runner.batch.step.n_rows) code = runner_run(&e->runner, err);
    mem_guard_end();
    if (!code && e->runner.batch.step.n_rows) code = collect(e, err);
    watch_time(e, started_ns);
    if (code) end_all(e, err);
    e->stats.n_steps++;
    return code;
}

struct engine_stats engine_stats(const struct engine *e) {
    struct engine_stats s = e->stats;
    s.n_running = e->n_running;
    s.n_waiting = e->n_waiting;
    return s;
}

int32_t engine_workers(const struct engine *e) {
    const struct backend *be = e->runner.backend;
    return be->type->each ? be->type->n_workers(be) : 1;
}

const struct runner_limits *engine_limits(const struct engine *e) {
    return &e->runner.limits;
}

struct runner *engine_runner(struct engine *e) {
    return &e->runner;
}
