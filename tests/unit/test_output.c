/* What models write, taken apart: the cases of tests/text/calls.jsonl, and with test data all of toolcalls/cases.jsonl; whole,
 * and cut into pieces everywhere. */
#include "unit.h"

#include "os/os.h"
#include "text/chat/chat.h"
#include "text/output/forced.h"
#include "text/output/forced_gbnf.h"
#include "text/tokenizer/tokenizer.h"

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
        yyjson_obj_foreach(a, i, n, key,
                           item) if (!same_value(item, yyjson_obj_getn(b, yyjson_get_str(key), yyjson_get_len(key)))) return false;
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
    bool same = a->n_calls == b->n_calls && str_eq(sb_str(&a->content), sb_str(&b->content)) &&
                str_eq(sb_str(&a->reasoning), sb_str(&b->reasoning));
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

static yyjson_val *usual_tools; /* of cases that name none: a line that has nothing else */

static struct output_options case_options(struct arena *a, yyjson_val *test) {
    struct err err;
    struct output_options o = {.takes_calls = true};
    struct str format = json_str(test, "format", (struct str){0}), tail = json_str(test, "prompt_tail", (struct str){0});
    o.format = output_format_find(format);
    FAIL_IF(!o.format, "no format %.*s", STR_ARG(format));
    CHECK_OK(output_tools_read(a, json_get(test, "tools") ? json_get(test, "tools") : usual_tools, &o.tools, &err), err);
    o.is_open = output_reasoning_is_open(output_reasoning_recognize((struct str){0}, o.format), tail);
    return o;
}

static int n_wrong;

static void report(yyjson_val *test, const char *how, const struct got *g) {
    struct sb text = {0};
    describe(g, &text);
    if (n_wrong++ < 40)
        os_write(
            OS_STDOUT,
            str_fmt(&(struct arena){0}, "%.*s, %s: %.*s\n", STR_ARG(json_str(test, "id", (struct str){0})), how, STR_ARG(sb_str(&text))),
            NULL);
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
        CHECK_OK(json_parse(usual_tools || n ? &a : &file, line, path, JSON_STRICT, &test, &err), err);
        if (json_get(test, "raw")) {
            check(test);
            n++;
        } else {
            usual_tools = json_get(test, "tools");
        }
        arena_reset(&a);
    }
    usual_tools = NULL;
    arena_free(&a);
    arena_free(&file);
    FAIL_IF(n == 0 || n_wrong, "%d of %zu cases are wrong", n_wrong, n);
}

static void own_cases(void) {
    struct arena a = {0};
    each_case(str_fmt(&a, "%s/tests/text/calls.jsonl", unit_source_dir()).p, check_case);
    arena_free(&a);
}

static void shared_cases(void) {
    if (!unit_data_dir()) unit_skip("no test data");
    struct arena a = {0};
    each_case(str_fmt(&a, "%s/toolcalls/cases.jsonl", unit_data_dir()).p, check_case);
    arena_free(&a);
}

/* Arguments while they are written: whole calls are the same, cut ones are marked as such. Malformed ones have been sent
 * when their fault shows. */
static void check_as_it_comes(yyjson_val *test) {
    struct arena a = {0};
    struct output_options o = case_options(&a, test);
    struct str raw = json_str(test, "raw", (struct str){0});
    struct got whole = {0}, eager = {0};
    split(&o, raw, cut_once, SIZE_MAX, &whole);
    o.as_it_comes = true;
    split(&o, raw, cut_always, 0, &eager);
    for (size_t i = 0; i < eager.n_calls; i++) {
        if (eager.calls[i].is_whole) continue;
        if (eager.calls[i].args.n == 0 || eager.calls[i].args.p[0] != '{') report(test, "a cut call has no arguments", &eager);
    }
    bool is_cut = eager.n_calls && !eager.calls[eager.n_calls - 1].is_whole;
    if (!is_cut && !is_same(&whole, &eager)) report(test, "as it comes", &eager);
    if (is_cut && eager.n_calls != whole.n_calls + 1) report(test, "as it comes, cut", &eager);
    got_free(&whole);
    got_free(&eager);
    arena_free(&a);
}

static void arguments_as_they_come(void) {
    struct arena a = {0};
    struct err err;
    struct output_pieces pieces = {0};
    struct output o;
    each_case(str_fmt(&a, "%s/tests/text/calls.jsonl", unit_source_dir()).p, check_as_it_comes);
    output_init(&o, &a, &(struct output_options){.format = output_format_find(STR("hermes")), .takes_calls = true, .as_it_comes = true});
    output_push(&o, STR("Hi <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x"), &pieces);
    CHECK_INT(pieces.n, 3);
    CHECK(pieces.p[1].kind == OUTPUT_CALL && pieces.p[2].kind == OUTPUT_ARGUMENTS);
    CHECK_STR(output_piece_text(&pieces, &pieces.p[1]), STR("f"));
    CHECK_STR(output_piece_text(&pieces, &pieces.p[2]), STR("{\"a\": \"x"));
    output_pieces_clear(&pieces);
    output_push(&o, STR("\\u00"), &pieces); /* half an escape waits */
    CHECK_INT(pieces.n, 0);
    output_push(&o, STR("e9 </tool_call>"), &pieces);
    CHECK_STR(output_piece_text(&pieces, &pieces.p[0]), STR("\\u00e9 </tool_call>"));
    output_pieces_clear(&pieces);
    output_flush(&o, true, &pieces);
    CHECK(pieces.n == 1 && pieces.p[0].kind == OUTPUT_CALL_CUT && pieces.p[0].call == 0);
    output_free(&o);
    output_pieces_free(&pieces);
    arena_free(&a);
    (void)err;
}

