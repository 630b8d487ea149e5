/* The server as part of another program, with the options of `mlxcel serve`. */
#ifndef MLXCEL_CLI_SERVE_H
#define MLXCEL_CLI_SERVE_H

#include "server/server.h"

struct serve_setting {
    const char *name;  /* long name of an option of `serve`, without dashes; where it has none, its variable */
    const char *value; /* as it is typed; NULL: a flag that is set */
};

/* Runs a server until server_end is called. Neither the environment nor the command line is read. */
int serve_inside(const struct serve_setting *settings, size_t n, const struct server_inside *inside, struct err *err);

#endif
