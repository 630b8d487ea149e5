/* Constraints from requests. At most one field may ask for one; tools go together with any schema. */
#include "server/constrain.h"

/* What a request asks for. */
struct wish {
    const char *param; /* the field; NULL: nothing is asked for */
    enum gram_kind kind;
    struct str text;
};

typedef int read_fn(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e);

static int wrong(struct api_error *e, const char *param, const char *what) {
    return api_fail(e, 400, NULL, param, "%s must be %s", param, what);
}

/* A schema as an object, or as a text that holds one. */
static int read_schema(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e) {
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    *out = (struct wish){param, GRAM_JSON_SCHEMA, json_val_str(val)};
    if (out->text.p) return 0;
    if (!yyjson_is_obj(val) && !yyjson_is_bool(val)) return wrong(e, param, "a JSON schema");
    jsonw_val(&w, val);
    out->text = str_copy(a, sb_str(&text));
    sb_free(&text);
    return 0;
}

static int read_text(yyjson_val *val, const char *param, enum gram_kind kind, const char *what, struct wish *out, struct api_error *e) {
    *out = (struct wish){param, kind, json_val_str(val)};
    return out->text.p ? 0 : wrong(e, param, what);
}

static int read_grammar(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e) {
    (void)a;
    return read_text(val, param, GRAM_GBNF, "a grammar in GBNF", out, e);
}

static int read_regex(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e) {
    (void)a;
    return read_text(val, param, GRAM_REGEX, "a regular expression", out, e);
}

static int read_choice(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e) {
    yyjson_val *item;
    size_t i, n;
    if (!yyjson_is_arr(val) || yyjson_arr_size(val) == 0) return wrong(e, param, "a list of strings");
    struct str *choices = arena_new(a, struct str, yyjson_arr_size(val));
    yyjson_arr_foreach(val, i, n, item) {
        if (!yyjson_is_str(item)) return wrong(e, param, "a list of strings");
        choices[i] = json_val_str(item);
    }
    *out = (struct wish){param, GRAM_GBNF, service_choice_grammar(a, choices, n)};
    return 0;
}

static int read_object(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e) {
    (void)a;
    if (!yyjson_is_bool(val)) return wrong(e, param, "true or false");
    *out = (struct wish){yyjson_get_bool(val) ? param : NULL, GRAM_JSON_OBJECT, STR("")};
    return 0;
}

/* {"type": "text" | "json_object" | "json_schema", ...}; the schema stands in json_schema.schema, or beside the type. */
static int read_format(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e) {
    struct str type = json_str(val, "type", (struct str){0});
    yyjson_val *inner = json_get(val, "json_schema"), *schema = json_get(inner, "schema");
    if (!type.p) return api_fail(e, 400, NULL, param, "response_format must be an object with a type");
    if (!schema) schema = json_get(val, "schema");
    if (str_is(type, "text")) return 0;
    if (str_is(type, "json_object") && !schema) {
        *out = (struct wish){param, GRAM_JSON_OBJECT, STR("")};
        return 0;
    }
    if (!str_is(type, "json_schema") && !str_is(type, "json_object"))
        return api_fail(e, 400, "unsupported_value", param, "response_format %.*s is not supported; use text, json_object or json_schema",
                        (int)(type.n > 40 ? 40 : type.n), type.p);
    if (!schema) return api_fail(e, 400, NULL, param, "response_format json_schema needs json_schema.schema");
    return read_schema(a, schema, param, out, e);
}

struct row {
    const char *name;
    read_fn *read;
};

static const struct row inner_rows[] = {{"json", read_schema},     {"regex", read_regex},        {"choice", read_choice},
                                        {"grammar", read_grammar}, {"json_object", read_object}, {0}};

static bool is_empty(yyjson_val *val) {
    return !val || yyjson_is_null(val) || (yyjson_is_str(val) && yyjson_get_len(val) == 0);
}

static int read_rows(struct arena *a, yyjson_val *body, const struct row *rows, const char *param, struct wish *out, struct api_error *e) {
    for (const struct row *r = rows; r->name; r++) {
        yyjson_val *val = json_get(body, r->name);
        struct wish wish = {0};
        if (is_empty(val)) continue;
        if (r->read(a, val, param ? param : r->name, &wish, e)) return -1;
        if (!wish.param) continue;
        if (out->param) return api_fail(e, 400, NULL, wish.param, "%s and %s cannot be held both; leave one out", out->param, r->name);
        *out = wish;
    }
    return 0;
}

/* vLLM's object of one of several kinds. */
static int read_structured(struct arena *a, yyjson_val *val, const char *param, struct wish *out, struct api_error *e) {
    yyjson_val *key, *member;
    size_t i, n;
    if (!yyjson_is_obj(val)) return wrong(e, param, "an object");
    yyjson_obj_foreach(val, i, n, key, member) {
        bool is_known = is_empty(member) || yyjson_is_false(member);
        for (const struct row *r = inner_rows; r->name; r++) is_known |= str_is(json_val_str(key), r->name);
        if (!is_known) return api_fail(e, 400, "unsupported_value", param, "%s.%.40s is not supported", param, yyjson_get_str(key));
    }
    return read_rows(a, val, inner_rows, param, out, e);
}

static const struct row rows[] = {{"response_format", read_format},
                                  {"json_schema", read_schema},
                                  {"grammar", read_grammar},
                                  {"guided_json", read_schema},
                                  {"guided_regex", read_regex},
                                  {"guided_choice", read_choice},
                                  {"guided_grammar", read_grammar},
                                  {"structured_outputs", read_structured},
                                  {0}};

int constrain_read(struct arena *a, yyjson_val *body, struct service *service, const struct tools *t, struct params *p,
                   struct api_error *e) {
    struct wish wish = {0};
    struct err err;
    const char *at = NULL;
    if (read_rows(a, body, rows, NULL, &wish, e)) return -1;
    struct service_wish held = {wish.param, {.kind = wish.kind, .text = wish.text}};
    struct service_tools tools = {0};
    if (t)
        tools = (struct service_tools){.list = t->list,
                                       .name = t->choice == TOOLS_NAMED ? t->name : (struct str){0},
                                       .is_required = t->choice > TOOLS_AUTO,
                                       .one_at_a_time = t->one_at_a_time};
    int code = service_hold(service, a, &held, &tools, &p->job.constraint, &at, &err);
    if (code == ERR_EMEMORY) return api_fail_err(e, &err, at);
    if (code) return api_fail(e, 400, code == ERR_EUNSUPPORTED || code == ERR_ELIMIT ? "unsupported_value" : NULL, at, "%s", err.msg);
    return 0;
}
