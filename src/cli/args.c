/* The parser: finds the row of each flag, converts its text, then fills what is left from the environment and the
 * defaults. It knows no command and no option by name but help and version. */
#include "cli/args.h"

#include "os/os.h"

#include <assert.h>
#include <math.h>

const struct cmd cli_commands[N_COMMANDS] = {
#define COMMAND(id, function, ...) [CMD_##id] = {__VA_ARGS__},
#include "cli/commands.def"
#undef COMMAND
};

const struct opt cli_options[N_OPTIONS] = {
#define OPTION(id, ...) [OPT_##id] = {__VA_ARGS__},
#include "cli/options.def"
#undef OPTION
};

static_assert(N_COMMANDS <= 64, "sets of commands are 64-bit masks");

/* ---- looking up rows ------------------------------------------------------------------------------------------ */

static bool in_list(const char *list, struct str name) {
    struct str rest = list ? str_of(list) : (struct str){0}, piece;
    while (str_split_next(&rest, ',', &piece))
        if (str_eq(piece, name)) return true;
    return false;
}

int cmd_find(struct str name) {
    for (int i = 0; i < N_COMMANDS; i++)
        if (str_is(name, cli_commands[i].name) || in_list(cli_commands[i].aliases, name)) return i;
    return -1;
}

bool opt_applies(const struct opt *o, enum cmd_id command) {
    return o->commands >> command & 1;
}

bool opt_is_flag(const struct opt *o, enum cmd_id command) {
    return o->name && opt_applies(o, command);
}

static int find_long(enum cmd_id command, struct str name) {
    for (int i = 0; i < N_OPTIONS; i++)
        if (opt_is_flag(&cli_options[i], command) && (str_is(name, cli_options[i].name) || in_list(cli_options[i].aliases, name))) return i;
    return -1;
}

static int find_letter(enum cmd_id command, char letter) {
    for (int i = 0; i < N_OPTIONS; i++)
        if (opt_applies(&cli_options[i], command) && cli_options[i].letter && cli_options[i].letter == letter) return i;
    return -1;
}

struct str opt_env_name(struct arena *a, const char *prefix, const struct opt *o) {
    struct str name = str_fmt(a, "%s%s", prefix, o->name);
    char *p = (char *)(uintptr_t)name.p;
    for (size_t i = 0; i < name.n; i++) {
        if (p[i] == '-') p[i] = '_';
        else if (p[i] >= 'a' && p[i] <= 'z') p[i] = (char)(p[i] - 'a' + 'A');
    }
    return name;
}

/* ---- suggestions ---------------------------------------------------------------------------------------------- */

struct nearest {
    struct str wanted;
    const char *best;
    size_t distance;
};

static void nearest_offer(struct nearest *n, const char *name) {
    size_t d = str_distance(n->wanted, str_of(name));
    if (n->wanted.n >= 3 && str_starts(str_of(name), n->wanted)) d = 1; /* the beginning of it */
    if (d < n->distance) *n = (struct nearest){n->wanted, name, d};
}

static struct nearest nearest_begin(struct str wanted) {
    return (struct nearest){wanted, NULL, wanted.n / 3 + 2}; /* worse than this is no help */
}

int cmd_unknown(struct str name, struct err *err) {
    struct nearest n = nearest_begin(name);
    for (int i = 0; i < N_COMMANDS; i++) nearest_offer(&n, cli_commands[i].name);
    if (n.best) return err_set(err, ERR_EARG, "unknown command '%.*s'; did you mean '%s'?", STR_ARG(name), n.best);
    return err_set(err, ERR_EARG, "unknown command '%.*s'; 'mlxcel help' lists them", STR_ARG(name));
}

/* Options of the original that name what this program does not do; a line says so better than a guess at another name. */
static int refuse_parallel(struct str name, struct err *err) {
    static const char *const names[] = {"tp-", "pp-", "node-role"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_starts(name, str_of(names[i])))
            return err_set(err, ERR_EARG,
                           "--%.*s is no option here; --tensor-parallel N, --pipeline-parallel N and --split say how GPUs share a model",
                           STR_ARG(name));
    return ERR_OK;
}

