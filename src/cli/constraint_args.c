/* What the answer is held to, from the command line. */
#include "cli/session_args.h"

#include "api/session.h"
#include "os/os.h"

enum { RULES_BYTES_MAX = 1 << 20 };

static const struct row {
    enum opt_id id;
    enum gram_kind kind;
    bool is_file;
} rows[] = {{OPT_JSON_SCHEMA, GRAM_JSON_SCHEMA, false},
            {OPT_JSON_SCHEMA_FILE, GRAM_JSON_SCHEMA, true},
            {OPT_GRAMMAR, GRAM_GBNF, false},
            {OPT_GRAMMAR_FILE, GRAM_GBNF, true}};

int args_constraint(const struct args *args, const struct constraint_source **out, struct err *err) {
    const struct row *given = NULL;
    *out = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!args_given(args, rows[i].id)) continue;
        if (given)
            return err_set(err, ERR_EARG, "--%s and --%s exclude each other", cli_options[given->id].name, cli_options[rows[i].id].name);
        given = &rows[i];
    }
    if (!given) return ERR_OK;
    struct constraint_source *s = arena_new(args->arena, struct constraint_source, 1);
    s->grammar = (struct gram_source){.kind = given->kind, .text = args_str(args, given->id)};
    if (given->is_file) TRY(os_input_load(args->arena, args_cstr(args, given->id), RULES_BYTES_MAX, &s->grammar.text, err));
    if (session_check_constraint(s, err)) return err_prefix(err, "--%s", cli_options[given->id].name);
    *out = s;
    return ERR_OK;
}
