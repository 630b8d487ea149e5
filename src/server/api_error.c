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

/* What a client is told of an error of the layers below. Codes that are not here are 500, and their message is hidden: it may hold paths, and
 * the reason is the operator's business. */
enum shows { HIDDEN, MESSAGE, MESSAGE_AND_PARAM };
static const struct {
    int32_t status;
    const char *code; /* NULL: null */
    enum shows shows;
    const char *instead; /* of a hidden message; NULL: no more than that it failed, and the log has the reason */
} answers[N_ERR_CODES] = {
    [ERR_EARG] = {400, NULL, MESSAGE_AND_PARAM, NULL},
    [ERR_EUNSUPPORTED] = {400, NULL, MESSAGE_AND_PARAM, NULL},
    [ERR_ELIMIT] = {400, "context_length_exceeded", MESSAGE_AND_PARAM, NULL},
    [ERR_EBUSY] = {503, "server_busy", MESSAGE, NULL},
    [ERR_EMEMORY] = {503, "out_of_memory", HIDDEN, "the server has no memory left for this request"},
    [ERR_ENOTFOUND] = {404, NULL, HIDDEN, NULL},
    [ERR_ECANCELLED] = {499, NULL, HIDDEN, NULL},
    [ERR_ENETWORK] = {502, NULL, HIDDEN, NULL},
};

int api_fail_err(struct api_error *e, const struct err *err, const char *param) {
    int i = err->code > 0 && err->code < N_ERR_CODES ? err->code : ERR_EINTERNAL;
    int32_t status = answers[i].status ? answers[i].status : 500;
    if (answers[i].shows != HIDDEN)
        return api_fail(e, status, answers[i].code, answers[i].shows == MESSAGE_AND_PARAM ? param : NULL, "%s", err->msg);
    if (answers[i].instead) return api_fail(e, status, answers[i].code, NULL, "%s", answers[i].instead);
    log_warn("a request failed: %s", err->msg);
    return api_fail(e, status, NULL, NULL, "the request failed on the server");
}

void api_error_rename(struct api_error *e, const char *from, const char *to) {
    char rest[sizeof e->message];
    size_t n = strlen(from);
    if (strcmp(e->param, from) != 0) return;
    snprintf(e->param, sizeof e->param, "%s", to);
    if (strncmp(e->message, from, n) != 0) return;
    snprintf(rest, sizeof rest, "%s", e->message + n);
    snprintf(e->message, sizeof e->message, "%s%.240s", to, rest);
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
