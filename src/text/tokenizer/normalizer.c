/* Normalizers: rewrite the text before it is cut.
 *
 * Each reads *text and, where it changes anything, writes one of the two buffers of the working memory and points *text
 * to it. A text that stays as it is costs a scan and no copy. Marks (which bytes are trusted) are carried along: what
 * comes from several characters is trusted only if all of them are.
 */
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/internal.h"
#include "text/tokenizer/pattern.h"

/* Output of one normalizer. */
struct out {
    struct tok_buf *buf;
    const uint8_t *mark; /* of the input, or NULL */
    struct str in;
    size_t room; /* bytes that it may have */
    bool full;   /* more than that was put: nothing more is, and out_end fails */
};

static struct out out_begin(struct tok_work *w, const struct tok_text *text) {
    struct tok_buf *b = &w->norm[w->i_norm];
    w->i_norm ^= 1;
    sb_clear(&b->text);
    sb_clear(&b->mark);
    return (struct out){b, text->mark, text->s, w->norm_room, false};
}

static int out_end(struct out *o, struct tok_text *text, struct err *err) {
    if (o->full) return tok_growth_fail("normalizers", err);
    text->s = sb_str(&o->buf->text);
    text->mark = o->mark ? (const uint8_t *)sb_str(&o->buf->mark).p : NULL;
    return ERR_OK;
}

static bool out_has_room(struct out *o, size_t n) {
    if (o->full || n > o->room || o->buf->text.n > o->room - n) o->full = true;
    return !o->full;
}

static uint8_t mark_of(const struct out *o, size_t start, size_t end) {
    for (size_t i = start; i < end; i++)
        if (!o->mark[i]) return 0;
    return 1;
}

/* Input bytes as they are. */
static void out_copy(struct out *o, size_t start, size_t end) {
    if (end == start || !out_has_room(o, end - start)) return;
    sb_put(&o->buf->text, str_n(o->in.p + start, end - start));
    if (o->mark) sb_put(&o->buf->mark, str_n((const char *)o->mark + start, end - start));
}

static void out_put_marked(struct out *o, struct str s, uint8_t mark) {
    if (!out_has_room(o, s.n)) return;
    sb_put(&o->buf->text, s);
    if (o->mark && s.n) memset(sb_extend(&o->buf->mark, s.n), mark, s.n);
}

/* s in place of the input [start, end). */
static void out_put(struct out *o, struct str s, size_t start, size_t end) {
    out_put_marked(o, s, o->mark ? mark_of(o, start, end) : 0);
}

/* ---- normal forms ----------------------------------------------------------------------------------------------- */

/* The first character at or after i that the form may touch; n when there is none. *out_before is the start of the
 * character before it (it may take part), or the position itself. */
static size_t find_touched(struct str s, size_t i, uint32_t flag, size_t *out_before) {
    size_t before = i, len;
    while (i < s.n) {
        if ((unsigned char)s.p[i] < 0x80) {
            i += tok_ascii_run(s.p + i, s.n - i);
            before = i - 1;
            continue;
        }
        if (tok_uni(tok_utf8(s.p + i, &len)) & flag) break;
        before = i;
        i += len;
    }
    *out_before = before;
    return i;
}

static int run_form(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    enum tok_form form = self->u.form;
    uint32_t flag = tok_form_flag(form);
    size_t before, i = find_touched(text->s, 0, flag, &before), copied = 0;
    if (i == text->s.n) return ERR_OK;
    struct out o = out_begin(w, text);
    while (i < o.in.n) {
        size_t start = before < copied ? copied : before, end, len;
        out_copy(&o, copied, start);
        w->cells.n = 0;
        for (end = start; end < o.in.n; end += len) {
            uint32_t c = tok_utf8(o.in.p + end, &len);
            if (end > i && !(tok_uni(c) & flag)) break;
            tok_decompose(&w->cells, form, c, o.mark ? mark_of(&o, end, end + len) : 0);
        }
        tok_compose(&w->cells, form);
        for (size_t k = 0; k < w->cells.n; k++) {
            char utf8[4];
            out_put_marked(&o, str_n(utf8, utf8_encode(w->cells.p[k].code, utf8)), w->cells.p[k].mark);
        }
        copied = end;
        i = find_touched(o.in, end, flag, &before);
    }
    out_copy(&o, copied, o.in.n);
    return out_end(&o, text, err);
}

/* ---- character by character ------------------------------------------------------------------------------------- */

