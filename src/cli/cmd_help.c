/* mlxcel help, mlxcel completions: what the tables say. */
#include "cli/args.h"
#include "os/os.h"

int cmd_help(const struct args *args, struct err *err) {
    struct sb out = {0};
    int command = args->n_operands ? cmd_find(args->operands[0]) : -1;
    if (args->n_operands && command < 0) return cmd_unknown(args->operands[0], err);
    if (args_flag(args, OPT_MARKDOWN)) help_markdown(&out);
    else if (args_flag(args, OPT_MAN)) help_man(&out);
    else if (command >= 0) help_command(&out, (enum cmd_id)command, os_is_terminal(OS_STDOUT) ? os_console_width() : 100);
    else help_overview(&out);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

int cmd_completions(const struct args *args, struct err *err) {
    struct sb out = {0};
    if (!complete_script(&out, args->operands[0]))
        return err_set(err, ERR_EARG, "no completions for '%.*s'; there are bash, zsh, fish and powershell", STR_ARG(args->operands[0]));
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}
