/* The command line: two tables (commands.def, options.def) and the parser that they drive.
 *
 * The same tables give --help, the environment names, the shell completions and docs/cli.md, so that none of them can
 * disagree with what is parsed. A new command is one cmd_X.c, one row in commands.def and its rows in options.def.
 *
 * (1) A value comes from the flag, else from MLXCEL_NAME, else from LLAMA_ARG_NAME, else from further names in the row,
 *     else from the file of --config (settings.h), else from the row's default. Everything goes through one converter; ranges are checked for all of them. Nobody else
 *     reads the environment: other folders get what they need in their options.
 * (2) After args_parse every option of the command has its final value; look-ups are typed and cannot fail.
 */
#ifndef MLXCEL_CLI_ARGS_H
#define MLXCEL_CLI_ARGS_H

#include "base/str.h"

struct args;

enum cmd_id {
#define COMMAND(id, function, ...) CMD_##id,
#include "cli/commands.def"
#undef COMMAND
    N_COMMANDS
};

enum opt_id {
#define OPTION(id, ...) OPT_##id,
#include "cli/options.def"
#undef OPTION
    N_OPTIONS
};

/* Sets of commands, for the rows of options.def. */
#define ON(id) (UINT64_C(1) << CMD_##id)
#define ON_ALL UINT64_MAX

enum arg_type {
    ARG_FLAG, /* --name, --no-name */
    ARG_INT,
    ARG_FLOAT,
    ARG_STRING,
    ARG_SIZE,    /* bytes: 4096, 64K, 512M, 2G, 1T (binary) */
    ARG_CHOICE,  /* one of the row's choices */
    ARG_INTS,    /* 1,2,3; repeating the flag appends */
    ARG_STRINGS, /* repeatable */
};

struct opt {
    const char *name;    /* long name, without dashes; NULL: no flag, a variable of the environment alone */
    const char *aliases; /* further long names, "a,b" */
    char letter;         /* short name; 0: none */
    enum arg_type type;
    uint64_t commands;   /* ON(...) bits */
    const char *section; /* heading in --help */
    const char *value;   /* what stands for the value in --help */
    const char *initial; /* default as a user would type it; NULL: none */
    const char *choices; /* "a|b|c" for ARG_CHOICE */
    double min, max;     /* range of numbers; both 0: any */
    const char *env;     /* further environment names, "A,B" (without a name: all of them); "-": this option reads no environment */
    const char *help;
};

struct cmd {
    const char *name;
    const char *aliases;  /* "a,b" */
    const char *summary;  /* one line, no full stop */
    const char *operands; /* "[MODEL]"; NULL: takes none */
    int min_operands, max_operands;
    const char *details; /* paragraph under the summary; NULL: none */
};

extern const struct cmd cli_commands[N_COMMANDS];
extern const struct opt cli_options[N_OPTIONS];

/* In the order of their weight. */
enum arg_source { ARG_UNSET, ARG_FROM_DEFAULT, ARG_FROM_FILE, ARG_FROM_ENV, ARG_FROM_FLAG };

struct arg_value {
    enum arg_source source;
    struct str variable; /* that it came from; {NULL, 0}: none */
    int32_t line;        /* of the file that it came from; 0: none */
    int64_t i;           /* flag, int, size, index of the choice */
    double f;
    struct str s; /* string, choice */
    struct str *strings;
    int64_t *ints;
    size_t n; /* of strings or ints */
};

struct args {
    enum cmd_id command;
    struct arg_value values[N_OPTIONS];
    struct str *operands; /* [n_operands] */
    size_t n_operands;
    struct arena *arena; /* lives until the command ends */
};

typedef const char *args_env_fn(const char *name);

/* argv[0] is the program, argv[1] the command. Usage mistakes are ERR_EARG with a message that names the cure.
 * `mlxcel`, --help and --version become the commands help and version. env gives the environment (os_env). */
int args_parse(struct arena *a, int argc, char *const *argv, args_env_fn *env, struct args *out, struct err *err);

/* Typed look-ups. Asking for another type than the row's, or for an option that the command does not have, is a defect
 * of the program and asserted. */
bool args_flag(const struct args *args, enum opt_id id);
int64_t args_int(const struct args *args, enum opt_id id); /* also sizes */
double args_float(const struct args *args, enum opt_id id);
struct str args_str(const struct args *args, enum opt_id id);   /* {NULL, 0} when not given; also the choice's text */
const char *args_cstr(const struct args *args, enum opt_id id); /* the same in the command's arena; NULL when not given */
int args_choice(const struct args *args, enum opt_id id);       /* index in the row's choices; -1 when not given */
/* Also all values of an option that usually has one, where it was given several times. */
size_t args_strings(const struct args *args, enum opt_id id, const struct str **out);
size_t args_ints(const struct args *args, enum opt_id id, const int64_t **out);
/* By flag, environment or file, not by default. */
bool args_given(const struct args *args, enum opt_id id);
/* The command has this option; asking for another one's value is a defect. */
bool args_has(const struct args *args, enum opt_id id);

/* The option of this long name; what is none is told with the nearest one. */
int args_find(enum cmd_id command, struct str name, int *out, struct err *err);
/* Gives an option the value that a text stands for; where: how the user gave it. Lists grow while the source is the same. */
int args_set(struct args *args, int id, const char *where, struct str text, enum arg_source source, struct err *err);
/* What an option takes: "a whole number from 0 to 65535". */
void args_describe(const struct opt *o, struct sb *out);

/* Converts one text by the row's type, choices and range; lists are appended to. False: *v is not usable. */
bool arg_parse(struct arena *a, const struct opt *o, struct str text, struct arg_value *v);

/* Walks: the options of one command in table order, by section. */
bool opt_applies(const struct opt *o, enum cmd_id command);
bool opt_is_flag(const struct opt *o, enum cmd_id command); /* of those, what can be typed */
/* Upper-case environment name behind a prefix: "MLXCEL_" + "ctx-size" -> MLXCEL_CTX_SIZE. */
struct str opt_env_name(struct arena *a, const char *prefix, const struct opt *o);
/* The command called name (or an alias), or -1. */
int cmd_find(struct str name);
/* The error for a name that is none, with the nearest one that is. */
int cmd_unknown(struct str name, struct err *err);

/* help.c */
void help_overview(struct sb *out);
void help_command(struct sb *out, enum cmd_id command, int width);
void help_markdown(struct sb *out);
void help_man(struct sb *out);
/* complete.c; false when the shell is unknown. */
bool complete_script(struct sb *out, struct str shell);

/* output.c: results go to standard output through this; a reader that closed the pipe ends the program quietly. */
int cli_write(const struct sb *text, struct err *err);
/* For --jsonl: every line of standard input that is not blank is given to `each`, and what that appends is written. */
int cli_lines(void (*each)(void *user, struct str line, struct sb *out), void *user, struct err *err);
/* The exit code for what a command returned: 0, 1, or 2 for a usage mistake; prints the message. */
int cli_finish(int code, const struct err *err);

/* The commands' functions, for command.c. */
#define COMMAND(id, function, ...) int function(const struct args *args, struct err *err);
#include "cli/commands.def"
#undef COMMAND

#endif
