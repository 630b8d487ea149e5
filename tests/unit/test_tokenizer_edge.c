/* Tokenizers at their edges: trust, broken text, hostile files, long inputs, scanners against PCRE2. */
#include "unit.h"

#include "base/rng.h"
#include "os/os.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/unicode.h"

#include <stdio.h>

static struct tok *load_text(const char *json) {
    struct err err = {0};
    struct tok *t;
    CHECK_OK(tok_load_json(&t, str_of(json), STR(""), &err), err);
    return t;
}

static struct tok *load_fixture(const char *name) {
    struct arena a = {0};
    struct err err = {0};
    struct str file;
    struct tok *t;
    char path[1300];
    snprintf(path, sizeof path, "%s/tests/text/tokenizers/%s/tokenizer.json", unit_source_dir(), name);
    CHECK_OK(os_file_load(&a, path, 0, &file, &err), err);
    CHECK_OK(tok_load_json(&t, file, STR(""), &err), err);
    arena_free(&a);
    return t;
}

static struct tok_ids encode(const struct tok *t, struct str text, unsigned flags) {
    struct err err = {0};
    struct tok_ids ids = {0};
    CHECK_OK(tok_encode(t, text, flags, &ids, &err), err);
    return ids;
}

static void check_same(struct tok_ids a, struct tok_ids b) {
    CHECK_INT(a.n, b.n);
    for (size_t i = 0; i < a.n; i++) CHECK_INT(a.p[i], b.p[i]);
    tok_ids_free(&a);
    tok_ids_free(&b);
}

static struct tok_ids encode_spans(const struct tok *t, const struct tok_span *spans, size_t n) {
    struct err err = {0};
    struct tok_ids ids = {0};
    CHECK_OK(tok_encode_spans(t, NULL, spans, n, TOK_PARSE_SPECIAL, &ids, &err), err);
    return ids;
}

/* ---- trust ------------------------------------------------------------------------------------------------------ */

static size_t count(const struct tok_ids *ids, int32_t id) {
    size_t n = 0;
    for (size_t i = 0; i < ids->n; i++) n += ids->p[i] == id;
    return n;
}

static void spans_user_text_is_text(void) {
    struct tok *t = load_fixture("byte-level-ignore-merges");
    int32_t special = tok_id_of(t, STR("<s>"));
    CHECK(special >= 0);
    struct tok_span spans[] = {{STR("<s>"), true}, {STR("hi <s> you"), false}, {STR("<s>"), true}};
    struct tok_ids ids = encode_spans(t, spans, 3), middle = encode(t, STR("hi <s> you"), 0);
    CHECK_INT(count(&ids, special), 2);
    CHECK_INT(ids.n, middle.n + 2);
    for (size_t i = 0; i < middle.n; i++) CHECK_INT(ids.p[i + 1], middle.p[i]);
    tok_ids_free(&ids);
    tok_ids_free(&middle);
    struct tok_span halves[] = {{STR("<s"), true}, {STR(">"), false}}, whole[] = {{STR("<s"), true}, {STR(">"), true}};
    ids = encode_spans(t, halves, 2);
    CHECK_INT(count(&ids, special), 0);
    tok_ids_free(&ids);
    ids = encode_spans(t, whole, 2);
    CHECK_INT(count(&ids, special), 1);
    CHECK_INT(ids.n, 1);
    tok_ids_free(&ids);
    tok_destroy(t);
}

static void spans_are_one_text(void) {
    struct tok *t = load_fixture("byte-level-ignore-merges");
    struct tok_span spans[] = {{STR("The qui"), true}, {STR("ck bro"), false}, {STR("wn fox"), true}};
    check_same(encode_spans(t, spans, 3), encode(t, STR("The quick brown fox"), 0));
    tok_destroy(t);
    t = load_fixture("byte-fallback"); /* a token that is searched for in normalized text */
    struct tok_span mixed[] = {{STR("a "), true}, {STR("x <s> y"), false}};
    struct tok_ids ids = encode_spans(t, mixed, 2);
    CHECK_INT(count(&ids, tok_id_of(t, STR("<s>"))), 0);
    tok_ids_free(&ids);
    mixed[1].trusted = true;
    check_same(encode_spans(t, mixed, 2), encode(t, STR("a x <s> y"), TOK_PARSE_SPECIAL));
    tok_destroy(t);
}

