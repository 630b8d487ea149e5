/* Values in the spellings of calls, held to their schemas.
 *
 * In JSON the schema itself is called. Other spellings write containers as rules: members and items have rules of their own, a schema that
 * refers to itself is a rule that calls itself, and scalars are schemas again, or strings without quotes. A schema with a keyword about
 * containers that rules cannot say (prefixItems, patternProperties, not ...) is held to its kind of value alone.
 */
#include "text/output/forced_internal.h"

enum { REPEAT_MAX = 2000 }; /* that GBNF takes */

struct spelling {
    enum output_syntax syntax;
    struct str mark; /* quotes of strings, or what stands before each tag */
};

static void put_spelled(struct writer *w, struct typed t, const struct spelling *s, struct sb *out);

static bool is_schema(yyjson_val *schema) {
    return yyjson_is_obj(schema) || yyjson_is_bool(schema);
}

/* ---- schemas as text ------------------------------------------------------------------------------------------------------ */

/* A part of a schema with the definitions that it may refer to; `only`: for values of these types, by JSON. */
static struct str schema_text(struct writer *w, struct typed t, const char *only) {
    static const char *const definitions[] = {"$defs", "definitions"};
    struct sb text = {0};
    struct jsonw json = {.out = &text};
    yyjson_val *key, *val;
    size_t i, n;
    if (!yyjson_is_obj(t.schema) || (t.schema == t.root && !only)) {
        jsonw_val(&json, t.schema);
    } else {
        jsonw_begin(&json, '{');
        yyjson_obj_foreach(t.schema, i, n, key, val) {
            if (only && str_is(json_val_str(key), "type")) continue;
            jsonw_key_str(&json, json_val_str(key));
            jsonw_val(&json, val);
        }
        if (only) {
            jsonw_put_raw(&json, "type", str_of(only));
        }
        for (size_t k = 0; k < 2; k++) {
            yyjson_val *defs = json_get(t.root, definitions[k]);
            if (!defs || json_get(t.schema, definitions[k])) continue;
            jsonw_key(&json, definitions[k]);
            jsonw_val(&json, defs);
        }
        jsonw_end(&json, '}');
    }
    struct str copy = str_copy(w->a, sb_str(&text));
    sb_free(&text);
    return copy;
}

static void put_schema(struct writer *w, struct str text, struct sb *out) {
    sb_put(out, forced_gbnf_schema(w->a, w->out, (struct gram_schema){.text = text}));
}

/* ---- what can be said by rules -------------------------------------------------------------------------------------------- */

static bool is_among(struct str name, const char *const *list) {
    for (; *list; list++)
        if (str_is(name, *list)) return true;
    return false;
}

/* Whether rules say all that the schema asks of containers; keywords of scalars are left to schemas. */
static bool is_sayable(yyjson_val *schema) {
    static const char *const known[] = {"type",
                                        "enum",
                                        "const",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "items",
                                        "minItems",
                                        "maxItems",
                                        "anyOf",
                                        "oneOf",
                                        "nullable",
                                        "title",
                                        "description",
                                        "default",
                                        "examples",
                                        "example",
                                        "deprecated",
                                        "readOnly",
                                        "writeOnly",
                                        "$schema",
                                        "$id",
                                        "$comment",
                                        "$defs",
                                        "definitions",
                                        "pattern",
                                        "format",
                                        "minLength",
                                        "maxLength",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        NULL};
    yyjson_val *key, *val, *properties = json_get(schema, "properties"), *required = json_get(schema, "required");
    size_t i, n;
    if (!yyjson_is_obj(schema)) return false;
    yyjson_obj_foreach(schema, i, n, key, val) if (!is_among(json_val_str(key), known)) return false;
    if (yyjson_is_arr(required)) yyjson_arr_foreach(required, i, n, val) {
            struct str name = json_val_str(val);
            if (!name.p || !yyjson_obj_getn(properties, name.p, name.n)) return false;
        }
    return !json_get(schema, "items") || is_schema(json_get(schema, "items"));
}

