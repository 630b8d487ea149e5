/* text/template: the cases of tests/text/template.test, and the large golden file where it is present. */
#include "unit.h"

#include "base/json.h"
#include "os/os.h"
#include "text/template/template.h"

#include <stdio.h>

/* Without the limits hostile templates run for minutes or for ever. How quick they end is measured elsewhere: a sanitizer or a busy
 * machine is slow, but not that slow. */
enum { HANG_MS = 60000 };

static const struct tmpl_time fixed_now = {.year = 2025, .month = 7, .day = 10, .hour = 12};

static struct str read_text(struct arena *a, const char *path) {
    struct err err;
    struct str text;
    FAIL_IF(os_file_load(a, path, 64 << 20, &text, &err), "%s", err.msg);
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

/* ---- the files in tests/text: template, context, expected ---- */

/* Line breaks stand in the file as signs: U+23CE for \n, U+240D for \r. */
static struct str from_signs(struct arena *a, struct str s) {
    char *p = arena_alloc(a, s.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < s.n;) {
        struct str rest = str_from(s, i);
        bool newline = str_starts(rest, STR("\xE2\x8F\x8E")), carriage = str_starts(rest, STR("\xE2\x90\x8D"));
        p[n++] = newline ? '\n' : carriage ? '\r' : s.p[i];
        i += newline || carriage ? 3 : 1;
    }
    return str_n(p, n);
}

static bool run_text_case(struct str source, struct str context, struct str expected) {
    struct arena a = {0};
    struct err err = {0};
    struct tmpl_output out;
    yyjson_val *input;
    bool wants_error = expected.p[0] == '!';
    struct str want = from_signs(&a, expected.n > 2 ? str_from(expected, 2) : STR(""));
    FAIL_IF(json_parse(&a, context, "context", JSON_LENIENT, &input, &err), "%s", err.msg);
    int code = render(&a, from_signs(&a, source), input, NULL, &out, &err);
    bool good = wants_error == (code != 0);
    if (good && code && !str_is(want, "TemplateError")) good = str_find(str_of(err.msg), want, 0) != STR_NONE;
    if (good && !code) good = str_eq(out.text, want);
    if (!good)
        fprintf(stderr, "%.*s\n  expected %.*s\n  got      %s %.*s\n", STR_ARG(source), STR_ARG(expected), code ? err.msg : "=",
                STR_ARG(code ? STR("") : out.text));
    if (!code) check_spans(&out);
    arena_free(&a);
    return good;
}

static void run_text_file(const char *name, int least) {
    struct arena a = {0};
    struct str rest = read_text(&a, str_fmt(&a, "%s/tests/text/%s", unit_source_dir(), name).p), line, context, expected;
    int n = 0, n_bad = 0;
    while (str_split_next(&rest, '\n', &line)) {
        if (!line.n || str_starts(line, STR("# "))) continue;
        CHECK(str_split_next(&rest, '\n', &context) && str_split_next(&rest, '\n', &expected));
        CHECK(expected.n && (expected.p[0] == '=' || expected.p[0] == '!'));
        n++;
        n_bad += !run_text_case(line, context, expected);
    }
    CHECK_INT(n_bad, 0);
    CHECK(n >= least);
    arena_free(&a);
}

static void cases_of_jinja(void) {
    run_text_file("template.test", 800);
}

static void cases_of_our_own(void) {
    run_text_file("template_own.test", 20);
}

/* ---- spans ---- */

/* The rendering with user text in brackets. */
static void check_marks(const char *source, const char *json, const char *want) {
    struct arena a = {0};
    struct err err = {0};
    struct tmpl_output out;
    yyjson_val *input, *special;
    CHECK_OK(json_parse(&a, str_of(json), "context", JSON_STRICT, &input, &err), err);
    CHECK_OK(json_parse(&a, STR("{\"bos_token\": \"<s>\"}"), "special", JSON_STRICT, &special, &err), err);
    CHECK_OK(render(&a, str_of(source), input, special, &out, &err), err);
    check_spans(&out);
    struct sb marked = {0};
    for (size_t i = 0; i < out.n_spans; i++) sb_fmt(&marked, out.spans[i].is_user ? "[%.*s]" : "%.*s", STR_ARG(out.spans[i].text));
    struct str got = str_copy(&a, sb_str(&marked));
    sb_free(&marked);
    CHECK_STR(got, str_of(want));
    arena_free(&a);
}

static void spans_mark_user_text(void) {
    static const char m[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \" Hi <s> \"}], \"x\": \"aXb\", \"l\": [\"p\", \"q\"], \"n\": 5}";
    static const char *const rows[][2] = {
        {"{{ bos_token }}{{ messages[0].content }}!", "<s>[ Hi <s> ]!"},
        {"{{ bos_token + messages[0].content|trim + '</s>' }}", "<s>[Hi <s>]</s>"},
        {"{{ '<|' + messages[0].role + '|>' }}", "<|user|>"},
        {"{{ '-' ~ x ~ '-' ~ n }}", "-[aXb]-5"},
        {"{{ ('ab' + x)[1:3] }}", "b[a]"},
        {"{{ ('ab' + x).upper() }}", "AB[AXB]"},
        {"{{ ('ab' + x)|replace('X', '*') }}", "ab[a]*[b]"},
        {"{{ ('ab' + x)[::-1] }}", "[bXa]ba"},
        {"{{ ('<' ~ x ~ '>').split('X')|join('|') }}", "<[a]|[b]>"},
        {"{{ l|join(', ') }}", "[p], [q]"},
        {"{{ '%s=%s' % (x, 1) }} {{ '{}={}'.format(x, 1) }}", "[aXb]=1 [aXb]=1"},
        {"{{ '%5s|' % x }}{{ x.center(5, '.') }}", "  [aXb]|.[aXb]."},
        {"{{ l }}", "[['p', 'q']]"},
        {"{{ l|tojson }}{{ ['t']|tojson }}", "[[\"p\", \"q\"]][\"t\"]"},
        {"{% set y %}a{{ x }}b{% endset %}{{ y }}", "a[aXb]b"},
        {"{% macro f(s) %}({{ s }}){% endmacro %}{{ f(x)|upper }}", "([AXB])"},
        {"{% for c in 'u' + x %}{{ c }}{% endfor %}", "u[aXb]"},
        {"{{ x|length }}{{ x == 'aXb' }}", "3True"},
        {"{{ x|e }}{{ x|indent(2, true) }}", "[aXb]  [aXb]"},
        {"{{ 'a' * 2 + x * 2 }}", "aa[aXbaXb]"},
        {"{{ {x: 1}|first }}{{ {'k': x}.k }}", "[aXbaXb]"},
        {"{% set ns = namespace(s='') %}{% for i in l %}{% set ns.s = ns.s + i + '-' %}{% endfor %}{{ ns.s }}", "[p]-[q]-"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) check_marks(rows[i][0], m, rows[i][1]);
}

static void generations_are_noted(void) {
    struct arena a = {0};
    struct err err = {0};
    struct tmpl_output out;
    CHECK_OK(render(&a, STR("a{% generation %}bc{% endgeneration %}d{% generation %}{% endgeneration %}"), NULL, NULL, &out, &err), err);
    CHECK_INT(out.n_generations, 2);
    CHECK_INT(out.generations[0].begin, 1);
    CHECK_INT(out.generations[0].end, 3);
    CHECK_INT(out.generations[1].end, 4);
    arena_free(&a);
}

/* ---- limits ---- */

static void hostile_templates_end(void) {
    static const char *const sources[] = {
        "{{ x * 10**9 }}",
        "{{ 'a' * 10**12 }}",
        "{{ [0] * 10**12 }}",
        "{{ 'a' * 10**18 }}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' }}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(a) %}{{ m([a]) }}{% endmacro %}{{ m(1) }}",
        "{% set ns = namespace(s='ab') %}{% for i in range(1000) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(1000) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s == ns.s|list }}",
        "{% set ns = namespace(s=()) %}{% for i in range(99999) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ {ns.s: 1} }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(99999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s == (ns.s|list) }}",
        "{% set ns = namespace(s='abc') %}{% for i in range(99999) %}{% set ns.s = ns.s|map('string') %}{% endfor %}{{ ns.s|list }}",
        "{% for i in [[1]] recursive %}{{ loop([i]) }}{% endfor %}",
        "{{ '%99999999999d' % 1 }}",
        "{{ '%2000000000d' % 1 }}",
        "{{ '{:2000000000}'.format(1) }}",
        "{{ '%.2000000000f' % 1 }}",
        "{{ 'a'.center(10**15) }}",
        "{{ 'a'.ljust(10**10) }}",
        "{{ 'a\tb'.expandtabs(10**15) }}",
        "{{ 'aaaaaaaaaaaaaaaaaaaa'.replace('', 'x' * 10**7) }}",
        "{{ range(10**18) }}",
        "{{ range(99999)|map('string')|join('x' * 10**5) }}",
        "{{ 2 ** 10**18 }}",
        "{{ 10 ** 19 }}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ 9223372036854775807 * 2 }}",
        "{{ (-9223372036854775807 - 1) // -1 }}",
        "{{ range(99999)|batch(1)|map('batch', 1)|map('list')|map('tojson')|join|list|sort|join * 1000 }}",
        "{{ range(99999)|list|tojson(indent=99999) }}",
        "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{% if 'b' in s %}{% endif %}{% endfor %}",
        "{% set s = '\xC3\xA9' * 10**6 %}{% for i in range(99999) %}{{ s[999998] }}{% endfor %}",
        "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{% if s.rfind('b') %}{% endif %}{% endfor %}",
        "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{% if s == s + '' %}{% endif %}{% endfor %}",
        "{% set s = ('a' * 10**5 + 'b') %}{% set t = 'a' * 10**5 %}{{ t.rfind(s) }}{{ (t * 20).rfind(t + 'c') }}{{ (t * 20).find(t + 'c') }}",
        "{% set s = 'a' * 10**6 %}{% for i in range(99999) %}{% set q = s|upper %}{% endfor %}",
        "{% set s = '\xC3\xA9' * 10**5 %}{% for i in range(99999) %}{% if s.isalnum() or s.isnumeric() %}{% endif %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a'.nope }}{{ x.__class__ }}{% endfor %}",
        "{% set d = dict.fromkeys(range(99999)) %}{% for i in range(99999) %}{% set e = d.copy() %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        struct arena a = {0};
        struct err err = {0};
        struct tmpl_output out;
        yyjson_val *input;
        CHECK_OK(json_parse(&a, STR("{\"x\": \"y\"}"), "context", JSON_STRICT, &input, &err), err);
        uint64_t start = os_clock_ns();
        int code = render(&a, str_of(sources[i]), input, NULL, &out, &err);
        double ms = (double)(os_clock_ns() - start) / 1e6;
        if (getenv("MLXCEL_TEST_TIMES"))
            fprintf(stderr, "%8.1f ms %8zu KiB  %.60s -> %s\n", ms, a.total_bytes >> 10, sources[i], code ? err.msg : "ok");
        FAIL_IF(!code, "%s: rendered, expected an error", sources[i]);
        FAIL_IF(ms > HANG_MS, "%s: took %.0f ms", sources[i], ms);
        arena_free(&a);
    }
}

static void deep_nesting_is_refused(void) {
    static const char *const pieces[][3] = {
        {"{{ ", "(", "1 }}"},
        {"{{ ", "[", "1 }}"},
        {"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ 1", " if 1 else 1", " }}"},
        {"{{ a", ".b", " }}"},
        {"{{ 1", "+1", " }}"},
        {"{{ 1", "|string", " }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for i in [1] %}", ""},
        {"{{ a", "[0]", " }}"},
        {"{{ a", "()", " }}"},
        {"{{ {", "'a':{", " }}"},
        {"{{ 1", " and 1", " }}"},
        {"{{ ", "a(", ""},
        {"", "{% macro m() %}", ""},
        {"{% set ", "(", "a = 1 %}"},
        {"{{ 1", " ~ 1", " }}"},
        {"{{ 1", " < 1", " }}"},
        {"{{ 1", " is odd", " }}"},
        {"{{ '", "{0:", "'.format(1) }}"},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct arena a = {0};
        struct err err = {0};
        struct tmpl_output out;
        struct sb source = {0};
        sb_puts(&source, pieces[i][0]);
        for (int k = 0; k < 10000; k++) sb_puts(&source, pieces[i][1]);
        sb_puts(&source, pieces[i][2]);
        int code = render(&a, sb_str(&source), NULL, NULL, &out, &err);
        sb_free(&source);
        bool flat = strcmp(pieces[i][1], " ~ 1") == 0; /* a list, not a tree */
        FAIL_IF(!code != flat, "10,000 times \"%s\": %s", pieces[i][1], code ? err.msg : "rendered");
        arena_free(&a);
    }
}

/* A megabyte of anything is parsed, or refused, in time that grows with its length. */
static void long_sources_are_parsed_quickly(void) {
    static const char *const pieces[][3] = {
        {"{{ ", "'a' ", "}}"},
        {"{{ x|a", ".b", " }}"},
        {"{{ f(", "a=1,", ") }}"},
        {"", "{% block b %}{% endblock %}", ""},
        {"", "{{ caller }}", ""},
        {"", "{# #}", ""},
        {"{{ [", "1,", "] }}"},
        {"{{ {", "1:2,", "} }}"},
        {"", "{% raw %}", ""},
        {"{% raw %}", "{% endra", ""},
        {"", "{", ""},
        {"", "{{ '\\", ""},
        {"{{ '", "\\x41", "' }}"},
        {"", "{% set a = 1 %}", ""},
        {"{% if x %}", "{% elif x %}", "{% endif %}"},
        {"{{ 1", "\n", "}}"},
        {"", "\r", ""},
        {"{{ x", " ~ x", " }}"},
        {"", "   ", "{%- set a = 1 %}"},
        {"{{ x is in", "(1)", " }}"},
        {"{% for i in l %}", "{% set a = 1 %}", "{% endfor %}"},
        {"{% macro m(", "a,", ") %}{% endmacro %}"},
        {"{{ ", "0", " }}"},
        {"{{ 1", "_1", " }}"},
    };
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct arena a = {0};
        struct err err;
        struct tmpl_output out;
        struct sb source = {0};
        sb_puts(&source, pieces[i][0]);
        while (source.n < TMPL_SOURCE_BYTES - 100) sb_puts(&source, pieces[i][1]);
        sb_puts(&source, pieces[i][2]);
        uint64_t start = os_clock_ns();
        render(&a, sb_str(&source), NULL, NULL, &out, &err);
        double ms = (double)(os_clock_ns() - start) / 1e6;
        if (getenv("MLXCEL_TEST_TIMES")) fprintf(stderr, "%8.1f ms %8zu KiB  a megabyte of %s\n", ms, a.total_bytes >> 10, pieces[i][1]);
        sb_free(&source);
        arena_free(&a);
        FAIL_IF(ms > HANG_MS, "a megabyte of %s: %.0f ms", pieces[i][1], ms);
    }
    struct sb source = {0};
    sb_puts(&source, "{% for i in range(99999) %}");
    for (int i = 0; i < 20000; i++) sb_fmt(&source, "{%% set v%d = i %%}", i);
    sb_puts(&source, "{{ v19999 }}{% endfor %}");
    struct arena a = {0};
    struct err err;
    struct tmpl_output out;
    CHECK_INT(render(&a, sb_str(&source), NULL, NULL, &out, &err), ERR_ELIMIT);
    sb_free(&source);
    arena_free(&a);
}

/* Long conversations are not taken for attacks. */
static void long_conversations_render(void) {
    struct arena a = {0};
    struct err err = {0};
    struct tmpl_output out;
    struct sb json = {0};
    sb_puts(&json, "{\"messages\": [");
    for (int i = 0; i < 20000; i++)
        sb_fmt(&json, "%s{\"role\": \"%s\", \"content\": \"message %d \xC3\xA9 of some length, with words\"}", i ? "," : "",
               i % 2 ? "assistant" : "user", i);
    sb_puts(&json, "]}");
    yyjson_val *input;
    CHECK_OK(json_parse(&a, sb_str(&json), "context", JSON_STRICT, &input, &err), err);
    sb_free(&json);
    struct str source =
        STR("{% set ns = namespace(text='', list=[]) %}{% for m in messages %}{% set ns.text = ns.text + '<|im_start|>' + m.role + '\\n' + "
            "m.content|trim + '<|im_end|>\\n' %}{% set ns.list = ns.list + [m.content] %}{% if loop.index0 % 2 == 0 and m.role != 'user' %}"
            "{{ raise_exception('roles') }}{% endif %}{% endfor %}{{ ns.text }}{{ ns.list|length }}");
    CHECK_OK(render(&a, source, input, NULL, &out, &err), err);
    CHECK(str_ends(out.text, STR("20000")));
    arena_free(&a);
}

/* Kinds of values, and what is done to every pair of them. */
static const char *const pair_values[] = {
    "missing",
    "none",
    "true",
    "0",
    "-7",
    "9223372036854775807",
    "1.5",
    "nan",
    "inf",
    "big",
    "''",
    "'a%s'",
    "'\xC3\xA9'",
    "s",
    "[]",
    "[1,'a']",
    "()",
    "(1,)",
    "{}",
    "{'a': 1}",
    "range(3)",
    "{'a':1}.keys()",
    "{'a':1}.values()",
    "{'a':1}.items()",
    "[1]|map('string')",
    "[1]|reverse",
    "namespace(a=1)",
    "m",
    "range",
    "'a'.upper",
    "cycler(1)",
    "joiner()",
    "self",
    "self.b",
    "'<'|e",
    "dict",
    "loop",
};
static const char *const pair_forms[] = {
    "%s + %s",
    "%s - %s",
    "%s * %s",
    "%s / %s",
    "%s // %s",
    "%s %% %s",
    "%s ** %s",
    "%s ~ %s",
    "%s == %s",
    "%s != %s",
    "%s < %s",
    "%s >= %s",
    "%s in %s",
    "%s and %s",
    "%s[%s]",
    "(%s)[:%s]",
    "(%s)[::%s]",
    "%s|default(%s)",
    "%s|join(%s)",
    "%s is eq(%s)",
    "%s is sameas(%s)",
    "%s is in(%s)",
    "%s|replace(%s, 'x')",
    "%s|batch(%s)|list",
    "%s|slice(%s)|list",
    "%s|map(%s)|list",
    "%s|select(%s)|list",
    "%s|sort(attribute=%s)",
    "%s|groupby(%s)",
    "%s|round(%s)",
    "%s|attr(%s)",
    "%s|tojson(indent=%s)",
    "%s|format(%s)",
    "%s|truncate(%s)",
    "%s|sum(start=%s)",
    "{%s: %s}",
    "(%s)(%s)",
    "%s|indent(%s)",
    "%s|int(%s)",
    "%s|min(attribute=%s)",
    "%s|unique(attribute=%s)|list",
    "dict(%s, **(%s))",
    "%s|trim(%s)",
    "%s|center(%s)",
    "%s|urlencode ~ %s|urlencode",
};

/* Every operator and comparison over every pair of kinds of values: a result or an error, never a crash. */
static void all_pairs_of_types(void) {
    size_t n_values = sizeof pair_values / sizeof *pair_values, n_ok = 0;
    struct arena a = {0}, json = {0};
    struct err err;
    yyjson_val *input;
    CHECK_OK(json_parse(&json, STR("{\"s\": \"user\", \"big\": 18446744073709551615, \"nan\": NaN, \"inf\": Infinity}"), "context",
                        JSON_LENIENT, &input, &err),
             err);
    for (size_t f = 0; f < sizeof pair_forms / sizeof *pair_forms; f++)
        for (size_t i = 0; i < n_values * n_values; i++) {
            struct sb source = {0};
            struct tmpl_output out;
            sb_puts(&source, "{% macro m() %}{% endmacro %}{% block b %}{% endblock %}{% for q in [1] %}{{ ");
            const char *x = pair_values[i / n_values], *y = pair_values[i % n_values];
            const char *at = strstr(pair_forms[f], "%s"), *second = strstr(at + 2, "%s");
            sb_put(&source, str_n(pair_forms[f], (size_t)(at - pair_forms[f])));
            sb_fmt(&source, "(%s)", x);
            for (const char *c = at + 2; c < second; c++)
                if (c[0] != '%' || c[1] == '%') sb_putc(&source, c[0]), c += c[0] == '%';
            sb_fmt(&source, "(%s)%s }}{%% endfor %%}", y, second + 2);
            n_ok += render(&a, sb_str(&source), input, NULL, &out, &err) == 0;
            sb_free(&source);
            arena_reset(&a);
        }
    CHECK(n_ok > 5000);
    arena_free(&a);
    arena_free(&json);
}

static void errors_carry_lines(void) {
    struct arena a = {0};
    struct err err = {0};
    struct tmpl_output out;
    CHECK(render(&a, STR("a\nb\n{{ x.y }}\n"), NULL, NULL, &out, &err) != 0);
    CHECK_STR(str_of(err.msg), STR("chat template line 3: UndefinedError: 'x' is undefined"));
    CHECK_INT(err.code, ERR_EARG);
    CHECK(render(&a, STR("a\n{% if %}"), NULL, NULL, &out, &err) != 0);
    CHECK_STR(str_of(err.msg), STR("chat template line 2: TemplateSyntaxError: Expected an expression, got 'end of statement block'"));
    CHECK_INT(err.code, ERR_EFORMAT);
    CHECK(render(&a, STR("{{ raise_exception('Only user messages, please') }}"), NULL, NULL, &out, &err) != 0);
    CHECK_STR(str_of(err.msg), STR("Only user messages, please"));
    CHECK(render(&a, STR("{{ 'a' * 10**12 }}"), NULL, NULL, &out, &err) != 0);
    CHECK_INT(err.code, ERR_ELIMIT);
    CHECK(render(&a, STR("a\xFF"), NULL, NULL, &out, &err) != 0);
    CHECK(render(&a, STR("x"), NULL, NULL, &out, NULL) == 0);
    CHECK(render(&a, STR("{{ x.y }}"), NULL, NULL, &out, NULL) != 0);
    CHECK(render(&a, STR("{{ x"), NULL, NULL, &out, NULL) != 0);
    arena_free(&a);
}

static void limits_can_be_set(void) {
    struct arena a = {0};
    struct err err = {0};
    struct tmpl *t;
    struct tmpl_output out;
    CHECK_OK(tmpl_parse(&a, STR("{% for i in range(50) %}{{ 'xxxxxxxxxx' }}{% endfor %}"), &t, &err), err);
    struct tmpl_context ctx = {.now = fixed_now};
    CHECK_OK(tmpl_render(t, &a, &ctx, &out, &err), err);
    CHECK_INT(out.text.n, 500);
    ctx.limits = (struct tmpl_limits){.steps = 100};
    CHECK_INT(tmpl_render(t, &a, &ctx, &out, &err), ERR_ELIMIT);
    ctx.limits = (struct tmpl_limits){.output_bytes = 100};
    CHECK_INT(tmpl_render(t, &a, &ctx, &out, &err), ERR_ELIMIT);
    ctx.limits = (struct tmpl_limits){.memory_bytes = 1000};
    CHECK_INT(tmpl_render(t, &a, &ctx, &out, &err), ERR_ELIMIT);
    ctx.limits = (struct tmpl_limits){.range = 10};
    CHECK_INT(tmpl_render(t, &a, &ctx, &out, &err), ERR_EARG);
    ctx.limits = (struct tmpl_limits){.depth = 3};
    CHECK_INT(tmpl_render(t, &a, &ctx, &out, &err), ERR_EARG);
    arena_free(&a);
}

static void times_are_read(void) {
    struct tmpl_time t;
    CHECK(tmpl_time_parse(STR("2025-07-10"), &t) && t.year == 2025 && t.month == 7 && t.day == 10 && t.hour == 0);
    CHECK(tmpl_time_parse(STR("2024-02-29T23:59:58.25"), &t) && t.second == 58 && t.microsecond == 250000);
    CHECK(tmpl_time_parse(STR("2024-02-29 23:59"), &t) && t.minute == 59);
    static const char *const bad[] = {"",           "2025",        "2025-13-01", "2025-02-29", "2025-07-10T24:00", "2025-07-10T12:00:00x",
                                      "2025/07/10", "2025-07-10T", "0000-01-01"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) CHECK(!tmpl_time_parse(str_of(bad[i]), &t));
}

static const struct unit_case cases[] = {
    {"golden", golden_templates},
    {"jinja_cases", cases_of_jinja},
    {"own_cases", cases_of_our_own},
    {"spans", spans_mark_user_text},
    {"generations", generations_are_noted},
    {"hostile", hostile_templates_end},
    {"nesting", deep_nesting_is_refused},
    {"long_sources", long_sources_are_parsed_quickly},
    {"long_conversations", long_conversations_render},
    {"type_pairs", all_pairs_of_types},
    {"errors", errors_carry_lines},
    {"limits", limits_can_be_set},
    {"times", times_are_read},
    {0},
};

const struct unit_suite unit_template = {"template", cases};