static const char blank_tokens[] = "{\"added_tokens\":[{\"id\":3,\"content\":\"\\n\\n\",\"special\":false,\"normalized\":false},"
                                   "{\"id\":4,\"content\":\"<t>\",\"special\":false,\"normalized\":false}],"
                                   "\"model\":{\"type\":\"BPE\",\"vocab\":{\"\\n\":0,\"<\":1,\"t\":2},\"merges\":[]}}";

static void spans_blank_tokens(void) {
    struct tok *t = load_text(blank_tokens);
    struct tok_span user = {STR("\n\n<t>"), false};
    struct tok_ids ids = encode_spans(t, &user, 1);
    CHECK_INT(ids.n, 3); /* the newlines are one token, the tag is not */
    CHECK_INT(ids.p[0], 3);
    CHECK_INT(ids.p[1], 1);
    tok_ids_free(&ids);
    ids = encode(t, STR("\n\n<t>"), 0);
    CHECK_INT(ids.n, 2); /* not special, so recognised in text of one kind */
    tok_ids_free(&ids);
    tok_destroy(t);
}

/* ---- text that is broken or long ---------------------------------------------------------------------------------- */

static void invalid_utf8(void) {
    static const char *const pairs[][2] = {{"a\xFF"
                                            "b",
                                            "a\xEF\xBF\xBD"
                                            "b"},
                                           {"\xE4\xBD", "\xEF\xBF\xBD"},
                                           {"\xE4\xBD x", "\xEF\xBF\xBD x"},
                                           {"\xED\xA0\x80", "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
                                           {"\xF0\x9F\x98", "\xEF\xBF\xBD"},
                                           {"\xC0\xAF", "\xEF\xBF\xBD\xEF\xBF\xBD"},
                                           {"\x80", "\xEF\xBF\xBD"}};
    static const char *const names[] = {"byte-level-digits", "byte-fallback", "wordpiece-lower", "unigram-precompiled"};
    for (size_t k = 0; k < 4; k++) {
        struct tok *t = load_fixture(names[k]);
        for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
            check_same(encode(t, str_of(pairs[i][0]), 0), encode(t, str_of(pairs[i][1]), 0));
        tok_destroy(t);
    }
}

static void fill(struct sb *text, const char *unit, size_t bytes) {
    sb_clear(text);
    while (text->n < bytes) sb_puts(text, unit);
}

/* Nothing here may be quadratic: with a million bytes that would take hours. */
static void long_texts(void) {
    static const char *const units[] = {"a",
                                        "A",
                                        "1",
                                        " ",
                                        "\n",
                                        " \n",
                                        "\xCC\x81",
                                        "\xE4\xBD\xA0",
                                        "!",
                                        "aA",
                                        ("\xE4\xBD\xA0"
                                         "A"),
                                        "'",
                                        "\t ",
                                        "<",
                                        "<s",
                                        "a b",
                                        "\xE2\x96\x81",
                                        "ab",
                                        "\xE1\x84\x80\xE1\x85\xA1"};
    static const char *const names[] = {
        "byte-level-roberta", "byte-level-ignore-merges", "byte-fallback", "unigram-fallback", "wordpiece-lower",
        "norm-nfkc",          "norm-strip-accents",       "prefix-suffix", "split-inverted"};
    struct sb text = {0};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        struct tok *t = load_fixture(names[k]);
        for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
            fill(&text, units[i], 300000);
            struct tok_ids ids = encode(t, sb_str(&text), TOK_PARSE_SPECIAL);
            tok_ids_free(&ids);
        }
        tok_destroy(t);
    }
    sb_free(&text);
}

