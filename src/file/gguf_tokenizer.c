/* The vocabulary of a GGUF file as tokenizer.json, with tokenizer_config.json and generation_config.json beside it. Byte-level BPE is written
 * as it stands; pieces of SentencePiece become a BPE whose merges follow from their scores (gguf_pieces.c); the other two kinds are in gguf_words.c. */
#include "file/gguf_tokens.h"

/* ---- the vocabulary ------------------------------------------------------------------------------------------------------- */

static const struct gguf_value *get(const struct gguf *g, const char *key) {
    return gguf_get(g, str_of(key));
}

int gguf_tokens_begin(const struct gguf *g, struct gguf_tokens *out, struct err *err) {
    *out = (struct gguf_tokens){
        get(g, "tokenizer.ggml.tokens"), get(g, "tokenizer.ggml.token_type"), get(g, "tokenizer.ggml.scores"), 0, 0, 0, 0};
    if (!out->texts || out->texts->type != GGUF_ARRAY || out->texts->of != GGUF_STRING)
        return err_set(err, ERR_EFORMAT, "%s: tokenizer.ggml.tokens is not a list of strings", g->source.name);
    return ERR_OK;
}

bool gguf_tokens_next(struct gguf_tokens *t, struct gguf_token *out) {
    struct gguf_value v;
    if (!gguf_next(t->texts, &t->text_at, &v)) return false;
    *out = (struct gguf_token){.text = v.bytes, .id = t->id++, .type = TOKEN_NORMAL};
    if (gguf_next(t->types, &t->type_at, &v)) gguf_to_int(&v, &out->type);
    if (gguf_next(t->scores, &t->score_at, &v)) gguf_to_num(&v, &out->score);
    return true;
}

bool gguf_flag(const struct gguf *g, const char *key, bool absent) {
    int64_t value;
    return gguf_to_int(get(g, key), &value) ? value != 0 : absent;
}

/* The row of the file's pre-tokenizer. */
static int pre_of(const struct gguf *g, const struct gguf_pre **out, struct err *err) {
    struct str name = STR("default");
    gguf_to_str(get(g, "tokenizer.ggml.pre"), &name);
    for (const struct gguf_pre *p = gguf_arch_pres; p->name; p++)
        if (str_is(name, p->name)) {
            *out = p;
            return ERR_OK;
        }
    return err_set(err, ERR_EUNSUPPORTED, "%s: the pre-tokenizer \"%.*s\" (tokenizer.ggml.pre) is not known", g->source.name,
                   (int)(name.n > 40 ? 40 : name.n), name.p);
}

static struct str model_of(const struct gguf *g) {
    struct str model = {0};
    gguf_to_str(get(g, "tokenizer.ggml.model"), &model);
    return model;
}

static int unknown_model(const struct gguf *g, struct err *err) {
    struct str model = model_of(g);
    struct sb known = {0};
    for (int i = 0; i < N_GGUF_VOCABS; i++) sb_fmt(&known, "%s%s", i ? ", " : "", gguf_arch_vocabs[i]);
    int code = err_set(err, ERR_EUNSUPPORTED, "%s: the tokenizer \"%.*s\" (tokenizer.ggml.model) is not read; these are: %.*s",
                       g->source.name, (int)(model.n > 40 ? 40 : model.n), model.p, (int)known.n, known.p);
    sb_free(&known);
    return code;
}

static int vocab_of(const struct gguf *g, enum gguf_vocab *out, struct err *err) {
    for (int i = 0; i < N_GGUF_VOCABS; i++)
        if (str_is(model_of(g), gguf_arch_vocabs[i])) {
            *out = (enum gguf_vocab)i;
            return ERR_OK;
        }
    return unknown_model(g, err);
}

