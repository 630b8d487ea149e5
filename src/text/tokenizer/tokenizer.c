/* Encoding: from text through the parts to ids; and the small public functions. */
#include "text/tokenizer/internal.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/word_cache.h"

void tok_ids_put(struct tok_ids *ids, int32_t id) {
    if (ids->n == ids->capacity) {
        ids->capacity = ids->capacity ? ids->capacity * 2 : 64;
        ids->p = mem_realloc(ids->p, ids->capacity * sizeof *ids->p);
    }
    ids->p[ids->n++] = id;
}

void tok_ids_free(struct tok_ids *ids) {
    mem_free(ids->p);
    *ids = (struct tok_ids){0};
}

/* ---- working memory --------------------------------------------------------------------------------------------- */

struct tok_work *tok_work_create(void) {
    struct tok_work *w = mem_alloc(sizeof *w);
    w->keep = true;
    return w;
}

void tok_work_destroy(struct tok_work *w) {
    if (!w) return;
    sb_free(&w->repaired);
    sb_free(&w->joined);
    sb_free(&w->joined_mark);
    for (int i = 0; i < 2; i++) {
        sb_free(&w->norm[i].text);
        sb_free(&w->norm[i].mark);
    }
    for (size_t i = 0; i < TOK_MAX_PARTS; i++) sb_free(&w->pre[i]);
    mem_free(w->cells.p);
    tok_match_state_destroy(w->match);
    mem_free(w->cache.small);
    mem_free(w->cache.big);
    mem_free(w->scratch);
    mem_free(w->heap);
    mem_free(w);
}

int tok_scratch(void **p, size_t *have, size_t bytes, struct err *err) {
    if (*have >= bytes) return ERR_OK;
    mem_free(*p);
    *have = 0;
    bytes += bytes / 2;
    *p = mem_try(bytes);
    if (!*p) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for a word (%zu bytes)", bytes);
    *have = bytes;
    return ERR_OK;
}

size_t tok_growth_room(size_t n_bytes) {
    size_t room;
    return size_mul(n_bytes, TOK_MAX_GROWTH, &room) || size_add(room, TOK_MAX_GROWTH_FREE, &room) ? SIZE_MAX : room;
}

int tok_growth_fail(const char *what, struct err *err) {
    return err_set(err, ERR_ELIMIT, "tokenizer: the %s make more than %d times as much of this text", what, TOK_MAX_GROWTH);
}

/* The cache holds words of one tokenizer; another one empties it. */
static void work_attach(struct tok_work *w, const struct tok *t) {
    struct tok_word_cache *c = &w->cache;
    if (!c->small) {
        c->small_bits = w->keep ? SMALL_BITS : BRIEF_BITS;
        c->big_bits = w->keep ? BIG_BITS : BRIEF_BITS;
        c->small = mem_alloc(sizeof *c->small << c->small_bits);
        c->big = mem_alloc(sizeof *c->big << c->big_bits);
    } else if (w->cache_owner != t->serial) {
        memset(c->small, 0, sizeof *c->small << c->small_bits);
        memset(c->big, 0, sizeof *c->big << c->big_bits);
    }
    w->cache_owner = t->serial;
}

/* ---- encoding --------------------------------------------------------------------------------------------------- */

struct encoder {
    const struct tok *t;
    struct tok_work *w;
    enum tok_trust trust;
    struct tok_ids *out;
};

static int pre_tokenize(const struct encoder *e, struct tok_text piece, struct err *err) {
    struct tok_pre_run run = {e->t, e->w, e->out};
    if (piece.s.n == 0) return ERR_OK;
    e->w->end = piece.s.p + piece.s.n;
    e->w->pre_room = tok_growth_room(piece.s.n);
    if (e->t->n_pres == 0) return e->t->model.encode(e->t, e->w, piece.s, e->out, err);
    return e->t->pres[0].split(&e->t->pres[0], &run, 0, piece, err);
}

/* Empty where a token that takes the white space behind it has taken what the next one begins with. */
static struct tok_text sub_text(struct tok_text text, size_t start, size_t end) {
    size_t n = end > start ? end - start : 0;
    return (struct tok_text){str_sub(text.s, start, n), text.mark ? text.mark + start : NULL, text.at_start && start == 0};
}

