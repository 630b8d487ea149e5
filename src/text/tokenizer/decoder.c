/* Decoders: token strings back to text, as a chain of streaming stages.
 *
 * A token travels as calls of `text` closed by one `end`. A stage passes on what is certain and holds back the rest in
 * the stream's memory; tok_decode is the same chain, pushed and flushed at once, so streaming and whole decoding cannot
 * differ. Behind Fuse and ByteLevel everything is one token that ends with the stream.
 */
#include "text/tokenizer/internal.h"
#include "text/tokenizer/pattern.h"

int tok_dec_text(struct tok_stream *s, size_t stage, struct str text, struct err *err) {
    s->n_passed[stage] += text.n;
    if (s->n_passed[stage] > s->room)
        return err_set(err, ERR_ELIMIT, "tokenizer: the decoders make more than %d times as much of these tokens", TOK_MAX_SPOKEN);
    if (stage == s->t->n_decs) return sb_put(s->out, text), ERR_OK;
    const struct tok_dec *d = &s->t->decs[stage];
    return d->text(d, s, stage, text, err);
}

int tok_dec_end(struct tok_stream *s, size_t stage, struct err *err) {
    if (stage == s->t->n_decs) return ERR_OK;
    const struct tok_dec *d = &s->t->decs[stage];
    return d->end(d, s, stage, err);
}

/* A whole token to the first stage. */
static int take(struct tok_stream *s, struct str token, struct err *err) {
    s->room += (uint64_t)TOK_MAX_SPOKEN * (token.n + TOK_MAX_SPOKEN_FREE);
    TRY(tok_dec_text(s, 0, token, err));
    return tok_dec_end(s, 0, err);
}

/* A whole token to the next stage. */
static int pass(struct tok_stream *s, size_t stage, struct str token, struct err *err) {
    TRY(tok_dec_text(s, stage + 1, token, err));
    return tok_dec_end(s, stage + 1, err);
}

/* For stages that need the whole token: collects it; the stage's `end` finds it in hold. */
static int text_hold(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct str text, struct err *err) {
    (void)self, (void)err;
    sb_put(&s->stages[stage].hold, text);
    return ERR_OK;
}

static int text_through(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct str text, struct err *err) {
    (void)self;
    return tok_dec_text(s, stage + 1, text, err);
}

/* ---- Fuse ------------------------------------------------------------------------------------------------------- */

static int fuse_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self, (void)s, (void)stage, (void)err;
    return ERR_OK;
}

static int fuse_flush(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self;
    return tok_dec_end(s, stage + 1, err);
}

/* ---- ByteLevel -------------------------------------------------------------------------------------------------- */

/* Bytes wait in `previous` until they are whole characters. */
static int bytes_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self;
    struct tok_stream_stage *st = &s->stages[stage];
    struct str token = sb_str(&st->hold);
    size_t before = st->previous.n, len;
    bool plain = true;
    for (size_t i = 0; i < token.n && plain; i += len) {
        int byte = tok_char_byte(tok_utf8(token.p + i, &len));
        plain = byte >= 0;
        if (plain) sb_putc(&st->previous, (char)byte);
    }
    if (!plain) { /* a character outside the alphabet: the token stands for itself */
        st->previous.n = before;
        sb_put(&st->previous, token);
    }
    sb_clear(&st->hold);
    size_t used = tok_utf8_lossy(sb_str(&st->previous), true, &st->hold);
    if (used) memmove(st->previous.p, st->previous.p + used, st->previous.n - used);
    st->previous.n -= used;
    int code = tok_dec_text(s, stage + 1, sb_str(&st->hold), err);
    sb_clear(&st->hold);
    return code;
}

static int bytes_flush(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self;
    struct tok_stream_stage *st = &s->stages[stage];
    sb_clear(&st->hold);
    tok_utf8_lossy(sb_str(&st->previous), false, &st->hold);
    sb_clear(&st->previous);
    TRY(tok_dec_text(s, stage + 1, sb_str(&st->hold), err));
    sb_clear(&st->hold);
    return tok_dec_end(s, stage + 1, err);
}

/* ---- ByteFallback ----------------------------------------------------------------------------------------------- */

