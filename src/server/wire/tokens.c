/* POST /tokenize and /detokenize, which llama-server and vLLM both have: a body with `content` is llama-server's, one with `prompt` or `messages`
 * vLLM's. */
#include "server/chat.h"

static void reply(struct call *c) {
    call_reply_json(c, 200, *(struct str *)c->state);
}

/* The text moves into the call's arena and becomes the answer. */
static int keep(struct call *c, struct sb *json) {
    struct str text = str_copy(&c->arena, sb_str(json));
    sb_free(json);
    c->state = arena_copy(&c->arena, &text, sizeof text);
    return 0;
}

static int encode(struct call *c, struct str text, bool adds, bool parses, struct service_ids *out, const char *param) {
    struct err err;
    unsigned flags = (adds ? SERVICE_ADD_SPECIAL : 0u) | (parses ? SERVICE_PARSE_SPECIAL : 0u);
    return service_encode(c->service, &c->arena, text, flags, out, &err) ? api_fail_err(&c->error, &err, param) : 0;
}

/* ---- llama-server ------------------------------------------------------------------------------------------------------- */

/* A piece that is no text by itself is the list of its bytes. */
static void put_piece(struct call *c, int32_t id, struct jsonw *w) {
    struct str text = service_token_text(c->service, id);
    jsonw_begin(w, '{');
    jsonw_put_int(w, "id", id);
    jsonw_key(w, "piece");
    if (utf8_valid(text)) {
        jsonw_str(w, text);
    } else {
        jsonw_begin(w, '[');
        for (size_t i = 0; i < text.n; i++) jsonw_int(w, (unsigned char)text.p[i]);
        jsonw_end(w, ']');
    }
    jsonw_end(w, '}');
}

static int put_content(struct call *c, yyjson_val *item, bool adds, struct jsonw *w) {
    bool parses = json_bool(c->body, "parse_special", true), has_pieces = json_bool(c->body, "with_pieces", false);
    struct service_ids ids = {0};
    int64_t id;
    if (yyjson_is_str(item)) {
        if (encode(c, json_val_str(item), adds, parses, &ids, "content")) return -1;
    } else if (json_val_int(item, &id) && id >= 0 && id < service_info(c->service)->vocab) {
        ids = (struct service_ids){arena_new(&c->arena, int32_t, 1), 1};
        ids.p[0] = (int32_t)id;
    } else {
        return api_fail(&c->error, 400, NULL, "content", "content must be a text, or a list of texts and token ids");
    }
    for (int32_t i = 0; i < ids.n; i++)
        if (has_pieces) put_piece(c, ids.p[i], w);
        else jsonw_int(w, ids.p[i]);
    return 0;
}

static int tokenize_content(struct call *c, yyjson_val *content) {
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    bool adds = json_bool(c->body, "add_special", false);
    yyjson_val *item;
    size_t i, n;
    int code = 0;
    jsonw_begin(&w, '{');
    jsonw_open(&w, "tokens", '[');
    if (!yyjson_is_arr(content)) {
        code = put_content(c, content, adds, &w);
    } else {
        yyjson_arr_foreach(content, i, n, item) if (!code) code = put_content(c, item, adds && i == 0, &w);
    }
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    if (!code) return keep(c, &json);
    sb_free(&json);
    return code;
}

/* ---- vLLM --------------------------------------------------------------------------------------------------------------- */

static int tokenize_prompt(struct call *c) {
    struct service_ids ids;
    struct str prompt = json_str(c->body, "prompt", (struct str){0});
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    if (json_get(c->body, "messages")) {
        int32_t n;
        if (chat_count(c, c->body, &n)) return -1;
        ids = ((struct generation *)c->state)->prompts[0].ids;
    } else {
        if (!prompt.p) return api_fail(&c->error, 400, NULL, "prompt", "prompt must be a text");
        if (encode(c, prompt, json_bool(c->body, "add_special_tokens", true), true, &ids, "prompt")) return -1;
    }
    bool has_texts = json_bool(c->body, "return_token_strs", false);
    jsonw_begin(&w, '{');
    jsonw_put_int(&w, "count", ids.n);
    jsonw_put_int(&w, "max_model_len", service_info(c->service)->context);
    jsonw_open(&w, "tokens", '[');
    for (int32_t i = 0; i < ids.n; i++) jsonw_int(&w, ids.p[i]);
    jsonw_end(&w, ']');
    jsonw_key(&w, "token_strs");
    if (has_texts) jsonw_begin(&w, '[');
    for (int32_t i = 0; i < ids.n && has_texts; i++) jsonw_str(&w, service_token_text(c->service, ids.p[i]));
    if (has_texts) jsonw_end(&w, ']');
    else jsonw_null(&w);
    jsonw_end(&w, '}');
    return keep(c, &json);
}

/* ---- both --------------------------------------------------------------------------------------------------------------- */

static int tokenize(struct call *c) {
    yyjson_val *content = json_get(c->body, "content");
    if (content) return tokenize_content(c, content);
    if (json_get(c->body, "prompt") || json_get(c->body, "messages")) return tokenize_prompt(c);
    return api_fail(&c->error, 400, NULL, "content", "the body needs content, prompt or messages");
}

static int detokenize(struct call *c) {
    yyjson_val *tokens = json_get(c->body, "tokens"), *item;
    struct sb text = {0}, json = {0};
    struct jsonw w = {.out = &json};
    struct err err;
    size_t i, n = yyjson_arr_size(tokens);
    int32_t *ids = arena_new(&c->arena, int32_t, n + 1);
    bool ok = yyjson_is_arr(tokens) && n <= INT32_MAX;
    yyjson_arr_foreach(tokens, i, n, item) {
        int64_t id;
        ok &= json_val_int(item, &id) && id >= 0 && id < service_info(c->service)->vocab;
        ids[i] = ok ? (int32_t)id : 0;
    }
    if (!ok)
        return api_fail(&c->error, 400, NULL, "tokens", "tokens must be a list of token ids below %d", service_info(c->service)->vocab);
    if (service_decode(c->service, ids, (int32_t)n, &text, &err)) return api_fail_err(&c->error, &err, "tokens");
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "content", sb_str(&text));
    jsonw_put_str(&w, "prompt", sb_str(&text));
    jsonw_end(&w, '}');
    sb_free(&text);
    return keep(c, &json);
}

const struct route routes_tokens[] = {
    {"POST", "/tokenize", 0, tokenize, reply},
    {"POST", "/detokenize", 0, detokenize, reply},
    {0},
};
