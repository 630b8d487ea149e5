/* Trees of forced calls to GBNF. Values are written by forced_values.c. */
#include "text/output/forced_internal.h"

#include "text/output/formats.h"
#include "text/output/literal.h"

/* ---- literals ----------------------------------------------------------------------------------------------------------- */

/* Length of the marker at the beginning of a text that is one token; 0: none. */
static size_t marker_length(const struct output_format *f, const struct tok *tok, struct str text) {
    for (size_t n = f && tok ? text.n : 0; n > 1; n--) {
        struct str part = str_sub(text, 0, n);
        if (literal_looks_marked(part) && output_uses_token(f, f->reasoning, part) && tok_id_of(tok, part) >= 0) return n;
    }
    return 0;
}

void forced_gbnf_mark(const struct output_format *f, const struct tok *tok, struct str text, struct sb *out) {
    while (text.n) {
        size_t n = marker_length(f, tok, text);
        if (n) sb_puts(out, GRAM_TOKEN_MARK);
        sb_put(out, str_sub(text, 0, n ? n : 1));
        if (n) sb_puts(out, GRAM_TOKEN_MARK);
        text = str_from(text, n ? n : 1);
    }
}

static void put_escaped(struct sb *out, struct str text) {
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x20 || c == '"' || c == '\\' || c == ']' || c == '[' || c == '^' || c == '-') sb_fmt(out, "\\x%02X", c);
        else sb_putc(out, (char)c);
    }
}

void forced_gbnf_put_literal(const struct output_format *f, const struct tok *tok, struct str text, struct sb *out) {
    sb_putc(out, '"');
    while (text.n) {
        size_t n = marker_length(f, tok, text);
        if (n) sb_puts(out, "\\U0010FFFF");
        put_escaped(out, str_sub(text, 0, n ? n : 1));
        if (n) sb_puts(out, "\\U0010FFFF");
        text = str_from(text, n ? n : 1);
    }
    sb_putc(out, '"');
}

void forced_gbnf_literal(struct writer *w, struct str text, struct sb *out) {
    forced_gbnf_put_literal(w->f, w->tok, text, out);
}

/* ---- texts that do not hold another ------------------------------------------------------------------------------------- */

static void put_class(struct sb *out, char not_this, char nor_this) {
    char both[2] = {not_this, nor_this};
    sb_puts(out, "[^");
    put_escaped(out, str_n(both, not_this == nor_this ? 1 : 2));
    sb_putc(out, ']');
}

/* Any text in which `end` does not stand. Behind each first letter of it comes less than the rest; the first letter must not stand in it twice,
 * else the text may not have it at all. A marker that is a token cannot be written with letters. */
void forced_gbnf_text_without(struct writer *w, struct str end, struct sb *out) {
    if (end.n == 0 || marker_length(w->f, w->tok, end)) {
        sb_puts(out, ".*");
        return;
    }
    char first = end.p[0];
    bool is_plain = (unsigned char)first < 0x80 && str_find_char(str_from(end, 1), first, 0) == STR_NONE;
    put_class(out, first, first);
    sb_puts(out, "*");
    for (size_t i = 1; i < end.n; i++) is_plain &= (unsigned char)end.p[i] < 0x80;
    if (!is_plain || end.n < 2) return;
    sb_puts(out, " (");
    forced_gbnf_literal(w, str_sub(end, 0, 1), out);
    for (size_t i = 1; i < end.n; i++) {
        sb_puts(out, " (");
        put_class(out, first, end.p[i]);
        sb_puts(out, " ");
        put_class(out, first, first);
        sb_puts(out, "*");
        if (i + 1 == end.n) break;
        sb_puts(out, " | ");
        char next[1] = {end.p[i]};
        forced_gbnf_literal(w, str_n(next, 1), out);
    }
    for (size_t i = 1; i < end.n; i++) sb_puts(out, ")?");
    sb_puts(out, ")*");
}

/* ---- rules and schemas ------------------------------------------------------------------------------------------------------------- */

size_t forced_gbnf_rule(struct writer *w, struct str body) {
    size_t n = w->out->n_rules++;
    sb_fmt(&w->out->rules, "c%zu ::= ", n);
    sb_put(&w->out->rules, body);
    sb_putc(&w->out->rules, '\n');
    return n;
}

struct str forced_gbnf_schema(struct arena *a, struct forced_gbnf *o, struct gram_schema schema) {
    if (o->n_schemas == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 8;
        struct gram_schema *p = arena_new(a, struct gram_schema, capacity);
        if (o->n_schemas) memcpy(p, o->schemas, o->n_schemas * sizeof *p);
        o->schemas = p;
        o->capacity = capacity;
    }
    struct str own = str_fmt(a, "schema-%zu", o->n_schemas);
    schema.name = own;
    schema.text = str_copy(a, schema.text);
    o->schemas[o->n_schemas++] = schema;
    return own;
}

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