/* A word longer than the cache, the short merge and the scratch memory, against itself in pieces of the same merges. */
static void long_word(void) {
    struct tok *t = load_fixture("byte-fallback");
    struct sb text = {0};
    fill(&text, "the worst of times ", 20000);
    struct tok_ids whole = encode(t, sb_str(&text), 0), again = {0};
    struct tok_work *w = tok_work_create();
    struct err err = {0};
    for (int i = 0; i < 2; i++) {
        struct tok_span span = {sb_str(&text), true};
        again.n = 0;
        CHECK_OK(tok_encode_spans(t, w, &span, 1, 0, &again, &err), err);
        CHECK_INT(again.n, whole.n);
    }
    struct tok *other = load_fixture("byte-level-digits"); /* the cache must not answer for another tokenizer */
    struct tok_span span = {STR("the worst of times"), true};
    again.n = 0;
    CHECK_OK(tok_encode_spans(other, w, &span, 1, 0, &again, &err), err);
    check_same(again, encode(other, STR("the worst of times"), 0));
    tok_work_destroy(w);
    tok_ids_free(&whole);
    sb_free(&text);
    tok_destroy(t);
    tok_destroy(other);
}

static void empty_texts(void) {
    struct tok *t = load_fixture("byte-level-digits");
    struct err err = {0};
    struct tok_ids ids = {0};
    struct sb out = {0};
    CHECK_OK(tok_encode(t, (struct str){NULL, 0}, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &ids, &err), err);
    CHECK_OK(tok_encode_spans(t, NULL, NULL, 0, 0, &ids, &err), err);
    CHECK_INT(ids.n, 0);
    CHECK_OK(tok_decode(t, NULL, 0, true, &out, &err), err);
    int32_t strange[] = {-1, 2147483647, -2147483647};
    CHECK_OK(tok_decode(t, strange, 3, false, &out, &err), err);
    CHECK_INT(out.n, 0);
    CHECK(!tok_token_text(t, -5).p && !tok_token_text(t, 1 << 30).p && !tok_token_bytes(t, -1).p);
    CHECK_INT(tok_id_of(t, STR("no such token")), -1);
    sb_free(&out);
    tok_destroy(t);
}

