/* The vocabulary of a GGUF file as tokenizer.json, with tokenizer_config.json and generation_config.json beside it. Byte-level BPE is written
 * as it stands; pieces of SentencePiece become a BPE whose merges follow from their scores (gguf_pieces.c). */
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

static bool flag(const struct gguf *g, const char *key, bool absent) {
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

static bool is_pieces(const struct gguf *g) {
    return str_is(model_of(g), gguf_arch_pieces_model);
}

static int adds_bos(const struct gguf *g, bool *out, struct err *err) {
    const struct gguf_pre *pre;
    *out = is_pieces(g);
    if (!is_pieces(g)) {
        TRY(pre_of(g, &pre, err));
        *out = pre->adds_bos;
    }
    *out = flag(g, "tokenizer.ggml.add_bos_token", *out);
    return ERR_OK;
}

/* The text of the token that a key names; {NULL, 0}: none. */
static struct str token_named(const struct gguf *g, const char *key) {
    struct gguf_tokens walk;
    struct gguf_token t;
    int64_t id;
    if (!gguf_to_int(get(g, key), &id) || gguf_tokens_begin(g, &walk, NULL)) return (struct str){0};
    while (gguf_tokens_next(&walk, &t))
        if (t.id == id) return t.text;
    return (struct str){0};
}

/* ---- tokenizer.json --------------------------------------------------------------------------------------------------------- */

static bool is_added(const struct gguf_token *t) {
    return t->type == TOKEN_CONTROL || t->type == TOKEN_USER || t->type == TOKEN_UNKNOWN;
}

static int put_added(const struct gguf *g, struct jsonw *w, struct err *err) {
    struct gguf_tokens walk;
    struct gguf_token t;
    TRY(gguf_tokens_begin(g, &walk, err));
    jsonw_open(w, "added_tokens", '[');
    while (gguf_tokens_next(&walk, &t)) {
        if (!is_added(&t) || t.text.n == 0) continue;
        jsonw_begin(w, '{');
        jsonw_put_int(w, "id", t.id);
        jsonw_key(w, "content");
        gguf_put_text(w, &t, is_pieces(g));
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
static int put_post(const struct gguf *g, struct jsonw *w, struct err *err) {
    bool has_bos, has_eos = flag(g, "tokenizer.ggml.add_eos_token", false);
    int64_t id;
    TRY(adds_bos(g, &has_bos, err));
    struct str bos = has_bos ? token_named(g, "tokenizer.ggml.bos_token_id") : (struct str){0};
    struct str eos = has_eos ? token_named(g, "tokenizer.ggml.eos_token_id") : (struct str){0};
    if (!bos.p && !eos.p) return ERR_OK;
    jsonw_open(w, "post_processor", '{');
    jsonw_put_str(w, "type", STR("TemplateProcessing"));
    jsonw_open(w, "single", '[');
    if (bos.p) put_place(w, bos);
    put_place(w, (struct str){0});
    if (eos.p) put_place(w, eos);
    jsonw_end(w, ']');
    jsonw_open(w, "special_tokens", '{');
    if (bos.p && gguf_to_int(get(g, "tokenizer.ggml.bos_token_id"), &id)) put_special(w, bos, id);
    if (eos.p && !str_eq(bos, eos) && gguf_to_int(get(g, "tokenizer.ggml.eos_token_id"), &id)) put_special(w, eos, id);
    jsonw_end(w, '}');
    jsonw_end(w, '}');
    return ERR_OK;
}

static int put_pieces(const struct gguf *g, struct jsonw *w, struct err *err) {
    bool has_prefix = flag(g, "tokenizer.ggml.add_space_prefix", true);
    jsonw_begin(w, '{');
    TRY(put_added(g, w, err));
    jsonw_put_raw(w, "normalizer", has_prefix ? STR(GGUF_PIECES_PREFIXED) : STR(GGUF_PIECES_SPACED));
    TRY(put_post(g, w, err));
    jsonw_put_raw(w, "decoder", has_prefix ? STR(GGUF_PIECES_JOINED_STRIPPED) : STR(GGUF_PIECES_JOINED));
    TRY(gguf_put_pieces(g, token_named(g, "tokenizer.ggml.unknown_token_id"), w, err));
    jsonw_end(w, '}');
    return ERR_OK;
}

int gguf_tokenizer(const struct gguf *g, struct sb *out, struct err *err) {
    const struct gguf_pre *pre;
    struct jsonw w = {.out = out};
    struct str model = model_of(g);
    if (is_pieces(g)) return put_pieces(g, &w, err);
    if (!str_is(model, gguf_arch_bytes_model))
        return err_set(err, ERR_EUNSUPPORTED, "%s: the tokenizer \"%.*s\" (tokenizer.ggml.model) is not read; %s and %s are",
                       g->source.name, (int)(model.n > 40 ? 40 : model.n), model.p, gguf_arch_bytes_model, gguf_arch_pieces_model);
    TRY(pre_of(g, &pre, err));
    jsonw_begin(&w, '{');
    TRY(put_added(g, &w, err));
    if (pre->normalizer) jsonw_put_raw(&w, "normalizer", str_of(pre->normalizer));
    jsonw_put_raw(&w, "pre_tokenizer", str_of(pre->parts));
    TRY(put_post(g, &w, err));
    jsonw_put_raw(&w, "decoder", STR("{\"type\":\"ByteLevel\"}"));
    TRY(put_model(g, pre, &w, err));
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
    bool has_bos;
    TRY(adds_bos(g, &has_bos, err));
    jsonw_begin(&w, '{');
    jsonw_put_bool(&w, "add_bos_token", has_bos);
    jsonw_put_bool(&w, "add_eos_token", flag(g, "tokenizer.ggml.add_eos_token", false));
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
