/* What the tables say, for people: the overview, the help of one command, the reference page docs/cli.md and the manual page. */
#include "cli/args.h"

enum { COLUMN = 26 /* where explanations begin */ };

static void pad_to(struct sb *out, size_t line_start, size_t column) {
    while (out->n - line_start < column) sb_putc(out, ' ');
}

/* Words of text from the current column on, wrapped at width, continued at indent. */
static void put_wrapped(struct sb *out, size_t line_start, struct str text, size_t indent, int width) {
    struct str word;
    bool first = true;
    while (str_split_next(&text, ' ', &word)) {
        if (!first && out->n - line_start + 1 + word.n > (size_t)width) {
            sb_putc(out, '\n');
            line_start = out->n;
            pad_to(out, line_start, indent);
            first = true;
        }
        if (!first) sb_putc(out, ' ');
        sb_put(out, word);
        first = false;
    }
    sb_putc(out, '\n');
}

static const char *placeholder(const struct opt *o) {
    static const char *const usual[] = {
        [ARG_FLAG] = "",     [ARG_INT] = "N",       [ARG_FLOAT] = "X",    [ARG_STRING] = "TEXT",
        [ARG_SIZE] = "SIZE", [ARG_CHOICE] = "NAME", [ARG_INTS] = "N,...", [ARG_STRINGS] = "TEXT",
    };
    return o->value ? o->value : usual[o->type];
}

static void put_flags(struct sb *out, const struct opt *o) {
    if (o->letter) sb_fmt(out, "-%c, ", o->letter);
    sb_fmt(out, "--%s", o->name);
    if (o->type != ARG_FLAG) sb_fmt(out, " %s", placeholder(o));
}

/* The help sentence with everything else that the row says: choices, default, repetition. */
static void put_meaning(struct sb *out, const struct opt *o) {
    sb_puts(out, o->help);
    if (o->choices) sb_fmt(out, ": %s", o->choices);
    if (o->type == ARG_STRINGS) sb_puts(out, " (may be repeated)");
    if (o->initial) sb_fmt(out, " (default %s)", o->initial);
}

/* What stands in the first column is written: on to the second, in the next line where it was too long. Returns where that line begins. */
static size_t end_first_column(struct sb *out, size_t start) {
    if (out->n - start + 2 > COLUMN) {
        sb_putc(out, '\n');
        start = out->n;
    }
    pad_to(out, start, COLUMN);
    return start;
}

static void put_option(struct sb *out, const struct opt *o, int width) {
    size_t start = out->n;
    sb_puts(out, o->letter ? "  " : "      ");
    put_flags(out, o);
    start = end_first_column(out, start);
    struct sb meaning = {0};
    put_meaning(&meaning, o);
    put_wrapped(out, start, sb_str(&meaning), COLUMN, width);
    sb_free(&meaning);
}

/* True for the first row of a section within the command: sections follow the table's order. */
static bool opens_section(enum cmd_id command, int id) {
    if (!opt_is_flag(&cli_options[id], command)) return false;
    for (int i = 0; i < id; i++)
        if (opt_is_flag(&cli_options[i], command) && strcmp(cli_options[i].section, cli_options[id].section) == 0) return false;
    return true;
}

static bool in_section(enum cmd_id command, int id, const char *section) {
    return opt_is_flag(&cli_options[id], command) && strcmp(cli_options[id].section, section) == 0;
}

void help_overview(struct sb *out) {
    sb_puts(out, "mlxcel " MLXCEL_VERSION ": runs language models from MLX and Hugging Face checkpoints\n\n"
                 "Usage: mlxcel COMMAND [options]\n\nCommands:\n");
    for (int i = 0; i < N_COMMANDS; i++) {
        size_t start = out->n;
        sb_fmt(out, "  %s", cli_commands[i].name);
        pad_to(out, start, 16);
        sb_fmt(out, "%s\n", cli_commands[i].summary);
    }
    sb_puts(out, "\n'mlxcel COMMAND --help' shows the options of a command.\n");
}

/* Variables that have no flag: HF_TOKEN and the like. */
static bool is_variable(const struct opt *o, enum cmd_id command) {
    return !o->name && opt_applies(o, command);
}

static void put_variables(struct sb *out, enum cmd_id command, int width) {
    for (int id = 0; id < N_OPTIONS; id++) {
        const struct opt *o = &cli_options[id];
        if (!is_variable(o, command)) continue;
        struct sb meaning = {0};
        struct str rest = str_of(o->env), piece;
        size_t start = out->n;
        for (const char *before = "  "; str_split_next(&rest, ',', &piece); before = ", ") sb_fmt(out, "%s%.*s", before, STR_ARG(piece));
        start = end_first_column(out, start);
        put_meaning(&meaning, o);
        put_wrapped(out, start, sb_str(&meaning), COLUMN, width);
        sb_free(&meaning);
    }
}

