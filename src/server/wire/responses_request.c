/* A response's request to OpenAI's chat. Items of the input become messages; those of an earlier response stand before them. Places in
 * errors are written as input[2].content[0]. */
#include "server/response_store.h"
#include "server/server_internal.h"
#include "server/turns.h"
#include "server/wire/responses.h"
#include "server/wire/responses_tools.h"

#include "base/hash.h"
#include "base/log.h"

#include <stdio.h>

/* ---- fields ------------------------------------------------------------------------------------------------------------- */

/* Read below, or without effect (docs/protocols/responses.md lists those). All others mean what they mean in chat completions. */
static const char *const own_fields[] = {"input",
                                         "instructions",
                                         "tools",
                                         "tool_choice",
                                         "text",
                                         "reasoning",
                                         "max_output_tokens",
                                         "metadata",
                                         "store",
                                         "previous_response_id",
                                         "include",
                                         "user",
                                         "safety_identifier",
                                         "service_tier",
                                         "prompt_cache_key",
                                         "prompt_cache_options",
                                         "prompt_cache_retention",
                                         "client_metadata",
                                         "context_management",
                                         "max_tool_calls",
                                         "stream_options",
                                         NULL};

/* Fields that ask for what is not there, with the value that asks for nothing. */
static const struct {
    const char *name, *harmless, *instead;
} refused_fields[] = {{"background", "false", NULL},
                      {"truncation", "disabled", NULL},
                      {"conversation", NULL, "previous_response_id"},
                      {"prompt", NULL, "input"},
                      {"messages", NULL, "input"},
                      {"n", "1", NULL},
                      {"logprobs", "false", NULL},
                      {"top_logprobs", "0", NULL},
                      {"personality", NULL, "instructions"},
                      {"max_tokens", NULL, "max_output_tokens"},
                      {"max_completion_tokens", NULL, "max_output_tokens"},
                      {"response_format", NULL, "text.format"},
                      {"verbosity", NULL, "text.verbosity"},
                      {"reasoning_effort", NULL, "reasoning.effort"},
                      {"continue_final_message", "false", NULL},
                      {"add_generation_prompt", "true", NULL}};

static const struct {
    const char *chat, *here;
} names[] = {{"max_tokens", "max_output_tokens"},
             {"response_format", "text.format"},
             {"verbosity", "text.verbosity"},
             {"reasoning_effort", "reasoning.effort"},
             {"messages", "input"}};

void responses_rename_fields(struct api_error *e) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) api_error_rename(e, names[i].chat, names[i].here);
}

/* A member; NULL where it is absent or null. */
static yyjson_val *given(yyjson_val *obj, const char *key) {
    yyjson_val *val = json_get(obj, key);
    return yyjson_is_null(val) ? NULL : val;
}

static bool is_harmless(yyjson_val *val, const char *harmless) {
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    if (yyjson_is_null(val)) return true;
    if (!harmless) return false;
    jsonw_val(&w, val);
    bool is = str_is(json_val_str(val), harmless) || (!yyjson_is_str(val) && str_is(sb_str(&text), harmless));
    sb_free(&text);
    return is;
}

static int put_others(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    yyjson_val *key, *val;
    size_t i, n;
    yyjson_obj_foreach(body, i, n, key, val) {
        struct str name = json_val_str(key);
        bool is_own = false, is_refused = false;
        for (size_t k = 0; own_fields[k]; k++) is_own |= str_is(name, own_fields[k]);
        for (size_t k = 0; k < sizeof refused_fields / sizeof *refused_fields; k++) {
            const char *field = refused_fields[k].name, *instead = refused_fields[k].instead, *harmless = refused_fields[k].harmless;
            if (!str_is(name, field)) continue;
            is_refused = true;
            if (!is_harmless(val, harmless))
                return api_fail(e, 400, "unsupported_parameter", field, "%s is not supported here; %s%s", field,
                                instead ? "use " : "leave it out", instead ? instead : "");
        }
        if (is_own || is_refused) continue;
        jsonw_key_str(w, name);
        jsonw_val(w, val);
    }
    return 0;
}

/* ---- items -------------------------------------------------------------------------------------------------------------- */

struct place {
    char text[64];
};

static int fail_at(struct api_error *e, const struct place *at, const char *why) {
    return api_fail(e, 400, NULL, at->text, "%s: %s", at->text, why);
}

static int fail_type(struct api_error *e, const struct place *at, const char *what, struct str type) {
    char why[120];
    if (!type.p) return fail_at(e, at, "must be an object with a type");
    snprintf(why, sizeof why, "%s of type \"%.*s\" are not supported by this model", what, (int)(type.n > 40 ? 40 : type.n), type.p);
    return fail_at(e, at, why);
}

