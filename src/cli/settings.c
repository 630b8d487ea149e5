/* Options from a file. */
#include "cli/settings.h"

#include "os/os.h"

#include <math.h>
#include <stdio.h>

/* Options of one model, besides those of sampling and generation. */
static const enum opt_id of_models[] = {
    OPT_MODEL,     OPT_SHAPE,     OPT_BITS,    OPT_DTYPE,     OPT_ALIAS,    OPT_KEEP_ALIVE,   OPT_CHAT_TEMPLATE_FILE,
    OPT_PRECISION, OPT_CONTEXT,   OPT_KV_BITS, OPT_FORCE,     OPT_PARALLEL, OPT_BATCH_ROWS,   OPT_MAX_STEP_MS,
    OPT_KV_TOKENS, OPT_CACHE_RAM, OPT_POOLING, OPT_REASONING, OPT_PREFILL,  OPT_CONTEXT_SHIFT};

bool settings_is_of_models(enum opt_id id) {
    const char *section = cli_options[id].section;
    if (strcmp(section, "Sampling") == 0 || strcmp(section, "Generation") == 0) return true;
    for (size_t i = 0; i < sizeof of_models / sizeof *of_models; i++)
        if (of_models[i] == id) return true;
    return false;
}

static int fail_at(const struct settings *c, const struct toml *v, struct err *err, const char *what) {
    return err_set(err, ERR_EARG, "%s:%d: %.*s %s", c->path, (int)v->line, STR_ARG(v->key), what);
}

int settings_blame(const struct settings *c, const struct toml *table, int code, struct err *err) {
    if (!code || !table) return code;
    err_prefix(err, "%s:%d", c->path, (int)table->line);
    return err->code = ERR_EARG;
}

/* ---- one option --------------------------------------------------------------------------------------------------------- */

/* Which kinds of values an option's type takes, outside a list. */
static bool takes(enum arg_type type, enum toml_kind kind) {
    static const unsigned kinds[] = {
        [ARG_FLAG] = 1u << TOML_BOOL,
        [ARG_INT] = 1u << TOML_INT,
        [ARG_FLOAT] = 1u << TOML_INT | 1u << TOML_FLOAT,
        [ARG_STRING] = 1u << TOML_STRING,
        [ARG_SIZE] = 1u << TOML_INT | 1u << TOML_STRING,
        [ARG_CHOICE] = 1u << TOML_STRING | 1u << TOML_INT,
        [ARG_INTS] = 1u << TOML_INT,
        [ARG_STRINGS] = 1u << TOML_STRING,
    };
    return kinds[type] >> kind & 1;
}

/* A value as somebody would have typed it. */
static struct str text_of(struct arena *a, const struct toml *v) {
    if (v->kind == TOML_STRING) return v->s;
    if (v->kind == TOML_FLOAT) return str_fmt(a, "%.17g", v->f);
    return str_fmt(a, "%lld", (long long)v->i);
}

static int set_one(struct args *args, const struct settings *c, int id, const struct toml *v, struct str key, struct err *err) {
    const char *where = str_fmt(args->arena, "%s:%d: %.*s", c->path, (int)v->line, STR_ARG(key)).p;
    if (takes(cli_options[id].type, v->kind)) return args_set(args, id, where, text_of(args->arena, v), ARG_FROM_FILE, err);
    struct sb expected = {0};
    args_describe(&cli_options[id], &expected);
    int code = err_set(err, ERR_EARG, "%s is %s, expected %s", where, toml_kind_name(v->kind),
                       cli_options[id].type == ARG_FLAG ? "true or false" : expected.p);
    sb_free(&expected);
    return code;
}

/* --model is given several times, so that a list of it is one, too. */
static bool takes_list(int id) {
    return cli_options[id].type == ARG_STRINGS || cli_options[id].type == ARG_INTS || id == OPT_MODEL;
}

static int set_option(struct args *args, const struct settings *c, int id, const struct toml *v, struct err *err) {
    struct arg_value *value = &args->values[id], before = *value;
    *value = (struct arg_value){0}; /* a model's list replaces that of all */
    if (v->kind != TOML_ARRAY || !takes_list(id)) TRY(set_one(args, c, id, v, v->key, err));
    else
        for (const struct toml *item = v->first; item; item = item->next) TRY(set_one(args, c, id, item, v->key, err));
    value->source = ARG_FROM_FILE; /* also an empty list */
    value->line = v->line;
    if (before.source > ARG_FROM_FILE) *value = before; /* what does not count must be right all the same */
    return ERR_OK;
}

/* Those that would change what the file itself is read for. */
static bool is_of_the_call(int id) {
    return id == OPT_CONFIG || id == OPT_CHECK || id == OPT_HELP || id == OPT_OPEN;
}

static int find_option(const struct args *args, const struct settings *c, const struct toml *v, int *out, struct err *err) {
    int code = args_find(args->command, v->key, out, err);
    if (code) return settings_blame(c, v, code, err);
    return is_of_the_call(*out) ? fail_at(c, v, err, "belongs on the command line, not into a file") : ERR_OK;
}

