/* A response's request to OpenAI's chat: its fields, and everything that it answers. */
#include "server/chat_fields.h"
#include "server/response_store.h"
#include "server/server_internal.h"
#include "server/wire/responses.h"
#include "server/wire/responses_input.h"
#include "server/wire/responses_tools.h"

#include "base/hash.h"

/* ---- fields ------------------------------------------------------------------------------------------------------------- */

/* docs/protocols/responses.md has the list of those without effect. */
static const struct chat_field fields[] = {
    {"input", CHAT_FIELD_OWN, NULL, NULL},
    {"instructions", CHAT_FIELD_OWN, NULL, NULL},
    {"tools", CHAT_FIELD_OWN, NULL, NULL},
    {"tool_choice", CHAT_FIELD_OWN, NULL, NULL},
    {"text", CHAT_FIELD_OWN, NULL, NULL},
    {"reasoning", CHAT_FIELD_OWN, NULL, NULL},
    {"max_output_tokens", CHAT_FIELD_OWN, NULL, NULL},
    {"metadata", CHAT_FIELD_OWN, NULL, NULL},
    {"store", CHAT_FIELD_OWN, NULL, NULL},
    {"previous_response_id", CHAT_FIELD_OWN, NULL, NULL},
    {"include", CHAT_FIELD_OWN, NULL, NULL},
    {"user", CHAT_FIELD_OWN, NULL, NULL},
    {"safety_identifier", CHAT_FIELD_OWN, NULL, NULL},
    {"service_tier", CHAT_FIELD_OWN, NULL, NULL},
    {"prompt_cache_key", CHAT_FIELD_OWN, NULL, NULL},
    {"prompt_cache_options", CHAT_FIELD_OWN, NULL, NULL},
    {"prompt_cache_retention", CHAT_FIELD_OWN, NULL, NULL},
    {"client_metadata", CHAT_FIELD_OWN, NULL, NULL},
    {"context_management", CHAT_FIELD_OWN, NULL, NULL},
    {"max_tool_calls", CHAT_FIELD_OWN, NULL, NULL},
    {"stream_options", CHAT_FIELD_OWN, NULL, NULL},
    {"background", CHAT_FIELD_REFUSED, "false", NULL},
    {"truncation", CHAT_FIELD_REFUSED, "disabled", NULL},
    {"conversation", CHAT_FIELD_REFUSED, NULL, "previous_response_id"},
    {"prompt", CHAT_FIELD_REFUSED, NULL, "input"},
    {"messages", CHAT_FIELD_REFUSED, NULL, "input"},
    {"n", CHAT_FIELD_REFUSED, "1", NULL},
    {"logprobs", CHAT_FIELD_REFUSED, "false", NULL},
    {"top_logprobs", CHAT_FIELD_REFUSED, "0", NULL},
    {"personality", CHAT_FIELD_REFUSED, NULL, "instructions"},
    {"max_tokens", CHAT_FIELD_REFUSED, NULL, "max_output_tokens"},
    {"max_completion_tokens", CHAT_FIELD_REFUSED, NULL, "max_output_tokens"},
    {"response_format", CHAT_FIELD_REFUSED, NULL, "text.format"},
    {"verbosity", CHAT_FIELD_REFUSED, NULL, "text.verbosity"},
    {"reasoning_effort", CHAT_FIELD_REFUSED, NULL, "reasoning.effort"},
    {"continue_final_message", CHAT_FIELD_REFUSED, "false", NULL},
    {"add_generation_prompt", CHAT_FIELD_REFUSED, "true", NULL},
    {0},
};

static const struct chat_field_name names[] = {
    {"max_tokens", "max_output_tokens"},
    {"response_format", "text.format"},
    {"verbosity", "text.verbosity"},
    {"reasoning_effort", "reasoning.effort"},
    {"messages", "input"},
    {0},
};

void responses_rename_fields(struct api_error *e) {
    chat_fields_rename(e, names);
}

/* ---- everything that is answered ------------------------------------------------------------------------------------------ */

static void put_list(struct jsonw *w, yyjson_val *list, size_t *n_out) {
    yyjson_val *item;
    size_t i, n;
    yyjson_arr_foreach(list, i, n, item) jsonw_val(w, item);
    *n_out += yyjson_arr_size(list);
}

static int put_earlier(struct call *c, struct jsonw *w, struct str id, size_t *n_out) {
    struct response_record record;
    yyjson_val *items, *response;
    struct err err;
    if (!response_store_get(c->server->responses, &c->arena, id, &record))
        return api_fail(&c->error, 404, "previous_response_not_found", "previous_response_id",
                        "there is no response \"%.*s\": it was not stored, was deleted, or has given way to newer ones",
                        (int)(id.n > 80 ? 80 : id.n), id.p);
    if (json_parse(&c->arena, record.items, "items", JSON_STRICT, &items, &err) ||
        json_parse(&c->arena, record.response, "response", JSON_STRICT, &response, &err))
        return api_fail_err(&c->error, &err, NULL);
    put_list(w, items, n_out);
    put_list(w, json_get(response, "output"), n_out);
    return 0;
}

/* Items have ids, so that lists can be walked by them. */
static void put_item(struct call *c, struct jsonw *w, yyjson_val *item, size_t i) {
    uint64_t hash = hash_pair(hash_bytes(c->error.request_id, strlen(c->error.request_id), 0), i);
    yyjson_val *key, *val;
    size_t k, n;
    if (!yyjson_is_obj(item) || json_given(item, "id")) {
        jsonw_val(w, item);
        return;
    }
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", str_fmt(&c->arena, "item_%016llx", (unsigned long long)hash));
    if (!json_given(item, "type")) jsonw_put_str(w, "type", STR("message"));
    yyjson_obj_foreach(item, k, n, key, val) {
        if (yyjson_is_null(val) && (str_is(json_val_str(key), "id") || str_is(json_val_str(key), "type"))) continue;
        jsonw_key_str(w, json_val_str(key));
        jsonw_val(w, val);
    }
    jsonw_end(w, '}');
}

