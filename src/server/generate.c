/* Jobs of one call: submitted together, read as they speak, released when they end or the client does. */
#include "server/generate.h"

#include "server/adapters.h"
#include "server/server_internal.h"
#include "server/slots.h"
#include "server/sse.h"

#include "os/os.h"

enum { UNSENT_MAX = 256 * 1024, PROBE_MS = 1000 };

struct generation *generate_create(struct call *c, const struct gen_format *format) {
    struct generation *g = arena_new(&c->arena, struct generation, 1);
    g->call = c;
    g->format = format;
    g->params.service = c->service;
    g->params.vocab = service_info(c->service)->vocab;
    g->params.job.sampling = service_info(c->service)->sampling;
    g->params.job.sampling.seed = (uint64_t)c->settings->seed;
    g->params.job.has_seed = c->settings->has_seed;
    g->params.job.max_new = c->settings->max_new;
    g->params.job.shifts = c->settings->shifts;
    g->params.verbose = c->server->options.verbose;
    c->state = g;
    return g;
}

/* ---- the end ------------------------------------------------------------------------------------------------------------ */

static void release_all(struct generation *g) {
    for (int32_t i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        if (c->job) job_release(c->job);
        output_pieces_free(&c->pieces);
        output_pieces_free(&c->all);
        mem_free(c->tokens);
        mem_free(c->tops);
        mem_free(c->said);
        mem_free(c->scores);
        mem_free(c->score_tops);
        mem_free(c->reads);
    }
    g->n_choices = 0;
}

static void on_gone(struct call *c) {
    release_all(c->state);
}

/* The head leaves with the first frame: until then an error has its own status, and a balancer can send the request to another server. */
static void begin_stream(struct generation *g) {
    if (!g->call->exchange->streaming) http_stream_begin(g->call->exchange, 200, g->call->wire->stream_type);
}

static void fail(struct generation *g) {
    struct sb frame = {0};
    if (g->call->exchange->streaming && g->format->fail) g->format->fail(g, &frame);
    release_all(g);
    if (frame.n) call_end_stream(g->call, sb_str(&frame));
    else call_reply_error(g->call);
    sb_free(&frame);
}

static void finish(struct generation *g) {
    struct call *c = g->call;
    struct sb out = {0};
    if (!g->params.stream) {
        g->format->whole(g, &out);
        release_all(g);
        call_reply_json(c, 200, sb_str(&out));
    } else {
        begin_stream(g);
        g->format->done(g, &out);
        release_all(g);
        call_end_stream(c, sb_str(&out));
    }
    sb_free(&out);
}

/* ---- events ------------------------------------------------------------------------------------------------------------- */

static void *grow(void *p, size_t need, size_t *capacity, size_t size) {
    if (need <= *capacity) return p;
    *capacity = need < 64 ? 64 : need * 2;
    return mem_realloc(p, *capacity * size);
}

/* Tokens are kept where the answer names them. */
static void keep_tokens(struct gen_choice *c, const struct job_events *ev) {
    size_t n_tops = 0;
    for (size_t i = 0; i < ev->n_tokens; i++) n_tops += (size_t)ev->tokens[i].n_top;
    if (ev->n_tokens == 0 || !(c->gen->params.logprobs || c->gen->params.keeps_tokens)) return;
    c->tokens = grow(c->tokens, c->n_tokens + ev->n_tokens, &c->tokens_capacity, sizeof *c->tokens);
    memcpy(c->tokens + c->n_tokens, ev->tokens, ev->n_tokens * sizeof *ev->tokens);
    c->n_tokens += ev->n_tokens;
    if (n_tops == 0) return;
    c->tops = grow(c->tops, c->n_tops + n_tops, &c->tops_capacity, sizeof *c->tops);
    memcpy(c->tops + c->n_tops, ev->tops, n_tops * sizeof *ev->tops);
    c->n_tops += n_tops;
}

static void keep_said(struct gen_choice *c, const struct job_events *ev) {
    if (!slots_are_kept(c->gen->call)) return;
    c->said = grow(c->said, c->n_said + ev->n_tokens, &c->said_capacity, sizeof *c->said);
    for (size_t i = 0; i < ev->n_tokens; i++) c->said[c->n_said++] = ev->tokens[i].id;
}

static void keep_scores(struct gen_choice *c, const struct job_events *ev) {
    size_t n_tops = 0;
    if (ev->n_scores == 0) return;
    for (size_t i = 0; i < ev->n_scores; i++) n_tops += (size_t)ev->scores[i].n_top;
    c->scores = grow(c->scores, c->n_scores + ev->n_scores, &c->scores_capacity, sizeof *c->scores);
    memcpy(c->scores + c->n_scores, ev->scores, ev->n_scores * sizeof *ev->scores);
    c->n_scores += ev->n_scores;
    c->score_tops = grow(c->score_tops, c->n_score_tops + n_tops + 1, &c->score_tops_capacity, sizeof *c->score_tops);
    if (n_tops) memcpy(c->score_tops + c->n_score_tops, ev->score_tops, n_tops * sizeof *ev->score_tops);
    c->n_score_tops += n_tops;
}