/* The alternatives of a schema that says nothing else about its values; NULL: there are none. For oneOf they must differ in type, so that no
 * value can be of two. */
static yyjson_val *alternatives(struct typed t) {
    yyjson_val *any = json_get(t.schema, "anyOf"), *one = json_get(t.schema, "oneOf"), *item;
    unsigned seen = 0;
    size_t i, n;
    if (yyjson_is_arr(any)) return one || json_get(t.schema, "properties") || json_get(t.schema, "items") ? NULL : any;
    if (!yyjson_is_arr(one) || json_get(t.schema, "properties") || json_get(t.schema, "items")) return NULL;
    yyjson_arr_foreach(one, i, n, item) {
        unsigned types = typed_types((struct typed){item, t.root});
        if (types == 0 || seen & types) return NULL;
        seen |= types;
    }
    return one;
}

/* ---- values that are listed ------------------------------------------------------------------------------------------------ */

static void spell(struct writer *w, yyjson_val *v, const struct spelling *s, struct sb *out);

static void spell_members(struct writer *w, yyjson_val *v, const struct spelling *s, struct sb *out) {
    yyjson_val *key, *val;
    size_t i, n;
    bool is_python = s->syntax == OUTPUT_SYNTAX_PYTHON, is_elements = s->syntax == OUTPUT_SYNTAX_ELEMENTS;
    if (!is_elements) sb_putc(out, '{');
    yyjson_obj_foreach(v, i, n, key, val) {
        struct str name = json_val_str(key);
        if (i && !is_elements) sb_puts(out, is_python ? ", " : ",");
        if (is_python) json_quote(out, name);
        else if (is_elements) sb_fmt(out, "%.*s<%.*s>", STR_ARG(s->mark), STR_ARG(name));
        else sb_put(out, name);
        if (!is_elements) sb_puts(out, is_python ? ": " : ":");
        spell(w, val, s, out);
        if (is_elements) sb_fmt(out, "%.*s</%.*s>", STR_ARG(s->mark), STR_ARG(name));
    }
    if (!is_elements) sb_putc(out, '}');
}

static void spell_items(struct writer *w, yyjson_val *v, const struct spelling *s, struct sb *out) {
    yyjson_val *val;
    size_t i, n;
    bool is_elements = s->syntax == OUTPUT_SYNTAX_ELEMENTS;
    if (!is_elements) sb_putc(out, '[');
    yyjson_arr_foreach(v, i, n, val) {
        if (is_elements) sb_fmt(out, "%.*s<item>", STR_ARG(s->mark));
        else if (i) sb_puts(out, s->syntax == OUTPUT_SYNTAX_PYTHON ? ", " : ",");
        spell(w, val, s, out);
        if (is_elements) sb_fmt(out, "%.*s</item>", STR_ARG(s->mark));
    }
    if (!is_elements) sb_putc(out, ']');
}

/* One value as it is written. */
static void spell(struct writer *w, yyjson_val *v, const struct spelling *s, struct sb *out) {
    struct jsonw json = {.out = out};
    bool is_python = s->syntax == OUTPUT_SYNTAX_PYTHON, is_quoted = s->syntax == OUTPUT_SYNTAX_QUOTED;
    if (yyjson_is_obj(v)) spell_members(w, v, s, out);
    else if (yyjson_is_arr(v)) spell_items(w, v, s, out);
    else if (is_python && (yyjson_is_null(v) || yyjson_is_bool(v)))
        sb_puts(out, yyjson_is_null(v) ? "None" : yyjson_is_true(v) ? "True" : "False");
    else if (!yyjson_is_str(v) || is_python) jsonw_val(&json, v);
    else {
        if (is_quoted) sb_put(out, s->mark);
        sb_put(out, json_val_str(v));
        if (is_quoted) sb_put(out, s->mark);
    }
}

