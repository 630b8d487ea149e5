/* mlxcel doctor: the findings about this machine, each with its cure. */
#include "tools/doctor.h"
#include "api/session.h"
#include "base/json.h"
#include "cli/session_args.h"
#include "cli/store_args.h"
#include "os/os.h"

static const char *const level_names[] = {[DOCTOR_OK] = "ok", [DOCTOR_NOTE] = "note", [DOCTOR_PROBLEM] = "problem"};

static void write_json(struct sb *out, const struct doctor_report *r) {
    struct jsonw w = {.out = out};
    jsonw_begin(&w, '[');
    for (size_t i = 0; i < r->n; i++) {
        const struct doctor_finding *f = &r->findings[i];
        jsonw_begin(&w, '{');
        jsonw_put_str(&w, "topic", str_of(f->topic));
        jsonw_put_str(&w, "level", str_of(level_names[f->level]));
        jsonw_put_str(&w, "text", f->text);
        jsonw_key(&w, "fix");
        if (f->fix.p) jsonw_str(&w, f->fix);
        else jsonw_null(&w);
        jsonw_end(&w, '}');
    }
    jsonw_end(&w, ']');
    sb_putc(out, '\n');
}

static void write_text(struct sb *out, const struct doctor_report *r, bool has_color) {
    static const char *const colors[] = {[DOCTOR_OK] = "32", [DOCTOR_NOTE] = "33", [DOCTOR_PROBLEM] = "1;31"};
    for (size_t i = 0; i < r->n; i++) {
        const struct doctor_finding *f = &r->findings[i];
        if (has_color) sb_fmt(out, "\x1b[%sm", colors[f->level]);
        sb_fmt(out, "%-8s%s %-10s %.*s\n", level_names[f->level], has_color ? "\x1b[0m" : "", f->topic, STR_ARG(f->text));
        if (f->fix.p) sb_fmt(out, "%-19s to do: %.*s\n", "", STR_ARG(f->fix));
    }
}

int cmd_doctor(const struct args *args, struct err *err) {
    struct doctor_report report;
    struct sb out = {0};
    struct store_options store;
    struct xla_options xla = {.environments = {args_cstr(args, OPT_VIRTUAL_ENV), args_cstr(args, OPT_CONDA_PREFIX)}};
    store_args(args, &store);
    doctor_examine(args->arena, &store, &xla, &report);
    if (args_given(args, OPT_MODEL) || args_given(args, OPT_SHAPE)) {
        struct session_options o;
        TRY(session_args(args, &o, err));
        TRY(doctor_examine_model(args->arena, &o, &report, err));
    }
    if (args_flag(args, OPT_JSON)) write_json(&out, &report);
    else write_text(&out, &report, os_has_color(OS_STDOUT));
    int code = cli_write(&out, err);
    sb_free(&out);
    return code;
}
