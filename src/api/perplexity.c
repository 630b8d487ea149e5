/* Perplexity: chunks as sequences of one batch, every row with its logits; sums in double and in the order of the text. */
#include "api/perplexity.h"

#include "api/session_internal.h"
#include "base/fmath.h"

struct lane {
    struct sequence seq;
    const int32_t *tokens; /* of its chunk */
    int32_t n;
    double sum, squares;
};

struct run {
    const struct perplexity_options *o;
    struct runner *r;
    struct lane *lanes;
    int32_t n_lanes;
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

/* The next chunks into the lanes; false when the text is used up. */
static bool fill(struct run *run) {
    run->n_lanes = 0;
    while (run->n_lanes < run->r->limits.seqs && run->o->n_tokens - run->at > 1) {
        size_t left = run->o->n_tokens - run->at;
        struct lane *lane = &run->lanes[run->n_lanes];
        *lane = (struct lane){.tokens = run->o->tokens + run->at, .n = left < (size_t)run->o->chunk ? (int32_t)left : run->o->chunk};
        if (!sequence_init(&lane->seq, &run->r->kv, lane->n)) break;
        for (int32_t i = 0; i < lane->n; i++) sequence_append(&lane->seq, lane->tokens[i]);
        lane->seq.n_prompt = lane->n;
        run->at += (size_t)lane->n;
        run->n_lanes++;
    }
    return run->n_lanes > 0;
}

static int step(struct run *run, bool *out_more, struct err *err) {
    struct runner *r = run->r;
    int32_t vocab = r->model->spec.vocab, share = r->limits.rows / run->n_lanes, rows[64] = {0};
    const float *logits;
    *out_more = false;
    batch_clear(&r->batch);
    for (int32_t i = 0; i < run->n_lanes; i++) {
        struct lane *lane = &run->lanes[i];
        int32_t left = lane->n - lane->seq.n_done;
        rows[i] = left < share ? left : share;
        if (rows[i] == 0) continue;
        if (!sequence_reserve(&lane->seq, &r->kv, rows[i])) return err_set(err, ERR_EMEMORY, "the KV cache is too small for this chunk");
        batch_add(&r->batch, &lane->seq, rows[i], LOGITS_ALL);
    }
    if (r->batch.step.n_rows == 0) return ERR_OK;
    TRY(runner_run(r, err));
    TRY(runner_logits(r, &logits, err));
    *out_more = true;
    for (int32_t i = 0; i < run->n_lanes; i++) {
        struct lane *lane = &run->lanes[i];
        for (int32_t k = 0; k < rows[i]; k++, logits += vocab) {
            int32_t next = lane->seq.n_done + k + 1;
            double x = next < lane->n ? surprise(logits, vocab, lane->tokens[next]) : 0;
            lane->sum += x;
            lane->squares += x * x;
        }
        if (rows[i]) sequence_advance(&lane->seq, &r->kv, rows[i]);
    }
    return ERR_OK;
}

static int tell(const struct run *run, struct err *err) {
    const struct perplexity_options *o = run->o;
    uint64_t done = run->at; /* of which the lanes have still to read some */
    for (int32_t i = 0; i < run->n_lanes; i++) done -= (uint64_t)(run->lanes[i].n - run->lanes[i].seq.n_done);
    if (!o->progress || o->progress(o->user, done, o->n_tokens, run->n ? m_exp(run->sum / (double)run->n) : 0)) return ERR_OK;
    return err_set(err, ERR_ECANCELLED, "interrupted");
}

static int run_chunks(struct run *run, struct err *err) {
    while (fill(run)) {
        bool more = true;
        int code = tell(run, err);
        while (more && !code) {
            code = step(run, &more, err);
            if (more && !code) code = tell(run, err);
        }
        for (int32_t i = 0; i < run->n_lanes; i++) {
            run->sum += run->lanes[i].sum;
            run->squares += run->lanes[i].squares;
            run->n += (uint64_t)run->lanes[i].n - 1;
            run->n_chunks++;
            sequence_free(&run->lanes[i].seq, &run->r->kv);
        }
        if (code) return code;
        if (!isfinite(run->sum)) return err_set(err, ERR_EDEVICE, "the model gave logits that are no numbers");
        run->n_lanes = 0;
    }
    return tell(run, err);
}

int perplexity_run(struct session *s, const struct perplexity_options *o, struct perplexity_result *out, struct err *err) {
    struct run run = {.o = o, .r = engine_runner(s->engine)};
    if (o->n_tokens < 2) return err_set(err, ERR_ELIMIT, "the text has less than two tokens");
    if (o->chunk < 2 || o->chunk > session_context(s))
        return err_set(err, ERR_EARG, "a chunk of %d tokens does not fit the context of %d", o->chunk, session_context(s));
    if (run.r->limits.seqs > 64) return err_set(err, ERR_EARG, "at most 64 chunks can be computed at once");
    for (size_t i = 0; i < o->n_tokens; i++)
        if (o->tokens[i] < 0 || o->tokens[i] >= s->model.spec.vocab)
            return err_set(err, ERR_EARG, "token %d is outside the vocabulary of %d", o->tokens[i], s->model.spec.vocab);
    run.lanes = mem_alloc((size_t)run.r->limits.seqs * sizeof *run.lanes);
    int code = run_chunks(&run, err);
    mem_free(run.lanes);
    if (code) return code;
    double n = (double)run.n, mean = run.sum / n, spread = run.squares / n - mean * mean;
    *out = (struct perplexity_result){.perplexity = m_exp(mean), .n_predicted = run.n, .n_chunks = run.n_chunks};
    out->error = n > 1 && spread > 0 ? out->perplexity * sqrt(spread / (n - 1)) : 0;
    return ERR_OK;
}
