/* Anthropic: POST /v1/messages and /v1/messages/count_tokens, and how its errors look. */
#include "server/wire/anthropic.h"

#include "server/sse.h"

/* ---- manners ------------------------------------------------------------------------------------------------------------ */

static const char *type_of(int32_t status) {
    static const struct {
        int32_t status;
        const char *type;
    } rows[] = {{401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"}, {413, "request_too_large"},
                {429, "rate_limit_error"},     {503, "overloaded_error"}, {504, "timeout_error"},   {529, "overloaded_error"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status) return rows[i].type;
    return status >= 500 ? "api_error" : "invalid_request_error";
}

static void put_error(const struct api_error *e, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "type", STR("error"));
    jsonw_open(&w, "error", '{');
    jsonw_put_str(&w, "type", str_of(type_of(e->status)));
    jsonw_put_str(&w, "message", str_of(e->message));
    jsonw_end(&w, '}');
    jsonw_put_str(&w, "request_id", str_of(e->request_id ? e->request_id : ""));
    jsonw_end(&w, '}');
}

static void put_stream_error(const struct api_error *e, struct sb *out) {
    struct sb json = {0};
    put_error(e, &json);
    sse_put(out, "error", sb_str(&json));
    sb_free(&json);
}

static void put_ping(struct sb *out) {
    sse_put(out, "ping", STR("{\"type\":\"ping\"}"));
}

const struct wire wire_anthropic = {.stream_type = SSE_TYPE, .error = put_error, .stream_error = put_stream_error, .ping = put_ping};

/* ---- messages ----------------------------------------------------------------------------------------------------------- */

/* Agents know this sentence, and shorten their conversation when they meet it. */
static int check_length(struct call *c) {
    int32_t n = ((struct generation *)c->state)->prompts[0].ids.n, most = service_info(c->service)->context;
    if (n < most) return 0;
    return api_fail(&c->error, 400, NULL, "messages", "prompt is too long: %d tokens > %d maximum", n, most - 1);
}

static int prepare_message(struct call *c) {
    yyjson_val *body;
    if (anthropic_to_chat(c, ANTHROPIC_ANSWERS, &body)) return -1;
    if (chat_prepare(c, body, &anthropic_format)) {
        anthropic_rename_fields(&c->error);
        return -1;
    }
    struct anthropic_state *state = arena_new(&c->arena, struct anthropic_state, 1);
    state->hides_thoughts = str_is(json_str(json_get(c->body, "thinking"), "display", STR("")), "omitted");
    ((struct generation *)c->state)->wire_state = state;
    return check_length(c);
}

/* ---- counting ----------------------------------------------------------------------------------------------------------- */

static int prepare_count(struct call *c) {
    yyjson_val *body;
    int32_t n;
    if (anthropic_to_chat(c, ANTHROPIC_COUNTS, &body)) return -1;
    if (chat_count(c, body, &n)) {
        anthropic_rename_fields(&c->error);
        return -1;
    }
    int32_t *kept = arena_new(&c->arena, int32_t, 1);
    *kept = n;
    c->state = kept;
    return 0;
}

static void reply_count(struct call *c) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_int(&w, "input_tokens", *(const int32_t *)c->state);
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

const struct route routes_anthropic[] = {
    {"POST", "/v1/messages", 0, prepare_message, generate_start},
    {"POST", "/v1/messages/count_tokens", 0, prepare_count, reply_count},
    {0},
};
