/* The command line: conversion of every type, precedence of flag, environment and default, suggestions, help, docs. */
#include "unit.h"

#include "cli/args.h"
#include "os/os.h"

static struct arena arena;
static struct args args;
static struct err err;
static const char *env_name, *env_value, *env_name2, *env_value2;

static const char *test_env(const char *name) {
    if (env_name && strcmp(name, env_name) == 0) return env_value;
    if (env_name2 && strcmp(name, env_name2) == 0) return env_value2;
    return NULL;
}

/* Splits at spaces; the program's name comes first. */
static int parse(const char *line) {
    char *argv[16], *text = str_cstr(&arena, str_of(line));
    int argc = 0;
    for (char *p = strtok(text, " "); p; p = strtok(NULL, " ")) argv[argc++] = p;
    err_clear(&err);
    return args_parse(&arena, argc, argv, test_env, &args, &err);
}

static void expect_message(const char *line, const char *message) {
    CHECK_INT(parse(line), ERR_EARG);
    CHECK_STR(str_of(err.msg), str_of(message));
}

static bool convert(const struct opt *row, const char *text, struct arg_value *out) {
    return arg_parse(&arena, row, str_of(text), out);
}

static void numbers_and_ranges(void) {
    struct opt o = {.type = ARG_INT, .min = 1, .max = 64};
    struct arg_value v = {0};
    CHECK(convert(&o, "64", &v) && v.i == 64);
    CHECK(!convert(&o, "0", &v) && !convert(&o, "65", &v) && !convert(&o, "", &v) && !convert(&o, "4x", &v) && !convert(&o, "1.5", &v));
    o = (struct opt){.type = ARG_INT};
    CHECK(convert(&o, "-9223372036854775808", &v) && v.i == INT64_MIN);
    o = (struct opt){.type = ARG_FLOAT, .min = 0, .max = 2};
    CHECK(convert(&o, "0.7", &v) && v.f == 0.7);
    CHECK(!convert(&o, "nan", &v) && !convert(&o, "2.1", &v) && !convert(&o, "inf", &v) && !convert(&o, "abc", &v));
    o = (struct opt){.type = ARG_FLAG};
    CHECK(convert(&o, "on", &v) && v.i == 1 && convert(&o, "false", &v) && v.i == 0 && !convert(&o, "maybe", &v));
}

static void paths(void) {
    struct opt o = {.type = ARG_STRING, .value = "DIR"};
    struct arg_value v = {0};
    CHECK(convert(&o, "a b", &v) && str_is(v.s, "a b"));
    CHECK(!convert(&o, "", &v));
    o.value = "TEXT";
    CHECK(convert(&o, "", &v) && v.s.p && v.s.n == 0);
}

static void sizes(void) {
    struct opt o = {.type = ARG_SIZE};
    struct arg_value v = {0};
    CHECK(convert(&o, "4096", &v) && v.i == 4096);
    CHECK(convert(&o, "64K", &v) && v.i == 65536);
    CHECK(convert(&o, "2g", &v) && v.i == INT64_C(2) << 30);
    CHECK(convert(&o, "3MiB", &v) && v.i == 3 << 20);
    CHECK(convert(&o, "7T", &v) && v.i == INT64_C(7) << 40);
    CHECK(!convert(&o, "K", &v) && !convert(&o, "-1", &v) && !convert(&o, "99999999999T", &v) && !convert(&o, "1.5G", &v));
}

static void lists_append(void) {
    struct opt ints = {.type = ARG_INTS, .min = 0, .max = 9}, strings = {.type = ARG_STRINGS};
    struct arg_value v = {0};
    CHECK(convert(&ints, "1,2", &v) && convert(&ints, "3", &v));
    CHECK_INT(v.n, 3);
    CHECK(v.ints[0] == 1 && v.ints[1] == 2 && v.ints[2] == 3);
    CHECK(!convert(&ints, "1,10", &v) && !convert(&ints, "1,,2", &v));
    v = (struct arg_value){0};
    CHECK(convert(&strings, "a", &v) && convert(&strings, "", &v) && v.n == 2);
    CHECK_STR(v.strings[0], STR("a"));
}

static void flag_wins_over_environment(void) {
    CHECK_INT(parse("mlxcel version"), 0);
    CHECK_STR(args_str(&args, OPT_LOG_LEVEL), STR("info"));
    CHECK(!args_given(&args, OPT_LOG_LEVEL));
    env_name = "LLAMA_ARG_LOG_LEVEL", env_value = "debug";
    CHECK_INT(parse("mlxcel version"), 0);
    CHECK_INT(args_choice(&args, OPT_LOG_LEVEL), 3);
    env_name2 = "MLXCEL_LOG_LEVEL", env_value2 = "warning";
    CHECK_INT(parse("mlxcel version"), 0);
    CHECK_INT(args_choice(&args, OPT_LOG_LEVEL), 1);
    CHECK(args_given(&args, OPT_LOG_LEVEL));
    CHECK_INT(parse("mlxcel version --log-level error"), 0);
    CHECK_INT(args_choice(&args, OPT_LOG_LEVEL), 0);
    env_value2 = "loud";
    expect_message("mlxcel version", "MLXCEL_LOG_LEVEL is 'loud', expected one of error|warning|info|debug");
    env_name = "MLXCEL_JSON", env_value = "1", env_name2 = NULL; /* this one reads no environment */
    CHECK_INT(parse("mlxcel version"), 0);
    CHECK(!args_flag(&args, OPT_JSON));
    env_name = NULL;
}

