/* GET /v1/models and /v1/models/NAME. */
#include "server/server_internal.h"

static void put_model(struct call *c, struct jsonw *w) {
    const struct service_info *info = service_info(c->service);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", str_of(info->name));
    jsonw_put_str(w, "object", STR("model"));
    jsonw_put_int(w, "created", c->server->started);
    jsonw_put_str(w, "owned_by", STR("mlxcel"));
    jsonw_open(w, "meta", '{');
    jsonw_put_int(w, "n_vocab", info->vocab);
    jsonw_put_int(w, "n_ctx", info->context);
    if (info->kv_bits) jsonw_put_int(w, "kv_bits", info->kv_bits);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

static void list_models(struct call *c) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "object", STR("list"));
    jsonw_open(&w, "data", '[');
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
