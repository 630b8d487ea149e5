/* Grammars: the cases of tests/grammar/cases.jsonl, and what a match can do with tokens. */
#include "unit.h"

#include "api/tokenizer_files.h"
#include "base/json.h"
#include "os/os.h"
#include "text/grammar/grammar.h"

/* ---- cases ---------------------------------------------------------------------------------------------------------- */

static struct gram_source source_of(struct arena *a, yyjson_val *test) {
    yyjson_val *schema = json_get(test, "schema");
    if (json_get(test, "gbnf")) return (struct gram_source){.kind = GRAM_GBNF, .text = json_str(test, "gbnf", STR(""))};
    if (json_get(test, "regex")) return (struct gram_source){.kind = GRAM_REGEX, .text = json_str(test, "regex", STR(""))};
    if (!schema) return (struct gram_source){.kind = GRAM_JSON_OBJECT};
    struct sb text = {0};
    struct jsonw w = {.out = &text};
    jsonw_val(&w, schema);
    struct gram_source source = {.kind = GRAM_JSON_SCHEMA, .text = str_copy(a, sb_str(&text))};
    sb_free(&text);
    return source;
}

static bool accepts(struct gram_machine *machine, struct str text) {
    struct gram_match m;
    gram_match_init(&m, machine);
    bool good = gram_match_bytes(&m, text) == text.n && gram_match_may_end(&m);
    gram_match_free(&m);
    return good;
}

static void check_texts(struct str name, struct gram_machine *machine, yyjson_val *texts, bool want) {
    size_t i, n;
    yyjson_val *text;
    yyjson_arr_foreach(texts, i, n, text) {
        struct str s = json_val_str(text);
        FAIL_IF(accepts(machine, s) != want, "%.*s: %.*s is %s", STR_ARG(name), STR_ARG(s), want ? "rejected" : "accepted");
    }
}

static void check_case(yyjson_val *test) {
    struct arena a = {0};
    struct err err = {0};
    struct gram *g;
    struct gram_source source = source_of(&a, test);
    struct gram_options options = gram_judging();
    struct str name = json_str(test, "name", STR("?")), why = json_str(test, "refused", (struct str){0});
    int code = gram_compile(&source, &options, NULL, &g, &err);
    if (why.p) {
        FAIL_IF(!code, "%.*s: not refused", STR_ARG(name));
        FAIL_IF(str_find(str_of(err.msg), why, 0) == STR_NONE, "%.*s: refused with \"%s\"", STR_ARG(name), err.msg);
    } else {
        FAIL_IF(code, "%.*s: %s", STR_ARG(name), err.msg);
        struct gram_machine *machine = gram_machine_create(g, NULL, NULL, 0);
        check_texts(name, machine, json_get(test, "accept"), true);
        check_texts(name, machine, json_get(test, "reject"), false);
        gram_machine_destroy(machine);
        gram_destroy(g);
    }
    arena_free(&a);
}

static void own_cases(void) {
    struct arena a = {0};
    struct err err = {0};
    struct str text, line;
    yyjson_val *test;
    CHECK_OK(os_file_load(&a, str_fmt(&a, "%s/tests/grammar/cases.jsonl", unit_source_dir()).p, 0, &text, &err), err);
    while (text.n && str_split_next(&text, '\n', &line)) {
        if (!line.n) continue;
        CHECK_OK(json_parse(&a, line, "cases.jsonl", JSON_RAW_NUMBERS, &test, &err), err);
        check_case(test);
    }
    arena_free(&a);
}

/* ---- matches --------------------------------------------------------------------------------------------------------- */

struct fixture { /* a schema with the built-in vocabulary */
    size_t n_ids;
    struct tok *tok;
    struct gram *g;
    struct gram_vocab *v;
    struct gram_machine *machine;
    int32_t eos;
};

static struct fixture open_spaced(enum gram_kind kind, const char *text, uint8_t space) {
    struct fixture f;
    struct err err = {0};
    struct gram_source source = {.kind = kind, .text = str_of(text)};
    struct gram_options options = gram_defaults();
    options.space = space;
    CHECK_OK(text_tokenizer_open(NULL, &f.tok, &err), err);
    CHECK_OK(gram_compile(&source, &options, NULL, &f.g, &err), err);
    size_t n = tok_vocab_size(f.tok);
    f.eos = (int32_t)n;
    f.v = gram_vocab_create(f.tok, n + 33, NULL, 0, &err);
    f.n_ids = n + 33;
    f.machine = gram_machine_create(f.g, f.v, &f.eos, 1);
    return f;
}

