/* tiktoken files: one line for each token, its bytes in base64 and its rank, which is also its id. And the choice of a
 * loader by content. */
#include "text/tokenizer/internal.h"
#include "text/tokenizer/scanner.h"

static int read_lines(struct arena *a, struct str file, struct tok_ranks *r, struct err *err) {
    size_t n_lines = 1, number = 0;
    for (size_t i = 0; i < file.n; i++) n_lines += file.p[i] == '\n';
    if (n_lines > TOK_MAX_ID) return err_set(err, ERR_ELIMIT, "tiktoken file: it has more than %d lines", TOK_MAX_ID);
    r->starts = arena_try(a, (n_lines + 1) * sizeof *r->starts);
    r->ids = arena_try(a, n_lines * sizeof *r->ids);
    if (!r->starts || !r->ids) return err_set(err, ERR_EMEMORY, "tiktoken file: no memory for %zu lines", n_lines);
    struct str rest = file, line;
    while (str_split_next(&rest, '\n', &line)) {
        number++;
        line = str_trim(line);
        if (line.n == 0) continue;
        size_t space = str_find_char(line, ' ', 0);
        int64_t id;
        if (space == STR_NONE || !tok_base64(str_sub(line, 0, space), &r->bytes) || !str_to_int64(str_trim(str_from(line, space)), &id) ||
            id < 0 || id >= TOK_MAX_ID)
            return err_set(err, ERR_EFORMAT, "tiktoken file: line %zu is not a token in base64 and its rank", number);
        if (r->bytes.n - r->starts[r->n] > TOK_MAX_TOKEN_BYTES)
            return err_set(err, ERR_ELIMIT, "tiktoken file: the token in line %zu is longer than %d bytes", number, TOK_MAX_TOKEN_BYTES);
        r->ids[r->n] = (int32_t)id;
        r->starts[++r->n] = r->bytes.n;
    }
    return r->n ? ERR_OK : err_set(err, ERR_EFORMAT, "tiktoken file: it has no tokens");
}

/* Every way to cut a token into two is a merge that has the token's rank. */
static int build_merges(struct tok *t, struct err *err) {
    size_t n = 0, capacity = t->n_vocab * 4 + 16, bytes;
    struct tok_merge *merges = size_mul(capacity, sizeof *merges, &bytes) ? NULL : mem_try(bytes);
    if (!merges) return err_set(err, ERR_EMEMORY, "tiktoken file: no memory for merges");
    for (size_t id = 0; id < t->n_vocab_ids; id++) {
        struct str token = t->vocab[id];
        for (size_t cut = 1; cut < token.n; cut++) {
            int32_t left = tok_table_find(&t->table, token.p, cut);
            int32_t right = left < 0 ? -1 : tok_table_find(&t->table, token.p + cut, token.n - cut);
            if (right < 0) continue;
            if (n == capacity) merges = mem_realloc(merges, (capacity *= 2) * sizeof *merges);
            merges[n++] = (struct tok_merge){left, right, (int32_t)id, (uint32_t)id};
        }
    }
    struct tok_bpe_options o = {.ignore_merges = true};
    int code = tok_bpe_init(t, &o, merges, n, err);
    mem_free(merges);
    return code;
}