static int unknown_option(enum cmd_id command, struct str name, struct err *err) {
    TRY(refuse_parallel(name, err));
    struct nearest n = nearest_begin(name);
    for (int i = 0; i < N_OPTIONS; i++)
        if (opt_is_flag(&cli_options[i], command)) nearest_offer(&n, cli_options[i].name);
    if (n.best) return err_set(err, ERR_EARG, "unknown option --%.*s; did you mean --%s?", STR_ARG(name), n.best);
    return err_set(err, ERR_EARG, "unknown option --%.*s; 'mlxcel %s --help' lists them", STR_ARG(name), cli_commands[command].name);
}

int args_find(enum cmd_id command, struct str name, int *out, struct err *err) {
    *out = find_long(command, name);
    return *out < 0 ? unknown_option(command, name, err) : ERR_OK;
}

/* ---- converting text ------------------------------------------------------------------------------------------ */

/* In any case: True and ON come from the environment of other programs. */
static bool parse_flag(struct str text, int64_t *out) {
    static const char *const words[2][5] = {{"0", "false", "off", "no", "n"}, {"1", "true", "on", "yes", "y"}};
    char small[6] = {0};
    if (text.n >= sizeof small) return false;
    for (size_t i = 0; i < text.n; i++) small[i] = text.p[i] >= 'A' && text.p[i] <= 'Z' ? (char)(text.p[i] - 'A' + 'a') : text.p[i];
    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 5; i++)
            if (strcmp(small, words[value][i]) == 0) {
                *out = value;
                return true;
            }
    return false;
}

static bool parse_size(struct str text, int64_t *out) {
    static const char units[] = "KMGT";
    if (text.n && (text.p[text.n - 1] == 'B' || text.p[text.n - 1] == 'b')) text.n--;
    if (text.n && text.p[text.n - 1] == 'i') text.n--;
    int shift = 0;
    if (text.n) {
        char last = text.p[text.n - 1];
        const char *unit = strchr(units, last >= 'a' && last <= 'z' ? last - 'a' + 'A' : last);
        if (last && unit) {
            shift = 10 * (int)(unit - units + 1);
            text.n--;
        }
    }
    int64_t value;
    if (!str_to_int64(text, &value) || value < 0 || value > INT64_MAX >> shift) return false;
    *out = value << shift;
    return true;
}

static bool parse_choice(const struct opt *o, struct str text, struct arg_value *v) {
    struct str rest = str_of(o->choices), piece;
    for (int64_t i = 0; str_split_next(&rest, '|', &piece); i++)
        if (str_eq(piece, text)) {
            v->i = i;
            v->s = piece;
            return true;
        }
    return false;
}

static bool in_range(const struct opt *o, double value) {
    return (o->min == 0 && o->max == 0) || (value >= o->min && value <= o->max);
}

static bool parse_ints(struct arena *a, const struct opt *o, struct str text, struct arg_value *v) {
    size_t n = v->n + 1;
    for (size_t i = 0; i < text.n; i++) n += text.p[i] == ',';
    int64_t *ints = arena_new(a, int64_t, n);
    if (v->n) memcpy(ints, v->ints, v->n * sizeof *ints);
    n = v->n;
    struct str rest = text, piece;
    while (str_split_next(&rest, ',', &piece)) {
        if (!str_to_int64(str_trim(piece), &ints[n]) || !in_range(o, (double)ints[n])) return false;
        n++;
    }
    v->ints = ints;
    v->n = n;
    return true;
}

static void append_string(struct arena *a, struct str text, struct arg_value *v) {
    struct str *strings = arena_new(a, struct str, v->n + 1);
    if (v->n) memcpy(strings, v->strings, v->n * sizeof *strings);
    strings[v->n++] = str_copy(a, text);
    v->strings = strings;
}

