/* Constraints from requests. At most one field may ask for one; tools go together with any schema. */
#include "server/constrain.h"

#include "base/log.h"

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

/* ---- tools -------------------------------------------------------------------------------------------------------------- */

static struct output_tools named_alone(struct arena *a, struct output_tools all, struct str name) {
    for (size_t i = 0; i < all.n; i++)
        if (str_eq(all.p[i].name, name)) return (struct output_tools){arena_copy(a, &all.p[i], sizeof *all.p), 1};
    return all;
}

/* Calls, and beside them content by the request's schema; *out stays as it is where nothing can be said about calls. */
static int add_calls(struct arena *a, const struct service *service, const struct tools *t, const struct wish *wish,
                     struct constraint_source *out, bool *out_has, struct api_error *e) {
    /* a tool that is named is called once */
    struct service_calls calls = {.in_parallel = !t->one_at_a_time && t->choice != TOOLS_NAMED, .is_required = t->choice > TOOLS_AUTO};
    struct err err;
    if (wish->param && wish->kind != GRAM_JSON_SCHEMA && wish->kind != GRAM_JSON_OBJECT)
        return api_fail(e, 400, "unsupported_value", wish->param, "%s and tools cannot be held both; leave one out", wish->param);
    if (wish->param && !calls.is_required)
        calls.content_schema = wish->kind == GRAM_JSON_OBJECT ? STR("{\"type\": \"object\"}") : wish->text;
    if (output_tools_read(a, t->list, &calls.tools, &err)) return api_fail(e, 400, NULL, "tools", "%s", err.msg);
    if (t->choice == TOOLS_NAMED) calls.tools = named_alone(a, calls.tools, t->name);
    if (service_force_calls(service, a, &calls, out)) *out_has = true;
    else if (calls.is_required)
        return api_fail(e, 400, "unsupported_value", "tool_choice", "calls in this model's format cannot be forced; use \"auto\"");
    return 0;
}

int constrain_read(struct arena *a, yyjson_val *body, struct service *service, const struct tools *t, struct params *p,
                   struct api_error *e) {
    struct wish wish = {0};
    struct constraint_source source = {0};
    struct sb warnings = {0};
    struct err err;
    bool has = false;
    if (read_rows(a, body, rows, NULL, &wish, e)) return -1;
    if (t && t->list && add_calls(a, service, t, &wish, &source, &has, e)) return -1;
    if (!has && !wish.param) return 0;
    if (!has) source.grammar = (struct gram_source){.kind = wish.kind, .text = wish.text};
    int code = service_prepare_constraint(service, &source, &warnings, &err);
    if (!code && warnings.n)
        log_warn("%s: %.*s", wish.param ? wish.param : "tools", (int)(warnings.n > 400 ? 400 : warnings.n), warnings.p);
    sb_free(&warnings);
    if (code == ERR_EMEMORY) return api_fail_err(e, &err, wish.param);
    if (code && !source.trigger.n) {
        const char *param = wish.param ? wish.param : "tools";
        return api_fail(e, 400, code == ERR_EUNSUPPORTED || code == ERR_ELIMIT ? "unsupported_value" : NULL, param, "%s: %s", param,
                        err.msg);
    }
    if (code) { /* calls that may be made, or not */
        log_warn("tools: %s; the arguments of calls are not held to their schemas", err.msg);
        return 0;
    }
    struct constraint_source *kept = arena_new(a, struct constraint_source, 1);
    *kept = source;
    p->job.constraint = kept;
    return 0;
}