static struct fixture open_grammar(enum gram_kind kind, const char *text) {
    return open_spaced(kind, text, gram_defaults().space);
}

static struct fixture open_schema(const char *schema) {
    return open_grammar(GRAM_JSON_SCHEMA, schema);
}

static void close_schema(struct fixture *f) {
    gram_machine_destroy(f->machine);
    gram_vocab_destroy(f->v);
    gram_destroy(f->g);
    tok_destroy(f->tok);
}

static const char PERSON[] = "{\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\", \"maxLength\": 5},"
                             "\"age\": {\"type\": \"integer\"}}, \"required\": [\"name\", \"age\"], \"additionalProperties\": false}";

/* Every bit of the mask is what the match does with that token. */
static void check_mask(const struct fixture *f, struct gram_match *m, uint32_t *bits) {
    gram_match_mask(m, bits);
    for (size_t id = 0; id < f->n_ids; id++) {
        bool is_allowed = bits[id / 32] >> id % 32 & 1;
        bool is_taken = gram_match_token(m, (int32_t)id);
        if (is_taken) gram_match_back(m, 1);
        FAIL_IF(is_allowed != is_taken, "token %zu: mask %d, match %d", id, is_allowed, is_taken);
    }
}

/* At every byte of the text, which the schema allows. */
static void check_masks_spaced(const char *schema, const char *text, uint8_t space) {
    struct fixture f = open_spaced(GRAM_JSON_SCHEMA, schema, space);
    struct gram_match m;
    uint32_t *bits = mem_alloc(gram_mask_words(f.v) * sizeof *bits);
    gram_match_init(&m, f.machine);
    for (size_t i = 0; i <= strlen(text); i++) {
        check_mask(&f, &m, bits);
        if (text[i]) FAIL_IF(gram_match_bytes(&m, str_n(text + i, 1)) != 1, "byte %zu of %s", i, text);
    }
    CHECK(bits[f.eos / 32] >> f.eos % 32 & 1);
    CHECK(gram_machine_bytes(f.machine) > 0);
    gram_match_free(&m);
    mem_free(bits);
    close_schema(&f);
}

static void check_masks_along(const char *schema, const char *text) {
    check_masks_spaced(schema, text, gram_defaults().space);
}

static void masks_are_what_is_taken(void) {
    check_masks_along(PERSON, "{ \n      \t   \"name\" :   \r\n                                   \"x\" , \"age\":   5  }");
    check_masks_along(PERSON, "{\"name\": \"Zo\xc3\xa9\\\"a\", \"age\": -10}");
    check_masks_along("{\"type\": \"string\", \"pattern\": \"^[a-z ]+$\", \"minLength\": 3, \"maxLength\": 12}", "\"the old cat\"");
    check_masks_along("{\"anyOf\": [{\"type\": \"string\", \"maxLength\": 4}, {\"enum\": [\"a long text\", 12, null]}]}",
                      "\"a long text\"");
}

/* Runs of white space up to the limit, and tokens that have some before, behind or between other bytes. */
static void masks_of_white_space(void) {
    static const char text[] = "{ \"name\" :\n\"x y\" ,\t\"age\": 5 }";
    for (int space = 1; space <= 4; space++) check_masks_spaced(PERSON, text, (uint8_t)space);
    check_masks_spaced(PERSON, "{ \n \"name\"   :\r\n \"x\"\n\n\n,\"age\":   5 \n }", 3);
    check_masks_spaced(PERSON, "{\"name\":\"x y\",\"age\":5}", 0);
    check_masks_spaced(PERSON, "{  \n  \"name\":\"x\",   \"age\":5}", GRAM_SPACE_ANY);
    check_masks_spaced("{\"type\": \"array\", \"items\": {\"type\": [\"number\", \"null\", \"object\", \"array\"]}}",
                       "[ 1 , 2.5e3\n\n, {\"a\" : [ ] } , null ]", 2);
}