/* ---- reasoning -------------------------------------------------------------------------------------------------- */

static void check_split(const struct output_options *o, const char *text, const char *reasoning, const char *content) {
    struct str all = str_of(text);
    for (size_t i = 0; i <= all.n + 1; i++) {
        struct got g = {0};
        split(o, all, i > all.n ? cut_always : cut_once, i, &g);
        CHECK_STR(sb_str(&g.reasoning), str_of(reasoning));
        CHECK_STR(sb_str(&g.content), str_of(content));
        CHECK_INT(g.n_calls, 0);
        got_free(&g);
    }
}

static void thoughts_are_split_off(void) {
    static const struct {
        const char *text, *reasoning, *content;
        bool is_open;
    } rows[] = {
        {"Hello", "", "Hello", false},
        {"<think>\nwell\n\n</think>\n\nYes.", "well", "Yes.", false},
        {"\n <think>a < b</think>c</think>", "a < b", "c</think>", false},
        {"<thin", "", "<thin", false},
        {" <b>", "", " <b>", false},
        {"never closed \n", "never closed \n", "", true},
        {"so\n</think>\nIt is 4", "so", "It is 4", true},
        {"<think></think>\n\n", "", "", false},
        {"  two  ", "", "  two  ", false},
        {"x <think>y</think>", "", "x <think>y</think>", false},
        {"<think>a</think><think>b</think>", "a", "<think>b</think>", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_split(&(struct output_options){.is_open = rows[i].is_open}, rows[i].text, rows[i].reasoning, rows[i].content);
    CHECK(output_reasoning_is_open(NULL, STR("user: x\nassistant: <think>\n")) && !output_reasoning_is_open(NULL, STR("<think></think>")));
    CHECK(output_reasoning_was_open(NULL, STR("so\n</think>\nIt is 4")) && !output_reasoning_was_open(NULL, STR("<think>so</think>")));
    const struct output_reasoning *shared = output_reasoning_recognize(STR("<|content_thinking|>"), NULL);
    CHECK(!output_reasoning_was_open(shared, STR("<|content_text|>It is 4<|end_message|>")));
    CHECK_STR(output_reasoning_close(output_format_find(STR("gpt_oss")), NULL), STR("<|end|>"));
    CHECK_STR(output_reasoning_close(output_format_find(STR("mistral_args")), NULL), STR("[/THINK]"));
    CHECK_STR(output_reasoning_close(NULL, NULL), STR("</think>"));
    CHECK(!output_reasoning_was_open(NULL, STR("\n</think>It is 4")) && !output_reasoning_was_open(NULL, STR("It is 4")));
}

/* The prompt ends inside a message: its white space counts, no header and no new thoughts come before the rest. */
static void messages_go_on(void) {
    static const struct {
        const char *format, *text, *reasoning, *content;
        bool is_open;
    } rows[] = {
        {NULL, " four.", "", " four.", false},
        {NULL, "<think>x</think>", "", "<think>x</think>", false},
        {NULL, " and so</think>\n\nYes.", " and so", "Yes.", true},
        {"gpt_oss", " four.", "", " four.", false},
        {"gpt_oss", " four.<|end|>", "", " four.", false},
        {"functionary_v32", "all\nfour.", "", "all\nfour.", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct output_options o = {.is_open = rows[i].is_open, .continues = true};
        if (rows[i].format) o.format = output_format_find(str_of(rows[i].format));
        check_split(&o, rows[i].text, rows[i].reasoning, rows[i].content);
    }
    CHECK(output_reasoning_goes_on(NULL, STR("<think>so")) && !output_reasoning_goes_on(NULL, STR("<think>so</think> It")));
    CHECK(!output_reasoning_goes_on(NULL, STR("It is")));
}

/* Text goes out at once where no marker can begin in it. */
static void nothing_waits_without_need(void) {
    struct arena a = {0};
    struct output o;
    struct output_pieces pieces = {0};
    output_init(&o, &a, &(struct output_options){0});
    output_push(&o, STR("a \n"), &pieces);
    CHECK_STR(sb_str(&pieces.text), STR("a \n"));
    CHECK(!output_is_reasoning(&o));
    output_free(&o);
    output_pieces_clear(&pieces);
    output_init(&o, &a, &(struct output_options){.format = output_format_find(STR("hermes")), .takes_calls = true, .is_open = true});
    CHECK(output_is_reasoning(&o));
    output_push(&o, STR("a <b </think>c <"), &pieces);
    CHECK(pieces.n == 2 && pieces.p[0].kind == OUTPUT_REASONING && !output_is_reasoning(&o));
    CHECK_STR(sb_str(&pieces.text), STR("a <bc"));
    output_free(&o);
    output_pieces_free(&pieces);
    arena_free(&a);
}

/* ---- what is no call -------------------------------------------------------------------------------------------- */

static void calls_that_nobody_asked_for(void) {
    const char *call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
    check_split(&(struct output_options){.format = output_format_find(STR("hermes"))}, call, "", call);
    check_split(&(struct output_options){0}, call, "", call);
    check_split(&(struct output_options){.format = output_format_find(STR("gpt_oss"))},
                "<|channel|>commentary to=functions.f<|message|>{}<|call|>", "", "{}");
}

/* A tokenizer with one token of each kind that matters: markers as tokens, and their letters as ordinary ones. */
static const char tokenizer_json[] =
    "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0, \"<tool_call>\": 1, \"</tool_call>\": 2, \"<think>\": 3, \"</think>\": 4}, "
    "\"unk_token\": \"a\"}, \"added_tokens\": [{\"id\": 1, \"content\": \"<tool_call>\"}, {\"id\": 2, \"content\": \"</tool_call>\"}, "
    "{\"id\": 3, \"content\": \"<think>\"}, {\"id\": 4, \"content\": \"</think>\"}]}";

static void letters_are_not_tokens(void) {
    struct tok *tok;
    struct err err;
    CHECK_OK(tok_load_json(&tok, str_of(tokenizer_json), (struct str){0}, &err), err);
    struct output_options o = {.format = output_format_find(STR("hermes")), .takes_calls = true, .tok = tok};
#define M OUTPUT_TOKEN_MARK
    const char *spelled = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    check_split(&o, spelled, "", spelled);
    check_split(&o, "<think>x</think>y", "", "<think>x</think>y");
    check_split(&o, M "<think>" M "a</think>b" M "</think>" M "c", "a</think>b", "c");
    check_split(&o, "a" M "<x>" M "b", "", "a<x>b"); /* marks never come out */
    struct got g = {0};
    split(&o, STR(M "<tool_call>" M "{\"name\": \"f\", \"arguments\": {\"a\": \"</tool_call>\"}}" M "</tool_call>" M), cut_always, 0, &g);
    CHECK(g.n_calls == 1 && g.content.n == 0);
    CHECK_STR(sb_str(&g.calls[0].args), STR("{\"a\": \"</tool_call>\"}"));
    got_free(&g);
#undef M
    const struct output_format *f = o.format;
    CHECK(output_uses_token(f, NULL, STR("<tool_call>")) && output_uses_token(f, NULL, STR("</think>")) &&
          !output_uses_token(f, NULL, STR("<s>")));
    CHECK(output_uses_token(output_format_find(STR("gpt_oss")), NULL, STR("<|constrain|>")));
    tok_destroy(tok);
}

/* ---- through the templates and back ------------------------------------------------------------------------------ */

/* Templates that take tools but write no call that could be read, or cannot be rendered: the same with the reference. */
static const struct {
    const char *name, *why;
} unreadable[] = {
    {"granite-3.0-instruct.jinja", "leaves calls out"},
    {"granite-granite-3.3-2B-Instruct.jinja", "leaves calls out"},
    {"smollm3/chat_template.jinja", "leaves calls out"},
    {"SmolLM3-3B.jinja", "leaves calls out"},
    {"phi-4-mini/tokenizer_config.json", "leaves calls out"},
    {"phi-4/tokenizer_config.json", "leaves calls out"},
    {"Kimi-K2-Instruct.jinja", "changes a list, which the sandbox forbids"},
    {"data/v1.jinja", "refuses calls"},
    {"gemma3_pythonic.jinja", "writes no comma between arguments"},
    {"functiongemma.jinja", "writes numbers as strings"},
    {"llama4_pythonic.jinja", "writes numbers as strings"},
    {"llama3.2_pythonic.jinja", "writes strings without quotes"},
    {"toolace.jinja", "writes strings without quotes"},
};

static const char *why_unreadable(struct str name) {
    for (size_t i = 0; i < sizeof unreadable / sizeof *unreadable; i++)
        if (str_ends(name, str_of(unreadable[i].name))) return unreadable[i].why;
    return NULL;
}

static const char tool_list[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"description\": \"Weather\", \"parameters\": {\"type\": "
    "\"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": \"integer\"}}}}}]";
static const char question[] = "{\"role\": \"user\", \"content\": \"Weather?\"}";
/* As OpenAI's clients send them: no content, arguments as text, a result without a name. */
static const char call_back[] =
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"abcd12345\", \"type\": \"function\", \"function\": {\"name\": "
    "\"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Rome\\\", \\\"days\\\": 3}\"}}]}";
static const char result_back[] = "{\"role\": \"tool\", \"tool_call_id\": \"abcd12345\", \"content\": \"18 degrees, clear\"}";

static bool render(const struct chat_template *chat, struct arena *a, const char *more, bool prompts, struct str *out, struct err *err) {
    struct tmpl_output output;
    yyjson_val *input;
    struct str text = str_fmt(a, "{\"messages\": [%s%s], \"tools\": %s, \"add_generation_prompt\": %s}", question, more, tool_list,
                              prompts ? "true" : "false");
    CHECK_OK(json_parse(a, text, "input", JSON_STRICT, &input, err), *err);
    struct chat_request r = {.input = input, .fits_calls = true, .now = {.year = 2025, .month = 7, .day = 10}};
    int code = chat_render(chat, a, &r, &output, err);
    *out = output.text;
    return code == ERR_OK;
}

/* What the assistant wrote, without what ends its turn. */
static struct str turn_of(struct str prompt, struct str with_turn) {
    static const char *const ends[] = {"<|im_end|>",    "<|eot_id|>",     "<|eot|>",      "</s>",   "<|end_of_text|>",   "<end_of_turn>",
                                       "<|end|>",       "<|eom_id|>",     "<turn|>",      "[e~[",   "<end_of_sentence>", "<SPECIAL_12>",
                                       "<|endoftext|>", "<|end_of_msg|>", "</assistant>", "<|eos|>"};
    size_t n = 0;
    while (n < prompt.n && n < with_turn.n && prompt.p[n] == with_turn.p[n]) n++;
    while (n > 0 && n < prompt.n && with_turn.p[n - 1] != '\n' && with_turn.p[n - 1] != '>') n--; /* not inside a marker that both begin */
    struct str turn = str_from(with_turn, n);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t at = str_find(turn, str_of(ends[i]), 0);
        if (at != STR_NONE && at > 8) turn = str_sub(turn, 0, at);
    }
    return turn;
}

static const char *check_turn(struct arena *a, struct str source, struct str turn, bool is_open) {
    struct err err;
    yyjson_val *tools, *args;
    struct got g = {0};
    struct output_options o = {.takes_calls = true, .format = output_format_recognize(source), .is_open = is_open};
    if (!o.format) return "no format is recognised";
    o.reasoning = output_reasoning_recognize(source, o.format);
    CHECK_OK(json_parse(a, str_of(tool_list), "tools", JSON_STRICT, &tools, &err), err);
    CHECK_OK(output_tools_read(a, tools, &o.tools, &err), err);
    split(&o, turn, cut_always, 0, &g);
    bool good = g.n_calls == 1 && str_is(sb_str(&g.calls[0].name), "get_weather") &&
                json_parse(a, sb_str(&g.calls[0].args), "arguments", JSON_STRICT, &args, &err) == ERR_OK &&
                str_is(json_str(args, "city", (struct str){0}), "Rome") && json_int(args, "days", 0) == 3;
    got_free(&g);
    return good ? NULL : "the call does not come back";
}

static const char *check_template(struct arena *a, yyjson_val *row) {
    struct chat_template *chat;
    struct str prompt, with_call, with_result;
    struct err err;
    struct sb special = {0};
    jsonw_val(&(struct jsonw){.out = &special}, json_get(row, "special"));
    struct chat_files files = {
        .model = "t", .chat_template_jinja = json_str(row, "template", (struct str){0}), .tokenizer_config = str_copy(a, sb_str(&special))};
    sb_free(&special);
    CHECK_OK(chat_template_load(a, &files, &chat, &err), err);
    if (!render(chat, a, "", true, &prompt, &err)) return NULL; /* no template for conversations */
    if (!render(chat, a, str_fmt(a, ", %s", call_back).p, false, &with_call, &err)) return "the call is not rendered";
    if (!render(chat, a, str_fmt(a, ", %s, %s", call_back, result_back).p, true, &with_result, &err)) return "the result is not rendered";
    if (str_find(with_result, STR("18 degrees, clear"), 0) == STR_NONE) return "the result is left out";
    struct str turn = turn_of(prompt, with_call);
    bool is_open =
        output_reasoning_is_open(output_reasoning_recognize(files.chat_template_jinja, output_format_recognize(files.chat_template_jinja)),
                                 str_sub(with_call, 0, (size_t)(turn.p - with_call.p)));
    return check_turn(a, files.chat_template_jinja, turn, is_open);
}

static void calls_through_templates(void) {
    if (!unit_data_dir()) unit_skip("no test data");
    struct arena a = {0}, each = {0};
    struct str text;
    struct err err;
    yyjson_val *root, *row;
    size_t i, n, n_checked = 0;
    CHECK_OK(os_file_load(&a, str_fmt(&a, "%s/text/chat_golden.json", unit_data_dir()).p, 0, &text, &err), err);
    CHECK_OK(json_parse(&a, text, "chat_golden.json", JSON_STRICT, &root, &err), err);
    n_wrong = 0;
    yyjson_val *templates = json_get(root, "templates");
    yyjson_arr_foreach(templates, i, n, row) {
        struct str name = json_str(row, "name", (struct str){0}), source = json_str(row, "template", (struct str){0});
        if (str_find(source, STR("tool_calls"), 0) == STR_NONE && !output_format_recognize(source)) continue;
        const char *wrong = check_template(&each, row), *known = why_unreadable(name);
        if (known ? !wrong : wrong != NULL) {
            struct str line =
                str_fmt(&each, "%.*s: %s\n", STR_ARG(name), wrong ? wrong : "is fine, but stands in the list of those that are not");
            os_write(OS_STDOUT, line, NULL);
            n_wrong++;
        }
        n_checked += !known;
        arena_reset(&each);
    }
    arena_free(&each);
    arena_free(&a);
    FAIL_IF(n_wrong || n_checked < 60, "%d of %zu templates are wrong", n_wrong, n_checked);
}

/* ---- text for grammars ------------------------------------------------------------------------------------------- */

/* Writes a text that the tree allows: everything optional where `all`, the given choice, two of what repeats. */
struct sampler {
    bool all;
    size_t choice;
    size_t n_repeat;
};

static void sample_value(const struct output_part *p, struct sb *out) {
    static const char *const syntaxes[] = {"\"Rome\"", "\"Rome\"", NULL, "Rome"};
    struct str type = json_str(p->schema, "type", STR("object"));
    bool is_text = str_is(type, "string");
    if (str_is(type, "object"))
        sb_puts(out, json_get(json_get(p->schema, "properties"), "city") ? "{\"city\": \"Rome\", \"days\": 3, \"exact\": true}" : "{}");
    else if (is_text && p->syntax == OUTPUT_SYNTAX_QUOTED) sb_fmt(out, "%.*sRome%.*s", STR_ARG(p->text), STR_ARG(p->text));
    else if (is_text) sb_puts(out, syntaxes[p->syntax]);
    else if (str_is(type, "boolean")) sb_puts(out, p->syntax == OUTPUT_SYNTAX_PYTHON ? "True" : "true");
    else sb_puts(out, "3");
}

static void sample(const struct sampler *s, const struct output_part *p, struct sb *out) {
    bool first = true;
    switch (p->kind) {
    case OUTPUT_PART_LITERAL: sb_put(out, p->text); break;
    case OUTPUT_PART_VALUE: sample_value(p, out); break;
    case OUTPUT_PART_TEXT: sb_puts(out, "Rome"); break;
    case OUTPUT_PART_PATTERN: sb_puts(out, str_is(p->text, "[a-zA-Z0-9]{9}") ? "abcDEF123" : "12"); break;
    case OUTPUT_PART_CHOICE: sample(s, &p->parts[s->choice], out); break;
    case OUTPUT_PART_REPEAT:
        for (size_t i = 0; i < s->n_repeat; i++) {
            if (i) sb_put(out, p->text);
            sample(s, &p->parts[0], out);
        }
        break;
    case OUTPUT_PART_SEQUENCE:
        for (size_t i = 0; i < p->n; i++) {
            if (p->parts[i].is_optional && !s->all) continue;
            if (!first) sb_put(out, p->text);
            sample(s, &p->parts[i], out);
            first = false;
        }
    }
}

static const char two_tools[] =
    "[{\"name\": \"get_weather\", \"parameters\": {\"type\": \"object\", \"properties\": {\"city\": {\"type\": \"string\"}, \"days\": {\"type\": "
    "\"integer\"}, \"exact\": {\"type\": \"boolean\"}}, \"required\": [\"city\"]}}, {\"name\": \"get_time\", \"parameters\": {\"type\": \"object\"}}]";

static void check_forced(const struct output_format *f, struct output_tools tools, const struct sampler *s) {
    struct arena a = {0};
    struct err err;
    struct sb text = {0};
    struct got g = {0};
    struct output_forced forced;
    yyjson_val *args;
    const char *name = s->choice ? "get_time" : "get_weather";
    CHECK(output_force(&a, f, tools, s->n_repeat > 1, &forced));
    sample(s, &forced.root, &text);
    FAIL_IF(!str_starts(sb_str(&text), forced.trigger), "%s: no trigger %.*s in %s", output_format_name(f), STR_ARG(forced.trigger),
            text.p);
    split(&(struct output_options){.format = f, .tools = tools, .takes_calls = true}, sb_str(&text), cut_always, 0, &g);
    FAIL_IF(g.n_calls != s->n_repeat || str_trim(sb_str(&g.content)).n, "%s: %zu calls and the content \"%s\" in %s", output_format_name(f),
            g.n_calls, g.content.p ? g.content.p : "", text.p);
    for (size_t i = 0; i < g.n_calls; i++) {
        CHECK_STR(sb_str(&g.calls[i].name), str_of(name));
        CHECK_OK(json_parse(&a, sb_str(&g.calls[i].args), "arguments", JSON_STRICT, &args, &err), err);
        CHECK_STR(json_str(args, "city", (struct str){0}), s->choice ? (struct str){0} : STR("Rome"));
        if (s->all && !s->choice) CHECK(json_int(args, "days", 0) == 3 && json_bool(args, "exact", false));
    }
    got_free(&g);
    sb_free(&text);
    arena_free(&a);
}

/* What a grammar would hold the model to is what the parser reads. */
static void forced_calls_are_read(void) {
    static const struct sampler samplers[] = {{true, 0, 1}, {false, 0, 1}, {true, 1, 1}, {true, 0, 2}, {false, 1, 3}};
    struct arena a = {0};
    struct err err;
    struct output_tools tools;
    struct output_forced forced;
    yyjson_val *list;
    size_t n_lazy = 0;
    CHECK_OK(json_parse(&a, str_of(two_tools), "tools", JSON_STRICT, &list, &err), err);
    CHECK_OK(output_tools_read(&a, list, &tools, &err), err);
    for (size_t i = 0; output_format_at(i); i++) {
        for (size_t k = 0; k < sizeof samplers / sizeof *samplers; k++) check_forced(output_format_at(i), tools, &samplers[k]);
        CHECK(output_force(&a, output_format_at(i), tools, false, &forced));
        n_lazy += forced.trigger.n > 0;
    }
    CHECK_INT(n_lazy, 49); /* the others are whole messages, or headers that also begin other messages */
    CHECK(!output_force(&a, output_format_at(0), (struct output_tools){0}, false, &forced));
    arena_free(&a);
}

/* ---- the grammar of calls --------------------------------------------------------------------------------------- */

static const char rich_tools[] =
    "[{\"name\": \"plan\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"code\": {\"type\": \"string\", \"pattern\": \"^[A-Z]{3}$\"}, \"day\": {\"type\": \"string\", \"format\": \"date\"}, "
    "\"note\": {\"type\": \"string\", \"maxLength\": 4}, \"kind\": {\"enum\": [\"a\", \"b\"]}, "
    "\"tags\": {\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 2}, "
    "\"at\": {\"$ref\": \"#/$defs/place\"}, \"n\": {\"type\": [\"integer\", \"null\"], \"minimum\": 3}}, "
    "\"$defs\": {\"place\": {\"type\": \"object\", \"properties\": {\"x\": {\"type\": \"boolean\"}, \"in\": {\"$ref\": "
    "\"#/$defs/place\"}}, \"required\": [\"x\"]}}}}]";

/* Whether the grammar of the format's calls takes the whole text. */
static bool grammar_takes(const char *format, struct output_tools tools, const char *text) {
    struct arena a = {0};
    struct err err = {0};
    struct output_forced forced;
    struct forced_gbnf g = {0};
    struct sb source = {0};
    struct gram *compiled;
    struct gram_options options = gram_defaults();
    const struct output_format *f = output_format_find(str_of(format));
    CHECK(f && output_force(&a, f, tools, false, &forced));
    size_t n = forced_gbnf_put(&a, &forced.root, f, NULL, &g);
    sb_fmt(&source, "root ::= c%zu\n", n);
    sb_put(&source, sb_str(&g.rules));
    FAIL_IF(gram_compile(&(struct gram_source){GRAM_GBNF, sb_str(&source), g.schemas, g.n_schemas}, &options, NULL, &compiled, &err),
            "%s: %s in\n%s", format, err.msg, source.p);
    struct gram_machine *m = gram_machine_create(compiled, NULL, NULL, 0);
    struct gram_match match;
    gram_match_init(&match, m);
    struct str whole = str_of(text);
    bool takes = gram_match_bytes(&match, whole) == whole.n && gram_match_may_end(&match);
    gram_match_free(&match);
    gram_machine_destroy(m);
    gram_destroy(compiled);
    sb_free(&source);
    sb_free(&g.rules);
    arena_free(&a);
    return takes;
}

/* Lists that are longer than a message are whole. */
static void long_lists_are_whole(void) {
    struct arena a = {0};
    struct err err;
    struct sb text = {0};
    struct output_tools tools;
    yyjson_val *list;
    sb_puts(&text, "[{\"name\": \"pick\", \"parameters\": {\"type\": \"object\", \"properties\": {\"of\": {\"enum\": [\"first\"");
    for (int i = 0; i < 300; i++) sb_fmt(&text, ", \"number %d\"", i);
    sb_puts(&text, "]}}}}]");
    CHECK_OK(json_parse(&a, sb_str(&text), "tools", JSON_STRICT, &list, &err), err);
    CHECK_OK(output_tools_read(&a, list, &tools, &err), err);
    CHECK(grammar_takes("pythonic", tools, "[pick(of=\"number 299\")]") && !grammar_takes("pythonic", tools, "[pick(of=\"number 300\")]"));
    CHECK(grammar_takes("glm45", tools, "<tool_call>pick\n<arg_key>of</arg_key>\n<arg_value>number 299</arg_value>\n</tool_call>"));
    CHECK(!grammar_takes("glm45", tools, "<tool_call>pick\n<arg_key>of</arg_key>\n<arg_value>number</arg_value>\n</tool_call>"));
    sb_free(&text);
    arena_free(&a);
}

/* Arguments obey the tool's schema in every spelling, not in JSON alone. In the rows %s is one argument. */
static void arguments_obey_in_every_spelling(void) {
    static const struct {
        const char *format, *call;
        const char *good[8], *bad[12];
    } rows[] = {
        {"pythonic",
         "[plan(%s)]",
         {"code=\"ABC\"", "day=\"2024-02-29\"", "kind=\"b\"", "tags=[1, 2]", "at={\"x\": True, \"in\": {\"x\": False}}", "n=None", "n=4"},
         {"code=\"ABc\"", "day=\"2023-02-29\"", "kind=\"c\"", "tags=[]", "tags=[1, 2, 3]", "tags=[\"1\"]", "at={}", "at={\"x\": true}",
          "at={\"x\": True, \"in\": 1}", "n=2", "note=\"12345\""}},
        {"gemma4",
         "<|tool_call>call:plan{%s}<tool_call|>",
         {"code:<|\"|>ABC<|\"|>", "day:<|\"|>2024-02-29<|\"|>", "kind:<|\"|>b<|\"|>", "tags:[1,2]", "at:{x:true,in:{x:false}}", "n:null",
          "note:<|\"|><|\"|>"},
         {"code:<|\"|>ABCD<|\"|>", "day:<|\"|>2024-02-30<|\"|>", "kind:<|\"|>c<|\"|>", "tags:[]", "tags:[1,2,3]", "tags:[<|\"|>1<|\"|>]",
          "at:{in:{x:true}}", "at:{x:1}", "n:2", "note:<|\"|>12345<|\"|>"}},
        {"qwen3_coder",
         "<tool_call>\n<function=plan>\n%s</function>\n</tool_call>",
         {"<parameter=code>\nABC\n</parameter>\n", "<parameter=day>\n2024-02-29\n</parameter>\n", "<parameter=note>\n<b>\n</parameter>\n",
          "<parameter=kind>\na\n</parameter>\n", "<parameter=tags>\n[1, 2]\n</parameter>\n",
          "<parameter=at>\n{\"x\": true}\n</parameter>\n", "<parameter=n>\n3\n</parameter>\n"},
         {"<parameter=code>\nAB\n</parameter>\n", "<parameter=day>\n2024-2-29\n</parameter>\n", "<parameter=note>\n12345\n</parameter>\n",
          "<parameter=kind>\nc\n</parameter>\n", "<parameter=tags>\n[]\n</parameter>\n", "<parameter=at>\n{\"x\": 1}\n</parameter>\n",
          "<parameter=n>\n2\n</parameter>\n", "<parameter=other>\n2\n</parameter>\n"}},
        {"glm45",
         "<tool_call>plan\n%s</tool_call>",
         {"<arg_key>code</arg_key>\n<arg_value>ABC</arg_value>\n", "<arg_key>tags</arg_key>\n<arg_value>[7]</arg_value>\n"},
         {"<arg_key>code</arg_key>\n<arg_value>ABC </arg_value>\n", "<arg_key>tags</arg_key>\n<arg_value>7</arg_value>\n"}},
        {"minimax_m3",
         "]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"plan\">%s]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
         {"]<]minimax[>[<code>ABC]<]minimax[>[</code>", "]<]minimax[>[<tags>]<]minimax[>[<item>1]<]minimax[>[</item>]<]minimax[>[</tags>",
          "]<]minimax[>[<at>]<]minimax[>[<x>true]<]minimax[>[</x>]<]minimax[>[</at>", "]<]minimax[>[<n>3]<]minimax[>[</n>"},
         {"]<]minimax[>[<code>AB]<]minimax[>[</code>", "]<]minimax[>[<tags>1]<]minimax[>[</tags>",
          "]<]minimax[>[<tags>]<]minimax[>[<item>a]<]minimax[>[</item>]<]minimax[>[</tags>",
          "]<]minimax[>[<at>]<]minimax[>[<x>7]<]minimax[>[</x>]<]minimax[>[</at>", "]<]minimax[>[<n>2]<]minimax[>[</n>"}},
        {"kimi_k2",
         "<|tool_calls_section_begin|><|tool_call_begin|>functions.plan:0<|tool_call_argument_begin|>{%s}<|tool_call_end|><|tool_calls_section_end|>",
         {"\"code\": \"ABC\"", "\"tags\": [1]"},
         {"\"code\": \"abc\"", "\"tags\": []"}},
    };
    struct arena a = {0};
    struct err err;
    struct output_tools tools;
    yyjson_val *list;
    char text[512];
    CHECK_OK(json_parse(&a, str_of(rich_tools), "tools", JSON_STRICT, &list, &err), err);
    CHECK_OK(output_tools_read(&a, list, &tools, &err), err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *hole = strstr(rows[i].call, "%s");
        for (size_t k = 0; k < 20; k++) {
            const char *part = k < 8 ? rows[i].good[k] : rows[i].bad[k - 8];
            if (!part) continue;
            snprintf(text, sizeof text, "%.*s%s%s", (int)(hole - rows[i].call), rows[i].call, part, hole + 2);
            FAIL_IF(grammar_takes(rows[i].format, tools, text) != (k < 8), "%s: %s is %s", rows[i].format, text,
                    k < 8 ? "rejected" : "accepted");
        }
    }
    arena_free(&a);
}

/* ---- limits ----------------------------------------------------------------------------------------------------- */

static void hostile_texts_are_text(void) {
    static const struct {
        const char *format, *begin, *part;
        size_t n;
    } rows[] = {
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": ", "{\"a\": ", 200},
        {"pythonic", "[f(a=", "[", 200},
        {"gemma4", "<|tool_call>call:f{a:", "[", 200},
        {"minimax_m3", "]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"f\">", "]<]minimax[>[<a>", 60},
        {"hermes", "", "<tool_call>", 2000},
        {"hermes", "<tool_call>", " ", 20000},
        {"kimi_k2", "<|tool_call_begin|>", "x", 2000},
        {"qwen3_coder", "<function=f><parameter=", "x", 2000},
        {"gpt_oss", "<|channel|>", "x", 2000},
        {"olmo3", "<function_calls>\nf(a=", "1", 2000},
        {"kimi_k3", "<|open|>tools<|sep|><|open|>call tool=\"f\" index=\"1\"<|sep|><|open|>argument key=\"a\" type=\"string\"<|sep|>",
         "<|close|>argument<|", 500},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sb text = {0};
        struct got g = {0};
        struct output_options o = {.format = output_format_find(str_of(rows[i].format)), .takes_calls = true};
        sb_puts(&text, rows[i].begin);
        for (size_t k = 0; k < rows[i].n; k++) sb_puts(&text, rows[i].part);
        split(&o, sb_str(&text), cut_randomly, i, &g);
        CHECK_INT(g.n_calls, 0);
        CHECK_STR(sb_str(&g.content), sb_str(&text));
        got_free(&g);
        sb_free(&text);
    }
}

/* A call that never ends: text once it is longer than a call may be, and a later call is found. */
static void a_call_without_end(void) {
    struct arena a = {0};
    struct output o;
    struct output_pieces pieces = {0};
    struct sb text = {0};
    output_init(&o, &a, &(struct output_options){.format = output_format_find(STR("hermes")), .takes_calls = true});
    sb_puts(&text, "<tool_call>{\"name\": \"");
    while (text.n < OUTPUT_CALL_BYTES + 100) sb_puts(&text, "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    output_push(&o, sb_str(&text), &pieces);
    CHECK(pieces.n == 1 && pieces.p[0].kind == OUTPUT_CONTENT);
    CHECK_INT(pieces.text.n, text.n);
    output_pieces_clear(&pieces);
    output_push(&o, STR("<tool_call>{\"name\": \"f\", \"arguments\": {}}"), &pieces);
    CHECK(pieces.n == 3 && pieces.p[0].kind == OUTPUT_CALL && pieces.p[2].kind == OUTPUT_CALL_END);
    output_free(&o);
    output_pieces_free(&pieces);
    sb_free(&text);
    arena_free(&a);
}

/* ---- ids and formats -------------------------------------------------------------------------------------------- */

static void ids_come_through(void) {
    static const struct {
        const char *format, *text, *id;
    } rows[] = {
        {"kimi_k2", "<|tool_call_begin|>functions.f.g:12<|tool_call_argument_begin|>{}<|tool_call_end|>", "functions.f.g:12"},
        {"mistral_callid", "[TOOL_CALLS]f[CALL_ID]ab3456789[ARGS]{}", "ab3456789"},
        {"mistral_array", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"ab3456789\"}]", "ab3456789"},
        {"solar_open", "<|tool_call:begin|>x1<|tool_call:name|>f<|tool_call:args|>{}<|tool_call:end|>", ""},
        {"solar_open", "<|tool_calls|><|tool_call:begin|>x1<|tool_call:name|>f<|tool_call:args|>{}<|tool_call:end|>", "x1"},
        {"xlam", "[{\"name\": \"f\", \"arguments\": {}, \"id\": \"q\"}]", "q"},
        {"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a = {0};
        struct output o;
        struct output_pieces pieces = {0};
        output_init(&o, &a, &(struct output_options){.format = output_format_find(str_of(rows[i].format)), .takes_calls = true});
        output_push(&o, str_of(rows[i].text), &pieces);
        output_flush(&o, false, &pieces);
        CHECK(pieces.n > 0);
        CHECK_STR(output_piece_id(&pieces, &pieces.p[0]), str_of(rows[i].id));
        output_free(&o);
        output_pieces_free(&pieces);
        arena_free(&a);
    }
}

static void ids_are_made(void) {
    struct arena a = {0};
    CHECK_STR(output_make_id(&a, output_format_find(STR("kimi_k2")), STR("f"), 3, 7), STR("functions.f:3"));
    CHECK_INT(output_make_id(&a, output_format_find(STR("mistral_array")), STR("f"), 0, UINT64_MAX).n, 9);
    CHECK_STR(output_make_id(&a, NULL, STR("f"), 0, 0), STR("call_aaaaaaaaaa"));
    arena_free(&a);
}

static void formats_by_name_and_hint(void) {
    static const struct {
        const char *text, *format;
    } rows[] = {
        {"{{ '<tool_call>\\n{\"name\": ' }}", "hermes"},
        {"<tool_call> <|start_of_role|>", "granite4"},
        {"<tool_call>\n<function= <parameter=", "qwen3_coder"},
        {"<tool_call> <arg_key> </arg_key><arg_value>", "glm47"},
        {"<tool_call> <arg_key>", "glm45"},
        {"[TOOL_CALLS] [ARGS]", "mistral_args"},
        {"[TOOL_CALLS]", "mistral_array"},
        {"<|tool_list_start|>", "lfm2"},
        {"{{ messages }}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct output_format *f = output_format_recognize(str_of(rows[i].text));
        CHECK_STR(str_of(f ? output_format_name(f) : NULL), str_of(rows[i].format));
    }
    size_t n = 0;
    for (; output_format_at(n); n++) CHECK(output_format_find(str_of(output_format_name(output_format_at(n)))) == output_format_at(n));
    CHECK_INT(n, 57);
    const struct output_format *mistral = output_format_find(STR("mistral_args"));
    CHECK(output_reasoning_recognize(STR("[THINK]"), mistral) == output_reasoning_recognize(STR(""), mistral));
    CHECK(output_reasoning_recognize(STR("<think>"), mistral) == output_reasoning_recognize(STR(""), NULL));
}

/* Texts of pieces of markers, cut at random and everywhere. */
static void cuts_do_not_matter(void) {
    static const char *const parts[] = {"<think>", "</think>", "<", "</", "think>", " ", "\n", "x", "</thin", "\xC3\xA9"};
    uint64_t random = 1;
    for (uint64_t i = 0; i < 20000; i++) {
        struct output_options o = {.is_open = i & 1};
        struct sb text = {0};
        struct got whole = {0}, parted = {0};
        for (uint64_t k = 0; k < 1 + i % 7; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            sb_puts(&text, parts[(random >> 33) % (sizeof parts / sizeof *parts)]);
        }
        split(&o, sb_str(&text), cut_once, SIZE_MAX, &whole);
        split(&o, sb_str(&text), i % 3 ? cut_randomly : cut_always, i, &parted);
        CHECK_STR(sb_str(&parted.content), sb_str(&whole.content));
        CHECK_STR(sb_str(&parted.reasoning), sb_str(&whole.reasoning));
        got_free(&whole);
        got_free(&parted);
        sb_free(&text);
    }
}

static void tools_are_read(void) {
    static const char *const bad[] = {"{}", "[1]", "[{\"function\": {}}]", "[{\"name\": \"f\", \"parameters\": 1}]"};
    struct arena a = {0};
    struct err err;
    struct output_tools tools;
    yyjson_val *list;
    CHECK_OK(json_parse(&a, STR("[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}, {\"name\": \"g\"}]"), "t",
                        JSON_STRICT, &list, &err),
             err);
    CHECK_OK(output_tools_read(&a, list, &tools, &err), err);
    CHECK(tools.n == 2 && tools.p[0].parameters && !tools.p[1].parameters && str_is(tools.p[1].name, "g"));
    CHECK_OK(output_tools_read(&a, NULL, &tools, &err), err);
    CHECK_INT(tools.n, 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OK(json_parse(&a, str_of(bad[i]), "t", JSON_STRICT, &list, &err), err);
        CHECK(output_tools_read(&a, list, &tools, &err) == ERR_EARG && err.msg[0]);
    }
    arena_free(&a);
}

const struct unit_suite unit_output = {
    "output",
    (const struct unit_case[]){{"own_cases", own_cases},
                               {"shared_cases", shared_cases},
                               {"arguments_as_they_come", arguments_as_they_come},
                               {"thoughts_are_split_off", thoughts_are_split_off},
                               {"messages_go_on", messages_go_on},
                               {"cuts_do_not_matter", cuts_do_not_matter},
                               {"nothing_waits_without_need", nothing_waits_without_need},
                               {"calls_that_nobody_asked_for", calls_that_nobody_asked_for},
                               {"letters_are_not_tokens", letters_are_not_tokens},
                               {"calls_through_templates", calls_through_templates},
                               {"forced_calls_are_read", forced_calls_are_read},
                               {"arguments_obey_in_every_spelling", arguments_obey_in_every_spelling},
                               {"long_lists_are_whole", long_lists_are_whole},
                               {"hostile_texts_are_text", hostile_texts_are_text},
                               {"a_call_without_end", a_call_without_end},
                               {"ids_come_through", ids_come_through},
                               {"ids_are_made", ids_are_made},
                               {"formats_by_name_and_hint", formats_by_name_and_hint},
                               {"tools_are_read", tools_are_read},
                               {0}},
};
