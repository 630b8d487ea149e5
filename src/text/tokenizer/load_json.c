/* tokenizer.json: reads the model's vocabulary, its merges and all other parts into a struct tok.
 *
 * The file is hostile until proven otherwise: ids are checked to be unique and in range, merges to name tokens that
 * exist, nesting and lengths to stay within limits. Token strings are copied into one pool, so that the parsed JSON can
 * be dropped.
 */
#include "text/tokenizer/internal.h"

#include <stdatomic.h>

int tok_type_of(yyjson_val *part, const char *what, struct str *out, struct err *err) {
    *out = json_str(part, "type", (struct str){0});
    if (!out->p) return err_set(err, ERR_EFORMAT, "tokenizer.json: %s has no \"type\"", what);
    return ERR_OK;
}

int tok_unknown(struct str type, const char *what, struct err *err) {
    return err_set(err, ERR_EUNSUPPORTED, "tokenizer.json: the %s \"%.*s\" is not known", what, STR_ARG(str_sub(type, 0, 60)));
}

struct tok *tok_new(void) {
    struct tok *t = mem_alloc(sizeof *t);
    t->bos = t->eos = t->pad = t->unk = -1;
    t->added.raw.empty = t->added.normalized.empty = true;
    return t;
}

void tok_destroy(struct tok *t) {
    if (!t) return;
    for (size_t i = 0; i < t->n_norms; i++)
        if (t->norms[i].destroy) t->norms[i].destroy(&t->norms[i]);
    for (size_t i = 0; i < t->n_pres; i++)
        if (t->pres[i].destroy) t->pres[i].destroy(&t->pres[i]);
    for (size_t i = 0; i < t->n_decs; i++)
        if (t->decs[i].destroy) t->decs[i].destroy(&t->decs[i]);
    tok_ids_free(&t->post.before);
    tok_ids_free(&t->post.after);
    arena_free(&t->arena);
    mem_free(t);
}

/* ---- the vocabulary --------------------------------------------------------------------------------------------- */

/* Writes the bytes that a byte-level token stands for to out (room for s.n); SIZE_MAX when it has other characters. */
static size_t raw_bytes(struct str s, char *out) {
    size_t n = 0, len;
    for (size_t i = 0; i < s.n; i += len) {
        unsigned char c = (unsigned char)s.p[i];
        if (c > 0x20 && c < 0x7F) {
            out[n++] = (char)c;
            len = 1;
            continue;
        }
        int byte = tok_char_byte(tok_utf8(s.p + i, &len));
        if (byte < 0) return SIZE_MAX;
        out[n++] = (char)byte;
    }
    return n;
}

/* Room for the vocabulary: n tokens of total_bytes in all, ids below n_ids. */
static int vocab_room(struct tok *t, size_t n_ids, size_t total_bytes, char **out_pool, struct err *err) {
    size_t bytes;
    t->n_vocab_ids = n_ids;
    t->vocab = size_mul(n_ids + 1, sizeof *t->vocab, &bytes) ? NULL : arena_try(&t->arena, bytes);
    *out_pool = arena_try(&t->arena, total_bytes + 1);
    if (!t->vocab || !*out_pool) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for a vocabulary of %zu ids", n_ids);
    if (t->byte_level) {
        t->odd = arena_try(&t->arena, bytes);
        if (!t->odd) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for a vocabulary of %zu ids", n_ids);
    }
    return tok_table_init(&t->arena, &t->table, t->vocab, n_ids, err);
}

static int vocab_put(struct tok *t, struct str token, int64_t id, bool raw, char **pool, struct err *err) {
    if (t->vocab[id].p || (t->odd && t->odd[id].p))
        return err_set(err, ERR_EFORMAT, "tokenizer: id %lld belongs to two tokens, \"%.*s\" is the second", (long long)id,
                       STR_ARG(str_sub(token, 0, 80)));
    bool convert = t->byte_level && !raw;
    size_t n = convert ? raw_bytes(token, *pool) : token.n;
    if (convert && n == SIZE_MAX) { /* outside the byte alphabet: text never reaches it */
        memcpy(*pool, token.p, token.n);
        t->odd[id] = str_n(*pool, token.n);
        *pool += token.n;
        return ERR_OK;
    }
    if (!convert && n) memcpy(*pool, token.p, n);
    t->vocab[id] = str_n(*pool, n);
    *pool += n;
    if (!tok_table_put(&t->table, (uint32_t)id))
        return err_set(err, ERR_EFORMAT, "tokenizer: the token \"%.*s\" is in the vocabulary twice", STR_ARG(str_sub(token, 0, 80)));
    return ERR_OK;
}

