/* Trees of forced calls to GBNF. Values in JSON are held to the tool's schema; values in other spellings are held to their types, and strings to the
 * lists of those that are allowed. */
#include "text/output/forced_gbnf.h"

#include "text/output/formats.h"
#include "text/output/literal.h"
#include "text/output/typed.h"

struct writer {
    struct arena *a;
    const struct output_format *f;
    const struct tok *tok;
    struct forced_gbnf *out;
};

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

static void put_literal(struct writer *w, struct str text, struct sb *out) {
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
static void put_text_without(struct writer *w, struct str end, struct sb *out) {
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
    put_literal(w, str_sub(end, 0, 1), out);
    for (size_t i = 1; i < end.n; i++) {
        sb_puts(out, " (");
        put_class(out, first, end.p[i]);
        sb_puts(out, " ");
        put_class(out, first, first);
        sb_puts(out, "*");
        if (i + 1 == end.n) break;
        sb_puts(out, " | ");
        char next[1] = {end.p[i]};
        put_literal(w, str_n(next, 1), out);
    }
    for (size_t i = 1; i < end.n; i++) sb_puts(out, ")?");
    sb_puts(out, ")*");
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static size_t new_rule(struct writer *w, struct str body) {
    size_t n = w->out->n_rules++;
    sb_fmt(&w->out->rules, "c%zu ::= ", n);
    sb_put(&w->out->rules, body);
    sb_putc(&w->out->rules, '\n');
    return n;
}

static struct str add_schema(struct arena *a, struct forced_gbnf *o, struct str text) {
    if (o->n_schemas == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 8;
        struct gram_schema *p = arena_new(a, struct gram_schema, capacity);
        if (o->n_schemas) memcpy(p, o->schemas, o->n_schemas * sizeof *p);
        o->schemas = p;
        o->capacity = capacity;
    }
    struct str own = str_fmt(a, "schema-%zu", o->n_schemas);
    o->schemas[o->n_schemas++] = (struct gram_schema){own, str_copy(a, text)};
    return own;
}

/* A part of a schema with the definitions that it may refer to. */
static void put_schema(struct writer *w, struct typed t, struct sb *out) {
    static const char *const definitions[] = {"$defs", "definitions"};
    struct sb text = {0};
    struct jsonw json = {.out = &text};
    yyjson_val *key, *val;
    size_t i, n;
    if (t.schema == t.root || !yyjson_is_obj(t.schema)) {
        jsonw_val(&json, t.schema);
    } else {
        jsonw_begin(&json, '{');
        yyjson_obj_foreach(t.schema, i, n, key, val) {
            jsonw_key_str(&json, json_val_str(key));
            jsonw_val(&json, val);
        }
        for (size_t k = 0; k < 2; k++) {
            yyjson_val *defs = json_get(t.root, definitions[k]);
            if (!defs || json_get(t.schema, definitions[k])) continue;
            jsonw_key(&json, definitions[k]);
            jsonw_val(&json, defs);
        }
        jsonw_end(&json, '}');
    }
    sb_put(out, add_schema(w->a, w->out, sb_str(&text)));
    sb_free(&text);
}

static void put_json(struct writer *w, struct typed t, bool is_whole, struct sb *out) {
    if (t.schema && (yyjson_is_obj(t.schema) || yyjson_is_bool(t.schema))) put_schema(w, t, out);
    else sb_put(out, add_schema(w->a, w->out, is_whole ? STR("{\"type\": \"object\"}") : STR("{}")));
}

/* The strings that the schema lists, each as a literal; false: it lists none, or other values too. */
static bool put_listed(struct writer *w, yyjson_val *schema, struct str around, struct sb *out) {
    yyjson_val *list = json_get(schema, "enum"), *only = json_get(schema, "const"), *item;
    size_t i, n, n_items = yyjson_arr_size(list);
    if (yyjson_is_str(only)) {
        put_literal(w, str_fmt(w->a, "%.*s%.*s%.*s", STR_ARG(around), STR_ARG(json_val_str(only)), STR_ARG(around)), out);
        return true;
    }
    if (n_items == 0) return false;
    yyjson_arr_foreach(list, i, n, item) if (!yyjson_is_str(item)) return false;
    sb_putc(out, '(');
    yyjson_arr_foreach(list, i, n, item) {
        if (i) sb_puts(out, " | ");
        put_literal(w, str_fmt(w->a, "%.*s%.*s%.*s", STR_ARG(around), STR_ARG(json_val_str(item)), STR_ARG(around)), out);
    }
    sb_putc(out, ')');
    return true;
}

/* Python's constants; else JSON's spelling is Python's. */
static void put_python(struct writer *w, struct typed t, struct sb *out) {
    unsigned types = typed_types(t), plain = VALUE_STRING | VALUE_NUMBER;
    if (types && (types & ~plain) == 0) {
        put_json(w, t, false, out);
    } else if (types == VALUE_BOOL) {
        sb_puts(out, "(\"True\" | \"False\")");
    } else {
        sb_puts(out, "py-value");
        if (str_find(sb_str(&w->out->rules), STR("py-value ::="), 0) != STR_NONE) return;
        add_schema(w->a, w->out, STR("{\"type\": [\"string\", \"number\"]}"));
        sb_fmt(
            &w->out->rules,
            "py-value ::= \"True\" | \"False\" | \"None\" | schema-%zu | \"[\" (py-value (\", \" py-value)*)? \"]\" | \"{\" (py-pair (\", \" "
            "py-pair)*)? \"}\"\npy-pair ::= schema-%zu \": \" py-value\n",
            w->out->n_schemas - 1, w->out->n_schemas);
        add_schema(w->a, w->out, STR("{\"type\": \"string\"}"));
    }
}

/* Strings between `quote`, keys bare. */
static void put_quoted(struct writer *w, struct typed t, struct str quote, struct sb *out) {
    unsigned types = typed_types(t);
    if (put_listed(w, t.schema, quote, out)) return;
    if (types && (types & ~(unsigned)(VALUE_NUMBER | VALUE_BOOL | VALUE_NULL)) == 0) {
        put_json(w, t, false, out);
        return;
    }
    struct sb text = {0};
    put_literal(w, quote, &text);
    sb_putc(&text, ' ');
    put_text_without(w, quote, &text);
    sb_putc(&text, ' ');
    put_literal(w, quote, &text);
    if (types == VALUE_STRING) {
        sb_put(out, sb_str(&text));
    } else {
        sb_puts(out, "q-value");
        if (str_find(sb_str(&w->out->rules), STR("q-value ::="), 0) == STR_NONE) {
            sb_fmt(&w->out->rules,
                   "q-value ::= %.*s | schema-%zu | \"[\" (q-value (\",\" q-value)*)? \"]\" | \"{\" (q-pair (\",\" q-pair)*)? \"}\"\n"
                   "q-pair ::= [A-Za-z0-9_.$\\x2D]+ \":\" q-value\n",
                   STR_ARG(sb_str(&text)), w->out->n_schemas);
            add_schema(w->a, w->out, STR("{\"type\": [\"number\", \"boolean\", \"null\"]}"));
        }
    }
    sb_free(&text);
}

/* ---- parts -------------------------------------------------------------------------------------------------------------- */

static void put_part(struct writer *w, const struct output_part *p, struct str next, struct sb *out);

/* The first literal of a part, for what ends the value before it. */
static struct str first_literal(const struct output_part *p) {
    while (p->kind == OUTPUT_PART_SEQUENCE && p->n) p = p->parts;
    return p->kind == OUTPUT_PART_LITERAL ? p->text : (struct str){0};
}

static void put_value(struct writer *w, const struct output_part *p, struct str next, struct sb *out) {
    struct typed t = {p->schema, p->root};
    switch (p->syntax) {
    case OUTPUT_SYNTAX_JSON: put_json(w, t, p->schema == p->root, out); break;
    case OUTPUT_SYNTAX_PYTHON: put_python(w, t, out); break;
    case OUTPUT_SYNTAX_QUOTED: put_quoted(w, t, p->text, out); break;
    case OUTPUT_SYNTAX_ELEMENTS:
        if (!put_listed(w, p->schema, (struct str){0}, out)) put_text_without(w, next, out);
        break;
    }
}

/* Optional parts of a sequence with something between them: "which parts are there" is a choice at each, so one rule for each place says what may
 * follow when nothing, or something, stands before it. */
static void put_members(struct writer *w, const struct output_part *p, struct sb *out) {
    size_t begun = 0, fresh = 0; /* rules of the rest, with and without something before */
    begun = fresh = new_rule(w, STR("\"\""));
    for (size_t i = p->n; i-- > 0;) {
        struct sb item = {0}, with = {0}, without = {0};
        put_part(w, &p->parts[i], i + 1 < p->n ? first_literal(&p->parts[i + 1]) : (struct str){0}, &item);
        put_literal(w, p->text, &with);
        sb_fmt(&with, " (%.*s) c%zu", STR_ARG(sb_str(&item)), begun);
        sb_fmt(&without, "(%.*s) c%zu", STR_ARG(sb_str(&item)), begun);
        if (p->parts[i].is_optional) {
            sb_fmt(&with, " | c%zu", begun);
            sb_fmt(&without, " | c%zu", fresh);
        }
        begun = new_rule(w, sb_str(&with));
        fresh = new_rule(w, sb_str(&without));
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
        put_part(w, &p->parts[i], i + 1 < p->n ? first_literal(&p->parts[i + 1]) : (struct str){0}, out);
    }
}

static void put_part(struct writer *w, const struct output_part *p, struct str next, struct sb *out) {
    switch (p->kind) {
    case OUTPUT_PART_LITERAL: put_literal(w, p->text, out); break;
    case OUTPUT_PART_VALUE: put_value(w, p, next, out); break;
    case OUTPUT_PART_TEXT:
        if (!put_listed(w, p->schema, (struct str){0}, out)) put_text_without(w, p->text, out);
        break;
    case OUTPUT_PART_PATTERN: sb_put(out, p->text); break;
    case OUTPUT_PART_SEQUENCE: put_sequence(w, p, out); break;
    case OUTPUT_PART_CHOICE:
        sb_putc(out, '(');
        for (size_t i = 0; i < p->n; i++) {
            if (i) sb_puts(out, " | ");
            put_part(w, &p->parts[i], next, out);
        }
        sb_putc(out, ')');
        break;
    case OUTPUT_PART_REPEAT: {
        struct sb one = {0};
        put_part(w, p->parts, next, &one);
        sb_fmt(out, "c%zu (", new_rule(w, sb_str(&one)));
        put_literal(w, p->text, out);
        sb_fmt(out, " c%zu)*", w->out->n_rules - 1);
        sb_free(&one);
        break;
    }
    }
}

size_t forced_gbnf_put(struct arena *a, const struct output_part *part, const struct output_format *f, const struct tok *tok,
                       struct forced_gbnf *out) {
    struct writer w = {a, f, tok, out};
    struct sb body = {0};
    put_part(&w, part, (struct str){0}, &body);
    size_t n = new_rule(&w, sb_str(&body));
    sb_free(&body);
    return n;
}

size_t forced_gbnf_put_schema(struct arena *a, struct str schema, struct forced_gbnf *out) {
    struct writer w = {.a = a, .out = out};
    return new_rule(&w, add_schema(a, out, schema));
}