/* A piece without raw added tokens: normalize it, then look for the tokens that match normalized text. */
static int encode_piece(const struct encoder *e, struct tok_text piece, struct err *err) {
    const struct tok *t = e->t;
    size_t at = 0, from = 0;
    struct tok_added_match m;
    if (piece.s.n == 0) return ERR_OK;
    TRY(tok_normalize(t, e->w, &piece, err));
    while (tok_added_next(&t->added, &t->added.normalized, piece, e->trust, &at, from, &m)) {
        TRY(pre_tokenize(e, sub_text(piece, from, m.start), err));
        tok_ids_put(e->out, m.token->id);
        from = m.end;
    }
    return pre_tokenize(e, sub_text(piece, from, piece.s.n), err);
}

static int encode_text(const struct encoder *e, struct tok_text text, struct err *err) {
    const struct tok *t = e->t;
    size_t at = 0, from = 0;
    struct tok_added_match m;
    while (tok_added_next(&t->added, &t->added.raw, text, e->trust, &at, from, &m)) {
        TRY(encode_piece(e, sub_text(text, from, m.start), err));
        tok_ids_put(e->out, m.token->id);
        from = m.end;
    }
    return encode_piece(e, sub_text(text, from, text.s.n), err);
}

/* All spans as one valid text, with marks where trust differs. Invalid bytes are replaced within their span. */
static void join_spans(struct tok_work *w, const struct tok_span *spans, size_t n, bool marks, struct tok_text *out) {
    sb_clear(&w->joined);
    sb_clear(&w->joined_mark);
    for (size_t i = 0; i < n; i++) {
        size_t before = w->joined.n;
        tok_utf8_lossy(spans[i].text, false, &w->joined);
        size_t added = w->joined.n - before;
        if (marks && added) memset(sb_extend(&w->joined_mark, added), spans[i].trusted, added);
    }
    out->s = sb_str(&w->joined);
    out->mark = marks ? (const uint8_t *)sb_str(&w->joined_mark).p : NULL;
}

static int encode_spans(const struct encoder *e, const struct tok_span *spans, size_t n_spans, unsigned flags, struct err *err) {
    const struct tok *t = e->t;
    struct tok_text text = {{"", 0}, NULL, true};
    if (n_spans == 1 && spans[0].trusted) {
        sb_clear(&e->w->repaired);
        text.s = tok_utf8_check(spans[0].text, &e->w->repaired) ? spans[0].text : sb_str(&e->w->repaired);
    } else if (n_spans > 0) {
        join_spans(e->w, spans, n_spans, e->trust == TRUST_MARKS, &text);
    }
    if (flags & TOK_ADD_BOS && t->config_bos && t->bos >= 0 && !tok_adds_bos(t)) tok_ids_put(e->out, t->bos);
    if (flags & TOK_ADD_SPECIAL)
        for (size_t i = 0; i < t->post.before.n; i++) tok_ids_put(e->out, t->post.before.p[i]);
    TRY(encode_text(e, text, err));
    if (flags & TOK_ADD_SPECIAL)
        for (size_t i = 0; i < t->post.after.n; i++) tok_ids_put(e->out, t->post.after.p[i]);
    return ERR_OK;
}

int tok_encode_spans(const struct tok *t, struct tok_work *work, const struct tok_span *spans, size_t n_spans, unsigned flags,
                     struct tok_ids *out, struct err *err) {
    size_t before = out->n, total = 0;
    bool mixed = false;
    for (size_t i = 0; i < n_spans; i++) {
        mixed = mixed || !spans[i].trusted;
        if (size_add(total, spans[i].text.n, &total)) return err_set(err, ERR_ELIMIT, "tokenizer: the text is too long");
    }
    struct tok_work *own = NULL;
    if (!work) {
        work = own = tok_work_create();
        own->keep = total > 16 * 1024;
    }
    work_attach(work, t);
    tok_match_state_refill(work->match);
    struct encoder e = {t, work, mixed ? TRUST_MARKS : flags & TOK_PARSE_SPECIAL ? TRUST_ALL : TRUST_NO_SPECIAL, out};
    int code = encode_spans(&e, spans, n_spans, flags, err);
    if (code) out->n = before;
    tok_work_destroy(own);
    return code;
}