/* What a kind of vocabulary has around a text and for unknown text, where the file does not say: ids, -1 for none, and whether the ends are put there. */
struct usual {
    int64_t bos, eos, unknown;
    bool adds_bos, adds_eos;
    const char *eos_key, *eos_flag;
};
#define EOS_KEYS "tokenizer.ggml.eos_token_id", "tokenizer.ggml.add_eos_token"
#define SEP_KEYS "tokenizer.ggml.seperator_token_id", "tokenizer.ggml.add_sep_token" /* spelled so in the files */
static const struct usual usuals[N_GGUF_VOCABS] = {
    [GGUF_BYTES] = {-1, -1, -1, false, false, EOS_KEYS},
    [GGUF_PIECES] = {-1, -1, -1, true, false, EOS_KEYS},
    [GGUF_WORDS] = {101, 102, 100, true, true, SEP_KEYS},
    [GGUF_UNIGRAM] = {-1, 1, 2, false, true, EOS_KEYS},
};

static int adds_bos(const struct gguf *g, enum gguf_vocab vocab, bool *out, struct err *err) {
    const struct gguf_pre *pre;
    *out = usuals[vocab].adds_bos;
    if (vocab == GGUF_BYTES) {
        TRY(pre_of(g, &pre, err));
        *out = pre->adds_bos;
    }
    *out = gguf_flag(g, "tokenizer.ggml.add_bos_token", *out);
    return ERR_OK;
}

static int64_t id_named(const struct gguf *g, const char *key, int64_t absent) {
    int64_t id;
    return gguf_to_int(get(g, key), &id) ? id : absent;
}

/* {NULL, 0}: none. */
static struct str text_of(const struct gguf *g, int64_t id) {
    struct gguf_tokens walk;
    struct gguf_token t;
    if (id < 0 || gguf_tokens_begin(g, &walk, NULL)) return (struct str){0};
    while (gguf_tokens_next(&walk, &t))
        if (t.id == id) return t.text;
    return (struct str){0};
}

/* The text of the token that a key names; {NULL, 0}: none. */
static struct str token_named(const struct gguf *g, const char *key) {
    return text_of(g, id_named(g, key, -1));
}

/* ---- tokenizer.json --------------------------------------------------------------------------------------------------------- */

static bool is_added(const struct gguf_token *t) {
    return t->type == TOKEN_CONTROL || t->type == TOKEN_USER || t->type == TOKEN_UNKNOWN;
}

static int put_added(const struct gguf *g, enum gguf_vocab vocab, struct jsonw *w, struct err *err) {
    struct gguf_tokens walk;
    struct gguf_token t;
    TRY(gguf_tokens_begin(g, &walk, err));
    jsonw_open(w, "added_tokens", '[');
    while (gguf_tokens_next(&walk, &t)) {
        if (!is_added(&t) || t.text.n == 0) continue;
        jsonw_begin(w, '{');
        jsonw_put_int(w, "id", t.id);
        jsonw_key(w, "content");
        gguf_put_text(w, &t, vocab == GGUF_PIECES || vocab == GGUF_UNIGRAM);
        jsonw_put_bool(w, "special", t.type != TOKEN_USER);
        jsonw_put_bool(w, "normalized", false);
        jsonw_end(w, '}');
    }
    jsonw_end(w, ']');
    return ERR_OK;
}

static int put_model(const struct gguf *g, const struct gguf_pre *pre, struct jsonw *w, struct err *err) {
    struct gguf_tokens walk;
    struct gguf_token t;
    struct gguf_value merge;
    uint64_t at = 0;
    TRY(gguf_tokens_begin(g, &walk, err));
    jsonw_open(w, "model", '{');
    jsonw_put_str(w, "type", STR("BPE"));
    jsonw_put_bool(w, "ignore_merges", pre->ignores_merges);
    jsonw_open(w, "vocab", '{');
    while (gguf_tokens_next(&walk, &t)) {
        if (t.type == TOKEN_UNUSED) continue;
        jsonw_key_str(w, t.text);
        jsonw_int(w, t.id);
    }
    jsonw_end(w, '}');
    jsonw_open(w, "merges", '[');
    while (gguf_next(get(g, "tokenizer.ggml.merges"), &at, &merge)) jsonw_str(w, merge.bytes);
    jsonw_end(w, ']');
    jsonw_end(w, '}');
    return ERR_OK;
}

