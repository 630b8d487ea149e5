/* What a schema says about null, booleans, numbers and strings: sets, computed keyword by keyword. */
#include "text/grammar/schema.h"

#include "text/grammar/format_table.h"
#include "text/grammar/regex.h"

/* ---- the algebra ------------------------------------------------------------------------------------------------------- */

struct scalars gram_scalars_all(struct schema *s) {
    return (struct scalars){true, true, true, s->numbers.all, strset_all(&s->strings)};
}

static struct scalars none(void) {
    return (struct scalars){0};
}

bool gram_scalars_empty(const struct scalars *x) {
    return !x->null && !x->yes && !x->no && x->numbers == DFA_NONE && x->strings.n == 0;
}

void gram_scalars_and(struct schema *s, struct scalars *x, const struct scalars *y) {
    x->null = x->null && y->null;
    x->yes = x->yes && y->yes;
    x->no = x->no && y->no;
    x->numbers = dfa_and(s->numbers.p, x->numbers, y->numbers);
    x->strings = strset_and(&s->strings, x->strings, y->strings);
}

static void scalars_or(struct schema *s, struct scalars *x, const struct scalars *y) {
    x->null = x->null || y->null;
    x->yes = x->yes || y->yes;
    x->no = x->no || y->no;
    x->numbers = dfa_or(s->numbers.p, x->numbers, y->numbers);
    x->strings = strset_or(&s->strings, x->strings, y->strings);
}

struct scalars gram_scalars_not(struct schema *s, const struct scalars *x) {
    return (struct scalars){!x->null, !x->yes, !x->no, dfa_minus(s->numbers.p, s->numbers.all, x->numbers),
                            strset_not(&s->strings, x->strings)};
}

/* ---- single keywords --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned kind;
} types[] = {{"null", KIND_NULL},     {"boolean", KIND_BOOLEAN}, {"number", KIND_NUMBER}, {"integer", KIND_NUMBER},
             {"string", KIND_STRING}, {"array", KIND_ARRAY},     {"object", KIND_OBJECT}};

/* The kinds of a `type`; *is_integer: of numbers, whole ones only. */
static unsigned type_kinds(struct schema *s, uint32_t node, yyjson_val *type, bool *is_integer) {
    unsigned kinds = 0;
    bool any_number = false;
    size_t i, n;
    yyjson_val *item;
    *is_integer = false;
    if (!yyjson_is_arr(type) && !yyjson_is_str(type)) schema_fail(s, node, ERR_EARG, "type must be a name or a list of names");
    size_t n_names = yyjson_is_arr(type) ? yyjson_arr_size(type) : 1;
    for (i = 0; i < n_names && !s->code; i++) {
        item = yyjson_is_arr(type) ? yyjson_arr_get(type, i) : type;
        struct str name = json_val_str(item);
        for (n = 0; n < sizeof types / sizeof *types && !(name.p && str_is(name, types[n].name)); n++) continue;
        if (n == sizeof types / sizeof *types) {
            schema_fail(s, node, ERR_EARG, "type \"%.*s\" is not known", STR_ARG(name.p ? str_sub(name, 0, 60) : STR("?")));
            break;
        }
        kinds |= types[n].kind;
        if (str_is(name, "integer")) *is_integer = true;
        if (str_is(name, "number")) any_number = true;
    }
    if (any_number) *is_integer = false;
    return kinds;
}

static void apply_type(struct schema *s, uint32_t node, struct scalars *x) {
    yyjson_val *type = schema_keyword(s, node, "type");
    bool is_integer;
    if (!type) return;
    unsigned kinds = type_kinds(s, node, type, &is_integer);
    if (!(kinds & KIND_NULL)) x->null = false;
    if (!(kinds & KIND_BOOLEAN)) x->yes = x->no = false;
    if (!(kinds & KIND_NUMBER)) x->numbers = DFA_NONE;
    if (is_integer) x->numbers = dfa_and(s->numbers.p, x->numbers, s->numbers.integers);
    if (!(kinds & KIND_STRING)) x->strings = (struct strset){0};
}

static bool take_number(struct schema *s, uint32_t node, const char *keyword, yyjson_val *v, struct decimal *out) {
    if (!yyjson_is_raw(v)) {
        schema_fail(s, node, ERR_EARG, "%s must be a number", keyword);
        return false;
    }
    struct err err;
    int code = gram_decimal_parse(&s->a, str_n(yyjson_get_raw(v), yyjson_get_len(v)), out, &err);
    if (code) schema_fail(s, node, code, "%s: %s", keyword, err.msg);
    return !code;
}

