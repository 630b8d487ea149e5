/* What models write, taken apart: the cases of tests/text/calls.jsonl, and with test data all of toolcalls/cases.jsonl; whole,
 * and cut into pieces everywhere. */
#include "unit.h"

#include "os/os.h"
#include "text/output/output.h"

#include <math.h>

/* ---- one text, read in pieces ----------------------------------------------------------------------------------- */

enum { CALLS_MAX = 64 };

struct got_call {
    struct sb name, args;
    bool is_whole;
};

struct got {
    struct sb content, reasoning;
    struct got_call calls[CALLS_MAX];
    size_t n_calls;
};

static void take_pieces(struct got *g, const struct output_pieces *pieces) {
    for (size_t i = 0; i < pieces->n; i++) {
        const struct output_piece *p = &pieces->p[i];
        struct str text = output_piece_text(pieces, p);
        CHECK(p->begin <= p->end && p->end <= pieces->text.n && utf8_valid(text));
        if (p->kind == OUTPUT_CONTENT) sb_put(&g->content, text);
        else if (p->kind == OUTPUT_REASONING) sb_put(&g->reasoning, text);
        else if (p->kind == OUTPUT_CALL) {
            CHECK(p->call == (int32_t)g->n_calls && g->n_calls < CALLS_MAX && text.n);
            sb_put(&g->calls[g->n_calls++].name, text);
        } else {
            CHECK(g->n_calls && p->call == (int32_t)g->n_calls - 1 && !g->calls[p->call].is_whole);
            if (p->kind == OUTPUT_ARGUMENTS) sb_put(&g->calls[p->call].args, text);
            else g->calls[p->call].is_whole = p->kind == OUTPUT_CALL_END;
        }
    }
}

static void got_free(struct got *g) {
    sb_free(&g->content);
    sb_free(&g->reasoning);
    for (size_t i = 0; i < g->n_calls; i++) {
        sb_free(&g->calls[i].name);
        sb_free(&g->calls[i].args);
    }
    *g = (struct got){0};
}

/* Cut before every byte for which cut(at) says so. */
typedef bool cut_fn(size_t at, uint64_t how);

static bool cut_once(size_t at, uint64_t how) {
    return at == how;
}

static bool cut_always(size_t at, uint64_t how) {
    (void)at, (void)how;
    return true;
}

static bool cut_randomly(size_t at, uint64_t how) {
    uint64_t x = (at + 1) * UINT64_C(0x9E3779B97F4A7C15) ^ how * UINT64_C(0xD1B54A32D192ED03);
    return (x >> 40) % 5 == 0;
}

static void split(const struct output_options *options, struct str text, cut_fn *cut, uint64_t how, struct got *g) {
    struct arena a = {0};
    struct output o;
    struct output_pieces pieces = {0};
    output_init(&o, &a, options);
    for (size_t from = 0, at = 1; at <= text.n; at++)
        if (at == text.n || cut(at, how)) {
            output_push(&o, str_sub(text, from, at - from), &pieces);
            take_pieces(g, &pieces);
            output_pieces_clear(&pieces);
            from = at;
        }
    output_flush(&o, false, &pieces);
    take_pieces(g, &pieces);
    output_pieces_free(&pieces);
    output_free(&o);
    arena_free(&a);
}

/* ---- comparing -------------------------------------------------------------------------------------------------- */

static bool same_value(yyjson_val *a, yyjson_val *b) {
    yyjson_val *key, *item;
    size_t i, n;
    if (yyjson_is_num(a) && yyjson_is_num(b)) return yyjson_get_num(a) == yyjson_get_num(b);
    if (yyjson_get_type(a) != yyjson_get_type(b)) return false;
    if (yyjson_is_str(a)) return str_eq(json_val_str(a), json_val_str(b));
    if (yyjson_is_bool(a)) return yyjson_get_bool(a) == yyjson_get_bool(b);
    if (yyjson_is_arr(a)) {
        if (yyjson_arr_size(a) != yyjson_arr_size(b)) return false;
        yyjson_arr_foreach(a, i, n, item) if (!same_value(item, yyjson_arr_get(b, i))) return false;
    }
    if (yyjson_is_obj(a)) {
        if (yyjson_obj_size(a) != yyjson_obj_size(b)) return false;
        yyjson_obj_foreach(a, i, n, key, item) if (!same_value(item, yyjson_obj_getn(b, yyjson_get_str(key), yyjson_get_len(key)))) return false;
    }
    return true;
}

static bool same_text(struct str got, yyjson_val *want) {
    return str_is(json_val_str(want), "*") || str_eq(str_trim(got), str_trim(json_val_str(want)));
}

static bool same_call(const struct got_call *g, yyjson_val *want) {
    struct arena a = {0};
    struct err err;
    yyjson_val *args;
    bool same = str_eq(sb_str(&g->name), json_str(want, "name", (struct str){0}));
    if (json_bool(want, "partial", false)) return same && !g->is_whole;
    same = same && g->is_whole && json_parse(&a, sb_str(&g->args), "arguments", JSON_STRICT, &args, &err) == 0 &&
           same_value(args, json_get(want, "arguments"));
    arena_free(&a);
    return same;
}

