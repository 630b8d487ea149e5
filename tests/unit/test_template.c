/* text/template: the cases of tests/text/template.test, and the large golden file where it is present. */
#include "unit.h"

#include "base/json.h"
#include "os/os.h"
#include "text/template/template.h"

#include <stdio.h>

static const struct tmpl_time fixed_now = {.year = 2025, .month = 7, .day = 10, .hour = 12};

static struct str read_text(struct arena *a, const char *path) {
    struct err err;
    struct str text;
    if (os_file_load(a, path, 64 << 20, &text, &err)) unit_fail(__FILE__, __LINE__, "%s", err.msg);
    return text;
}

static int render(struct arena *a, struct str source, yyjson_val *input, yyjson_val *special, struct tmpl_output *out, struct err *err) {
    struct tmpl *t;
    TRY(tmpl_parse(a, source, &t, err));
    struct tmpl_context ctx = {.input = input, .special = special, .now = fixed_now};
    return tmpl_render(t, a, &ctx, out, err);
}

/* The spans must make up the text. */
static void check_spans(const struct tmpl_output *out) {
    size_t n = 0;
    for (size_t i = 0; i < out->n_spans; i++) {
        CHECK(out->spans[i].text.p == out->text.p + n);
        CHECK(out->spans[i].text.n > 0);
        if (i) CHECK(out->spans[i].is_user != out->spans[i - 1].is_user);
        n += out->spans[i].text.n;
    }
    CHECK_INT(n, out->text.n);
}

static int golden_case(yyjson_val *t, const char *name, yyjson_val *input, yyjson_val *want) {
    struct arena a = {0};
    struct tmpl_output out;
    struct err err = {0};
    int code = render(&a, json_str(t, "template", STR("")), input, json_get(t, "special"), &out, &err), bad = 0;
    struct str ok = json_str(want, "ok", (struct str){0}), error = json_str(want, "error", STR(""));
    if (ok.p && code) {
        fprintf(stderr, "%.*s / %s: error: %s\n", STR_ARG(json_str(t, "name", STR(""))), name, err.msg);
        bad = 1;
    } else if (ok.p && !str_eq(ok, out.text)) {
        size_t i = 0;
        while (i < ok.n && i < out.text.n && ok.p[i] == out.text.p[i]) i++;
        fprintf(stderr, "%.*s / %s: differs at byte %zu: got \"%.60s\", expected \"%.60s\"\n", STR_ARG(json_str(t, "name", STR(""))), name,
                i, out.text.p + i, ok.p + i);
        bad = 1;
    } else if (!ok.p && !code) {
        fprintf(stderr, "%.*s / %s: rendered, expected the error %.*s\n", STR_ARG(json_str(t, "name", STR(""))), name, STR_ARG(error));
        bad = 1;
    } else if (!ok.p) {
        /* the message is the reference's own, behind the line number */
        struct str mine = str_of(err.msg);
        struct str text = str_starts(error, STR("TemplateError: ")) ? str_from(error, 15) : error;
        if (!str_ends(mine, text)) {
            fprintf(stderr, "%.*s / %s: error \"%s\", expected \"%.*s\"\n", STR_ARG(json_str(t, "name", STR(""))), name, err.msg,
                    STR_ARG(error));
            bad = 1;
        }
    }
    if (!code) check_spans(&out);
    arena_free(&a);
    return bad;
}

static void golden_templates(void) {
    const char *dir = unit_data_dir();
    if (!dir) unit_skip("no test data folder");
    struct arena a = {0};
    struct err err;
    yyjson_val *root, *t, *name, *want;
    struct str path = str_fmt(&a, "%s/text/chat_golden.json", dir);
    CHECK_OK(json_parse(&a, read_text(&a, path.p), "chat_golden.json", JSON_STRICT, &root, &err), err);
    size_t i, n, k, m;
    int n_bad = 0, n_cases = 0;
    yyjson_arr_foreach(json_get(root, "templates"), i, n, t) {
        yyjson_obj_foreach(json_get(t, "cases"), k, m, name, want) {
            n_bad += golden_case(t, yyjson_get_str(name), json_get(json_get(root, "conversations"), yyjson_get_str(name)), want);
            n_cases++;
        }
    }
    CHECK_INT(n_bad, 0);
    CHECK(n_cases >= 1116);
    arena_free(&a);
}

static const struct unit_case cases[] = {
    {"golden", golden_templates},
    {0},
};

const struct unit_suite unit_template = {"template", cases};
