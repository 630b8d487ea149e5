/* Any double array and any replacements as a precompiled_charsmap, in front of every model that reads characters.
 *
 * The input: one byte for the model, one for the size of the array, the array, then "\n%%\n" between the replacements and a text. The sizes
 * of the map's parts are always right, so that mutations reach what the map says. What is found must be whole characters on both sides. */
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/internal.h"

#include "../fixtures/tokenizer_files.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool ok) {
    if (!ok) abort();
}

static const struct {
    const char *json;
    int type; /* of a SentencePiece model, in place of JSON */
} models[] = {
    {"{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"\\u00e9\",-1],[\"aa\",-1.5]]}", 0},
    {"{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"\\u00e9\":1,\"aa\":2},\"merges\":[\"a a\"]}", 0},
    {"{\"type\":\"BPE\",\"byte_fallback\":true,\"vocab\":{\"a\":0,\"<0xC3>\":1,\"<0xA9>\":2},\"merges\":[]}", 0},
    {"{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"a\":1,\"##a\":2,\"##\\u00e9\":3}}", 0},
    {"{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0}}", 0},
    {NULL, 1},
    {NULL, 2},
};

static void check_find(struct str map, struct str text) {
    struct arena a = {0};
    struct tok_charsmap m;
    struct sb valid = {0};
    tok_utf8_lossy(text, false, &valid);
    struct str s = sb_str(&valid);
    if (tok_charsmap_init(&a, map, &m, NULL) == ERR_OK)
        for (size_t i = 0, len; i < s.n; i += len) {
            tok_utf8(s.p + i, &len);
            for (int longest = 0; longest < 2; longest++) {
                size_t used = 0;
                struct str to = tok_charsmap_find(&m, str_from(s, i), longest, &used);
                if (to.p)
                    require(utf8_valid(to) && used && used <= s.n - i && utf8_valid(str_sub(s, i, used)) && to.n <= TOK_MAX_PART_BYTES);
            }
        }
    sb_free(&valid);
    arena_free(&a);
}

static void check_tokenizer(size_t model, struct str map, struct str text) {
    struct sb file = {0};
    struct tok *t;
    if (models[model].json) {
        sb_puts(&file, "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"");
        put_base64(&file, map);
        sb_fmt(&file, "\"},\"added_tokens\":[{\"content\":\"aaa\",\"normalized\":true}],\"model\":%s}", models[model].json);
    } else {
        static const struct str pieces[] = {{"<unk>", 5}, {"a", 1}, {"\xC3\xA9", 2}, {"aa", 2}, {"\xE2\x96\x81", 3}};
        put_sentencepiece(&file, models[model].type, pieces, 5, map);
    }
    if (tok_load_any(&t, sb_str(&file), STR(""), NULL) == ERR_OK) {
        struct tok_ids ids = {0};
        struct tok_span spans[] = {{text, true}, {text, false}};
        tok_encode(t, text, TOK_PARSE_SPECIAL, &ids, NULL);
        tok_encode_spans(t, NULL, spans, 2, TOK_PARSE_SPECIAL, &ids, NULL);
        for (size_t i = 0; i < ids.n; i++) require(ids.p[i] >= 0 && (size_t)ids.p[i] < tok_vocab_size(t));
        tok_ids_free(&ids);
        tok_destroy(t);
    }
    sb_free(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 6) return 0;
    struct str rest = str_n((const char *)data + 2, n - 2);
    uint32_t size = (data[1] + 1u) * 16;
    if (rest.n < size) size = (uint32_t)rest.n / 4 * 4;
    size_t cut = str_find(rest, STR("\n%%\n"), size);
    struct str pool = cut == STR_NONE ? str_from(rest, size) : str_sub(rest, size, cut - size);
    struct str text = cut == STR_NONE ? STR("a\xC3\xA9 aab\xF0\x9F\x98\x80z") : str_from(rest, cut + 4);
    struct sb map = {0};
    sb_put(&map, str_n((const char *)&size, 4));
    sb_put(&map, str_sub(rest, 0, size));
    sb_put(&map, pool);
    check_find(sb_str(&map), text);
    check_tokenizer(data[0] % (sizeof models / sizeof *models), sb_str(&map), text);
    sb_free(&map);
    return 0;
}