static int run_lower(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    (void)self;
    struct out o = out_begin(w, text);
    size_t len;
    for (size_t i = 0; i < o.in.n; i += len) {
        uint32_t c = tok_utf8(o.in.p + i, &len);
        struct str lower = {NULL, 0};
        char ascii = (char)(c | 0x20);
        if (c >= 'A' && c <= 'Z') lower = str_n(&ascii, 1);
        else if (c >= 0x80) lower = tok_uni_find(&tok_uni_lower, c);
        if (lower.p) out_put(&o, lower, i, i + len);
        else out_copy(&o, i, i + len);
    }
    return out_end(&o, text, err);
}

/* Leaves out every character that has the flag. */
static int remove_flag(struct tok_work *w, struct tok_text *text, uint32_t flag, struct err *err) {
    struct out o = out_begin(w, text);
    size_t copied = 0, len;
    for (size_t i = 0; i < o.in.n; i += len) {
        if (!(tok_uni(tok_utf8(o.in.p + i, &len)) & flag)) continue;
        out_copy(&o, copied, i);
        copied = i + len;
        if (i == 0 || sb_str(&o.buf->text).n == 0) text->at_start = false;
    }
    out_copy(&o, copied, o.in.n);
    return out_end(&o, text, err);
}

static int run_strip_accents(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    (void)self;
    return remove_flag(w, text, UNI_COMBINING, err);
}

static int run_strip(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    (void)w, (void)err;
    size_t start = 0, end = text->s.n, len;
    while (self->u.strip.left && start < end && tok_uni(tok_utf8(text->s.p + start, &len)) & UNI_SPACE) start += len;
    while (self->u.strip.right && end > start) {
        size_t last = tok_utf8_back(text->s.p, end);
        if (!(tok_uni(tok_utf8(text->s.p + last, &len)) & UNI_SPACE)) break;
        end = last;
    }
    if (start > 0) text->at_start = false;
    text->s = str_sub(text->s, start, end - start);
    if (text->mark) text->mark += start;
    return ERR_OK;
}