/* The values of enum or const, each as a literal; false: there are none. */
static bool put_listed(struct writer *w, yyjson_val *schema, const struct spelling *s, struct sb *out) {
    yyjson_val *list = json_get(schema, "enum"), *only = json_get(schema, "const"), *item;
    struct sb one = {0};
    size_t i, n;
    if (only) {
        spell(w, only, s, &one);
        forced_gbnf_literal(w, sb_str(&one), out);
    } else if (yyjson_arr_size(list)) {
        sb_putc(out, '(');
        yyjson_arr_foreach(list, i, n, item) {
            sb_clear(&one);
            spell(w, item, s, &one);
            if (i) sb_puts(out, " | ");
            forced_gbnf_literal(w, sb_str(&one), out);
        }
        sb_putc(out, ')');
    }
    sb_free(&one);
    return only || yyjson_arr_size(list);
}

/* ---- anything -------------------------------------------------------------------------------------------------------------- */

static void put_quoted_text(struct writer *w, struct str quote, struct str inside, struct sb *out) {
    forced_gbnf_literal(w, quote, out);
    sb_putc(out, ' ');
    sb_put(out, inside);
    sb_putc(out, ' ');
    forced_gbnf_literal(w, quote, out);
}

/* Any value, by rules that are written once. */
static void put_any(struct writer *w, const struct spelling *s, struct sb *out) {
    struct sb *rules = &w->out->rules;
    if (s->syntax == OUTPUT_SYNTAX_ELEMENTS) {
        forced_gbnf_text_without(w, s->mark, out);
        return;
    }
    sb_puts(out, "any-value");
    if (str_find(sb_str(rules), STR("any-value ::="), 0) != STR_NONE) return;
    if (s->syntax == OUTPUT_SYNTAX_PYTHON) {
        sb_puts(rules, "any-value ::= \"True\" | \"False\" | \"None\" | ");
        put_schema(w, STR("{\"type\": [\"string\", \"number\"]}"), rules);
        sb_puts(
            rules,
            " | \"[\" (any-value (\", \" any-value)*)? \"]\" | any-object\nany-object ::= \"{\" (any-pair (\", \" any-pair)*)? \"}\"\nany-pair ::= ");
        put_schema(w, STR("{\"type\": \"string\"}"), rules);
        sb_puts(rules, " \": \" any-value\n");
        return;
    }
    struct sb text = {0};
    forced_gbnf_text_without(w, s->mark, &text);
    sb_puts(rules, "any-value ::= ");
    put_quoted_text(w, s->mark, sb_str(&text), rules);
    sb_puts(rules, " | ");
    put_schema(w, STR("{\"type\": [\"number\", \"boolean\", \"null\"]}"), rules);
    sb_puts(rules, " | \"[\" (any-value (\",\" any-value)*)? \"]\" | any-object\n"
                   "any-object ::= \"{\" (any-pair (\",\" any-pair)*)? \"}\"\nany-pair ::= [A-Za-z0-9_.$\\x2D]+ \":\" any-value\n");
    sb_free(&text);
}

/* ---- scalars --------------------------------------------------------------------------------------------------------------- */

/* Whether the schema says more about strings than that they are. */
static bool limits_strings(yyjson_val *schema) {
    static const char *const keywords[] = {"pattern", "format", "minLength", "maxLength", "enum", "const",
                                           "anyOf",   "oneOf",  "allOf",     "not",       "if",   NULL};
    for (const char *const *k = keywords; *k; k++)
        if (json_get(schema, *k)) return true;
    return false;
}

/* A string as it stands, in which `end` does not. */
static void put_bare(struct writer *w, struct typed t, struct str end, struct sb *out) {
    if (!limits_strings(t.schema)) {
        forced_gbnf_text_without(w, end, out);
        return;
    }
    struct sb probe = {0};
    forced_gbnf_text_without(w, end, &probe);
    bool is_token = str_is(sb_str(&probe), ".*"); /* the end cannot be written with letters */
    sb_free(&probe);
    struct gram_schema schema = {
        .text = schema_text(w, t, "\"string\""), .is_bare = true, .without = is_token ? (struct str){0} : str_copy(w->a, end)};
    sb_put(out, forced_gbnf_schema(w->a, w->out, schema));
}

