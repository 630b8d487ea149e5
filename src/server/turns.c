/* Turns: gathered until another role speaks. */
#include "server/turns.h"

void turns_free(struct turns *t) {
    sb_free(&t->text);
    sb_free(&t->thoughts);
    sb_free(&t->calls);
    sb_free(&t->parts);
}

bool turns_is(const struct turns *t, const char *role) {
    return t->role && strcmp(t->role, role) == 0;
}

void turns_drop(struct turns *t) {
    t->role = NULL;
    t->n_calls = 0;
    sb_clear(&t->text);
    sb_clear(&t->thoughts);
    sb_clear(&t->calls);
    sb_clear(&t->parts);
}

static void put_text_part(struct turns *t) {
    struct jsonw *w = &t->parts_w;
    if (t->text.n == 0) return;
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("text"));
    jsonw_put_str(w, "text", sb_str(&t->text));
    jsonw_end(w, '}');
    sb_clear(&t->text);
}

void turns_add_image(struct turns *t, struct str url) {
    struct jsonw *w = &t->parts_w;
    if (t->parts.n == 0) {
        *w = (struct jsonw){.out = &t->parts};
        jsonw_begin(w, '[');
    }
    put_text_part(t);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "type", STR("image_url"));
    jsonw_put_str(w, "image_url", url);
    jsonw_end(w, '}');
}

void turns_end(struct turns *t) {
    struct jsonw *w = t->w;
    if (!t->role) return;
    jsonw_begin(w, '{');
    jsonw_put_str(w, "role", str_of(t->role));
    if (t->parts.n) {
        put_text_part(t);
        jsonw_end(&t->parts_w, ']');
        jsonw_put_raw(w, "content", sb_str(&t->parts));
    } else jsonw_put_str(w, "content", sb_str(&t->text));
    if (t->thoughts.n) jsonw_put_str(w, "reasoning_content", sb_str(&t->thoughts));
    if (t->n_calls) {
        jsonw_end(&t->calls_w, ']');
        jsonw_put_raw(w, "tool_calls", sb_str(&t->calls));
    }
    jsonw_end(w, '}');
    turns_drop(t);
}

void turns_begin(struct turns *t, const char *role) {
    if (t->role && !turns_is(t, role)) turns_end(t);
    t->role = role;
}

void turns_add_paragraph(struct sb *out, struct str text) {
    if (out->n && text.n) sb_putc(out, '\n');
    sb_put(out, text);
}

void turns_add_call(struct turns *t, struct str id, struct str name, struct str arguments) {
    struct jsonw *w = &t->calls_w;
    if (t->n_calls++ == 0) {
        *w = (struct jsonw){.out = &t->calls};
        jsonw_begin(w, '[');
    }
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", id);
    jsonw_put_str(w, "type", STR("function"));
    jsonw_open(w, "function", '{');
    jsonw_put_str(w, "name", name);
    jsonw_put_str(w, "arguments", arguments);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

void turns_put_result(struct turns *t, struct str id, struct str text) {
    turns_end(t);
    jsonw_begin(t->w, '{');
    jsonw_put_str(t->w, "role", STR("tool"));
    jsonw_put_str(t->w, "tool_call_id", id);
    jsonw_put_str(t->w, "content", text);
    jsonw_end(t->w, '}');
}
