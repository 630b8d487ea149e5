/* Ollama: POST /api/chat and /api/generate. Streams are lines of JSON; times are in nanoseconds; an error is a text. */
#include "server/wire/ollama.h"

#include "server/chat.h"
#include "server/constrain.h"
#include "server/prompts.h"

#include "os/os.h"

#include <time.h>

/* ---- manners ------------------------------------------------------------------------------------------------------------ */

static void put_error(const struct api_error *e, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "error", str_of(e->message));
    jsonw_end(&w, '}');
}

static void put_stream_error(const struct api_error *e, struct sb *out) {
    put_error(e, out);
    sb_putc(out, '\n');
}

const struct wire wire_ollama = {.stream_type = "application/x-ndjson",
                                 .error = put_error,
                                 .stream_error = put_stream_error,
                                 .skips_model = ollama_keep_only_unloads};

struct str ollama_model(struct call *c) {
    struct str asked = json_str(c->body, "model", json_str(c->body, "name", STR("")));
    return asked.n ? asked : str_of(service_info(c->service)->name);
}

void ollama_put_time(struct jsonw *w, const char *key, int64_t from_now_ns) {
    char text[40];
    int64_t now = os_wall_ns() + from_now_ns;
    struct tm t;
    os_utc_time(now, &t);
    int n = snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%06dZ", t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour,
                     t.tm_min, t.tm_sec, (int)(now / 1000 % 1000000));
    jsonw_put_str(w, key, str_n(text, (size_t)n));
}

/* ---- answers ------------------------------------------------------------------------------------------------------------ */

static bool is_chat(const struct generation *g) {
    return g->format == &ollama_chat_format;
}

static void put_head(const struct generation *g, struct jsonw *w) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "model", ollama_model(g->call));
    ollama_put_time(w, "created_at", 0);
}

static void put_one_call(struct generation *g, const struct gen_choice *c, const struct output_piece *p, struct jsonw *w) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", chat_call_id(g, c, &c->pieces, p));
    jsonw_open(w, "function", '{');
    jsonw_put_int(w, "index", p->call);
    jsonw_put_str(w, "name", output_piece_text(&c->pieces, p));
    struct str arguments = chat_call_arguments(g, &c->pieces, p->call);
    yyjson_val *parsed;
    struct err err;
    bool ok = json_parse(&g->call->arena, arguments, "arguments", JSON_STRICT, &parsed, &err) == ERR_OK && yyjson_is_obj(parsed);
    jsonw_put_raw(w, "arguments", ok ? arguments : STR("{}"));
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

static void put_calls(struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    bool has_any = false;
    for (size_t i = 0; i < c->pieces.n; i++) {
        if (c->pieces.p[i].kind != OUTPUT_CALL) continue;
        if (!has_any) jsonw_open(w, "tool_calls", '[');
        has_any = true;
        put_one_call(g, c, &c->pieces.p[i], w);
    }
    if (has_any) jsonw_end(w, ']');
}

static void put_token(struct generation *g, int32_t id, float logprob, struct jsonw *w) {
    struct str text = service_token_text(g->call->service, id);
    jsonw_put_str(w, "token", text);
    jsonw_put_num(w, "logprob", generate_logprob(logprob));
    jsonw_open(w, "bytes", '[');
    for (size_t i = 0; i < text.n; i++) jsonw_int(w, (unsigned char)text.p[i]);
    jsonw_end(w, ']');
}

