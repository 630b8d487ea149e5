/* Errors: formatting of messages. */
#include "base/err.h"

#include <stdio.h>
#include <string.h>

int err_vset(struct err *err, int code, const char *fmt, va_list args) {
    if (!err) return code;
    err->code = code;
    vsnprintf(err->msg, sizeof err->msg, fmt, args);
    return code;
}

int err_set(struct err *err, int code, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    err_vset(err, code, fmt, args);
    va_end(args);
    return code;
}

int err_set_at(struct err *err, int code, const char *where, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    err_vset(err, code, fmt, args);
    va_end(args);
    err_prefix(err, "%s", where);
    return code;
}

int err_prefix(struct err *err, const char *fmt, ...) {
    if (!err) return ERR_EINTERNAL;
    char old[ERR_MESSAGE_BYTES];
    memcpy(old, err->msg, sizeof old);
    va_list args;
    va_start(args, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, args);
    va_end(args);
    size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof err->msg - n, ": %s", old);
    return err->code;
}

void err_clear(struct err *err) {
    if (!err) return;
    err->code = ERR_OK;
    err->msg[0] = '\0';
}