static void forms_of_flags(void) {
    CHECK_INT(parse("mlxcel version --json"), 0);
    CHECK(args_flag(&args, OPT_JSON));
    CHECK_INT(parse("mlxcel version --json --no-json"), 0);
    CHECK(!args_flag(&args, OPT_JSON) && args_given(&args, OPT_JSON));
    CHECK_INT(parse("mlxcel --version --json"), 0);
    CHECK(args.command == CMD_VERSION && args_flag(&args, OPT_JSON));
    CHECK_INT(parse("mlxcel version --log-level=debug"), 0);
    CHECK_INT(args_choice(&args, OPT_LOG_LEVEL), 3);
    CHECK_INT(parse("mlxcel completions -- --bash"), 0);
    CHECK_STR(args.operands[0], STR("--bash"));
}

static void mistakes_name_the_cure(void) {
    expect_message("mlxcel verson", "unknown command 'verson'; did you mean 'version'?");
    expect_message("mlxcel frobnicate", "unknown command 'frobnicate'; 'mlxcel help' lists them");
    expect_message("mlxcel version --jsn", "unknown option --jsn; did you mean --json?");
    expect_message("mlxcel version --log", "unknown option --log; did you mean --log-level?");
    expect_message("mlxcel generate --pp-layers=0-15,16-31",
                   "--pp-layers is no option here; --tensor-parallel N, --pipeline-parallel N and --split say how GPUs share a model");
    CHECK_INT(parse("mlxcel generate --tp-size 2 --pp-size 3"), 0);
    CHECK_STR(args_str(&args, OPT_TENSOR_PARALLEL), STR("2"));
    CHECK_INT(args_int(&args, OPT_PIPELINE_PARALLEL), 3);
    expect_message("mlxcel generate --pipeline-parallel 17", "--pipeline-parallel is '17', expected a whole number from 1 to 16");
    expect_message("mlxcel version -z", "unknown option -z; 'mlxcel version --help' lists them");
    expect_message("mlxcel version --markdown", "unknown option --markdown; 'mlxcel version --help' lists them");
    expect_message("mlxcel version --log-level", "--log-level needs a value");
    expect_message("mlxcel version --json=maybe", "--json is 'maybe', expected 1 or 0");
    expect_message("mlxcel version --no-json=1", "--no-json takes no value");
    expect_message("mlxcel version --no-log-level", "unknown option --no-log-level; did you mean --log-level?");
    expect_message("mlxcel version extra", "version: unexpected argument 'extra'; see 'mlxcel version --help'");
    expect_message("mlxcel completions", "completions needs bash|zsh|fish|powershell; see 'mlxcel completions --help'");
    expect_message("mlxcel --json", "expected a command before --json; 'mlxcel help' lists them");
}

static void help_and_program_names(void) {
    CHECK_INT(parse("mlxcel"), 0);
    CHECK_INT(args.command, CMD_HELP);
    CHECK_INT(parse("mlxcel completions --help"), 0); /* although its operand is missing */
    CHECK(args.command == CMD_HELP && args.n_operands == 1);
    CHECK_STR(args.operands[0], STR("completions"));
    CHECK_INT(parse("C:\\bin\\mlxcel-server.exe version"), 0);
    CHECK_INT(args.command, CMD_VERSION);
    CHECK(parse("/usr/bin/mlxcel-server") == 0 ? str_is(str_of(cli_commands[args.command].name), "serve") : err.code == ERR_EUNSUPPORTED);
}