static void put_logprobs(struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    const struct sampler_top *top = c->tops;
    if (!g->params.logprobs || c->n_tokens == 0) return;
    jsonw_open(w, "logprobs", '[');
    for (size_t i = 0; i < c->n_tokens; i++) {
        jsonw_begin(w, '{');
        put_token(g, c->tokens[i].id, c->tokens[i].logprob, w);
        jsonw_open(w, "top_logprobs", '[');
        for (int32_t k = 0; k < c->tokens[i].n_top; k++, top++) {
            jsonw_begin(w, '{');
            put_token(g, top->token, top->logprob, w);
            jsonw_end(w, '}');
        }
        jsonw_end(w, ']');
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
}

/* What has come of the answer since the last line. */
static void put_text(struct generation *g, struct gen_choice *c, struct jsonw *w) {
    struct sb content = {0}, thinking = {0};
    generate_join(&c->pieces, OUTPUT_CONTENT, &content);
    generate_join(&c->pieces, OUTPUT_REASONING, &thinking);
    if (is_chat(g)) {
        jsonw_open(w, "message", '{');
        jsonw_put_str(w, "role", STR("assistant"));
    }
    jsonw_put_str(w, is_chat(g) ? "content" : "response", sb_str(&content));
    if (thinking.n) jsonw_put_str(w, "thinking", sb_str(&thinking));
    if (is_chat(g)) {
        put_calls(g, c, w);
        jsonw_end(w, '}');
    }
    put_logprobs(g, c, w);
    sb_free(&content);
    sb_free(&thinking);
}

static void put_end_fields(const struct generation *g, const struct gen_choice *c, struct jsonw *w) {
    const struct job_usage *u = &c->usage;
    jsonw_put_bool(w, "done", true);
    jsonw_put_str(w, "done_reason", c->finish == JOB_LENGTH ? STR("length") : STR("stop"));
    jsonw_put_int(w, "total_duration", (int64_t)(os_clock_ns() - g->call->begun_ns));
    jsonw_put_int(w, "load_duration", 0);
    jsonw_put_int(w, "prompt_eval_count", u->n_prompt);
    jsonw_put_int(w, "prompt_eval_duration", (int64_t)(u->prompt_seconds * 1e9));
    jsonw_put_int(w, "eval_count", u->n_new);
    jsonw_put_int(w, "eval_duration", (int64_t)(u->new_seconds * 1e9));
    jsonw_end(w, '}');
}

static void put_whole(struct generation *g, struct sb *out) {
    struct jsonw w = {.out = out};
    put_head(g, &w);
    put_text(g, &g->choices[0], &w);
    put_end_fields(g, &g->choices[0], &w);
}

static void put_piece(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct jsonw w = {.out = out};
    put_head(g, &w);
    put_text(g, c, &w);
    jsonw_put_bool(&w, "done", false);
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
}

static void put_end(struct generation *g, struct gen_choice *c, struct sb *out) {
    struct jsonw w = {.out = out};
    put_head(g, &w);
    put_text(g, c, &w); /* nothing is left, but the keys are expected */
    put_end_fields(g, c, &w);
    sb_putc(out, '\n');
}

static void put_nothing(struct generation *g, struct gen_choice *c, struct sb *out) {
    (void)g, (void)c, (void)out;
}

static void put_done(struct generation *g, struct sb *out) {
    (void)g, (void)out;
}

const struct gen_format ollama_chat_format = {.id_prefix = "chat-",
                                              .input = "messages",
                                              .splits = true,
                                              .begin = put_nothing,
                                              .piece = put_piece,
                                              .end = put_end,
                                              .done = put_done,
                                              .whole = put_whole};
const struct gen_format ollama_generate_format = {.id_prefix = "generate-",
                                                  .input = "prompt",
                                                  .splits = true,
                                                  .begin = put_nothing,
                                                  .piece = put_piece,
                                                  .end = put_end,
                                                  .done = put_done,
                                                  .whole = put_whole};
static const struct gen_format raw_format = {.id_prefix = "generate-",
                                             .input = "prompt",
                                             .continues = true,
                                             .begin = put_nothing,
                                             .piece = put_piece,
                                             .end = put_end,
                                             .done = put_done,
                                             .whole = put_whole};

void ollama_reply_loaded(struct call *c) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "model", ollama_model(c));
    ollama_put_time(&w, "created_at", 0);
    if (json_get(c->body, "messages")) jsonw_put_raw(&w, "message", STR("{\"role\":\"assistant\",\"content\":\"\"}"));
    else jsonw_put_str(&w, "response", STR(""));
    jsonw_put_bool(&w, "done", true);
    jsonw_put_str(&w, "done_reason", ollama_keep_only_unloads(c) ? STR("unload") : STR("load"));
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

/* ---- requests ----------------------------------------------------------------------------------------------------------- */

/* Without a conversation, or a prompt, a request only asks that the model be loaded. */
static void start(struct call *c) {
    if (c->state) generate_start(c);
    else ollama_reply_loaded(c);
}

static int parse(struct call *c, struct sb *text, int code, yyjson_val **out) {
    struct err err;
    if (!code && json_parse(&c->arena, sb_str(text), "body", JSON_STRICT, out, &err)) code = api_fail_err(&c->error, &err, NULL);
    sb_free(text);
    return code;
}

static int prepare_chat(struct call *c) {
    yyjson_val *messages = json_get(c->body, "messages"), *body;
    struct sb text = {0};
    if (ollama_keep_read(c)) return -1;
    if (!messages || yyjson_is_null(messages) || (yyjson_is_arr(messages) && yyjson_arr_size(messages) == 0)) return 0;
    int code = ollama_chat_body(c, &text);
    return parse(c, &text, code, &body) || chat_prepare(c, body, &ollama_chat_format);
}

static int prepare_raw(struct call *c, yyjson_val *body) {
    struct generation *g = generate_create(c, &raw_format);
    struct prompt_rules rules = {.param = "prompt", .encoding = SERVICE_PARSE_SPECIAL, .n_max = 1};
    if (params_read(&c->arena, body, PARAMS_CHAT, &g->params, &c->error)) return -1;
    if (prompts_read(c, json_get(c->body, "prompt"), &rules, &g->prompts, &g->n_prompts)) return -1;
    return constrain_read(&c->arena, body, c->service, NULL, &g->params, &c->error);
}

static int prepare_generate(struct call *c) {
    yyjson_val *prompt = json_get(c->body, "prompt"), *body;
    bool is_raw = json_bool(c->body, "raw", false);
    struct sb text = {0};
    if (ollama_keep_read(c)) return -1;
    if (prompt && !yyjson_is_null(prompt) && !yyjson_is_str(prompt))
        return api_fail(&c->error, 400, NULL, "prompt", "prompt must be a text");
    if (yyjson_get_len(prompt) == 0 && !json_str(c->body, "system", STR("")).n) return 0;
    int code = ollama_generate_body(c, is_raw, &text);
    if (parse(c, &text, code, &body)) return -1;
    return is_raw ? prepare_raw(c, body) : chat_prepare(c, body, &ollama_generate_format);
}

const struct route routes_ollama[] = {
    {"POST", "/api/chat", 0, prepare_chat, start},
    {"POST", "/api/generate", 0, prepare_generate, start},
    {0},
};
