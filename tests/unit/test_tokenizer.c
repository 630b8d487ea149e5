/* Tokenizers against rows that the reference gave: the large material where it is there. */
#include "unit.h"

#include "base/json.h"
#include "os/os.h"
#include "text/tokenizer/tokenizer.h"

#include <stdio.h>

/* The tokenizers come as archives; they are unpacked once into build/tokenizers (by tar, so not under Wine). */
static const char *tokenizer_dir(void) {
    static char path[1024];
    struct os_stat st;
    snprintf(path, sizeof path, "%s/build/tokenizers", unit_source_dir());
    char done[1100];
    snprintf(done, sizeof done, "%s/done", path);
    if (os_stat(done, &st, NULL) == 0) return path;
    const char *data = unit_data_dir();
    if (!data) unit_skip("no test-data folder");
    struct arena a = {0};
    struct err err = {0};
    char from[1100];
    snprintf(from, sizeof from, "%s/text/tokenizers", data);
    struct str *names;
    size_t n;
    if (os_list_dir(&a, from, &names, &n, &err)) unit_skip("%s", err.msg);
    if (!os_find_program(&a, "tar")) unit_skip("no program tar to unpack %s", from);
    CHECK_OK(os_make_dirs(path, &err), err);
    for (size_t i = 0; i < n; i++) {
        if (!str_ends(names[i], STR(".tar.xz"))) continue;
        const char *file = str_cstr(&a, str_fmt(&a, "%s/%.*s", from, STR_ARG(names[i])));
        const char *argv[] = {"tar", "xf", file, "-C", path, NULL};
        struct os_run_result r;
        CHECK_OK(os_run(&a, argv, NULL, NULL, (struct str){0}, &r, &err), err);
        if (r.exit_code) unit_skip("tar: %.*s", STR_ARG(r.err));
    }
    CHECK_OK(os_file_save(done, STR("\n"), &err), err);
    arena_free(&a);
    return path;
}

static struct str load(struct arena *a, const char *dir, const char *name, const char *file) {
    struct err err = {0};
    struct str s;
    char path[1400];
    snprintf(path, sizeof path, "%s/%s/%s", dir, name, file);
    if (os_file_load(a, path, 0, &s, &err)) return (struct str){0};
    return s;
}

static void check_ids(const char *name, size_t row, const char *what, const struct tok_ids *got, yyjson_val *want) {
    size_t i, n;
    yyjson_val *value;
    FAIL_IF(got->n != yyjson_arr_size(want), "%s row %zu %s: %zu ids, expected %zu", name, row, what, got->n, yyjson_arr_size(want));
    yyjson_arr_foreach(want, i, n, value) if (got->p[i] != yyjson_get_int(value)) unit_fail(
        __FILE__, __LINE__, "%s row %zu %s: id %zu is %d, expected %d", name, row, what, i, (int)got->p[i], yyjson_get_int(value));
}

/* Decoding whole and decoding as a stream. */
static void check_text(const struct tok *t, const char *name, size_t row, const struct tok_ids *ids, bool skip_special, struct str want) {
    struct err err = {0};
    struct sb whole = {0}, streamed = {0};
    struct tok_stream s;
    CHECK_OK(tok_decode(t, ids->p, ids->n, skip_special, &whole, &err), err);
    FAIL_IF(!str_eq(sb_str(&whole), want), "%s row %zu decodes to \"%.*s\", expected \"%.*s\"", name, row, STR_ARG(sb_str(&whole)),
            STR_ARG(want));
    tok_stream_init(&s, t, skip_special);
    for (size_t i = 0; i < ids->n; i++) {
        CHECK_OK(tok_stream_push(&s, ids->p[i], &streamed, &err), err);
        CHECK(utf8_valid(sb_str(&streamed)));
    }
    CHECK_OK(tok_stream_flush(&s, &streamed, &err), err);
    CHECK(str_eq(sb_str(&streamed), sb_str(&whole)));
    tok_stream_free(&s);
    sb_free(&whole);
    sb_free(&streamed);
}

/* The second half of the ids, as what follows the first: together they are the text of all. Where the first half ends inside a character or
 * stands for nothing, there is no text to go on with. */