static bool is_expected(const struct got *g, yyjson_val *want) {
    yyjson_val *calls = json_get(want, "tool_calls");
    if (yyjson_arr_size(calls) != g->n_calls) return false;
    for (size_t i = 0; i < g->n_calls; i++)
        if (!same_call(&g->calls[i], yyjson_arr_get(calls, i))) return false;
    return same_text(sb_str(&g->content), json_get(want, "content")) && same_text(sb_str(&g->reasoning), json_get(want, "reasoning"));
}

static bool is_accepted(const struct got *g, yyjson_val *test) {
    yyjson_val *accept = json_get(test, "accept"), *item;
    size_t i, n;
    if (is_expected(g, json_get(test, "expect"))) return true;
    if (yyjson_is_arr(accept)) yyjson_arr_foreach(accept, i, n, item) if (is_expected(g, item)) return true;
    return false;
}

static bool is_same(const struct got *a, const struct got *b) {
    bool same = a->n_calls == b->n_calls && str_eq(sb_str(&a->content), sb_str(&b->content)) && str_eq(sb_str(&a->reasoning), sb_str(&b->reasoning));
    for (size_t i = 0; same && i < a->n_calls; i++)
        same = a->calls[i].is_whole == b->calls[i].is_whole && str_eq(sb_str(&a->calls[i].name), sb_str(&b->calls[i].name)) &&
               str_eq(sb_str(&a->calls[i].args), sb_str(&b->calls[i].args));
    return same;
}

static void describe(const struct got *g, struct sb *out) {
    sb_fmt(out, "content \"%.*s\" reasoning \"%.*s\"", STR_ARG(sb_str(&g->content)), STR_ARG(sb_str(&g->reasoning)));
    for (size_t i = 0; i < g->n_calls; i++)
        sb_fmt(out, " %s %.*s(%.*s)", g->calls[i].is_whole ? "call" : "cut call", STR_ARG(sb_str(&g->calls[i].name)),
               STR_ARG(sb_str(&g->calls[i].args)));
}

/* ---- the cases -------------------------------------------------------------------------------------------------- */

static struct output_options case_options(struct arena *a, yyjson_val *test) {
    struct err err;
    struct output_options o = {.takes_calls = true};
    struct str format = json_str(test, "format", (struct str){0}), tail = json_str(test, "prompt_tail", (struct str){0});
    o.format = output_format_find(format);
    FAIL_IF(!o.format, "no format %.*s", STR_ARG(format));
    CHECK_OK(output_tools_read(a, json_get(test, "tools"), &o.tools, &err), err);
    o.is_open = output_reasoning_is_open(output_reasoning_recognize((struct str){0}, o.format), tail);
    return o;
}

static int n_wrong;

static void report(yyjson_val *test, const char *how, const struct got *g) {
    struct sb text = {0};
    describe(g, &text);
    if (n_wrong++ < 40) os_write(OS_STDOUT, str_fmt(&(struct arena){0}, "%.*s, %s: %.*s\n", STR_ARG(json_str(test, "id", (struct str){0})), how, STR_ARG(sb_str(&text))), NULL);
    sb_free(&text);
}

static void check_cuts(yyjson_val *test, const struct output_options *o, struct str raw, const struct got *whole) {
    for (size_t i = 0; i < raw.n + 10; i++) {
        struct got parted = {0};
        split(o, raw, i < raw.n ? cut_once : i == raw.n ? cut_always : cut_randomly, i, &parted);
        bool same = is_same(&parted, whole);
        if (!same) report(test, "cut", &parted);
        got_free(&parted);
        if (!same) return;
    }
}

static void check_case(yyjson_val *test) {
    struct arena a = {0};
    struct output_options o = case_options(&a, test);
    struct str raw = json_str(test, "raw", (struct str){0});
    struct got whole = {0};
    split(&o, raw, cut_once, SIZE_MAX, &whole);
    if (!is_accepted(&whole, test)) report(test, "whole", &whole);
    check_cuts(test, &o, raw, &whole);
    got_free(&whole);
    arena_free(&a);
}

typedef void case_fn(yyjson_val *test);

static void each_case(const char *path, case_fn *check) {
    struct arena file = {0}, a = {0};
    struct str rest, line;
    struct err err;
    yyjson_val *test;
    CHECK_OK(os_file_load(&file, path, 0, &rest, &err), err);
    n_wrong = 0;
    size_t n = 0;
    while (str_split_next(&rest, '\n', &line)) {
        if (str_trim(line).n == 0) continue;
        CHECK_OK(json_parse(&a, line, path, JSON_STRICT, &test, &err), err);
        check(test);
        arena_reset(&a);
        n++;
    }
    arena_free(&a);
    arena_free(&file);
    FAIL_IF(n == 0 || n_wrong, "%d of %zu cases are wrong", n_wrong, n);
}

static void shared_cases(void) {
    if (!unit_data_dir()) unit_skip("no test data");
    struct arena a = {0};
    each_case(str_fmt(&a, "%s/toolcalls/cases.jsonl", unit_data_dir()).p, check_case);
    arena_free(&a);
}

const struct unit_suite unit_output = {
    "output",
    (const struct unit_case[]){
        {"shared_cases", shared_cases},
        {0}},
};
