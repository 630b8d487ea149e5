/* The models that a server offers, from the command line, the file of --config or the store. */
#ifndef MLXCEL_CLI_SERVE_MODELS_H
#define MLXCEL_CLI_SERVE_MODELS_H

#include "cli/settings.h"
#include "server/server.h"

/* A model as it will be served, and the options that it was made from. */
struct serve_model {
    struct server_model *served;
    const struct args *args;
    const struct toml *table; /* of the file; NULL: none */
    struct str model;         /* as it was named; {NULL, 0}: the built-in one, or a made-up one */
    bool is_absent;           /* it is not on this machine: it would be downloaded */
};

/* Whether the server has the models of the store, for want of others. */
bool serve_models_are_stored(const struct args *args, const struct settings *settings);

/* Fills o->models: those of --model, else those of the file's tables, else those of the store, else the built-in one. May download, unless it
 * only looks (--check). *out: [o->n_models]. */
int serve_models(const struct args *args, const struct settings *settings, struct server_options *o, struct serve_model **out,
                 struct err *err);
/* One that has come into the store: its folder, or the GGUF file in it that repo->variant names, or the only one. */
struct repo_name;
int serve_models_stored(const struct args *args, const struct settings *settings, const struct repo_name *repo, const char *path,
                        struct server_model *out, struct err *err);
/* Several models share a device, and those of the store always do, since more may come: *out_device is to be released after the server's end, by
 * device_release. NULL: there is one model. models: those of serve_models. */
int serve_models_device(const struct args *args, const struct server_options *o, const struct serve_model *models,
                        struct device **out_device, struct err *err);
/* What would be served, for people. */
void serve_models_describe(const struct args *args, const struct settings *settings, const struct server_options *o,
                           const struct serve_model *models, struct sb *out);

#endif