int tok_read_vocab(struct tok *t, yyjson_val *vocab, struct err *err) {
    size_t i, n, total = 0;
    int64_t top = -1, id;
    yyjson_val *key, *value;
    char *pool;
    if (!yyjson_is_obj(vocab)) return err_set(err, ERR_EFORMAT, "tokenizer.json: the model has no object \"vocab\"");
    yyjson_obj_foreach(vocab, i, n, key, value) {
        if (!json_val_int(value, &id) || id < 0 || id >= TOK_MAX_ID)
            return err_set(err, ERR_EFORMAT, "tokenizer.json: the id of token \"%.*s\" is no number from 0 to %d",
                           STR_ARG(str_sub(json_val_str(key), 0, 80)), TOK_MAX_ID - 1);
        if (id > top) top = id;
        total += yyjson_get_len(key);
    }
    TRY(vocab_room(t, (size_t)(top + 1), total, &pool, err));
    t->n_vocab = yyjson_obj_size(vocab);
    yyjson_obj_foreach(vocab, i, n, key, value) {
        json_val_int(value, &id);
        TRY(vocab_put(t, json_val_str(key), id, false, &pool, err));
    }
    return ERR_OK;
}

static int set_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, bool raw, struct err *err) {
    size_t total = 0;
    int32_t top = -1;
    char *pool;
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids ? ids[i] : (int32_t)i;
        if (id < 0 || id >= TOK_MAX_ID) return err_set(err, ERR_EFORMAT, "tokenizer: id %d is out of range", (int)id);
        if (id > top) top = id;
        total += tokens[i].n;
    }
    TRY(vocab_room(t, (size_t)top + 1, total, &pool, err));
    t->n_vocab = n;
    for (size_t i = 0; i < n; i++) TRY(vocab_put(t, tokens[i], ids ? ids[i] : (int32_t)i, raw, &pool, err));
    return ERR_OK;
}

int tok_set_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, struct err *err) {
    return set_vocab(t, tokens, ids, n, false, err);
}

int tok_set_raw_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, struct err *err) {
    t->byte_level = true;
    return set_vocab(t, tokens, ids, n, true, err);
}

/* ---- BPE -------------------------------------------------------------------------------------------------------- */

/* One half of a merge, as the vocabulary stores it, written to *at (which moves on). */
static int merge_half(const struct tok *t, struct str half, char **at, int32_t *out_id) {
    size_t n = t->byte_level ? raw_bytes(half, *at) : half.n;
    if (n == SIZE_MAX) return ERR_EFORMAT;
    if (!t->byte_level && n) memcpy(*at, half.p, n);
    *out_id = tok_table_find(&t->table, *at, n);
    *at += n;
    return *out_id < 0 ? ERR_EFORMAT : ERR_OK;
}

