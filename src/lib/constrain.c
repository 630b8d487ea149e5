/* What an answer is held to: a schema, a grammar, an expression, and tools that are called. */
#include "lib/lib_internal.h"

/* At most one option asks for something. */
static int read_wish(const mlxcel_job_options *o, struct service_wish *out, struct err *err) {
    const struct {
        const char *name, *text;
        enum gram_kind kind;
    } rows[] = {{"json_schema", o->json_schema, GRAM_JSON_SCHEMA},
                {"grammar", o->grammar, GRAM_GBNF},
                {"regex", o->regex, GRAM_REGEX},
                {"json_object", o->json_object ? "" : NULL, GRAM_JSON_OBJECT}};
    *out = (struct service_wish){0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].text) continue;
        if (out->name) return err_set(err, ERR_EARG, "%s and %s cannot be held both; leave one out", out->name, rows[i].name);
        *out = (struct service_wish){rows[i].name, {.kind = rows[i].kind, .text = str_of(rows[i].text)}};
    }
    return ERR_OK;
}

static int check_tools(const struct mlxcel_model *m, const mlxcel_job_options *o, yyjson_val *tools, struct err *err) {
    if (o->tool_choice < 0 || o->tool_choice > MLXCEL_TOOLS_NAMED) return err_set(err, ERR_EARG, "tool_choice is %d", o->tool_choice);
    if (!tools && o->tool_choice > MLXCEL_TOOLS_NONE) return err_set(err, ERR_EARG, "tool_choice asks for a call, and there are no tools");
    if (o->tool_choice == MLXCEL_TOOLS_NAMED && !(o->tool_name && *o->tool_name))
        return err_set(err, ERR_EARG, "tool_choice is MLXCEL_TOOLS_NAMED, and tool_name is empty");
    if (tools && !service_info(m->service)->format)
        return err_set(err, ERR_EUNSUPPORTED,
                       "this model's chat template shows no way to call tools; leave them out, or use MLXCEL_TOOLS_NONE");
    return ERR_OK;
}

int lib_constrain(struct mlxcel_model *m, struct arena *a, const mlxcel_job_options *o, yyjson_val *list, struct job_spec *spec,
                  struct err *err) {
    struct service_wish wish;
    const char *at;
    TRY(check_tools(m, o, list, err));
    TRY(read_wish(o, &wish, err));
    struct service_tools tools = {.list = list,
                                  .name = o->tool_choice == MLXCEL_TOOLS_NAMED ? str_of(o->tool_name) : (struct str){0},
                                  .is_required = o->tool_choice != MLXCEL_TOOLS_AUTO,
                                  .one_at_a_time = o->one_call != 0};
    return service_hold(m->service, a, &wish, &tools, &spec->constraint, &at, err);
}
