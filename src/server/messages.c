/* Messages: roles checked, text parts joined, other keys passed through as they are. */
#include "server/messages.h"

#include <stdio.h>

enum { MESSAGES_MAX = 16384 };

struct place {
    size_t message, part;
};

static int fail_at(struct api_error *e, struct place at, const char *why) {
    char param[64];
    if (at.part == STR_NONE) snprintf(param, sizeof param, "messages[%zu].content", at.message);
    else snprintf(param, sizeof param, "messages[%zu].content[%zu]", at.message, at.part);
    return api_fail(e, 400, NULL, param, "%s: %s", param, why);
}

/* Text parts that stand beside each other become one text. */
static int join_part(yyjson_val *part, struct place at, struct sb *out, struct api_error *e) {
    struct str type = json_str(part, "type", (struct str){0}), text = json_str(part, "text", (struct str){0});
    if (!yyjson_is_obj(part) || !type.p) return fail_at(e, at, "every part must be an object with a type");
    if (str_is(type, "refusal")) text = json_str(part, "refusal", (struct str){0});
    else if (!str_is(type, "text")) {
        char why[120];
        snprintf(why, sizeof why, "parts of type \"%.*s\" are not supported by this model", (int)(type.n > 40 ? 40 : type.n), type.p);
        return fail_at(e, at, why);
    }
    if (!text.p) return fail_at(e, at, "a text part needs a text");
    sb_put(out, text);
    return 0;
}

static int join_content(yyjson_val *content, size_t i_message, struct sb *out, struct api_error *e) {
    struct str text = json_val_str(content);
    yyjson_val *part;
    size_t i, n;
    if (text.p) {
        sb_put(out, text);
        return 0;
    }
    if (!yyjson_is_arr(content)) return fail_at(e, (struct place){i_message, STR_NONE}, "must be a string or a list of parts");
    yyjson_arr_foreach(content, i, n, part) if (join_part(part, (struct place){i_message, i}, out, e)) return -1;
    return 0;
}

/* ---- pictures ----------------------------------------------------------------------------------------------------------- */

static bool is_image(yyjson_val *part) {
    return str_is(json_str(part, "type", (struct str){0}), "image_url");
}

static bool has_images(yyjson_val *content) {
    yyjson_val *part;
    size_t i, n;
    if (yyjson_is_arr(content)) yyjson_arr_foreach(content, i, n, part) if (is_image(part)) return true;
    return false;
}

/* {"type": "image_url", "image_url": {"url": ..., "detail": ...}}; some clients write the address alone. */
static int put_image(struct jsonw *w, yyjson_val *part, struct place at, struct pictures *pictures, struct api_error *e) {
    yyjson_val *image = json_get(part, "image_url");
    struct str url = yyjson_is_str(image) ? json_val_str(image) : json_str(image, "url", (struct str){0});
    struct str detail = json_str(image, "detail", STR("auto"));
    char param[96];
    snprintf(param, sizeof param, "messages[%zu].content[%zu].image_url", at.message, at.part);
    if (!url.p) return api_fail(e, 400, NULL, param, "%s needs a url", param);
    if (!str_is(detail, "auto") && !str_is(detail, "high") && !str_is(detail, "low"))
        return api_fail(e, 400, NULL, param, "%s: detail must be auto, low or high", param);
    if (str_is(detail, "low"))
        return api_fail(e, 400, "unsupported_value", param, "%s: detail low is not supported; the model's own size is used", param);
    if (pictures_add(pictures, url, param, e)) return -1;
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("image"));
    jsonw_end(w, '}');
    return 0;
}

static int put_parts(struct jsonw *w, yyjson_val *content, size_t i_message, struct pictures *pictures, struct api_error *e) {
    yyjson_val *part;
    size_t i, n;
    jsonw_begin(w, '[');
    yyjson_arr_foreach(content, i, n, part) {
        struct sb text = {0};
        struct place at = {i_message, i};
        int code = is_image(part) ? put_image(w, part, at, pictures, e) : join_part(part, at, &text, e);
        if (!code && !is_image(part)) {
            jsonw_begin(w, '{');
            jsonw_put_str(w, "type", STR("text"));
            jsonw_put_str(w, "text", sb_str(&text));
            jsonw_end(w, '}');
        }
        sb_free(&text);
        if (code) return code;
    }
    jsonw_end(w, ']');
    return 0;
}