/* Strings at their least and greatest lengths, with expressions, and of any characters. */
static void masks_of_lengths(void) {
    check_masks_along("{\"type\": \"string\", \"minLength\": 3, \"maxLength\": 40}", "\"the old \\u00e9\\n cat and the other old cats\"");
    check_masks_along("{\"type\": \"array\", \"items\": {\"type\": \"string\"}}", "[\"\", \"a\\\"b\\\\\", \"\\ud83d\\ude00 \xc3\xa9\"]");
    check_masks_along("{\"type\": \"string\", \"pattern\": \"old cat\", \"minLength\": 9}", "\"the old cat\"");
    check_masks_along("{\"type\": \"string\", \"pattern\": \"^[a-z]+( [a-z]+)*$\", \"maxLength\": 14}", "\"the old cats\"");
    check_masks_along(
        "{\"type\": \"object\", \"properties\": {\"a\": {\"pattern\": \"\\\\.$\"}, \"b\": {\"type\": \"string\", \"maxLength\": 2}}, \"minProperties\": 2}",
        "{\"a\": \"the end.\", \"b\": \"x\"}");
}

/* Names that are counted, and items that must differ: tokens that repeat an earlier one are not allowed. */
static void masks_of_what_must_differ(void) {
    check_masks_along("{\"type\": \"object\", \"minProperties\": 4, \"additionalProperties\": {\"type\": \"integer\"}}",
                      "{\"th\":1,\"the\":2,\"t\\\"h\":3,\"\":4, \"t\\\"\": 5}");
    check_masks_along(
        "{\"type\": \"object\", \"properties\": {\"the\": {}}, \"minProperties\": 3, \"propertyNames\": {\"pattern\": \"^t\"}}",
        "{\"the\":1,\"th\":\"x\",\"t\\\\h\":null}");
    check_masks_along("{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"type\": \"string\"}}",
                      "[\"\",\"th\",\"the\",\"t\\\"h\",\"t\\\"\"]");
    check_masks_along("{\"type\": \"array\", \"uniqueItems\": true, \"items\": {\"enum\": [\"th\", \"the\", 1, 11, null]}}",
                      "[\"the\",1,\"th\",11,null]");
}

/* In the schema's order, a name that must come has had its turn when others begin: nothing leads into a dead end. */
static void no_dead_ends(void) {
    struct fixture f =
        open_schema("{\"type\": \"object\", \"minProperties\": 2, \"not\": {\"propertyNames\": {\"not\": {\"enum\": [\"a\", \"b\"]}}}}");
    struct gram_match m;
    gram_match_init(&m, f.machine);
    CHECK_INT(gram_match_bytes(&m, STR("{\"c")), 2);
    CHECK_INT(gram_match_bytes(&m, STR("{\"a\":1,\"c\":2}")), 13);
    gram_match_free(&m);
    close_schema(&f);
}

static void back_and_copies(void) {
    struct fixture f = open_schema(PERSON);
    struct gram_match m, copy;
    gram_match_init(&m, f.machine);
    CHECK_INT(gram_match_bytes(&m, STR("{\"name\":\"A")), 10);
    uint32_t state = m.state;
    gram_match_copy(&copy, &m);
    CHECK_INT(gram_match_bytes(&m, STR("\",\"age\":1x}")), 9); /* not taken, nothing changed */
    CHECK_INT(m.state, state);
    CHECK_INT(gram_match_bytes(&m, STR("\",\"age\":1}")), 10);
    CHECK(gram_match_may_end(&m) && gram_match_must_end(&m));
    CHECK(gram_match_token(&m, f.eos) && m.has_ended);
    CHECK(!gram_match_token(&m, f.eos));
    gram_match_back(&m, 2);
    CHECK(!m.has_ended && m.state == state);
    CHECK(copy.state == state && !gram_match_may_end(&copy) && !gram_match_must_end(&copy));
    CHECK(!gram_match_token(&copy, f.eos));
    CHECK_INT(gram_match_bytes(&copy, STR("\"")), 1);
    gram_match_free(&m);
    gram_match_free(&copy);
    close_schema(&f);
}

/* Rules that are at thousands of places at once: the mask may leave tokens out, but has some, and each of them leads on. */
static void nested_rules(void) {
    struct fixture f = open_grammar(GRAM_GBNF, "root ::= (([a-z]{0,12}){0,12}){0,12} \"!\"");
    struct gram_match m;
    uint32_t *bits = mem_alloc(gram_mask_words(f.v) * sizeof *bits), n = 0;
    gram_match_init(&m, f.machine);
    gram_match_mask(&m, bits);
    for (int32_t id = 0; id <= f.eos; id++) {
        if (!(bits[id / 32] >> id % 32 & 1)) continue;
        CHECK(gram_match_token(&m, id));
        gram_match_back(&m, 1);
        if (++n == 20) break;
    }
    CHECK(n > 0);
    gram_match_free(&m);
    mem_free(bits);
    close_schema(&f);
}

