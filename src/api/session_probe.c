/* Looking inside: logits of every position, and op lists as text. Both drive the runner directly. */
#include "api/session_internal.h"

#include "backend/trace/trace.h"

static int check_tokens(const struct session *s, const int32_t *tokens, int32_t n, struct err *err) {
    int32_t context = engine_limits(s->engine)->context;
    if (n < 1) return err_set(err, ERR_EARG, "no tokens were given");
    if (n > context) return err_set(err, ERR_ELIMIT, "%d tokens were given, the context holds %d", n, context);
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= s->model.spec.vocab)
            return err_set(err, ERR_EARG, "token %d is outside the vocabulary of %d", tokens[i], s->model.spec.vocab);
    return ERR_OK;
}

/* The next rows of the sequence, all with logits. */
static int emit_chunk(struct runner *r, struct sequence *seq, int32_t n, int (*emit)(void *, const float *, struct err *), void *user,
                      struct err *err) {
    const float *logits;
    batch_clear(&r->batch);
    if (!sequence_reserve(seq, &r->kv, n)) return err_set(err, ERR_EMEMORY, "the KV cache is too small");
    batch_add(&r->batch, seq, n, LOGITS_ALL);
    TRY(runner_run(r, err));
    TRY(runner_logits(r, &logits, err));
    sequence_advance(seq, &r->kv, n);
    for (int32_t i = 0; i < n; i++) TRY(emit(user, logits + (int64_t)i * r->model->spec.vocab, err));
    return ERR_OK;
}

int session_logits(struct session *s, const int32_t *tokens, int32_t n_tokens, int (*emit)(void *user, const float *row, struct err *err),
                   void *user, struct err *err) {
    TRY(check_tokens(s, tokens, n_tokens, err));
    struct runner *r = engine_runner(s->engine);
    struct sequence seq;
    if (!sequence_init(&seq, &r->kv, n_tokens)) return err_set(err, ERR_EBUSY, "the session is busy");
    for (int32_t i = 0; i < n_tokens; i++) sequence_append(&seq, tokens[i]);
    seq.n_prompt = n_tokens;
    int code = ERR_OK;
    while (seq.n_done < n_tokens && !code) {
        int32_t n = n_tokens - seq.n_done < r->limits.rows ? n_tokens - seq.n_done : r->limits.rows;
        code = emit_chunk(r, &seq, n, emit, user, err);
    }
    sequence_free(&seq, &r->kv);
    return code;
}

int session_trace(struct session *s, int32_t n_rows, struct sb *out, struct err *err) {
    struct runner *r = engine_runner(s->engine);
    struct sequence seq;
    if (!sequence_init(&seq, &r->kv, n_rows)) return err_set(err, ERR_EBUSY, "the session is busy");
    for (int32_t i = 0; i < n_rows; i++) sequence_append(&seq, 0);
    batch_clear(&r->batch);
    int code = sequence_reserve(&seq, &r->kv, n_rows) ? ERR_OK : err_set(err, ERR_EMEMORY, "the KV cache is too small");
    if (!code) {
        batch_add(&r->batch, &seq, n_rows, LOGITS_LAST);
        code = runner_run(r, err);
    }
    if (!code) sb_put(out, trace_text(s->backend));
    sequence_free(&seq, &r->kv);
    return code;
}