/* Which of a schema's names for numbers. */
static const char *number_type(yyjson_val *schema) {
    yyjson_val *type = json_get(schema, "type"), *item;
    bool is_whole = str_is(json_val_str(type), "integer");
    size_t i, n;
    if (yyjson_is_arr(type)) yyjson_arr_foreach(type, i, n, item) {
            if (str_is(json_val_str(item), "number")) return "\"number\"";
            is_whole |= str_is(json_val_str(item), "integer");
        }
    return is_whole ? "\"integer\"" : "\"number\"";
}

static void put_scalar(struct writer *w, struct typed t, enum value_type type, const struct spelling *s, struct sb *out) {
    bool is_python = s->syntax == OUTPUT_SYNTAX_PYTHON;
    if (type == VALUE_BOOL) {
        sb_puts(out, is_python ? "(\"True\" | \"False\")" : "(\"true\" | \"false\")");
    } else if (type == VALUE_NULL) {
        sb_puts(out, is_python ? "\"None\"" : "\"null\"");
    } else if (type == VALUE_NUMBER) {
        put_schema(w, schema_text(w, t, number_type(t.schema)), out);
    } else if (is_python) {
        put_schema(w, schema_text(w, t, "\"string\""), out);
    } else if (s->syntax == OUTPUT_SYNTAX_ELEMENTS) {
        put_bare(w, t, s->mark, out);
    } else {
        struct sb inside = {0};
        put_bare(w, t, s->mark, &inside);
        put_quoted_text(w, s->mark, sb_str(&inside), out);
        sb_free(&inside);
    }
}

/* ---- containers ------------------------------------------------------------------------------------------------------------ */

static int64_t size_of(yyjson_val *schema, const char *keyword, int64_t otherwise) {
    yyjson_val *v = json_get(schema, keyword);
    return yyjson_is_num(v) && yyjson_get_num(v) >= 0 && yyjson_get_num(v) < (double)REPEAT_MAX ? (int64_t)yyjson_get_num(v) : otherwise;
}

static void put_array(struct writer *w, struct typed t, const struct spelling *s, struct sb *out) {
    bool is_elements = s->syntax == OUTPUT_SYNTAX_ELEMENTS;
    int64_t least = size_of(t.schema, "minItems", 0), most = size_of(t.schema, "maxItems", -1);
    struct sb item = {0};
    if (is_elements && least == 0) least = 1; /* an empty element is a text */
    if (is_elements) forced_gbnf_literal(w, str_fmt(w->a, "%.*s<item>", STR_ARG(s->mark)), &item);
    sb_putc(&item, ' ');
    put_spelled(w, (struct typed){json_get(t.schema, "items"), t.root}, s, &item);
    sb_putc(&item, ' ');
    if (is_elements) forced_gbnf_literal(w, str_fmt(w->a, "%.*s</item>", STR_ARG(s->mark)), &item);
    size_t rule = forced_gbnf_rule(w, sb_str(&item));
    sb_free(&item);
    if (!is_elements) sb_puts(out, "\"[\" ");
    if (most != 0) {
        sb_fmt(out, "(c%zu (%s c%zu)", rule, is_elements ? "" : s->syntax == OUTPUT_SYNTAX_PYTHON ? "\", \"" : "\",\"", rule);
        if (most < 0) sb_fmt(out, "{%d,})", (int)(least > 1 ? least - 1 : 0));
        else sb_fmt(out, "{%d,%d})", (int)(least > 1 ? least - 1 : 0), (int)(most > least ? most : least > 1 ? least : 1) - 1);
        if (least == 0) sb_putc(out, '?');
    }
    if (!is_elements) sb_puts(out, " \"]\"");
}