static void put_usage(struct sb *out, const struct cmd *c) {
    sb_fmt(out, "mlxcel %s [options]", c->name);
    if (c->operands) sb_fmt(out, " %s", c->operands);
}

static void put_examples(struct sb *out, const struct cmd *c, const char *before) {
    struct str rest = str_of(c->examples), line;
    while (str_split_next(&rest, '\n', &line)) sb_fmt(out, "%s%.*s\n", before, STR_ARG(line));
}

void help_command(struct sb *out, enum cmd_id command, int width) {
    const struct cmd *c = &cli_commands[command];
    if (width < 60) width = 60;
    if (width > 120) width = 120;
    sb_fmt(out, "mlxcel %s: %s\n\nUsage: ", c->name, c->summary);
    put_usage(out, c);
    sb_putc(out, '\n');
    if (c->aliases) sb_fmt(out, "Also: %s\n", c->aliases);
    if (c->details) {
        sb_putc(out, '\n');
        put_wrapped(out, out->n, str_of(c->details), 0, width);
    }
    sb_puts(out, "\nExamples:\n");
    put_examples(out, c, "  ");
    for (int id = 0; id < N_OPTIONS; id++) {
        if (!opens_section(command, id)) continue;
        sb_fmt(out, "\n%s:\n", cli_options[id].section);
        for (int k = id; k < N_OPTIONS; k++)
            if (in_section(command, k, cli_options[id].section)) put_option(out, &cli_options[k], width);
    }
    sb_puts(out, "\nEnvironment:\n  ");
    put_wrapped(out, out->n - 2, STR("settings can also come from there: --some-name from MLXCEL_SOME_NAME or LLAMA_ARG_SOME_NAME"), 2,
                width);
    put_variables(out, command, width);
}

/* ---- docs/cli.md ---------------------------------------------------------------------------------------------- */

/* A table cell: the bar would end it. */
static void put_cell(struct sb *out, struct str text) {
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '|') sb_putc(out, '\\');
        sb_putc(out, text.p[i]);
    }
}

static void put_env_cell(struct sb *out, const struct opt *o) {
    if (o->env && strcmp(o->env, "-") == 0) return;
    struct arena a = {0};
    if (o->name) sb_fmt(out, "`%s`", opt_env_name(&a, "MLXCEL_", o).p);
    struct str rest = o->env ? str_of(o->env) : (struct str){0}, piece;
    for (const char *before = o->name ? " " : ""; str_split_next(&rest, ',', &piece); before = " ")
        sb_fmt(out, "%s`%.*s`", before, STR_ARG(piece));
    arena_free(&a);
}

static void put_markdown_row(struct sb *out, const struct opt *o) {
    struct sb cell = {0};
    sb_puts(out, "| `");
    put_flags(&cell, o);
    put_cell(out, sb_str(&cell));
    sb_puts(out, "` | ");
    sb_clear(&cell);
    put_meaning(&cell, o);
    struct str aliases = o->aliases ? str_of(o->aliases) : (struct str){0}, alias;
    for (const char *before = "; also"; str_split_next(&aliases, ',', &alias); before = ",")
        sb_fmt(&cell, "%s --%.*s", before, STR_ARG(alias));
    put_cell(out, sb_str(&cell));
    sb_puts(out, " | ");
    put_env_cell(out, o);
    sb_puts(out, " |\n");
    sb_free(&cell);
}

static void put_variable_row(struct sb *out, const struct opt *o) {
    struct sb cell = {0};
    sb_puts(out, "| ");
    put_env_cell(out, o);
    sb_puts(out, " | ");
    put_meaning(&cell, o);
    put_cell(out, sb_str(&cell));
    sb_puts(out, " |\n");
    sb_free(&cell);
}

