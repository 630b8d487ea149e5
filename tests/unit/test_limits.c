/* What files may ask for: each limit of SECURITY.md, one step beyond it, and what lies within. */
#include "unit.h"

#include "../fixtures/tokenizer_files.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/map.h"
#include "file/checkpoint.h"
#include "file/limits.h"
#include "os/os.h"
#include "text/tokenizer/tokenizer.h"

static struct arena arena;
static struct err err;
static const char *dir; /* for the files of a case */

/* ---- making files ----------------------------------------------------------------------------------------------- */

static struct str taken(struct sb *b) {
    struct str copy = str_copy(&arena, sb_str(b));
    sb_free(b);
    return copy;
}

static struct str times(const char *unit, size_t n) {
    struct sb b = {0};
    for (size_t i = 0; i < n; i++) sb_puts(&b, unit);
    return taken(&b);
}

/* A list of n equal things with commas between them. */
static struct str list(const char *item, size_t n) {
    struct str all = times(str_fmt(&arena, "%s,", item).p, n);
    return str_copy(&arena, str_sub(all, 0, all.n - 1));
}

static struct str base64(struct str bytes) {
    struct sb b = {0};
    put_base64(&b, bytes);
    return taken(&b);
}

/* A charsmap in which every byte of `keys` is a key of its own, whether it is a character or not, and leads to place `at` of the pool. */
static struct str charsmap(const char *keys, uint32_t at, struct str pool) {
    enum { N_UNITS = 1024, FIRST = 256, VALUE = 512, HAS_LEAF = 1 << 8 };
    uint32_t *words = arena_new(&arena, uint32_t, N_UNITS + 1), *units = words + 1;
    words[0] = N_UNITS * 4;
    units[0] = (uint32_t)FIRST << 10;
    for (const char *k = keys; *k; k++) {
        uint32_t byte = (unsigned char)*k, node = FIRST ^ byte;
        units[node] = byte | HAS_LEAF | (node ^ (VALUE + byte)) << 10;
        units[VALUE + byte] = at;
    }
    struct sb b = {0};
    sb_put(&b, str_n((const char *)words, (N_UNITS + 1) * 4));
    sb_put(&b, pool);
    return taken(&b);
}

/* A SentencePiece model of type 1 (Unigram) or 2 (BPE): the unknown piece, "a" and one more. */
static struct str sentencepiece(int type, struct str piece, struct str map) {
    struct sb out = {0};
    put_sentencepiece(&out, type, (const struct str[]){STR("<unk>"), STR("a"), piece}, 3, map);
    return taken(&out);
}

#define UNIGRAM "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"\xC3\xA9\",-1]]}"
#define BPE \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{\"a\":0,\"\xC3\xA9\":1,\"\xC3\x83\":2,\"\xC2\xA9\":3},\"merges\":[]}"

/* ---- tokenizers ------------------------------------------------------------------------------------------------- */

static struct tok *load(struct str file) {
    struct tok *t;
    CHECK_OK(tok_load_any(&t, file, STR(""), &err), err);
    return t;
}

static void refuse(struct str file, struct str config, const char *message) {
    struct tok *t;
    err_clear(&err);
    int code = tok_load_any(&t, file, config, &err);
    FAIL_IF(code == ERR_OK, "loaded, expected \"%s\"", message);
    FAIL_IF(str_find(str_of(err.msg), str_of(message), 0) == STR_NONE, "%s, expected \"%s\"", err.msg, message);
}

#define REFUSE(message, ...) refuse(str_fmt(&arena, __VA_ARGS__), STR(""), message)

/* Encoding must fail with the message, or succeed where that is NULL. */
static void encode(struct str file, struct str text, const char *message) {
    struct tok *t = load(file);
    struct tok_ids ids = {0};
    err_clear(&err);
    int code = tok_encode(t, text, 0, &ids, &err);
    bool as_expected = message ? code && str_find(str_of(err.msg), str_of(message), 0) != STR_NONE : code == ERR_OK;
    tok_ids_free(&ids);
    tok_destroy(t);
    FAIL_IF(!as_expected, "%s, expected %s", code ? err.msg : "encoded", message ? message : "success");
}

#define ENCODE(text, message, ...) encode(str_fmt(&arena, __VA_ARGS__), (text), (message))

