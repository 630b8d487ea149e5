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

int tok_part_str(struct tok *t, yyjson_val *part, const char *key, struct str absent, struct str *out, struct err *err) {
    struct str text = json_str(part, key, absent);
    *out = absent;
    if (text.n > TOK_MAX_PART_BYTES)
        return err_set(err, ERR_ELIMIT, "tokenizer.json: a \"%s\" of %zu bytes is too long, at most %d are read", key, text.n,
                       TOK_MAX_PART_BYTES);
    if (text.p) *out = str_copy(&t->arena, text);
    return ERR_OK;
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
    tok_post_free_pair(&t->post);
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

/* A vocabulary that is being filled. */
struct filling {
    char *pool;
    uint32_t block[TOK_BLOCK]; /* ids that wait for the table */
    size_t n_block;
};

static int check_holes(size_t n_ids, size_t n_tokens, struct err *err) {
    if (n_ids <= 4 * n_tokens + TOK_MAX_HOLES) return ERR_OK;
    return err_set(err, ERR_ELIMIT, "tokenizer: the id %zu is too high for a vocabulary of %zu tokens", n_ids - 1, n_tokens);
}

/* Room for the vocabulary: n tokens of total_bytes, ids below n_ids. */
static int vocab_room(struct tok *t, size_t n, size_t n_ids, size_t total_bytes, struct filling *f, struct err *err) {
    size_t bytes;
    TRY(check_holes(n_ids, n, err));
    t->n_vocab = n;
    t->n_vocab_ids = n_ids;
    *f = (struct filling){0};
    t->vocab = size_mul(n_ids + 1, sizeof *t->vocab, &bytes) ? NULL : arena_try(&t->arena, bytes);
    f->pool = arena_try(&t->arena, total_bytes + 1);
    if (t->vocab) t->written = t->byte_level ? arena_try(&t->arena, bytes) : t->vocab;
    if (!t->vocab || !t->written || !f->pool) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for a vocabulary of %zu ids", n_ids);
    return tok_table_init(&t->arena, &t->table, t->vocab, n_ids, err);
}

static int vocab_flush(struct tok *t, struct filling *f, struct err *err) {
    uint32_t twice = tok_table_put_block(&t->table, f->block, f->n_block);
    f->n_block = 0;
    if (twice == UINT32_MAX) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "tokenizer: the token \"%.*s\" is in the vocabulary twice",
                   STR_ARG(str_sub(t->written[twice], 0, 80)));
}

static struct str pool_copy(struct filling *f, struct str s) {
    char *at = f->pool;
    if (s.n) memcpy(at, s.p, s.n);
    f->pool += s.n;
    return str_n(at, s.n);
}

/* Byte-level: the bytes of a token as it is written, or the way in which bytes are written. */
static struct str pool_bytes(struct filling *f, struct str written) {
    size_t n = raw_bytes(written, f->pool);
    struct str raw = {n == SIZE_MAX ? NULL : f->pool, n == SIZE_MAX ? 0 : n};
    f->pool += raw.n;
    return raw;
}

static struct str pool_writing(struct filling *f, struct str raw) {
    char *at = f->pool;
    for (size_t i = 0; i < raw.n; i++) f->pool += utf8_encode(tok_byte_char((unsigned char)raw.p[i]), f->pool);
    return str_n(at, (size_t)(f->pool - at));
}

/* Tokens outside the byte alphabet, which text never becomes: found by what is written alone. */
static int build_odd(struct tok *t, struct err *err) {
    size_t n = 0;
    t->odd = (struct tok_table){0};
    for (size_t i = 0; i < t->n_vocab_ids; i++) n += !t->vocab[i].p && t->written[i].p;
    if (n == 0) return ERR_OK;
    TRY(tok_table_init(&t->arena, &t->odd, t->written, n, err));
    for (size_t i = 0; i < t->n_vocab_ids; i++)
        if (!t->vocab[i].p && t->written[i].p) tok_table_put(&t->odd, (uint32_t)i);
    return ERR_OK;
}

