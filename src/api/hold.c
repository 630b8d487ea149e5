/* What an answer is held to: a grammar or schema that was asked for, calls of tools, or both. */
#include "api/service.h"

#include "base/log.h"

static int pick_named(struct arena *a, struct str name, struct output_tools *tools, struct err *err) {
    for (size_t i = 0; i < tools->n; i++)
        if (str_eq(tools->p[i].name, name)) {
            *tools = (struct output_tools){arena_copy(a, &tools->p[i], sizeof *tools->p), 1};
            return ERR_OK;
        }
    return err_set(err, ERR_EARG, "\"%.*s\" is none of the tools", (int)(name.n > 60 ? 60 : name.n), name.p);
}

/* Calls, and beside them content by the schema; *out_has stays false where nothing can be said about calls. */
static int hold_calls(const struct service *s, struct arena *a, const struct service_wish *wish, const struct service_tools *t,
                      struct constraint_source *out, bool *out_has, const char **at, struct err *err) {
    bool is_named = t->name.n > 0; /* such a tool is called once */
    struct service_calls calls = {.in_parallel = !t->one_at_a_time && !is_named, .is_required = t->is_required || is_named};
    *at = wish->name;
    if (wish->name && wish->grammar.kind != GRAM_JSON_SCHEMA && wish->grammar.kind != GRAM_JSON_OBJECT)
        return err_set(err, ERR_EUNSUPPORTED, "%s and tools cannot be held both; leave one out", wish->name);
    if (wish->name && !calls.is_required)
        calls.content_schema = wish->grammar.kind == GRAM_JSON_OBJECT ? STR("{\"type\": \"object\"}") : wish->grammar.text;
    *at = "tools";
    TRY(output_tools_read(a, t->list, &calls.tools, err));
    *at = "tool_choice";
    if (is_named) TRY(pick_named(a, t->name, &calls.tools, err));
    *out_has = service_force_calls(s, a, &calls, out);
    if (*out_has || !calls.is_required) return ERR_OK;
    return err_set(err, ERR_EUNSUPPORTED, "calls in this model's format cannot be forced; use \"auto\"");
}

int service_hold(struct service *s, struct arena *a, const struct service_wish *wish, const struct service_tools *tools,
                 const struct constraint_source **out, const char **at, struct err *err) {
    struct constraint_source *source = arena_new(a, struct constraint_source, 1);
    struct sb warnings = {0};
    bool has = false;
    *out = NULL;
    if (tools->list) TRY(hold_calls(s, a, wish, tools, source, &has, at, err));
    if (!has && !wish->name) return ERR_OK;
    if (!has) source->grammar = wish->grammar;
    *at = wish->name ? wish->name : "tools";
    int code = service_prepare_constraint(s, source, &warnings, err);
    if (!code && warnings.n) log_warn("%s: %.*s", *at, (int)(warnings.n > 400 ? 400 : warnings.n), warnings.p);
    sb_free(&warnings);
    if (code == ERR_EMEMORY || (code && !source->trigger.n)) return err_prefix(err, "%s", *at);
    if (code) log_warn("tools: %s; the arguments of calls are not held to their schemas", err->msg); /* calls that may be made, or not */
    else *out = source;
    return ERR_OK;
}
