/* mlxcel parse: what a model wrote, taken apart as the server does it. */
#include "tools/parse.h"
#include "cli/store_args.h"
#include "os/os.h"

enum { INPUT_MAX_BYTES = 256 << 20 };

static void put_line(void *user, struct str line, struct sb *out) {
    parse_tools_line(user, line, out);
}

static int parse_input(const struct args *args, const struct parse_tool *t, struct err *err) {
    struct str text;
    struct sb out = {0};
    TRY(os_read_stdin(args->arena, INPUT_MAX_BYTES, &text, err));
    parse_tools_text(t, text, &out);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

static int list_formats(struct err *err) {
    struct sb out = {0};
    parse_tools_list(&out);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

int cmd_parse(const struct args *args, struct err *err) {
    if (args_flag(args, OPT_PARSE_LIST)) return list_formats(err);
    struct parse_options o = {
        .template_file = args_cstr(args, OPT_PARSE_TEMPLATE),
        .format = args_str(args, OPT_PARSE_FORMAT),
        .tools_file = args_cstr(args, OPT_PARSE_TOOLS),
        .prompt = args_str(args, OPT_PARSE_PROMPT),
        .is_cut = args_flag(args, OPT_PARSE_CUT),
        .as_it_comes = args_flag(args, OPT_PARSE_AS_IT_COMES),
        .streams = args_flag(args, OPT_PARSE_STREAM),
        .n_chars = args_int(args, OPT_PARSE_PIECE),
    };
    bool lines = args_flag(args, OPT_PARSE_JSONL);
    if (lines && o.streams) return err_set(err, ERR_EARG, "--stream and --jsonl do not go together");
    TRY(args_model(args, args_str(args, OPT_PARSE_MODEL), &o.model, NULL, err));
    if (!o.model && !o.template_file && !o.format.n && !lines)
        return err_set(err, ERR_EARG, "give a model by -m MODEL, or a format by --format NAME");
    struct parse_tool *t;
    TRY(parse_tools_open(args->arena, &o, &t, err));
    return lines ? cli_lines(put_line, t, err) : parse_input(args, t, err);
}