static void keep_reads(struct gen_choice *c, const struct job_events *ev) {
    if (ev->n_reads == 0 || !c->gen->params.stream) return;
    c->reads = grow(c->reads, c->n_reads + ev->n_reads, &c->reads_capacity, sizeof *c->reads);
    memcpy(c->reads + c->n_reads, ev->reads, ev->n_reads * sizeof *ev->reads);
    c->n_reads += ev->n_reads;
}

/* A report for each step; the first of all tells what was known before. */
static void put_progress(struct generation *g, struct gen_choice *c, struct sb *out) {
    for (size_t i = 0; i < c->n_reads; i++) {
        if (!c->has_progress) {
            c->usage.n_read = c->usage.n_cached;
            g->format->progress(g, c, out);
        }
        c->has_progress = true;
        c->usage.n_read = c->reads[i];
        g->format->progress(g, c, out);
    }
    c->n_reads = 0;
}

/* Writes what the choice has gathered; false when the client is gone (and the call with it). The first frame leaves with the first token, also
 * where that has no text yet: clients take it for the time that the prompt took. */
static bool stream(struct generation *g, struct gen_choice *c) {
    struct http_exchange *x = g->call->exchange;
    struct sb out = {0};
    if (g->format->progress && g->params.job.wants_progress) put_progress(g, c, &out);
    if (!c->has_begun && (c->usage.n_new || c->finish)) {
        g->format->begin(g, c, &out);
        c->has_begun = true;
    }
    if (c->pieces.n || (c->n_tokens && c->finish)) {
        g->format->piece(g, c, &out);
        output_pieces_clear(&c->pieces);
        c->n_tokens = c->n_tops = 0;
    }
    if (c->finish) g->format->end(g, c, &out);
    http_hold(x);
    if (out.n) {
        g->written_ns = os_clock_ns();
        begin_stream(g);
        http_stream_write(x, sb_str(&out));
    }
    sb_free(&out);
    bool here = x->conn != NULL;
    http_release(x);
    return here;
}

int generate_check_finish(struct api_error *e, const struct job_events *ev, const char *param) {
    switch (ev->finish) {
    case JOB_ERROR: return api_fail_err(e, &ev->err, param);
    case JOB_DEADLINE: return api_fail(e, 504, "timeout", NULL, "the request took longer than the server allows");
    case JOB_CANCELLED: return api_fail(e, 503, "cancelled", NULL, "the request was cancelled");
    default: return 0;
    }
}

/* The request's own limit of time; it waits for a line to be complete. */
static bool is_late(const struct generation *g, const struct gen_choice *c) {
    return g->params.max_new_ms > 0 && c->has_newline && c->usage.new_seconds * 1000 > (double)g->params.max_new_ms;
}

static void take(struct gen_choice *c) {
    struct generation *g = c->gen;
    struct job_events ev;
    c->is_blocked = false;
    job_take(c->job, &ev);
    if (generate_check_finish(&g->call->error, &ev, NULL)) {
        fail(g);
        return;
    }
    output_pieces_append(&c->pieces, ev.pieces);
    if (g->format->keeps) output_pieces_append(&c->all, ev.pieces);
    for (size_t i = 0; i < ev.pieces->n; i++) {
        c->n_calls += ev.pieces->p[i].kind == OUTPUT_CALL_END;
        c->has_newline |= str_find_char(output_piece_text(ev.pieces, &ev.pieces->p[i]), '\n', 0) != STR_NONE;
    }
    keep_tokens(c, &ev);
    keep_said(c, &ev);
    keep_scores(c, &ev);
    keep_reads(c, &ev);
    c->finish = ev.finish;
    c->stopped_by = ev.stopped_by;
    c->usage = ev.usage;
    if (!c->finish && is_late(g, c)) c->finish = JOB_LENGTH;
    if (c->finish) {
        if (slots_are_kept(g->call)) slots_keep(c);
        job_release(c->job);
        c->job = NULL;
        g->n_open--;
    }
    if (g->params.stream && !stream(g, c)) return;
    if (g->n_open == 0) finish(g);
}

static void on_ready(struct job_listener *listener) {
    struct gen_choice *c = (struct gen_choice *)listener;
    if (c->gen->params.stream && http_pending(c->gen->call->exchange) > UNSENT_MAX) c->is_blocked = true;
    else take(c);
}

