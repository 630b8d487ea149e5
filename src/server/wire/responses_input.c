/* Items of a response's input as chat's messages. Places in errors are written as input[2].content[0]. */
#include "server/wire/responses_input.h"

#include "server/turns.h"

#include <stdio.h>

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

/* A part of a user's message: {"type": "input_image", "image_url": ...}, or a text. */
static int add_user_part(struct talk *t, yyjson_val *part, const struct place *at) {
    struct str url = json_str(part, "image_url", (struct str){0}), detail = json_str(part, "detail", STR("auto"));
    if (str_is(type_of(part), "input_image")) {
        if (!url.p) return fail_at(t->e, at, "an input_image needs an image_url; files are not kept here");
        if (!str_starts(url, STR("data:")) && !str_starts(url, STR("https://")))
            return fail_at(t->e, at, "an address must hold the picture (data:image/png;base64,...) or begin with https://");
        if (str_is(detail, "low")) return fail_at(t->e, at, "detail low is not supported; the model's own size is used");
        turns_add_image(&t->turns, url);
        return 0;
    }
    if (!str_is(type_of(part), "input_text") && !str_is(type_of(part), "text")) return fail_type(t->e, at, "parts", type_of(part));
    if (!json_str(part, "text", (struct str){0}).p) return fail_at(t->e, at, "a text part needs a text");
    sb_put(&t->turns.text, json_str(part, "text", STR("")));
    return 0;
}

static bool has_images(yyjson_val *content) {
    yyjson_val *part;
    size_t i, n;
    if (yyjson_is_arr(content)) yyjson_arr_foreach(content, i, n, part) if (str_is(type_of(part), "input_image")) return true;
    return false;
}

static int add_user_parts(struct talk *t, yyjson_val *content, const struct place *in) {
    struct place at;
    yyjson_val *part;
    size_t i, n;
    turns_begin(&t->turns, "user");
    yyjson_arr_foreach(content, i, n, part) {
        snprintf(at.text, sizeof at.text, "%.24s.content[%zu]", in->text, i);
        if (add_user_part(t, part, &at)) return -1;
    }
    return 0;
}

static int add_message(struct talk *t, yyjson_val *item, const struct place *at) {
    static const char *const roles[] = {"system", "developer", "user", "assistant", NULL};
    struct str role = json_str(item, "role", (struct str){0});
    struct sb text = {0};
    size_t known = 0;
    while (roles[known] && !str_is(role, roles[known])) known++;
    if (!roles[known]) return fail_at(t->e, at, "the role must be one of system, developer, user, assistant");
    if (str_is(role, "user") && has_images(json_get(item, "content"))) return add_user_parts(t, json_get(item, "content"), at);
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
    yyjson_val *output = json_given(item, "output");
    struct sb text = {0};
    if (!id.n) return fail_at(t->e, at, "a tool's output needs a call_id");
    int code = output ? add_texts(&text, output, at, "output", t->e) : 0;
    if (!code) turns_put_result(&t->turns, id, sb_str(&text));
    sb_free(&text);
    return code;
}

/* Thoughts belong to the answer that follows them. What is encrypted nobody here can read. */
static int add_reasoning(struct talk *t, yyjson_val *item, const struct place *at) {
    yyjson_val *content = json_given(item, "content"), *summary = json_given(item, "summary");
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
    struct str type = json_given(item, "type") ? type_of(item) : STR("message");
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

int responses_input_put(struct jsonw *w, yyjson_val *body, yyjson_val *items, size_t n_before, struct api_error *e) {
    struct talk t = {.turns = {.w = w}, .e = e};
    yyjson_val *instructions = json_given(body, "instructions"), *item;
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