static void token_bytes(void) {
    struct tok *t = load_fixture("byte-fallback");
    CHECK_STR(tok_token_bytes(t, tok_id_of(t, STR("<0xE4>"))), STR("\xE4"));
    CHECK_STR(tok_token_bytes(t, tok_id_of(t, STR("\xE2\x96\x81"))), STR(" "));
    CHECK_STR(tok_token_bytes(t, tok_id_of(t, STR("</s>"))), STR(""));
    CHECK(tok_is_special(t, tok_id_of(t, STR("</s>"))));
    tok_destroy(t);
    t = load_fixture("byte-level-digits");
    CHECK_STR(tok_token_bytes(t, tok_id_of(t, STR("\xC4\xA0"))), STR(" "));
    CHECK_STR(tok_token_text(t, tok_id_of(t, STR("\xC4\xA0"))), STR("\xC4\xA0"));
    tok_destroy(t);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

#define BPE(vocab, merges) "\"model\":{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}"
#define PART(kind, json) "{\"" kind "\":" json "," BPE("{\"a\":0}", "[]") "}"

static const struct {
    const char *json, *message;
} refused[] = {
    {"", "empty"},
    {"{", "line 1"},
    {"[]", "not an object"},
    {"{}", "no \"model\""},
    {"{\"model\":{\"type\":\"Neural\"}}", "model \"Neural\" is not known"},
    {"{" BPE("[]", "[]") "}", "no object \"vocab\""},
    {"{" BPE("{\"a\":-1}", "[]") "}", "no number from 0"},
    {"{" BPE("{\"a\":1.5}", "[]") "}", "no number from 0"},
    {"{" BPE("{\"a\":1e300}", "[]") "}", "no number from 0"},
    {"{" BPE("{\"a\":99999999999999999999}", "[]") "}", "no number from 0"},
    {"{" BPE("{\"a\":\"0\"}", "[]") "}", "no number from 0"},
    {"{" BPE("{\"a\":0,\"b\":0}", "[]") "}", "belongs to two tokens"},
    {"{" BPE("{\"a\":0,\"a\":1}", "[]") "}", "twice"},
    {"{" BPE("{\"a\":0}", "{}") "}", "no list \"merges\""},
    {"{" BPE("{\"a\":0}", "[\"a b\"]") "}", "not in the vocabulary"},
    {"{" BPE("{\"a\":0}", "[\"a a\"]") "}", "not in the vocabulary"},
    {"{" BPE("{\"a\":0}", "[\"a\"]") "}", "not two tokens"},
    {"{" BPE("{\"a\":0}", "[\"a a a\"]") "}", "not two tokens"},
    {"{" BPE("{\"a\":0}", "[[\"a\"]]") "}", "not two tokens"},
    {"{" BPE("{\"a\":0}", "[[\"a\",\"a\",\"a\"]]") "}", "not two tokens"},
    {"{" BPE("{\"a\":0}", "[7]") "}", "not two tokens"},
    {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}", "dropout"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "vocab"},
    {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":5,\"vocab\":[[\"a\",0.0]]}}", "unk_id"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "row 0"},
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",\"b\"]]}}", "row 0"},
    {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":{},\"max_input_chars_per_word\":-1}}", "negative"},
    {PART("normalizer", "{\"type\":\"Klingon\"}"), "normalizer \"Klingon\" is not known"},
    {PART("normalizer", "7"), "a normalizer has no \"type\""},
    {PART("normalizer", "{\"type\":\"Sequence\"}"), "no list"},
    {PART("normalizer", "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{}}"), "no pattern"},
    {PART("normalizer", "{\"type\":\"Replace\",\"content\":\"\",\"pattern\":{\"Regex\":\"(\"}}"), "regular expression"},
    {PART("normalizer", "{\"type\":\"Prepend\"}"), "prepend"},
    {PART("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"!!\"}"), "base64"},
    {PART("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA==\"}"), "too short"},
    {PART("normalizer", "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"/////w==\"}"), "precompiled_charsmap"},
    {PART("pre_tokenizer", "{\"type\":\"Chop\"}"), "pre-tokenizer \"Chop\" is not known"},
    {PART("pre_tokenizer", "{\"type\":\"Split\",\"behavior\":\"Sideways\"}"), "behavior"},
    {PART("pre_tokenizer", "{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{\"Regex\":\"[a&&b&&c]\"}}"), "not supported"},
    {PART("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), "one character"},
    {PART("pre_tokenizer", "{\"type\":\"Metaspace\",\"prepend_scheme\":\"maybe\"}"), "prepend_scheme"},
    {PART("pre_tokenizer", "{\"type\":\"FixedLength\",\"length\":0}"), "length"},
    {PART("pre_tokenizer", "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"\"}"), "delimiter"},
    {PART("decoder", "{\"type\":\"Babel\"}"), "decoder \"Babel\" is not known"},
    {PART("decoder", "{\"type\":\"Strip\",\"content\":\" \",\"start\":-1}"), "Strip"},
    {PART("post_processor", "{\"type\":\"Garnish\"}"), "post-processor \"Garnish\" is not known"},
    {PART("post_processor", "{\"type\":\"BertProcessing\",\"sep\":[\"x\",-4],\"cls\":[\"y\",1]}"), "sep"},
    {PART("post_processor",
          "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"X\"}},{\"Sequence\":{\"id\":\"A\"}}]}"),
     "does not list"},
    {PART("post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}"), "0 times"},
    {PART("added_tokens", "[{\"id\":1}]"), "no content"},
};

static void hostile_json(void) {
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct err err = {0};
        struct tok *t = NULL;
        int code = tok_load_json(&t, str_of(refused[i].json), STR(""), &err);
        FAIL_IF(!code || t, "accepted: %s", refused[i].json);
        FAIL_IF(str_find(str_of(err.msg), str_of(refused[i].message), 0) == STR_NONE, "\"%s\" for %s, expected \"%s\"", err.msg,
                refused[i].json, refused[i].message);
        FAIL_IF(str_find_char(str_of(err.msg), '\n', 0) != STR_NONE, "more than one line: %s", err.msg);
    }
}

static void deep_nesting(void) {
    static const char *const kinds[][2] = {
        {"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}, {"decoder", "decoders"}, {"post_processor", "processors"}};
    for (size_t k = 0; k < 4; k++) {
        struct sb json = {0};
        struct err err = {0};
        struct tok *t;
        sb_fmt(&json, "{\"%s\":", kinds[k][0]);
        for (int i = 0; i < 3000; i++) sb_fmt(&json, "{\"type\":\"Sequence\",\"%s\":[", kinds[k][1]);
        for (int i = 0; i < 3000; i++) sb_puts(&json, "]}");
        sb_puts(&json, "," BPE("{\"a\":0}", "[]") "}");
        CHECK(tok_load_json(&t, sb_str(&json), STR(""), &err) == ERR_ELIMIT);
        sb_free(&json);
    }
}

static void hostile_other_files(void) {
    const struct {
        struct str file;
        const char *message;
    } files[] = {{STR("\x0A\x05\x0A\x03"), "damaged"},
                 {STR("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), "damaged"},
                 {STR("\x00\x00\x00"), "damaged"},
                 {STR("\x0A\x03\x0A\x01\xFF"), "not valid text"},
                 {STR("YQ== x"), "line 1"},
                 {STR("YQ== 0\nYQ== 0\n"), "two tokens"},
                 {STR("YQ== 0\n??? 1\n"), "line 2"},
                 {STR("YQ== -1\n"), "line 1"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct err err = {0};
        struct tok *t = NULL;
        int code = tok_load_any(&t, files[i].file, STR(""), &err);
        FAIL_IF(!code, "file %zu was accepted", i);
        FAIL_IF(str_find(str_of(err.msg), str_of(files[i].message), 0) == STR_NONE, "file %zu: %s", i, err.msg);
    }
}

static void regex_limits(void) {
    struct tok *t = load_text(PART("pre_tokenizer", "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(a+)+$\"}}"));
    struct sb text = {0};
    struct err err = {0};
    struct tok_ids ids = {0};
    fill(&text, "a", 5000);
    sb_puts(&text, "b");
    CHECK(tok_encode(t, sb_str(&text), 0, &ids, &err) == ERR_ELIMIT);
    CHECK_INT(ids.n, 0);
    tok_ids_free(&ids);
    sb_free(&text);
    tok_destroy(t);
}

/* ---- scanners against PCRE2 --------------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *r) {
    return rng_at(42, ++*r, 0);
}

static void random_text(uint64_t *r, struct sb *out) {
    static const char *const units[] = {" ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "a",
                                        "B",
                                        "ab",
                                        "Cd",
                                        "'s",
                                        "'LL",
                                        "'\xC5\xBF",
                                        "1",
                                        "234",
                                        "!",
                                        "...",
                                        "/",
                                        "-",
                                        "_",
                                        "(",
                                        "\xC3\xA9",
                                        "\xCC\x81",
                                        "\xE4\xBD\xA0",
                                        "\xE3\x81\x82",
                                        "\xC7\x85",
                                        "\xCA\xB0",
                                        "\xC2\xA0",
                                        "\xE3\x80\x80",
                                        "\xC2\xBD",
                                        "\xF0\x9F\x98\x80",
                                        "\xE2\x80\x8D",
                                        "\xC2\x85",
                                        "\x01",
                                        "\xD0\x96",
                                        "\xD7\x90",
                                        "$",
                                        "+"};
    sb_clear(out);
    for (uint64_t n = draw(r) % 14 + 1; n > 0; n--) {
        uint64_t pick = draw(r) % 40;
        if (pick < sizeof units / sizeof *units) {
            sb_puts(out, units[pick]);
        } else {
            char utf8[4];
            uint32_t code = (uint32_t)(draw(r) % 0x30000);
            if (code < 0xD800 || code > 0xDFFF) sb_put(out, str_n(utf8, utf8_encode(code, utf8)));
        }
    }
}

static void compare_scanner(const struct tok_scanner *s) {
    struct arena a = {0};
    struct err err = {0};
    struct tok_pattern *pattern;
    struct tok_match_state *state = NULL;
    struct sb text = {0};
    uint64_t r = 0;
    CHECK_OK(tok_pattern_regex(&a, str_of(s->pattern), true, &pattern, &err), err);
    for (int i = 0; i < 3000; i++) {
        struct tok_cursor at = {0};
        size_t from = 0, start = 0, end = 0;
        bool found, scanned;
        random_text(&r, &text);
        do {
            struct tok_match m = {0};
            CHECK_OK(tok_pattern_next(pattern, &state, sb_str(&text), &at, &m, &found, &err), err);
            scanned = s->next(sb_str(&text), from, &start, &end);
            FAIL_IF(scanned != found || (found && (m.start != start || m.end != end)),
                    "%s: \"%.*s\" at %zu: scanner %d %zu-%zu, PCRE2 %d %zu-%zu", s->name, STR_ARG(sb_str(&text)), from, scanned, start, end,
                    found, m.start, m.end);
            from = end;
        } while (found);
    }
    tok_match_state_destroy(state);
    tok_pattern_destroy(pattern);
    sb_free(&text);
    arena_free(&a);
}

/* Vocabularies that were widened by hand hold tokens and merges that no byte-level text comes to. */
static void merges_beside_the_alphabet(void) {
    struct tok *t =
        load_text("{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"model\":{\"type\":\"BPE\",\"vocab\":"
                  "{\"a\":0,\"b\":1,\"ab\":2,\"\u4e2d\":3,\"\u56fd\":4,\"\u4e2d\u56fd\":5},"
                  "\"merges\":[[\"\u4e2d\",\"\u56fd\"],[\"a\",\"b\"]]}}");
    struct tok_ids ids = encode(t, STR("ab"), 0);
    CHECK_INT(ids.n, 1);
    CHECK_INT(ids.p[0], 2);
    tok_ids_free(&ids);
    tok_destroy(t);
}

/* Some files leave the first token to tokenizer_config.json; it comes once, and only where it is asked for. */
static void bos_by_config(void) {
    static const char json[] = "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"special\":true}],\"post_processor\":%s,"
                               "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"<s>\":1}}}";
    static const char template[] = "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                                   "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
                                   "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[1],\"tokens\":[\"<s>\"]}}}";
    static const struct {
        const char *processor, *config;
        unsigned flags;
        size_t n;
    } rows[] = {{"null", "{\"bos_token\":\"<s>\",\"add_bos_token\":true}", TOK_ADD_SPECIAL | TOK_ADD_BOS, 2},
                {"null", "{\"bos_token\":\"<s>\",\"add_bos_token\":true}", TOK_ADD_SPECIAL, 1},
                {"null", "{\"bos_token\":\"<s>\",\"add_bos_token\":false}", TOK_ADD_SPECIAL | TOK_ADD_BOS, 1},
                {"null", "{\"add_bos_token\":true}", TOK_ADD_SPECIAL | TOK_ADD_BOS, 1},
                {template, "{\"bos_token\":\"<s>\",\"add_bos_token\":true}", TOK_ADD_SPECIAL | TOK_ADD_BOS, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct arena a = {0};
        struct err err = {0};
        struct tok *t;
        CHECK_OK(tok_load_json(&t, str_fmt(&a, json, rows[i].processor), str_of(rows[i].config), &err), err);
        struct tok_ids ids = encode(t, STR("a"), rows[i].flags);
        CHECK_INT(ids.n, rows[i].n);
        CHECK_INT(ids.p[0], rows[i].n == 2);
        tok_ids_free(&ids);
        tok_destroy(t);
        arena_free(&a);
    }
}

/* ---- two texts --------------------------------------------------------------------------------------------------- */

/* Digits: the ids of a pair, then their types. */
static const char *pair_text(struct arena *a, const char *processor, struct tok_pair pair) {
    static const char json[] =
        "{\"added_tokens\":[{\"id\":8,\"content\":\"[C]\",\"special\":true},{\"id\":9,\"content\":\"[S]\",\"special\":true}],"
        "\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"post_processor\":%s,"
        "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"b\":1,\"[C]\":8,\"[S]\":9}}}";
    struct err err = {0};
    struct tok *t;
    struct tok_ids ids = {0}, types = {0};
    struct sb out = {0};
    CHECK_OK(tok_load_json(&t, str_fmt(a, json, processor), STR(""), &err), err);
    int code = tok_encode_pair(t, &pair, &ids, &types, &err);
    for (size_t i = 0; i < ids.n && !code; i++) sb_fmt(&out, "%d", ids.p[i]);
    for (size_t i = 0; i < types.n && !code; i++) sb_fmt(&out, "%s%d", i ? "" : " ", types.p[i]);
    const char *text = code ? str_fmt(a, "error %s", err.msg).p : str_copy(a, sb_str(&out)).p;
    tok_ids_free(&ids);
    tok_ids_free(&types);
    sb_free(&out);
    tok_destroy(t);
    return text;
}

static void check_pair(const char *got, const char *want) {
    CHECK_STR(str_of(got), str_of(want));
}

static void pairs_of_texts(void) {
#define PIECE(kind, id, type) "{\"" kind "\":{\"id\":\"" id "\",\"type_id\":" #type "}}"
#define TEMPLATE(pair)                                     \
    "{\"type\":\"TemplateProcessing\",\"single\":[" PIECE( \
        "Sequence", "A", 0) "],\"pair\":[" pair            \
                            "],\"special_tokens\":{\"[C]\":{\"id\":\"[C]\",\"ids\":[8]},\"[S]\":{\"id\":\"[S]\",\"ids\":[9]}}}"
    static const char fixed[] = "{\"type\":\"%sProcessing\",\"cls\":[\"[C]\",8],\"sep\":[\"[S]\",9]}";
    static const char typed[] = TEMPLATE(PIECE("SpecialToken", "[C]", 0) "," PIECE("Sequence", "A", 0) "," PIECE(
        "SpecialToken", "[S]", 0) "," PIECE("Sequence", "B", 1) "," PIECE("SpecialToken", "[S]", 1));
    static const char plain[] = TEMPLATE(PIECE("Sequence", "A", 0) "," PIECE("Sequence", "B", 0) "," PIECE("SpecialToken", "[S]", 0));
    static const char turned[] = TEMPLATE(PIECE("Sequence", "B", 0) "," PIECE("Sequence", "A", 0));
    static const char unknown[] = TEMPLATE(PIECE("Sequence", "A", 0) "," PIECE("SpecialToken", "[X]", 0) "," PIECE("Sequence", "B", 0));
    struct arena a = {0};
    const struct tok_pair two = {STR("a [S]"), STR("b b b"), 0, false}, cut = {STR("a"), STR("b b b b b b"), 7, true},
                          full = {STR("a"), STR("b b b b b b"), 7, false};
    const char *bert = str_fmt(&a, fixed, "Bert").p, *other = str_fmt(&a, fixed, "Roberta").p;
    const char *got = pair_text(&a, typed, two);
    CHECK(strlen(got) > 10 && got[0] == '8' && !strstr(got + 1, "8")); /* what a user writes stays text */
    check_pair(pair_text(&a, typed, cut), "8091119 0001111");
    check_pair(pair_text(&a, bert, cut), "8091119 0001111");
    check_pair(pair_text(&a, other, cut), "8099119 0000000");
    check_pair(pair_text(&a, plain, cut), "0111119 0000000");
    check_pair(pair_text(&a,
                         "{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}," TEMPLATE(
                             PIECE("Sequence", "A", 0) "," PIECE("Sequence", "B", 1)) "]}",
                         cut),
               "0111111 0111111");
    CHECK(strstr(pair_text(&a, typed, full), "error the two texts have 10 tokens") != NULL);
    CHECK(strstr(pair_text(&a, turned, cut), "error the tokenizer does not say") != NULL);
    CHECK(strstr(pair_text(&a, unknown, cut), "error the tokenizer does not say") != NULL);
    CHECK(strstr(pair_text(&a, "null", cut), "error the tokenizer does not say") != NULL);
    arena_free(&a);
}

static void scanners(void) {
    for (const struct tok_scanner *s = tok_scanners; s->name; s++) compare_scanner(s);
}

static const struct unit_case cases[] = {
    {"spans_user_text_is_text", spans_user_text_is_text},
    {"spans_are_one_text", spans_are_one_text},
    {"spans_blank_tokens", spans_blank_tokens},
    {"invalid_utf8", invalid_utf8},
    {"long_texts", long_texts},
    {"long_word", long_word},
    {"empty_texts", empty_texts},
    {"token_bytes", token_bytes},
    {"hostile_json", hostile_json},
    {"deep_nesting", deep_nesting},
    {"hostile_other_files", hostile_other_files},
    {"regex_limits", regex_limits},
    {"merges_beside_the_alphabet", merges_beside_the_alphabet},
    {"bos_by_config", bos_by_config},
    {"pairs_of_texts", pairs_of_texts},
    {"scanners", scanners},
    {0},
};

const struct unit_suite unit_tokenizer_edge = {"tokenizer_edge", cases};
