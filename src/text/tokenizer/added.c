/* Added tokens: found in the text before (or after) normalization, longest first, never cut by the model.
 *
 * The leftmost match wins, and of those that begin at the same place the longest. What may match depends on trust: see
 * enum tok_trust and struct tok_span. A match that is refused (inside a word, special where special is not parsed) is
 * passed over as a whole, as the reference does.
 */
#include "text/tokenizer/internal.h"

static bool refused(const struct tok_added_token *k, enum tok_trust trust) {
    return trust == TRUST_NO_SPECIAL && k->special;
}

/* The longest token at byte i. Where marks decide, it must lie in trusted text, unless it is white space. */
static const struct tok_added_token *longest_at(const struct tok_added *a, const struct tok_trie *trie, struct tok_text text,
                                                enum tok_trust trust, size_t i) {
    const struct tok_added_token *best = NULL;
    bool trusted = true;
    uint32_t node = 0;
    for (size_t k = i; k < text.s.n; k++) {
        node = tok_trie_step(trie, node, (unsigned char)text.s.p[k]);
        if (!node) break;
        if (trust == TRUST_MARKS && text.mark && !text.mark[k]) trusted = false;
        int32_t value = trie->nodes[node].value;
        if (value >= 0 && (trusted || a->tokens[value].blank)) best = &a->tokens[value];
    }
    return best;
}

static bool word_before(struct str s, size_t i) {
    size_t len;
    return i > 0 && tok_uni(tok_utf8(s.p + tok_utf8_back(s.p, i), &len)) & UNI_WORD;
}

static bool word_at(struct str s, size_t i) {
    size_t len;
    return i < s.n && tok_uni(tok_utf8(s.p + i, &len)) & UNI_WORD;
}

bool tok_added_next(const struct tok_added *a, const struct tok_trie *trie, struct tok_text text, enum tok_trust trust, size_t *at,
                    size_t from, struct tok_added_match *out) {
    if (trie->empty) return false;
    struct str s = text.s;
    size_t i = *at;
    while (i < s.n) {
        if (!trie->root[(unsigned char)s.p[i]]) {
            i++;
            continue;
        }
        const struct tok_added_token *k = longest_at(a, trie, text, trust, i);
        if (!k) {
            i++;
            continue;
        }
        size_t start = i, end = i + (k->normalize ? k->normalized.n : k->content.n), len;
        i = end;
        if (refused(k, trust)) continue;
        if (k->single_word && (word_before(s, start) || word_at(s, end))) continue;
        if (k->lstrip) {
            while (start > from) {
                size_t last = tok_utf8_back(s.p, start);
                if (!(tok_uni(tok_utf8(s.p + last, &len)) & UNI_SPACE)) break;
                start = last;
            }
            if (start < from) start = from; /* the token before took it */
        }
        if (k->rstrip)
            while (end < s.n && tok_uni(tok_utf8(s.p + end, &len)) & UNI_SPACE) end += len;
        if (start >= end) continue; /* all of it */
        *out = (struct tok_added_match){start, end, k};
        *at = i;
        return true;
    }
    *at = s.n;
    return false;
}

/* ---- building --------------------------------------------------------------------------------------------------- */

static bool is_blank(struct str s) {
    size_t len;
    for (size_t i = 0; i < s.n; i += len) {
        uint32_t c = tok_utf8(s.p + i, &len);
        if (!(tok_uni(c) & UNI_SPACE) && c != 0x2581) return false;
    }
    return true;
}

static int build_trie(struct tok *t, struct tok_trie *trie, bool normalize, struct err *err) {
    struct tok_added *a = &t->added;
    struct tok_trie_item *items = mem_alloc((a->n + 1) * sizeof *items);
    size_t n = 0;
    for (size_t i = 0; i < a->n; i++) {
        const struct tok_added_token *k = &a->tokens[i];
        if (k->normalize != normalize) continue;
        struct str key = normalize ? k->normalized : k->content;
        if (key.n) items[n++] = (struct tok_trie_item){key, (int32_t)i};
    }
    int code = tok_trie_build(&t->arena, trie, items, n, err);
    mem_free(items);
    return code;
}

/* Fills what follows from the tokens once the normalizers are known. */
int tok_added_build(struct tok *t, struct err *err) {
    struct tok_added *a = &t->added;
    struct tok_work *w = tok_work_create();
    int code = ERR_OK;
    for (size_t i = 0; i < a->n && !code; i++) {
        struct tok_added_token *k = &a->tokens[i];
        struct tok_text text = {k->content, NULL, true};
        k->blank = !k->special && is_blank(k->content);
        k->normalized = k->content;
        if (!k->normalize || k->literal) continue;
        code = tok_normalize(t, w, &text, err);
        if (!code && text.s.n > TOK_MAX_TOKEN_BYTES)
            code = err_set(err, ERR_ELIMIT, "tokenizer: an added token of %zu bytes after normalization is too long, at most %d are read",
                           text.s.n, TOK_MAX_TOKEN_BYTES);
        if (!code && !str_eq(text.s, k->content)) k->normalized = str_copy(&t->arena, text.s);
    }
    tok_work_destroy(w);
    if (!code) code = build_trie(t, &a->raw, false, err);
    if (!code) code = build_trie(t, &a->normalized, true, err);
    return code;
}

