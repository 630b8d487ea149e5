/* The way of a request: Host, Origin, path, method, key, model; then worker and handler. */
#include "server/route.h"

#include "server/adapters.h"
#include "server/generate.h"
#include "server/server_internal.h"

#include "base/log.h"
#include "os/os.h"

#include <assert.h>

enum { BODY_DEPTH_MAX = 100 };

static const struct route *const route_tables[] = {
    routes_chat,        routes_anthropic, routes_responses,     routes_completions, routes_embeddings,      routes_models,
    routes_health,      routes_metrics,   routes_page,          routes_tokens,      routes_lcpp_completion, routes_lcpp_server,
    routes_lcpp_infill, routes_ollama,    routes_ollama_models, routes_rerank,      routes_ollama_store,    routes_lcpp_slots};
enum { N_ROUTE_TABLES = sizeof route_tables / sizeof *route_tables };

static bool method_is(const struct route *r, struct str method) {
    return str_is(method, r->method) || (str_is(method, "HEAD") && str_is(str_of(r->method), "GET"));
}

/* NULL when there is none; *out_allowed lists the methods of the path, empty when the path is unknown. */
static const struct route *find_route(const struct http_request *q, struct sb *out_allowed) {
    for (size_t f = 0; f < N_ROUTE_TABLES; f++)
        for (const struct route *r = route_tables[f]; r->path; r++) {
            if (!str_glob(str_of(r->path), q->path)) continue;
            if (method_is(r, q->method)) return r;
            sb_fmt(out_allowed, "%s%s", out_allowed->n ? ", " : "", r->method);
        }
    return NULL;
}

/* ---- calls ---------------------------------------------------------------------------------------------------------- */

static struct call *call_of(struct http_exchange *x) {
    return x->state;
}

static void on_gone(struct http_exchange *x) {
    struct call *c = call_of(x);
    if (!c->on_gone) return; /* a worker has it, and will see */
    c->on_gone(c);
    call_end(c);
}

static void on_drained(struct http_exchange *x) {
    struct call *c = call_of(x);
    if (c->on_drained) c->on_drained(c);
}

static struct call *call_create(struct server *s, struct http_exchange *x) {
    struct call *c = mem_alloc(sizeof *c);
    c->server = s;
    struct served *loaded = models_is_one(s) ? s->models : models_any(s);
    c->service = loaded ? loaded->service : NULL;
    c->settings = loaded ? &loaded->given->settings : NULL;
    c->exchange = x;
    c->work.data = c;
    c->wire = wire_of_path(x->request.path);
    c->begun_ns = os_clock_ns();
    c->error.request_id = server_new_id(s, &c->arena, "req_").p;
    sb_fmt(&x->headers, "request-id: %s\r\nx-request-id: %s\r\n", c->error.request_id, c->error.request_id);
    http_hold(x);
    x->state = c;
    x->on_gone = on_gone;
    x->on_drained = on_drained;
    c->next = s->calls;
    c->link = &s->calls;
    if (c->next) c->next->link = &c->next;
    s->calls = c;
    c->number = (uint64_t)++s->n_requests;
    return c;
}

/* Paths come from the table: what a client wrote does not go into the log. */
static void log_call(const struct call *c) {
    const struct http_exchange *x = c->exchange;
    log_line(c->route && (c->route->flags & ROUTE_WATCHED) ? LOG_DEBUG : LOG_INFO, "request %llu: %s %s, %d after %lld ms",
             (unsigned long long)c->number, x->request.method.p ? x->request.method.p : "-", c->route ? c->route->path : "-",
             (int)x->status, (long long)((os_clock_ns() - c->begun_ns) / 1000000));
}

void call_end(struct call *c) {
    struct http_exchange *x = c->exchange;
    log_call(c);
    models_leave(c);
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    if (x->status >= 100 && x->status < 600) c->server->n_answers[x->status / 100]++;
    x->state = NULL;
    x->on_gone = NULL;
    x->on_drained = NULL;
    arena_free(&c->arena);
    http_release(x);
    mem_free(c);
}

void call_reply(struct call *c, int32_t status, const char *type, struct str body) {
    c->exchange->on_gone = NULL; /* from here on nobody needs to know */
    c->exchange->on_drained = NULL;
    http_reply(c->exchange, status, type, body);
    call_end(c);
}

void call_reply_json(struct call *c, int32_t status, struct str json) {
    call_reply(c, status, "application/json", json);
}

void call_end_stream(struct call *c, struct str last) {
    c->exchange->on_gone = NULL;
    http_stream_write(c->exchange, last);
    http_stream_end(c->exchange);
    call_end(c);
}