/* A run of byte tokens is text if all of it is valid, else one U+FFFD for each byte: known only when the run ends. */
static int fallback_release(struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    struct str bytes = sb_str(&st->previous);
    if (bytes.n == 0) return ERR_OK;
    if (utf8_valid(bytes)) {
        TRY(pass(s, stage, bytes, err));
    } else {
        for (size_t i = 0; i < bytes.n; i++) TRY(pass(s, stage, STR("\xEF\xBF\xBD"), err));
    }
    sb_clear(&st->previous);
    return ERR_OK;
}

static int fallback_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self;
    struct tok_stream_stage *st = &s->stages[stage];
    struct str token = sb_str(&st->hold);
    int byte = tok_byte_token(token);
    if (byte >= 0) {
        sb_putc(&st->previous, (char)byte);
    } else {
        TRY(fallback_release(s, stage, err));
        TRY(pass(s, stage, token, err));
    }
    sb_clear(&st->hold);
    return ERR_OK;
}

static int fallback_flush(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self;
    return fallback_release(s, stage, err);
}

/* ---- Replace, Metaspace, WordPiece, BPEDecoder, CTC ---------------------------------------------------------------- */

static void replace_all(struct sb *text, struct str what, struct str with) {
    struct sb out = {0};
    struct str s = sb_str(text);
    size_t i = 0;
    if (what.n == 0 || str_find(s, what, 0) == STR_NONE) return;
    for (size_t hit; (hit = str_find(s, what, i)) != STR_NONE; i = hit + what.n) {
        sb_put(&out, str_sub(s, i, hit - i));
        sb_put(&out, with);
    }
    sb_put(&out, str_from(s, i));
    sb_free(text);
    *text = out;
}

static int replace_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    struct str token = sb_str(&st->hold);
    struct tok_match m;
    struct tok_cursor at = {0};
    size_t copied = 0;
    bool found = false;
    int code = ERR_OK;
    sb_clear(&st->previous);
    while (token.n && !(code = tok_pattern_next(self->pattern, &s->match, token, &at, &m, &found, err)) && found) {
        sb_put(&st->previous, str_sub(token, copied, m.start - copied));
        sb_put(&st->previous, self->content);
        copied = m.end;
    }
    sb_put(&st->previous, str_from(token, copied));
    if (!code) code = pass(s, stage, sb_str(&st->previous), err);
    sb_clear(&st->hold);
    return code;
}

static int metaspace_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    bool drop = st->n_seen++ == 0 && self->drop_first;
    replace_all(&st->hold, self->content, drop ? STR("") : STR(" "));
    int code = pass(s, stage, sb_str(&st->hold), err);
    sb_clear(&st->hold);
    return code;
}

static void clean_up(struct sb *text) {
    static const char *const pairs[][2] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                                           {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                                           {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) replace_all(text, str_of(pairs[i][0]), str_of(pairs[i][1]));
}

static int wordpiece_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    struct sb token = {0};
    struct str held = sb_str(&st->hold);
    if (st->n_seen++ == 0) sb_put(&token, held);
    else if (str_starts(held, self->prefix)) sb_put(&token, str_from(held, self->prefix.n));
    else {
        sb_putc(&token, ' ');
        sb_put(&token, held);
    }
    if (self->cleanup) clean_up(&token);
    sb_clear(&st->hold);
    int code = pass(s, stage, sb_str(&token), err);
    sb_free(&token);
    return code;
}

/* The suffix of a word is a space, of the last word nothing: one token waits in `previous`. */
static int suffix_release(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct str with, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    if (st->n_seen == 0) return ERR_OK;
    replace_all(&st->previous, self->content, with);
    int code = pass(s, stage, sb_str(&st->previous), err);
    sb_clear(&st->previous);
    return code;
}

static int suffix_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    TRY(suffix_release(self, s, stage, STR(" "), err));
    st->n_seen = 1;
    sb_put(&st->previous, sb_str(&st->hold));
    sb_clear(&st->hold);
    return ERR_OK;
}

static int suffix_flush(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    return suffix_release(self, s, stage, STR(""), err);
}

static int ctc_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    int code = ERR_OK;
    bool again = st->n_seen && str_eq(sb_str(&st->hold), sb_str(&st->previous));
    if (!again) {
        sb_clear(&st->previous);
        sb_put(&st->previous, sb_str(&st->hold));
        replace_all(&st->hold, self->content, STR(""));
        if (self->cleanup) {
            clean_up(&st->hold);
            replace_all(&st->hold, self->prefix, STR(" "));
        }
        if (st->hold.n) code = pass(s, stage, sb_str(&st->hold), err);
    }
    st->n_seen = 1;
    sb_clear(&st->hold);
    return code;
}

