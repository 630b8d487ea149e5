/* mlxcel grammar: does a text obey a grammar? Accepted is exit code 0, rejected 1, a grammar that cannot be held 2. */
#include "tools/grammar.h"
#include "base/log.h"
#include "cli/store_args.h"
#include "os/os.h"

enum { GRAMMAR_MAX_BYTES = 16 << 20, TEXT_MAX_BYTES = 256 << 20 };

static int read_grammar_file(const struct args *args, enum opt_id id, enum gram_kind kind, struct gram_source *out, struct err *err) {
    out->kind = kind;
    return os_file_load(args->arena, args_cstr(args, id), GRAMMAR_MAX_BYTES, &out->text, err);
}

static int read_grammar(const struct args *args, struct gram_source *out, struct err *err) {
    int n = args_given(args, OPT_GRAMMAR_SCHEMA) + args_given(args, OPT_GRAMMAR_GBNF) + args_given(args, OPT_GRAMMAR_REGEX) +
            args_flag(args, OPT_GRAMMAR_OBJECT);
    *out = (struct gram_source){.kind = GRAM_JSON_OBJECT};
    if (n != 1) return err_set(err, ERR_EARG, "give one grammar: --schema FILE, --gbnf FILE, --regex RE or --json-object");
    if (args_given(args, OPT_GRAMMAR_SCHEMA)) return read_grammar_file(args, OPT_GRAMMAR_SCHEMA, GRAM_JSON_SCHEMA, out, err);
    if (args_given(args, OPT_GRAMMAR_GBNF)) return read_grammar_file(args, OPT_GRAMMAR_GBNF, GRAM_GBNF, out, err);
    if (args_given(args, OPT_GRAMMAR_REGEX)) *out = (struct gram_source){.kind = GRAM_REGEX, .text = args_str(args, OPT_GRAMMAR_REGEX)};
    return ERR_OK;
}

static void apply_options(const struct args *args, struct gram_options *o) {
    static const enum gram_draft drafts[] = {GRAM_DRAFT_AUTO, GRAM_DRAFT_4, GRAM_DRAFT_6, GRAM_DRAFT_7, GRAM_DRAFT_2019, GRAM_DRAFT_2020};
    o->draft = drafts[args_choice(args, OPT_GRAMMAR_DRAFT)];
    if (args_flag(args, OPT_GRAMMAR_ORDER)) o->any_order = false;
    if (args_given(args, OPT_GRAMMAR_SPACE)) {
        o->space = (uint8_t)args_int(args, OPT_GRAMMAR_SPACE);
        o->outer_space = false;
    }
}

static void warn(struct str lines) {
    struct str line;
    while (lines.n && str_split_next(&lines, '\n', &line))
        if (line.n) log_warn("%.*s", STR_ARG(line));
}

static int compile(const struct args *args, const struct grammar_tool *t, struct gram **out, struct err *err) {
    struct gram_source source;
    struct sb warnings = {0}, report = {0};
    TRY(read_grammar(args, &source, err));
    int code = gram_compile(&source, &t->options, &warnings, out, err);
    warn(sb_str(&warnings));
    sb_free(&warnings);
    if (!code || !args_flag(args, OPT_JSON)) return code;
    grammar_tool_refused(err, &report);
    struct err ignored; /* why it was refused is the better message */
    cli_write(&report, &ignored);
    sb_free(&report);
    return code;
}

static int judge(const struct args *args, const struct grammar_tool *t, struct err *err) {
    struct gram *g;
    struct sb out = {0};
    struct str text;
    struct grammar_verdict v;
    TRY(compile(args, t, &g, err));
    int code = os_read_stdin(args->arena, TEXT_MAX_BYTES, &text, err);
    if (!code) {
        grammar_tool_judge(t, g, text, args_flag(args, OPT_JSON), &v, &out);
        code = cli_write(&out, err);
        if (!code && !v.is_accepted) code = ERR_ECANCELLED; /* exit code 1, and all was said */
    }
    sb_free(&out);
    gram_destroy(g);
    return code;
}

static void put_line(void *user, struct str line, struct sb *out) {
    grammar_tool_line(user, line, out);
}

static int run(const struct args *args, struct err *err) {
    struct grammar_tool t;
    const char *model = NULL;
    bool with_masks = args_given(args, OPT_GRAMMAR_MODEL), lines = args_flag(args, OPT_GRAMMAR_JSONL);
    if (lines && args_flag(args, OPT_JSON)) return err_set(err, ERR_EARG, "--json and --jsonl do not go together");
    if (with_masks) TRY(args_model(args, args_str(args, OPT_GRAMMAR_MODEL), &model, NULL, err));
    TRY(grammar_tool_open(model, with_masks, &t, err));
    apply_options(args, &t.options);
    int code = lines ? cli_lines(put_line, &t, err) : judge(args, &t, err);
    grammar_tool_close(&t);
    return code;
}

/* Exit code 1 says that the text is rejected and nothing else: whatever went wrong is 2. */
int cmd_grammar(const struct args *args, struct err *err) {
    int code = run(args, err);
    return code && code != ERR_ECANCELLED ? (err->code = ERR_EARG) : code;
}
