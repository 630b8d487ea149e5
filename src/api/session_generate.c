/* One request on a session, from ids to text: sampling, stop strings, the events of the engine. */
#include "api/sampling.h"
#include "api/session_internal.h"
#include "engine/stop.h"
#include "os/os.h"

#include <stdatomic.h>

struct single {
    struct session *session;
    const struct generate_request *request;
    struct generate_stats *stats;
    struct sampler_params sampling;
    struct sampler_state state;
    struct sampler_result result;
    struct arena arena;
    struct tok_stream stream;
    struct stop stop;
    struct sb raw, text;
    uint64_t start_ns, first_ns, last_ns;
    bool ends, done; /* ends: by a stop string or by the caller's wish */
    struct err err;
};

static int32_t on_choose(void *user, const struct engine_choice *c, struct err *err) {
    struct single *one = user;
    struct sampler_input in = {
        .logits = c->logits, .history = c->history, .n_history = c->n_history, .n_prompt = one->request->n_tokens, .state = &one->state};
    return sampler_choose(one->session->work, &one->sampling, &in, &one->result, err);
}

static void give_text(struct single *one) {
    if (one->text.n && one->request->on_text && !one->request->on_text(one->request->user, sb_str(&one->text))) one->ends = true;
    sb_clear(&one->text);
}

static void push_text(struct single *one, int32_t token) {
    sb_clear(&one->raw);
    if (tok_stream_push(&one->stream, token, &one->raw, &one->err)) one->ends = true;
    if (stop_push(&one->stop, sb_str(&one->raw), &one->text)) {
        one->ends = true;
        one->stats->finish = GENERATE_STOP;
    }
    give_text(one);
}

static void flush_text(struct single *one) {
    sb_clear(&one->raw);
    if (tok_stream_flush(&one->stream, &one->raw, &one->err) == ERR_OK) stop_push(&one->stop, sb_str(&one->raw), &one->text);
    stop_flush(&one->stop, &one->text);
    give_text(one);
}

static void on_event(void *user, const struct engine_event *event) {
    struct single *one = user;
    const struct generate_request *r = one->request;
    if (event->token >= 0) {
        one->last_ns = os_clock_ns();
        one->stats->n_cached = event->n_cached;
        if (one->stats->n_new++ == 0) one->first_ns = one->last_ns;
        if (event->finish != FINISH_EOS) {
            if (r->on_token && !r->on_token(r->user, event->token, r->sampling && r->sampling->n_top >= 0 ? &one->result : NULL))
                one->ends = true;
            if (one->stream.t) push_text(one, event->token);
        }
    }
    if (!event->finish) return;
    one->done = true;
    if (event->finish == FINISH_ERROR) one->err = *event->err;
    if (event->finish == FINISH_EOS) one->stats->finish = GENERATE_STOP;
    if (event->finish == FINISH_LENGTH && one->stop.matched < 0) one->stats->finish = GENERATE_LENGTH;
}

static int prepare(struct single *one, struct engine_request *r, struct err *err) {
    struct session *s = one->session;
    const struct generate_request *request = one->request;
    if (request->on_text || request->n_stops) {
        TRY(session_text_load(s, err));
        tok_stream_init(&one->stream, s->tok, true);
    }
    TRY(stop_init(&one->stop, &one->arena, request->stops, request->n_stops, err));
    if (!request->ignore_eos) {
        r->eos = s->eos;
        r->n_eos = s->n_eos;
    }
    if (!request->sampling || sampler_is_plain(request->sampling)) return ERR_OK;
    TRY(sampler_check(request->sampling, s->model.spec.vocab, err));
    one->sampling = *request->sampling;
    if (one->sampling.dry_multiplier > 0) {
        TRY(session_text_load(s, err));
        one->sampling.dry_breakers = sampling_breakers(s, &one->arena, request->breakers, request->n_breakers);
    }
    if (!s->work) s->work = sampler_work_create(s->model.spec.vocab);
    r->choose = on_choose;
    return ERR_OK;
}

static int run(struct single *one, struct err *err) {
    const struct generate_request *request = one->request;
    struct engine *e = one->session->engine;
    struct engine_request r = {
        .tokens = request->tokens, .n_tokens = request->n_tokens, .max_new = request->max_new, .on_event = on_event, .user = one};
    struct job *job;
    bool idle = false;
    TRY(prepare(one, &r, err));
    TRY(engine_submit(e, &r, &job, err));
    while (!one->done) {
        if (request->on_prompt && one->stats->n_new == 0) request->on_prompt(request->user, engine_done(job), request->n_tokens);
        TRY(engine_step(e, &idle, err));
        if (request->interrupt && atomic_load(request->interrupt)) one->ends = true;
        if (one->ends && !one->done) engine_cancel(e, job);
    }
    if (one->stream.t && one->stop.matched < 0 && !one->err.code) flush_text(one);
    return one->err.code ? err_set(err, one->err.code, "%s", one->err.msg) : ERR_OK;
}

int session_generate(struct session *s, const struct generate_request *request, struct generate_stats *out_stats, struct err *err) {
    struct single one = {.session = s, .request = request, .stats = out_stats, .start_ns = os_clock_ns()};
    *out_stats = (struct generate_stats){.n_prompt = request->n_tokens, .finish = GENERATE_INTERRUPTED};
    one.stop.matched = -1;
    int code = run(&one, err);
    if (out_stats->n_new) {
        out_stats->prompt_seconds = (double)(one.first_ns - one.start_ns) * 1e-9;
        out_stats->new_seconds = (double)(one.last_ns - one.first_ns) * 1e-9;
    }
    if (one.stream.t) tok_stream_free(&one.stream);
    stop_free(&one.stop);
    sb_free(&one.raw);
    sb_free(&one.text);
    arena_free(&one.arena);
    return code;
}
