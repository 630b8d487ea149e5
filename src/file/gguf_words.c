/* Two kinds of vocabularies as tokenizer.json: WordPiece, and pieces of SentencePiece of which a text has the likeliest ones (Unigram).
 *
 * Files have words of a WordPiece with a mark in front, and what goes on inside a word without; tokenizer.json has it the other way around, with "##". */
#include "file/gguf_tokens.h"

#define MARK "\xE2\x96\x81"
#define INSIDE "##"

static const struct gguf_value *get(const struct gguf *g, const char *key) {
    return gguf_get(g, str_of(key));
}

/* ---- WordPiece ---------------------------------------------------------------------------------------------------------- */

void gguf_put_word_parts(const struct gguf *g, struct jsonw *w) {
    int64_t strips;
    jsonw_open(w, "normalizer", '{');
    jsonw_put_str(w, "type", STR("BertNormalizer"));
    jsonw_put_bool(w, "clean_text", true);
    jsonw_put_bool(w, "handle_chinese_chars", true);
    jsonw_put_bool(w, "lowercase", gguf_flag(g, "tokenizer.ggml.normalizer.lowercase", true));
    if (gguf_to_int(get(g, "tokenizer.ggml.normalizer.strip_accents"), &strips)) jsonw_put_bool(w, "strip_accents", strips != 0);
    else jsonw_put_null(w, "strip_accents"); /* as lowercase */
    jsonw_end(w, '}');
    jsonw_put_raw(w, "pre_tokenizer", STR("{\"type\":\"BertPreTokenizer\"}"));
    jsonw_put_raw(w, "decoder", STR("{\"type\":\"WordPiece\",\"prefix\":\"" INSIDE "\",\"cleanup\":true}"));
}

int gguf_put_words(const struct gguf *g, struct str unknown, struct jsonw *w, struct err *err) {
    struct gguf_tokens walk;
    struct gguf_token t;
    struct sb key = {0};
    TRY(gguf_tokens_begin(g, &walk, err));
    jsonw_open(w, "model", '{');
    jsonw_put_str(w, "type", STR("WordPiece"));
    jsonw_put_str(w, "unk_token", unknown.p ? unknown : STR("[UNK]"));
    jsonw_put_str(w, "continuing_subword_prefix", STR(INSIDE));
    jsonw_put_int(w, "max_input_chars_per_word", 100);
    jsonw_open(w, "vocab", '{');
    while (gguf_tokens_next(&walk, &t)) {
        bool begins = str_starts(t.text, STR(MARK));
        if (t.type == TOKEN_UNUSED) continue;
        key.n = 0;
        if (t.type == TOKEN_NORMAL && !begins) sb_puts(&key, INSIDE);
        sb_put(&key, t.type == TOKEN_NORMAL && begins ? str_from(t.text, sizeof MARK - 1) : t.text);
        jsonw_key_str(w, sb_str(&key));
        jsonw_int(w, t.id);
    }
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    sb_free(&key);
    return ERR_OK;
}

/* ---- Unigram -------------------------------------------------------------------------------------------------------------- */

static void put_base64(struct jsonw *w, struct str bytes) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct sb b = {0};
    for (size_t i = 0; i < bytes.n; i += 3) {
        size_t n = bytes.n - i < 3 ? bytes.n - i : 3;
        uint32_t three = 0;
        for (size_t k = 0; k < 3; k++) three = three << 8 | (k < n ? (unsigned char)bytes.p[i + k] : 0);
        for (size_t k = 0; k < 4; k++) sb_putc(&b, k <= n ? digits[three >> (18 - 6 * k) & 63] : '=');
    }
    jsonw_str(w, sb_str(&b));
    sb_free(&b);
}

/* Where the file has a map of characters, its bytes. */
static struct str charsmap_of(const struct gguf *g) {
    const struct gguf_value *v = get(g, "tokenizer.ggml.precompiled_charsmap");
    bool is_bytes = v && v->type == GGUF_ARRAY && (v->of == GGUF_U8 || v->of == GGUF_I8);
    return is_bytes ? v->bytes : (struct str){0};
}

void gguf_put_unigram_parts(const struct gguf *g, struct jsonw *w) {
    bool has_prefix = gguf_flag(g, "tokenizer.ggml.add_space_prefix", true),
         one_space = gguf_flag(g, "tokenizer.ggml.remove_extra_whitespaces", false);
    struct str scheme = has_prefix
                            ? STR("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"always\",\"split\":true}")
                            : STR("{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\",\"prepend_scheme\":\"never\",\"split\":true}");
    struct str charsmap = charsmap_of(g);
    if (charsmap.n) {
        jsonw_open(w, "normalizer", '{');
        jsonw_put_str(w, "type", STR("Precompiled"));
        jsonw_key(w, "precompiled_charsmap");
        put_base64(w, charsmap);
        jsonw_end(w, '}');
    }
    jsonw_open(w, "pre_tokenizer", '{');
    jsonw_put_str(w, "type", STR("Sequence"));
    jsonw_open(w, "pretokenizers", '[');
    if (one_space) jsonw_raw(w, STR("{\"type\":\"WhitespaceSplit\"}"));
    jsonw_raw(w, scheme);
    jsonw_end(w, ']');
    jsonw_end(w, '}');
    jsonw_put_raw(w, "decoder", scheme);
}

int gguf_put_unigram(const struct gguf *g, int64_t unknown, struct jsonw *w, struct err *err) {
    struct gguf_tokens walk;
    struct gguf_token t;
    bool has_bytes = false;
    TRY(gguf_tokens_begin(g, &walk, err));
    if (!walk.scores) return err_set(err, ERR_EFORMAT, "%s: tokenizer.ggml.scores is missing", g->source.name);
    jsonw_open(w, "model", '{');
    jsonw_put_str(w, "type", STR("Unigram"));
    jsonw_put_int(w, "unk_id", unknown);
    jsonw_open(w, "vocab", '[');
    while (gguf_tokens_next(&walk, &t)) {
        has_bytes |= t.type == TOKEN_BYTE;
        jsonw_begin(w, '[');
        gguf_put_text(w, &t, true);
        jsonw_num(w, t.score);
        jsonw_end(w, ']');
    }
    jsonw_end(w, ']');
    jsonw_put_bool(w, "byte_fallback", has_bytes);
    jsonw_end(w, '}');
    return ERR_OK;
}