static struct str type_of(yyjson_val *val) {
    return json_str(val, "type", (struct str){0});
}

/* A string, or a list of parts with texts: input_text, output_text, reasoning_text, summary_text, refusal. */
static int add_texts(struct sb *out, yyjson_val *content, const struct place *in, const char *key, struct api_error *e) {
    static const char *const kinds[] = {"input_text", "output_text", "text", "reasoning_text", "summary_text", NULL};
    struct str whole = json_val_str(content);
    struct place at;
    yyjson_val *part;
    size_t i, n;
    if (whole.p) sb_put(out, whole);
    if (whole.p) return 0;
    snprintf(at.text, sizeof at.text, "%.24s.%s", in->text, key);
    if (!yyjson_is_arr(content)) return fail_at(e, &at, "must be a string or a list of parts");
    yyjson_arr_foreach(content, i, n, part) {
        struct str type = type_of(part), text = json_str(part, str_is(type, "refusal") ? "refusal" : "text", (struct str){0});
        bool is_text = str_is(type, "refusal");
        for (size_t k = 0; kinds[k]; k++) is_text |= str_is(type, kinds[k]);
        snprintf(at.text, sizeof at.text, "%.24s.%s[%zu]", in->text, key, i);
        if (!is_text) return fail_type(e, &at, "parts", type);
        if (!text.p) return fail_at(e, &at, "a text part needs a text");
        sb_put(out, text);
    }
    return 0;
}

/* The conversation that is being written. */
struct talk {
    struct turns turns;
    struct api_error *e;
};

static int add_message(struct talk *t, yyjson_val *item, const struct place *at) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", NULL};
    struct str role = json_str(item, "role", (struct str){0});
    struct sb text = {0};
    size_t known = 0;
    while (roles[known] && !str_is(role, roles[known])) known++;
    if (!roles[known]) return fail_at(t->e, at, "the role must be one of system, developer, user, assistant");
    int code = add_texts(&text, json_get(item, "content"), at, "content", t->e);
    if (!code) {
        turns_begin(&t->turns, known < 2 ? "system" : roles[known]);
        turns_add_paragraph(&t->turns.text, sb_str(&text));
    }
    sb_free(&text);
    return code;
}

static int add_call(struct talk *t, yyjson_val *item, const struct place *at) {
    struct str id = json_str(item, "call_id", (struct str){0}), name = json_str(item, "name", (struct str){0});
    struct str arguments = json_str(item, "arguments", (struct str){0});
    if (!id.n || !name.n || !arguments.p) return fail_at(t->e, at, "a function_call needs a call_id, a name and arguments");
    turns_begin(&t->turns, "assistant");
    turns_add_call(&t->turns, id, name, arguments.n ? arguments : STR("{}"));
    return 0;
}

/* The input of a custom tool is the one argument of the function that stands for it. */
static int add_custom_call(struct talk *t, yyjson_val *item, const struct place *at) {
    struct str id = json_str(item, "call_id", (struct str){0}), name = json_str(item, "name", (struct str){0});
    struct str input = json_str(item, "input", (struct str){0});
    struct sb arguments = {0};
    struct jsonw w = {.out = &arguments};
    if (!id.n || !name.n || !input.p) return fail_at(t->e, at, "a custom_tool_call needs a call_id, a name and an input");
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "input", input);
    jsonw_end(&w, '}');
    turns_begin(&t->turns, "assistant");
    turns_add_call(&t->turns, id, name, sb_str(&arguments));
    sb_free(&arguments);
    return 0;
}

static int add_result(struct talk *t, yyjson_val *item, const struct place *at) {
    struct str id = json_str(item, "call_id", (struct str){0});
    yyjson_val *output = given(item, "output");
    struct sb text = {0};
    if (!id.n) return fail_at(t->e, at, "a tool's output needs a call_id");
    int code = output ? add_texts(&text, output, at, "output", t->e) : 0;
    if (!code) turns_put_result(&t->turns, id, sb_str(&text));
    sb_free(&text);
    return code;
}

/* Thoughts belong to the answer that follows them. What is encrypted nobody here can read. */
static int add_reasoning(struct talk *t, yyjson_val *item, const struct place *at) {
    yyjson_val *content = given(item, "content"), *summary = given(item, "summary");
    const char *key = yyjson_arr_size(content) ? "content" : "summary";
    struct sb text = {0};
    int code = content || summary ? add_texts(&text, yyjson_arr_size(content) ? content : summary ? summary : content, at, key, t->e) : 0;
    if (!code) {
        turns_begin(&t->turns, "assistant");
        turns_add_paragraph(&t->turns.thoughts, sb_str(&text));
    }
    sb_free(&text);
    return code;
}

