/* Tools of a response's request. Functions are chat's, written flat. A custom tool takes a text instead of an object: it becomes a function
 * with one argument, the text. Tools of other kinds are run by OpenAI or by one client alone, and are passed over: agents send them to every
 * server. */
#include "server/wire/responses_tools.h"

#include "base/log.h"

#include <stdio.h>

static yyjson_val *given(yyjson_val *obj, const char *key) {
    yyjson_val *val = json_get(obj, key);
    return yyjson_is_null(val) ? NULL : val;
}

static struct str type_of(yyjson_val *val) {
    return json_str(val, "type", (struct str){0});
}

/* tool_choice {"type": "allowed_tools", "mode", "tools"}: the others are not shown. */
static bool is_allowed(yyjson_val *choice, struct str name) {
    yyjson_val *tool;
    size_t i, n;
    if (!str_is(type_of(choice), "allowed_tools")) return true;
    yyjson_arr_foreach(json_get(choice, "tools"), i, n, tool) if (str_eq(json_str(tool, "name", (struct str){0}), name)) return true;
    return false;
}

static void begin_function(struct jsonw *w, yyjson_val *tool, struct str description) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("function"));
    jsonw_open(w, "function", '{');
    jsonw_put_str(w, "name", json_str(tool, "name", STR("")));
    if (description.n) jsonw_put_str(w, "description", description);
}

static void end_function(struct jsonw *w) {
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

static int put_function(struct jsonw *w, yyjson_val *tool, size_t i, struct api_error *e) {
    yyjson_val *parameters = given(tool, "parameters");
    if (parameters && !yyjson_is_obj(parameters)) return api_fail(e, 400, NULL, "tools", "tools[%zu].parameters must be a JSON schema", i);
    begin_function(w, tool, json_str(tool, "description", STR("")));
    jsonw_key(w, "parameters");
    if (parameters) jsonw_val(w, parameters);
    else jsonw_raw(w, STR("{\"type\":\"object\",\"properties\":{}}"));
    end_function(w);
    return 0;
}

/* The text's form is told to the model in any case; an expression also holds it. */
static int put_custom(struct jsonw *w, yyjson_val *tool, size_t i, struct api_error *e) {
    yyjson_val *format = given(tool, "format");
    struct str syntax = json_str(format, "syntax", STR("")), definition = json_str(format, "definition", STR(""));
    bool is_grammar = str_is(type_of(format), "grammar"), is_regex = is_grammar && str_is(syntax, "regex");
    struct sb text = {0};
    if (format && !is_grammar && !str_is(type_of(format), "text"))
        return api_fail(e, 400, NULL, "tools", "tools[%zu].format.type must be text or grammar", i);
    if (is_grammar && !is_regex && !str_is(syntax, "lark"))
        return api_fail(e, 400, NULL, "tools", "tools[%zu].format.syntax must be lark or regex", i);
    if (is_grammar && !is_regex) log_warn("tools[%zu]: a grammar in lark is shown to the model, but the tool's input is not held to it", i);
    sb_put(&text, json_str(tool, "description", STR("")));
    if (is_grammar) sb_fmt(&text, "\nThe input has this form (%.*s):\n%.*s", STR_ARG(syntax), (int)definition.n, definition.p);
    begin_function(w, tool, sb_str(&text));
    sb_clear(&text);
    jsonw_open(w, "parameters", '{');
    jsonw_put_str(w, "type", STR("object"));
    jsonw_open(w, "properties", '{');
    jsonw_open(w, "input", '{');
    jsonw_put_str(w, "type", STR("string"));
    sb_puts(&text, "^(?:");
    sb_put(&text, definition);
    sb_puts(&text, ")$");
    if (is_regex) jsonw_put_str(w, "pattern", sb_str(&text));
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    jsonw_put_raw(w, "required", STR("[\"input\"]"));
    jsonw_put_bool(w, "additionalProperties", false);
    jsonw_end(w, '}');
    end_function(w);
    sb_free(&text);
    return 0;
}

int responses_tools_put(struct jsonw *w, yyjson_val *body, struct jsonw *customs, struct api_error *e) {
    yyjson_val *tools = given(body, "tools"), *choice = given(body, "tool_choice"), *tool;
    size_t i, n;
    jsonw_begin(customs, '[');
    if (tools && !yyjson_is_arr(tools)) return api_fail(e, 400, NULL, "tools", "tools must be a list of tools");
    jsonw_open(w, "tools", '[');
    if (tools) yyjson_arr_foreach(tools, i, n, tool) {
            struct str name = json_str(tool, "name", (struct str){0}), type = type_of(tool);
            bool is_function = str_is(type, "function"), is_custom = str_is(type, "custom");
            if (!type.p) return api_fail(e, 400, NULL, "tools", "tools[%zu] must be an object with a type", i);
            if (!is_function && !is_custom) continue;
            if (!name.n) return api_fail(e, 400, NULL, "tools", "tools[%zu].name is required", i);
            if (!is_allowed(choice, name)) continue;
            if (is_function ? put_function(w, tool, i, e) : put_custom(w, tool, i, e)) return -1;
            if (is_custom) jsonw_str(customs, name);
        }
    jsonw_end(w, ']');
    jsonw_end(customs, ']');
    return 0;
}

int responses_tools_put_choice(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    yyjson_val *choice = given(body, "tool_choice");
    struct str type = type_of(choice), name = json_str(choice, "name", (struct str){0}), mode = json_str(choice, "mode", STR("auto"));
    if (!choice) return 0;
    if (yyjson_is_str(choice)) {
        jsonw_key(w, "tool_choice");
        jsonw_val(w, choice);
        return 0;
    }
    if (str_is(type, "allowed_tools")) {
        jsonw_put_str(w, "tool_choice", mode);
        return 0;
    }
    if ((!str_is(type, "function") && !str_is(type, "custom")) || !name.n)
        return api_fail(e, 400, "unsupported_value", "tool_choice",
                        "tool_choice must be none, auto, required, or an object that names a function, a custom tool or allowed_tools");
    jsonw_open(w, "tool_choice", '{');
    jsonw_put_str(w, "type", STR("function"));
    jsonw_open(w, "function", '{');
    jsonw_put_str(w, "name", name);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    return 0;
}