static int vocab_put(struct tok *t, struct str token, int64_t id, bool raw, struct filling *f, struct err *err) {
    if (token.n > TOK_MAX_WORD_BYTES)
        return err_set(err, ERR_ELIMIT, "tokenizer: the token of id %lld has %zu bytes, at most %d are read", (long long)id, token.n,
                       TOK_MAX_WORD_BYTES);
    if (t->written[id].p)
        return err_set(err, ERR_EFORMAT, "tokenizer: id %lld belongs to two tokens, \"%.*s\" is the second", (long long)id,
                       STR_ARG(str_sub(token, 0, 80)));
    if (t->byte_level) t->written[id] = raw ? pool_writing(f, token) : pool_copy(f, token);
    t->vocab[id] = t->byte_level && !raw ? pool_bytes(f, token) : pool_copy(f, token);
    if (!t->vocab[id].p) return ERR_OK; /* outside the byte alphabet: text never reaches it */
    f->block[f->n_block++] = (uint32_t)id;
    return f->n_block == TOK_BLOCK ? vocab_flush(t, f, err) : ERR_OK;
}

int tok_read_vocab(struct tok *t, yyjson_val *vocab, struct err *err) {
    size_t i, n, total = 0;
    int64_t top = -1, id;
    yyjson_val *key, *value;
    struct filling f;
    if (!yyjson_is_obj(vocab)) return err_set(err, ERR_EFORMAT, "tokenizer.json: the model has no object \"vocab\"");
    yyjson_obj_foreach(vocab, i, n, key, value) {
        if (!json_val_int(value, &id) || id < 0 || id >= TOK_MAX_ID)
            return err_set(err, ERR_EFORMAT, "tokenizer.json: the id of token \"%.*s\" is no number from 0 to %d",
                           STR_ARG(str_sub(json_val_str(key), 0, 80)), TOK_MAX_ID - 1);
        if (id > top) top = id;
        total += yyjson_get_len(key) * (t->byte_level ? 2 : 1);
    }
    TRY(vocab_room(t, yyjson_obj_size(vocab), (size_t)(top + 1), total, &f, err));
    yyjson_obj_foreach(vocab, i, n, key, value) {
        json_val_int(value, &id);
        TRY(vocab_put(t, json_val_str(key), id, false, &f, err));
    }
    TRY(vocab_flush(t, &f, err));
    return build_odd(t, err);
}

int tok_check_lengths(const struct tok *t, struct err *err) {
    for (size_t i = 0; i < t->n_vocab_ids; i++)
        if (t->vocab[i].n > TOK_MAX_TOKEN_BYTES)
            return err_set(err, ERR_ELIMIT, "tokenizer: the token of id %zu has %zu bytes, at most %d are read", i, t->vocab[i].n,
                           TOK_MAX_TOKEN_BYTES);
    return ERR_OK;
}

static int set_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, bool raw, struct err *err) {
    size_t total = 0;
    int32_t top = -1;
    struct filling f;
    for (size_t i = 0; i < n; i++) {
        int32_t id = ids ? ids[i] : (int32_t)i;
        if (id < 0 || id >= TOK_MAX_ID) return err_set(err, ERR_EFORMAT, "tokenizer: id %d is out of range", (int)id);
        if (id > top) top = id;
        total += tokens[i].n * (t->byte_level ? 3 : 1);
    }
    TRY(vocab_room(t, n, (size_t)top + 1, total, &f, err));
    for (size_t i = 0; i < n; i++) TRY(vocab_put(t, tokens[i], ids ? ids[i] : (int32_t)i, raw, &f, err));
    return vocab_flush(t, &f, err);
}

int tok_set_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, struct err *err) {
    return set_vocab(t, tokens, ids, n, false, err);
}

int tok_set_raw_vocab(struct tok *t, const struct str *tokens, const int32_t *ids, size_t n, struct err *err) {
    t->byte_level = true;
    return set_vocab(t, tokens, ids, n, true, err);
}

/* ---- BPE -------------------------------------------------------------------------------------------------------- */

