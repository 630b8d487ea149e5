/* mlxcel template: a model's chat template, rendered. The text goes to standard output exactly as it is. */
#include "tools/template.h"
#include "cli/store_args.h"
#include "os/os.h"

enum { INPUT_MAX_BYTES = 256 << 20 };

static void put_line(void *user, struct str line, struct sb *out) {
    template_tool_line(user, line, out);
}

static int run_once(const struct args *args, const struct template_tool *t, struct err *err) {
    const char *path = args_cstr(args, OPT_TEMPLATE_INPUT);
    struct str input, text;
    if (!path) return err_set(err, ERR_EARG, "give the conversation by --input FILE.json (\"-\": standard input)");
    if (strcmp(path, "-") == 0) TRY(os_read_stdin(args->arena, INPUT_MAX_BYTES, &input, err));
    else TRY(os_input_load(args->arena, path, INPUT_MAX_BYTES, &input, err));
    TRY(template_tool_render(t, args->arena, input, &text, err));
    struct sb out = {0};
    sb_put(&out, text);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}

int cmd_template(const struct args *args, struct err *err) {
    struct template_options o = {
        .template_file = args_cstr(args, OPT_TEMPLATE_FILE),
        .special_file = args_cstr(args, OPT_TEMPLATE_SPECIAL),
        .now = args_str(args, OPT_TEMPLATE_NOW),
    };
    bool lines = args_flag(args, OPT_TEMPLATE_JSONL);
    TRY(args_model(args, args_str(args, OPT_MODEL_TEMPLATE), &o.model, NULL, err));
    if (!o.model && !o.template_file && !lines) return err_set(err, ERR_EARG, "give a model by -m PATH or a template by --template FILE");
    struct template_tool *t;
    TRY(template_tool_open(args->arena, &o, &t, err));
    return lines ? cli_lines(put_line, t, err) : run_once(args, t, err);
}