/* ---- Strip ------------------------------------------------------------------------------------------------------ */

/* Up to `start` times the character off the front, up to `stop` times off the end. n_seen counts what has been taken
 * off this token's front; UINT64_MAX: the front is done. What may be the end waits in hold. */
static int strip_text(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct str text, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    size_t i = 0, len;
    while (i < text.n && st->n_seen < self->start) {
        if (tok_utf8(text.p + i, &len) != self->code) {
            st->n_seen = UINT64_MAX;
            break;
        }
        st->n_seen++;
        i += len;
    }
    if (self->stop == 0) return i < text.n ? tok_dec_text(s, stage + 1, str_from(text, i), err) : ERR_OK;
    sb_put(&st->hold, str_from(text, i));
    struct str held = sb_str(&st->hold);
    size_t keep = held.n, n = 0; /* the last `stop` characters may have to go */
    while (keep > 0 && n < self->stop) keep = tok_utf8_back(held.p, keep), n++;
    TRY(tok_dec_text(s, stage + 1, str_sub(held, 0, keep), err));
    if (keep) memmove(st->hold.p, st->hold.p + keep, st->hold.n - keep);
    st->hold.n -= keep;
    return ERR_OK;
}

static int strip_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    struct str held = sb_str(&st->hold);
    size_t end = held.n, len;
    for (size_t n = 0; n < self->stop && end > 0; n++) {
        size_t last = tok_utf8_back(held.p, end);
        if (tok_utf8(held.p + last, &len) != self->code) break;
        end = last;
    }
    st->n_seen = 0;
    int code = pass(s, stage, str_sub(held, 0, end), err);
    sb_clear(&st->hold);
    return code;
}

/* ---- no decoder: joined by spaces --------------------------------------------------------------------------------- */

static int join_text(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct str text, struct err *err) {
    (void)self;
    if (s->stages[stage].n_seen == 1) TRY(tok_dec_text(s, stage + 1, STR(" "), err));
    s->stages[stage].n_seen = 2;
    return tok_dec_text(s, stage + 1, text, err);
}

static int join_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self, (void)err;
    s->stages[stage].n_seen = 1;
    return ERR_OK;
}

/* ---- the stream ------------------------------------------------------------------------------------------------- */

void tok_stream_init(struct tok_stream *s, const struct tok *t, bool skip_special) {
    memset(s, 0, sizeof *s);
    s->t = t;
    s->skip_special = skip_special;
}

/* A letter goes through the stages; they remember that there was a token, and its text is thrown away. */
void tok_stream_continue(struct tok_stream *s) {
    struct sb before = {0};
    s->out = &before;
    take(s, STR("x"), NULL);
    sb_free(&before);
    for (size_t i = 0; i < TOK_STREAM_STAGES; i++) {
        sb_clear(&s->stages[i].hold);
        sb_clear(&s->stages[i].previous);
    }
}

int tok_stream_push(struct tok_stream *s, int32_t id, struct sb *out, struct err *err) {
    const struct tok *t = s->t;
    if (id < 0 || (size_t)id >= t->n_ids || !t->text[id].p) return ERR_OK;
    if (s->skip_special && t->id_flags[id] & ID_SPECIAL) return ERR_OK;
    s->out = out;
    return take(s, t->text[id], err);
}

int tok_stream_flush(struct tok_stream *s, struct sb *out, struct err *err) {
    s->out = out;
    for (size_t i = 0; i < s->t->n_decs; i++) {
        const struct tok_dec *d = &s->t->decs[i];
        if (d->flush) TRY(d->flush(d, s, i, err));
    }
    for (size_t i = 0; i < TOK_STREAM_STAGES; i++) {
        sb_clear(&s->stages[i].hold);
        sb_clear(&s->stages[i].previous);
        s->stages[i].n_seen = 0;
    }
    s->room = 0;
    memset(s->n_passed, 0, sizeof s->n_passed);
    return ERR_OK;
}

void tok_stream_free(struct tok_stream *s) {
    for (size_t i = 0; i < TOK_STREAM_STAGES; i++) {
        sb_free(&s->stages[i].hold);
        sb_free(&s->stages[i].previous);
    }
    tok_match_state_destroy(s->match);
    s->match = NULL;
    s->t = NULL;
}

