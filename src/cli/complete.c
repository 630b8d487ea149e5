/* Completion scripts for bash, zsh and fish, written from the tables. Values complete to the row's choices, else to
 * file names. */
#include "cli/args.h"

static void put_choices(struct sb *out, const char *choices) {
    struct str rest = str_of(choices), piece;
    for (bool first = true; str_split_next(&rest, '|', &piece); first = false) {
        if (!first) sb_putc(out, ' ');
        sb_put(out, piece);
    }
}

static void put_command_names(struct sb *out) {
    for (int c = 0; c < N_COMMANDS; c++) sb_fmt(out, "%s%s", c ? " " : "", commands[c].name);
}

static void put_flag_words(struct sb *out, int command) {
    bool first = true;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!opt_applies(&options[i], (enum cmd_id)command)) continue;
        sb_fmt(out, "%s--%s", first ? "" : " ", options[i].name);
        if (options[i].letter) sb_fmt(out, " -%c", options[i].letter);
        first = false;
    }
}

/* Operands such as bash|zsh|fish complete to their words. */
static bool has_word_operand(const struct cmd *c) {
    return c->operands && strchr(c->operands, '|');
}

static void bash_script(struct sb *out) {
    sb_puts(out,
            "# bash completion for mlxcel\n_mlxcel() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
            "  if [ \"$COMP_CWORD\" = 1 ]; then\n    COMPREPLY=($(compgen -W '");
    put_command_names(out);
    sb_puts(out, " --help --version' -- \"$cur\"))\n    return\n  fi\n  case ${COMP_WORDS[1]}:$prev in\n");
    for (int c = 0; c < N_COMMANDS; c++)
        for (int i = 0; i < N_OPTIONS; i++) {
            if (!opt_applies(&options[i], (enum cmd_id)c) || !options[i].choices) continue;
            sb_fmt(out, "    %s:--%s) COMPREPLY=($(compgen -W '", commands[c].name, options[i].name);
            put_choices(out, options[i].choices);
            sb_puts(out, "' -- \"$cur\")); return ;;\n");
        }
    sb_puts(out, "  esac\n  case ${COMP_WORDS[1]} in\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_fmt(out, "    %s) words='", commands[c].name);
        put_flag_words(out, c);
        if (has_word_operand(&commands[c])) {
            sb_putc(out, ' ');
            put_choices(out, commands[c].operands);
        }
        sb_puts(out, "' ;;\n");
    }
    sb_puts(out, "  esac\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _mlxcel mlxcel\n");
}

/* zsh and fish show a description beside each word; quotes in it would end the string. */
static void put_plain(struct sb *out, const char *text) {
    for (; *text; text++) sb_putc(out, strchr("'[]:\\`$\"", *text) ? ' ' : *text);
}

static void zsh_option(struct sb *out, const struct opt *o) {
    sb_fmt(out, " '--%s", o->name);
    if (o->type != ARG_FLAG) sb_putc(out, '=');
    sb_putc(out, '[');
    put_plain(out, o->help);
    sb_putc(out, ']');
    if (o->choices) {
        sb_puts(out, ":value:(");
        put_choices(out, o->choices);
        sb_putc(out, ')');
    } else if (o->type != ARG_FLAG) {
        sb_puts(out, ":value:_files");
    }
    sb_putc(out, '\'');
}

static void zsh_script(struct sb *out) {
    sb_puts(out, "#compdef mlxcel\n_mlxcel() {\n  if (( CURRENT == 2 )); then\n    local -a names=(");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_fmt(out, " '%s:", commands[c].name);
        put_plain(out, commands[c].summary);
        sb_putc(out, '\'');
    }
    sb_puts(out,
            " )\n    _describe command names\n    return\n  fi\n  local name=$words[2]\n  shift words; (( CURRENT-- ))\n  case $name in\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_fmt(out, "    %s) _arguments", commands[c].name);
        for (int i = 0; i < N_OPTIONS; i++)
            if (opt_applies(&options[i], (enum cmd_id)c)) zsh_option(out, &options[i]);
        if (has_word_operand(&commands[c])) {
            sb_puts(out, " '1:word:(");
            put_choices(out, commands[c].operands);
            sb_puts(out, ")'");
        } else if (commands[c].max_operands) {
            sb_puts(out, " '*:argument:_files'");
        }
        sb_puts(out, " ;;\n");
    }
    sb_puts(out, "  esac\n}\ncompdef _mlxcel mlxcel\n");
}

static void fish_option(struct sb *out, const struct cmd *c, const struct opt *o) {
    sb_fmt(out, "complete -c mlxcel -n '__fish_seen_subcommand_from %s' -l %s", c->name, o->name);
    if (o->letter) sb_fmt(out, " -s %c", o->letter);
    if (o->choices) {
        sb_puts(out, " -x -a '");
        put_choices(out, o->choices);
        sb_putc(out, '\'');
    } else if (o->type != ARG_FLAG) {
        sb_puts(out, " -r");
    }
    sb_puts(out, " -d '");
    put_plain(out, o->help);
    sb_puts(out, "'\n");
}

static void fish_script(struct sb *out) {
    sb_puts(out, "# fish completion for mlxcel\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_fmt(out, "complete -c mlxcel -f -n __fish_use_subcommand -a %s -d '", commands[c].name);
        put_plain(out, commands[c].summary);
        sb_puts(out, "'\n");
        if (has_word_operand(&commands[c])) {
            sb_fmt(out, "complete -c mlxcel -f -n '__fish_seen_subcommand_from %s' -a '", commands[c].name);
            put_choices(out, commands[c].operands);
            sb_puts(out, "'\n");
        }
        for (int i = 0; i < N_OPTIONS; i++)
            if (opt_applies(&options[i], (enum cmd_id)c)) fish_option(out, &commands[c], &options[i]);
    }
}

bool complete_script(struct sb *out, struct str shell) {
    static const struct {
        const char *name;
        void (*write)(struct sb *out);
    } shells[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (str_is(shell, shells[i].name)) {
            shells[i].write(out);
            return true;
        }
    return false;
}
