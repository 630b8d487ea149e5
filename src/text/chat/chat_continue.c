/* Two ways to let a message go on.
 *
 * (1) The template prints it as it prints every message, and the prompt is cut behind its text. This is right wherever the template prints
 *     the message at all: what stands between the role and the text (a channel, thoughts that are over) is the template's to say, and what a
 *     generation prompt would say there may be wrong, such as the beginning of new thoughts. The end of the text is found by a mark that is
 *     put behind it: so neither a template that trims its texts nor a text that stands elsewhere too confuses anybody.
 * (2) Where the template does not print it, or prints it twice, or refuses a conversation that ends so: the conversation before it with a generation prompt,
 *     and the text behind that.
 */
#include "text/chat/chat_continue.h"

#include "base/hash.h"

static const char field[] = "continue_final_message", ask_field[] = "add_generation_prompt";

bool chat_continues(yyjson_val *input) {
    return json_bool(input, field, false);
}

/* A word that the text does not hold. */
static struct str make_mark(struct arena *a, struct str text) {
    uint64_t seed = 0;
    struct str mark;
    do {
        mark = str_fmt(a, "continue%016llxhere", (unsigned long long)hash_bytes(text.p, text.n, ++seed));
    } while (str_find(text, mark, 0) != STR_NONE);
    return mark;
}

static void put_marked(struct jsonw *w, yyjson_val *message, struct str text, struct str mark) {
    struct sb marked = {0};
    yyjson_val *key, *val;
    size_t i, n;
    sb_put(&marked, text);
    sb_put(&marked, mark);
    jsonw_begin(w, '{');
    yyjson_obj_foreach(message, i, n, key, val) {
        jsonw_key_str(w, json_val_str(key));
        if (str_is(json_val_str(key), "content")) jsonw_str(w, sb_str(&marked));
        else jsonw_val(w, val);
    }
    jsonw_end(w, '}');
    sb_free(&marked);
}

/* The input with the mark behind the last text; without a mark, without the last message and with a generation prompt. */
static int change_input(struct arena *a, yyjson_val *input, struct str text, struct str mark, yyjson_val **out, struct err *err) {
    yyjson_val *messages = json_get(input, "messages"), *message, *key, *val;
    struct sb json = {0};
    struct jsonw w = {.out = &json};
    size_t i, n, n_all = yyjson_arr_size(messages);
    jsonw_begin(&w, '{');
    yyjson_obj_foreach(input, i, n, key, val) {
        struct str name = json_val_str(key);
        if (str_is(name, "messages") || str_is(name, field) || str_is(name, ask_field)) continue;
        jsonw_key_str(&w, name);
        jsonw_val(&w, val);
    }
    jsonw_open(&w, "messages", '[');
    yyjson_arr_foreach(messages, i, n, message) {
        if (i + 1 < n_all) jsonw_val(&w, message);
        else if (mark.n) put_marked(&w, message, text, mark);
    }
    jsonw_end(&w, ']');
    jsonw_put_bool(&w, ask_field, mark.n == 0);
    jsonw_end(&w, '}');
    int code = json_parse(a, sb_str(&json), "messages", JSON_STRICT, out, err);
    sb_free(&json);
    return code;
}

static void cut(struct tmpl_output *out, size_t at) {
    size_t n = 0, begin = 0;
    while (n < out->n_spans && begin + out->spans[n].text.n <= at) begin += out->spans[n++].text.n;
    if (n < out->n_spans && begin < at) {
        out->spans[n].text.n = at - begin;
        n++;
    }
    out->n_spans = n;
    out->text = str_sub(out->text, 0, at);
}

/* Where the mark stands; STR_NONE where the template did not print it once. */
static size_t find_only(struct str text, struct str mark) {
    size_t at = str_find(text, mark, 0);
    return at != STR_NONE && str_find(text, mark, at + 1) == STR_NONE ? at : STR_NONE;
}

static void append(struct arena *a, struct tmpl_output *out, struct str text) {
    struct tmpl_span *spans = arena_new(a, struct tmpl_span, out->n_spans + 1);
    if (out->n_spans) memcpy(spans, out->spans, out->n_spans * sizeof *spans);
    spans[out->n_spans++] = (struct tmpl_span){text, true};
    out->spans = spans;
    struct sb all = {0};
    sb_put(&all, out->text);
    sb_put(&all, text);
    out->text = str_copy(a, sb_str(&all));
    sb_free(&all);
}

int chat_continue_render(const struct tmpl *t, struct arena *a, const struct tmpl_context *ctx, struct tmpl_output *out, struct err *err) {
    yyjson_val *messages = json_get(ctx->input, "messages");
    yyjson_val *last = yyjson_arr_get_last(messages);
    struct str text = json_str(last, "content", (struct str){0}), mark = make_mark(a, text);
    struct tmpl_context own = *ctx;
    if (!text.p) return err_set(err, ERR_EARG, "%s: the last message has no text to go on with", field);
    TRY(change_input(a, ctx->input, text, mark, &own.input, err));
    size_t at = tmpl_render(t, a, &own, out, err) ? STR_NONE : find_only(out->text, mark);
    if (at != STR_NONE) {
        cut(out, at);
        return ERR_OK;
    }
    TRY(change_input(a, ctx->input, text, STR(""), &own.input, err));
    TRY(tmpl_render(t, a, &own, out, err));
    append(a, out, text);
    return ERR_OK;
}
