/* The options that every command with a model shares, as session options. */
#ifndef MLXCEL_CLI_SESSION_ARGS_H
#define MLXCEL_CLI_SESSION_ARGS_H

#include "api/session.h"
#include "cli/args.h"

int session_args(const struct args *args, struct session_options *out, struct err *err);
/* --tokens as 32-bit ids in the command's arena. */
int token_args(const struct args *args, const int32_t **out, int32_t *out_n, struct err *err);

#endif
