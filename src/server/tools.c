/* Tools: tools, tool_choice and parallel_tool_calls of a request. */
#include "server/tools.h"

static int read_named(yyjson_val *choice, struct tools *out, struct api_error *e) {
    struct str name = json_str(json_get(choice, "function"), "name", json_str(choice, "name", (struct str){0}));
    if (!yyjson_is_obj(choice) || !name.p)
        return api_fail(e, 400, NULL, "tool_choice", "tool_choice must be none, auto, required, or an object that names a function");
    out->choice = TOOLS_NAMED;
    out->name = name;
    return 0;
}

static int read_choice(yyjson_val *body, struct tools *out, struct api_error *e) {
    static const char *const names[] = {"none", "auto", "required"};
    yyjson_val *choice = json_get(body, "tool_choice");
    struct str word = json_val_str(choice);
    out->choice = TOOLS_AUTO;
    if (!choice || yyjson_is_null(choice)) return 0;
    for (int i = 0; i < 3; i++)
        if (str_is(word, names[i])) {
            out->choice = (enum tool_choice)i;
            return 0;
        }
    return read_named(choice, out, e);
}

static int read_parallel(yyjson_val *body, struct tools *out, struct api_error *e) {
    yyjson_val *parallel = json_get(body, "parallel_tool_calls");
    if (!parallel || yyjson_is_null(parallel)) return 0;
    if (!yyjson_is_bool(parallel)) return api_fail(e, 400, NULL, "parallel_tool_calls", "parallel_tool_calls must be true or false");
    out->one_at_a_time = !yyjson_get_bool(parallel);
    return 0;
}

static bool knows(const struct output_tools *tools, struct str name) {
    for (size_t i = 0; i < tools->n; i++)
        if (str_eq(tools->p[i].name, name)) return true;
    return false;
}

static int check_list(struct arena *a, const struct tools *t, struct api_error *e) {
    struct output_tools tools;
    struct err err;
    if (output_tools_read(a, t->list, &tools, &err)) return api_fail(e, 400, NULL, "tools", "%s", err.msg);
    if (t->choice == TOOLS_NAMED && !knows(&tools, t->name))
        return api_fail(e, 400, NULL, "tool_choice", "tool_choice names \"%.*s\", which is none of the tools",
                        (int)(t->name.n > 60 ? 60 : t->name.n), t->name.p);
    return 0;
}

int tools_read(struct arena *a, yyjson_val *body, const struct service_info *info, struct tools *out, struct api_error *e) {
    yyjson_val *list = json_get(body, "tools");
    *out = (struct tools){.choice = TOOLS_NONE};
    if (read_choice(body, out, e) || read_parallel(body, out, e)) return -1;
    if (list && !yyjson_is_null(list) && !yyjson_is_arr(list)) return api_fail(e, 400, NULL, "tools", "tools must be a list of functions");
    bool is_empty = yyjson_arr_size(list) == 0;
    if (is_empty && out->choice > TOOLS_AUTO)
        return api_fail(e, 400, NULL, "tool_choice", "tool_choice asks for a call, and there are no tools");
    if (is_empty || out->choice == TOOLS_NONE) return 0;
    out->list = list;
    if (check_list(a, out, e)) return -1;
    if (!info->format)
        return api_fail(e, 400, "unsupported_parameter", "tools",
                        "this model's chat template shows no way to call tools; leave them out, or set tool_choice to \"none\"");
    return 0;
}

void tools_apply(struct arena *a, const struct tools *t, const struct service_info *info, struct job_spec *job) {
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    job->format = info->format;
    job->reasoning = info->reasoning;
    if (!t->list) return;
    jsonw_val(&w, t->list);
    job->tools = str_copy(a, sb_str(&text));
    job->takes_calls = true;
    job->one_call = t->one_at_a_time;
    sb_free(&text);
}
