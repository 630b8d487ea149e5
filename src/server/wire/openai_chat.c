/* OpenAI: POST /v1/chat/completions. */
#include "server/chat.h"
#include "server/details.h"
#include "server/sse.h"

/* ---- the wire ----------------------------------------------------------------------------------------------------------- */

static void put_token(struct generation *g, struct jsonw *w, int32_t id, float logprob) {
    struct str text = service_token_text(g->call->service, id);
    jsonw_put_str(w, "token", text);
    jsonw_key(w, "logprob");
    jsonw_fixed(w, generate_logprob(logprob));
    jsonw_open(w, "bytes", '[');
    for (size_t i = 0; i < text.n; i++) jsonw_int(w, (unsigned char)text.p[i]);
    jsonw_end(w, ']');
}

static void put_logprobs(struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    const struct sampler_top *top = c->tops;
    jsonw_key(w, "logprobs");
    if (!g->params.logprobs) {
        jsonw_null(w);
        return;
    }
    jsonw_begin(w, '{');
    jsonw_open(w, "content", '[');
    for (size_t i = 0; i < c->n_tokens; i++) {
        jsonw_begin(w, '{');
        put_token(g, w, c->tokens[i].id, c->tokens[i].logprob);
        jsonw_open(w, "top_logprobs", '[');
        for (int32_t k = 0; k < c->tokens[i].n_top; k++, top++) {
            jsonw_begin(w, '{');
            put_token(g, w, top->token, top->logprob);
            jsonw_end(w, '}');
        }
        jsonw_end(w, ']');
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
    jsonw_put_null(w, "refusal");
    jsonw_end(w, '}');
}

static void put_calls(struct generation *g, struct gen_choice *c, struct jsonw *w) {
    if (c->n_calls == 0) return;
    jsonw_open(w, "tool_calls", '[');
    for (size_t i = 0; i < c->pieces.n; i++) {
        const struct output_piece *p = &c->pieces.p[i];
        if (p->kind != OUTPUT_CALL) continue;
        jsonw_begin(w, '{');
        jsonw_put_str(w, "id", chat_call_id(g, c, &c->pieces, p));
        jsonw_put_str(w, "type", STR("function"));
        jsonw_open(w, "function", '{');
        jsonw_put_str(w, "name", output_piece_text(&c->pieces, p));
        jsonw_put_str(w, "arguments", chat_call_arguments(g, &c->pieces, p->call));
        jsonw_end(w, '}');
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
}

static void put_message(struct generation *g, struct gen_choice *c, struct jsonw *w) {
    struct sb content = {0}, reasoning = {0};
    generate_join(&c->pieces, OUTPUT_CONTENT, &content);
    generate_join(&c->pieces, OUTPUT_REASONING, &reasoning);
    jsonw_open(w, "message", '{');
    jsonw_put_str(w, "role", STR("assistant"));
    if (content.n == 0 && c->n_calls) jsonw_put_null(w, "content");
    else jsonw_put_str(w, "content", sb_str(&content));
    if (reasoning.n) {
        jsonw_put_str(w, "reasoning_content", sb_str(&reasoning));
        jsonw_put_str(w, "reasoning", sb_str(&reasoning));
    }
    put_calls(g, c, w);
    jsonw_put_null(w, "refusal");
    jsonw_end(w, '}');
    sb_free(&content);
    sb_free(&reasoning);
}

static void put_whole(struct generation *g, struct sb *out) {
    struct jsonw w = {.out = out};
    generate_put_head(g, "chat.completion", &w);
    for (int32_t i = 0; i < g->n_choices; i++) {
        struct gen_choice *c = &g->choices[i];
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "index", c->index);
        put_message(g, c, &w);
        put_logprobs(g, c, &w);
        generate_put_finish(c, c->finish, &w);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    generate_put_usage(g, &w);
    generate_put_timings(g, &w);
    if (g->params.verbose) details_put(g, &g->choices[0], "__verbose", &w);
    jsonw_end(&w, '}');
}

/* One frame: a role, a piece, or an end. */
struct delta {
    const char *role;
    const struct output_piece *piece;
    bool has_logprobs;
    enum job_finish finish;
};

/* The beginning of a call has its id and its name; what follows has arguments alone. */
static void put_call_delta(struct generation *g, struct gen_choice *c, const struct output_piece *p, struct jsonw *w) {
    struct str text = output_piece_text(&c->pieces, p);
    jsonw_open(w, "tool_calls", '[');
    jsonw_begin(w, '{');
    jsonw_put_int(w, "index", p->call);
    if (p->kind == OUTPUT_CALL) {
        jsonw_put_str(w, "id", chat_call_id(g, c, &c->pieces, p));
        jsonw_put_str(w, "type", STR("function"));
    }
    jsonw_open(w, "function", '{');
    if (p->kind == OUTPUT_CALL) jsonw_put_str(w, "name", text);
    jsonw_put_str(w, "arguments", p->kind == OUTPUT_CALL ? STR("") : text);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    jsonw_end(w, ']');
}

static void put_delta(struct generation *g, struct gen_choice *c, const struct delta *d, struct jsonw *w) {
    struct str text = d->piece ? output_piece_text(&c->pieces, d->piece) : STR("");
    jsonw_open(w, "delta", '{');
    if (d->role) {
        jsonw_put_str(w, "role", str_of(d->role));
        if (!str_starts(g->call->exchange->request.path, STR("/v1/"))) jsonw_put_null(w, "content"); /* as llama-server has it */
    }
    if (d->piece && d->piece->kind == OUTPUT_CONTENT) jsonw_put_str(w, "content", text);
    if (d->piece && d->piece->kind == OUTPUT_REASONING) {
        jsonw_put_str(w, "reasoning_content", text);
        jsonw_put_str(w, "reasoning", text);
    }
    if (d->piece && (d->piece->kind == OUTPUT_CALL || d->piece->kind == OUTPUT_ARGUMENTS)) put_call_delta(g, c, d->piece, w);
    jsonw_end(w, '}');
}

static void put_chunk(struct generation *g, struct gen_choice *c, const struct delta *d, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    generate_put_head(g, "chat.completion.chunk", &w);
    jsonw_begin(&w, '{');
    jsonw_put_int(&w, "index", c->index);
    put_delta(g, c, d, &w);
    if (d->has_logprobs) {
        put_logprobs(g, c, &w);
    } else {
        jsonw_put_null(&w, "logprobs");
    }
    generate_put_finish(c, d->finish, &w);
    jsonw_end(&w, '}');
    bool is_last = d->finish && g->n_open == 0 && !g->params.include_usage;
    generate_end_chunk(g, &w, is_last || (g->params.timings_always && !d->role) ? CHUNK_TIMINGS : 0, out);
}

static void put_begin(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_chunk(g, c, &(struct delta){.role = "assistant"}, out);
}

static bool is_shown(const struct output_piece *p) {
    return p->kind != OUTPUT_CALL_END && p->kind != OUTPUT_CALL_CUT;
}

/* A frame for each piece; log-probabilities go with the first. */
static void put_pieces(struct generation *g, struct gen_choice *c, struct sb *out) {
    bool has_logprobs = g->params.logprobs;
    for (size_t i = 0; i < c->pieces.n; i++) {
        if (!is_shown(&c->pieces.p[i])) continue;
        put_chunk(g, c, &(struct delta){.piece = &c->pieces.p[i], .has_logprobs = has_logprobs}, out);
        has_logprobs = false;
    }
    if (has_logprobs) put_chunk(g, c, &(struct delta){.has_logprobs = true}, out); /* of tokens without a text of their own */
}

static void put_end(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_chunk(g, c, &(struct delta){.finish = c->finish}, out);
}

static void put_done(struct generation *g, struct sb *out) {
    if (g->params.include_usage) {
        struct sb json = {0};
        struct jsonw w = {.out = &json};
        generate_put_head(g, "chat.completion.chunk", &w);
        generate_end_chunk(g, &w, CHUNK_USAGE | CHUNK_TIMINGS, out);
    }
    sse_put(out, NULL, STR("[DONE]"));
}

static void put_progress(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    generate_put_head(g, "chat.completion.chunk", &w);
    jsonw_end(&w, ']');
    generate_put_progress(c, &w);
    jsonw_end(&w, '}');
    sse_put(out, NULL, sb_str(&json));
    sb_free(&json);
}

static const struct gen_format chat_format = {.id_prefix = "chatcmpl-",
                                              .input = "messages",
                                              .splits = true,
                                              .calls_in_parts = true,
                                              .begin = put_begin,
                                              .piece = put_pieces,
                                              .end = put_end,
                                              .done = put_done,
                                              .whole = put_whole,
                                              .progress = put_progress};

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int prepare(struct call *c) {
    return chat_prepare(c, c->body, &chat_format);
}

/* The prompt's length, without an answer. */
static int prepare_count(struct call *c) {
    int32_t n;
    if (chat_count(c, c->body, &n)) return -1;
    c->state = arena_copy(&c->arena, &n, sizeof n);
    return 0;
}

static void show_count(struct call *c) {
    struct str json = str_fmt(&c->arena, "{\"object\":\"chat.completion.input_tokens\",\"input_tokens\":%d}", (int)*(int32_t *)c->state);
    call_reply_json(c, 200, json);
}

const struct route routes_chat[] = {
    {"POST", "/v1/chat/completions", 0, prepare, generate_start},
    {"POST", "/chat/completions", 0, prepare, generate_start},
    {"POST", "/v1/chat/completions/input_tokens", 0, prepare_count, show_count},
    {"POST", "/chat/completions/input_tokens", 0, prepare_count, show_count},
    {0},
};