static int add_item(struct talk *t, yyjson_val *item, const struct place *at) {
    static const struct {
        const char *type;
        int (*add)(struct talk *t, yyjson_val *item, const struct place *at);
    } rows[] = {{"message", add_message},
                {"function_call", add_call},
                {"function_call_output", add_result},
                {"custom_tool_call", add_custom_call},
                {"custom_tool_call_output", add_result},
                {"reasoning", add_reasoning}};
    struct str type = given(item, "type") ? type_of(item) : STR("message");
    if (!yyjson_is_obj(item)) return fail_at(t->e, at, "every item must be an object");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (str_is(type, rows[i].type)) return rows[i].add(t, item, at);
    return fail_type(t->e, at, "items", type);
}

/* An answer to nothing but thoughts is none. */
static void end_talk(struct talk *t) {
    if (turns_is(&t->turns, "assistant") && t->turns.text.n == 0 && t->turns.n_calls == 0) turns_drop(&t->turns);
    turns_end(&t->turns);
}

static int put_messages(struct jsonw *w, yyjson_val *body, yyjson_val *items, size_t n_before, struct api_error *e) {
    struct talk t = {.turns = {.w = w}, .e = e};
    yyjson_val *instructions = given(body, "instructions"), *item;
    size_t i, n;
    int code = 0;
    if (instructions && !yyjson_is_str(instructions)) return api_fail(e, 400, NULL, "instructions", "instructions must be a string");
    jsonw_open(w, "messages", '[');
    if (yyjson_get_len(instructions)) {
        turns_begin(&t.turns, "system");
        sb_put(&t.turns.text, json_val_str(instructions));
    }
    yyjson_arr_foreach(items, i, n, item) {
        struct place at;
        if (i < n_before) snprintf(at.text, sizeof at.text, "previous_response_id");
        else snprintf(at.text, sizeof at.text, "input[%zu]", i - n_before);
        if (!code) code = add_item(&t, item, &at);
    }
    if (!code) end_talk(&t);
    turns_free(&t.turns);
    jsonw_end(w, ']');
    jsonw_put_bool(w, "add_generation_prompt", true); /* what an assistant said last is over */
    return code;
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
    if (!yyjson_is_obj(item) || given(item, "id")) {
        jsonw_val(w, item);
        return;
    }
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", str_fmt(&c->arena, "item_%016llx", (unsigned long long)hash));
    if (!given(item, "type")) jsonw_put_str(w, "type", STR("message"));
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
    yyjson_val *input = given(c->body, "input"), *earlier = given(c->body, "previous_response_id"), *item;
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
    struct str type = type_of(format);
    if (!format) return 0;
    if (!str_is(type, "text") && !str_is(type, "json_object") && !str_is(type, "json_schema"))
        return api_fail(e, 400, "unsupported_value", "text.format", "text.format.type must be text, json_object or json_schema");
    if (str_is(type, "json_schema") && !given(format, "schema"))
        return api_fail(e, 400, NULL, "text.format", "text.format json_schema needs a schema");
    jsonw_key(w, "response_format"); /* the schema stands beside the type there, too */
    jsonw_val(w, format);
    return 0;
}

static int put_text_and_reasoning(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    yyjson_val *text = given(body, "text"), *reasoning = given(body, "reasoning");
    if (text && !yyjson_is_obj(text)) return api_fail(e, 400, NULL, "text", "text must be an object");
    if (reasoning && !yyjson_is_obj(reasoning)) return api_fail(e, 400, NULL, "reasoning", "reasoning must be an object");
    if (given(text, "verbosity")) {
        jsonw_key(w, "verbosity");
        jsonw_val(w, given(text, "verbosity"));
    }
    if (given(reasoning, "effort")) {
        jsonw_key(w, "reasoning_effort");
        jsonw_val(w, given(reasoning, "effort"));
    }
    if (given(body, "max_output_tokens")) {
        jsonw_key(w, "max_tokens");
        jsonw_val(w, given(body, "max_output_tokens"));
    }
    return put_format(w, given(text, "format"), e);
}

static int read_store(struct call *c, struct responses_state *state) {
    yyjson_val *store = given(c->body, "store"), *metadata = given(c->body, "metadata");
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
    int code = put_messages(&w, c->body, items, n_before, e) || responses_tools_put(&w, c->body, &customs_w, e) ||
               responses_tools_put_choice(&w, c->body, e) || put_text_and_reasoning(&w, c->body, e) || put_others(&w, c->body, e);
    jsonw_end(&w, '}');
    if (!code && (json_parse(&c->arena, sb_str(&text), "body", JSON_STRICT, out_body, &err) ||
                  json_parse(&c->arena, sb_str(&customs), "tools", JSON_STRICT, &state->customs, &err)))
        code = api_fail_err(e, &err, NULL);
    sb_free(&text);
    sb_free(&customs);
    return code ? -1 : 0;
}
