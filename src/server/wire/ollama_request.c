/* Ollama: its requests in OpenAI's fields. Options that say how a model is put on a device are taken without effect: the server was started with its
 * own. */
#include "server/wire/ollama.h"

#include <stdio.h>

/* Options by name, and what OpenAI's field is called; NULL: it changes no answer here. */
static const struct {
    const char *name, *field;
} options[] = {
    {"temperature", "temperature"},
    {"top_k", "top_k"},
    {"top_p", "top_p"},
    {"min_p", "min_p"},
    {"typical_p", "typical_p"},
    {"seed", "seed"},
    {"stop", "stop"},
    {"repeat_penalty", "repeat_penalty"},
    {"repeat_last_n", "repeat_last_n"},
    {"presence_penalty", "presence_penalty"},
    {"frequency_penalty", "frequency_penalty"},
    {"mirostat", "mirostat"},
    {"mirostat_tau", "mirostat_tau"},
    {"mirostat_eta", "mirostat_eta"},
    {"num_ctx", NULL},
    {"num_keep", NULL},
    {"num_batch", NULL},
    {"num_gpu", NULL},
    {"main_gpu", NULL},
    {"num_thread", NULL},
    {"numa", NULL},
    {"low_vram", NULL},
    {"f16_kv", NULL},
    {"use_mmap", NULL},
    {"use_mlock", NULL},
    {"vocab_only", NULL},
    {"logits_all", NULL},
    {"embedding_only", NULL},
    {"penalize_newline", NULL},
};
enum { N_OPTIONS = sizeof options / sizeof *options };

static bool is_empty(yyjson_val *val) {
    return !val || yyjson_is_null(val) || (yyjson_is_str(val) && yyjson_get_len(val) == 0) ||
           (yyjson_is_arr(val) && yyjson_arr_size(val) == 0);
}

static int fail(struct call *c, const char *param, const char *why) {
    return api_fail(&c->error, 400, NULL, param, "%s %s", param, why);
}

static int put_option(struct call *c, struct str name, yyjson_val *val, struct jsonw *w) {
    int64_t n;
    if (str_is(name, "num_predict")) {
        if (!json_val_int(val, &n)) return fail(c, "options.num_predict", "must be a whole number");
        if (n > 0) jsonw_put_int(w, "max_tokens", n); /* others mean: no limit */
        return 0;
    }
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (!str_is(name, options[i].name)) continue;
        if (!options[i].field) return 0;
        jsonw_key(w, options[i].field);
        jsonw_val(w, val);
        return 0;
    }
    return api_fail(&c->error, 400, "unsupported_parameter", "options", "options.%.*s is not supported; leave it out",
                    (int)(name.n > 40 ? 40 : name.n), name.p);
}

static int put_options(struct call *c, struct jsonw *w) {
    yyjson_val *all = json_get(c->body, "options"), *key, *val;
    size_t i, n;
    if (!is_empty(all) && !yyjson_is_obj(all)) return fail(c, "options", "must be an object");
    yyjson_obj_foreach(all, i, n, key, val) if (!yyjson_is_null(val) && put_option(c, json_val_str(key), val, w)) return -1;
    return 0;
}

/* "json", or a schema. */
static int put_format(struct call *c, struct jsonw *w) {
    yyjson_val *format = json_get(c->body, "format");
    if (is_empty(format)) return 0;
    if (!yyjson_is_obj(format) && !str_is(json_val_str(format), "json")) return fail(c, "format", "must be \"json\" or a JSON schema");
    jsonw_open(w, "response_format", '{');
    jsonw_put_str(w, "type", yyjson_is_obj(format) ? STR("json_schema") : STR("json_object"));
    if (yyjson_is_obj(format)) {
        jsonw_open(w, "json_schema", '{');
        jsonw_key(w, "schema");
        jsonw_val(w, format);
        jsonw_end(w, '}');
    }
    jsonw_end(w, '}');
    return 0;
}

static int put_thinking(struct call *c, struct jsonw *w) {
    yyjson_val *think = json_get(c->body, "think");
    if (is_empty(think)) return 0;
    if (!yyjson_is_bool(think) && !yyjson_is_str(think)) return fail(c, "think", "must be true, false, or how much: low, medium, high");
    if (yyjson_is_str(think)) {
        jsonw_put_str(w, "reasoning_effort", json_val_str(think));
        return 0;
    }
    jsonw_open(w, "chat_template_kwargs", '{');
    jsonw_put_bool(w, "enable_thinking", yyjson_get_bool(think));
    jsonw_end(w, '}');
    return 0;
}

/* What all requests share. Answers are streams unless the request says otherwise. */
static int put_common(struct call *c, struct jsonw *w) {
    static const char *const same[] = {"logprobs", "top_logprobs"};
    yyjson_val *stream = json_get(c->body, "stream");
    if (!is_empty(stream) && !yyjson_is_bool(stream)) return fail(c, "stream", "must be true or false");
    jsonw_put_bool(w, "stream", is_empty(stream) || yyjson_get_bool(stream));
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        if (is_empty(json_get(c->body, same[i]))) continue;
        jsonw_key(w, same[i]);
        jsonw_val(w, json_get(c->body, same[i]));
    }
    return put_options(c, w) || put_format(c, w) || put_thinking(c, w);
}

/* ---- chat --------------------------------------------------------------------------------------------------------------- */

static void put_arguments(yyjson_val *arguments, struct jsonw *w) {
    struct sb text = {0};
    struct jsonw inner = {.out = &text};
    if (yyjson_is_obj(arguments)) jsonw_val(&inner, arguments);
    jsonw_put_str(w, "arguments", text.n ? sb_str(&text) : STR("{}"));
    sb_free(&text);
}