/* The pre-tokenizer and decoder that go with a byte-level vocabulary, written as the JSON that we read anyway. */
static int build_parts(struct tok *t, struct arena *a, struct str pattern, struct err *err) {
    struct sb json = {0};
    yyjson_val *root;
    sb_puts(
        &json,
        "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":");
    json_quote(&json, pattern);
    sb_puts(&json, "}},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},\"decoder\":{\"type\":\"ByteLevel\"}}");
    int code = json_parse(a, sb_str(&json), "pre-tokenizer", JSON_STRICT, &root, err);
    sb_free(&json);
    if (!code) code = tok_read_normalizers(t, root, err);
    if (!code) code = tok_read_pre_tokenizers(t, root, err);
    if (!code) code = tok_read_decoders(t, root, err);
    if (!code) tok_pre_own_bytes(t);
    return code;
}

int tok_build_ranks(struct tok *t, struct arena *a, const struct tok_ranks *r, struct str pattern, struct err *err) {
    struct str *tokens = arena_try(a, r->n * sizeof *tokens);
    if (!tokens) return err_set(err, ERR_EMEMORY, "tiktoken file: no memory for %zu tokens", r->n);
    for (size_t i = 0; i < r->n; i++) tokens[i] = str_n(sb_str(&r->bytes).p + r->starts[i], r->starts[i + 1] - r->starts[i]);
    TRY(build_parts(t, a, pattern, err));
    TRY(tok_set_raw_vocab(t, tokens, r->ids, r->n, err));
    return build_merges(t, err);
}

static int build(struct tok *t, struct arena *a, const struct tok_ranks *r, struct str pattern, yyjson_val *config, struct err *err) {
    TRY(tok_build_ranks(t, a, r, pattern, err));
    TRY(tok_added_room(t, yyjson_obj_size(json_get(config, "added_tokens_decoder")), err));
    TRY(tok_read_added_decoder(t, config, err));
    return tok_finish(t, err);
}

int tok_load_tiktoken(struct tok **out, struct str file, struct str pattern, struct str config_json, struct err *err) {
    struct arena a = {0};
    struct tok_ranks r = {0};
    yyjson_val *config = NULL;
    struct tok *t = tok_new();
    if (pattern.n == 0) pattern = str_of(tok_scanner_named("cl100k")->pattern);
    int code = read_lines(&a, file, &r, err);
    if (!code && config_json.n) code = json_parse(&a, config_json, "tokenizer_config.json", JSON_LENIENT, &config, err);
    if (!code) code = build(t, &a, &r, pattern, config, err);
    if (!code) code = tok_read_config(t, config_json, err);
    sb_free(&r.bytes);
    arena_free(&a);
    if (code) tok_destroy(t), t = NULL;
    *out = t;
    return code;
}

/* A file of ranks does not name its pattern. Where the configuration names the program that does, that decides; else the larger
 * vocabularies came with the newer pattern. */
static struct str pattern_of(struct str file, struct str config_json) {
#define CASED "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define SMALL "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define ENDING "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    static const char kimi[] = "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" CASED "*" SMALL "+" ENDING "|[^\\r\\n\\p{L}\\p{N}]?" CASED "+" SMALL
                               "*" ENDING "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
#undef CASED
#undef SMALL
#undef ENDING
    size_t n_lines = 0;
    if (str_find(config_json, STR("\"tokenization_kimi."), 0) != STR_NONE) return str_of(kimi);
    for (size_t i = 0; i < file.n; i++) n_lines += file.p[i] == '\n';
    return str_of(tok_scanner_named(n_lines > 150000 ? "o200k" : "cl100k")->pattern);
}

int tok_load_any(struct tok **out, struct str file, struct str config_json, struct err *err) {
    struct str start = str_trim(str_sub(file, 0, 64));
    if (file.n == 0) return *out = NULL, err_set(err, ERR_EFORMAT, "tokenizer: its file is empty");
    if (start.n && start.p[0] == '{')
        return tok_is_tekken(file) ? tok_load_tekken(out, file, config_json, err) : tok_load_json(out, file, config_json, err);
    struct str line = str_trim(str_sub(file, 0, str_find_char(file, '\n', 0)));
    size_t space = str_find_char(line, ' ', 0);
    struct sb bytes = {0};
    bool text = space != STR_NONE && space > 0 && tok_base64(str_sub(line, 0, space), &bytes);
    sb_free(&bytes);
    if (text) return tok_load_tiktoken(out, file, pattern_of(file, config_json), config_json, err);
    return tok_load_sentencepiece(out, file, config_json, err);
}
