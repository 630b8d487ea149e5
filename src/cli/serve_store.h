/* The store behind a server that serves it: models that come in and go while it runs. */
#ifndef MLXCEL_CLI_SERVE_STORE_H
#define MLXCEL_CLI_SERVE_STORE_H

#include "cli/serve_models.h"

struct serve_store;

/* options: those that the server is started with, and outlive it; new models run on the device of the first of theirs. */
struct serve_store *serve_store_open(const struct args *args, const struct settings *settings, const struct server_options *options);
/* After the server's end. NULL is fine. */
void serve_store_close(struct serve_store *s);
const struct server_store *serve_store_functions(struct serve_store *s);

#endif
