/* Anthropic's request to OpenAI's chat. Blocks of a turn become one message; a tool's results become messages of their own, in the order in
 * which they stand. Places in errors are written as Anthropic writes them: messages.2.content.0. */
#include "server/turns.h"
#include "server/wire/anthropic.h"

#include <stdio.h>

/* ---- fields ------------------------------------------------------------------------------------------------------------- */

/* Read below, or without effect (docs/protocols/anthropic.md lists those). All others mean what they mean in chat completions. */
static const char *const own_fields[] = {"messages",
                                         "system",
                                         "tools",
                                         "tool_choice",
                                         "thinking",
                                         "output_config",
                                         "output_format",
                                         "stop_sequences",
                                         "metadata",
                                         "service_tier",
                                         "cache_control",
                                         "context_management",
                                         "inference_geo",
                                         "speed",
                                         "user_profile_id",
                                         "workspace_id",
                                         "diagnostics",
                                         "chat_template_kwargs",
                                         NULL};

/* Fields that ask for what an answer here has no place for, or that have another name. */
static const struct {
    const char *name, *instead;
} refused_fields[] = {{"n", NULL},
                      {"logprobs", NULL},
                      {"top_logprobs", NULL},
                      {"container", NULL},
                      {"mcp_servers", NULL},
                      {"fallbacks", NULL},
                      {"stop", "stop_sequences"},
                      {"max_completion_tokens", "max_tokens"},
                      {"continue_final_message", NULL},
                      {"add_generation_prompt", NULL},
                      {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
                      {"response_format", "output_config.format"},
                      {"reasoning_effort", "output_config.effort"},
                      {"thinking_token_budget", "thinking.budget_tokens"},
                      {"thinking_budget_tokens", "thinking.budget_tokens"},
                      {"reasoning_budget_tokens", "thinking.budget_tokens"}};

static const struct {
    const char *chat, *here;
} names[] = {{"stop", "stop_sequences"},
             {"thinking_token_budget", "thinking.budget_tokens"},
             {"response_format", "output_config.format"},
             {"reasoning_effort", "output_config.effort"}};

void anthropic_rename_fields(struct api_error *e) {
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) api_error_rename(e, names[i].chat, names[i].here);
}

static bool is_nothing(yyjson_val *val) {
    return !val || yyjson_is_null(val) || (yyjson_is_arr(val) && yyjson_arr_size(val) == 0);
}

/* A member; NULL where it is absent or null. */
static yyjson_val *given(yyjson_val *obj, const char *key) {
    yyjson_val *val = json_get(obj, key);
    return yyjson_is_null(val) ? NULL : val;
}

