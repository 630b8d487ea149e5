/* Anthropic's messages as chat's. Blocks of a turn become one message; a tool's results become messages of their own, in the order in which
 * they stand. Places in errors are written as Anthropic writes them: messages.2.content.0. */
#include "server/wire/anthropic_messages.h"

#include "server/turns.h"

#include <stdio.h>

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
    if (!type.p) return fail_at(e, at, "every block must be an object with a type");
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
    yyjson_val *content = json_given(block, "content");
    struct sb text = {0};
    if (!id.n) return fail_at(t->e, at, "a tool_result block needs a tool_use_id");
    if (json_bool(block, "is_error", false)) sb_puts(&text, "Error:");
    int code = content ? add_texts(&text, content, "content", at, t->e) : 0;
    if (!code) turns_put_result(&t->turns, id, sb_str(&text));
    sb_free(&text);
    return code;
}

/* {"type": "image", "source": {"type": "base64", "media_type": ..., "data": ...}}, or {"type": "url", "url": ...} */
static int add_image(struct talk *t, yyjson_val *block, const struct place *at) {
    yyjson_val *source = json_get(block, "source");
    struct str data = json_str(source, "data", (struct str){0}), kind = json_str(source, "media_type", STR("image/png"));
    if (str_is(type_of(source), "url") && str_starts(json_str(source, "url", STR("")), STR("https://"))) {
        turns_add_image(&t->turns, json_str(source, "url", STR("")));
        return 0;
    }
    if (!str_is(type_of(source), "base64"))
        return fail_at(t->e, at, "an image needs a source of type base64, or of type url with an address that begins with https://");
    if (!data.p) return fail_at(t->e, at, "the source of an image needs data");
    struct sb url = {0};
    sb_fmt(&url, "data:%.*s;base64,", (int)(kind.n > 64 ? 64 : kind.n), kind.p);
    sb_put(&url, data);
    turns_add_image(&t->turns, sb_str(&url));
    sb_free(&url);
    return 0;
}

static int add_user_block(struct talk *t, yyjson_val *block, const struct place *at) {
    if (str_is(type_of(block), "tool_result")) return put_result(t, block, at);
    turns_begin(&t->turns, "user");
    if (str_is(type_of(block), "image")) return add_image(t, block, at);
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

int anthropic_messages_put(struct jsonw *w, yyjson_val *body, struct api_error *e) {
    struct talk t = {.turns = {.w = w}, .e = e};
    yyjson_val *messages = json_get(body, "messages"), *message;
    bool continues = false;
    size_t i, n;
    int code = 0;
    if (!yyjson_is_arr(messages) || yyjson_arr_size(messages) == 0)
        return api_fail(e, 400, NULL, "messages", "messages: at least one message is required");
    jsonw_open(w, "messages", '[');
    if (json_given(body, "system")) {
        turns_begin(&t.turns, "system");
        code = add_texts(&t.turns.text, json_given(body, "system"), "system", NULL, e);
        if (t.turns.text.n == 0) turns_drop(&t.turns);
    }
    yyjson_arr_foreach(messages, i, n, message) if (!code) code = add_message(&t, message, i);
    if (!code) code = end_last_turn(&t, &continues);
    turns_free(&t.turns);
    jsonw_end(w, ']');
    jsonw_put_bool(w, "continue_final_message", continues);
    return code;
}
