/* Completion scripts for bash, zsh, fish and PowerShell, written from the tables. Values complete to the row's choices, to the models of the store where the table
 * calls them MODEL, to the shapes where it calls them SHAPE, else to file names. */
#include "api/synth.h"
#include "cli/args.h"

#include <stdio.h>

static void put_choices(struct sb *out, const char *choices) {
    struct str rest = str_of(choices), piece;
    for (bool first = true; str_split_next(&rest, '|', &piece); first = false) {
        if (!first) sb_putc(out, ' ');
        sb_put(out, piece);
    }
}

static void put_command_names(struct sb *out) {
    for (int c = 0; c < N_COMMANDS; c++) sb_fmt(out, "%s%s", c ? " " : "", cli_commands[c].name);
}

/* Every word that the command answers to, with what the shell wants between two. */
static void put_words_of(struct sb *out, const struct cmd *c, const char *between) {
    struct str rest = c->aliases ? str_of(c->aliases) : (struct str){0}, piece;
    sb_puts(out, c->name);
    while (str_split_next(&rest, ',', &piece)) sb_fmt(out, "%s%.*s", between, STR_ARG(piece));
}

static void put_flag_words(struct sb *out, int command) {
    bool first = true;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (!opt_is_flag(&cli_options[i], (enum cmd_id)command)) continue;
        sb_fmt(out, "%s--%s", first ? "" : " ", cli_options[i].name);
        if (cli_options[i].letter) sb_fmt(out, " -%c", cli_options[i].letter);
        first = false;
    }
}

static bool is_called(const char *text, const char *name) {
    return text && strcmp(text, name) == 0;
}

static bool takes_model(const struct opt *o) {
    return is_called(o->value, "MODEL");
}

/* Whether its first operand is a model: "[MODEL]...", "MODEL OWNER/NAME", "OWNER/NAME". */
static bool is_of_model(const struct cmd *c) {
    struct str operands = c->operands ? str_of(c->operands) : STR("");
    if (operands.n && operands.p[0] == '[') operands = str_from(operands, 1);
    return str_starts(operands, STR("MODEL")) || str_starts(operands, STR("OWNER/NAME"));
}

/* The words that an option's value is one of; false: they are not known here. */
static bool put_values(struct sb *out, const struct opt *o) {
    if (o->choices) put_choices(out, o->choices);
    else if (is_called(o->value, "SHAPE"))
        for (int i = 0; synth_shape_name(i); i++) sb_fmt(out, "%s%s", i ? " " : "", synth_shape_name(i));
    else return false;
    return true;
}

/* Operands such as bash|zsh|fish, and the commands that help explains, complete to their words; false: there are none. */
static bool put_operands(struct sb *out, int command) {
    const char *operands = cli_commands[command].operands;
    if (command == CMD_HELP) put_command_names(out);
    else if (operands && strchr(operands, '|')) put_choices(out, operands);
    else return false;
    return true;
}

/* What may follow an option with choices, under its long name and its letter. */
static void bash_choices(struct sb *out, int command) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct opt *o = &cli_options[i];
        struct sb values = {0};
        if (!opt_is_flag(o, (enum cmd_id)command) || !(takes_model(o) || put_values(&values, o))) continue;
        sb_fmt(out, "    %s:--%s", cli_commands[command].name, o->name);
        if (o->letter) sb_fmt(out, "|%s:-%c", cli_commands[command].name, o->letter);
        if (takes_model(o))
            sb_puts(out, ") words=$(mlxcel list --quiet 2>/dev/null); COMPREPLY=($(compgen -W \"$words\" -- \"$cur\")); return ;;\n");
        else sb_fmt(out, ") COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", values.p);
        sb_free(&values);
    }
}

/* mlxcel-server is a command by itself: its words stand one place earlier. */
static void bash_script(struct sb *out) {
    sb_puts(
        out,
        "# bash completion for mlxcel\n_mlxcel() {\n  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= command\n"
        "  case ${COMP_WORDS[0]##*/}:${COMP_WORDS[1]} in\n    mlxcel-server*) command=serve ;;\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_puts(out, "    *:");
        put_words_of(out, &cli_commands[c], "|*:");
        sb_fmt(out, ") command=%s ;;\n", cli_commands[c].name);
    }
    sb_puts(out,
            "  esac\n  if [ \"$COMP_CWORD\" = 1 ] && [[ ${COMP_WORDS[0]##*/} != mlxcel-server* ]]; then\n    COMPREPLY=($(compgen -W '");
    put_command_names(out);
    sb_puts(out, " --help --version' -- \"$cur\"))\n    return\n  fi\n  case $command:$prev in\n");
    for (int c = 0; c < N_COMMANDS; c++) bash_choices(out, c);
    sb_puts(out, "  esac\n  case $command in\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_fmt(out, "    %s) words='", cli_commands[c].name);
        put_flag_words(out, c);
        sb_putc(out, ' ');
        put_operands(out, c);
        sb_puts(out, "' ;;\n");
    }
    sb_puts(out, "  esac\n  case $command in ");
    for (int c = 0, n = 0; c < N_COMMANDS; c++)
        if (is_of_model(&cli_commands[c])) sb_fmt(out, "%s%s", n++ ? "|" : "", cli_commands[c].name);
    sb_puts(out, ") words=\"$words $(mlxcel list --quiet 2>/dev/null)\" ;; esac\n"
                 "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _mlxcel mlxcel mlxcel-server\n");
}