static void on_drained(struct call *call) {
    struct generation *g = call->state;
    for (int32_t i = 0; i < g->n_choices; i++)
        if (g->choices[i].is_blocked) {
            take(&g->choices[i]); /* may end everything: one at a time, the next one when this has left */
            return;
        }
}

static void on_tick(struct call *call, uint64_t now) {
    struct generation *g = call->state;
    uint64_t ping_ns = (uint64_t)call->server->options.ping_ms * 1000000;
    if (http_is_half_closed(call->exchange)) ping_ns = (uint64_t)PROBE_MS * 1000000; /* is anybody there? */
    if (!g->params.stream || !call->wire->ping || ping_ns == 0 || now < g->written_ns + ping_ns) return;
    struct sb out = {0};
    call->wire->ping(&out);
    g->written_ns = now;
    begin_stream(g);
    http_stream_write(call->exchange, sb_str(&out));
    sb_free(&out);
}

/* ---- the beginning ------------------------------------------------------------------------------------------------------ */

static struct job_spec spec_of(const struct generation *g, struct gen_choice *c) {
    const struct gen_prompt *prompt = &g->prompts[c->i_prompt];
    struct job_spec spec = g->params.job;
    spec.tokens = prompt->ids.p;
    spec.n_tokens = prompt->ids.n;
    spec.splits = g->format->splits;
    spec.calls_in_parts = g->format->calls_in_parts && g->params.stream;
    spec.continues |= g->format->continues;
    spec.deadline_ms = g->call->server->options.deadline_ms;
    spec.user = c;
    spec.sampling.seed +=
        (uint64_t)(c->index % g->params.n) * UINT64_C(0x9E3779B97F4A7C15); /* choices differ, the first has the seed itself */
    return spec;
}

static int fail_submit(struct generation *g, const struct err *err) {
    struct api_error *e = &g->call->error;
    api_fail_err(e, err, g->format->input);
    if (err->code != ERR_ELIMIT) return -1;
    e->n_context = service_info(g->call->service)->context;
    for (int32_t i = 0; i < g->n_prompts; i++)
        if (g->prompts[i].ids.n > e->n_prompt) e->n_prompt = g->prompts[i].ids.n;
    return -1;
}

static int submit_all(struct generation *g) {
    struct arena *a = &g->call->arena;
    int32_t n = g->n_prompts * g->params.n;
    struct job_spec *specs = arena_new(a, struct job_spec, n);
    struct job **jobs = arena_new(a, struct job *, n);
    struct err err;
    g->choices = arena_new(a, struct gen_choice, n);
    for (int32_t i = 0; i < n; i++) {
        g->choices[i] = (struct gen_choice){.listener = {on_ready}, .gen = g, .index = i, .i_prompt = i / g->params.n};
        specs[i] = spec_of(g, &g->choices[i]);
        specs[i].adapters = g->call->adapters;
    }
    if (service_submit(g->call->service, specs, n, jobs, &err)) return fail_submit(g, &err);
    for (int32_t i = 0; i < n; i++) g->choices[i].job = jobs[i];
    g->n_open = g->n_choices = n;
    return 0;
}

void generate_start(struct call *c) {
    struct generation *g = c->state;
    g->id = server_new_id(c->server, &c->arena, g->format->id_prefix);
    g->created = os_wall_ns() / 1000000000;
    g->fingerprint = server_fingerprint(c);
    if (submit_all(g)) {
        fail(g);
        return;
    }
    c->on_gone = on_gone;
    c->on_drained = on_drained;
    c->on_tick = on_tick;
    g->written_ns = os_clock_ns();
    if (g->params.stream && c->exchange->request.minor == 0) begin_stream(g); /* HTTP/1.0 has no other way to see that a client is gone */
}

void generate_put_head(const struct generation *g, const char *object, struct jsonw *w) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", g->id);
    jsonw_put_str(w, "object", str_of(object));
    jsonw_put_int(w, "created", g->created);
    jsonw_put_str(w, "model", adapters_model_name(g->call));
    jsonw_put_str(w, "system_fingerprint", g->fingerprint);
    jsonw_open(w, "choices", '[');
}

double generate_logprob(float logprob) {
    return logprob > -9999 ? (double)logprob : -9999;
}

void generate_put_finish(const struct gen_choice *c, enum job_finish finish, struct jsonw *w) {
    struct str stop = c->n_calls ? STR("tool_calls") : STR("stop");
    if (finish) jsonw_put_str(w, "finish_reason", finish == JOB_STOP ? stop : STR("length"));
    else jsonw_put_null(w, "finish_reason");
}

