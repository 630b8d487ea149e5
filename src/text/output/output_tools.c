/* Tools of a request, and ids of calls. */
#include "text/output/formats.h"

static int read_tool(yyjson_val *item, size_t i, struct output_tool *out, struct err *err) {
    yyjson_val *inner = json_get(item, "function"), *schema;
    if (yyjson_is_obj(inner)) item = inner;
    out->name = json_str(item, "name", (struct str){0});
    schema = json_get(item, "parameters");
    if (!out->name.n) return err_set(err, ERR_EARG, "tools[%zu] has no function with a name", i);
    if (out->name.n > OUTPUT_NAME_BYTES) return err_set(err, ERR_EARG, "tools[%zu]: the name has more than %d bytes", i, OUTPUT_NAME_BYTES);
    if (schema && !yyjson_is_obj(schema) && !yyjson_is_null(schema))
        return err_set(err, ERR_EARG, "tools[%zu]: parameters must be a JSON schema", i);
    out->parameters = yyjson_is_obj(schema) ? schema : NULL;
    return ERR_OK;
}

int output_tools_read(struct arena *a, yyjson_val *list, struct output_tools *out, struct err *err) {
    yyjson_val *item;
    size_t i, n;
    *out = (struct output_tools){0};
    if (!list || yyjson_is_null(list)) return ERR_OK;
    if (!yyjson_is_arr(list)) return err_set(err, ERR_EARG, "tools must be a list of tools");
    struct output_tool *tools = arena_new(a, struct output_tool, yyjson_arr_size(list));
    yyjson_arr_foreach(list, i, n, item) TRY(read_tool(item, i, &tools[i], err));
    *out = (struct output_tools){tools, yyjson_arr_size(list)};
    return ERR_OK;
}

struct str output_make_id(struct arena *a, const struct output_format *f, struct str name, int32_t call, uint64_t random) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    char text[11] = {0};
    enum format_ids ids = f ? f->ids : IDS_PLAIN;
    if (ids == IDS_FUNCTIONS) return str_fmt(a, "functions.%.*s:%d", STR_ARG(name), (int)call);
    for (size_t i = 0; i < sizeof text - 1; i++, random /= 62) text[i] = letters[random % 62];
    return ids == IDS_NINE ? str_fmt(a, "%.9s", text) : str_fmt(a, "call_%s", text);
}