void call_reply_error(struct call *c) {
    struct sb body = {0};
    assert(c->error.status);
    if (c->exchange->streaming) { /* the error is its last frame */
        c->wire->stream_error(&c->error, &body);
        call_end_stream(c, sb_str(&body));
        sb_free(&body);
        return;
    }
    if (c->error.status == 503) sb_puts(&c->exchange->headers, "Retry-After: 1\r\n");
    if (c->error.status == 401) sb_puts(&c->exchange->headers, "WWW-Authenticate: Bearer\r\n");
    c->wire->error(&c->error, &body);
    call_reply_json(c, c->error.status, sb_str(&body));
    sb_free(&body);
}

/* ---- workers -------------------------------------------------------------------------------------------------------- */

static int parse_body(struct call *c) {
    struct str text = sb_str(&c->exchange->request.body);
    struct err err;
    if (text.n == 0 && c->route->flags & ROUTE_TAKES_NOTHING) text = STR("{}");
    if (json_depth(text) > BODY_DEPTH_MAX) return api_fail(&c->error, 400, NULL, NULL, "the body is nested deeper than %d", BODY_DEPTH_MAX);
    if (json_parse(&c->arena, text, "body", JSON_STRICT, &c->body, &err))
        return api_fail(&c->error, 400, "invalid_json", NULL, "%s", err.msg);
    if (!yyjson_is_obj(c->body) && !(c->route->flags & ROUTE_TAKES_LIST && yyjson_is_arr(c->body)))
        return api_fail(&c->error, 400, "invalid_json", NULL, "the body must be a JSON object");
    return 0;
}

/* Its model is to be chosen when its JSON is read: there are several. */
static bool must_choose(const struct call *c) {
    return !c->model && !models_is_one(c->server) && !(c->route->flags & ROUTE_WITHOUT_MODEL);
}

static void on_work(uv_work_t *work) {
    struct call *c = work->data;
    if (!c->body && parse_body(c)) return;
    if (!must_choose(c) && !adapters_read(c)) c->route->prepare(c);
}

/* Also after a worker had the call: the device may be lost by then. */
static int check_model(struct call *c) {
    struct err err;
    if (!c->service) return api_fail(&c->error, 503, "no_model", NULL, "no model is loaded; a request that names one loads it");
    int code = service_check(c->service, &err);
    if (!code) return 0;
    return api_fail(&c->error, 503, code == ERR_EBUSY ? "model_loading" : "model_failed", NULL, "%s", err.msg);
}

/* The model that the request names; NULL: c->error says why there is none. */
static struct served *pick_model(struct call *c) {
    yyjson_val *name = json_get(c->body, "model");
    if (!name) name = json_get(c->body, "name"); /* as older clients of Ollama call it */
    struct str wanted = json_val_str(name);
    struct served *m = !name || yyjson_is_null(name) || wanted.p ? models_find(c->server, wanted) : NULL;
    if (m) return m;
    if (!wanted.p) api_fail(&c->error, 400, NULL, "model", "model must be the name of a model");
    else
        api_fail(&c->error, 404, "model_not_found", "model", "there is no model %.*s here; GET /v1/models lists them",
                 (int)(wanted.n > 100 ? 100 : wanted.n), wanted.p);
    return NULL;
}

static void on_worked(uv_work_t *work, int status) {
    struct call *c = work->data;
    struct served *m;
    (void)status;
    if (!c->exchange->conn) {
        call_end(c);
    } else if (c->error.status) {
        call_reply_error(c);
    } else if (must_choose(c)) {
        if (!(m = pick_model(c))) call_reply_error(c);
        else if (models_state(m) == SERVED_UNLOADED && c->wire->skips_model && c->wire->skips_model(c)) c->route->start(c);
        else models_ask(m, c);
    } else if (!(c->route->flags & ROUTE_WITHOUT_MODEL) && check_model(c)) {
        call_reply_error(c);
    } else {
        c->route->start(c);
    }
}

static void queue_work(struct call *c) {
    if (uv_queue_work(&c->server->loop, &c->work, on_work, on_worked) == 0) return;
    api_fail(&c->error, 503, NULL, NULL, "the server is busy");
    call_reply_error(c);
}

void route_go_on(struct call *c) {
    queue_work(c);
}

void route_ping(struct call *c) {
    struct sb out = {0};
    bool streams = c->route->start == generate_start && yyjson_get_bool(json_get(c->body, "stream"));
    if (!streams || !c->wire->ping) return;
    if (!c->exchange->streaming) http_stream_begin(c->exchange, 200, c->wire->stream_type);
    c->wire->ping(&out);
    http_stream_write(c->exchange, sb_str(&out));
    sb_free(&out);
}

/* ---- checks --------------------------------------------------------------------------------------------------------- */

/* So that a page that may ask can read the answer, whatever it is. */
static void put_cors(struct http_exchange *x) {
    struct str origin = http_header(&x->request, "origin");
    if (!origin.p) return;
    sb_puts(&x->headers, "Access-Control-Allow-Origin: ");
    sb_put(&x->headers, origin);
    sb_puts(&x->headers, "\r\nVary: Origin\r\n");
}