static int merge_parts(yyjson_val *json, struct str *left, struct str *right, struct err *err) {
    if (yyjson_is_str(json)) {
        struct str both = json_val_str(json);
        size_t space = str_find_char(both, ' ', 0);
        if (space == STR_NONE || str_find_char(both, ' ', space + 1) != STR_NONE)
            return err_set(err, ERR_EFORMAT, "tokenizer.json: the merge \"%.*s\" is not two tokens", STR_ARG(str_sub(both, 0, 80)));
        *left = str_sub(both, 0, space);
        *right = str_from(both, space + 1);
        return ERR_OK;
    }
    *left = json_val_str(yyjson_arr_get(json, 0));
    *right = json_val_str(yyjson_arr_get(json, 1));
    if (left->p && right->p && yyjson_arr_size(json) == 2) return ERR_OK;
    return err_set(err, ERR_EFORMAT, "tokenizer.json: a merge is not two tokens");
}

/* A block of merges on its way: halves and results as the vocabulary stores them, one after another in a buffer. */
struct merge_block {
    struct str halves[TOK_BLOCK], merged[TOK_BLOCK / 2]; /* left, right, left, right ... */
    size_t n;                                            /* merges */
    struct sb bytes;
    int32_t last;  /* what the merge before made */
    size_t prefix; /* bytes that the second half loses */
};

static int block_put(const struct tok *t, struct merge_block *b, struct str left, struct str right, struct err *err) {
    char *at = b->bytes.p + b->bytes.n;
    size_t n_left = t->byte_level ? raw_bytes(left, at) : left.n;
    if (!t->byte_level && n_left) memcpy(at, left.p, n_left);
    size_t n_right = n_left == SIZE_MAX ? SIZE_MAX : t->byte_level ? raw_bytes(right, at + n_left) : right.n;
    if (n_right == SIZE_MAX) return ERR_OK; /* outside the byte alphabet: text never comes to it */
    if (n_right < b->prefix)
        return err_set(err, ERR_EFORMAT, "tokenizer.json: the merge of \"%.*s\" and \"%.*s\" names a token that is not in the vocabulary",
                       STR_ARG(str_sub(left, 0, 80)), STR_ARG(str_sub(right, 0, 80)));
    if (!t->byte_level && n_right) memcpy(at + n_left, right.p, n_right);
    b->halves[2 * b->n] = str_n(at, n_left);
    b->halves[2 * b->n + 1] = str_n(at + n_left, n_right);
    b->bytes.n += n_left + n_right;
    b->merged[b->n] = str_n(at, n_left + n_right);
    if (b->prefix) { /* a second copy, without the prefix of continuing subwords */
        char *copy = b->bytes.p + b->bytes.n;
        memcpy(copy, at, n_left);
        memcpy(copy + n_left, at + n_left + b->prefix, n_right - b->prefix);
        b->merged[b->n] = str_n(copy, n_left + n_right - b->prefix);
        b->bytes.n += b->merged[b->n].n;
    }
    b->n++;
    return ERR_OK;
}

/* The id of a merged token. Merges mostly make tokens in the order of their ids, some of them several times in a row. */
static int32_t guess_id(const struct tok *t, int32_t last, struct str merged) {
    for (int32_t id = last; id <= last + 1; id++)
        if (id >= 0 && (size_t)id < t->n_vocab_ids && str_eq(t->vocab[id], merged)) return id;
    return tok_table_find(&t->table, merged.p, merged.n);
}

static int block_flush(const struct tok *t, struct merge_block *b, struct tok_merge *out, size_t *out_n, struct err *err) {
    int32_t ids[TOK_BLOCK];
    tok_table_find_block(&t->table, b->halves, 2 * b->n, ids);
    for (size_t i = 0; i < b->n; i++) {
        struct str merged = b->merged[i];
        int32_t id = guess_id(t, b->last, merged);
        if (ids[2 * i] < 0 || ids[2 * i + 1] < 0 || id < 0)
            return err_set(err, ERR_EFORMAT, "tokenizer.json: merge %zu names or makes a token that is not in the vocabulary", *out_n);
        out[*out_n] = (struct tok_merge){ids[2 * i], ids[2 * i + 1], id, (uint32_t)*out_n};
        ++*out_n;
        b->last = id;
    }
    b->n = 0;
    sb_clear(&b->bytes);
    return ERR_OK;
}

