/* Shapes (formats.h) to trees: the same strings that the parser reads by are written out for each tool. */
#include "text/output/forced.h"

#include "text/output/formats.h"
#include "text/output/typed.h"

#include <assert.h>

enum { PARTS_MAX = 24 }; /* of one shape */

struct maker {
    struct arena *a;
    const struct output_format *f;
    const struct output_tool *tool;
};

/* Parts of a sequence that is being made. */
struct list {
    struct output_part p[PARTS_MAX];
    size_t n;
};

static void put(struct list *l, struct output_part part) {
    assert(l->n < PARTS_MAX);
    l->p[l->n++] = part;
}

static struct str join(struct arena *a, struct str x, struct str y) {
    char *p = arena_alloc(a, x.n + y.n + 1);
    if (x.n) memcpy(p, x.p, x.n);
    if (y.n) memcpy(p + x.n, y.p, y.n);
    return str_n(p, x.n + y.n);
}

static void put_literal(struct maker *m, struct list *l, struct str text) {
    struct output_part *last = l->n ? &l->p[l->n - 1] : NULL;
    if (text.n == 0) return;
    if (last && last->kind == OUTPUT_PART_LITERAL) last->text = join(m->a, last->text, text);
    else put(l, (struct output_part){.kind = OUTPUT_PART_LITERAL, .text = join(m->a, text, (struct str){0})});
}

static void put_text(struct maker *m, struct list *l, const char *text) {
    put_literal(m, l, str_of(text));
}

static void put_pattern(struct list *l, const char *pattern) {
    put(l, (struct output_part){.kind = OUTPUT_PART_PATTERN, .text = str_of(pattern)});
}

static struct output_part combine(struct arena *a, enum output_part_kind kind, const struct list *l, struct str between) {
    return (struct output_part){.kind = kind, .text = between, .parts = arena_copy(a, l->p, l->n * sizeof *l->p), .n = l->n};
}

static struct output_part value(enum output_syntax syntax, struct str text, struct typed type) {
    return (struct output_part){.kind = OUTPUT_PART_VALUE, .syntax = syntax, .text = text, .schema = type.schema, .root = type.root};
}

static struct typed arguments(const struct maker *m) {
    return (struct typed){m->tool->parameters, m->tool->parameters};
}

/* ---- members ---------------------------------------------------------------------------------------------------- */

static bool is_required(yyjson_val *schema, struct str key) {
    yyjson_val *list = json_get(schema, "required"), *item;
    size_t i, n;
    if (yyjson_is_arr(list)) yyjson_arr_foreach(list, i, n, item) if (str_eq(json_val_str(item), key)) return true;
    return false;
}

typedef struct output_part member_fn(struct maker *m, struct str key, struct typed type, const void *user);

/* The tool's parameters in the order of its schema. */
static struct output_part make_members(struct maker *m, struct str between, member_fn *make, const void *user) {
    yyjson_val *properties = json_get(m->tool->parameters, "properties"), *key, *schema;
    size_t i, n, n_parts = yyjson_is_obj(properties) ? yyjson_obj_size(properties) : 0;
    struct output_part *parts = arena_new(m->a, struct output_part, n_parts);
    if (n_parts) yyjson_obj_foreach(properties, i, n, key, schema) {
            struct str name = json_val_str(key);
            parts[i] = make(m, name, typed_member(arguments(m), name), user);
            parts[i].is_optional = !is_required(m->tool->parameters, name);
        }
    return (struct output_part){.kind = OUTPUT_PART_SEQUENCE, .text = between, .parts = parts, .n = n_parts};
}

static struct output_part make_keyword(struct maker *m, struct str key, struct typed type, const void *user) {
    struct list l = {0};
    bool is_python = user == NULL;
    put_literal(m, &l, key);
    put_text(m, &l, is_python ? "=" : ":");
    put(&l, value(is_python ? OUTPUT_SYNTAX_PYTHON : OUTPUT_SYNTAX_QUOTED, str_of(is_python ? "" : m->f->quote), type));
    return combine(m->a, OUTPUT_PART_SEQUENCE, &l, (struct str){0});
}

static struct output_part make_element(struct maker *m, struct str key, struct typed type, const void *user) {
    struct list l = {0};
    (void)user;
    put_literal(m, &l, str_fmt(m->a, "%s<", m->f->element));
    put_literal(m, &l, key);
    put_text(m, &l, ">");
    put(&l, value(OUTPUT_SYNTAX_ELEMENTS, str_of(m->f->element), type));
    put_literal(m, &l, str_fmt(m->a, "%s</", m->f->element));
    put_literal(m, &l, key);
    put_text(m, &l, ">");
    return combine(m->a, OUTPUT_PART_SEQUENCE, &l, (struct str){0});
}