/* Nothing is called "": an empty shell variable stood there. */
static bool is_path(const struct opt *o) {
    static const char *const names[] = {"DIR", "FILE", "PATH"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (o->value && strcmp(o->value, names[i]) == 0) return true;
    return false;
}

bool arg_parse(struct arena *a, const struct opt *o, struct str text, struct arg_value *v) {
    switch (o->type) {
    case ARG_FLAG: return parse_flag(text, &v->i);
    case ARG_INT: return str_to_int64(text, &v->i) && in_range(o, (double)v->i);
    case ARG_FLOAT: return str_to_double(text, &v->f) && isfinite(v->f) && in_range(o, v->f);
    case ARG_SIZE: return parse_size(text, &v->i) && in_range(o, (double)v->i);
    case ARG_CHOICE: return parse_choice(o, text, v);
    case ARG_INTS: return parse_ints(a, o, text, v);
    case ARG_STRING:
        v->s = is_path(o) ? str_of(os_path(a, text)) : str_copy(a, text);
        append_string(a, v->s, v);
        return text.n || !is_path(o);
    case ARG_STRINGS: append_string(a, text, v); return true;
    }
    return false;
}

void args_describe(const struct opt *o, struct sb *out) {
    static const char *const what[] = {
        [ARG_FLAG] = "1 or 0",
        [ARG_INT] = "a whole number",
        [ARG_FLOAT] = "a number",
        [ARG_STRING] = "text",
        [ARG_SIZE] = "a size such as 512M",
        [ARG_CHOICE] = "one of ",
        [ARG_INTS] = "whole numbers separated by commas",
        [ARG_STRINGS] = "text",
    };
    sb_puts(out, is_path(o) ? "a path" : what[o->type]);
    if (o->type == ARG_CHOICE) sb_puts(out, o->choices);
    else if (o->min != 0 || o->max != 0) sb_fmt(out, " from %.15g to %.15g", o->min, o->max);
}

/* where: "--threads", "MLXCEL_THREADS" or "server.toml:3: threads". */
int args_set(struct args *args, int id, const char *where, struct str text, enum arg_source source, struct err *err) {
    const struct opt *o = &cli_options[id];
    struct arg_value *v = &args->values[id];
    if (v->source != source) *v = (struct arg_value){.source = source}; /* a list of flags does not extend the default */
    if (arg_parse(args->arena, o, text, v)) return ERR_OK;
    struct sb expected = {0};
    args_describe(o, &expected);
    int code = err_set(err, ERR_EARG, "%s is '%.*s', expected %s", where, STR_ARG(text), expected.p);
    sb_free(&expected);
    return code;
}

/* ---- walking argv --------------------------------------------------------------------------------------------- */

struct walk {
    struct args *args;
    int argc, i;
    char *const *argv;
};

static int need_value(struct walk *w, const char *where, struct str *out, struct err *err) {
    if (w->i + 1 >= w->argc) return err_set(err, ERR_EARG, "%s needs a value", where);
    *out = str_of(w->argv[++w->i]);
    return ERR_OK;
}

static int take_long(struct walk *w, struct str arg, struct err *err) {
    size_t eq = str_find_char(arg, '=', 0);
    struct str name = str_sub(arg, 0, eq), value = eq == STR_NONE ? (struct str){0} : str_from(arg, eq + 1);
    int id = find_long(w->args->command, name);
    if (id < 0 && str_starts(name, STR("no-"))) {
        id = find_long(w->args->command, str_from(name, 3));
        if (id >= 0 && cli_options[id].type != ARG_FLAG) id = -1;
        if (id >= 0 && value.p) return err_set(err, ERR_EARG, "--%.*s takes no value", STR_ARG(name));
        if (id >= 0) value = STR("0");
    }
    if (id < 0) return unknown_option(w->args->command, name, err);
    const char *where = str_fmt(w->args->arena, "--%s", cli_options[id].name).p;
    if (!value.p && cli_options[id].type == ARG_FLAG) value = STR("1");
    if (!value.p) TRY(need_value(w, where, &value, err));
    return args_set(w->args, id, where, value, ARG_FROM_FLAG, err);
}

static int take_letters(struct walk *w, struct str letters, struct err *err) {
    for (size_t i = 0; i < letters.n; i++) {
        const char where[] = {'-', letters.p[i], '\0'};
        int id = find_letter(w->args->command, letters.p[i]);
        if (id < 0)
            return err_set(err, ERR_EARG, "unknown option %s; 'mlxcel %s --help' lists them", where, cli_commands[w->args->command].name);
        if (cli_options[id].type == ARG_FLAG) {
            TRY(args_set(w->args, id, where, STR("1"), ARG_FROM_FLAG, err));
            continue;
        }
        struct str value = str_from(letters, i + 1);
        if (value.n == 0) TRY(need_value(w, where, &value, err));
        else if (value.p[0] == '=') value = str_from(value, 1);
        return args_set(w->args, id, where, value, ARG_FROM_FLAG, err);
    }
    return ERR_OK;
}

static int take_all(struct walk *w, struct err *err) {
    struct args *args = w->args;
    bool ended = false;
    args->operands = arena_new(args->arena, struct str, w->argc + 1);
    for (; w->i < w->argc; w->i++) {
        struct str arg = str_of(w->argv[w->i]);
        if (ended || arg.n < 2 || arg.p[0] != '-') args->operands[args->n_operands++] = arg;
        else if (str_is(arg, "--")) ended = true;
        else if (arg.p[1] == '-') TRY(take_long(w, str_from(arg, 2), err));
        else TRY(take_letters(w, str_from(arg, 1), err));
    }
    return ERR_OK;
}

/* ---- environment and defaults --------------------------------------------------------------------------------- */

static int take_env(struct args *args, int id, args_env_fn *env, struct err *err) {
    const struct opt *o = &cli_options[id];
    if (o->env && strcmp(o->env, "-") == 0) return ERR_OK;
    struct str list = str_of(o->env ? o->env : ""), piece;
    if (o->name)
        list = str_fmt(args->arena, "%.*s,%.*s%s%s", STR_ARG(opt_env_name(args->arena, "MLXCEL_", o)),
                       STR_ARG(opt_env_name(args->arena, "LLAMA_ARG_", o)), o->env ? "," : "", o->env ? o->env : "");
    while (str_split_next(&list, ',', &piece)) {
        const char *name = str_cstr(args->arena, piece);
        const char *value = env(name);
        if (!value || !*value) continue;
        TRY(args_set(args, id, name, str_of(value), ARG_FROM_ENV, err));
        args->values[id].variable = piece;
        return ERR_OK;
    }
    return ERR_OK;
}

static int fill_rest(struct args *args, args_env_fn *env, struct err *err) {
    for (int id = 0; id < N_OPTIONS; id++) {
        struct arg_value *v = &args->values[id];
        if (!opt_applies(&cli_options[id], args->command)) continue;
        if (v->source == ARG_UNSET) TRY(take_env(args, id, env, err));
        if (v->source == ARG_UNSET && cli_options[id].initial)
            TRY(args_set(args, id, "the default", str_of(cli_options[id].initial), ARG_FROM_DEFAULT, err));
    }
    return ERR_OK;
}

static int check_operands(const struct args *args, struct err *err) {
    const struct cmd *c = &cli_commands[args->command];
    if (args->n_operands > (size_t)c->max_operands)
        return err_set(err, ERR_EARG, "%s: unexpected argument '%.*s'; see 'mlxcel %s --help'", c->name,
                       STR_ARG(args->operands[c->max_operands]), c->name);
    if (args->n_operands < (size_t)c->min_operands)
        return err_set(err, ERR_EARG, "%s needs %s; see 'mlxcel %s --help'", c->name, c->operands, c->name);
    return ERR_OK;
}

/* "C:\bin\mlxcel-server.exe" and "/usr/bin/mlxcel-server-0.1" both are the server. */
static bool is_server_name(const char *program) {
    struct str name = str_of(program);
    for (size_t i = name.n; i-- > 0;)
        if (name.p[i] == '/' || name.p[i] == '\\') {
            name = str_from(name, i + 1);
            break;
        }
    return str_starts(name, STR("mlxcel-server"));
}

/* Which command argv asks for, and where its own arguments begin. */
static int find_command(int argc, char *const *argv, int *out_command, int *out_first, struct err *err) {
    struct str first = argc > 1 ? str_of(argv[1]) : (struct str){0};
    *out_first = 2;
    *out_command = first.p ? cmd_find(first) : -1;
    /* also after a command: the launcher of Windows turns "mlxcel-server --version" into "mlxcel serve --version" */
    int version_at = *out_command >= 0 ? 2 : 1;
    if (argc > version_at && (strcmp(argv[version_at], "--version") == 0 || strcmp(argv[version_at], "-V") == 0)) {
        *out_command = CMD_VERSION;
        *out_first = version_at + 1;
        return ERR_OK;
    }
    if (*out_command >= 0) return ERR_OK;
    if (argc > 0 && is_server_name(argv[0])) {
        *out_first = 1;
        *out_command = cmd_find(STR("serve"));
        return *out_command >= 0 ? ERR_OK : err_set(err, ERR_EUNSUPPORTED, "this build has no server");
    }
    if (argc < 2 || str_is(first, "--help") || str_is(first, "-h")) {
        *out_command = CMD_HELP;
        return ERR_OK;
    }
    if (first.n && first.p[0] == '-')
        return err_set(err, ERR_EARG, "expected a command before %.*s; 'mlxcel help' lists them", STR_ARG(first));
    return cmd_unknown(first, err);
}

int args_parse(struct arena *a, int argc, char *const *argv, args_env_fn *env, struct args *out, struct err *err) {
    *out = (struct args){.arena = a};
    int command, first;
    TRY(find_command(argc, argv, &command, &first, err));
    out->command = (enum cmd_id)command;
    struct walk w = {.args = out, .argc = argc, .i = first, .argv = argv};
    TRY(take_all(&w, err));
    if (out->values[OPT_HELP].i) { /* asking for help excuses every other mistake */
        out->n_operands = 1;
        out->operands[0] = str_of(cli_commands[command].name);
        out->command = CMD_HELP;
        out->values[OPT_HELP].i = 0;
    }
    TRY(fill_rest(out, env, err));
    return check_operands(out, err);
}

/* ---- typed look-ups ------------------------------------------------------------------------------------------- */

static const struct arg_value *value_of(const struct args *args, enum opt_id id) {
    assert(opt_applies(&cli_options[id], args->command));
    return &args->values[id];
}

bool args_flag(const struct args *args, enum opt_id id) {
    assert(cli_options[id].type == ARG_FLAG);
    return value_of(args, id)->i != 0;
}

int64_t args_int(const struct args *args, enum opt_id id) {
    assert(cli_options[id].type == ARG_INT || cli_options[id].type == ARG_SIZE);
    return value_of(args, id)->i;
}

double args_float(const struct args *args, enum opt_id id) {
    assert(cli_options[id].type == ARG_FLOAT);
    return value_of(args, id)->f;
}

struct str args_str(const struct args *args, enum opt_id id) {
    assert(cli_options[id].type == ARG_STRING || cli_options[id].type == ARG_CHOICE);
    return value_of(args, id)->s;
}

const char *args_cstr(const struct args *args, enum opt_id id) {
    struct str s = args_str(args, id);
    return s.p ? str_cstr(args->arena, s) : NULL;
}

int args_choice(const struct args *args, enum opt_id id) {
    assert(cli_options[id].type == ARG_CHOICE);
    const struct arg_value *v = value_of(args, id);
    return v->source == ARG_UNSET ? -1 : (int)v->i;
}

size_t args_strings(const struct args *args, enum opt_id id, const struct str **out) {
    assert(cli_options[id].type == ARG_STRINGS || cli_options[id].type == ARG_STRING);
    *out = value_of(args, id)->strings;
    return value_of(args, id)->n;
}

size_t args_ints(const struct args *args, enum opt_id id, const int64_t **out) {
    assert(cli_options[id].type == ARG_INTS);
    *out = value_of(args, id)->ints;
    return value_of(args, id)->n;
}

bool args_given(const struct args *args, enum opt_id id) {
    return value_of(args, id)->source >= ARG_FROM_FILE;
}

bool args_has(const struct args *args, enum opt_id id) {
    return opt_applies(&cli_options[id], args->command);
}
