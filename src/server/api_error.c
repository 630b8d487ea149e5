/* Errors of the API. */
#include "server/api_error.h"

#include "base/json.h"
#include "base/log.h"

#include <stdio.h>

static const char *type_of(int32_t status) {
    switch (status) {
    case 401:
    case 403: return "authentication_error";
    case 429: return "rate_limit_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
    }
}

int api_fail(struct api_error *e, int32_t status, const char *code, const char *param, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    e->status = status;
    e->type = type_of(status);
    e->code = code;
    return -1;
}

int api_fail_err(struct api_error *e, const struct err *err, const char *param) {
    int32_t status = err_http_status(err->code);
    switch (err->code) {
    case ERR_ELIMIT: return api_fail(e, 400, "context_length_exceeded", param, "%s", err->msg);
    case ERR_EARG:
    case ERR_EUNSUPPORTED: return api_fail(e, 400, NULL, param, "%s", err->msg);
    case ERR_EBUSY: return api_fail(e, 503, "server_busy", NULL, "%s", err->msg);
    case ERR_EMEMORY: return api_fail(e, 503, "out_of_memory", NULL, "the server has no memory left for this request");
    default: /* the reason is the operator's business */
        log_warn("a request failed: %s", err->msg);
        return api_fail(e, status < 400 ? 500 : status, NULL, NULL, "the request failed on the server");
    }
}

void api_error_json(const struct api_error *e, struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_open(&w, "error", '{');
    jsonw_put_str(&w, "message", str_of(e->message));
    jsonw_put_str(&w, "type", str_of(e->type));
    jsonw_key(&w, "param");
    if (e->param[0]) jsonw_str(&w, str_of(e->param));
    else jsonw_null(&w);
    jsonw_key(&w, "code");
    if (e->code) jsonw_str(&w, str_of(e->code));
    else jsonw_null(&w);
    jsonw_end(&w, '}');
    jsonw_end(&w, '}');
}
