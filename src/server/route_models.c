/* GET /v1/models, /v1/models/NAME and /version. */
#include "server/server_internal.h"

#include "api/build.h"

#include <stdio.h>

/* What a request begins with. */
static void put_sampling(const struct sampler_params *p, struct jsonw *w) {
    jsonw_open(w, "sampling", '{');
    for (size_t i = 0; i < n_sampler_fields; i++) {
        char text[32];
        int n = snprintf(text, sizeof text, "%.6g", sampler_field_get(p, &sampler_fields[i]));
        jsonw_put_raw(w, sampler_fields[i].name, str_n(text, (size_t)n));
    }
    jsonw_end(w, '}');
}

static void put_model(struct call *c, struct jsonw *w) {
    const struct service_info *info = service_info(c->service);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", str_of(info->name));
    jsonw_put_str(w, "object", STR("model"));
    jsonw_put_int(w, "created", c->server->started);
    jsonw_put_str(w, "owned_by", STR("mlxcel"));
    jsonw_put_str(w, "root", str_of(info->name));
    jsonw_put_int(w, "max_model_len", info->context);
    jsonw_open(w, "meta", '{');
    jsonw_put_int(w, "n_vocab", info->vocab);
    jsonw_put_int(w, "n_ctx", info->context);
    if (info->kv_bits) jsonw_put_int(w, "kv_bits", info->kv_bits);
    put_sampling(&info->sampling, w);
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

/* Whether a part of a path is this name; "%2F" is a slash. */
static bool is_name(struct str path, const char *name) {
    for (; *name; name++) {
        char pair[4];
        snprintf(pair, sizeof pair, "%%%02x", (unsigned)(unsigned char)*name);
        bool is_plain = path.n && path.p[0] == *name;
        bool is_pair = path.n >= 3 && path.p[0] == '%' && (path.p[1] | 32) == (pair[1] | 32) && (path.p[2] | 32) == (pair[2] | 32);
        if (!is_plain && !is_pair) return false;
        path = str_from(path, is_plain ? 1 : 3);
    }
    return path.n == 0;
}

/* Requests are taken under any name; who asks for one by its name wants to know whether it is there. */
static void show_model(struct call *c) {
    struct str asked = str_from(c->exchange->request.path, strlen("/v1/models/"));
    const char *name = service_info(c->service)->name;
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    if (!is_name(asked, name)) {
        api_fail(&c->error, 404, "model_not_found", "model", "there is no model %.*s here; %s is served",
                 (int)(asked.n > 100 ? 100 : asked.n), asked.p, name);
        call_reply_error(c);
        return;
    }
    put_model(c, &w);
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

static void show_version(struct call *c) {
    struct build build;
    build_describe(&c->arena, &build);
    call_reply_json(c, 200, str_fmt(&c->arena, "{\"version\":\"%s\"}", build.version));
}

const struct route routes_models[] = {
    {"GET", "/version", ROUTE_WITHOUT_MODEL, NULL, show_version},
    {"GET", "/v1/models", 0, NULL, list_models},
    {"GET", "/models", 0, NULL, list_models},
    {"GET", "/v1/models/*", 0, NULL, show_model},
    {0},
};