static int put_content(struct jsonw *w, yyjson_val *message, bool may_be_null, size_t i_message, struct pictures *pictures,
                       struct api_error *e) {
    yyjson_val *content = json_get(message, "content");
    if (has_images(content)) return put_parts(w, content, i_message, pictures, e);
    struct sb text = {0};
    if ((!content || yyjson_is_null(content)) && may_be_null) {
        jsonw_str(w, STR(""));
        return 0;
    }
    int code = join_content(content, i_message, &text, e);
    if (!code) jsonw_str(w, sb_str(&text));
    sb_free(&text);
    return code;
}

static int put_message(struct jsonw *w, yyjson_val *message, size_t i_message, struct pictures *pictures, struct api_error *e) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "function", NULL};
    struct str role = json_str(message, "role", (struct str){0});
    yyjson_val *key, *val;
    size_t i, n, known = 0;
    if (!yyjson_is_obj(message) || !role.p)
        return api_fail(e, 400, NULL, "messages", "messages[%zu] must be an object with a role", i_message);
    if (str_is(role, "developer")) role = STR("system"); /* the newer name of it */
    while (roles[known] && !str_is(role, roles[known])) known++;
    if (!roles[known])
        return api_fail(e, 400, NULL, "messages", "messages[%zu].role must be one of system, developer, user, assistant, tool", i_message);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "role", role);
    jsonw_key(w, "content");
    bool may_be_null = !str_is(role, "system") && !str_is(role, "user"); /* an answer that is a call, a tool that had nothing to say */
    if (put_content(w, message, may_be_null, i_message, pictures, e)) return -1;
    yyjson_obj_foreach(message, i, n, key, val) {
        struct str name = json_val_str(key);
        if (str_is(name, "role") || str_is(name, "content") || yyjson_is_null(val)) continue;
        jsonw_key_str(w, name);
        jsonw_val(w, val);
    }
    jsonw_end(w, '}');
    return 0;
}

/* ---- the end ------------------------------------------------------------------------------------------------------------ */

/* How the prompt ends: with what asks for an answer, with the text of the last message, or as the messages end. */
enum end { END_ASKS, END_GOES_ON, END_PLAIN };

static int read_flag(yyjson_val *body, const char *name, bool *out_given, bool *out, struct api_error *e) {
    yyjson_val *val = json_get(body, name);
    *out_given = val && !yyjson_is_null(val);
    *out = yyjson_get_bool(val);
    return *out_given && !yyjson_is_bool(val) ? api_fail(e, 400, NULL, name, "%s must be true or false", name) : 0;
}

static bool is_empty(yyjson_val *message) {
    yyjson_val *content = json_get(message, "content"), *part;
    size_t i, n, n_bytes = yyjson_get_len(yyjson_is_str(content) ? content : NULL);
    if (yyjson_is_arr(content)) yyjson_arr_foreach(content, i, n, part) n_bytes += json_str(part, "text", STR("")).n;
    return n_bytes == 0;
}

/* *out_n: messages that are rendered. An answer without a text is left out: there is nothing to go on with. */
static int read_end(yyjson_val *body, bool prefills, size_t *out_n, enum end *out, struct api_error *e) {
    static const char go_on[] = "continue_final_message", ask[] = "add_generation_prompt";
    yyjson_val *messages = json_get(body, "messages"), *last = yyjson_arr_get_last(messages);
    bool has_calls = yyjson_arr_size(json_get(last, "tool_calls")) > 0;
    bool is_answer = str_is(json_str(last, "role", (struct str){0}), "assistant");
    bool goes_on, asks, goes_on_given, asks_given;
    if (read_flag(body, go_on, &goes_on_given, &goes_on, e) || read_flag(body, ask, &asks_given, &asks, e)) return -1;
    if (goes_on && asks) return api_fail(e, 400, NULL, go_on, "%s and %s cannot be true both", go_on, ask);
    if (goes_on && has_calls) return api_fail(e, 400, NULL, go_on, "%s: the last message is a call, which has an end", go_on);
    if (!goes_on_given) goes_on = prefills && !asks_given && is_answer && !has_calls;
    bool is_left_out = goes_on && is_answer && is_empty(last);
    *out_n = yyjson_arr_size(messages) - is_left_out;
    *out = goes_on && !is_left_out ? END_GOES_ON : asks_given && !asks ? END_PLAIN : END_ASKS;
    if (is_left_out) *out = END_ASKS;
    return 0;
}

