/* Processes that compute one model together: who this one is, from options and from what launchers put into the environment (docs/ranks.md). */
#ifndef MLXCEL_CLI_WORLD_ARGS_H
#define MLXCEL_CLI_WORLD_ARGS_H

#include "api/session.h"
#include "cli/args.h"

/* Into out->world and out->n_ranks; a process that is alone leaves both as they are. */
int args_world(const struct args *args, struct session_options *out, struct err *err);
/* --tensor-parallel N, or auto. */
int args_ranks(const struct args *args, int32_t *out, struct err *err);
/* A rank behind the first: computes with it until that one ends, whatever the command. */
int world_args_follow(const struct session_options *o, struct err *err);
/* The same for a command that has these options; *out_follows false: it is the first rank, or alone, and nothing was done. */
int world_args_follow_command(const struct args *args, bool *out_follows, struct err *err);

#endif