/* ---- the file ----------------------------------------------------------------------------------------------------------- */

static int check_models(struct settings *c, const struct toml *models, struct err *err) {
    if (models->kind != TOML_TABLE) return fail_at(c, models, err, "must be tables: [models.NAME]");
    for (const struct toml *m = models->first; m; m = m->next) {
        if (m->kind != TOML_TABLE) return fail_at(c, m, err, "stands among the models and is no table; one of them is [models.NAME]");
        if (m->key.n == 0) return fail_at(c, m, err, "a model has no name");
    }
    c->models = models;
    return ERR_OK;
}

/* The command whose table it is; -1: none. */
static int command_of(const struct toml *v) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (v->kind == TOML_TABLE && str_is(v->key, cli_commands[i].name)) return i;
    return -1;
}

/* What stands at the top is for every command that has it; a name that none has is a mistake. A file that was written for serve has options of serve alone. */
static bool is_for_others(const struct args *args, const struct toml *v) {
    struct err ignored = {0};
    int id;
    bool is_servers = args->command == CMD_SERVE && args->values[OPT_CONFIG].source > ARG_FROM_DEFAULT;
    if (is_servers || args_find(args->command, v->key, &id, &ignored) == ERR_OK) return false;
    for (int c = 0; c < N_COMMANDS; c++)
        if (args_find((enum cmd_id)c, v->key, &id, &ignored) == ERR_OK) return true;
    return false;
}

/* The table of another command is looked through for names that it does not have. */
static int apply_table(struct args *args, const struct settings *c, int command, const struct toml *table, struct err *err) {
    for (const struct toml *v = table->first; v; v = v->next) {
        struct args its = {.arena = args->arena, .command = (enum cmd_id)command};
        int id;
        TRY(find_option(&its, c, v, &id, err));
        if (its.command == args->command) TRY(set_option(args, c, id, v, err));
    }
    return ERR_OK;
}

static int apply_top(struct args *args, struct settings *c, const struct toml *root, struct err *err) {
    for (const struct toml *v = root->first; v; v = v->next) {
        int id;
        if (str_is(v->key, "models")) {
            TRY(check_models(c, v, err));
            continue;
        }
        if (command_of(v) >= 0) continue;
        if (v->kind == TOML_TABLE)
            return fail_at(
                c, v, err,
                "is a table that means nothing here; those of models are called [models.NAME], those of commands by the command");
        if (is_for_others(args, v)) continue;
        TRY(find_option(args, c, v, &id, err));
        TRY(set_option(args, c, id, v, err));
    }
    for (const struct toml *v = root->first; v; v = v->next)
        if (command_of(v) >= 0) TRY(apply_table(args, c, command_of(v), v, err));
    return ERR_OK;
}

void settings_find(struct args *args) {
    struct arg_value *v = &args->values[OPT_CONFIG];
    struct os_stat st;
    if (v->source != ARG_UNSET || !os_config_root()) return;
    struct str path = str_fmt(args->arena, "%s/mlxcel/config.toml", os_config_root());
    if (os_stat(path.p, &st, NULL) == ERR_OK) *v = (struct arg_value){.s = path, .source = ARG_FROM_DEFAULT};
}

int settings_read(struct args *args, struct settings *out, struct err *err) {
    struct str text;
    struct toml *root;
    *out = (struct settings){.path = args_cstr(args, OPT_CONFIG)};
    if (!out->path) return ERR_OK;
    int code = os_input_load(args->arena, out->path, TOML_BYTES_MAX, &text, err);
    if (code) err_prefix(err, "--config");
    if (!code) code = toml_parse(args->arena, text, out->path, &root, err);
    if (code) return err->code = ERR_EARG;
    return apply_top(args, out, root, err);
}

const struct toml *settings_model(const struct settings *c, struct str name) {
    return c->models && name.p ? toml_get(c->models, name) : NULL;
}

bool settings_preloads(const struct toml *table) {
    const struct toml *v = table ? toml_get(table, STR("preload")) : NULL;
    return v && v->kind == TOML_BOOL && v->i;
}

int settings_apply(const struct args *args, const struct settings *c, const struct toml *table, struct args *out, struct err *err) {
    *out = *args;
    for (const struct toml *v = table ? table->first : NULL; v; v = v->next) {
        int id;
        if (str_is(v->key, "preload")) {
            if (v->kind != TOML_BOOL) return fail_at(c, v, err, "must be true or false");
            continue;
        }
        TRY(find_option(args, c, v, &id, err));
        if (!settings_is_of_models((enum opt_id)id))
            return fail_at(c, v, err, "is the server's, not a model's; it belongs before the first table");
        if (id == OPT_MODEL && v->kind == TOML_ARRAY) return fail_at(c, v, err, "is a list; a table is of one model");
        TRY(set_option(out, c, id, v, err));
    }
    return ERR_OK;
}