static int put_others(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    yyjson_val *key, *val;
    size_t i, n;
    yyjson_obj_foreach(body, i, n, key, val) {
        struct str name = json_val_str(key);
        bool is_own = false;
        for (size_t k = 0; own_fields[k]; k++) is_own |= str_is(name, own_fields[k]);
        if (is_own) continue;
        for (size_t k = 0; k < sizeof refused_fields / sizeof *refused_fields; k++) {
            const char *field = refused_fields[k].name, *instead = refused_fields[k].instead;
            if (!str_is(name, field) || is_nothing(val)) continue;
            return api_fail(e, 400, NULL, field, "%s: is not supported here; %s%s", field, instead ? "use " : "leave it out",
                            instead ? instead : "");
        }
        jsonw_key_str(w, name);
        jsonw_val(w, val);
    }
    return 0;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------------- */

/* Where something stands in the request: "messages.2.content.0". */
struct place {
    char text[64];
};

static struct place place_at(const struct place *in, const char *key, size_t i) {
    struct place at;
    snprintf(at.text, sizeof at.text, "%.24s%s%s.%zu", in ? in->text : "", in ? "." : "", key, i);
    return at;
}

static int fail_at(struct api_error *e, const struct place *at, const char *why) {
    return api_fail(e, 400, NULL, at->text, "%s: %s", at->text, why);
}

static int fail_type(struct api_error *e, const struct place *at, struct str type) {
    struct str image = STR("image");
    if (!type.p) return fail_at(e, at, "every block must be an object with a type");
    if (str_eq(type, image)) return fail_at(e, at, "image blocks are not supported: this model reads text alone");
    char why[120];
    snprintf(why, sizeof why, "blocks of type \"%.*s\" are not supported here", (int)(type.n > 40 ? 40 : type.n), type.p);
    return fail_at(e, at, why);
}

static struct str type_of(yyjson_val *block) {
    return json_str(block, "type", (struct str){0});
}

static int add_text_block(struct sb *out, yyjson_val *block, const struct place *at, struct api_error *e) {
    struct str text = json_str(block, "text", (struct str){0});
    if (!str_is(type_of(block), "text")) return fail_type(e, at, type_of(block));
    if (!text.p) return fail_at(e, at, "a text block needs a text");
    turns_add_paragraph(out, text);
    return 0;
}

/* A string, or a list of text blocks; `in` is whose content it is. */
static int add_texts(struct sb *out, yyjson_val *content, const char *key, const struct place *in, struct api_error *e) {
    struct str text = json_val_str(content);
    yyjson_val *block;
    size_t i, n;
    if (text.p) turns_add_paragraph(out, text);
    if (text.p) return 0;
    if (!yyjson_is_arr(content))
        return api_fail(e, 400, NULL, key, "%s%s%s: must be a string or a list of text blocks", in ? in->text : "", in ? "." : "", key);
    yyjson_arr_foreach(content, i, n, block) {
        struct place at = place_at(in, key, i);
        if (add_text_block(out, block, &at, e)) return -1;
    }
    return 0;
}

/* ---- turns -------------------------------------------------------------------------------------------------------------- */

/* The conversation that is being written. */
struct talk {
    struct turns turns;
    struct api_error *e;
};

static int add_call(struct talk *t, yyjson_val *block, const struct place *at) {
    struct str id = json_str(block, "id", (struct str){0}), name = json_str(block, "name", (struct str){0});
    yyjson_val *input = json_get(block, "input");
    struct sb arguments = {0};
    struct jsonw inner = {.out = &arguments};
    if (!id.n || !name.n || !yyjson_is_obj(input))
        return fail_at(t->e, at, "a tool_use block needs an id, a name and an input, which is an object");
    jsonw_val(&inner, input);
    turns_add_call(&t->turns, id, name, sb_str(&arguments));
    sb_free(&arguments);
    return 0;
}

static int add_assistant_block(struct talk *t, yyjson_val *block, const struct place *at) {
    struct str type = type_of(block), text = json_str(block, "text", (struct str){0});
    if (str_is(type, "tool_use")) return add_call(t, block, at);
    if (str_is(type, "redacted_thinking")) return 0; /* nobody can read it */
    if (str_is(type, "thinking")) {
        turns_add_paragraph(&t->turns.thoughts, json_str(block, "thinking", STR("")));
        return 0;
    }
    if (!str_is(type, "text")) return fail_type(t->e, at, type);
    if (!text.p) return fail_at(t->e, at, "a text block needs a text");
    sb_put(&t->turns.text, text); /* as it stands: an answer may have to go on with it */
    return 0;
}

static int put_result(struct talk *t, yyjson_val *block, const struct place *at) {
    struct str id = json_str(block, "tool_use_id", (struct str){0});
    yyjson_val *content = given(block, "content");
    struct sb text = {0};
    if (!id.n) return fail_at(t->e, at, "a tool_result block needs a tool_use_id");
    if (json_bool(block, "is_error", false)) sb_puts(&text, "Error:");
    int code = content ? add_texts(&text, content, "content", at, t->e) : 0;
    if (!code) turns_put_result(&t->turns, id, sb_str(&text));
    sb_free(&text);
    return code;
}

static int add_user_block(struct talk *t, yyjson_val *block, const struct place *at) {
    if (str_is(type_of(block), "tool_result")) return put_result(t, block, at);
    turns_begin(&t->turns, "user");
    return add_text_block(&t->turns.text, block, at, t->e);
}

static int add_message(struct talk *t, yyjson_val *message, size_t i_message) {
    struct place in = place_at(NULL, "messages", i_message);
    struct str role = json_str(message, "role", (struct str){0});
    yyjson_val *content = json_get(message, "content"), *block;
    bool is_assistant = str_is(role, "assistant");
    size_t i, n;
    if (str_is(role, "system")) {
        turns_begin(&t->turns, "system");
        return add_texts(&t->turns.text, content, "content", &in, t->e);
    }
    if (!is_assistant && !str_is(role, "user")) return fail_at(t->e, &in, "the role must be user, assistant or system");
    if (is_assistant || yyjson_is_str(content)) turns_begin(&t->turns, is_assistant ? "assistant" : "user");
    if (yyjson_is_str(content)) {
        if (is_assistant) sb_put(&t->turns.text, json_val_str(content));
        else turns_add_paragraph(&t->turns.text, json_val_str(content));
        return 0;
    }
    if (!yyjson_is_arr(content)) return fail_at(t->e, &in, "content must be a string or a list of blocks");
    yyjson_arr_foreach(content, i, n, block) {
        struct place at = place_at(&in, "content", i);
        if (is_assistant ? add_assistant_block(t, block, &at) : add_user_block(t, block, &at)) return -1;
    }
    return 0;
}

/* The last turn where it is the assistant's: its text is gone on with; without any text it is left out. */
static int end_last_turn(struct talk *t, bool *out_continues) {
    struct turns *turns = &t->turns;
    bool is_assistant = turns_is(turns, "assistant");
    *out_continues = is_assistant && turns->text.n > 0;
    if (is_assistant && turns->n_calls)
        return api_fail(t->e, 400, NULL, "messages",
                        "messages: the last message has tool_use blocks; a message with their tool_result blocks must follow");
    if (is_assistant && turns->text.n == 0) turns_drop(turns);
    turns_end(turns);
    return 0;
}

static int put_messages(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    struct talk t = {.turns = {.w = w}, .e = e};
    yyjson_val *messages = json_get(body, "messages"), *message;
    bool continues = false;
    size_t i, n;
    int code = 0;
    if (!yyjson_is_arr(messages) || yyjson_arr_size(messages) == 0)
        return api_fail(e, 400, NULL, "messages", "messages: at least one message is required");
    jsonw_open(w, "messages", '[');
    if (given(body, "system")) {
        turns_begin(&t.turns, "system");
        code = add_texts(&t.turns.text, given(body, "system"), "system", NULL, e);
        if (t.turns.text.n == 0) turns_drop(&t.turns);
    }
    yyjson_arr_foreach(messages, i, n, message) if (!code) code = add_message(&t, message, i);
    if (!code) code = end_last_turn(&t, &continues);
    turns_free(&t.turns);
    jsonw_end(w, ']');
    jsonw_put_bool(w, "continue_final_message", continues);
    return code;
}

/* ---- tools -------------------------------------------------------------------------------------------------------------- */

static int put_tool(struct jsonw *w, yyjson_val *tool, const struct place *at, struct api_error *e) {
    struct str name = json_str(tool, "name", (struct str){0}), type = json_str(tool, "type", STR("custom"));
    yyjson_val *schema = given(tool, "input_schema");
    char why[160];
    snprintf(why, sizeof why,
             "tools of type \"%.*s\" are Anthropic's own and are not there; leave it out, or describe it with an input_schema",
             (int)(type.n > 40 ? 40 : type.n), type.p);
    if (!str_is(type, "custom")) return fail_at(e, at, why);
    if (!name.n || (schema && !yyjson_is_obj(schema))) return fail_at(e, at, "a tool needs a name, and an input_schema that is an object");
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("function"));
    jsonw_open(w, "function", '{');
    jsonw_put_str(w, "name", name);
    if (given(tool, "description")) jsonw_put_str(w, "description", json_str(tool, "description", STR("")));
    jsonw_key(w, "parameters");
    if (schema) jsonw_val(w, schema);
    else jsonw_raw(w, STR("{\"type\":\"object\",\"properties\":{}}"));
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    return 0;
}