static bool is_required(yyjson_val *schema, struct str key) {
    yyjson_val *list = json_get(schema, "required"), *item;
    size_t i, n;
    if (yyjson_is_arr(list)) yyjson_arr_foreach(list, i, n, item) if (str_eq(json_val_str(item), key)) return true;
    return false;
}

/* A member as a part: its name, its value, what closes it. */
static struct output_part member_part(struct writer *w, struct str name, struct typed t, const struct spelling *s) {
    struct output_part *parts = arena_new(w->a, struct output_part, 3);
    struct sb quoted = {0};
    bool is_elements = s->syntax == OUTPUT_SYNTAX_ELEMENTS;
    json_quote(&quoted, name);
    struct str begin = s->syntax == OUTPUT_SYNTAX_PYTHON ? str_fmt(w->a, "%.*s: ", STR_ARG(sb_str(&quoted)))
                       : is_elements                     ? str_fmt(w->a, "%.*s<%.*s>", STR_ARG(s->mark), STR_ARG(name))
                                                         : str_fmt(w->a, "%.*s:", STR_ARG(name));
    parts[0] = (struct output_part){.kind = OUTPUT_PART_LITERAL, .text = begin};
    parts[1] = (struct output_part){.kind = OUTPUT_PART_VALUE, .syntax = s->syntax, .text = s->mark, .schema = t.schema, .root = t.root};
    parts[2] = (struct output_part){.kind = OUTPUT_PART_LITERAL, .text = str_fmt(w->a, "%.*s</%.*s>", STR_ARG(s->mark), STR_ARG(name))};
    sb_free(&quoted);
    return (struct output_part){.kind = OUTPUT_PART_SEQUENCE, .parts = parts, .n = is_elements ? 3 : 2};
}

/* Any names, with values of one schema. */
static void put_map(struct writer *w, struct typed t, const struct spelling *s, struct sb *out) {
    struct sb pair = {0};
    bool is_python = s->syntax == OUTPUT_SYNTAX_PYTHON;
    if (is_python) put_schema(w, STR("{\"type\": \"string\"}"), &pair);
    else sb_puts(&pair, "[A-Za-z0-9_.$\\x2D]+");
    sb_puts(&pair, is_python ? " \": \" " : " \":\" ");
    put_spelled(w, t, s, &pair);
    size_t rule = forced_gbnf_rule(w, sb_str(&pair));
    sb_fmt(out, "\"{\" (c%zu (\"%s\" c%zu)*)? \"}\"", rule, is_python ? ", " : ",", rule);
    sb_free(&pair);
}

static void put_object(struct writer *w, struct typed t, const struct spelling *s, struct sb *out) {
    yyjson_val *properties = json_get(t.schema, "properties"), *others = json_get(t.schema, "additionalProperties"), *key, *val;
    size_t i, n, n_parts = yyjson_is_obj(properties) ? yyjson_obj_size(properties) : 0;
    bool is_elements = s->syntax == OUTPUT_SYNTAX_ELEMENTS;
    if (n_parts == 0 && is_elements) {
        put_any(w, s, out);
    } else if (n_parts == 0) {
        put_map(w, (struct typed){is_schema(others) ? others : NULL, t.root}, s, out);
    } else {
        struct output_part *parts = arena_new(w->a, struct output_part, n_parts);
        yyjson_obj_foreach(properties, i, n, key, val) {
            parts[i] = member_part(w, json_val_str(key), (struct typed){val, t.root}, s);
            parts[i].is_optional = !is_required(t.schema, json_val_str(key));
        }
        struct str between = is_elements ? (struct str){0} : s->syntax == OUTPUT_SYNTAX_PYTHON ? STR(", ") : STR(",");
        if (!is_elements) sb_puts(out, "\"{\" ");
        forced_gbnf_part(w, &(struct output_part){.kind = OUTPUT_PART_SEQUENCE, .text = between, .parts = parts, .n = n_parts},
                         (struct str){0}, out);
        if (!is_elements) sb_puts(out, " \"}\"");
    }
}

/* ---- values ---------------------------------------------------------------------------------------------------------------- */