int32_t tok_model_id(const struct tok *t, struct str token) {
    if (!t->byte_level) return tok_table_find(&t->table, token.p, token.n);
    struct sb raw = {0};
    bool plain = true;
    size_t len;
    for (size_t i = 0; i < token.n && plain; i += len) {
        int byte = tok_char_byte(tok_utf8(token.p + i, &len));
        plain = byte >= 0;
        if (plain) sb_putc(&raw, (char)byte);
    }
    int32_t id = plain ? tok_table_find(&t->table, sb_str(&raw).p, raw.n) : -1;
    sb_free(&raw);
    return plain ? id : tok_table_find(&t->odd, token.p, token.n);
}

int32_t tok_id_of(const struct tok *t, struct str token) {
    int32_t i = tok_table_find(&t->added.by_content, token.p, token.n);
    return i >= 0 ? t->added.tokens[i].id : tok_model_id(t, token);
}

int tok_added_room(struct tok *t, size_t n, struct err *err) {
    struct tok_added *a = &t->added;
    if (n > TOK_MAX_ID) return err_set(err, ERR_ELIMIT, "tokenizer: %zu added tokens", n);
    a->tokens = arena_try(&t->arena, (n + 1) * sizeof *a->tokens);
    a->contents = arena_try(&t->arena, (n + 1) * sizeof *a->contents);
    if (!a->tokens || !a->contents) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for %zu added tokens", n);
    return tok_table_init(&t->arena, &a->by_content, a->contents, n, err);
}

/* Adds a token, or replaces the one of the same content. There must be room. */
int tok_added_put(struct tok *t, struct tok_added_token token, struct err *err) {
    struct tok_added *a = &t->added;
    if (token.content.n > TOK_MAX_TOKEN_BYTES)
        return err_set(err, ERR_ELIMIT, "tokenizer: an added token of %zu bytes is too long, at most %d are read", token.content.n,
                       TOK_MAX_TOKEN_BYTES);
    if (token.id < 0 || token.id >= TOK_MAX_ID)
        return err_set(err, ERR_ELIMIT, "tokenizer: the id of an added token is not below %d", TOK_MAX_ID);
    int32_t known = tok_table_find(&a->by_content, token.content.p, token.content.n);
    size_t at = known >= 0 ? (size_t)known : a->n++;
    token.content = str_copy(&t->arena, token.content);
    a->tokens[at] = token;
    a->contents[at] = token.content;
    if (known < 0) tok_table_put(&a->by_content, (uint32_t)at);
    return ERR_OK;
}

static struct tok_added_token token_of(yyjson_val *json, struct str content, int32_t id) {
    bool special = json_bool(json, "special", false);
    return (struct tok_added_token){
        .content = content,
        .id = id,
        .single_word = json_bool(json, "single_word", false),
        .lstrip = json_bool(json, "lstrip", false),
        .rstrip = json_bool(json, "rstrip", false),
        .normalize = json_bool(json, "normalized", !special),
        .special = special,
    };
}

static int read_token(struct tok *t, yyjson_val *json, int32_t *next_id, struct err *err) {
    struct str content = json_str(json, "content", (struct str){0});
    if (!content.p) return err_set(err, ERR_EFORMAT, "tokenizer.json: an added token has no content");
    if (content.n == 0) return ERR_OK;
    int32_t id = tok_id_of(t, content);
    if (id < 0) id = (*next_id)++; /* the reference numbers new tokens itself, whatever the file says */
    return tok_added_put(t, token_of(json, content, id), err);
}

int tok_read_added(struct tok *t, yyjson_val *list, struct err *err) {
    size_t n, i;
    yyjson_val *json;
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) == 0) return ERR_OK;
    TRY(tok_added_room(t, yyjson_arr_size(list), err));
    int32_t next_id = (int32_t)t->n_vocab;
    yyjson_arr_foreach(list, i, n, json) TRY(read_token(t, json, &next_id, err));
    return ERR_OK;
}

int tok_read_added_decoder(struct tok *t, yyjson_val *config, struct err *err) {
    size_t n, i;
    yyjson_val *map = json_get(config, "added_tokens_decoder"), *key, *json;
    if (!yyjson_is_obj(map)) return ERR_OK;
    yyjson_obj_foreach(map, i, n, key, json) {
        struct str content = json_str(json, "content", (struct str){0});
        int64_t id;
        if (!str_to_int64(json_val_str(key), &id) || id < 0 || id >= TOK_MAX_ID)
            return err_set(err, ERR_EFORMAT, "tokenizer_config.json: added_tokens_decoder has the id \"%.*s\"", STR_ARG(json_val_str(key)));
        if (content.n) TRY(tok_added_put(t, token_of(json, content, (int32_t)id), err));
    }
    return ERR_OK;
}