/* A bound and the keyword that makes it exclusive, which draft 4 writes as a boolean. */
static void apply_bound(struct schema *s, uint32_t node, struct scalars *x, bool is_upper) {
    const char *name = is_upper ? "maximum" : "minimum", *exclusive = is_upper ? "exclusiveMaximum" : "exclusiveMinimum";
    yyjson_val *bound = schema_keyword(s, node, name), *open = schema_keyword(s, node, exclusive);
    struct decimal d;
    bool is_open = s->draft == GRAM_DRAFT_4 && yyjson_is_true(open);
    if (bound && take_number(s, node, name, bound, &d))
        x->numbers = dfa_and(s->numbers.p, x->numbers, (is_upper ? numbers_below : numbers_above)(&s->numbers, &d, !is_open));
    if (open && s->draft != GRAM_DRAFT_4 && take_number(s, node, exclusive, open, &d))
        x->numbers = dfa_and(s->numbers.p, x->numbers, (is_upper ? numbers_below : numbers_above)(&s->numbers, &d, false));
}

static void apply_numbers(struct schema *s, uint32_t node, struct scalars *x) {
    yyjson_val *multiple = schema_keyword(s, node, "multipleOf");
    struct decimal d;
    if (x->numbers == DFA_NONE) return;
    apply_bound(s, node, x, false);
    apply_bound(s, node, x, true);
    if (!multiple || !take_number(s, node, "multipleOf", multiple, &d)) return;
    struct err err;
    dfa_id multiples;
    int code = numbers_multiples(&s->numbers, &d, &multiples, &err);
    if (code) schema_fail(s, node, code, "%s", err.msg);
    else x->numbers = dfa_and(s->numbers.p, x->numbers, multiples);
}

dfa_id schema_pattern(struct schema *s, uint32_t node, struct str pattern) {
    bool is_new;
    struct map_entry *e = map_put(&s->patterns, pattern, &is_new);
    if (is_new) {
        struct err err;
        dfa_id id;
        int code = regex_compile(&s->g->pool, pattern, REGEX_SCHEMA, &id, &err);
        if (code) schema_fail(s, node, code, "pattern \"%.*s\": %s", STR_ARG(str_sub(pattern, 0, 80)), err.msg);
        e->value.i = id;
    }
    return (dfa_id)e->value.i;
}

static struct strset format_set(struct schema *s, uint32_t node, struct str name) {
    bool is_new;
    struct map_entry *e = map_put(&s->formats, name, &is_new);
    if (is_new) {
        struct strset *set = arena_new(&s->a, struct strset, 1);
        if (!gram_format_strings(&s->strings, name, s->g->options.draft_formats ? s->draft : GRAM_DRAFT_2020, set)) {
            *set = strset_all(&s->strings);
            schema_warn(s, node, "format", name, "is not known in this draft and taken as a note");
        }
        e->value.ptr = set;
    }
    return *(struct strset *)e->value.ptr;
}

/* Draft 7: what a string holds. A document inside a string is not followed. */
static void apply_content(struct schema *s, uint32_t node, struct scalars *x) {
    static const char BASE64[] = "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?";
    struct str encoding = json_val_str(schema_keyword(s, node, "contentEncoding"));
    struct str type = json_val_str(schema_keyword(s, node, "contentMediaType"));
    if (str_is(type, "application/json")) {
        schema_fail(s, node, ERR_EUNSUPPORTED, "contentMediaType application/json is not supported in draft 7, where it asserts something");
    } else if (str_is(encoding, "base64")) {
        struct strset set = strset_of(&s->strings, regex_known(s->strings.p, BASE64), 0, STR_LONG);
        x->strings = strset_and(&s->strings, x->strings, set);
    }
}