/* ---- everything --------------------------------------------------------------------------------------------------------- */

static int put_messages(struct jsonw *w, yyjson_val *body, size_t n_messages, struct pictures *pictures, struct api_error *e) {
    yyjson_val *messages = json_get(body, "messages"), *message;
    size_t i, n;
    if (!yyjson_is_arr(messages) || yyjson_arr_size(messages) == 0)
        return api_fail(e, 400, NULL, "messages", "messages must be a list of at least one message");
    if (yyjson_arr_size(messages) > MESSAGES_MAX)
        return api_fail(e, 400, NULL, "messages", "messages has more than %d entries", MESSAGES_MAX);
    jsonw_open(w, "messages", '[');
    yyjson_arr_foreach(messages, i, n, message) if (i < n_messages && put_message(w, message, i, pictures, e)) return -1;
    jsonw_end(w, ']');
    return 0;
}

/* How much a model shall think, in the keywords that templates have for it; chat_template_kwargs goes before. */
static int put_effort(struct jsonw *w, yyjson_val *body, enum messages_thinking thinking, struct api_error *e) {
    static const char field[] = "reasoning_effort";
    yyjson_val *effort = json_get(body, field), *kwargs = json_get(body, "chat_template_kwargs");
    struct str name = json_val_str(effort);
    if (!effort || yyjson_is_null(effort)) {
        if (thinking != THINKING_AUTO && !json_get(kwargs, "enable_thinking"))
            jsonw_put_bool(w, "enable_thinking", thinking == THINKING_ON);
        return 0;
    }
    if (name.n == 0) return api_fail(e, 400, NULL, field, "%s must be a name, such as none, low, medium or high", field);
    bool is_none = str_is(name, "none");
    if (!is_none && !json_get(kwargs, field)) jsonw_put_str(w, field, name);
    if (!json_get(kwargs, "enable_thinking")) jsonw_put_bool(w, "enable_thinking", !is_none);
    return 0;
}

/* Keywords for the template; they cannot replace what we pass ourselves. */
static int put_keywords(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    static const char *const ours[] = {"messages",      "tools",    "documents", "add_generation_prompt", "continue_final_message",
                                       "chat_template", "tokenize", NULL};
    yyjson_val *kwargs = json_get(body, "chat_template_kwargs"), *key, *val;
    size_t i, n;
    if (!kwargs || yyjson_is_null(kwargs)) return 0;
    if (!yyjson_is_obj(kwargs)) return api_fail(e, 400, NULL, "chat_template_kwargs", "chat_template_kwargs must be an object");
    yyjson_obj_foreach(kwargs, i, n, key, val) {
        for (size_t k = 0; ours[k]; k++)
            if (str_is(json_val_str(key), ours[k]))
                return api_fail(e, 400, NULL, "chat_template_kwargs", "chat_template_kwargs must not set %s", ours[k]);
        jsonw_key_str(w, json_val_str(key));
        jsonw_val(w, val);
    }
    return 0;
}

int messages_to_input(yyjson_val *body, const struct messages_options *options, struct sb *out, struct api_error *e) {
    struct jsonw w = {.out = out};
    enum end end = END_ASKS;
    size_t n = 0;
    jsonw_begin(&w, '{');
    if (read_end(body, options->prefills, &n, &end, e) || put_messages(&w, body, n, options->pictures, e) ||
        put_effort(&w, body, options->thinking, e) || put_keywords(&w, body, e))
        return -1;
    if (options->tools) {
        jsonw_key(&w, "tools");
        jsonw_val(&w, options->tools);
    }
    jsonw_put_bool(&w, "add_generation_prompt", end == END_ASKS);
    jsonw_put_bool(&w, "continue_final_message", end == END_GOES_ON);
    jsonw_end(&w, '}');
    return 0;
}