int tok_encode(const struct tok *t, struct str text, unsigned flags, struct tok_ids *out, struct err *err) {
    struct tok_span span = {text, true};
    return tok_encode_spans(t, NULL, &span, 1, flags, out, err);
}

static void put_typed(const struct tok_ids *ids, const struct tok_ids *types, struct tok_ids *out, struct tok_ids *out_types) {
    for (size_t i = 0; i < ids->n; i++) {
        tok_ids_put(out, ids->p[i]);
        tok_ids_put(out_types, types->p[i]);
    }
}

int tok_encode_pair(const struct tok *t, const struct tok_pair *pair, struct tok_ids *out, struct tok_ids *out_types, struct err *err) {
    const struct tok_post *p = &t->post;
    const struct str texts[2] = {pair->first, pair->second};
    if (!p->has_pair) return err_set(err, ERR_EUNSUPPORTED, "the tokenizer does not say how two texts become one");
    size_t around = p->pair[0].n + p->pair[1].n + p->pair[2].n;
    for (int i = 0; i < 2; i++) {
        struct tok_ids ids = {0};
        put_typed(&p->pair[i], &p->pair_types[i], out, out_types);
        int code = tok_encode(t, texts[i], 0, &ids, err);
        size_t used = out->n + p->pair[2].n;
        if (!code && i == 1 && pair->cuts && pair->most > used && ids.n > pair->most - used) ids.n = pair->most - used;
        for (size_t k = 0; k < ids.n && !code; k++) {
            tok_ids_put(out, ids.p[k]);
            tok_ids_put(out_types, p->text_types[i]);
        }
        tok_ids_free(&ids);
        if (code) return code;
    }
    put_typed(&p->pair[2], &p->pair_types[2], out, out_types);
    if (pair->most && out->n > pair->most)
        return err_set(err, ERR_ELIMIT, "the two texts have %zu tokens, %zu around them, which is too large: the model takes %zu", out->n,
                       around, pair->most);
    return ERR_OK;
}

/* ---- the byte alphabet ------------------------------------------------------------------------------------------ */

/* Printable bytes stand for themselves, the other 68 follow U+0100 in order. */
uint32_t tok_byte_char(unsigned char b) {
    if ((b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE) return b;
    if (b <= 0x20) return 0x100u + b;
    if (b <= 0xA0) return 0x121u + (b - 0x7Fu);
    return 0x143;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

int tok_byte_token(struct str s) {
    if (s.n != 6 || memcmp(s.p, "<0x", 3) != 0 || s.p[5] != '>') return -1;
    int high = hex_digit(s.p[3]), low = hex_digit(s.p[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

int32_t tok_byte_fallback_id(const struct tok *t, unsigned char byte) {
    static const char digits[] = "0123456789ABCDEF";
    char text[6] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
    return tok_table_find(&t->table, text, 6);
}

static int base64_value(char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool tok_base64(struct str text, struct sb *out) {
    uint32_t bits = 0;
    int n_bits = 0;
    while (text.n && text.p[text.n - 1] == '=') text.n--;
    for (size_t i = 0; i < text.n; i++) {
        int v = base64_value(text.p[i]);
        if (v < 0) return false;
        bits = bits << 6 | (uint32_t)v;
        n_bits += 6;
        if (n_bits >= 8) sb_putc(out, (char)(bits >> (n_bits -= 8) & 255));
    }
    return true;
}

/* ---- the vocabulary --------------------------------------------------------------------------------------------- */

size_t tok_vocab_size(const struct tok *t) {
    return t->n_ids;
}

struct str tok_token_text(const struct tok *t, int32_t id) {
    if (id < 0 || (size_t)id >= t->n_ids) return (struct str){NULL, 0};
    return t->text[id];
}

struct str tok_token_bytes(const struct tok *t, int32_t id) {
    if (id < 0 || (size_t)id >= t->n_ids) return (struct str){NULL, 0};
    return t->bytes[id];
}

bool tok_is_special(const struct tok *t, int32_t id) {
    return id >= 0 && (size_t)id < t->n_ids && t->id_flags[id] & ID_SPECIAL;
}

bool tok_adds_bos(const struct tok *t) {
    return t->bos >= 0 && t->post.before.n > 0 && t->post.before.p[0] == t->bos;
}
