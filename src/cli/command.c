/* Arguments in, one command, exit code out. This file alone refers to all commands: who parses arguments without it, as the library's server does, has none
 * of them. */
#include "base/log.h"
#include "cli/args.h"
#include "cli/command.h"
#include "cli/settings.h"
#include "cli/world_args.h"
#include "os/os.h"

static const enum log_level levels[] = {LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG}; /* as in --log-level */

static int (*const functions[N_COMMANDS])(const struct args *args, struct err *err) = {
#define COMMAND(id, function, ...) [CMD_##id] = function,
#include "cli/commands.def"
#undef COMMAND
};

/* Options from the user's file. serve reads it by itself, with its models; what only tells about the program has no use for it. */
static int read_settings(struct args *args, struct err *err) {
    struct settings settings;
    if (args->command == CMD_HELP || args->command == CMD_VERSION || args->command == CMD_COMPLETIONS) return ERR_OK;
    settings_find(args);
    return args->command == CMD_SERVE ? ERR_OK : settings_read(args, &settings, err);
}

int cli_main(int argc, char **argv) {
    struct arena arena = {0};
    struct err err = {0};
    struct args args;
    char **utf8_argv;
    os_console_init();
    argc = os_args(&arena, argc, argv, &utf8_argv);
    int code = args_parse(&arena, argc, utf8_argv, os_env, &args, &err);
    if (code == ERR_OK) code = read_settings(&args, &err);
    if (code == ERR_OK) {
        log_set_level(levels[args_choice(&args, OPT_LOG_LEVEL)]);
        if (args_flag(&args, OPT_NO_COLOR)) os_no_color();
        log_set_color(os_has_color(OS_STDERR));
        bool follows;
        code = world_args_follow_command(&args, &follows, &err);
        if (code == ERR_OK && !follows) code = functions[args.command](&args, &err);
    }
    int status = cli_finish(code, &err);
    arena_free(&arena);
    return status;
}