int tok_decode(const struct tok *t, const int32_t *ids, size_t n, bool skip_special, struct sb *out, struct err *err) {
    struct tok_stream s;
    int code = ERR_OK;
    tok_stream_init(&s, t, skip_special);
    for (size_t i = 0; i < n && !code; i++) code = tok_stream_push(&s, ids[i], out, err);
    if (!code) code = tok_stream_flush(&s, out, err);
    tok_stream_free(&s);
    return code;
}

/* ---- bytes of single tokens ------------------------------------------------------------------------------------- */

/* Where the chain only puts a literal for another inside a token (and what follows works across tokens): that literal. */
static const struct tok_dec *plain_replace(const struct tok *t) {
    if (t->n_decs == 0) return NULL;
    const struct tok_dec *first = &t->decs[0];
    bool plain = first->end == replace_end && tok_pattern_literal_of(first->pattern).p;
    for (size_t i = 1; i < t->n_decs && plain; i++)
        plain = t->decs[i].end == fallback_end || t->decs[i].end == fuse_end || (t->decs[i].end == strip_end && !t->decs[i].stop);
    return plain ? first : NULL;
}

/* The token inside a text. */
static int speak(struct tok_stream *s, struct str token, struct sb *out, struct err *err) {
    tok_stream_continue(s);
    s->out = out;
    TRY(take(s, token, err));
    return tok_stream_flush(s, out, err);
}

static bool has_fallback(const struct tok *t) {
    for (size_t i = 0; i < t->n_decs; i++)
        if (t->decs[i].end == fallback_end || t->decs[i].end == tok_dec_spm.end) return true;
    return false;
}

static int spoken(const struct tok *t, struct tok_stream *s, const struct tok_dec *replace, bool bytes, size_t id, struct sb *buffer,
                  struct str *out, struct err *err) {
    struct str text = t->text[id];
    int byte = bytes ? tok_byte_token(text) : -1;
    if (t->byte_level && id < t->n_vocab_ids && t->vocab[id].p && !(t->id_flags[id] & ID_ADDED)) return *out = t->vocab[id], ERR_OK;
    if (replace && byte < 0 && str_find(text, tok_pattern_literal_of(replace->pattern), 0) == STR_NONE) return *out = text, ERR_OK;
    sb_clear(buffer);
    if (byte >= 0) {
        sb_putc(buffer, (char)byte);
    } else if (replace) {
        sb_put(buffer, text);
        replace_all(buffer, tok_pattern_literal_of(replace->pattern), replace->content);
    } else {
        TRY(speak(s, text, buffer, err));
    }
    *out = sb_str(buffer);
    return ERR_OK;
}