void generate_join(const struct output_pieces *pieces, enum output_kind kind, struct sb *out) {
    for (size_t i = 0; i < pieces->n; i++)
        if (pieces->p[i].kind == kind) sb_put(out, output_piece_text(pieces, &pieces->p[i]));
}

void generate_put_usage(const struct generation *g, struct jsonw *w) {
    int64_t n_prompt = 0, n_new = 0, n_cached = 0, n_reasoning = 0;
    for (int32_t i = 0; i < g->n_prompts; i++) n_prompt += g->prompts[i].ids.n;
    for (int32_t i = 0; i < g->n_choices; i++) {
        n_new += g->choices[i].usage.n_new;
        n_reasoning += g->choices[i].usage.n_reasoning;
        if (i % g->params.n == 0) n_cached += g->choices[i].usage.n_cached;
    }
    jsonw_open(w, "usage", '{');
    jsonw_put_int(w, "prompt_tokens", n_prompt);
    jsonw_put_int(w, "completion_tokens", n_new);
    jsonw_put_int(w, "total_tokens", n_prompt + n_new);
    jsonw_open(w, "prompt_tokens_details", '{');
    jsonw_put_int(w, "cached_tokens", n_cached);
    jsonw_end(w, '}');
    jsonw_open(w, "completion_tokens_details", '{');
    jsonw_put_int(w, "reasoning_tokens", n_reasoning);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

static double rate(double n, double seconds) {
    return seconds > 0 ? n / seconds : 0;
}

/* n_prompt: without those that were known. */
static void put_timings(const struct job_usage *u, int32_t n_prompt, struct jsonw *w) {
    jsonw_open(w, "timings", '{');
    jsonw_put_int(w, "cache_n", u->n_cached);
    jsonw_put_int(w, "prompt_n", n_prompt);
    jsonw_put_num(w, "prompt_ms", u->prompt_seconds * 1000);
    jsonw_put_num(w, "prompt_per_token_ms", rate(u->prompt_seconds * 1000, n_prompt));
    jsonw_put_num(w, "prompt_per_second", rate(n_prompt, u->prompt_seconds));
    jsonw_put_int(w, "predicted_n", u->n_new);
    jsonw_put_num(w, "predicted_ms", u->new_seconds * 1000);
    jsonw_put_num(w, "predicted_per_token_ms", rate(u->new_seconds * 1000, u->n_new));
    jsonw_put_num(w, "predicted_per_second", rate(u->n_new, u->new_seconds));
    if (u->n_drafted > 0) {
        jsonw_put_int(w, "draft_n", u->n_drafted);
        jsonw_put_int(w, "draft_n_accepted", u->n_accepted);
    }
    jsonw_end(w, '}');
}

void generate_put_choice_timings(const struct gen_choice *c, struct jsonw *w) {
    put_timings(&c->usage, c->usage.n_prompt - c->usage.n_cached, w);
}

/* Choices are computed at the same time: numbers are added, the longest time counts. */
void generate_put_timings(const struct generation *g, struct jsonw *w) {
    struct job_usage all = {0};
    for (int32_t i = 0; i < g->n_choices; i++) {
        const struct job_usage *u = &g->choices[i].usage;
        all.n_cached += u->n_cached;
        all.n_prompt += u->n_prompt;
        all.n_new += u->n_new;
        all.n_drafted += u->n_drafted;
        all.n_accepted += u->n_accepted;
        if (u->prompt_seconds > all.prompt_seconds) all.prompt_seconds = u->prompt_seconds;
        if (u->new_seconds > all.new_seconds) all.new_seconds = u->new_seconds;
    }
    put_timings(&all, all.n_prompt - all.n_cached, w);
}

void generate_put_progress(const struct gen_choice *c, struct jsonw *w) {
    jsonw_open(w, "prompt_progress", '{');
    jsonw_put_int(w, "total", c->usage.n_prompt);
    jsonw_put_int(w, "cache", c->usage.n_cached);
    jsonw_put_int(w, "processed", c->usage.n_read);
    jsonw_put_num(w, "time_ms", (double)(os_clock_ns() - c->gen->call->begun_ns) * 1e-6);
    jsonw_end(w, '}');
}

void generate_end_chunk(const struct generation *g, struct jsonw *w, unsigned parts, struct sb *out) {
    jsonw_end(w, ']');
    const struct params *p = &g->params;
    if (parts & CHUNK_USAGE || (p->include_usage && p->usage_always)) {
        generate_put_usage(g, w);
    } else if (p->include_usage) {
        jsonw_put_null(w, "usage");
    }
    if (parts & CHUNK_TIMINGS) generate_put_timings(g, w);
    jsonw_end(w, '}');
    sse_put(out, NULL, sb_str(w->out));
    sb_free(w->out);
}
