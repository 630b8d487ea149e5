/* The options of the model store and the hub, and a model's name from them. */
#ifndef MLXCEL_CLI_STORE_ARGS_H
#define MLXCEL_CLI_STORE_ARGS_H

#include "cli/args.h"
#include "hub/store.h"

void store_args(const struct args *args, struct store_options *out);
/* What a model option or operand says, as a path; it may download. model {NULL, 0}: NULL, the built-in one. out_name may be NULL. */
int args_model(const struct args *args, struct str model, const char **out_path, const char **out_name, struct err *err);

#endif
