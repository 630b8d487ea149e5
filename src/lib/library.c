/* Version, errors, options and log: what every part of the library needs. */
#include "lib/lib_internal.h"

#include "base/log.h"

#include <stdatomic.h>
#include <stdio.h>

enum { STRUCT_BYTES_MAX = 1 << 16 };

const char *mlxcel_version(void) {
    return MLXCEL_VERSION;
}

int32_t mlxcel_abi(void) {
    return MLXCEL_ABI;
}

void mlxcel_free(void *memory) {
    mem_free(memory);
}

/* ---- errors ------------------------------------------------------------------------------------------------------------- */

/* Codes of the interface are those of base/err.h. */
_Static_assert(MLXCEL_E_ARG == (int)ERR_EARG && MLXCEL_E_FORMAT == (int)ERR_EFORMAT && MLXCEL_E_UNSUPPORTED == (int)ERR_EUNSUPPORTED &&
                   MLXCEL_E_NOTFOUND == (int)ERR_ENOTFOUND && MLXCEL_E_IO == (int)ERR_EIO && MLXCEL_E_MEMORY == (int)ERR_EMEMORY &&
                   MLXCEL_E_LIMIT == (int)ERR_ELIMIT && MLXCEL_E_BUSY == (int)ERR_EBUSY && MLXCEL_E_CANCELLED == (int)ERR_ECANCELLED &&
                   MLXCEL_E_NETWORK == (int)ERR_ENETWORK && MLXCEL_E_DEVICE == (int)ERR_EDEVICE &&
                   MLXCEL_E_INTERNAL == (int)ERR_EINTERNAL && MLXCEL_E_INTERNAL + 1 == (int)N_ERR_CODES,
               "codes that programs were compiled with never change");
_Static_assert(sizeof((mlxcel_error){0}.message) >= ERR_MESSAGE_BYTES, "every message fits");

const char *mlxcel_code_text(int32_t code) {
    static const char *const texts[] = {
        [MLXCEL_OK] = "success",
        [MLXCEL_E_ARG] = "wrong argument",
        [MLXCEL_E_FORMAT] = "malformed file",
        [MLXCEL_E_UNSUPPORTED] = "not supported",
        [MLXCEL_E_NOTFOUND] = "not found",
        [MLXCEL_E_IO] = "input or output failed",
        [MLXCEL_E_MEMORY] = "out of memory",
        [MLXCEL_E_LIMIT] = "larger than allowed",
        [MLXCEL_E_BUSY] = "busy",
        [MLXCEL_E_CANCELLED] = "cancelled",
        [MLXCEL_E_NETWORK] = "network failed",
        [MLXCEL_E_DEVICE] = "device failed",
        [MLXCEL_E_INTERNAL] = "internal mistake",
    };
    return code >= 0 && code <= MLXCEL_E_INTERNAL ? texts[code] : "unknown code";
}

int32_t lib_result(mlxcel_error *out, int code, const struct err *err) {
    if (!out) return code;
    out->code = code;
    snprintf(out->message, sizeof out->message, "%s", code ? err->msg : "");
    return code;
}

/* ---- log ---------------------------------------------------------------------------------------------------------------- */

static struct {
    mlxcel_log_fn fn;
    void *user;
} listener;
static atomic_bool is_set; /* somebody said what is to be logged */

static void on_line(enum log_level level, const char *line, void *user) {
    (void)user;
    if (listener.fn) listener.fn(listener.user, (int32_t)level, line);
}

void mlxcel_log_set(int32_t level, mlxcel_log_fn fn, void *user) {
    atomic_store(&is_set, true);
    listener.fn = fn;
    listener.user = user;
    log_set_sink(fn || level < 0 ? on_line : NULL, NULL);
    log_set_level(level < 0 ? LOG_ERROR : level > LOG_DEBUG ? LOG_DEBUG : (enum log_level)level);
}

int lib_begin(struct err *err) {
    if (!atomic_exchange(&is_set, true)) log_set_level(LOG_WARN);
    return mem_reserve() ? ERR_OK : err_set(err, ERR_EMEMORY, "the memory is used up; nothing new is begun before some of it is free");
}

/* ---- options ------------------------------------------------------------------------------------------------------------ */

static size_t size_of(const void *options) {
    size_t n;
    memcpy(&n, options, sizeof n);
    return n;
}

int lib_options_read(void *full, size_t full_bytes, const void *given, const char *name, struct err *err) {
    if (!given) return ERR_OK;
    size_t n = size_of(given);
    if (n < sizeof n || n > STRUCT_BYTES_MAX)
        return err_set(err, ERR_EARG, "%s: struct_size is %zu; fill the struct by %s_init before anything else", name, n, name);
    for (size_t i = full_bytes; i < n; i++)
        if (((const unsigned char *)given)[i])
            return err_set(err, ERR_EUNSUPPORTED, "%s has an option that libmlxcel %s does not know; use a newer library", name,
                           MLXCEL_VERSION);
    memcpy(full, given, n < full_bytes ? n : full_bytes);
    memcpy(full, &full_bytes, sizeof full_bytes);
    return ERR_OK;
}

void lib_options_write(void *out, size_t out_bytes, const void *full, size_t full_bytes) {
    memset(out, 0, out_bytes);
    memcpy(out, full, out_bytes < full_bytes ? out_bytes : full_bytes);
    memcpy(out, &out_bytes, sizeof out_bytes);
}

int lib_struct_write(void *out, const void *full, size_t full_bytes, const char *name, struct err *err) {
    size_t n = out ? size_of(out) : 0;
    if (n < sizeof n || n > STRUCT_BYTES_MAX)
        return err_set(err, ERR_EARG, "%s: struct_size is %zu; set it to sizeof the struct before the call", name, n);
    lib_options_write(out, n, full, full_bytes);
    return ERR_OK;
}

/* ---- memory for the caller ---------------------------------------------------------------------------------------------- */

int lib_copy(const void *data, size_t bytes, void **out, struct err *err) {
    void *p = mem_try(bytes + 1);
    if (!p) return err_set(err, ERR_EMEMORY, "no memory for a result of %zu bytes", bytes);
    if (bytes) memcpy(p, data, bytes);
    *out = p;
    return ERR_OK;
}

int lib_copy_text(struct str text, char **out, size_t *out_bytes, struct err *err) {
    void *p = NULL;
    TRY(lib_copy(text.p, text.n, &p, err));
    *out = p;
    if (out_bytes) *out_bytes = text.n;
    return ERR_OK;
}