/* zsh and fish show a description beside each word; quotes in it would end the string. */
static void put_plain(struct sb *out, const char *text) {
    for (; *text; text++) sb_putc(out, strchr("'[]:\\`$\"", *text) ? ' ' : *text);
}

static void zsh_form(struct sb *out, const struct opt *o, const char *form) {
    sb_fmt(out, " '%s[", form);
    put_plain(out, o->help);
    sb_putc(out, ']');
    struct sb values = {0};
    if (put_values(&values, o)) sb_fmt(out, ":value:(%s)", values.p);
    else if (takes_model(o)) sb_puts(out, ":model:_mlxcel_models");
    else if (o->type != ARG_FLAG) sb_puts(out, ":value:_files");
    sb_free(&values);
    sb_putc(out, '\'');
}

static void zsh_option(struct sb *out, const struct opt *o) {
    char form[64];
    snprintf(form, sizeof form, "--%s%s", o->name, o->type != ARG_FLAG ? "=" : "");
    zsh_form(out, o, form);
    if (!o->letter) return;
    snprintf(form, sizeof form, "-%c%s", o->letter, o->type != ARG_FLAG ? "+" : "");
    zsh_form(out, o, form);
}

/* The last lines serve both ways of loading it: as the function of a file in fpath, which must complete when it is first called, and read
 * by the shell itself. */
static void zsh_script(struct sb *out) {
    sb_puts(
        out,
        "#compdef mlxcel mlxcel-server\n_mlxcel_models() {\n  local -a names=(${(f)\"$(mlxcel list --quiet 2>/dev/null)\"})\n  compadd -a names\n  _files\n}\n_mlxcel() {\n  if [[ ${words[1]:t} == mlxcel-server* ]]; then\n"
        "    words=(mlxcel serve $words[2,-1]); (( CURRENT++ ))\n  fi\n  if (( CURRENT == 2 )); then\n    local -a names=(");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_fmt(out, " '%s:", cli_commands[c].name);
        put_plain(out, cli_commands[c].summary);
        sb_putc(out, '\'');
    }
    sb_puts(out,
            " )\n    _describe command names\n    return\n  fi\n  local name=$words[2]\n  shift words; (( CURRENT-- ))\n  case $name in\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        struct sb operands = {0};
        sb_puts(out, "    ");
        put_words_of(out, &cli_commands[c], "|");
        sb_puts(out, ") _arguments");
        for (int i = 0; i < N_OPTIONS; i++)
            if (opt_is_flag(&cli_options[i], (enum cmd_id)c)) zsh_option(out, &cli_options[i]);
        if (put_operands(&operands, c)) sb_fmt(out, " '1:word:(%s)'", operands.p);
        else if (is_of_model(&cli_commands[c])) sb_puts(out, " '*:model:_mlxcel_models'");
        else if (cli_commands[c].max_operands) sb_puts(out, " '*:argument:_files'");
        sb_puts(out, " ;;\n");
        sb_free(&operands);
    }
    sb_puts(out,
            "  esac\n}\nif [[ $funcstack[1] == _mlxcel ]]; then\n  _mlxcel \"$@\"\nelse\n  compdef _mlxcel mlxcel mlxcel-server\nfi\n");
}

/* when: the condition under which the command is the one being typed. */
static void fish_option(struct sb *out, const char *program, const char *when, const struct opt *o) {
    sb_fmt(out, "complete -c %s%s -l %s", program, when, o->name);
    if (o->letter) sb_fmt(out, " -s %c", o->letter);
    struct sb values = {0};
    if (put_values(&values, o)) sb_fmt(out, " -x -a '%s'", values.p);
    else if (takes_model(o)) sb_puts(out, " -r -a '(mlxcel list --quiet 2>/dev/null)'");
    else if (o->type != ARG_FLAG) sb_puts(out, " -r");
    sb_free(&values);
    sb_puts(out, " -d '");
    put_plain(out, o->help);
    sb_puts(out, "'\n");
}

