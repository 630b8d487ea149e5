/* Looking inside: logits of every position, and op lists as text. */
#include "tools/probe.h"

#include "api/session_internal.h"

#include "backend/trace/trace.h"

struct emitter {
    int (*emit)(void *user, const float *row, struct err *err);
    void *user;
    int32_t vocab;
    int code;
    struct err err;
};

static void on_rows(void *user, int32_t first, int32_t n_rows, const float *logits) {
    struct emitter *e = user;
    (void)first;
    for (int32_t i = 0; i < n_rows && !e->code; i++) e->code = e->emit(e->user, logits + (int64_t)i * e->vocab, &e->err);
}

static bool goes_on(void *user, const struct job_events *events) {
    (void)events;
    return ((struct emitter *)user)->code == ERR_OK;
}

int probe_logits(struct session *s, const struct job_spec *prompt, int (*emit)(void *user, const float *row, struct err *err), void *user,
                 struct err *err) {
    struct emitter e = {.emit = emit, .user = user, .vocab = s->model.spec.vocab};
    struct job_spec spec = *prompt;
    spec.rows = ROWS_LOGITS;
    spec.on_rows = on_rows;
    spec.rows_user = &e;
    spec.wants_progress = true;
    struct session_watch watch = {.on_events = goes_on, .user = &e};
    struct session_result result;
    TRY(session_run(s, &spec, &watch, &result, err));
    return e.code ? err_set(err, e.code, "%s", e.err.msg) : ERR_OK;
}

int probe_trace(struct session *s, int32_t n_rows, struct sb *out, struct err *err) {
    int32_t *tokens = mem_alloc((size_t)n_rows * sizeof *tokens);
    struct job_spec spec = {.tokens = tokens, .n_tokens = n_rows, .max_new = 1, .sampling = sampler_defaults()};
    struct session_result result;
    int code = session_run(s, &spec, NULL, &result, err);
    mem_free(tokens);
    if (!code) sb_put(out, trace_text(s->backend));
    return code;
}
