/* POST /v1/chat/completions. */
#include "server/generate.h"
#include "server/messages.h"
#include "server/sse.h"

/* ---- the wire ----------------------------------------------------------------------------------------------------------- */

static void put_token(struct generation *g, struct jsonw *w, int32_t id, float logprob) {
    struct str text = service_token_text(g->call->service, id);
    jsonw_put_str(w, "token", text);
    jsonw_put_num(w, "logprob", generate_logprob(logprob));
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

static void put_whole(struct generation *g, struct sb *out) {
    struct jsonw w = {.out = out};
    generate_put_head(g, "chat.completion", &w);
    for (int32_t i = 0; i < g->n_choices; i++) {
        const struct gen_choice *c = &g->choices[i];
        jsonw_begin(&w, '{');
        jsonw_put_int(&w, "index", c->index);
        jsonw_open(&w, "message", '{');
        jsonw_put_str(&w, "role", STR("assistant"));
        jsonw_put_str(&w, "content", sb_str(&c->content));
        if (c->reasoning.n) jsonw_put_str(&w, "reasoning_content", sb_str(&c->reasoning));
        jsonw_put_null(&w, "refusal");
        jsonw_end(&w, '}');
        put_logprobs(g, c, &w);
        generate_put_finish(c->finish, &w);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    generate_put_usage(g, &w);
    jsonw_end(&w, '}');
}

struct delta {
    const char *role;
    bool has_text, has_logprobs;
    enum job_finish finish;
};

static void put_chunk(struct generation *g, const struct gen_choice *c, const struct delta *d, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    generate_put_head(g, "chat.completion.chunk", &w);
    jsonw_begin(&w, '{');
    jsonw_put_int(&w, "index", c->index);
    jsonw_open(&w, "delta", '{');
    if (d->role) jsonw_put_str(&w, "role", str_of(d->role));
    if (d->has_text && c->reasoning.n) jsonw_put_str(&w, "reasoning_content", sb_str(&c->reasoning));
    if (d->role || (d->has_text && c->content.n)) jsonw_put_str(&w, "content", d->role ? STR("") : sb_str(&c->content));
    jsonw_end(&w, '}');
    if (d->has_logprobs) {
        put_logprobs(g, c, &w);
    } else {
        jsonw_put_null(&w, "logprobs");
    }
    generate_put_finish(d->finish, &w);
    jsonw_end(&w, '}');
    generate_end_chunk(g, &w, false, out);
}

static void put_begin(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_chunk(g, c, &(struct delta){.role = "assistant"}, out);
}

static void put_piece(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_chunk(g, c, &(struct delta){.has_text = true, .has_logprobs = g->params.logprobs}, out);
}

static void put_end(struct generation *g, struct gen_choice *c, struct sb *out) {
    put_chunk(g, c, &(struct delta){.finish = c->finish}, out);
}

static void put_done(struct generation *g, struct sb *out) {
    if (g->params.include_usage) {
        struct sb json = {0};
        struct jsonw w = {.out = &json};
        generate_put_head(g, "chat.completion.chunk", &w);
        generate_end_chunk(g, &w, true, out);
    }
    sse_put(out, NULL, STR("[DONE]"));
}

static const struct gen_format chat_format = {.id_prefix = "chatcmpl-",
                                              .input = "messages",
                                              .splits = true,
                                              .begin = put_begin,
                                              .piece = put_piece,
                                              .end = put_end,
                                              .done = put_done,
                                              .whole = put_whole};

/* ---- the request -------------------------------------------------------------------------------------------------------- */

static int encode(struct call *c, struct generation *g, struct str input_text) {
    struct err err;
    struct str rendered;
    yyjson_val *input;
    int code = json_parse(&c->arena, input_text, "messages", JSON_STRICT, &input, &err);
    if (!code) code = service_encode_chat(c->service, &c->arena, input, &g->prompts[0].ids, &rendered, &err);
    if (code == ERR_EMEMORY) return api_fail_err(&c->error, &err, NULL);
    if (code) return api_fail(&c->error, 400, "chat_template_error", "messages", "the chat template refused the messages: %s", err.msg);
    if (g->prompts[0].ids.n == 0) return api_fail(&c->error, 400, NULL, "messages", "the messages hold no text");
    g->starts_inside = service_thinks(rendered);
    return 0;
}

static int prepare(struct call *c) {
    struct generation *g = generate_create(c, &chat_format);
    struct sb input = {0};
    g->params.job.sampling = service_info(c->service)->sampling;
    g->params.vocab = service_info(c->service)->vocab;
    if (params_read(&c->arena, c->body, PARAMS_CHAT, &g->params, &c->error)) return -1;
    g->prompts = arena_new(&c->arena, struct gen_prompt, 1);
    g->n_prompts = 1;
    int code = messages_to_input(c->body, &input, &c->error);
    if (!code) code = encode(c, g, sb_str(&input));
    sb_free(&input);
    return code;
}

const struct route routes_chat[] = {
    {"POST", "/v1/chat/completions", 0, prepare, generate_start},
    {"POST", "/chat/completions", 0, prepare, generate_start},
    {0},
};