static void put_text_item(struct call *c, struct jsonw *w, struct str text) {
    uint64_t hash = hash_bytes(c->error.request_id, strlen(c->error.request_id), 1);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", str_fmt(&c->arena, "item_%016llx", (unsigned long long)hash));
    jsonw_put_str(w, "type", STR("message"));
    jsonw_put_str(w, "role", STR("user"));
    jsonw_open(w, "content", '[');
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("input_text"));
    jsonw_put_str(w, "text", text);
    jsonw_end(w, '}');
    jsonw_end(w, ']');
    jsonw_end(w, '}');
}

/* state->items, parsed into *out; *n_before of them come from earlier turns. */
static int gather_items(struct call *c, struct responses_state *state, yyjson_val **out, size_t *n_before) {
    yyjson_val *input = json_given(c->body, "input"), *earlier = json_given(c->body, "previous_response_id"), *item;
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    struct err err;
    size_t i, n;
    int code = 0;
    *n_before = 0;
    if (earlier && !yyjson_is_str(earlier))
        return api_fail(&c->error, 400, NULL, "previous_response_id", "previous_response_id must be a string");
    if (!yyjson_is_str(input) && !yyjson_is_arr(input))
        return api_fail(&c->error, 400, NULL, "input", "input must be a string or a list of items");
    jsonw_begin(&w, '[');
    if (earlier) code = put_earlier(c, &w, json_val_str(earlier), n_before);
    if (yyjson_is_str(input)) put_text_item(c, &w, json_val_str(input));
    else yyjson_arr_foreach(input, i, n, item) put_item(c, &w, item, i);
    jsonw_end(&w, ']');
    state->items = str_copy(&c->arena, sb_str(&text));
    sb_free(&text);
    if (!code && json_parse(&c->arena, state->items, "input", JSON_STRICT, out, &err)) code = api_fail_err(&c->error, &err, NULL);
    return code;
}

/* ---- what the answer looks like ------------------------------------------------------------------------------------------- */

static int put_format(struct jsonw *w, yyjson_val *format, struct api_error *e) {
    struct str type = json_str(format, "type", (struct str){0});
    if (!format) return 0;
    if (!str_is(type, "text") && !str_is(type, "json_object") && !str_is(type, "json_schema"))
        return api_fail(e, 400, "unsupported_value", "text.format", "text.format.type must be text, json_object or json_schema");
    if (str_is(type, "json_schema") && !json_given(format, "schema"))
        return api_fail(e, 400, NULL, "text.format", "text.format json_schema needs a schema");
    jsonw_key(w, "response_format"); /* the schema stands beside the type there, too */
    jsonw_val(w, format);
    return 0;
}

static int put_text_and_reasoning(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    yyjson_val *text = json_given(body, "text"), *reasoning = json_given(body, "reasoning");
    if (text && !yyjson_is_obj(text)) return api_fail(e, 400, NULL, "text", "text must be an object");
    if (reasoning && !yyjson_is_obj(reasoning)) return api_fail(e, 400, NULL, "reasoning", "reasoning must be an object");
    if (json_given(text, "verbosity")) {
        jsonw_key(w, "verbosity");
        jsonw_val(w, json_given(text, "verbosity"));
    }
    if (json_given(reasoning, "effort")) {
        jsonw_key(w, "reasoning_effort");
        jsonw_val(w, json_given(reasoning, "effort"));
    }
    if (json_given(body, "max_output_tokens")) {
        jsonw_key(w, "max_tokens");
        jsonw_val(w, json_given(body, "max_output_tokens"));
    }
    return put_format(w, json_given(text, "format"), e);
}

static int read_store(struct call *c, struct responses_state *state) {
    yyjson_val *store = json_given(c->body, "store"), *metadata = json_given(c->body, "metadata");
    if (store && !yyjson_is_bool(store)) return api_fail(&c->error, 400, NULL, "store", "store must be true or false");
    if (metadata && !yyjson_is_obj(metadata)) return api_fail(&c->error, 400, NULL, "metadata", "metadata must be an object");
    state->is_kept = !store || yyjson_get_bool(store);
    state->body = c->body;
    return 0;
}

int responses_to_chat(struct call *c, struct responses_state *state, yyjson_val **out_body) {
    struct sb text = {0}, customs = {0};
    struct jsonw w = {.out = &text}, customs_w = {.out = &customs};
    struct api_error *e = &c->error;
    yyjson_val *items;
    struct err err;
    size_t n_before;
    if (read_store(c, state) || gather_items(c, state, &items, &n_before)) return -1;
    jsonw_begin(&w, '{');
    int code = responses_input_put(&w, c->body, items, n_before, e) || responses_tools_put(&w, c->body, &customs_w, e) ||
               responses_tools_put_choice(&w, c->body, e) || put_text_and_reasoning(&w, c->body, e) ||
               chat_fields_copy(&w, c->body, fields, e);
    jsonw_end(&w, '}');
    if (!code && (json_parse(&c->arena, sb_str(&text), "body", JSON_STRICT, out_body, &err) ||
                  json_parse(&c->arena, sb_str(&customs), "tools", JSON_STRICT, &state->customs, &err)))
        code = api_fail_err(e, &err, NULL);
    sb_free(&text);
    sb_free(&customs);
    return code ? -1 : 0;
}
