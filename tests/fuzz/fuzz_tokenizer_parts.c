/* A tokenizer put together from the input: normalizers, pre-tokenizers, post-processors and decoders of every kind, in any number and order.
 *
 * Each byte chooses the next thing, so every input is a file that parses: mutations change what the parts do to one another. The last bytes
 * are a text that goes through it. Whole and streamed decoding must agree, and nothing may grow beyond the limits. */
#include "text/tokenizer/internal.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct bytes {
    const uint8_t *p;
    size_t n;
};

static unsigned next(struct bytes *b) {
    if (b->n == 0) return 0;
    b->n--;
    return *b->p++;
}

static const char *const texts[] = {
    "a", "aa", "", " ", "\xE2\x96\x81", "b", "ab", "\xC3\xA9", "<0xC3>", "##", "</w>", "aaaaaaaaaaaaaaaa", "\\n", "1", ".", "<s>"};
static const char *const regexes[] = {"a",
                                      ".",
                                      "\\\\s+",
                                      "\\\\p{L}+|\\\\p{N}",
                                      "a*",
                                      "(?=a)",
                                      "\\\\b",
                                      "[^a]+",
                                      "(a|aa)+b",
                                      "(?:(?:a|a){9}c)?.",
                                      "\\\\w+|\\\\s",
                                      "(?i)A+",
                                      "a{2}?",
                                      "$",
                                      "^",
                                      "(?<=a)b"};
static const char *const behaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
static const char *const schemes[] = {"always", "first", "never"};

#define PICK(b, list) list[next(b) % (sizeof(list) / sizeof *(list))]

static void put_pattern(struct bytes *b, struct sb *out) {
    if (next(b) & 1) sb_fmt(out, "\"pattern\":{\"Regex\":\"%s\"}", PICK(b, regexes));
    else sb_fmt(out, "\"pattern\":{\"String\":\"%s\"}", PICK(b, texts));
}

static void put_normalizer(struct bytes *b, struct sb *out) {
    static const char *const plain[] = {"NFC",          "NFD", "NFKC",      "NFKD",  "Lowercase",
                                        "StripAccents", "Nmt", "ByteLevel", "Strip", "BertNormalizer"};
    unsigned kind = next(b) % 14;
    if (kind < 10) {
        sb_fmt(out, "{\"type\":\"%s\"}", plain[kind]);
    } else if (kind < 12) {
        sb_puts(out, "{\"type\":\"Replace\",");
        put_pattern(b, out);
        sb_fmt(out, ",\"content\":\"%s\"}", PICK(b, texts));
    } else {
        sb_fmt(out, "{\"type\":\"Prepend\",\"prepend\":\"%s\"}", PICK(b, texts));
    }
}

static void put_pre_tokenizer(struct bytes *b, struct sb *out) {
    static const char *const plain[] = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer", "Punctuation"};
    unsigned kind = next(b) % 10, flag = next(b);
    if (kind < 4) {
        sb_fmt(out, "{\"type\":\"%s\"}", plain[kind]);
    } else if (kind < 6) {
        sb_fmt(out, "{\"type\":\"Split\",\"behavior\":\"%s\",\"invert\":%s,", behaviors[flag % 5], flag & 128 ? "true" : "false");
        put_pattern(b, out);
        sb_puts(out, "}");
    } else if (kind == 6) {
        sb_fmt(out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":%s,\"use_regex\":%s}", flag & 1 ? "true" : "false",
               flag & 2 ? "true" : "false");
    } else if (kind == 7) {
        sb_fmt(out, "{\"type\":\"Metaspace\",\"prepend_scheme\":\"%s\",\"split\":%s}", schemes[flag % 3], flag & 128 ? "true" : "false");
    } else if (kind == 8) {
        sb_fmt(out, "{\"type\":\"Digits\",\"individual_digits\":%s}", flag & 1 ? "true" : "false");
    } else {
        sb_fmt(out, "{\"type\":\"FixedLength\",\"length\":%u}", flag % 7 + 1);
    }
}

static void put_decoder(struct bytes *b, struct sb *out) {
    static const char *const plain[] = {"ByteLevel", "ByteFallback", "Fuse", "Metaspace"};
    unsigned kind = next(b) % 10, flag = next(b);
    if (kind < 4) {
        sb_fmt(out, "{\"type\":\"%s\"}", plain[kind]);
    } else if (kind < 6) {
        sb_puts(out, "{\"type\":\"Replace\",");
        put_pattern(b, out);
        sb_fmt(out, ",\"content\":\"%s\"}", PICK(b, texts));
    } else if (kind == 6) {
        sb_fmt(out, "{\"type\":\"Strip\",\"content\":\"%s\",\"start\":%u,\"stop\":%u}", flag & 128 ? "a" : " ", flag % 8, flag / 8 % 16);
    } else if (kind == 7) {
        sb_fmt(out, "{\"type\":\"WordPiece\",\"prefix\":\"%s\",\"cleanup\":%s}", PICK(b, texts), flag & 1 ? "true" : "false");
    } else if (kind == 8) {
        sb_fmt(out, "{\"type\":\"BPEDecoder\",\"suffix\":\"%s\"}", PICK(b, texts));
    } else {
        sb_fmt(out, "{\"type\":\"CTC\",\"pad_token\":\"%s\",\"cleanup\":%s}", PICK(b, texts), flag & 1 ? "true" : "false");
    }
}