static void put_alternatives(struct writer *w, struct typed t, yyjson_val *list, const struct spelling *s, struct sb *out) {
    yyjson_val *item;
    size_t i, n;
    yyjson_arr_foreach(list, i, n, item) {
        if (i) sb_puts(out, " | ");
        put_spelled(w, (struct typed){item, t.root}, s, out);
    }
}

static void put_types(struct writer *w, struct typed t, unsigned types, const struct spelling *s, struct sb *out) {
    bool is_sayable_here = is_sayable(t.schema), is_first = true;
    for (unsigned type = 1; type <= types; type <<= 1) {
        if (!(types & type)) continue;
        if (!is_first) sb_puts(out, " | ");
        is_first = false;
        if (type != VALUE_ARRAY && type != VALUE_OBJECT) put_scalar(w, t, (enum value_type)type, s, out);
        else if (!is_sayable_here) put_any(w, s, out);
        else if (type == VALUE_ARRAY) put_array(w, t, s, out);
        else put_object(w, t, s, out);
    }
}

/* The body of a schema's rule. */
static void put_body(struct writer *w, struct typed t, const struct spelling *s, struct sb *out) {
    yyjson_val *list = alternatives(t);
    unsigned types = typed_types(t);
    if (put_listed(w, t.schema, s, out)) return;
    if (list && is_sayable(t.schema)) put_alternatives(w, t, list, s, out);
    else if (types) put_types(w, t, types, s, out);
    else put_any(w, s, out);
}

static size_t find_rule(const struct writer *w, yyjson_val *schema) {
    size_t i = 0;
    while (i < w->n_rules && w->rules[i].schema != schema) i++;
    return i;
}

static void add_rule(struct writer *w, yyjson_val *schema) {
    if (w->n_rules == w->capacity) {
        size_t capacity = w->capacity ? 2 * w->capacity : 16;
        struct writer_rule *p = arena_new(w->a, struct writer_rule, capacity);
        if (w->n_rules) memcpy(p, w->rules, w->n_rules * sizeof *p);
        w->rules = p;
        w->capacity = capacity;
    }
    w->rules[w->n_rules++] = (struct writer_rule){schema, w->out->n_values++};
}

/* A call of the schema's rule, which is written when it is first needed. */
static void put_spelled(struct writer *w, struct typed t, const struct spelling *s, struct sb *out) {
    t = typed_resolve(t);
    if (!yyjson_is_obj(t.schema)) {
        put_any(w, s, out);
        return;
    }
    size_t at = find_rule(w, t.schema);
    if (at == w->n_rules) {
        struct sb body = {0};
        add_rule(w, t.schema);
        put_body(w, t, s, &body);
        sb_fmt(&w->out->rules, "v%zu ::= ", w->rules[at].number);
        sb_put(&w->out->rules, sb_str(&body));
        sb_putc(&w->out->rules, '\n');
        sb_free(&body);
    }
    sb_fmt(out, "v%zu", w->rules[at].number);
}

void forced_values_put(struct writer *w, const struct output_part *p, struct str next, struct sb *out) {
    struct typed t = {p->schema, p->root};
    (void)next;
    if (p->syntax != OUTPUT_SYNTAX_JSON) put_spelled(w, t, &(struct spelling){p->syntax, p->text}, out);
    else if (is_schema(p->schema)) put_schema(w, schema_text(w, t, NULL), out);
    else put_schema(w, p->schema == p->root ? STR("{\"type\": \"object\"}") : STR("{}"), out);
}

void forced_values_put_text(struct writer *w, const struct output_part *p, struct sb *out) {
    struct typed t = typed_resolve((struct typed){p->schema, p->root});
    unsigned types = typed_types(t);
    if (types == VALUE_STRING && yyjson_is_obj(t.schema)) put_bare(w, t, p->text, out);
    else if (!put_listed(w, t.schema, &(struct spelling){.syntax = OUTPUT_SYNTAX_ELEMENTS}, out)) forced_gbnf_text_without(w, p->text, out);
}
