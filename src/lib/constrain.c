/* What an answer is held to: a schema, a grammar, an expression, and tools that are called. */
#include "lib/lib_internal.h"

#include "base/log.h"

struct wish {
    const char *option; /* that asks for it; NULL: none does */
    struct gram_source grammar;
};

/* At most one option asks for something. */
static int read_wish(const mlxcel_job_options *o, struct wish *out, struct err *err) {
    const struct {
        const char *name, *text;
        enum gram_kind kind;
    } rows[] = {{"json_schema", o->json_schema, GRAM_JSON_SCHEMA},
                {"grammar", o->grammar, GRAM_GBNF},
                {"regex", o->regex, GRAM_REGEX},
                {"json_object", o->json_object ? "" : NULL, GRAM_JSON_OBJECT}};
    *out = (struct wish){0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].text) continue;
        if (out->option) return err_set(err, ERR_EARG, "%s and %s cannot be held both; leave one out", out->option, rows[i].name);
        *out = (struct wish){rows[i].name, {.kind = rows[i].kind, .text = str_of(rows[i].text)}};
    }
    return ERR_OK;
}

static int name_tool(struct arena *a, const char *name, struct output_tools *tools, struct err *err) {
    for (size_t i = 0; i < tools->n; i++)
        if (name && str_is(tools->p[i].name, name)) {
            *tools = (struct output_tools){arena_copy(a, &tools->p[i], sizeof *tools->p), 1};
            return ERR_OK;
        }
    return err_set(err, ERR_EARG, "tool_name is \"%.60s\", which is none of the tools", name ? name : "");
}

/* Calls, and beside them content by the schema; *out_has stays false where nothing can be said about calls. */
static int force_calls(struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, yyjson_val *list, const struct wish *wish,
                       struct constraint_source *out, bool *out_has, struct err *err) {
    bool is_named = o->tool_choice == MLXCEL_TOOLS_NAMED;
    struct service_calls calls = {.in_parallel = !o->one_call && !is_named, .is_required = o->tool_choice != MLXCEL_TOOLS_AUTO};
    if (wish->option && wish->grammar.kind != GRAM_JSON_SCHEMA && wish->grammar.kind != GRAM_JSON_OBJECT)
        return err_set(err, ERR_EUNSUPPORTED, "%s and tools cannot be held both; leave one out", wish->option);
    if (wish->option && !calls.is_required)
        calls.content_schema = wish->grammar.kind == GRAM_JSON_OBJECT ? STR("{\"type\": \"object\"}") : wish->grammar.text;
    TRY(output_tools_read(a, list, &calls.tools, err));
    if (is_named) TRY(name_tool(a, o->tool_name, &calls.tools, err));
    *out_has = service_force_calls(m->service, a, &calls, out);
    if (!*out_has && calls.is_required)
        return err_set(err, ERR_EUNSUPPORTED, "calls in this model's format cannot be forced; use MLXCEL_TOOLS_AUTO");
    return ERR_OK;
}

static int check_tools(const struct mlxcel_model *m, const mlxcel_job_options *o, yyjson_val *tools, struct err *err) {
    if (o->tool_choice < 0 || o->tool_choice > MLXCEL_TOOLS_NAMED) return err_set(err, ERR_EARG, "tool_choice is %d", o->tool_choice);
    if (!tools && o->tool_choice > MLXCEL_TOOLS_NONE) return err_set(err, ERR_EARG, "tool_choice asks for a call, and there are no tools");
    if (tools && !service_info(m->service)->format)
        return err_set(err, ERR_EUNSUPPORTED,
                       "this model's chat template shows no way to call tools; leave them out, or use MLXCEL_TOOLS_NONE");
    return ERR_OK;
}

int lib_constrain(struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, yyjson_val *tools, struct job_spec *spec,
                  struct err *err) {
    struct constraint_source *source = arena_new(a, struct constraint_source, 1);
    struct sb warnings = {0};
    struct wish wish;
    bool has = false;
    TRY(check_tools(m, o, tools, err));
    TRY(read_wish(o, &wish, err));
    if (tools) TRY(force_calls(m, a, o, tools, &wish, source, &has, err));
    if (!has && !wish.option) return ERR_OK;
    if (!has) source->grammar = wish.grammar;
    int code = service_prepare_constraint(m->service, source, &warnings, err);
    const char *who = wish.option ? wish.option : "tools";
    if (!code && warnings.n) log_warn("%s: %.*s", who, (int)(warnings.n > 400 ? 400 : warnings.n), warnings.p);
    sb_free(&warnings);
    if (code && !source->trigger.n) return err_prefix(err, "%s", who);
    if (code) log_warn("tools: %s; the arguments of calls are not held to their schemas", err->msg);
    else spec->constraint = source;
    return ERR_OK;
}