static int read_merge_list(const struct tok *t, yyjson_val *list, struct merge_block *b, struct tok_merge *out, size_t *out_n,
                           struct err *err) {
    size_t i, n;
    yyjson_val *json;
    yyjson_arr_foreach(list, i, n, json) {
        struct str left, right;
        if (str_starts(json_val_str(json), STR("#version"))) continue;
        TRY(merge_parts(json, &left, &right, err));
        size_t need = 2 * (left.n + right.n) + 1;
        if (b->n == TOK_BLOCK / 2 || b->bytes.capacity - b->bytes.n < need) TRY(block_flush(t, b, out, out_n, err));
        if (b->bytes.capacity < need) sb_reserve(&b->bytes, need); /* only when it is empty: what points into it must stay */
        TRY(block_put(t, b, left, right, err));
    }
    return block_flush(t, b, out, out_n, err);
}

static int read_merges(const struct tok *t, yyjson_val *list, size_t prefix, struct tok_merge **out, size_t *out_n, struct err *err) {
    size_t bytes;
    if (!yyjson_is_arr(list)) return err_set(err, ERR_EFORMAT, "tokenizer.json: the model has no list \"merges\"");
    if (size_mul(yyjson_arr_size(list) + 1, sizeof **out, &bytes) || !(*out = mem_try(bytes)))
        return err_set(err, ERR_EMEMORY, "tokenizer.json: no memory for %zu merges", yyjson_arr_size(list));
    struct merge_block b = {.last = -1, .prefix = prefix};
    sb_reserve(&b.bytes, 16 * 1024);
    int code = read_merge_list(t, list, &b, *out, out_n, err);
    sb_free(&b.bytes);
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
        t->config_bos = json_bool(config, "add_bos_token", false);
    }
    arena_free(&scratch);
    return code;
}

/* Which ids are special: those that are written like a special token. */
static void mark_special(struct tok *t) {
    for (size_t i = 0; i < t->added.n; i++) {
        const struct tok_added_token *k = &t->added.tokens[i];
        int32_t same = tok_table_find(&t->added.by_content, t->text[k->id].p, t->text[k->id].n), id = tok_model_id(t, k->content);
        if (same >= 0 && t->added.tokens[same].special) t->id_flags[k->id] |= ID_SPECIAL;
        if (k->special && id >= 0 && str_eq(t->text[id], k->content)) t->id_flags[id] |= ID_SPECIAL;
    }
}

int tok_finish(struct tok *t, struct err *err) {
    static _Atomic uint64_t serial;
    size_t n = t->n_vocab_ids, bytes;
    TRY(tok_added_build(t, err));
    for (size_t i = 0; i < t->added.n; i++)
        if ((size_t)t->added.tokens[i].id + 1 > n) n = (size_t)t->added.tokens[i].id + 1;
    TRY(check_holes(n, t->n_vocab + t->added.n, err));
    t->n_ids = n;
    if (size_mul(n + 1, sizeof *t->text, &bytes) || !(t->text = arena_try(&t->arena, bytes)) ||
        !(t->id_flags = arena_try(&t->arena, n + 1)))
        return err_set(err, ERR_EMEMORY, "tokenizer: no memory for %zu ids", n);
    if (t->n_vocab_ids) memcpy(t->text, t->written, t->n_vocab_ids * sizeof *t->text);
    for (size_t i = 0; i < t->added.n; i++) {
        const struct tok_added_token *k = &t->added.tokens[i];
        t->text[k->id] = k->normalized; /* what decoding writes, as the reference has it */
        t->id_flags[k->id] |= ID_ADDED;
    }
    mark_special(t);
    TRY(tok_build_bytes(t, err));
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
