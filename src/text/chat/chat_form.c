/* Forms of calls in a conversation: tried out once per template, then used for every request. */
#include "text/chat/chat_form.h"

/* ---- rewriting -------------------------------------------------------------------------------------------------- */

static bool is_call_message(yyjson_val *message) {
    return yyjson_arr_size(json_get(message, "tool_calls")) > 0 || str_is(json_str(message, "role", (struct str){0}), "tool");
}

/* Arguments that are no object, and no text of one, stay as they are. */
static void put_arguments(struct jsonw *w, yyjson_val *value, bool as_string) {
    struct arena a = {0};
    struct sb text = {0};
    struct jsonw own = {.out = &text};
    yyjson_val *parsed = value;
    struct str json = json_val_str(value);
    if (json.n && (json_parse(&a, json, "arguments", JSON_STRICT, &parsed, NULL) || !yyjson_is_obj(parsed))) parsed = value;
    if (yyjson_is_obj(parsed) && as_string) {
        jsonw_val(&own, parsed);
        jsonw_str(w, json.n ? json : sb_str(&text));
    } else {
        jsonw_val(w, parsed);
    }
    sb_free(&text);
    arena_free(&a);
}

/* An object, with one of its members written by the caller: the key of that member, or NULL behind the last one. */
static void put_others(struct jsonw *w, yyjson_val *object, const char *without, const char *and_without) {
    yyjson_val *key, *value;
    size_t i, n;
    yyjson_obj_foreach(object, i, n, key, value) {
        struct str name = json_val_str(key);
        if (str_is(name, without) || (and_without && str_is(name, and_without))) continue;
        jsonw_key_str(w, name);
        jsonw_val(w, value);
    }
}