static void check_continued(const struct tok *t, const char *name, size_t row, const struct tok_ids *ids, bool skip_special) {
    static const struct str broken = {"\xEF\xBF\xBD", 3};
    struct err err = {0};
    struct sb whole = {0}, parts = {0};
    struct tok_stream s;
    size_t half = ids->n / 2;
    CHECK_OK(tok_decode(t, ids->p, ids->n, skip_special, &whole, &err), err);
    CHECK_OK(tok_decode(t, ids->p, half, skip_special, &parts, &err), err);
    bool is_text = parts.n > 0 && str_starts(sb_str(&whole), sb_str(&parts)) && !str_ends(sb_str(&parts), broken);
    tok_stream_init(&s, t, skip_special);
    tok_stream_continue(&s);
    for (size_t i = half; i < ids->n; i++) CHECK_OK(tok_stream_push(&s, ids->p[i], &parts, &err), err);
    CHECK_OK(tok_stream_flush(&s, &parts, &err), err);
    FAIL_IF(is_text && !str_eq(sb_str(&parts), sb_str(&whole)), "%s row %zu in two parts: \"%.*s\", expected \"%.*s\"", name, row,
            STR_ARG(sb_str(&parts)), STR_ARG(sb_str(&whole)));
    tok_stream_free(&s);
    sb_free(&whole);
    sb_free(&parts);
}

static void check_encoding(const struct tok *t, const char *name, size_t row, struct str text, unsigned flags, yyjson_val *want) {
    struct err err = {0};
    struct tok_ids ids = {0};
    CHECK_OK(tok_encode(t, text, flags, &ids, &err), err);
    check_ids(name, row, flags & TOK_ADD_SPECIAL ? "with special tokens" : flags ? "without special tokens" : "as plain text", &ids, want);
    tok_ids_free(&ids);
}

static void read_ids(yyjson_val *list, struct tok_ids *out) {
    size_t i, n;
    yyjson_val *value;
    yyjson_arr_foreach(list, i, n, value) tok_ids_put(out, (int32_t)yyjson_get_int(value));
}

static void check_row(const struct tok *t, const char *name, size_t row, struct str text, yyjson_val *want) {
    struct tok_ids ids = {0};
    yyjson_val *with = json_get(want, "ids_special"), *decoded = json_get(want, "decoded");
    check_encoding(t, name, row, text, TOK_PARSE_SPECIAL, json_get(want, "ids"));
    check_encoding(t, name, row, text, TOK_PARSE_SPECIAL | TOK_ADD_SPECIAL, yyjson_is_arr(with) ? with : json_get(want, "ids"));
    read_ids(json_get(want, "ids"), &ids);
    check_text(t, name, row, &ids, false, yyjson_is_str(decoded) ? json_val_str(decoded) : text);
    check_continued(t, name, row, &ids, false);
    tok_ids_free(&ids);
}

static void golden(const char *name) {
    struct arena a = {0};
    struct err err = {0};
    const char *data = unit_data_dir();
    if (!data) unit_skip("no test-data folder");
    const char *dir = tokenizer_dir();
    char golden_dir[1100], file[200];
    snprintf(golden_dir, sizeof golden_dir, "%s/text", data);
    snprintf(file, sizeof file, "%s.json", name);
    struct str texts_json = load(&a, golden_dir, "token_golden", "texts.json"), rows_json = load(&a, golden_dir, "token_golden", file);
    struct str json = load(&a, dir, name, "tokenizer.json");
    if (!texts_json.n || !rows_json.n || !json.n) unit_skip("%s is not in the test data", name);
    yyjson_val *texts, *rows, *row;
    CHECK_OK(json_parse(&a, texts_json, "texts.json", JSON_STRICT, &texts, &err), err);
    CHECK_OK(json_parse(&a, rows_json, file, JSON_STRICT, &rows, &err), err);
    struct tok *t;
    CHECK_OK(tok_load_json(&t, json, load(&a, dir, name, "tokenizer_config.json"), &err), err);
    rows = json_get(rows, "rows");
    CHECK_INT(yyjson_arr_size(rows), yyjson_arr_size(texts));
    size_t i, n;
    yyjson_arr_foreach(rows, i, n, row) check_row(t, name, i, json_val_str(yyjson_arr_get(texts, i)), row);
    tok_destroy(t);
    arena_free(&a);
}

static void golden_bert(void) {
    golden("bert-base-uncased");
}

static void golden_deepseek(void) {
    golden("deepseek_v3");
}

static void golden_gemma3(void) {
    golden("gemma3");
}

static void golden_gpt2(void) {
    golden("gpt2");
}

