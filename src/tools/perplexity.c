/* Perplexity: chunks are jobs that want the logits of every position; sums in double and in the order of the text. */
#include "tools/perplexity.h"

#include "api/session_internal.h"
#include "base/fmath.h"

/* A chunk of the text that is being computed. */
struct lane {
    struct run *run;
    struct job *job;       /* NULL: over */
    const int32_t *tokens; /* of its chunk */
    int32_t n, n_read;
    double sum, squares;
};

struct run {
    const struct perplexity_options *o;
    struct session *session;
    struct lane *lanes;
    int32_t n_lanes, vocab;
    double sum, squares; /* of the negative log-probabilities */
    uint64_t n, n_chunks;
    size_t at; /* tokens given to lanes */
};

static double surprise(const float *logits, int32_t vocab, int32_t token) {
    double best = -INFINITY, sum = 0;
    for (int32_t i = 0; i < vocab; i++)
        if ((double)logits[i] > best) best = (double)logits[i];
    for (int32_t i = 0; i < vocab; i++) sum += m_exp((double)logits[i] - best);
    return best + m_log(sum) - (double)logits[token];
}

static void on_rows(void *user, int32_t first, int32_t n_rows, const float *logits) {
    struct lane *lane = user;
    int32_t vocab = lane->run->vocab;
    for (int32_t i = 0; i < n_rows; i++, logits += vocab) {
        int32_t next = first + i + 1;
        double x = next < lane->n ? surprise(logits, vocab, lane->tokens[next]) : 0;
        lane->sum += x;
        lane->squares += x * x;
    }
}

/* The next chunks into the lanes, as many as the session computes at once. */
static int fill(struct run *run, struct err *err) {
    run->n_lanes = 0;
    while (run->n_lanes < engine_limits(run->session->engine)->seqs && run->o->n_tokens - run->at > 1) {
        size_t left = run->o->n_tokens - run->at;
        struct lane *lane = &run->lanes[run->n_lanes];
        *lane = (struct lane){
            .run = run, .tokens = run->o->tokens + run->at, .n = left < (size_t)run->o->chunk ? (int32_t)left : run->o->chunk};
        struct job_spec spec = {.tokens = lane->tokens,
                                .n_tokens = lane->n,
                                .rows = ROWS_LOGITS,
                                .on_rows = on_rows,
                                .rows_user = lane,
                                .wants_progress = true,
                                .user = lane};
        TRY(engine_submit(run->session->engine, &spec, 1, &lane->job, err));
        run->at += (size_t)lane->n;
        run->n_lanes++;
    }
    return ERR_OK;
}

/* One step of all lanes; *out_more when one of them is not yet over. */
static int step(struct run *run, bool *out_more, struct err *err) {
    struct job *job;
    bool idle;
    TRY(engine_turn(run->session->engine, &idle, err));
    while ((job = engine_next_ready(run->session->engine))) {
        struct lane *lane = job_user(job);
        struct job_events ev;
        job_take(job, &ev);
        lane->n_read = ev.usage.n_read;
        if (ev.finish == JOB_ERROR) return err_set(err, ev.err.code, "%s", ev.err.msg);
        if (!ev.finish) continue;
        job_release(job);
        lane->job = NULL;
    }
    *out_more = !idle;
    return ERR_OK;
}

static int tell(const struct run *run, struct err *err) {
    const struct perplexity_options *o = run->o;
    uint64_t done = run->at; /* of which the lanes have still to read some */
    for (int32_t i = 0; i < run->n_lanes; i++) done -= (uint64_t)(run->lanes[i].n - run->lanes[i].n_read);
    if (!o->progress || o->progress(o->user, done, o->n_tokens, run->n ? m_exp(run->sum / (double)run->n) : 0)) return ERR_OK;
    return err_set(err, ERR_ECANCELLED, "interrupted");
}

/* Adds up what the lanes found, in the order of the text. */
static void add_lanes(struct run *run) {
    for (int32_t i = 0; i < run->n_lanes; i++) {
        run->sum += run->lanes[i].sum;
        run->squares += run->lanes[i].squares;
        run->n += (uint64_t)run->lanes[i].n - 1;
        run->n_chunks++;
    }
    run->n_lanes = 0;
}

static int run_chunks(struct run *run, struct err *err) {
    for (;;) {
        TRY(fill(run, err));
        TRY(tell(run, err));
        if (run->n_lanes == 0) return ERR_OK;
        for (bool more = true; more;) {
            TRY(step(run, &more, err));
            if (more) TRY(tell(run, err));
        }
        add_lanes(run);
        if (!isfinite(run->sum)) return err_set(err, ERR_EDEVICE, "the model gave logits that are no numbers");
    }
}

int perplexity_run(struct session *s, const struct perplexity_options *o, struct perplexity_result *out, struct err *err) {
    struct run run = {.o = o, .session = s, .vocab = session_vocab(s)};
    if (o->n_tokens < 2) return err_set(err, ERR_ELIMIT, "the text has less than two tokens");
    if (o->chunk < 2 || o->chunk > session_context(s))
        return err_set(err, ERR_EARG, "a chunk of %d tokens does not fit the context of %d", o->chunk, session_context(s));
    run.lanes = mem_alloc((size_t)engine_limits(s->engine)->seqs * sizeof *run.lanes);
    int code = run_chunks(&run, err);
    for (int32_t i = 0; i < run.n_lanes; i++) /* it was given up */
        if (run.lanes[i].job) job_release(run.lanes[i].job);
    mem_free(run.lanes);
    if (code) return code;
    double n = (double)run.n, mean = run.sum / n, spread = run.squares / n - mean * mean;
    *out = (struct perplexity_result){.perplexity = m_exp(mean), .n_predicted = run.n, .n_chunks = run.n_chunks};
    out->error = n > 1 && spread > 0 ? out->perplexity * sqrt(spread / (n - 1)) : 0;
    return ERR_OK;
}