static void put_call(struct jsonw *w, yyjson_val *call, struct chat_form form) {
    yyjson_val *function = json_get(call, "function"), *arguments = json_get(function, "arguments");
    if (!yyjson_is_obj(call) || !arguments) {
        jsonw_val(w, call);
        return;
    }
    jsonw_begin(w, '{');
    put_others(w, call, "function", NULL);
    jsonw_open(w, "function", '{');
    put_others(w, function, "arguments", NULL);
    jsonw_key(w, "arguments");
    put_arguments(w, arguments, form.string_arguments);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

static void put_calls(struct jsonw *w, yyjson_val *message, struct chat_form form) {
    yyjson_val *calls = json_get(message, "tool_calls"), *content = json_get(message, "content"), *call;
    size_t i, n;
    bool is_empty = !content || yyjson_is_null(content) || (yyjson_is_str(content) && yyjson_get_len(content) == 0);
    put_others(w, message, "tool_calls", "content");
    jsonw_key(w, "content");
    if (!is_empty) jsonw_val(w, content);
    else if (form.null_content) jsonw_null(w);
    else jsonw_str(w, STR(""));
    jsonw_open(w, "tool_calls", '[');
    yyjson_arr_foreach(calls, i, n, call) put_call(w, call, form);
    jsonw_end(w, ']');
}

/* The tool that the latest call with this id names. */
static struct str find_name(yyjson_val *messages, size_t before, struct str id) {
    yyjson_val *call;
    size_t i, n;
    while (id.n && before-- > 0) {
        yyjson_val *calls = json_get(yyjson_arr_get(messages, before), "tool_calls");
        if (yyjson_is_arr(calls)) yyjson_arr_foreach(calls, i, n, call) {
                if (str_eq(json_str(call, "id", (struct str){0}), id)) return json_str(json_get(call, "function"), "name", (struct str){0});
            }
    }
    return (struct str){0};
}

static void put_message(struct jsonw *w, yyjson_val *messages, size_t i, yyjson_val *message, struct chat_form form) {
    struct str name = {0};
    if (!is_call_message(message)) {
        jsonw_val(w, message);
        return;
    }
    jsonw_begin(w, '{');
    if (yyjson_arr_size(json_get(message, "tool_calls"))) {
        put_calls(w, message, form);
    } else {
        put_others(w, message, "", NULL);
        if (!json_get(message, "name")) name = find_name(messages, i, json_str(message, "tool_call_id", (struct str){0}));
        if (name.n) jsonw_put_str(w, "name", name);
    }
    jsonw_end(w, '}');
}

int chat_form_apply(struct arena *a, struct chat_form form, yyjson_val *input, yyjson_val **out_input, struct err *err) {
    yyjson_val *messages = json_get(input, "messages"), *message;
    size_t i, n, n_calls = 0;
    *out_input = input;
    if (yyjson_is_arr(messages)) yyjson_arr_foreach(messages, i, n, message) n_calls += is_call_message(message);
    if (n_calls == 0) return ERR_OK;
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    jsonw_begin(&w, '{');
    put_others(&w, input, "messages", NULL);
    jsonw_open(&w, "messages", '[');
    yyjson_arr_foreach(messages, i, n, message) put_message(&w, messages, i, message, form);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    int code = json_parse(a, sb_str(&text), "messages", JSON_STRICT, out_input, err);
    sb_free(&text);
    return code;
}

/* ---- trying out ------------------------------------------------------------------------------------------------- */

static const char trial[] =
    "{\"add_generation_prompt\": true, \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"trial_tool\", \"description\": \"t\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"key\": {\"type\": \"string\", \"description\": \"k\"}}, \"required\": [\"key\"]}}}], "
    "\"messages\": [{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"trial1234\", "
    "\"type\": \"function\", \"function\": {\"name\": \"trial_tool\", \"arguments\": {\"key\": \"trial_value\"}}}]}, "
    "{\"role\": \"tool\", \"tool_call_id\": \"trial1234\", \"name\": \"trial_tool\", \"content\": \"trial_result\"}]}";

static bool has(struct str text, const char *part) {
    return str_find(text, str_of(part), 0) != STR_NONE;
}

/* How well the call came through: with its arguments, and without quotes inside quotes or braces inside braces. */
static int judge(struct str text) {
    if (!has(text, "trial_value")) return 1;
    bool is_spoiled = has(text, "\\\"key") || has(text, "&#34;") || has(text, "{{\"key") || has(text, "None");
    return is_spoiled ? 2 : 3;
}

/* A template is hostile input, and this happens before anybody asked for it. */
static const struct tmpl_limits trial_limits = {.steps = 200000, .memory_bytes = 4 << 20, .output_bytes = 1 << 20};

/* How well the form does, and how long the rendering is. */
static int try_form(const struct tmpl *t, struct chat_form form, yyjson_val *special, size_t *out_length) {
    struct arena a = {0};
    struct tmpl_context ctx = {.special = special, .now = {.year = 2025, .month = 1, .day = 1}, .limits = trial_limits};
    struct tmpl_output out = {0};
    yyjson_val *input;
    bool good = json_parse(&a, str_of(trial), "trial", JSON_STRICT, &input, NULL) == ERR_OK &&
                chat_form_apply(&a, form, input, &ctx.input, NULL) == ERR_OK && tmpl_render(t, &a, &ctx, &out, NULL) == ERR_OK;
    int score = good ? judge(out.text) : 0;
    *out_length = out.text.n;
    arena_free(&a);
    return score;
}

struct chat_form chat_form_find(const struct tmpl *t, struct str source, yyjson_val *special) {
    struct chat_form best = {0};
    int best_score = 0;
    size_t best_length = 0, length;
    if (!has(source, "tool")) return best;
    for (int i = 0; i < 4; i++) {
        struct chat_form form = {.string_arguments = i & 2, .null_content = i & 1};
        int score = try_form(t, form, special, &length);
        /* Of two contents that do equally well the one without an empty turn beside the call. */
        bool is_better = score == best_score && form.string_arguments == best.string_arguments && length < best_length;
        if (score > best_score || (score && is_better)) {
            best = form;
            best_score = score;
            best_length = length;
        }
    }
    return best;
}