/* Maps whose replacements or keys are parts of characters: the text behind them must stay text. */
static void charsmaps(void) {
    static const char *const models[] = {UNIGRAM, BPE};
    struct str e_acute = STR("\xC3\xA9"), texts[] = {STR("a"), STR("\xC3\xA9"), STR("aaa\xC3\xA9"), STR("\xF0\x9F\x98\x80")};
    const char *precompiled = "{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"%s\"},%s}";
    for (size_t i = 0; i < 2; i++) {
        struct str cut = base64(charsmap("a", 0, STR("\xF0")));
        REFUSE("not valid UTF-8", precompiled, cut.p, models[i]);
        struct str inside = base64(charsmap("a\xC3\xA9\xF0\x9F", 1, e_acute));
        struct str plain = str_fmt(&arena, "{%s}", models[i]), mapped = str_fmt(&arena, precompiled, inside.p, models[i]);
        for (size_t k = 0; k < 4; k++) {
            encode(plain, texts[k], NULL);
            encode(mapped, texts[k], NULL);
        }
        refuse(sentencepiece((int)i + 1, e_acute, charsmap("a", 0, STR("\x80"))), STR(""), "not valid UTF-8");
        struct str model = sentencepiece((int)i + 1, e_acute, charsmap("a\xC3\xA9\xF0\x9F", 0, str_n("\xC3\xA9\0", 3)));
        for (size_t k = 0; k < 4; k++) encode(model, texts[k], NULL);
    }
    struct tok *t = load(str_fmt(&arena, precompiled, base64(charsmap("a", 0, str_n("\xC3\xA9\0", 3))).p, models[0]));
    struct tok_ids ids = {0};
    CHECK_OK(tok_encode(t, STR("aa"), 0, &ids, &err), err); /* what is sound works */
    CHECK(ids.n == 2 && ids.p[0] == 2 && ids.p[1] == 2);
    tok_ids_free(&ids);
    tok_destroy(t);
    REFUSE("a replacement of 257 bytes", precompiled, base64(charsmap("a", 0, times("b", 257))).p, models[0]);
}

static void lengths_of_tokens(void) {
    const char *a512 = times("a", 512).p, *b513 = times("b", 513).p, *b4097 = times("b", 4097).p;
    REFUSE("513 bytes", "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"%s\",-1]]}}", b513);
    ENCODE(STR("aaaa"), NULL, "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"%s\",-1]]}}", a512);
    REFUSE("513 bytes", "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"%s\":1}}}", b513);
    ENCODE(STR("aaaa"), NULL, "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"%s\":1}}}", a512);
    REFUSE("4097 bytes", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"%s\":0},\"merges\":[]}}", b4097);
    REFUSE("4097 bytes", "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"%s\":0}}}", b4097);
    REFUSE("513 bytes", "{\"added_tokens\":[{\"content\":\"%s\"}]," BPE "}", b513);
    REFUSE("515 bytes after", "{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"bbb\"},\"added_tokens\":[{\"content\":\"%s\"}]," BPE "}",
           a512);
    refuse(sentencepiece(1, str_of(b513), STR("")), STR(""), "513 bytes");
    refuse(sentencepiece(2, str_of(b513), STR("")), STR(""), "513 bytes");
    refuse(str_fmt(&arena, "%s 0\n", base64(str_of(b513)).p), STR(""), "longer than 512 bytes");
}

/* A few bytes of file must not make tables of a gigabyte. */
static void ids_far_away(void) {
    REFUSE("id 16777215 is too high", "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":16777215},\"merges\":[]}}");
    ENCODE(STR("a"), NULL, "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":65539},\"merges\":[]}}");
    refuse(STR("YQ== 16777215\n"), STR(""), "id 16777215 is too high");
    refuse(STR("YQ== 0\n"), STR("{\"added_tokens_decoder\":{\"16777215\":{\"content\":\"b\"}}}"), "id 16777215 is too high");
}