static int put_tools(struct jsonw *w, yyjson_val *tools, struct api_error *e) {
    yyjson_val *tool;
    size_t i, n;
    if (!tools) return 0;
    if (!yyjson_is_arr(tools)) return api_fail(e, 400, NULL, "tools", "tools: must be a list of tools");
    jsonw_open(w, "tools", '[');
    yyjson_arr_foreach(tools, i, n, tool) {
        struct place at = place_at(NULL, "tools", i);
        if (put_tool(w, tool, &at, e)) return -1;
    }
    jsonw_end(w, ']');
    return 0;
}

static int put_choice(struct jsonw *w, yyjson_val *choice, struct api_error *e) {
    static const char *const pairs[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    struct str type = type_of(choice), name = json_str(choice, "name", (struct str){0});
    yyjson_val *one = given(choice, "disable_parallel_tool_use");
    bool is_known = str_is(type, "tool");
    if (!choice) return 0;
    for (size_t i = 0; i < 3; i++) {
        if (!str_is(type, pairs[i][0])) continue;
        jsonw_put_str(w, "tool_choice", str_of(pairs[i][1]));
        is_known = true;
    }
    if (!is_known) return api_fail(e, 400, NULL, "tool_choice", "tool_choice: must be an object whose type is auto, any, tool or none");
    if (one && !yyjson_is_bool(one))
        return api_fail(e, 400, NULL, "tool_choice", "tool_choice.disable_parallel_tool_use: must be true or false");
    jsonw_put_bool(w, "parallel_tool_calls", !yyjson_get_bool(one));
    if (!str_is(type, "tool")) return 0;
    if (!name.n) return api_fail(e, 400, NULL, "tool_choice", "tool_choice.name: is required where the type is tool");
    jsonw_open(w, "tool_choice", '{');
    jsonw_put_str(w, "type", STR("function"));
    jsonw_open(w, "function", '{');
    jsonw_put_str(w, "name", name);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    return 0;
}

/* ---- how it thinks and what it looks like ------------------------------------------------------------------------------- */

static int put_budget(struct jsonw *w, yyjson_val *body, yyjson_val *thinking, struct api_error *e) {
    int64_t n, most = json_int(body, "max_tokens", INT64_MAX);
    if (!json_val_int(json_get(thinking, "budget_tokens"), &n) || n < 1)
        return api_fail(e, 400, NULL, "thinking.budget_tokens", "thinking.budget_tokens: must be a whole number of at least 1");
    if (n >= most) return api_fail(e, 400, NULL, "max_tokens", "max_tokens: must be greater than thinking.budget_tokens");
    jsonw_put_int(w, "thinking_token_budget", n);
    return 0;
}

/* Who does not ask for thinking gets none, as with Anthropic, where the template lets us choose. */
static int put_thinking(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    yyjson_val *thinking = given(body, "thinking"), *kwargs = given(body, "chat_template_kwargs"), *key, *val;
    struct str type = thinking ? type_of(thinking) : STR("disabled"), display = json_str(thinking, "display", STR(""));
    bool is_on = str_is(type, "enabled") || str_is(type, "adaptive") || str_is(type, "between_tools");
    size_t i, n;
    if (!is_on && !str_is(type, "disabled"))
        return api_fail(e, 400, NULL, "thinking", "thinking: must be an object whose type is enabled, adaptive, between_tools or disabled");
    if (given(thinking, "display") && !str_is(display, "summarized") && !str_is(display, "omitted"))
        return api_fail(e, 400, NULL, "thinking", "thinking.display: must be summarized or omitted");
    if (str_is(type, "enabled") && put_budget(w, body, thinking, e)) return -1;
    if (kwargs && !yyjson_is_obj(kwargs)) return api_fail(e, 400, NULL, "chat_template_kwargs", "chat_template_kwargs: must be an object");
    jsonw_open(w, "chat_template_kwargs", '{');
    if (!json_get(kwargs, "enable_thinking")) jsonw_put_bool(w, "enable_thinking", is_on);
    if (kwargs) yyjson_obj_foreach(kwargs, i, n, key, val) {
            jsonw_key_str(w, json_val_str(key));
            jsonw_val(w, val);
        }
    jsonw_end(w, '}');
    return 0;
}

/* output_config {effort, format}, and output_format, which is the older name of the latter. */
static int put_output(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    yyjson_val *config = given(body, "output_config"), *format = given(config, "format"), *schema;
    if (config && !yyjson_is_obj(config)) return api_fail(e, 400, NULL, "output_config", "output_config: must be an object");
    if (!format) format = given(body, "output_format");
    schema = json_get(format, "schema");
    if (given(config, "effort")) {
        jsonw_key(w, "reasoning_effort");
        jsonw_val(w, given(config, "effort"));
    }
    if (!format) return 0;
    if (!str_is(type_of(format), "json_schema") || !schema)
        return api_fail(e, 400, NULL, "output_config", "output_config.format: must be an object with the type json_schema and a schema");
    jsonw_open(w, "response_format", '{');
    jsonw_put_str(w, "type", STR("json_schema"));
    jsonw_key(w, "schema");
    jsonw_val(w, schema);
    jsonw_end(w, '}');
    return 0;
}

static int put_stops(struct jsonw *w, yyjson_val *stops, struct api_error *e) {
    if (!stops) return 0;
    if (!yyjson_is_arr(stops)) return api_fail(e, 400, NULL, "stop_sequences", "stop_sequences: must be a list of strings");
    jsonw_key(w, "stop");
    jsonw_val(w, stops);
    return 0;
}

static int put_body(struct jsonw *w, yyjson_val *body, enum anthropic_use use, struct api_error *e) {
    if (use == ANTHROPIC_ANSWERS && !given(body, "max_tokens")) return api_fail(e, 400, NULL, "max_tokens", "max_tokens: is required");
    jsonw_begin(w, '{');
    if (put_messages(w, body, e) || put_tools(w, given(body, "tools"), e) || put_choice(w, given(body, "tool_choice"), e) ||
        put_thinking(w, body, e) || put_output(w, body, e) || put_stops(w, given(body, "stop_sequences"), e) || put_others(w, body, e))
        return -1;
    jsonw_end(w, '}');
    return 0;
}

int anthropic_to_chat(struct call *c, enum anthropic_use use, yyjson_val **out_body) {
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    struct err err;
    int code = put_body(&w, c->body, use, &c->error);
    if (!code && json_parse(&c->arena, sb_str(&text), "body", JSON_STRICT, out_body, &err)) code = api_fail_err(&c->error, &err, NULL);
    sb_free(&text);
    return code;
}