static int read_merge(const struct tok *t, yyjson_val *json, size_t prefix, struct sb *buffer, int32_t guess, struct tok_merge *out,
                      struct err *err) {
    struct str left, right;
    if (yyjson_is_str(json)) {
        struct str both = json_val_str(json);
        size_t space = str_find_char(both, ' ', 0);
        if (space == STR_NONE || str_find_char(both, ' ', space + 1) != STR_NONE)
            return err_set(err, ERR_EFORMAT, "tokenizer.json: the merge \"%.*s\" is not two tokens", STR_ARG(str_sub(both, 0, 80)));
        left = str_sub(both, 0, space);
        right = str_from(both, space + 1);
    } else {
        left = json_val_str(yyjson_arr_get(json, 0));
        right = json_val_str(yyjson_arr_get(json, 1));
        if (!left.p || !right.p || yyjson_arr_size(json) != 2)
            return err_set(err, ERR_EFORMAT, "tokenizer.json: a merge is not two tokens");
    }
    sb_clear(buffer);
    sb_reserve(buffer, left.n + right.n + 1);
    char *at = buffer->p, *middle;
    if (merge_half(t, left, &at, &out->left) || (middle = at, merge_half(t, right, &at, &out->right)))
        return err_set(err, ERR_EFORMAT, "tokenizer.json: the merge of \"%.*s\" and \"%.*s\" names a token that is not in the vocabulary",
                       STR_ARG(str_sub(left, 0, 80)), STR_ARG(str_sub(right, 0, 80)));
    if (prefix) { /* the second half loses the prefix of continuing subwords */
        if ((size_t)(at - middle) < prefix) return err_set(err, ERR_EFORMAT, "tokenizer.json: a merge is shorter than the subword prefix");
        memmove(middle, middle + prefix, (size_t)(at - middle) - prefix);
        at -= prefix;
    }
    struct str merged = str_n(buffer->p, (size_t)(at - buffer->p));
    bool guessed = guess >= 0 && (size_t)guess < t->n_vocab_ids && str_eq(t->vocab[guess], merged);
    out->merged = guessed ? guess : tok_table_find(&t->table, merged.p, merged.n);
    if (out->merged < 0)
        return err_set(err, ERR_EFORMAT, "tokenizer.json: the merge of \"%.*s\" and \"%.*s\" gives a token that is not in the vocabulary",
                       STR_ARG(str_sub(left, 0, 80)), STR_ARG(str_sub(right, 0, 80)));
    return ERR_OK;
}

static int read_merges(const struct tok *t, yyjson_val *list, size_t prefix, struct tok_merge **out, size_t *out_n, struct err *err) {
    size_t i, n, bytes;
    yyjson_val *json;
    struct sb buffer = {0};
    int code = ERR_OK;
    if (!yyjson_is_arr(list)) return err_set(err, ERR_EFORMAT, "tokenizer.json: the model has no list \"merges\"");
    if (size_mul(yyjson_arr_size(list) + 1, sizeof **out, &bytes) || !(*out = mem_try(bytes)))
        return err_set(err, ERR_EMEMORY, "tokenizer.json: no memory for %zu merges", yyjson_arr_size(list));
    int32_t guess = -1; /* merges mostly make tokens in the order of their ids */
    yyjson_arr_foreach(list, i, n, json) {
        if (str_starts(json_val_str(json), STR("#version"))) continue;
        code = read_merge(t, json, prefix, &buffer, guess, &(*out)[*out_n], err);
        if (code) break;
        (*out)[*out_n].rank = (uint32_t)*out_n;
        guess = (*out)[*out_n].merged + 1;
        ++*out_n;
    }
    sb_free(&buffer);
    return code;
}

/* The vocabulary holds bytes when the text comes as byte-level characters and nothing can be unknown. */
static int read_bpe_vocab(struct tok *t, yyjson_val *model, const struct tok_bpe_options *o, struct err *err) {
    struct tok_pre *last = t->n_pres ? &t->pres[t->n_pres - 1] : NULL;
    t->byte_level = last && last->rewrite_bytes && !o->prefix.n && !o->suffix.n;
    TRY(tok_read_vocab(t, json_get(model, "vocab"), err));
    if (t->byte_level && (o->unk_token.p || o->byte_fallback)) {
        for (int i = 0; i < 256 && t->byte_level; i++) {
            char byte = (char)i;
            if (tok_table_find(&t->table, &byte, 1) < 0) t->byte_level = false;
        }
        if (!t->byte_level) {
            t->odd = NULL;
            TRY(tok_read_vocab(t, json_get(model, "vocab"), err));
        }
    }
    if (t->byte_level) tok_pre_own_bytes(t);
    return ERR_OK;
}

