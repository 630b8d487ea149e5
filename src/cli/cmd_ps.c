/* mlxcel ps and mlxcel stop: what a running server has loaded, and one of its models sent away. */
#include "base/json.h"
#include "cli/args.h"
#include "hub/http.h"
#include "server/server.h"

#include <stdio.h>

enum { ANSWER_BYTES = 16 << 20, STALL_S = 10 };

/* The first of --host, with --port unless it is a socket. */
static const char *url_of(const struct args *args, const char *path, const char **out_socket) {
    struct str host = args_str(args, OPT_HOST);
    host = str_trim(str_sub(host, 0, str_find_char(host, ',', 0)));
    struct str socket = server_socket_path(host);
    *out_socket = socket.p ? str_cstr(args->arena, socket) : NULL;
    if (socket.p) return str_fmt(args->arena, "http://localhost%s", path).p;
    bool is_any = str_is(host, "0.0.0.0") || str_is(host, "::"), is_v6 = !is_any && str_find_char(host, ':', 0) != STR_NONE;
    if (is_any) host = STR("127.0.0.1");
    return str_fmt(args->arena, "http://%s%.*s%s:%d%s", is_v6 ? "[" : "", STR_ARG(host), is_v6 ? "]" : "", (int)args_int(args, OPT_PORT),
                   path)
        .p;
}

/* One request to the server. body NULL: GET. */
static int ask(const struct args *args, const char *path, const char *body, yyjson_val **out, struct err *err) {
    struct http_options options = {.stall_s = STALL_S};
    const struct str *keys;
    size_t n_keys = args_strings(args, OPT_SERVER_KEY, &keys);
    const char *url = url_of(args, path, &options.socket);
    struct http_request q = {.url = url, .body = body, .token = n_keys ? str_cstr(args->arena, keys[0]) : NULL, .text_bytes = ANSWER_BYTES};
    struct http_reply reply = {0};
    struct http *h;
    TRY(http_open(&options, &h, err));
    int code = http_send(h, &q, &reply, err);
    if (code) err_prefix(err, "no server answers; start one with mlxcel serve, or name another with --host and --port");
    else code = json_parse(args->arena, str_copy(args->arena, sb_str(&reply.text)), "answer", JSON_STRICT, out, err);
    if (!code && reply.status != 200) {
        struct str why = json_str(json_get(*out, "error"), "message", STR("no reason was given"));
        code = err_set(err, ERR_EARG, "the server refused with status %d: %.*s", reply.status, STR_ARG(why));
    }
    http_reply_free(&reply);
    http_close(h);
    return code;
}

static void put_row(struct sb *out, yyjson_val *model) {
    yyjson_val *status = json_get(model, "status"), *meta = json_get(model, "meta");
    struct str id = json_str(model, "id", STR("?")), state = json_str(status, "value", STR("?"));
    struct str why = json_str(status, "error", (struct str){0});
    char context[24] = "-";
    int64_t n_context, n_requests = 0;
    json_val_int(json_get(status, "requests"), &n_requests);
    if (json_val_int(json_get(meta, "n_ctx"), &n_context)) snprintf(context, sizeof context, "%lld", (long long)n_context);
    sb_fmt(out, "%-44.*s %-9.*s %8s %8lld%s%.*s\n", STR_ARG(id), STR_ARG(state), context, (long long)n_requests, why.p ? "  " : "",
           STR_ARG(why));
}

int cmd_ps(const struct args *args, struct err *err) {
    yyjson_val *answer, *model;
    struct sb out = {0};
    size_t i, n;
    TRY(ask(args, "/v1/models", NULL, &answer, err));
    if (args_flag(args, OPT_JSON)) {
        struct jsonw w = {.out = &out};
        jsonw_val(&w, json_get(answer, "data"));
        sb_putc(&out, '\n');
    } else {
        sb_fmt(&out, "%-44s %-9s %8s %8s\n", "model", "state", "context", "requests");
        yyjson_arr_foreach(json_get(answer, "data"), i, n, model) put_row(&out, model);
    }
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

int cmd_stop(const struct args *args, struct err *err) {
    struct sb body = {0};
    struct jsonw w = {.out = &body};
    yyjson_val *answer;
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "model", args->operands[0]);
    jsonw_end(&w, '}');
    int code = ask(args, "/models/unload", body.p, &answer, err);
    sb_free(&body);
    return code;
}