static int run_nmt(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    (void)self;
    struct out o = out_begin(w, text);
    size_t len;
    for (size_t i = 0; i < o.in.n; i += len) {
        uint32_t c = tok_utf8(o.in.p + i, &len);
        if ((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F) {
            if (o.buf->text.n == 0) text->at_start = false;
            continue;
        }
        bool space = c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                     c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
        if (space) out_put(&o, STR(" "), i, i + len);
        else out_copy(&o, i, i + len);
    }
    return out_end(&o, text, err);
}

static bool is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

/* BERT's cleaning: control characters go, every white space is a space, Chinese characters stand alone. */
static int bert_clean(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    struct out o = out_begin(w, text);
    size_t len;
    for (size_t i = 0; i < o.in.n; i += len) {
        uint32_t c = tok_utf8(o.in.p + i, &len), flags = tok_uni(c);
        if (self->u.bert.clean && flags & UNI_CONTROL) {
            if (o.buf->text.n == 0) text->at_start = false;
        } else if (self->u.bert.clean && flags & UNI_SPACE) {
            out_put(&o, STR(" "), i, i + len);
        } else if (self->u.bert.chinese && is_chinese(c)) {
            out_put(&o, STR(" "), i, i + len);
            out_copy(&o, i, i + len);
            out_put(&o, STR(" "), i, i + len);
        } else {
            out_copy(&o, i, i + len);
        }
    }
    return out_end(&o, text, err);
}

static int run_bert(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    static const struct tok_norm nfd = {.run = run_form, .u.form = FORM_NFD};
    TRY(bert_clean(self, w, text, err));
    if (self->u.bert.accents) {
        TRY(run_form(&nfd, w, text, err));
        TRY(remove_flag(w, text, UNI_NONSPACING, err));
    }
    return self->u.bert.lower ? run_lower(self, w, text, err) : ERR_OK;
}

static int run_bytes(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    (void)self;
    struct out o = out_begin(w, text);
    for (size_t i = 0; i < o.in.n; i++) {
        char utf8[4];
        out_put(&o, str_n(utf8, utf8_encode(tok_byte_char((unsigned char)o.in.p[i]), utf8)), i, i + 1);
    }
    return out_end(&o, text, err);
}

/* ---- strings ---------------------------------------------------------------------------------------------------- */

static int run_prepend(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    if (text->s.n == 0) return ERR_OK;
    struct out o = out_begin(w, text);
    out_put(&o, self->u.prepend, 0, tok_utf8_len((unsigned char)o.in.p[0]));
    out_copy(&o, 0, o.in.n);
    return out_end(&o, text, err);
}

static int run_replace(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    struct tok_cursor at = {0};
    size_t copied = 0;
    struct tok_match m;
    bool found;
    if (text->s.n == 0) return ERR_OK;
    TRY(tok_pattern_next(self->u.replace.pattern, &w->match, text->s, &at, &m, &found, err));
    if (!found) return ERR_OK;
    struct out o = out_begin(w, text);
    while (found && !o.full) {
        out_copy(&o, copied, m.start);
        out_put(&o, self->u.replace.content, m.start, m.end);
        copied = m.end;
        TRY(tok_pattern_next(self->u.replace.pattern, &w->match, o.in, &at, &m, &found, err));
    }
    out_copy(&o, copied, o.in.n);
    return out_end(&o, text, err);
}

/* One character by another string, without a search for each: " " by "▁", the most common of all. */
static int run_replace_char(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    char c = self->u.replace.single;
    struct str with = self->u.replace.content;
    if (str_find_char(text->s, c, 0) == STR_NONE) return ERR_OK;
    struct out o = out_begin(w, text);
    sb_reserve(&o.buf->text, o.in.n + o.in.n / 2);
    for (size_t i = 0; i < o.in.n && !o.full;) {
        size_t hit = str_find_char(o.in, c, i);
        if (hit == STR_NONE) hit = o.in.n;
        out_copy(&o, i, hit);
        if (hit < o.in.n) out_put(&o, with, hit, hit + 1);
        i = hit + 1;
    }
    return out_end(&o, text, err);
}

/* The end of the grapheme cluster at i, as far as clusters of fewer than six bytes need it: those cannot hold Hangul
 * syllables, flags or joined emoji. */
static size_t cluster_end(struct str s, size_t i) {
    size_t len;
    uint32_t flags = tok_uni(tok_utf8(s.p + i, &len));
    if (s.p[i] == '\r' && i + 1 < s.n && s.p[i + 1] == '\n') return i + 2;
    i += len;
    if (flags & UNI_BREAK) return i;
    bool joins = flags & UNI_PREPEND;
    for (; i < s.n; i += len) {
        flags = tok_uni(tok_utf8(s.p + i, &len));
        if (flags & UNI_BREAK || !(joins || flags & UNI_EXTEND)) break;
        joins = flags & UNI_PREPEND;
    }
    return i;
}

static int run_charsmap(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    const struct tok_charsmap *map = self->u.charsmap;
    struct out o = out_begin(w, text);
    for (size_t i = 0; i < o.in.n;) {
        size_t end = cluster_end(o.in, i), used, len;
        struct str to = {NULL, 0};
        if (end - i < 6) to = tok_charsmap_find(map, str_sub(o.in, i, end - i), false, &used);
        if (to.p) {
            out_put(&o, to, i, end);
            if (o.buf->text.n == 0) text->at_start = false;
            i = end;
            continue;
        }
        for (; i < end; i += len) {
            tok_utf8(o.in.p + i, &len);
            to = tok_charsmap_find(map, str_sub(o.in, i, len), false, &used);
            if (to.p) out_put(&o, to, i, i + len);
            else out_copy(&o, i, i + len);
            if (o.buf->text.n == 0) text->at_start = false;
        }
    }
    return out_end(&o, text, err);
}

int tok_normalize(const struct tok *t, struct tok_work *w, struct tok_text *text, struct err *err) {
    w->norm_room = tok_growth_room(text->s.n);
    for (size_t i = 0; i < t->n_norms; i++) TRY(t->norms[i].run(&t->norms[i], w, text, err));
    return ERR_OK;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void destroy_replace(struct tok_norm *self) {
    tok_pattern_destroy(self->u.replace.pattern);
}

static int read_replace(struct tok *t, yyjson_val *json, struct tok_norm *n, struct err *err) {
    struct str literal = json_str(json_get(json, "pattern"), "String", (struct str){0});
    TRY(tok_part_str(t, json, "content", (struct str){0}, &n->u.replace.content, err));
    if (!n->u.replace.content.p) return err_set(err, ERR_EFORMAT, "tokenizer.json: the normalizer Replace has no content");
    n->u.replace.single = literal.n == 1 ? literal.p[0] : 0;
    n->run = n->u.replace.single ? run_replace_char : run_replace;
    n->destroy = destroy_replace;
    return tok_pattern_read(&t->arena, json_get(json, "pattern"), "the normalizer Replace", &n->u.replace.pattern, err);
}

static int read_prepend(struct tok *t, yyjson_val *json, struct tok_norm *n, struct err *err) {
    n->run = run_prepend;
    TRY(tok_part_str(t, json, "prepend", (struct str){0}, &n->u.prepend, err));
    return n->u.prepend.p ? ERR_OK : err_set(err, ERR_EFORMAT, "tokenizer.json: the normalizer Prepend has no \"prepend\"");
}

static int read_strip(struct tok *t, yyjson_val *json, struct tok_norm *n, struct err *err) {
    (void)t, (void)err;
    n->u.strip.left = json_bool(json, "strip_left", true);
    n->u.strip.right = json_bool(json, "strip_right", true);
    n->run = run_strip;
    return ERR_OK;
}

static int read_bert(struct tok *t, yyjson_val *json, struct tok_norm *n, struct err *err) {
    (void)t, (void)err;
    n->u.bert.clean = json_bool(json, "clean_text", true);
    n->u.bert.chinese = json_bool(json, "handle_chinese_chars", true);
    n->u.bert.lower = json_bool(json, "lowercase", true);
    n->u.bert.accents = json_bool(json, "strip_accents", n->u.bert.lower);
    n->run = run_bert;
    return ERR_OK;
}

static int read_charsmap(struct tok *t, yyjson_val *json, struct tok_norm *n, struct err *err) {
    struct str s = json_str(json, "precompiled_charsmap", (struct str){0});
    if (!s.p) return err_set(err, ERR_EFORMAT, "tokenizer.json: the normalizer Precompiled has no precompiled_charsmap");
    n->u.charsmap = arena_new(&t->arena, struct tok_charsmap, 1);
    n->run = run_charsmap;
    return tok_charsmap_base64(&t->arena, s, n->u.charsmap, err);
}

static const struct {
    const char *type;
    int (*read)(struct tok *t, yyjson_val *json, struct tok_norm *n, struct err *err);
    int (*run)(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err);
    enum tok_form form;
} readers[] = {
    {"NFC", NULL, run_form, FORM_NFC},
    {"NFD", NULL, run_form, FORM_NFD},
    {"NFKC", NULL, run_form, FORM_NFKC},
    {"NFKD", NULL, run_form, FORM_NFKD},
    {"Lowercase", NULL, run_lower, 0},
    {"StripAccents", NULL, run_strip_accents, 0},
    {"Nmt", NULL, run_nmt, 0},
    {"ByteLevel", NULL, run_bytes, 0},
    {"Replace", read_replace, NULL, 0},
    {"Prepend", read_prepend, NULL, 0},
    {"Strip", read_strip, NULL, 0},
    {"BertNormalizer", read_bert, NULL, 0},
    {"Precompiled", read_charsmap, NULL, 0},
};

static int read_one(struct tok *t, yyjson_val *json, int depth, struct err *err) {
    struct str type;
    TRY(tok_type_of(json, "a normalizer", &type, err));
    if (str_is(type, "Sequence")) {
        yyjson_val *list = json_get(json, "normalizers"), *part;
        size_t i, n;
        if (depth >= TOK_MAX_DEPTH)
            return err_set(err, ERR_ELIMIT, "tokenizer.json: normalizers are nested more than %d deep", TOK_MAX_DEPTH);
        if (!yyjson_is_arr(list)) return err_set(err, ERR_EFORMAT, "tokenizer.json: the normalizer Sequence has no list \"normalizers\"");
        yyjson_arr_foreach(list, i, n, part) TRY(read_one(t, part, depth + 1, err));
        return ERR_OK;
    }
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!str_is(type, readers[i].type)) continue;
        if (t->n_norms == TOK_MAX_PARTS) return err_set(err, ERR_ELIMIT, "tokenizer.json: more than %d normalizers", TOK_MAX_PARTS);
        struct tok_norm *n = &t->norms[t->n_norms++];
        n->name = readers[i].type;
        if (readers[i].read) return readers[i].read(t, json, n, err);
        n->run = readers[i].run;
        n->u.form = readers[i].form;
        return ERR_OK;
    }
    return tok_unknown(type, "normalizer", err);
}

int tok_read_normalizers(struct tok *t, yyjson_val *root, struct err *err) {
    yyjson_val *json = json_get(root, "normalizer");
    t->norms = arena_new(&t->arena, struct tok_norm, TOK_MAX_PARTS);
    if (!json || yyjson_is_null(json)) return ERR_OK;
    return read_one(t, json, 0, err);
}