static void golden_gptoss(void) {
    golden("gptoss");
}

static void golden_llama2(void) {
    golden("llama2");
}

static void golden_llama3(void) {
    golden("llama3_2");
}

static void golden_minimind2(void) {
    golden("minimind2");
}

static void golden_nemo(void) {
    golden("mistral_nemo");
}

static void golden_phi3(void) {
    golden("phi-3-mini");
}

static void golden_qwen3(void) {
    golden("qwen3");
}

static void golden_qwen35(void) {
    golden("qwen3_5");
}

static void golden_smollm2(void) {
    golden("smollm2");
}

static void golden_t5(void) {
    golden("t5-small");
}

/* ---- the repository's own small tokenizers -------------------------------------------------------------------------- */

/* Whose decoders need to know which token stood before. */
static bool looks_back(struct str name) {
    return str_starts(name, STR("decode-ctc")) || str_ends(name, STR("-suffix"));
}

static void check_fixture_row(const struct tok *t, const char *name, size_t row, yyjson_val *want) {
    struct tok_ids ids = {0};
    yyjson_val *text = json_get(want, "text"), *decoded = json_get(want, "decoded"), *skipped = json_get(want, "skipped");
    static const struct {
        const char *key;
        unsigned flags;
    } ways[] = {{"ids", TOK_PARSE_SPECIAL}, {"special", TOK_PARSE_SPECIAL | TOK_ADD_SPECIAL}, {"plain", 0}};
    for (size_t i = 0; i < 3; i++)
        if (json_get(want, ways[i].key)) check_encoding(t, name, row, json_val_str(text), ways[i].flags, json_get(want, ways[i].key));
    yyjson_val *list = json_get(want, "ids") ? json_get(want, "ids") : json_get(want, "plain");
    read_ids(json_get(want, "decode") ? json_get(want, "decode") : list, &ids);
    if (decoded) check_text(t, name, row, &ids, false, json_val_str(decoded));
    if (skipped) check_text(t, name, row, &ids, true, json_val_str(skipped));
    if (!looks_back(str_of(name))) check_continued(t, name, row, &ids, true);
    tok_ids_free(&ids);
}

static void fixture(const char *dir, const char *name) {
    struct arena a = {0};
    struct err err = {0};
    yyjson_val *rows, *row;
    struct tok *t;
    size_t i, n;
    struct str file = load(&a, dir, name, "tokenizer.json");
    if (!file.n) file = load(&a, dir, name, "tokenizer.model");
    if (!file.n) file = load(&a, dir, name, "ranks.tiktoken");
    if (!file.n) file = load(&a, dir, name, "tekken.json");
    FAIL_IF(tok_load_any(&t, file, load(&a, dir, name, "tokenizer_config.json"), &err), "%s: %s", name, err.msg);
    CHECK_OK(json_parse(&a, load(&a, dir, name, "expected.json"), "expected.json", JSON_STRICT, &rows, &err), err);
    yyjson_arr_foreach(rows, i, n, row) check_fixture_row(t, name, i, row);
    tok_destroy(t);
    arena_free(&a);
}

static void fixtures(void) {
    struct arena a = {0};
    struct err err = {0};
    struct str *names;
    size_t n;
    char dir[1100];
    snprintf(dir, sizeof dir, "%s/tests/text/tokenizers", unit_source_dir());
    CHECK_OK(os_list_dir(&a, dir, &names, &n, &err), err);
    CHECK(n > 40);
    for (size_t i = 0; i < n; i++) fixture(dir, str_cstr(&a, names[i]));
    arena_free(&a);
}

static const struct unit_case cases[] = {
    {"fixtures", fixtures},
    {"golden_bert", golden_bert},
    {"golden_deepseek", golden_deepseek},
    {"golden_gemma3", golden_gemma3},
    {"golden_gpt2", golden_gpt2},
    {"golden_gptoss", golden_gptoss},
    {"golden_llama2", golden_llama2},
    {"golden_llama3", golden_llama3},
    {"golden_minimind2", golden_minimind2},
    {"golden_nemo", golden_nemo},
    {"golden_phi3", golden_phi3},
    {"golden_qwen3", golden_qwen3},
    {"golden_qwen35", golden_qwen35},
    {"golden_smollm2", golden_smollm2},
    {"golden_t5", golden_t5},
    {0},
};

const struct unit_suite unit_tokenizer = {"tokenizer", cases};
