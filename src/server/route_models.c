/* GET /v1/models, /v1/models/NAME and /version; POST /models/load and /models/unload. */
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

/* What is known of a model that is loaded. */
static void put_meta(const struct service_info *info, struct jsonw *w) {
    jsonw_open(w, "meta", '{');
    jsonw_put_int(w, "n_vocab", info->vocab);
    jsonw_put_int(w, "n_ctx", info->context);
    if (info->kv_bits) jsonw_put_int(w, "kv_bits", info->kv_bits);
    put_sampling(&info->sampling, w);
    jsonw_end(w, '}');
}

static struct str name_of(const struct served *m) {
    return m->name.n ? sb_str(&m->name) : str_of(service_info(m->service)->name);
}

static void put_model(struct call *c, const struct served *m, struct jsonw *w) {
    enum models_state state = models_state(m);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", name_of(m));
    jsonw_put_str(w, "object", STR("model"));
    jsonw_put_int(w, "created", c->server->started);
    jsonw_put_str(w, "owned_by", STR("mlxcel"));
    jsonw_put_str(w, "type", STR("model")); /* Anthropic's names; an unknown date is the epoch there */
    jsonw_put_str(w, "display_name", name_of(m));
    jsonw_put_str(w, "created_at", STR("1970-01-01T00:00:00Z"));
    jsonw_open(w, "status", '{');
    jsonw_put_str(w, "value", str_of(models_state_names[state]));
    if (m->why.code) jsonw_put_str(w, "error", str_of(m->why.msg));
    jsonw_put_int(w, "requests", m->n_calls);
    jsonw_end(w, '}');
    jsonw_put_str(w, "root", name_of(m));
    jsonw_open(w, "aliases", '[');
    for (size_t i = 0; i < m->given->n_aliases; i++) jsonw_str(w, m->given->aliases[i]);
    jsonw_end(w, ']');
    if (state == SERVED_LOADED) jsonw_put_int(w, "max_model_len", service_info(m->service)->context);
    if (state == SERVED_LOADED) put_meta(service_info(m->service), w);
    jsonw_end(w, '}');
}

/* An adapter of a model that is loaded, as a model of its own. */
static void put_adapter(struct call *c, const struct served *m, const struct session_adapter *a, struct jsonw *w) {
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", str_of(a->name));
    jsonw_put_str(w, "object", STR("model"));
    jsonw_put_int(w, "created", c->server->started);
    jsonw_put_str(w, "owned_by", STR("mlxcel"));
    jsonw_put_str(w, "type", STR("model"));
    jsonw_put_str(w, "display_name", str_of(a->name));
    jsonw_put_str(w, "created_at", STR("1970-01-01T00:00:00Z"));
    jsonw_put_str(w, "root", str_of(a->path));
    jsonw_put_str(w, "parent", name_of(m));
    jsonw_put_int(w, "max_model_len", service_info(m->service)->context);
    jsonw_end(w, '}');
}

static int32_t n_adapters(const struct served *m) {
    return models_state(m) == SERVED_LOADED ? service_info(m->service)->n_adapters : 0;
}

static void list_models(struct call *c) {
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "object", STR("list"));
    jsonw_open(&w, "data", '[');
    const struct served *last = NULL;
    for (const struct served *m = models_first(c->server); m; m = models_next(last = m)) {
        put_model(c, m, &w);
        for (int32_t i = 0; i < n_adapters(m); i++) put_adapter(c, m, &service_info(m->service)->adapters[i], &w);
    }
    jsonw_end(&w, ']');
    jsonw_put_str(&w, "first_id", name_of(models_first(c->server)));
    jsonw_put_str(&w, "last_id", name_of(last));
    jsonw_put_bool(&w, "has_more", false);
    jsonw_end(&w, '}');
    call_reply_json(c, 200, sb_str(&out));
    sb_free(&out);
}

/* Whether a part of a path is this name; "%2F" is a slash. */
static bool is_name(struct str path, struct str name) {
    for (size_t i = 0; i < name.n; i++) {
        char pair[4];
        snprintf(pair, sizeof pair, "%%%02x", (unsigned)(unsigned char)name.p[i]);
        bool is_plain = path.n && path.p[0] == name.p[i];
        bool is_pair = path.n >= 3 && path.p[0] == '%' && (path.p[1] | 32) == (pair[1] | 32) && (path.p[2] | 32) == (pair[2] | 32);
        if (!is_plain && !is_pair) return false;
        path = str_from(path, is_plain ? 1 : 3);
    }
    return path.n == 0;
}

/* A server of one model takes requests under any name; who asks for one by its name wants to know whether it is there. */
static void show_model(struct call *c) {
    struct str asked = str_from(c->exchange->request.path, strlen("/v1/models/"));
    struct server *s = c->server;
    struct sb out = {0};
    struct jsonw w = {.out = &out};
    for (const struct served *m = models_first(s); m && out.n == 0; m = models_next(m))
        if (is_name(asked, name_of(m))) put_model(c, m, &w);
    for (const struct served *m = models_first(s); m && out.n == 0; m = models_next(m))
        for (int32_t i = 0; i < n_adapters(m) && out.n == 0; i++)
            if (is_name(asked, str_of(service_info(m->service)->adapters[i].name)))
                put_adapter(c, m, &service_info(m->service)->adapters[i], &w);
    if (out.n) {
        call_reply_json(c, 200, sb_str(&out));
    } else {
        api_fail(&c->error, 404, "model_not_found", "model", "there is no model %.*s here; GET /v1/models lists what is served",
                 (int)(asked.n > 100 ? 100 : asked.n), asked.p);
        call_reply_error(c);
    }
    sb_free(&out);
}

static void show_version(struct call *c) {
    struct build build;
    build_describe(&c->arena, &build);
    call_reply_json(c, 200, str_fmt(&c->arena, "{\"version\":\"%s\"}", build.version));
}

/* ---- loading and unloading by hand -------------------------------------------------------------------------------------- */

static int read_nothing(struct call *c) {
    (void)c;
    return 0;
}

/* The call waited until the model that it names was there. */
static void say_loaded(struct call *c) {
    call_reply_json(c, 200, STR("{\"success\":true}"));
}

static void unload_model(struct call *c) {
    struct str name = json_str(c->body, "model", (struct str){0});
    struct served *m = name.p ? models_find(c->server, name) : NULL;
    if (models_is_one(c->server)) {
        api_fail(&c->error, 400, NULL, "model", "the server has one model, and it stays loaded");
    } else if (!m) {
        api_fail(&c->error, name.p ? 404 : 400, "model_not_found", "model", "name one of the models that GET /v1/models lists");
    } else {
        models_unload(m);
        say_loaded(c);
        return;
    }
    call_reply_error(c);
}

const struct route routes_models[] = {
    {"GET", "/version", ROUTE_WITHOUT_MODEL, NULL, show_version},
    {"GET", "/v1/models", ROUTE_OF_ALL, NULL, list_models},
    {"GET", "/models", ROUTE_OF_ALL, NULL, list_models},
    {"GET", "/v1/models/*", ROUTE_OF_ALL, NULL, show_model},
    {"POST", "/models/load", 0, read_nothing, say_loaded},
    {"POST", "/models/unload", ROUTE_WITHOUT_MODEL, read_nothing, unload_model},
    {0},
};
