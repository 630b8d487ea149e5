/* mlxcel --version: what this program is, in a form that can be pasted into a bug report. */
#include "api/build.h"
#include "base/json.h"
#include "cli/args.h"

static void write_json(struct sb *out, const struct build *b) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '{');
    jsonw_put_str(&w, "version", str_of(b->version));
    jsonw_put_str(&w, "commit", str_of(b->commit));
    jsonw_put_str(&w, "compiler", str_of(b->compiler));
    jsonw_put_str(&w, "target", str_of(b->target));
    jsonw_open(&w, "backends", '[');
    for (size_t i = 0; i < b->n_backends; i++) jsonw_str(&w, str_of(b->backends[i]));
    jsonw_end(&w, ']');
    jsonw_open(&w, "cpu_features", '[');
    struct str rest = b->cpu_features, piece;
    while (str_split_next(&rest, ' ', &piece)) jsonw_str(&w, piece);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    sb_putc(out, '\n');
}

static void write_text(struct sb *out, const struct build *b) {
    sb_fmt(out, "mlxcel %s\ncommit    %s\ncompiler  %s, %s\nbackends ", b->version, b->commit, b->compiler, b->target);
    for (size_t i = 0; i < b->n_backends; i++) sb_fmt(out, " %s", b->backends[i]);
    if (!b->n_backends) sb_puts(out, " none");
    sb_fmt(out, "\nfeatures  %.*s\n", STR_ARG(b->cpu_features));
}

int cmd_version(const struct args *args, struct err *err) {
    struct build build;
    struct sb out = {0};
    build_describe(args->arena, &build);
    if (args_flag(args, OPT_JSON)) write_json(&out, &build);
    else write_text(&out, &build);
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}