static void post_processors(void) {
    const char *form = "{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[%s,{\"Sequence\":{\"id\":\"A\"}}],"
                       "\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[%s]}}}," BPE "}";
    const char *special = "{\"SpecialToken\":{\"id\":\"s\"}}", *pair = "{\"type\":\"BertProcessing\",\"sep\":[\"a\",1],\"cls\":[\"a\",1]}";
    REFUSE("more than 256 ids", form, special, list("1", 257).p);
    REFUSE("more than 256 ids", form, list(special, 2).p, list("1", 129).p);
    REFUSE("257 pieces", form, list(special, 256).p, "1");
    REFUSE("more than 256 ids", "{\"post_processor\":{\"type\":\"Sequence\",\"processors\":[%s]}," BPE "}", list(pair, 257).p);
    struct tok *t = load(str_fmt(&arena, form, special, list("1", 256).p));
    struct tok_ids ids = {0};
    CHECK_OK(tok_encode(t, STR("a"), TOK_ADD_SPECIAL, &ids, &err), err);
    CHECK_INT(ids.n, 257);
    tok_ids_free(&ids);
    tok_destroy(t);
}

/* Parts that double a text, one behind the other. */
static void growth(void) {
    const char *doubles = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aa\"}", *bytes = "{\"type\":\"ByteLevel\"}";
    const char *normalizers = "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s]}," BPE "}";
    struct str a5000 = times("a", 5000), e5000 = times("\xC3\xA9", 5000);
    ENCODE(a5000, "normalizers make more than 64 times", normalizers, list(doubles, 40).p);
    ENCODE(e5000, "normalizers make more than 64 times", normalizers, list(bytes, 40).p);
    ENCODE(a5000, NULL, normalizers, list(doubles, 6).p);
    ENCODE(times("\xEF\xB7\xBA", 5000), NULL, normalizers, "{\"type\":\"NFKC\"},{\"type\":\"ByteLevel\"}"); /* 18 letters each */
    ENCODE(e5000, "pre-tokenizers make more than 64 times",
           "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s,{\"type\":\"WhitespaceSplit\"}]}," BPE "}",
           list("{\"type\":\"ByteLevel\",\"use_regex\":false}", 40).p);
    REFUSE("decoders make more than 8 times", "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[%s]}," BPE "}", list(doubles, 12).p);
    struct tok *t = load(str_fmt(&arena, "{\"decoder\":%s," BPE "}", doubles));
    struct sb out = {0};
    CHECK_OK(tok_decode(t, (const int32_t[]){0, 0, 1}, 3, false, &out, &err), err);
    CHECK_STR(sb_str(&out), STR("aaaa\xC3\xA9"));
    sb_free(&out);
    tok_destroy(t);
}

static void strings_of_parts(void) {
    static const char *const forms[] = {
        "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"%s\"}",
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}",
        "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"%s\"},\"content\":\"a\"}",
        "\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"String\":\"%s\"}}",
        "\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"%s\"}",
        "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"%s\"}",
        "\"decoder\":{\"type\":\"WordPiece\",\"prefix\":\"%s\"}",
        "\"decoder\":{\"type\":\"BPEDecoder\",\"suffix\":\"%s\"}",
        "\"decoder\":{\"type\":\"CTC\",\"pad_token\":\"%s\"}",
        "\"decoder\":{\"type\":\"CTC\",\"word_delimiter_token\":\"%s\"}",
    };
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        for (size_t n = 256; n <= 257; n++) {
            struct str part = str_fmt(&arena, forms[i], times("b", n).p);
            if (n == 256) tok_destroy(load(str_fmt(&arena, "{%s," BPE "}", part.p)));
            else REFUSE("of 257 bytes", "{%s," BPE "}", part.p);
        }
    }
    REFUSE("Strip is not understood", "{\"decoder\":{\"type\":\"Strip\",\"content\":\"a\",\"start\":0,\"stop\":257}," BPE "}");
}

static struct str splitter(const char *before, const char *regex) {
    return str_fmt(&arena,
                   "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[%s{\"type\":\"Split\",\"behavior\":\"Isolated\","
                   "\"pattern\":{\"Regex\":\"%s\"}}]}," BPE "}",
                   before, regex);
}

/* Expressions that take long at every place: each match is within what one may cost, all of them together are not. */
static void costly_expressions(void) {
    struct str text = times("a", 2000);
    encode(splitter("", "(?:(?:a|a){16}c)?."), text, "exceeds its limits");
    encode(splitter("{\"type\":\"FixedLength\",\"length\":1},", "(?:(?:|a|){12}c)?."), text, "exceeds its limits");
    encode(splitter("", "(?:(?:a|a){4}c)?."), text, NULL);
    encode(splitter("", "\\\\p{Lu}*\\\\p{Ll}+|\\\\p{Lu}+|."), times("A", 100000), NULL); /* a hundred thousand steps back, once */
    encode(splitter("", "\\\\p{Lu}*\\\\p{Ll}+|\\\\p{Lu}+|."), times("AAAAAAAAAA ", 20000), NULL);
    REFUSE("8193 bytes", "%s", splitter("", times("a", 8193).p).p);
    tok_destroy(load(splitter("", times("\\\\b", 4000).p))); /* a gigabyte, were they all written out as ranges */
}