void help_markdown(struct sb *out) {
    sb_puts(out,
            "# Commands and options\n\n"
            "Written by `mlxcel help --markdown` from the tables in src/cli; a test keeps this page equal to them.\n\n"
            "A flag wins over `MLXCEL_NAME`, which wins over `LLAMA_ARG_NAME` (the same name with that prefix), which wins over the\n"
            "default. `--name value`, `--name=value`, `-x value` and `-xvalue` are the same; `--no-name` switches a flag off; `--` ends\n"
            "the options. Exit codes: 0 done, 1 failed, 2 wrong usage. A program called `mlxcel-server` is `mlxcel serve`.\n");
    for (int c = 0; c < N_COMMANDS; c++) {
        char first = cli_commands[c].summary[0];
        if (first >= 'a' && first <= 'z') first = (char)(first - 'a' + 'A');
        sb_fmt(out, "\n## mlxcel %s\n\n%c%s.", cli_commands[c].name, first, cli_commands[c].summary + 1);
        if (cli_commands[c].details) sb_fmt(out, " %s", cli_commands[c].details);
        sb_puts(out, "\n\n`");
        put_usage(out, &cli_commands[c]);
        sb_puts(out, "`\n\n");
        put_examples(out, &cli_commands[c], "    ");
        sb_puts(out, "\n| option | meaning | environment |\n|---|---|---|\n");
        for (int id = 0; id < N_OPTIONS; id++) {
            if (!opens_section((enum cmd_id)c, id)) continue;
            for (int k = id; k < N_OPTIONS; k++)
                if (in_section((enum cmd_id)c, k, cli_options[id].section)) put_markdown_row(out, &cli_options[k]);
        }
    }
    sb_puts(out,
            "\n## Variables without an option\n\nThe help of a command names those that it reads.\n\n| variable | meaning |\n|---|---|\n");
    for (int id = 0; id < N_OPTIONS; id++)
        if (!cli_options[id].name) put_variable_row(out, &cli_options[id]);
}

/* ---- mlxcel(1) ------------------------------------------------------------------------------------------------ */

/* roff text: a backslash or dash is escaped, and a line must not begin with a dot or a quote. */
static void put_roff(struct sb *out, struct str text) {
    for (size_t i = 0; i < text.n; i++) {
        bool begins_line = out->n == 0 || out->p[out->n - 1] == '\n';
        if (begins_line && (text.p[i] == '.' || text.p[i] == '\'')) sb_puts(out, "\\&");
        if (text.p[i] == '\\') sb_puts(out, "\\e");
        else if (text.p[i] == '-') sb_puts(out, "\\-");
        else sb_putc(out, text.p[i]);
    }
}

static void put_man_option(struct sb *out, const struct opt *o) {
    struct sb text = {0};
    sb_puts(out, ".TP\n\\fB");
    if (o->name) put_flags(&text, o);
    else sb_puts(&text, o->env);
    put_roff(out, sb_str(&text));
    sb_puts(out, "\\fR\n");
    sb_clear(&text);
    put_meaning(&text, o);
    put_roff(out, sb_str(&text));
    sb_putc(out, '\n');
    sb_free(&text);
}

static void put_man_command(struct sb *out, enum cmd_id command) {
    const struct cmd *c = &cli_commands[command];
    sb_fmt(out, ".SS mlxcel %s\n", c->name);
    put_roff(out, str_of(c->summary));
    sb_puts(out, ".\n");
    if (c->details) put_roff(out, str_of(c->details));
    if (c->details) sb_putc(out, '\n');
    struct sb text = {0};
    put_examples(&text, c, "");
    sb_puts(out, ".PP\n.nf\n");
    put_roff(out, sb_str(&text));
    sb_puts(out, ".fi\n");
    sb_free(&text);
    for (int id = 0; id < N_OPTIONS; id++) {
        if (!opens_section(command, id)) continue;
        for (int k = id; k < N_OPTIONS; k++)
            if (in_section(command, k, cli_options[id].section)) put_man_option(out, &cli_options[k]);
    }
}

void help_man(struct sb *out) {
    sb_puts(out, ".TH MLXCEL 1 \"\" \"mlxcel " MLXCEL_VERSION
                 "\"\n.SH NAME\nmlxcel \\- runs language models from MLX and Hugging Face checkpoints\n"
                 ".SH SYNOPSIS\n.B mlxcel\n.I COMMAND\n[options]\n.br\n.B mlxcel\\-server\n[options of serve]\n.SH COMMANDS\n");
    for (int c = 0; c < N_COMMANDS; c++) put_man_command(out, (enum cmd_id)c);
    sb_puts(out, ".SH ENVIRONMENT\n\\-\\-some\\-name also comes from MLXCEL_SOME_NAME or LLAMA_ARG_SOME_NAME; the flag wins.\n");
    for (int id = 0; id < N_OPTIONS; id++)
        if (!cli_options[id].name) put_man_option(out, &cli_options[id]);
    sb_puts(out, ".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage.\n");
}