/* Calls that were made: arguments are objects there, texts here. */
static void put_calls(yyjson_val *calls, struct jsonw *w) {
    yyjson_val *call;
    size_t i, n;
    jsonw_open(w, "tool_calls", '[');
    yyjson_arr_foreach(calls, i, n, call) {
        yyjson_val *function = json_get(call, "function");
        char id[32];
        struct str made = str_n(id, (size_t)snprintf(id, sizeof id, "call_%zu", i));
        jsonw_begin(w, '{');
        jsonw_put_str(w, "id", json_str(call, "id", made));
        jsonw_put_str(w, "type", STR("function"));
        jsonw_open(w, "function", '{');
        jsonw_put_str(w, "name", json_str(function, "name", STR("")));
        put_arguments(json_get(function, "arguments"), w);
        jsonw_end(w, '}');
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
}

/* Files in base64, before the text. */
static int put_images(struct call *c, yyjson_val *images, struct str text, struct jsonw *w) {
    yyjson_val *image;
    size_t i, n;
    if (!yyjson_is_arr(images)) return fail(c, "images", "must be a list of files in base64");
    jsonw_open(w, "content", '[');
    yyjson_arr_foreach(images, i, n, image) {
        if (!yyjson_is_str(image)) return fail(c, "images", "must be a list of files in base64");
        struct sb url = {0};
        sb_puts(&url, "data:image/any;base64,");
        sb_put(&url, json_val_str(image));
        jsonw_begin(w, '{');
        jsonw_put_str(w, "type", STR("image_url"));
        jsonw_put_str(w, "image_url", sb_str(&url));
        jsonw_end(w, '}');
        sb_free(&url);
    }
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("text"));
    jsonw_put_str(w, "text", text);
    jsonw_end(w, '}');
    jsonw_end(w, ']');
    return 0;
}

static int put_message(struct call *c, yyjson_val *message, struct jsonw *w) {
    struct str thinking = json_str(message, "thinking", STR("")), tool = json_str(message, "tool_name", STR(""));
    yyjson_val *calls = json_get(message, "tool_calls");
    if (!yyjson_is_obj(message)) return fail(c, "messages", "must be a list of objects");
    yyjson_val *images = json_get(message, "images");
    jsonw_begin(w, '{');
    jsonw_put_str(w, "role", json_str(message, "role", STR("user")));
    if (is_empty(images)) jsonw_put_str(w, "content", json_str(message, "content", STR("")));
    else if (put_images(c, images, json_str(message, "content", STR("")), w)) return -1;
    if (thinking.n) jsonw_put_str(w, "reasoning_content", thinking);
    if (tool.n) jsonw_put_str(w, "name", tool);
    if (json_get(message, "tool_call_id")) {
        jsonw_key(w, "tool_call_id");
        jsonw_val(w, json_get(message, "tool_call_id"));
    }
    if (!is_empty(calls)) put_calls(calls, w);
    jsonw_end(w, '}');
    return 0;
}

int ollama_chat_body(struct call *c, struct sb *out) {
    struct jsonw w = {.out = out};
    yyjson_val *messages = json_get(c->body, "messages"), *tools = json_get(c->body, "tools"), *message;
    size_t i, n;
    if (!yyjson_is_arr(messages)) return fail(c, "messages", "must be a list");
    jsonw_begin(&w, '{');
    jsonw_open(&w, "messages", '[');
    yyjson_arr_foreach(messages, i, n, message) if (put_message(c, message, &w)) return -1;
    jsonw_end(&w, ']');
    if (!is_empty(tools)) {
        jsonw_key(&w, "tools");
        jsonw_val(&w, tools);
    }
    if (put_common(c, &w)) return -1;
    jsonw_end(&w, '}');
    return 0;
}

/* ---- one prompt --------------------------------------------------------------------------------------------------------- */

static int refuse_fields(struct call *c) {
    static const char *const rows[][2] = {
        {"suffix", "is not supported here; use /infill"},
        {"template", "is not supported; use raw with a prompt that is complete, or --chat-template-file"},
        {"context", "is not supported; use /api/chat with the messages so far"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!is_empty(json_get(c->body, rows[i][0]))) return fail(c, rows[i][0], rows[i][1]);
    return 0;
}

static void put_plain(struct jsonw *w, const char *role, struct str content) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "role", str_of(role));
    jsonw_put_str(w, "content", content);
    jsonw_end(w, '}');
}

int ollama_generate_body(struct call *c, bool is_raw, struct sb *out) {
    struct jsonw w = {.out = out};
    struct str system = json_str(c->body, "system", STR(""));
    yyjson_val *images = json_get(c->body, "images");
    if (refuse_fields(c)) return -1;
    if (is_raw && !is_empty(images)) return fail(c, "images", "are not supported with raw");
    jsonw_begin(&w, '{');
    if (!is_raw) {
        jsonw_open(&w, "messages", '[');
        if (system.n) put_plain(&w, "system", system);
        if (is_empty(images)) put_plain(&w, "user", json_str(c->body, "prompt", STR("")));
        else {
            jsonw_begin(&w, '{');
            jsonw_put_str(&w, "role", STR("user"));
            if (put_images(c, images, json_str(c->body, "prompt", STR("")), &w)) return -1;
            jsonw_end(&w, '}');
        }
        jsonw_end(&w, ']');
    }
    if (put_common(c, &w)) return -1;
    jsonw_end(&w, '}');
    return 0;
}