static void apply_strings(struct schema *s, uint32_t node, struct scalars *x) {
    uint32_t min = 0, max = STR_LONG;
    yyjson_val *pattern = schema_keyword(s, node, "pattern"), *format = schema_keyword(s, node, "format");
    if (x->strings.n == 0) return;
    schema_size(s, node, "minLength", &min);
    schema_size(s, node, "maxLength", &max);
    dfa_id set = s->strings.any;
    if (pattern && !yyjson_is_str(pattern)) schema_fail(s, node, ERR_EARG, "pattern must be a string");
    else if (pattern) set = schema_pattern(s, node, json_val_str(pattern));
    x->strings = strset_and(&s->strings, x->strings, strset_of(&s->strings, set, min, max));
    if (format && yyjson_is_str(format)) x->strings = strset_and(&s->strings, x->strings, format_set(s, node, json_val_str(format)));
    apply_content(s, node, x);
}

/* ---- values that must be equaled --------------------------------------------------------------------------------------- */

static struct scalars of_value(struct schema *s, uint32_t node, yyjson_val *v) {
    struct scalars x = none();
    struct decimal d;
    if (yyjson_is_null(v)) x.null = true;
    if (yyjson_is_true(v)) x.yes = true;
    if (yyjson_is_false(v)) x.no = true;
    if (yyjson_is_raw(v) && take_number(s, node, "enum", v, &d)) x.numbers = numbers_equal(&s->numbers, &d);
    if (yyjson_is_str(v)) x.strings = strset_of(&s->strings, dfa_from_text(&s->g->pool, json_val_str(v)), 0, STR_LONG);
    return x;
}

/* All strings of an enum are one automaton. */
static struct scalars of_values(struct schema *s, uint32_t node, yyjson_val *list) {
    struct scalars x = none();
    size_t i, n, n_texts = 0;
    yyjson_val *v;
    struct str *texts = arena_new(&s->a, struct str, yyjson_arr_size(list));
    yyjson_arr_foreach(list, i, n, v) {
        struct scalars one;
        if (yyjson_is_str(v)) {
            texts[n_texts++] = json_val_str(v);
            continue;
        }
        one = of_value(s, node, v);
        scalars_or(s, &x, &one);
    }
    if (n_texts) x.strings = strset_of(&s->strings, dfa_from_texts(&s->g->pool, texts, n_texts), 0, STR_LONG);
    return x;
}

static void apply_values(struct schema *s, uint32_t node, struct scalars *x) {
    yyjson_val *list = schema_keyword(s, node, "enum"), *constant = schema_keyword(s, node, "const");
    struct scalars allowed;
    if (list && !yyjson_is_arr(list)) schema_fail(s, node, ERR_EARG, "enum must be a list");
    else if (list) {
        allowed = of_values(s, node, list);
        gram_scalars_and(s, x, &allowed);
    }
    if (constant) {
        allowed = of_value(s, node, constant);
        gram_scalars_and(s, x, &allowed);
    }
}

/* ---- subschemas in place ----------------------------------------------------------------------------------------------- */

static void and_child(struct schema *s, uint32_t child, struct scalars *x) {
    const struct scalars *y = schema_scalars(s, child);
    gram_scalars_and(s, x, y);
}

enum list_kind { ALL_OF, ANY_OF, ONE_OF };

static void apply_list(struct schema *s, uint32_t node, enum list_kind kind, struct scalars *x) {
    static const char *const names[] = {"allOf", "anyOf", "oneOf"};
    yyjson_val *list = schema_keyword(s, node, names[kind]), *item;
    struct scalars any = none(), one = none();
    size_t i, n;
    if (!list) return;
    if (!yyjson_is_arr(list)) {
        schema_fail(s, node, ERR_EARG, "%s must be a list", names[kind]);
        return;
    }
    yyjson_arr_foreach(list, i, n, item) {
        struct scalars y = *schema_scalars(s, schema_item(s, node, names[kind], i, item));
        if (s->code || s->g->pool.is_over) return;
        if (kind == ALL_OF) {
            gram_scalars_and(s, x, &y);
            continue;
        }
        if (kind == ONE_OF) { /* exactly one: those that had one and miss this, and those that had none and meet this */
            struct scalars not_y = gram_scalars_not(s, &y), fresh = gram_scalars_not(s, &any);
            gram_scalars_and(s, &one, &not_y);
            gram_scalars_and(s, &fresh, &y);
            scalars_or(s, &one, &fresh);
        }
        scalars_or(s, &any, &y);
    }
    if (kind != ALL_OF) gram_scalars_and(s, x, kind == ONE_OF ? &one : &any);
}

