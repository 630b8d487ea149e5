/* POST /v1/chat/completions. */
#include "server/generate.h"
#include "server/messages.h"
#include "server/sse.h"

/* ---- the wire ----------------------------------------------------------------------------------------------------------- */

static void put_head(struct generation *g, struct jsonw *w, const char *object) {
    jsonw_begin(w, '{');
    jsonw_key(w, "id");
    jsonw_str(w, g->id);
    jsonw_key(w, "object");
    jsonw_str(w, str_of(object));
    jsonw_key(w, "created");
    jsonw_int(w, g->created);
    jsonw_key(w, "model");
    jsonw_str(w, str_of(generate_model(g)));
    jsonw_key(w, "system_fingerprint");
    jsonw_null(w);
}

static void put_token(struct generation *g, struct jsonw *w, int32_t id, float logprob) {
    struct str text = service_token_text(g->call->service, id);
    jsonw_key(w, "token");
    jsonw_str(w, text);
    jsonw_key(w, "logprob");
    jsonw_num(w, (double)logprob);
    jsonw_key(w, "bytes");
    jsonw_begin(w, '[');
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
    jsonw_key(w, "content");
    jsonw_begin(w, '[');
    for (size_t i = 0; i < c->n_tokens; i++) {
        jsonw_begin(w, '{');
        put_token(g, w, c->tokens[i].id, c->tokens[i].logprob);
        jsonw_key(w, "top_logprobs");
        jsonw_begin(w, '[');
        for (int32_t k = 0; k < c->tokens[i].n_top; k++, top++) {
            jsonw_begin(w, '{');
            put_token(g, w, top->token, top->logprob);
            jsonw_end(w, '}');
        }
        jsonw_end(w, ']');
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
    jsonw_key(w, "refusal");
    jsonw_null(w);
    jsonw_end(w, '}');
}

static void put_finish(struct jsonw *w, enum service_finish finish) {
    jsonw_key(w, "finish_reason");
    if (finish) jsonw_str(w, str_of(generate_finish_name(finish)));
    else jsonw_null(w);
}

static void put_whole(struct generation *g, struct sb *out) {
    struct jsonw w = {.out = out};
    put_head(g, &w, "chat.completion");
    jsonw_key(&w, "choices");
    jsonw_begin(&w, '[');
    for (int32_t i = 0; i < g->n_choices; i++) {
        const struct gen_choice *c = &g->choices[i];
        jsonw_begin(&w, '{');
        jsonw_key(&w, "index");
        jsonw_int(&w, c->index);
        jsonw_key(&w, "message");
        jsonw_begin(&w, '{');
        jsonw_key(&w, "role");
        jsonw_str(&w, STR("assistant"));
        jsonw_key(&w, "content");
        jsonw_str(&w, sb_str(&c->content));
        if (c->reasoning.n) {
            jsonw_key(&w, "reasoning_content");
            jsonw_str(&w, sb_str(&c->reasoning));
        }
        jsonw_key(&w, "refusal");
        jsonw_null(&w);
        jsonw_end(&w, '}');
        put_logprobs(g, c, &w);
        put_finish(&w, c->finish);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    generate_put_usage(g, &w);
    jsonw_end(&w, '}');
}

struct delta {
    const char *role;
    bool has_text, has_logprobs;
    enum service_finish finish;
};

static void put_chunk(struct generation *g, const struct gen_choice *c, const struct delta *d, struct sb *out) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    put_head(g, &w, "chat.completion.chunk");
    jsonw_key(&w, "choices");
    jsonw_begin(&w, '[');
    jsonw_begin(&w, '{');
    jsonw_key(&w, "index");
    jsonw_int(&w, c->index);
    jsonw_key(&w, "delta");
    jsonw_begin(&w, '{');
    if (d->role) {
        jsonw_key(&w, "role");
        jsonw_str(&w, str_of(d->role));
    }
    if (d->has_text && c->reasoning.n) {
        jsonw_key(&w, "reasoning_content");
        jsonw_str(&w, sb_str(&c->reasoning));
    }
    if (d->role || (d->has_text && c->content.n)) {
        jsonw_key(&w, "content");
        jsonw_str(&w, d->role ? STR("") : sb_str(&c->content));
    }
    jsonw_end(&w, '}');
    if (d->has_logprobs) {
        put_logprobs(g, c, &w);
    } else {
        jsonw_key(&w, "logprobs");
        jsonw_null(&w);
    }
    put_finish(&w, d->finish);
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
        put_head(g, &w, "chat.completion.chunk");
        jsonw_key(&w, "choices");
        jsonw_begin(&w, '[');
        generate_end_chunk(g, &w, true, out);
    }
    sse_put(out, NULL, STR("[DONE]"));
}

static const struct gen_format chat_format = {.id_prefix = "chatcmpl-",
                                              .splits_reasoning = true,
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
    g->starts_inside = reasoning_is_open(rendered);
    return 0;
}

static int prepare(struct call *c) {
    struct generation *g = generate_create(c, &chat_format);
    struct sb input = {0};
    g->params.sampling = service_info(c->service)->sampling;
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
