/* Errors as API clients expect them: {"error":{"message","type","param","code"}}. Messages name the field and the cure; they
 * hold no paths, pointers or prompts. */
#ifndef MLXCEL_SERVER_API_ERROR_H
#define MLXCEL_SERVER_API_ERROR_H

#include "base/str.h"

struct api_error {
    int32_t status; /* 0: none */
    char message[320];
    char param[64];              /* "": null */
    const char *type;            /* by the status */
    const char *code;            /* NULL: null */
    const char *request_id;      /* of the call that it belongs to; api_fail leaves it as it is */
    int32_t n_prompt, n_context; /* of a prompt that is longer than the context; else 0 */
};

/* Fills it and returns -1, so that `return api_fail(...)` is the whole failure path. param may be NULL. */
int api_fail(struct api_error *e, int32_t status, const char *code, const char *param, const char *fmt, ...) MLXCEL_PRINTF(5, 6);
/* From an error of the layers below. Messages that may hold paths are replaced. */
int api_fail_err(struct api_error *e, const struct err *err, const char *param);
/* An error about the field `from` is one about `to`, as the client's protocol calls it. */
void api_error_rename(struct api_error *e, const char *from, const char *to);
void api_error_json(const struct api_error *e, struct sb *out);

#endif