static void put_place(struct jsonw *w, struct str special) {
    jsonw_begin(w, '{');
    jsonw_open(w, special.p ? "SpecialToken" : "Sequence", '{');
    jsonw_put_str(w, "id", special.p ? special : STR("A"));
    jsonw_put_int(w, "type_id", 0);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
}

static void put_special(struct jsonw *w, struct str text, int64_t id) {
    jsonw_key_str(w, text);
    jsonw_begin(w, '{');
    jsonw_put_str(w, "id", text);
    jsonw_open(w, "ids", '[');
    jsonw_int(w, id);
    jsonw_end(w, ']');
    jsonw_open(w, "tokens", '[');
    jsonw_str(w, text);
    jsonw_end(w, ']');
    jsonw_end(w, '}');
}

/* The ids around a text. */
static int put_post(const struct gguf *g, enum gguf_vocab vocab, struct jsonw *w, struct err *err) {
    const struct usual *u = &usuals[vocab];
    bool has_bos, has_eos = gguf_flag(g, u->eos_flag, u->adds_eos);
    TRY(adds_bos(g, vocab, &has_bos, err));
    int64_t bos_id = id_named(g, "tokenizer.ggml.bos_token_id", u->bos), eos_id = id_named(g, u->eos_key, u->eos);
    struct str bos = has_bos ? text_of(g, bos_id) : (struct str){0}, eos = has_eos ? text_of(g, eos_id) : (struct str){0};
    if (!bos.p && !eos.p) return ERR_OK;
    jsonw_open(w, "post_processor", '{');
    jsonw_put_str(w, "type", STR("TemplateProcessing"));
    jsonw_open(w, "single", '[');
    if (bos.p) put_place(w, bos);
    put_place(w, (struct str){0});
    if (eos.p) put_place(w, eos);
    jsonw_end(w, ']');
    jsonw_open(w, "special_tokens", '{');
    if (bos.p) put_special(w, bos, bos_id);
    if (eos.p && !str_eq(bos, eos)) put_special(w, eos, eos_id);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    return ERR_OK;
}

static void put_parts(const struct gguf *g, enum gguf_vocab vocab, const struct gguf_pre *pre, struct jsonw *w) {
    bool has_prefix = gguf_flag(g, "tokenizer.ggml.add_space_prefix", true);
    switch (vocab) {
    case GGUF_PIECES:
        jsonw_put_raw(w, "normalizer", has_prefix ? STR(GGUF_PIECES_PREFIXED) : STR(GGUF_PIECES_SPACED));
        jsonw_put_raw(w, "decoder", has_prefix ? STR(GGUF_PIECES_JOINED_STRIPPED) : STR(GGUF_PIECES_JOINED));
        break;
    case GGUF_WORDS: gguf_put_word_parts(g, w); break;
    case GGUF_UNIGRAM: gguf_put_unigram_parts(g, w); break;
    default:
        if (pre->normalizer) jsonw_put_raw(w, "normalizer", str_of(pre->normalizer));
        jsonw_put_raw(w, "pre_tokenizer", str_of(pre->parts));
        jsonw_put_raw(w, "decoder", STR("{\"type\":\"ByteLevel\"}"));
    }
}