int tok_read_bpe(struct tok *t, yyjson_val *model, struct err *err) {
    struct tok_bpe_options o = {
        .unk_token = json_str(model, "unk_token", (struct str){0}),
        .prefix = json_str(model, "continuing_subword_prefix", (struct str){0}),
        .suffix = json_str(model, "end_of_word_suffix", (struct str){0}),
        .fuse_unk = json_bool(model, "fuse_unk", false),
        .byte_fallback = json_bool(model, "byte_fallback", false),
        .ignore_merges = json_bool(model, "ignore_merges", false),
    };
    struct tok_merge *merges = NULL;
    size_t n_merges = 0;
    if (json_num(model, "dropout", 0) != 0)
        return err_set(err, ERR_EUNSUPPORTED, "tokenizer.json: BPE with dropout gives random tokens and is not supported");
    TRY(read_bpe_vocab(t, model, &o, err));
    int code = read_merges(t, json_get(model, "merges"), o.prefix.n, &merges, &n_merges, err);
    if (!code) code = tok_bpe_init(t, &o, merges, n_merges, err);
    mem_free(merges);
    return code;
}

/* ---- the whole file --------------------------------------------------------------------------------------------- */

/* Older files have no "type": the reference then takes the first model that fits. */
static const char *guess_model(yyjson_val *model) {
    if (json_get(model, "merges")) return "BPE";
    if (yyjson_is_arr(json_get(model, "vocab"))) return "Unigram";
    return json_get(model, "continuing_subword_prefix") ? "WordPiece" : "WordLevel";
}

static int read_model(struct tok *t, yyjson_val *root, struct err *err) {
    static const struct {
        const char *type;
        int (*read)(struct tok *t, yyjson_val *model, struct err *err);
    } models[] = {
        {"BPE", tok_read_bpe}, {"Unigram", tok_read_unigram}, {"WordPiece", tok_read_wordpiece}, {"WordLevel", tok_read_wordlevel}};
    yyjson_val *model = json_get(root, "model");
    if (!yyjson_is_obj(model)) return err_set(err, ERR_EFORMAT, "tokenizer.json: no \"model\"");
    struct str type = json_str(model, "type", str_of(guess_model(model)));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (str_is(type, models[i].type)) return models[i].read(t, model, err);
    return tok_unknown(type, "model", err);
}

/* A token's name in tokenizer_config.json: a string, or an object with "content". */
static int32_t config_id(const struct tok *t, yyjson_val *config, const char *key) {
    yyjson_val *value = json_get(config, key);
    struct str name = yyjson_is_obj(value) ? json_str(value, "content", (struct str){0}) : json_val_str(value);
    return name.p ? tok_id_of(t, name) : -1;
}

int tok_read_config(struct tok *t, struct str config_json, struct err *err) {
    struct arena scratch = {0};
    yyjson_val *config;
    if (config_json.n == 0) return ERR_OK;
    int code = json_parse(&scratch, config_json, "tokenizer_config.json", JSON_LENIENT, &config, err);
    if (!code) {
        int32_t id;
        if ((id = config_id(t, config, "bos_token")) >= 0) t->bos = id;
        if ((id = config_id(t, config, "eos_token")) >= 0) t->eos = id;
        if ((id = config_id(t, config, "pad_token")) >= 0) t->pad = id;
        if ((id = config_id(t, config, "unk_token")) >= 0) t->unk = id;
    }
    arena_free(&scratch);
    return code;
}

/* What a token of the model's vocabulary looks like when it is written. */
static struct str written(struct tok *t, size_t id) {
    if (!t->byte_level) return t->vocab[id];
    if (t->odd[id].p) return t->odd[id];
    struct str raw = t->vocab[id];
    if (!raw.p) return raw;
    char *text = arena_alloc(&t->arena, raw.n * 2 + 1);
    size_t n = 0;
    for (size_t i = 0; i < raw.n; i++) n += utf8_encode(tok_byte_char((unsigned char)raw.p[i]), text + n);
    return str_n(text, n);
}

