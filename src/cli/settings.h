/* The file of --config, or the user's own: options by their long names in TOML. At its top they hold for every command that has them, a table [COMMAND] is for one
 * command. For serve, the top and its own table are for the server and all of its models; a table [models.NAME] names a model (its key `model` is what --model
 * takes; without it, NAME is) and holds what is otherwise for it alone.
 *
 * What is typed wins over the environment, that over a model's table, that over the command's table, that over the top of the file.
 */
#ifndef MLXCEL_CLI_SETTINGS_H
#define MLXCEL_CLI_SETTINGS_H

#include "base/toml.h"
#include "cli/args.h"

struct settings {
    const char *path;          /* NULL: there is no file */
    const struct toml *models; /* its tables of models; NULL: none */
};

/* Where --config was not given: mlxcel/config.toml in the user's configuration folder, if it is there. */
void settings_find(struct args *args);
/* Reads the file that --config names, where it does, and fills those of args that nobody gave otherwise. Everything that is wrong is
 * ERR_EARG with "FILE:LINE: ". */
int settings_read(struct args *args, struct settings *out, struct err *err);
/* The table of a model of this name; NULL: none. */
const struct toml *settings_model(const struct settings *c, struct str name);
/* The options as they are for one model. */
int settings_apply(const struct args *args, const struct settings *c, const struct toml *table, struct args *out, struct err *err);
/* What the table says of `preload`. */
bool settings_preloads(const struct toml *table);
/* Puts "FILE:LINE: " before an error about a model, and makes it a mistake of the file. table NULL: the error is left as it is. */
int settings_blame(const struct settings *c, const struct toml *table, int code, struct err *err);
/* Whether an option can be said of one model. */
bool settings_is_of_models(enum opt_id id);

#endif