/* Tokens of a byte-level vocabulary that are outside its alphabet are found by their names. */
static void odd_tokens(void) {
    struct tok *t = load(STR("{\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"added_tokens\":[{\"content\":\"b c\"},{\"content\":\"d e\"}],"
                             "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b c\":1,\"\xE4\xB8\xAD\":2},\"merges\":[]}}"));
    CHECK_INT(tok_id_of(t, STR("b c")), 1);
    CHECK_INT(tok_id_of(t, STR("\xE4\xB8\xAD")), 2);
    CHECK_INT(tok_id_of(t, STR("d e")), 3);
    CHECK_INT(tok_id_of(t, STR("f g")), -1);
    tok_destroy(t);
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static const char *in_scratch(const char *name) {
    return str_fmt(&arena, "%s/%s", dir, name).p;
}

static void expect_checkpoint_error(const char *message) {
    struct checkpoint c;
    FAIL_IF(checkpoint_open(dir, &c, &err) == ERR_OK, "opened, expected \"%s\"", message);
    FAIL_IF(str_find(str_of(err.msg), str_of(message), 0) == STR_NONE, "%s, expected \"%s\"", err.msg, message);
}

static struct str weights(struct str header) {
    struct sb out = {0};
    for (int i = 0; i < 8; i++) sb_putc(&out, (char)(header.n >> 8 * i & 255));
    sb_put(&out, header);
    return taken(&out);
}

static void tensors(void) {
    dir = unit_scratch_dir();
    const char *form = "{\"a\":{\"dtype\":\"U8\",\"shape\":[%s],\"data_offsets\":[0,0]}}", *file = in_scratch("model.safetensors");
    struct checkpoint c;
    CHECK_OK(os_file_save(file, weights(str_fmt(&arena, form, list("0", ST_DIMS_MAX).p)), &err), err);
    CHECK_OK(checkpoint_open(file, &c, &err), err);
    checkpoint_close(&c);
    CHECK_OK(os_file_save(file, weights(str_fmt(&arena, form, list("0", ST_DIMS_MAX + 1).p)), &err), err);
    expect_checkpoint_error("shape has 65 dimensions, at most 64");
    struct str many = str_fmt(&arena, "{\"a\":{\"b\":[%s]}}", list("0", ST_VALUES_MAX).p);
    CHECK_OK(os_file_save(file, weights(many), &err), err);
    expect_checkpoint_error("more than 16777216 numbers and names");
    arena_free(&arena);
}

static void shards(void) {
    dir = unit_scratch_dir();
    struct sb index = {0};
    sb_puts(&index, "{\"weight_map\":{");
    for (int i = 0; i <= SHARDS_MAX; i++) sb_fmt(&index, "%s\"t%d\":\"s%d.safetensors\"", i ? "," : "", i, i);
    sb_puts(&index, "}}");
    CHECK_OK(os_file_save(in_scratch("model.safetensors.index.json"), sb_str(&index), &err), err);
    sb_free(&index);
    expect_checkpoint_error("more than 4096 files of weights");
    CHECK_OK(os_remove(in_scratch("model.safetensors.index.json"), &err), err);
    CHECK_OK(os_file_save(in_scratch("model-00001-of-9999999999.safetensors"), STR(""), &err), err);
    expect_checkpoint_error("shard 2 of 9999999999 is missing");
}

/* The same tensors in two shards: the index decides about each. */
static void tensors_in_two_shards(void) {
    dir = unit_scratch_dir();
    enum { N = 300 };
    struct sb header = {0}, index = {0};
    struct checkpoint c;
    for (int i = 0; i < N; i++) {
        sb_fmt(&header, "%s\"t%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "{", i);
        sb_fmt(&index, "%s\"t%d\":\"%s.safetensors\"", i ? "," : "{\"weight_map\":{", i, i % 2 ? "b" : "a");
    }
    sb_puts(&header, "}");
    sb_puts(&index, "}}");
    CHECK_OK(os_file_save(in_scratch("a.safetensors"), weights(sb_str(&header)), &err), err);
    CHECK_OK(os_file_save(in_scratch("b.safetensors"), weights(sb_str(&header)), &err), err);
    CHECK_OK(os_file_save(in_scratch("model.safetensors.index.json"), sb_str(&index), &err), err);
    CHECK_OK(checkpoint_open(dir, &c, &err), err);
    CHECK_INT(c.n_tensors, N);
    for (int i = 0; i < N; i++) {
        const struct checkpoint_tensor *t = checkpoint_find(&c, str_fmt(&arena, "t%d", i));
        CHECK(t && t->shard->name[0] == (i % 2 ? 'b' : 'a'));
    }
    checkpoint_close(&c);
    sb_free(&header);
    sb_free(&index);
}

static void end_ids(void) {
    struct config config;
    int64_t *ids;
    size_t n;
    struct str most = str_fmt(&arena, "{\"eos_token_id\":[%s]}", list("1", EOS_IDS_MAX).p);
    struct str more = str_fmt(&arena, "{\"eos_token_id\":[%s]}", list("1", EOS_IDS_MAX + 1).p);
    CHECK_OK(config_parse(&arena, most, "config.json", &config, &err), err);
    CHECK_OK(config_eos_ids(&arena, &config, NULL, &ids, &n, &err), err);
    CHECK_INT(n, 1);
    CHECK_OK(config_parse(&arena, more, "config.json", &config, &err), err);
    CHECK_INT(config_eos_ids(&arena, &config, NULL, &ids, &n, &err), ERR_ELIMIT);
    CHECK(strstr(err.msg, "config.json: eos_token_id lists 1025 numbers, at most 1024"));
    CHECK_OK(config_parse(&arena, STR("{}"), "config.json", &config, &err), err);
    struct config generation;
    CHECK_OK(config_parse(&arena, more, "generation_config.json", &generation, &err), err);
    CHECK_INT(config_eos_ids(&arena, &config, &generation, &ids, &n, &err), ERR_ELIMIT);
}

static void keys_of_configs(void) {
    static const char *const forms[] = {"{%s}", "{\"text_config\":{%s}}", "{\"rope_parameters\":{%s}}", "{\"quantization\":{%s}}",
                                        "{\"id2label\":{%s}}"};
    struct config config;
    struct sb keys = {0};
    for (int i = 0; i <= CONFIG_KEYS_MAX; i++) sb_fmt(&keys, "%s\"k%d\":1", i ? "," : "", i);
    for (size_t i = 0; i < 5; i++) {
        int code = config_parse(&arena, str_fmt(&arena, forms[i], keys.p), "config.json", &config, &err);
        CHECK_INT(code, i < 3 ? ERR_ELIMIT : ERR_OK); /* a quantisation has a key for each of its tensors */
        if (code) CHECK(strstr(err.msg, "config.json: an object of 4097 keys, at most 4096"));
    }
    sb_free(&keys);
}

/* Keys that fall on one place, as far as anybody outside can tell: the longest row of taken places in the table stays short. */
static void chosen_keys(void) {
    enum { N = 2000, SLOTS = 4096, ROW = 200 };
    struct map m = {0};
    for (uint64_t i = 0; m.n < N; i++) {
        struct str key = str_fmt(&arena, "%llu", (unsigned long long)i);
        if ((hash_bytes(key.p, key.n, 0) & (SLOTS - 1)) < 8) map_put(&m, key, NULL);
    }
    CHECK_INT(m.n_slots, SLOTS);
    size_t row = 0, longest = 0;
    for (size_t i = 0; i < 2 * m.n_slots; i++) {
        row = m.slots[i % m.n_slots] ? row + 1 : 0;
        if (row > longest) longest = row;
    }
    FAIL_IF(longest > ROW, "%zu keys in a row", longest);
    for (size_t i = 0; i < m.n; i++) CHECK(map_find(&m, m.entries[i].key) == &m.entries[i]);
    map_free(&m);
    arena_free(&arena);
}

/* A file with a hole costs nothing to make, and must not be read. */
static void save_hole(const char *name, uint64_t bytes) {
    struct os_file *f;
    CHECK_OK(os_file_open(in_scratch(name), OS_WRITE, &f, &err), err);
    CHECK_OK(os_file_truncate(f, bytes, &err), err);
    os_file_close(f);
}

static void sizes_of_files(void) {
    dir = unit_scratch_dir();
    struct checkpoint c;
    struct str text;
    CHECK_OK(os_file_save(in_scratch("model.safetensors"), weights(STR("{}")), &err), err);
    save_hole("tokenizer.json", TOKENIZER_MAX_BYTES + 1);
    save_hole("tokenizer_config.json", CONFIG_MAX_BYTES + 1);
    CHECK_OK(checkpoint_open(dir, &c, &err), err);
    CHECK_INT(checkpoint_file_load(&arena, &c, "tokenizer.json", 0, &text, &err), ERR_ELIMIT);
    CHECK_INT(checkpoint_file_load(&arena, &c, "tokenizer_config.json", 0, &text, &err), ERR_ELIMIT);
    checkpoint_close(&c);
    save_hole("config.json", CONFIG_MAX_BYTES + 1);
    expect_checkpoint_error("config.json is 16777217 bytes long, at most 16777216 are read");
    CHECK_OK(os_remove(in_scratch("config.json"), &err), err);
    save_hole("model.safetensors.index.json", INDEX_MAX_BYTES + 1);
    expect_checkpoint_error("model.safetensors.index.json is 67108865 bytes long");
}

/* What is no regular file is not opened: pipes, sockets and other devices are in tests/file/test_special_files.py. */
static void devices_are_no_files(void) {
    dir = unit_scratch_dir();
    struct os_file *f;
    struct os_stat st;
    struct str text;
    const char *null = os_stat("/dev/null", &st, NULL) == ERR_OK ? "/dev/null" : "NUL";
    CHECK(os_file_open(null, OS_READ, &f, &err) != ERR_OK);
    CHECK(strstr(err.msg, "no regular file"));
    CHECK(os_file_load(&arena, null, 0, &text, &err) != ERR_OK);
    CHECK_OK(os_input_load(&arena, null, 0, &text, &err), err); /* what a user names is */
    CHECK_INT(text.n, 0);
    CHECK_OK(os_make_dirs(in_scratch("config.json"), &err), err);
    CHECK_OK(os_file_save(in_scratch("model.safetensors"), weights(STR("{}")), &err), err);
    expect_checkpoint_error("config.json: it is a folder");
}

/* A text that grows while it is parsed takes the memory that it needs once. */
static void memory_of_json(void) {
    enum { N = 2000000 };
    struct str text = str_fmt(&arena, "[%s]", list("1", N).p);
    struct arena a = {0};
    yyjson_val *root;
    CHECK_OK(json_parse(&a, text, "x", JSON_STRICT, &root, &err), err);
    CHECK_INT(yyjson_arr_size(root), N);
    CHECK_INT(yyjson_get_int(yyjson_arr_get_last(root)), 1);
    FAIL_IF(a.total_bytes > text.n + (size_t)N * 16 * 3 / 2 + 4096, "%zu bytes for %zu", a.total_bytes, text.n);
    char *p = arena_try(&a, 100); /* goes on behind it */
    CHECK(p && p[0] == 0 && p[99] == 0);
    arena_free(&a);
    arena_free(&arena);
    CHECK_INT(json_value_count(STR("{\"a\":[1,2,{}],\"[,:\\\"\":null}")), 9); /* an empty one counts twice */
}

const struct unit_suite unit_limits = {
    "limits",
    (const struct unit_case[]){
        {"charsmaps", charsmaps},
        {"lengths_of_tokens", lengths_of_tokens},
        {"ids_far_away", ids_far_away},
        {"post_processors", post_processors},
        {"growth", growth},
        {"strings_of_parts", strings_of_parts},
        {"costly_expressions", costly_expressions},
        {"odd_tokens", odd_tokens},
        {"tensors", tensors},
        {"shards", shards},
        {"tensors_in_two_shards", tensors_in_two_shards},
        {"end_ids", end_ids},
        {"keys_of_configs", keys_of_configs},
        {"chosen_keys", chosen_keys},
        {"sizes_of_files", sizes_of_files},
        {"devices_are_no_files", devices_are_no_files},
        {"memory_of_json", memory_of_json},
        {0},
    },
};