int gguf_tokenizer(const struct gguf *g, struct sb *out, struct err *err) {
    const struct gguf_pre *pre = NULL;
    struct jsonw w = {.out = out};
    enum gguf_vocab vocab;
    TRY(vocab_of(g, &vocab, err));
    if (vocab == GGUF_BYTES) TRY(pre_of(g, &pre, err));
    int64_t unknown = id_named(g, "tokenizer.ggml.unknown_token_id", usuals[vocab].unknown);
    jsonw_begin(&w, '{');
    TRY(put_added(g, vocab, &w, err));
    put_parts(g, vocab, pre, &w);
    TRY(put_post(g, vocab, &w, err));
    if (vocab == GGUF_BYTES) TRY(put_model(g, pre, &w, err));
    else if (vocab == GGUF_PIECES) TRY(gguf_put_pieces(g, text_of(g, unknown), &w, err));
    else if (vocab == GGUF_WORDS) TRY(gguf_put_words(g, text_of(g, unknown), &w, err));
    else TRY(gguf_put_unigram(g, unknown, &w, err));
    jsonw_end(&w, '}');
    return ERR_OK;
}

/* ---- beside them ---------------------------------------------------------------------------------------------------------------- */

static void put_token(const struct gguf *g, struct jsonw *w, const char *name, const char *key) {
    struct str text = token_named(g, key);
    if (text.p) jsonw_put_str(w, name, text);
}

int gguf_tokenizer_config(const struct gguf *g, struct sb *out, struct err *err) {
    struct jsonw w = {.out = out};
    struct str chat;
    enum gguf_vocab vocab;
    bool has_bos;
    TRY(vocab_of(g, &vocab, err));
    TRY(adds_bos(g, vocab, &has_bos, err));
    jsonw_begin(&w, '{');
    jsonw_put_bool(&w, "add_bos_token", has_bos);
    jsonw_put_bool(&w, "add_eos_token", gguf_flag(g, usuals[vocab].eos_flag, usuals[vocab].adds_eos));
    put_token(g, &w, "bos_token", "tokenizer.ggml.bos_token_id");
    put_token(g, &w, "eos_token", "tokenizer.ggml.eos_token_id");
    put_token(g, &w, "pad_token", "tokenizer.ggml.padding_token_id");
    put_token(g, &w, "unk_token", "tokenizer.ggml.unknown_token_id");
    if (gguf_to_str(get(g, "tokenizer.chat_template"), &chat)) jsonw_put_str(&w, "chat_template", chat);
    jsonw_end(&w, '}');
    return ERR_OK;
}

/* Tokens that end a turn. Files name one or two of them, and leave others to be known by their names. */
static bool ends_turn(struct str text) {
    static const char *const names[] = {"<|eot_id|>",           "<|im_end|>", "<|end|>",       "<|return|>",      "<|call|>",
                                        "<end_of_turn>",        "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
                                        "<|END_OF_TURN_TOKEN|>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (str_is(text, names[i])) return true;
    return false;
}

static bool has_token(const struct gguf *g, const char *text) {
    struct gguf_tokens walk;
    struct gguf_token t;
    if (gguf_tokens_begin(g, &walk, NULL)) return false;
    while (gguf_tokens_next(&walk, &t))
        if (str_is(t.text, text)) return true;
    return false;
}

int gguf_generation_config(const struct gguf *g, struct sb *out, struct err *err) {
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    struct jsonw w = {.out = out};
    struct gguf_tokens walk;
    struct gguf_token t;
    int64_t id;
    TRY(gguf_tokens_begin(g, &walk, err));
    bool ends_parts = has_token(g, "<|return|>"); /* <|end|> ends a part of an answer there */
    jsonw_begin(&w, '{');
    jsonw_open(&w, "eos_token_id", '[');
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (gguf_to_int(get(g, keys[i]), &id) && id >= 0) jsonw_int(&w, id);
    while (gguf_tokens_next(&walk, &t))
        if (t.type == TOKEN_CONTROL && ends_turn(t.text) && !(ends_parts && str_is(t.text, "<|end|>"))) jsonw_int(&w, t.id);
    jsonw_end(&w, ']');
    jsonw_end(&w, '}');
    return ERR_OK;
}
