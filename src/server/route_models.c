/* GET /v1/models and /v1/models/NAME. */
#include "server/server_internal.h"

static void put_model(struct call *c, struct jsonw *w) {
    const struct service_info *info = service_info(c->service);
    jsonw_begin(w, '{');
    jsonw_key(w, "id");
    jsonw_str(w, str_of(info->name));
    jsonw_key(w, "object");
    jsonw_str(w, STR("model"));
    jsonw_key(w, "created");
    jsonw_int(w, c->server->started);
    jsonw_key(w, "owned_by");
    jsonw_str(w, STR("mlxcel"));
    jsonw_key(w, "meta");
    jsonw_begin(w, '{');
    jsonw_key(w, "n_vocab");
    jsonw_int(w, info->vocab);
    jsonw_key(w, "n_ctx");
    jsonw_int(w, info->context);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

static void list_models(struct call *c) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_key(&w, "object");
    jsonw_str(&w, STR("list"));
    jsonw_key(&w, "data");
    jsonw_begin(&w, '[');
    put_model(c, &w);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

/* The last part of the path is the model's name; any name is answered with the one that is served, as in requests. */
static void show_model(struct call *c) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    put_model(c, &w);
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

const struct route routes_models[] = {
    {"GET", "/v1/models", 0, NULL, list_models},
    {"GET", "/models", 0, NULL, list_models},
    {"GET", "/v1/models/*", 0, NULL, show_model},
    {0},
};
