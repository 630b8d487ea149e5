/* Elements: a stack of open ones; an element shows by its first child whether it is a list, an object or a text. */
#include "text/output/elements.h"

static void push(struct elements *e, struct str name, struct typed type) {
    struct element *top = &e->stack[e->depth++];
    *top = (struct element){.type = type};
    memcpy(top->name, name.p, name.n);
}

void elements_begin(struct elements *e, const struct literal *marker, const char *name, struct typed type, struct sb *out,
                    struct sb *text) {
    *e = (struct elements){.marker = marker, .out = out, .text = text};
    push(e, str_of(name), type);
    e->stack[0].kind = ELEMENT_OBJECT;
    sb_putc(out, '{');
    sb_clear(text);
}

static bool open_element(struct elements *e, struct str name) {
    struct element *parent = &e->stack[e->depth - 1];
    bool is_item = str_is(name, "item");
    if (str_trim(sb_str(e->text)).n || e->depth == ELEMENTS_DEPTH || name.n == 0 || name.n >= sizeof parent->name) return false;
    sb_clear(e->text);
    if (parent->kind == ELEMENT_TEXT) {
        parent->kind = is_item ? ELEMENT_LIST : ELEMENT_OBJECT;
        sb_putc(e->out, is_item ? '[' : '{');
    }
    if (parent->kind == ELEMENT_LIST && !is_item) return false;
    if (parent->has_children) sb_puts(e->out, ", ");
    parent->has_children = true;
    if (parent->kind == ELEMENT_OBJECT) {
        json_quote(e->out, name);
        sb_puts(e->out, ": ");
    }
    push(e, name, parent->kind == ELEMENT_LIST ? typed_item(parent->type) : typed_member(parent->type, name));
    return true;
}

static enum value_reader_step close_element(struct elements *e, struct str name) {
    struct element *top = &e->stack[e->depth - 1];
    if (!str_is(name, top->name)) return VALUE_BAD;
    if (top->kind == ELEMENT_TEXT) typed_put(e->out, sb_str(e->text), typed_types(top->type));
    else if (str_trim(sb_str(e->text)).n) return VALUE_BAD;
    else sb_putc(e->out, top->kind == ELEMENT_LIST ? ']' : '}');
    sb_clear(e->text);
    return --e->depth ? VALUE_MORE : VALUE_DONE;
}

static enum value_reader_step step_tag(struct elements *e, char c) {
    if (c != '>') {
        if (e->n_tag + 1 == sizeof e->tag || (e->n_tag == 0 && c != '<')) return VALUE_BAD;
        e->tag[e->n_tag++] = c;
        return VALUE_MORE;
    }
    struct str tag = str_from(str_n(e->tag, e->n_tag), 1);
    e->in_tag = false;
    e->n_tag = 0;
    if (tag.n && tag.p[0] == '/') return close_element(e, str_from(tag, 1));
    return open_element(e, tag) ? VALUE_MORE : VALUE_BAD;
}

enum value_reader_step elements_step(struct elements *e, char c, bool is_token) {
    if (e->in_tag) return step_tag(e, c);
    size_t before = e->n_matched, now = literal_advance(e->marker, before, c, is_token);
    for (size_t i = 0; i < before + 1 - now; i++) sb_putc(e->text, i < before ? e->marker->text.p[i] : c);
    e->n_matched = now;
    if (now == e->marker->text.n) {
        e->n_matched = 0;
        e->in_tag = true;
    }
    return VALUE_MORE;
}
