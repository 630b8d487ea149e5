/* mlxcel arch: the model families that can be run. */
#include "tools/arch.h"
#include "base/json.h"
#include "cli/args.h"

static void write_json(struct sb *out) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (size_t i = 0; i < arch_count(); i++) {
        struct arch f = arch_get(i);
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "model_type", str_of(f.model_type));
        jsonw_put_str(&w, "title", str_of(f.title));
        jsonw_key(&w, "architecture");
        struct sb text = {0};
        arch_describe(i, &text);
        jsonw_str(&w, sb_str(&text));
        sb_free(&text);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    sb_putc(out, '\n');
}

static void write_text(struct sb *out) {
    size_t width = 0;
    for (size_t i = 0; i < arch_count(); i++) {
        size_t n = strlen(arch_get(i).model_type);
        if (n > width) width = n;
    }
    for (size_t i = 0; i < arch_count(); i++) sb_fmt(out, "%-*s  %s\n", (int)width, arch_get(i).model_type, arch_get(i).title);
}

int cmd_arch(const struct args *args, struct err *err) {
    struct sb out = {0};
    if (args_flag(args, OPT_ARCH_MARKDOWN)) arch_markdown(&out);
    else if (args_flag(args, OPT_JSON)) write_json(&out);
    else write_text(&out);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}