static void reply_preflight(struct call *c) {
    sb_puts(&c->exchange->headers,
            "Access-Control-Allow-Methods: GET, POST, DELETE, OPTIONS\r\nAccess-Control-Allow-Headers: *, Authorization, Content-Type\r\n"
            "Access-Control-Max-Age: 600\r\n");
    call_reply(c, 200, NULL, STR(""));
}

static bool host_ok(const struct server *s, const struct http_request *q) {
    struct str host = http_header(q, "host");
    return !host.p || guard_host_ok(s->guard, host);
}

static bool origin_ok(const struct server *s, const struct http_request *q) {
    struct str origin = http_header(q, "origin");
    return !origin.p || guard_origin_ok(s->guard, origin, http_header(q, "host"));
}

/* Where clients of OpenAI, of Anthropic and of Azure put the key. */
static bool key_ok(const struct server *s, const struct route *r, const struct http_request *q) {
    return r->flags & ROUTE_PUBLIC || guard_key_ok(s->guard, guard_bearer(http_header(q, "authorization"))) ||
           guard_key_ok(s->guard, http_header(q, "x-api-key")) || guard_key_ok(s->guard, http_header(q, "api-key"));
}

static bool has_key(const struct http_request *q) {
    return http_header(q, "authorization").p || http_header(q, "x-api-key").p || http_header(q, "api-key").p;
}

/* Nonzero: answered by c->error. */
static int check_caller(struct call *c) {
    const struct http_request *q = &c->exchange->request;
    if (!host_ok(c->server, q))
        return api_fail(
            &c->error, 403, "host_not_allowed", NULL,
            "the Host header names a host that is not served; allow it with --allowed-hosts, such as --allowed-hosts host.docker.internal");
    if (!origin_ok(c->server, q))
        return api_fail(
            &c->error, 403, "origin_not_allowed", NULL,
            "pages of this origin may not use the server; allow it with --cors-origins ORIGIN, or apps on this machine with --cors-origins apps");
    put_cors(c->exchange);
    return 0;
}

static int check_route(struct call *c) {
    const struct http_request *q = &c->exchange->request;
    struct sb allowed = {0};
    c->route = find_route(q, &allowed);
    if (!c->route && allowed.n) {
        sb_fmt(&c->exchange->headers, "Allow: %s%s, OPTIONS\r\n", allowed.p, strstr(allowed.p, "GET") ? ", HEAD" : "");
        api_fail(&c->error, 405, NULL, NULL, "the method is not allowed here; use %s", allowed.p);
    } else if (!c->route) {
        api_fail(&c->error, 404, "not_found", NULL, "there is no %.*s %.*s here; the API is under /v1, the chat page at /",
                 STR_ARG(q->method), (int)(q->path.n > 100 ? 100 : q->path.n), q->path.p);
    }
    sb_free(&allowed);
    if (!c->route) return -1;
    if (!key_ok(c->server, c->route, q))
        return api_fail(&c->error, 401, has_key(q) ? "invalid_api_key" : "missing_api_key", NULL,
                        "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    bool needs_none = c->route->flags & ROUTE_WITHOUT_MODEL || (c->route->flags & ROUTE_OF_ALL && !models_is_one(c->server));
    if (needs_none || (c->route->prepare && must_choose(c))) return 0;
    return check_model(c);
}

bool route_accepts(void *user, const struct http_request *q) {
    const struct server *s = user;
    struct sb allowed = {0};
    if (!host_ok(s, q) || !origin_ok(s, q)) return false;
    if (str_is(q->method, "OPTIONS")) return true;
    const struct route *r = find_route(q, &allowed);
    sb_free(&allowed);
    return r && key_ok(s, r, q);
}

static bool is_foreign_preflight(const struct call *c) {
    const struct http_request *q = &c->exchange->request;
    return str_is(q->method, "OPTIONS") && host_ok(c->server, q) && !origin_ok(c->server, q);
}

void route_handle(void *user, struct http_exchange *x) {
    struct server *s = user;
    struct call *c = call_create(s, x);
    if (is_foreign_preflight(c)) {
        call_reply(c, 200, NULL, STR("")); /* without a word of leave: the browser asks no further */
    } else if (check_caller(c)) {
        call_reply_error(c);
    } else if (str_is(x->request.method, "OPTIONS")) {
        reply_preflight(c);
    } else if (check_route(c)) {
        call_reply_error(c);
    } else if (!c->route->prepare) {
        c->route->start(c);
    } else {
        queue_work(c);
    }
}

void route_refuse(void *user, struct http_exchange *x, int32_t status, const char *why) {
    struct server *s = user;
    struct call *c = call_create(s, x);
    if (host_ok(s, &x->request) && origin_ok(s, &x->request)) put_cors(x);
    api_fail(&c->error, status, NULL, NULL, "%s", why);
    call_reply_error(c);
}