/* The name of a type as an attribute has it. */
static const char *type_name(unsigned types) {
    static const char *const names[] = {"null", "boolean", "number", "string", "array", "object"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (types & 1u << i) return names[i];
    return "string";
}

/* The shape between %( and %) for one key. */
static struct output_part make_parameter(struct maker *m, struct str key, struct typed type, const void *user) {
    struct list l = {0};
    unsigned types = typed_types(type);
    bool is_text = types == 0 || types & VALUE_STRING;
    for (const char *p = user; *p && !(p[0] == '%' && p[1] == ')');) {
        size_t n = 0;
        while (p[n] && p[n] != '%') n++;
        put_literal(m, &l, str_n(p, n));
        p += n;
        if (*p != '%' || p[1] == ')') continue;
        char hole = p[1];
        p += 2;
        if (hole == 'k') put_literal(m, &l, key);
        if (hole == 's') put_literal(m, &l, is_text ? STR("true") : STR("false"));
        if (hole == 't') put_literal(m, &l, str_of(is_text ? "string" : type_name(types)));
        if (hole != 'v' && hole != 'V') continue;
        if (hole == 'V') put_literal(m, &l, STR("\n"));
        n = 0;
        while (p[n] && p[n] != '%' && p[n] != '\n') n++;
        struct str end = hole == 'V' ? str_fmt(m->a, "\n%.*s", (int)n, p) : str_n(p, n);
        if (is_text) put(&l, (struct output_part){.kind = OUTPUT_PART_TEXT, .text = end, .schema = type.schema, .root = type.root});
        else put(&l, value(OUTPUT_SYNTAX_JSON, (struct str){0}, type));
        if (hole == 'V') put_literal(m, &l, STR("\n"));
    }
    return combine(m->a, OUTPUT_PART_SEQUENCE, &l, (struct str){0});
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static void put_id(struct maker *m, struct list *l) {
    put_pattern(l, m->f->ids == IDS_NINE ? "[a-zA-Z0-9]{9}" : m->f->flags & FORMAT_ID_FIRST ? "[0-9]{1,4}" : "[a-zA-Z0-9_-]{1,40}");
}

static void put_quoted(struct maker *m, struct list *l, struct str text) {
    struct sb json = {0};
    json_quote(&json, text);
    put_literal(m, l, sb_str(&json));
    sb_free(&json);
}

static void put_json_call(struct maker *m, struct list *l) {
    const struct output_format *f = m->f;
    const char *name_key = f->keys[0] ? f->keys[0] : "name", *args_key = f->keys[1] ? f->keys[1] : "arguments";
    bool id_first = f->flags & FORMAT_ID_FIRST, is_key = f->flags & FORMAT_KEY_NAME;
    put_text(m, l, "{");
    if (f->id_key && id_first) {
        put_literal(m, l, str_fmt(m->a, "\"%s\": \"", f->id_key));
        put_id(m, l);
        put_text(m, l, "\", ");
    }
    if (!is_key) put_literal(m, l, str_fmt(m->a, "\"%s\": ", name_key));
    put_quoted(m, l, m->tool->name);
    if (is_key) put_text(m, l, ": ");
    else put_literal(m, l, str_fmt(m->a, ", \"%s\": ", args_key));
    put(l, value(OUTPUT_SYNTAX_JSON, (struct str){0}, arguments(m)));
    if (f->id_key && !id_first) {
        put_literal(m, l, str_fmt(m->a, ", \"%s\": \"", f->id_key));
        put_id(m, l);
        put_text(m, l, "\"");
    }
    put_text(m, l, "}");
}

static void put_hole(struct maker *m, struct list *l, char hole) {
    struct str name = m->tool->name;
    switch (hole) {
    case 'n': put_literal(m, l, name); break;
    case 'N':
        put_text(m, l, "functions.");
        put_literal(m, l, name);
        put_text(m, l, ":");
        put_pattern(l, "[0-9]{1,4}");
        break;
    case 'i': put_id(m, l); break;
    case 'x': put_pattern(l, "[0-9]{1,4}"); break;
    case 'a': put(l, value(OUTPUT_SYNTAX_JSON, (struct str){0}, arguments(m))); break;
    case 'o':
    case 'c': put_json_call(m, l); break;
    case 'p':
        put_literal(m, l, name);
        put_text(m, l, "(");
        put(l, make_members(m, STR(", "), make_keyword, NULL));
        put_text(m, l, ")");
        break;
    case 'g':
        put_text(m, l, "{");
        put(l, make_members(m, STR(","), make_keyword, m->f));
        put_text(m, l, "}");
        break;
    case 'e':
        put(l, make_members(m, (struct str){0}, make_element, NULL));
        put_literal(m, l, str_fmt(m->a, "%s</invoke>", m->f->element));
        break;
    default: break;
    }
}

/* A shape written out; m->tool may be NULL where it has no holes. */
static void put_shape(struct maker *m, struct list *l, const char *p) {
    while (p && *p) {
        size_t n = 0;
        while (p[n] && p[n] != '%') n++;
        put_literal(m, l, str_n(p, n));
        p += n;
        if (!*p) break;
        if (p[1] == '(') {
            put(l, make_members(m, (struct str){0}, make_parameter, p + 2));
            p = strstr(p, "%)");
        } else if (p[1] == '{') {
            p = strstr(p, "%}");
        } else {
            put_hole(m, l, p[1]);
        }
        p += 2;
    }
}

/* The header of a message to the tool. */
static void put_header(struct maker *m, struct list *l) {
    const struct output_frame *f = m->f->frame;
    if (!f) return;
    if (!f->everyone) put_literal(m, l, f->marks[0] ? str_fmt(m->a, "%scommentary to=functions.", f->marks[0]) : STR(" to="));
    put_literal(m, l, m->tool->name);
    if (f->marks[1]) put_literal(m, l, str_fmt(m->a, " %sjson", f->marks[1]));
    put_text(m, l, f->message);
}

/* ---- sections --------------------------------------------------------------------------------------------------- */

/* What a further call stands behind. */
static struct str between(struct maker *m) {
    const struct output_frame *f = m->f->frame;
    if (f) return str_fmt(m->a, "%s%s", f->ends[0] && !f->marks[0] ? f->ends[0] : "", f->begin);
    return str_of(m->f->between ? m->f->between : "");
}

static struct output_part make_calls(struct maker *m, struct output_tools tools, bool with_section) {
    struct output_part *calls = arena_new(m->a, struct output_part, tools.n);
    for (size_t i = 0; i < tools.n; i++) {
        struct list l = {0};
        m->tool = &tools.p[i];
        put_header(m, &l);
        if (with_section) put_shape(m, &l, m->f->opens[0]);
        put_shape(m, &l, m->f->calls[0]);
        if (with_section) put_shape(m, &l, m->f->close);
        calls[i] = combine(m->a, OUTPUT_PART_SEQUENCE, &l, (struct str){0});
    }
    if (tools.n == 1) return calls[0];
    return (struct output_part){.kind = OUTPUT_PART_CHOICE, .parts = calls, .n = tools.n};
}

/* What all calls of the format begin with, and nothing else does. */
static struct str find_trigger(struct maker *m) {
    const struct output_frame *f = m->f->frame;
    if (f) return f->marks[0] ? str_fmt(m->a, "%scommentary to=functions.", f->marks[0]) : (struct str){0};
    if (m->f->flags & FORMAT_WHOLE) return (struct str){0};
    const char *shape = m->f->opens[0] ? m->f->opens[0] : m->f->calls[0];
    return str_trim(str_n(shape, strcspn(shape, "%")));
}

bool output_force(struct arena *a, const struct output_format *f, struct output_tools tools, bool is_parallel, struct output_forced *out) {
    struct maker m = {.a = a, .f = f};
    struct list l = {0};
    bool is_generic = strstr(f->calls[0], "%o") != NULL, is_own = f->frame || f->flags & FORMAT_OWN_SECTION;
    *out = (struct output_forced){0};
    if (tools.n == 0) return false;
    struct output_part calls = make_calls(&m, tools, is_own);
    if (is_parallel) {
        struct list one = {.p = {calls}, .n = 1};
        struct str gap = is_generic ? STR(", ") : between(&m);
        calls = combine(a, OUTPUT_PART_REPEAT, &one, gap);
    }
    if (is_generic) put_literal(&m, &l, STR("{\"tool_calls\": ["));
    if (!is_own) put_shape(&m, &l, f->opens[0]);
    put(&l, calls);
    if (!is_own) put_shape(&m, &l, f->close);
    if (is_generic) put_literal(&m, &l, STR("]}"));
    out->root = combine(a, OUTPUT_PART_SEQUENCE, &l, (struct str){0});
    out->trigger = find_trigger(&m);
    return true;
}
