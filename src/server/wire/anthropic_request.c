/* Anthropic's request to OpenAI's chat: fields, tools, thinking, the answer's form. */
#include "server/chat_fields.h"
#include "server/wire/anthropic.h"
#include "server/wire/anthropic_messages.h"

/* ---- fields ------------------------------------------------------------------------------------------------------------- */

/* docs/protocols/anthropic.md has the list of those without effect. */
static const struct chat_field fields[] = {
    {"messages", CHAT_FIELD_OWN, NULL, NULL},
    {"system", CHAT_FIELD_OWN, NULL, NULL},
    {"tools", CHAT_FIELD_OWN, NULL, NULL},
    {"tool_choice", CHAT_FIELD_OWN, NULL, NULL},
    {"thinking", CHAT_FIELD_OWN, NULL, NULL},
    {"output_config", CHAT_FIELD_OWN, NULL, NULL},
    {"output_format", CHAT_FIELD_OWN, NULL, NULL},
    {"stop_sequences", CHAT_FIELD_OWN, NULL, NULL},
    {"chat_template_kwargs", CHAT_FIELD_OWN, NULL, NULL},
    {"metadata", CHAT_FIELD_OWN, NULL, NULL},
    {"service_tier", CHAT_FIELD_OWN, NULL, NULL},
    {"cache_control", CHAT_FIELD_OWN, NULL, NULL},
    {"context_management", CHAT_FIELD_OWN, NULL, NULL},
    {"inference_geo", CHAT_FIELD_OWN, NULL, NULL},
    {"speed", CHAT_FIELD_OWN, NULL, NULL},
    {"diagnostics", CHAT_FIELD_OWN, NULL, NULL},
    {"user_profile_id", CHAT_FIELD_OWN, NULL, NULL},
    {"workspace_id", CHAT_FIELD_OWN, NULL, NULL},
    {"n", CHAT_FIELD_REFUSED, "1", NULL},
    {"logprobs", CHAT_FIELD_REFUSED, "false", NULL},
    {"top_logprobs", CHAT_FIELD_REFUSED, "0", NULL},
    {"container", CHAT_FIELD_REFUSED, NULL, NULL},
    {"mcp_servers", CHAT_FIELD_REFUSED, NULL, NULL},
    {"fallbacks", CHAT_FIELD_REFUSED, NULL, NULL},
    {"stop", CHAT_FIELD_REFUSED, NULL, "stop_sequences"},
    {"max_completion_tokens", CHAT_FIELD_REFUSED, NULL, "max_tokens"},
    {"continue_final_message", CHAT_FIELD_REFUSED, NULL, NULL},
    {"add_generation_prompt", CHAT_FIELD_REFUSED, NULL, NULL},
    {"parallel_tool_calls", CHAT_FIELD_REFUSED, NULL, "tool_choice.disable_parallel_tool_use"},
    {"response_format", CHAT_FIELD_REFUSED, NULL, "output_config.format"},
    {"reasoning_effort", CHAT_FIELD_REFUSED, NULL, "output_config.effort"},
    {"thinking_token_budget", CHAT_FIELD_REFUSED, NULL, "thinking.budget_tokens"},
    {"thinking_budget_tokens", CHAT_FIELD_REFUSED, NULL, "thinking.budget_tokens"},
    {"reasoning_budget_tokens", CHAT_FIELD_REFUSED, NULL, "thinking.budget_tokens"},
    {0},
};

static const struct chat_field_name names[] = {
    {"stop", "stop_sequences"},
    {"thinking_token_budget", "thinking.budget_tokens"},
    {"response_format", "output_config.format"},
    {"reasoning_effort", "output_config.effort"},
    {0},
};

void anthropic_rename_fields(struct api_error *e) {
    chat_fields_rename(e, names);
}

static struct str type_of(yyjson_val *val) {
    return json_str(val, "type", (struct str){0});
}

/* ---- tools -------------------------------------------------------------------------------------------------------------- */

static int put_tool(struct jsonw *w, yyjson_val *tool, size_t i, struct api_error *e) {
    struct str name = json_str(tool, "name", (struct str){0}), type = json_str(tool, "type", STR("custom"));
    yyjson_val *schema = json_given(tool, "input_schema");
    if (!str_is(type, "custom"))
        return api_fail(
            e, 400, NULL, "tools",
            "tools.%zu: tools of type \"%.*s\" are Anthropic's own and are not there; leave it out, or describe it with an input_schema", i,
            (int)(type.n > 40 ? 40 : type.n), type.p);
    if (!name.n || (schema && !yyjson_is_obj(schema)))
        return api_fail(e, 400, NULL, "tools", "tools.%zu: a tool needs a name, and an input_schema that is an object", i);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("function"));
    jsonw_open(w, "function", '{');
    jsonw_put_str(w, "name", name);
    if (json_given(tool, "description")) jsonw_put_str(w, "description", json_str(tool, "description", STR("")));
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
    yyjson_arr_foreach(tools, i, n, tool) if (put_tool(w, tool, i, e)) return -1;
    jsonw_end(w, ']');
    return 0;
}

static int put_choice(struct jsonw *w, yyjson_val *choice, struct api_error *e) {
    static const char *const pairs[][2] = {{"auto", "auto"}, {"any", "required"}, {"none", "none"}};
    struct str type = type_of(choice), name = json_str(choice, "name", (struct str){0});
    yyjson_val *one = json_given(choice, "disable_parallel_tool_use");
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
    yyjson_val *thinking = json_given(body, "thinking"), *kwargs = json_given(body, "chat_template_kwargs"), *key, *val;
    struct str type = thinking ? type_of(thinking) : STR("disabled"), display = json_str(thinking, "display", STR(""));
    bool is_on = str_is(type, "enabled") || str_is(type, "adaptive") || str_is(type, "between_tools");
    size_t i, n;
    if (!is_on && !str_is(type, "disabled"))
        return api_fail(e, 400, NULL, "thinking", "thinking: must be an object whose type is enabled, adaptive, between_tools or disabled");
    if (json_given(thinking, "display") && !str_is(display, "summarized") && !str_is(display, "omitted"))
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
    yyjson_val *config = json_given(body, "output_config"), *format = json_given(config, "format"), *schema;
    if (config && !yyjson_is_obj(config)) return api_fail(e, 400, NULL, "output_config", "output_config: must be an object");
    if (!format) format = json_given(body, "output_format");
    schema = json_get(format, "schema");
    if (json_given(config, "effort")) {
        jsonw_key(w, "reasoning_effort");
        jsonw_val(w, json_given(config, "effort"));
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
    if (use == ANTHROPIC_ANSWERS && !json_given(body, "max_tokens")) return api_fail(e, 400, NULL, "max_tokens", "max_tokens: is required");
    jsonw_begin(w, '{');
    if (anthropic_messages_put(w, body, e) || put_tools(w, json_given(body, "tools"), e) ||
        put_choice(w, json_given(body, "tool_choice"), e) || put_thinking(w, body, e) || put_output(w, body, e) ||
        put_stops(w, json_given(body, "stop_sequences"), e) || chat_fields_copy(w, body, fields, e))
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