/* The bytes that a token stands for when it is decoded in the middle of a text. */
static struct str spoken(struct tok *t, struct str text, size_t id) {
    if (t->byte_level && id < t->n_vocab_ids && t->vocab[id].p && !(t->id_flags[id] & ID_ADDED)) return t->vocab[id];
    struct sb out = {0};
    struct tok_stream s;
    int byte = tok_byte_token(text);
    for (size_t i = 0; i < t->n_decs && byte >= 0; i++)
        if (str_is(str_of(t->decs[i].name), "ByteFallback")) {
            char c = (char)byte;
            return str_copy(&t->arena, str_n(&c, 1));
        }
    tok_stream_init(&s, t, false); /* after another token, so that nothing is taken for the start of a text */
    s.out = &out;
    tok_dec_text(&s, 0, STR("x"), NULL);
    tok_dec_end(&s, 0, NULL);
    size_t before = out.n;
    tok_dec_text(&s, 0, text, NULL);
    tok_dec_end(&s, 0, NULL);
    if (out.n == before) tok_stream_flush(&s, &out, NULL);
    struct str spoken_text = str_copy(&t->arena, str_from(sb_str(&out), before));
    tok_stream_free(&s);
    sb_free(&out);
    return spoken_text;
}

int tok_finish(struct tok *t, struct err *err) {
    static _Atomic uint64_t serial;
    size_t n = t->n_vocab_ids, bytes;
    TRY(tok_added_build(t, err));
    for (size_t i = 0; i < t->added.n; i++)
        if ((size_t)t->added.tokens[i].id + 1 > n) n = (size_t)t->added.tokens[i].id + 1;
    t->n_ids = n;
    if (size_mul(n + 1, sizeof *t->text, &bytes) || !(t->text = arena_try(&t->arena, bytes)) || !(t->bytes = arena_try(&t->arena, bytes)) ||
        !(t->id_flags = arena_try(&t->arena, n + 1)))
        return err_set(err, ERR_EMEMORY, "tokenizer: no memory for %zu ids", n);
    for (size_t i = 0; i < t->n_vocab_ids; i++) t->text[i] = written(t, i);
    for (size_t i = 0; i < t->added.n; i++) {
        const struct tok_added_token *k = &t->added.tokens[i];
        t->text[k->id] = k->normalized; /* what decoding writes, as the reference has it */
        t->id_flags[k->id] |= ID_ADDED;
    }
    for (size_t i = 0; i < t->n_ids; i++) { /* special is what is written like a special token */
        int32_t k = t->text[i].p ? tok_table_find(&t->added.by_content, t->text[i].p, t->text[i].n) : -1;
        if (t->text[i].p) t->id_flags[i] |= ID_EXISTS;
        if (k >= 0 && t->added.tokens[k].special) t->id_flags[i] |= ID_SPECIAL;
    }
    for (size_t i = 0; i < t->n_ids; i++)
        if (t->text[i].p) t->bytes[i] = spoken(t, t->text[i], i);
    t->serial = atomic_fetch_add(&serial, 1) + 1;
    return ERR_OK;
}

static int read_all(struct tok *t, struct arena *scratch, struct str json, struct str config_json, struct err *err) {
    yyjson_val *root;
    TRY(json_parse(scratch, json, "tokenizer.json", JSON_STRICT, &root, err));
    if (!yyjson_is_obj(root)) return err_set(err, ERR_EFORMAT, "tokenizer.json: not an object");
    TRY(tok_read_normalizers(t, root, err));
    TRY(tok_read_pre_tokenizers(t, root, err));
    TRY(read_model(t, root, err));
    TRY(tok_read_post_processor(t, root, err));
    TRY(tok_read_decoders(t, root, err));
    TRY(tok_read_added(t, json_get(root, "added_tokens"), err));
    TRY(tok_finish(t, err));
    return tok_read_config(t, config_json, err);
}

int tok_load_json(struct tok **out, struct str json, struct str config_json, struct err *err) {
    struct arena scratch = {0};
    struct tok *t = tok_new();
    int code = read_all(t, &scratch, json, config_json, err);
    arena_free(&scratch);
    if (code) tok_destroy(t), t = NULL;
    *out = t;
    return code;
}
