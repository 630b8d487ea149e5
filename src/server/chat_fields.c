/* Fields on their way to a chat. */
#include "server/chat_fields.h"

#include "server/fields.h"

static int refuse(const struct chat_field *f, struct api_error *e) {
    return api_fail(e, 400, "unsupported_parameter", f->name, "%s is not supported here; %s%s", f->name,
                    f->instead ? "use " : "leave it out", f->instead ? f->instead : "");
}

int chat_fields_copy(struct jsonw *w, yyjson_val *body, const struct chat_field *rows, struct api_error *e) {
    yyjson_val *key, *val;
    size_t i, n;
    yyjson_obj_foreach(body, i, n, key, val) {
        const struct chat_field *f = rows;
        while (f->name && !str_is(json_val_str(key), f->name)) f++;
        if (f->kind == CHAT_FIELD_REFUSED && !fields_is_harmless(val, f->harmless)) return refuse(f, e);
        if (f->name) continue;
        jsonw_key_str(w, json_val_str(key));
        jsonw_val(w, val);
    }
    return 0;
}

void chat_fields_rename(struct api_error *e, const struct chat_field_name *names) {
    for (; names->chat; names++) api_error_rename(e, names->chat, names->here);
}