static void apply_if(struct schema *s, uint32_t node, struct scalars *x) {
    yyjson_val *test = schema_keyword(s, node, "if"), *then = schema_keyword(s, node, "then"), *other = schema_keyword(s, node, "else");
    if (!test || (!then && !other)) return;
    struct scalars holds = *schema_scalars(s, schema_child(s, node, "if", test)), fails = gram_scalars_not(s, &holds);
    if (then) and_child(s, schema_child(s, node, "then", then), &holds);
    if (other) and_child(s, schema_child(s, node, "else", other), &fails);
    scalars_or(s, &holds, &fails);
    gram_scalars_and(s, x, &holds);
}

static void apply_refs(struct schema *s, uint32_t node, struct scalars *x) {
    static const char *const names[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < 3; i++) {
        yyjson_val *ref = schema_keyword(s, node, names[i]);
        if (!ref) continue;
        uint32_t target = schema_target(s, node, names[i], ref);
        if (target != PROG_NONE) and_child(s, target, x);
    }
}

static void compute(struct schema *s, uint32_t node, struct scalars *x) {
    yyjson_val *v = s->nodes[node].v, *negated;
    if (s->nodes[node].kind == SNODE_VALUE) {
        *x = of_value(s, node, v);
        return;
    }
    *x = yyjson_is_false(v) ? none() : gram_scalars_all(s);
    if (!yyjson_is_obj(v)) {
        if (!yyjson_is_bool(v)) schema_fail(s, node, ERR_EARG, "a schema is an object or a boolean");
        return;
    }
    apply_type(s, node, x);
    apply_values(s, node, x);
    apply_numbers(s, node, x);
    apply_strings(s, node, x);
    apply_refs(s, node, x);
    for (int kind = ALL_OF; kind <= ONE_OF && !s->code; kind++) apply_list(s, node, (enum list_kind)kind, x);
    if ((negated = schema_keyword(s, node, "not"))) {
        struct scalars y = *schema_scalars(s, schema_child(s, node, "not", negated)), not_y = gram_scalars_not(s, &y);
        gram_scalars_and(s, x, &not_y);
    }
    apply_if(s, node, x);
}

enum { MAX_NESTING = 400 };

const struct scalars *schema_scalars(struct schema *s, uint32_t node) {
    static const struct scalars nothing;
    if (s->nesting > MAX_NESTING) schema_fail(s, node, ERR_ELIMIT, "subschemas are nested deeper than %d levels", (int)MAX_NESTING);
    if (s->code) return &nothing;
    if (s->nodes[node].visit == 1) {
        schema_fail(s, node, ERR_EARG, "the schema refers to itself without end");
        return &nothing;
    }
    if (s->nodes[node].visit == 0) {
        struct scalars x;
        s->nodes[node].visit = 1;
        s->nesting++;
        compute(s, node, &x);
        s->nesting--;
        s->nodes[node].visit = 2;
        s->nodes[node].scalars = x;
        if (s->g->pool.is_over) schema_fail(s, node, ERR_ELIMIT, "the schema takes too much work to compile");
    }
    return &s->nodes[node].scalars;
}

/* ---- kinds ------------------------------------------------------------------------------------------------------------- */

static unsigned value_kind(yyjson_val *v) {
    if (yyjson_is_obj(v)) return KIND_OBJECT;
    if (yyjson_is_arr(v)) return KIND_ARRAY;
    if (yyjson_is_str(v)) return KIND_STRING;
    if (yyjson_is_bool(v)) return KIND_BOOLEAN;
    return yyjson_is_null(v) ? KIND_NULL : KIND_NUMBER;
}

unsigned schema_kinds(struct schema *s, uint32_t node) {
    yyjson_val *v = s->nodes[node].v, *type, *list, *constant, *item;
    bool is_integer;
    size_t i, n;
    if (s->nodes[node].kind == SNODE_VALUE) return value_kind(v);
    if (!yyjson_is_obj(v)) return yyjson_is_false(v) ? 0 : KIND_ALL;
    unsigned kinds = KIND_ALL;
    if ((type = schema_keyword(s, node, "type"))) kinds &= type_kinds(s, node, type, &is_integer);
    if ((constant = schema_keyword(s, node, "const"))) kinds &= value_kind(constant);
    if ((list = schema_keyword(s, node, "enum")) && yyjson_is_arr(list)) {
        unsigned any = 0;
        yyjson_arr_foreach(list, i, n, item) any |= value_kind(item);
        kinds &= any;
    }
    return kinds;
}