int tok_build_bytes(struct tok *t, struct err *err) {
    const struct tok_dec *replace = plain_replace(t);
    bool bytes = has_fallback(t);
    struct sb buffer = {0};
    struct tok_stream s;
    t->bytes = arena_try(&t->arena, (t->n_ids + 1) * sizeof *t->bytes);
    if (!t->bytes) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for %zu ids", t->n_ids);
    tok_stream_init(&s, t, false);
    int code = ERR_OK;
    for (size_t i = 0; i < t->n_ids && !code; i++) {
        struct str b = STR("");
        if (!t->text[i].p) continue;
        if (!(t->id_flags[i] & ID_SPECIAL)) code = spoken(t, &s, replace, bytes, i, &buffer, &b, err);
        t->bytes[i] = b.p == buffer.p && b.n ? str_copy(&t->arena, b) : b.n ? b : STR("");
    }
    tok_stream_free(&s);
    sb_free(&buffer);
    return code;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void destroy_pattern(struct tok_dec *self) {
    tok_pattern_destroy(self->pattern);
}

static int read_replace(struct tok *t, yyjson_val *json, struct tok_dec *d, struct err *err) {
    d->destroy = destroy_pattern;
    TRY(tok_part_str(t, json, "content", STR(""), &d->content, err));
    return tok_pattern_read(&t->arena, json_get(json, "pattern"), "the decoder Replace", &d->pattern, err);
}

static int read_metaspace(struct tok *t, yyjson_val *json, struct tok_dec *d, struct err *err) {
    d->drop_first = !str_is(json_str(json, "prepend_scheme", STR("always")), "never") && json_bool(json, "add_prefix_space", true);
    return tok_part_str(t, json, "replacement", STR("\xE2\x96\x81"), &d->content, err);
}

static int read_wordpiece(struct tok *t, yyjson_val *json, struct tok_dec *d, struct err *err) {
    d->cleanup = json_bool(json, "cleanup", true);
    return tok_part_str(t, json, "prefix", STR("##"), &d->prefix, err);
}

static int read_suffix(struct tok *t, yyjson_val *json, struct tok_dec *d, struct err *err) {
    return tok_part_str(t, json, "suffix", STR("</w>"), &d->content, err);
}

static int read_ctc(struct tok *t, yyjson_val *json, struct tok_dec *d, struct err *err) {
    d->cleanup = json_bool(json, "cleanup", true);
    TRY(tok_part_str(t, json, "pad_token", STR("<pad>"), &d->content, err));
    return tok_part_str(t, json, "word_delimiter_token", STR("|"), &d->prefix, err);
}

static int read_strip(struct tok *t, yyjson_val *json, struct tok_dec *d, struct err *err) {
    (void)t;
    struct str c = json_str(json, "content", (struct str){0});
    int64_t start = json_int(json, "start", 0), stop = json_int(json, "stop", 0);
    size_t len = 0;
    if (c.n) d->code = tok_utf8(c.p, &len);
    if (c.n == 0 || len != c.n || start < 0 || stop < 0 || start > TOK_MAX_PART_BYTES || stop > TOK_MAX_PART_BYTES)
        return err_set(err, ERR_EFORMAT, "tokenizer.json: the decoder Strip is not understood");
    d->start = (size_t)start;
    d->stop = (size_t)stop;
    return ERR_OK;
}

static const struct {
    struct tok_dec stage;
    int (*read)(struct tok *t, yyjson_val *json, struct tok_dec *d, struct err *err);
} readers[] = {
    {{.name = "ByteLevel", .text = text_hold, .end = bytes_end, .flush = bytes_flush}, NULL},
    {{.name = "ByteFallback", .text = text_hold, .end = fallback_end, .flush = fallback_flush}, NULL},
    {{.name = "Fuse", .text = text_through, .end = fuse_end, .flush = fuse_flush}, NULL},
    {{.name = "Replace", .text = text_hold, .end = replace_end}, read_replace},
    {{.name = "Strip", .text = strip_text, .end = strip_end}, read_strip},
    {{.name = "Metaspace", .text = text_hold, .end = metaspace_end}, read_metaspace},
    {{.name = "WordPiece", .text = text_hold, .end = wordpiece_end}, read_wordpiece},
    {{.name = "BPEDecoder", .text = text_hold, .end = suffix_end, .flush = suffix_flush}, read_suffix},
    {{.name = "CTC", .text = text_hold, .end = ctc_end}, read_ctc},
};

static int read_one(struct tok *t, yyjson_val *json, int depth, struct err *err) {
    struct str type;
    TRY(tok_type_of(json, "a decoder", &type, err));
    if (str_is(type, "Sequence")) {
        yyjson_val *list = json_get(json, "decoders"), *part;
        size_t i, n;
        if (depth >= TOK_MAX_DEPTH) return err_set(err, ERR_ELIMIT, "tokenizer.json: decoders are nested more than %d deep", TOK_MAX_DEPTH);
        if (!yyjson_is_arr(list)) return err_set(err, ERR_EFORMAT, "tokenizer.json: the decoder Sequence has no list \"decoders\"");
        yyjson_arr_foreach(list, i, n, part) TRY(read_one(t, part, depth + 1, err));
        return ERR_OK;
    }
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!str_is(type, readers[i].stage.name)) continue;
        if (t->n_decs == TOK_STREAM_STAGES) return err_set(err, ERR_ELIMIT, "tokenizer.json: more than %d decoders", TOK_STREAM_STAGES);
        struct tok_dec *d = &t->decs[t->n_decs++];
        *d = readers[i].stage;
        return readers[i].read ? readers[i].read(t, json, d, err) : ERR_OK;
    }
    return tok_unknown(type, "decoder", err);
}

int tok_read_decoders(struct tok *t, yyjson_val *root, struct err *err) {
    yyjson_val *json = json_get(root, "decoder");
    t->decs = arena_new(&t->arena, struct tok_dec, TOK_STREAM_STAGES);
    if (json && !yyjson_is_null(json)) return read_one(t, json, 0, err);
    t->decs[t->n_decs++] = (struct tok_dec){.name = "join", .text = join_text, .end = join_end};
    return ERR_OK;
}