/* The first literal of a part, for what ends the value before it. */
static struct str first_literal(const struct output_part *p) {
    while (p->kind == OUTPUT_PART_SEQUENCE && p->n) p = p->parts;
    return p->kind == OUTPUT_PART_LITERAL ? p->text : (struct str){0};
}

/* Optional parts of a sequence with something between them: "which parts are there" is a choice at each, so one rule for each place says what may
 * follow when nothing, or something, stands before it. */
static void put_members(struct writer *w, const struct output_part *p, struct sb *out) {
    size_t begun = 0, fresh = 0; /* rules of the rest, with and without something before */
    begun = fresh = forced_gbnf_rule(w, STR("\"\""));
    for (size_t i = p->n; i-- > 0;) {
        struct sb item = {0}, with = {0}, without = {0};
        forced_gbnf_part(w, &p->parts[i], i + 1 < p->n ? first_literal(&p->parts[i + 1]) : (struct str){0}, &item);
        size_t one = forced_gbnf_rule(w, sb_str(&item));
        forced_gbnf_literal(w, p->text, &with);
        sb_fmt(&with, " c%zu c%zu", one, begun);
        sb_fmt(&without, "c%zu c%zu", one, begun);
        if (p->parts[i].is_optional) {
            sb_fmt(&with, " | c%zu", begun);
            sb_fmt(&without, " | c%zu", fresh);
        }
        begun = forced_gbnf_rule(w, sb_str(&with));
        fresh = forced_gbnf_rule(w, sb_str(&without));
        sb_free(&item);
        sb_free(&with);
        sb_free(&without);
    }
    sb_fmt(out, "c%zu", fresh);
}

static bool has_optional(const struct output_part *p) {
    for (size_t i = 0; i < p->n; i++)
        if (p->parts[i].is_optional) return true;
    return false;
}

static void put_sequence(struct writer *w, const struct output_part *p, struct sb *out) {
    if (p->n == 0) {
        sb_puts(out, "\"\"");
        return;
    }
    if (p->text.n || has_optional(p)) {
        put_members(w, p, out);
        return;
    }
    for (size_t i = 0; i < p->n; i++) {
        if (i) sb_putc(out, ' ');
        forced_gbnf_part(w, &p->parts[i], i + 1 < p->n ? first_literal(&p->parts[i + 1]) : (struct str){0}, out);
    }
}

void forced_gbnf_part(struct writer *w, const struct output_part *p, struct str next, struct sb *out) {
    switch (p->kind) {
    case OUTPUT_PART_LITERAL: forced_gbnf_literal(w, p->text, out); break;
    case OUTPUT_PART_VALUE: forced_values_put(w, p, next, out); break;
    case OUTPUT_PART_TEXT: forced_values_put_text(w, p, out); break;
    case OUTPUT_PART_PATTERN: sb_put(out, p->text); break;
    case OUTPUT_PART_SEQUENCE: put_sequence(w, p, out); break;
    case OUTPUT_PART_CHOICE:
        sb_putc(out, '(');
        for (size_t i = 0; i < p->n; i++) {
            if (i) sb_puts(out, " | ");
            forced_gbnf_part(w, &p->parts[i], next, out);
        }
        sb_putc(out, ')');
        break;
    case OUTPUT_PART_REPEAT: {
        struct sb one = {0};
        forced_gbnf_part(w, p->parts, next, &one);
        sb_fmt(out, "c%zu (", forced_gbnf_rule(w, sb_str(&one)));
        forced_gbnf_literal(w, p->text, out);
        sb_fmt(out, " c%zu)*", w->out->n_rules - 1);
        sb_free(&one);
        break;
    }
    }
}

size_t forced_gbnf_put(struct arena *a, const struct output_part *part, const struct output_format *f, const struct tok *tok,
                       struct forced_gbnf *out) {
    struct writer w = {.a = a, .f = f, .tok = tok, .out = out};
    struct sb body = {0};
    forced_gbnf_part(&w, part, (struct str){0}, &body);
    size_t n = forced_gbnf_rule(&w, sb_str(&body));
    sb_free(&body);
    return n;
}

size_t forced_gbnf_put_schema(struct arena *a, struct str schema, struct forced_gbnf *out) {
    struct writer w = {.a = a, .out = out};
    return forced_gbnf_rule(&w, forced_gbnf_schema(a, out, (struct gram_schema){.text = schema}));
}