static void put_post_processor(struct bytes *b, struct sb *out) {
    unsigned kind = next(b) % 3, n = next(b);
    if (kind == 0) {
        sb_puts(out, "{\"type\":\"ByteLevel\"}");
    } else if (kind == 1) {
        sb_fmt(out, "{\"type\":\"BertProcessing\",\"sep\":[\"a\",%u],\"cls\":[\"b\",%u]}", n % 16, n / 16);
    } else {
        sb_puts(out, "{\"type\":\"TemplateProcessing\",\"single\":[");
        for (unsigned i = 0; i < n % 64; i++) sb_puts(out, "{\"SpecialToken\":{\"id\":\"s\"}},");
        sb_puts(out, "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[1");
        for (unsigned i = 0; i < n / 64; i++) sb_puts(out, ",2");
        sb_puts(out, "]}}}");
    }
}

/* "NAME": a sequence of up to `most` parts. */
static void put_parts(struct bytes *b, struct sb *out, const char *name, const char *list, unsigned most,
                      void (*put)(struct bytes *b, struct sb *out)) {
    unsigned n = next(b) % (most + 1);
    if (n == 0) return;
    sb_fmt(out, "\"%s\":{\"type\":\"Sequence\",\"%s\":[", name, list);
    for (unsigned i = 0; i < n; i++) {
        if (i) sb_putc(out, ',');
        put(b, out);
    }
    sb_puts(out, "]},");
}

static void put_added(struct bytes *b, struct sb *out) {
    unsigned n = next(b) % 6;
    sb_puts(out, "\"added_tokens\":[");
    for (unsigned i = 0; i < n; i++) {
        unsigned flags = next(b);
        sb_fmt(out, "%s{\"content\":\"%s%s\",\"special\":%s,\"normalized\":%s,\"lstrip\":%s,\"rstrip\":%s,\"single_word\":%s}",
               i ? "," : "", PICK(b, texts), flags & 1 ? "x" : "", flags & 2 ? "true" : "false", flags & 4 ? "true" : "false",
               flags & 8 ? "true" : "false", flags & 16 ? "true" : "false", flags & 32 ? "true" : "false");
    }
    sb_puts(out, "],");
}

static const char *const models[] = {
    "{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"aa\":1,\"b\":2,\"\xC4\xA0\":3,\"\xC3\x83\":4,\"\xC2\xA9\":5,\"\xE2\x96\x81\":6},\"merges\":[\"a a\"]}",
    "{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"a\":1,\"<0xC3>\":2,\"<0xA9>\":3,\"aa\":4},\"merges\":[\"a a\"]}",
    "{\"type\":\"BPE\",\"unk_token\":\"u\",\"continuing_subword_prefix\":\"##\",\"end_of_word_suffix\":\"</w>\",\"vocab\":{\"u\":0,\"a\":1,\"##a</w>\":2,\"a</w>\":3,\"##a\":4,\"aa\":5},\"merges\":[[\"a\",\"##a\"]]}",
    "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1],[\"\xE2\x96\x81\",-2],[\"aaa\",-1.5],[\"<0xC3>\",-3],[\"<0xA9>\",-3]],\"byte_fallback\":true}",
    "{\"type\":\"WordPiece\",\"vocab\":{\"[UNK]\":0,\"a\":1,\"##a\":2,\"aa\":3,\"##\xC3\xA9\":4},\"max_input_chars_per_word\":30}",
    "{\"type\":\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1,\"aa\":2}}",
};

static void run(const struct tok *t, struct str text) {
    struct tok_ids ids = {0};
    struct sb whole = {0}, streamed = {0};
    struct tok_stream s;
    struct tok_span spans[] = {{text, true}, {text, false}};
    struct err err = {0};
    int code = tok_encode(t, text, TOK_ADD_SPECIAL | TOK_PARSE_SPECIAL, &ids, &err);
    if (code && !err.msg[0]) abort();
    tok_encode_spans(t, NULL, spans, 2, TOK_PARSE_SPECIAL, &ids, NULL);
    for (int32_t id = 0; id < 12; id++) tok_ids_put(&ids, id);
    code = tok_decode(t, ids.p, ids.n, false, &whole, NULL);
    tok_stream_init(&s, t, false);
    for (size_t i = 0; i < ids.n; i++) tok_stream_push(&s, ids.p[i], &streamed, NULL);
    tok_stream_flush(&s, &streamed, NULL);
    if (!code && !str_eq(sb_str(&whole), sb_str(&streamed))) abort();
    tok_stream_free(&s);
    sb_free(&whole);
    sb_free(&streamed);
    tok_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct bytes b = {data, n};
    struct sb file = {0};
    struct tok *t;
    struct err err = {0};
    sb_putc(&file, '{');
    put_parts(&b, &file, "normalizer", "normalizers", 40, put_normalizer);
    put_parts(&b, &file, "pre_tokenizer", "pretokenizers", 40, put_pre_tokenizer);
    put_parts(&b, &file, "post_processor", "processors", 12, put_post_processor);
    put_parts(&b, &file, "decoder", "decoders", 12, put_decoder);
    put_added(&b, &file);
    sb_fmt(&file, "\"model\":%s}", PICK(&b, models));
    struct str text = str_n((const char *)b.p, b.n < 400 ? b.n : 400);
    if (tok_load_json(&t, sb_str(&file), STR("{\"bos_token\":\"a\"}"), &err) == ERR_OK) {
        run(t, STR("a aab \xC3\xA9\xE2\x96\x81"
                   "1. \xF0\x9F\x98\x80"));
        if (text.n) run(t, text);
        tok_destroy(t);
    } else if (!err.msg[0]) {
        abort();
    }
    sb_free(&file);
    return 0;
}