static void fish_command(struct sb *out, int c) {
    struct sb when = {0}, operands = {0};
    sb_fmt(out, "complete -c mlxcel -f -n __fish_use_subcommand -a %s -d '", cli_commands[c].name);
    put_plain(out, cli_commands[c].summary);
    sb_puts(out, "'\n");
    sb_puts(&when, " -n '__fish_seen_subcommand_from ");
    put_words_of(&when, &cli_commands[c], " ");
    sb_putc(&when, '\'');
    if (put_operands(&operands, c)) sb_fmt(out, "complete -c mlxcel -f%s -a '%s'\n", when.p, operands.p);
    else if (is_of_model(&cli_commands[c])) sb_fmt(out, "complete -c mlxcel%s -a '(mlxcel list --quiet 2>/dev/null)'\n", when.p);
    for (int i = 0; i < N_OPTIONS; i++)
        if (opt_is_flag(&cli_options[i], (enum cmd_id)c)) fish_option(out, "mlxcel", when.p, &cli_options[i]);
    sb_free(&when);
    sb_free(&operands);
}

static void fish_script(struct sb *out) {
    sb_puts(out, "# fish completion for mlxcel\n");
    for (int c = 0; c < N_COMMANDS; c++) fish_command(out, c);
    for (int i = 0; i < N_OPTIONS; i++)
        if (opt_is_flag(&cli_options[i], CMD_SERVE)) fish_option(out, "mlxcel-server", "", &cli_options[i]);
}

/* What may follow an option, by command and option; *models* stands for the models of the store. */
static void powershell_values(struct sb *out, int c) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct opt *o = &cli_options[i];
        struct sb values = {0};
        if (opt_is_flag(o, (enum cmd_id)c) && (put_values(&values, o) || takes_model(o))) {
            const char *words = takes_model(o) ? "*models*" : values.p;
            sb_fmt(out, "    '%s --%s' = '%s'\n", cli_commands[c].name, o->name, words);
            if (o->letter) sb_fmt(out, "    '%s -%c' = '%s'\n", cli_commands[c].name, o->letter, words);
        }
        sb_free(&values);
    }
}

static void powershell_tables(struct sb *out) {
    sb_puts(out, "  $flags = @{\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        sb_fmt(out, "    '%s' = '", cli_commands[c].name);
        put_flag_words(out, c);
        sb_putc(out, ' ');
        if (!put_operands(out, c) && is_of_model(&cli_commands[c])) sb_puts(out, "*models*");
        sb_puts(out, "'\n");
    }
    sb_puts(out, "  }\n  $values = @{\n");
    for (int c = 0; c < N_COMMANDS; c++) powershell_values(out, c);
    sb_puts(out, "  }\n  $same = @{\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        struct str rest = cli_commands[c].aliases ? str_of(cli_commands[c].aliases) : (struct str){0}, piece;
        while (str_split_next(&rest, ',', &piece)) sb_fmt(out, "    '%.*s' = '%s'\n", STR_ARG(piece), cli_commands[c].name);
    }
    sb_puts(out, "  }\n");
}

static void powershell_script(struct sb *out) {
    sb_puts(out,
            "# PowerShell completion for mlxcel\nRegister-ArgumentCompleter -Native -CommandName 'mlxcel', 'mlxcel-server' -ScriptBlock {\n"
            "  param($word, $line, $cursor)\n");
    powershell_tables(out);
    sb_puts(
        out,
        "  $said = @($line.CommandElements | ForEach-Object { $_.ToString() })\n"
        "  if ((Split-Path -Leaf $said[0]) -like 'mlxcel-server*') { $said = @('mlxcel', 'serve') + @($said | Select-Object -Skip 1) }\n"
        "  if ($word -ne '') { $said = @($said | Select-Object -SkipLast 1) }\n"
        "  $name = if ($said.Count -gt 1) { $said[1] } else { '' }\n"
        "  if ($same.ContainsKey($name)) { $name = $same[$name] }\n"
        "  $key = \"$name $($said[-1])\"\n"
        "  $words = if ($name -eq '') { @($flags.Keys) + '--help', '--version' } elseif ($values.ContainsKey($key)) { $values[$key].Split(' ') } "
        "else { \"$($flags[$name])\".Split(' ') }\n"
        "  if ($words -contains '*models*') { $words = @($words | Where-Object { $_ -ne '*models*' }) + @(mlxcel list --quiet 2>$null) }\n"
        "  $words | Where-Object { $_ -and $_.StartsWith($word) } | Sort-Object -Unique | ForEach-Object {\n"
        "    [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_)\n  }\n}\n");
}

bool complete_script(struct sb *out, struct str shell) {
    static const struct {
        const char *name;
        void (*write)(struct sb *out);
    } shells[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}, {"powershell", powershell_script}};
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (str_is(shell, shells[i].name)) {
            shells[i].write(out);
            return true;
        }
    return false;
}
