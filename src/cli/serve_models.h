/* The models that a server offers, from the command line or the store. */
#ifndef MLXCEL_CLI_SERVE_MODELS_H
#define MLXCEL_CLI_SERVE_MODELS_H

#include "cli/args.h"
#include "server/server.h"

/* Fills o->models: those of --model, else those of the store, else the built-in one. May download. Several of them share a device:
 * *out_device is to be released after the server's end, by device_release. */
int serve_models(const struct args *args, struct server_options *o, struct device **out_device, struct err *err);

#endif
