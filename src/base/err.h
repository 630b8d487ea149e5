/* Errors: a code and one sentence that a user can act on.
 *
 * Fallible functions return int (0 or a code from the list below) and take `struct err *err` last; the struct lives on
 * the caller's stack. The message is written once, where the name and the numbers are known. Callers pass it on and may
 * put a prefix before it; they never add a second explanation. err may be NULL where nobody will read the message.
 */
#ifndef MLXCEL_BASE_ERR_H
#define MLXCEL_BASE_ERR_H

#include <stdarg.h>

enum err_code {
    ERR_OK = 0,
    ERR_EARG,         /* what was asked for is wrong */
    ERR_EFORMAT,      /* a file is not what it should be */
    ERR_EUNSUPPORTED, /* right, and not done here */
    ERR_ENOTFOUND,
    ERR_EIO,
    ERR_EMEMORY,
    ERR_ELIMIT, /* larger than allowed */
    ERR_EBUSY,
    ERR_ECANCELLED,
    ERR_ENETWORK,
    ERR_EDEVICE,
    ERR_EINTERNAL, /* a mistake of ours */
    N_ERR_CODES
};

enum { ERR_MESSAGE_BYTES = 480 };

struct err {
    int code;
    char msg[ERR_MESSAGE_BYTES];
};

#if defined(__GNUC__) && !defined(__clang__)
#define MLXCEL_PRINTF(fmt, first) __attribute__((format(gnu_printf, fmt, first))) /* %zu on every system */
#elif defined(__clang__)
#define MLXCEL_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define MLXCEL_PRINTF(fmt, first)
#endif

/* Writes the message and returns the code, so that `return err_set(err, ...)` is the whole failure path. */
int err_set(struct err *err, int code, const char *fmt, ...) MLXCEL_PRINTF(3, 4);
int err_vset(struct err *err, int code, const char *fmt, va_list args) MLXCEL_PRINTF(3, 0);

/* The same with "where: " before the message. */
int err_set_at(struct err *err, int code, const char *where, const char *fmt, ...) MLXCEL_PRINTF(4, 5);

/* Puts "prefix: " before an existing message; returns the code that is already there. */
int err_prefix(struct err *err, const char *fmt, ...) MLXCEL_PRINTF(2, 3);

void err_clear(struct err *err);

/* Passes a failure on when nothing is held that must be released. */
#define TRY(expr)                        \
    do {                                 \
        int try_code_ = (expr);          \
        if (try_code_) return try_code_; \
    } while (0)

#endif