/* Names have one spelling in generation. */
static void names_are_forced(void) {
    struct fixture f = open_schema(PERSON);
    struct gram_match m;
    struct sb forced = {0};
    gram_match_init(&m, f.machine);
    CHECK_INT(gram_match_bytes(&m, STR("{\"")), 2);
    CHECK_INT(gram_match_bytes(&m, STR("\\u006e")), 0);
    gram_match_forced(&m, &forced);
    CHECK_STR(sb_str(&forced), STR("name\""));
    CHECK_INT(gram_match_bytes(&m, STR("name\":\"\\u006e\\u00e9")), 19);
    gram_match_free(&m);
    sb_free(&forced);
    close_schema(&f);
}

/* What is generated keeps to a format in every draft; who judges a text must not ask for more than the draft does. */
static void formats_of_later_drafts(void) {
    struct fixture f =
        open_schema("{\"$schema\": \"http://json-schema.org/draft-04/schema#\", \"type\": \"string\", \"format\": \"uuid\"}");
    struct gram_match m;
    gram_match_init(&m, f.machine);
    CHECK_INT(gram_match_bytes(&m, STR("\"12x")), 3);
    gram_match_free(&m);
    close_schema(&f);
}

static void check_forced(struct gram_machine *machine, const char *before, const char *want) {
    struct gram_match m;
    struct sb forced = {0};
    gram_match_init(&m, machine);
    CHECK_INT(gram_match_bytes(&m, str_of(before)), strlen(before));
    gram_match_forced(&m, &forced);
    CHECK_STR(sb_str(&forced), str_of(want));
    gram_match_free(&m);
    sb_free(&forced);
}

static void forced_bytes(void) {
    struct err err = {0};
    struct gram *g;
    struct gram_source source = {.kind = GRAM_REGEX, .text = STR("hello [a-z]{2} world( again)?")};
    struct gram_options options = gram_defaults();
    CHECK_OK(gram_compile(&source, &options, NULL, &g, &err), err);
    struct gram_machine *machine = gram_machine_create(g, NULL, NULL, 0);
    check_forced(machine, "", "hello ");
    check_forced(machine, "hello a", "");
    check_forced(machine, "hello ab", " world");
    check_forced(machine, "hello ab world", ""); /* it may end here */
    check_forced(machine, "hello ab world ", "again");
    gram_machine_destroy(machine);
    gram_destroy(g);
}

/* Tokens that reach beyond a text, by looking at all of them. */
static void tokens_that_go_on(void) {
    struct fixture f = open_schema("{}");
    static const char *const texts[] = {"t", "th", "the", " the", "e ", "zq", "\"", "{", "\xC3", "once upon a time"};
    size_t n_true = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct str text = str_of(texts[i]);
        bool want = false;
        for (size_t id = 0; id < tok_vocab_size(f.tok) && !want; id++) {
            struct str bytes = tok_is_special(f.tok, (int32_t)id) ? STR("") : tok_token_bytes(f.tok, (int32_t)id);
            want = bytes.n > text.n && str_starts(bytes, text);
        }
        n_true += want;
        FAIL_IF(gram_vocab_goes_on(f.v, text) != want, "%s: %d", texts[i], want);
    }
    CHECK(n_true > 2 && n_true < sizeof texts / sizeof *texts);
    close_schema(&f);
}

static const struct unit_case cases[] = {
    {"own_cases", own_cases},
    {"masks_are_what_is_taken", masks_are_what_is_taken},
    {"masks_of_white_space", masks_of_white_space},
    {"masks_of_lengths", masks_of_lengths},
    {"masks_of_what_must_differ", masks_of_what_must_differ},
    {"no_dead_ends", no_dead_ends},
    {"back_and_copies", back_and_copies},
    {"nested_rules", nested_rules},
    {"names_are_forced", names_are_forced},
    {"formats_of_later_drafts", formats_of_later_drafts},
    {"forced_bytes", forced_bytes},
    {"tokens_that_go_on", tokens_that_go_on},
    {0},
};
const struct unit_suite unit_grammar = {"grammar", cases};