/* Rows without a name are read from the environment under the names that they list, the first that is set; no flag gives them. */
static void variables_without_a_flag(void) {
    env_name = "HUGGINGFACE_HUB_TOKEN", env_value = "old";
    CHECK_OK(parse("mlxcel download a/b"), err);
    CHECK_STR(args_str(&args, OPT_HF_TOKEN), STR("old"));
    CHECK_STR(args.values[OPT_HF_TOKEN].variable, STR("HUGGINGFACE_HUB_TOKEN"));
    CHECK(args_str(&args, OPT_HF_HOME).p == NULL);
    CHECK_STR(args_str(&args, OPT_DEFAULT_ORG), STR("mlx-community"));
    env_name2 = "HF_TOKEN", env_value2 = "new";
    CHECK_OK(parse("mlxcel download a/b"), err);
    CHECK_STR(args_str(&args, OPT_HF_TOKEN), STR("new"));
    CHECK_INT(parse("mlxcel download a/b --hf-token x"), ERR_EARG);
    env_name = "MLXCEL_XLA_PROGRAMS", env_value = "0", env_name2 = NULL;
    expect_message("mlxcel generate", "MLXCEL_XLA_PROGRAMS is '0', expected a whole number from 1 to 64");
    env_name = NULL;
    struct sb out = {0};
    help_command(&out, CMD_DOWNLOAD, 80);
    CHECK(str_find(sb_str(&out), STR("HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HUGGINGFACE_HUB_TOKEN\n"), 0) != STR_NONE);
    sb_free(&out);
}

/* Every row is well formed: names are unique within a command, defaults convert, choices exist. */
static void tables_are_sound(void) {
    for (int i = 0; i < N_OPTIONS; i++) {
        const struct opt *o = &cli_options[i];
        struct arg_value v = {0};
        CHECK(o->help && o->commands);
        CHECK(o->name ? o->section != NULL : o->env && strcmp(o->env, "-") && !o->letter && !o->aliases && !o->section);
        CHECK((o->type == ARG_CHOICE) == (o->choices != NULL));
        FAIL_IF(o->initial && !convert(o, o->initial, &v), "default of --%s: '%s'", o->name ? o->name : o->env, o->initial);
        for (int k = 0; k < i; k++) {
            if (!(cli_options[k].commands & o->commands)) continue;
            if (!o->name || !cli_options[k].name) {
                FAIL_IF(o->env && cli_options[k].env && strcmp(o->env, "-") && strcmp(o->env, cli_options[k].env) == 0, "%s stands twice",
                        o->env);
                continue;
            }
            FAIL_IF(strcmp(cli_options[k].name, o->name) == 0, "--%s stands twice for one command", o->name);
            FAIL_IF(o->letter && cli_options[k].letter == o->letter, "-%c: --%s and --%s", o->letter, cli_options[k].name, o->name);
        }
    }
    for (int i = 0; i < N_COMMANDS; i++) {
        CHECK(cli_commands[i].name && cli_commands[i].summary && cli_commands[i].examples);
        CHECK((cli_commands[i].operands != NULL) == (cli_commands[i].max_operands > 0));
        CHECK_INT(cmd_find(str_of(cli_commands[i].name)), i);
    }
}

static void completions_name_everything(void) {
    static const char *const shells[] = {"bash", "zsh", "fish"};
    for (int s = 0; s < 3; s++) {
        struct sb out = {0};
        CHECK(complete_script(&out, str_of(shells[s])));
        for (int i = 0; i < N_COMMANDS; i++) CHECK(str_find(sb_str(&out), str_of(cli_commands[i].name), 0) != STR_NONE);
        for (int i = 0; i < N_OPTIONS; i++)
            CHECK(!cli_options[i].name || str_find(sb_str(&out), str_of(cli_options[i].name), 0) != STR_NONE);
        sb_free(&out);
    }
    struct sb out = {0};
    CHECK(!complete_script(&out, STR("tcsh")));
}

static void docs_page_is_current(void) {
    struct str page;
    struct sb out = {0};
    CHECK_OK(os_file_load(&arena, str_fmt(&arena, "%s/docs/cli.md", unit_source_dir()).p, 0, &page, &err), err);
    help_markdown(&out);
    FAIL_IF(!str_eq(sb_str(&out), page), "docs/cli.md is old: mlxcel help --markdown > docs/cli.md");
    sb_free(&out);
}

static void help_fits_the_width(void) {
    for (int i = 0; i < N_COMMANDS; i++) {
        struct sb out = {0};
        help_command(&out, (enum cmd_id)i, 80);
        struct str rest = sb_str(&out), line;
        while (str_split_next(&rest, '\n', &line)) FAIL_IF(line.n > 80, "%s: %.*s", cli_commands[i].name, STR_ARG(line));
        sb_free(&out);
    }
}

const struct unit_suite unit_args = {
    "args",
    (const struct unit_case[]){
        {"numbers_and_ranges", numbers_and_ranges},
        {"paths", paths},
        {"sizes", sizes},
        {"lists_append", lists_append},
        {"flag_wins_over_environment", flag_wins_over_environment},
        {"forms_of_flags", forms_of_flags},
        {"mistakes_name_the_cure", mistakes_name_the_cure},
        {"help_and_program_names", help_and_program_names},
        {"variables_without_a_flag", variables_without_a_flag},
        {"tables_are_sound", tables_are_sound},
        {"completions_name_everything", completions_name_everything},
        {"docs_page_is_current", docs_page_is_current},
        {"help_fits_the_width", help_fits_the_width},
        {0},
    },
};
