/* Pre-tokenizers: cut a normalized text into the pieces that the model sees one by one.
 *
 * Pieces run depth first: each piece that a stage cuts goes through all later stages and the model before the next is
 * cut, so nothing is collected. A stage that rewrites text (a space put before it, Metaspace, ByteLevel) writes to its
 * own buffer, which lives until its next piece.
 */
#include "text/tokenizer/internal.h"
#include "text/tokenizer/pattern.h"

int tok_pre_emit(struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    if (piece.s.n == 0) return ERR_OK;
    if (stage + 1 < run->t->n_pres) {
        const struct tok_pre *next = &run->t->pres[stage + 1];
        return next->split(next, run, stage + 1, piece, err);
    }
    return run->t->model.encode(run->t, run->w, piece.s, run->out, err);
}

static int emit_range(struct tok_pre_run *run, size_t stage, struct tok_text piece, size_t start, size_t end, struct err *err) {
    struct tok_text part = {str_sub(piece.s, start, end - start), NULL, piece.at_start && start == 0};
    return tok_pre_emit(run, stage, part, err);
}

/* ---- cutting at delimiters -------------------------------------------------------------------------------------- */

/* Collects matches and gaps, in order, and emits pieces as the behaviour says. `start` to `end` is what waits. */
struct cutter {
    struct tok_pre_run *run;
    size_t stage;
    struct tok_text piece;
    enum tok_behavior behavior;
    size_t start, end;
    bool waiting, was_match;
};

static int cut_emit(struct cutter *c, struct err *err) {
    if (!c->waiting) return ERR_OK;
    c->waiting = false;
    return emit_range(c->run, c->stage, c->piece, c->start, c->end, err);
}

static void cut_wait(struct cutter *c, size_t start, size_t end) {
    c->start = start;
    c->end = end;
    c->waiting = true;
}

static int cut(struct cutter *c, size_t start, size_t end, bool is_match, struct err *err) {
    bool joins = false;
    switch (c->behavior) {
    case BEHAVIOR_ISOLATED: return emit_range(c->run, c->stage, c->piece, start, end, err);
    case BEHAVIOR_REMOVED: return is_match ? ERR_OK : emit_range(c->run, c->stage, c->piece, start, end, err);
    case BEHAVIOR_CONTIGUOUS: joins = c->waiting && is_match == c->was_match; break;
    case BEHAVIOR_PREVIOUS: joins = c->waiting && is_match && !c->was_match; break;
    case BEHAVIOR_NEXT: joins = c->waiting && c->was_match && !is_match; break;
    }
    c->was_match = is_match;
    if (joins) {
        c->end = end;
        return ERR_OK;
    }
    TRY(cut_emit(c, err));
    cut_wait(c, start, end);
    return ERR_OK;
}

/* The most common case by far: a scanner whose matches and gaps all become pieces. */
static int split_scanner(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    tok_scan_fn *next = tok_pattern_scanner(self->pattern)->next;
    size_t start, end, previous = 0;
    while (next(piece.s, previous, &start, &end)) {
        if (start != previous) TRY(emit_range(run, stage, piece, previous, start, err));
        TRY(emit_range(run, stage, piece, start, end, err));
        previous = end;
    }
    return emit_range(run, stage, piece, previous, piece.s.n, err);
}

static int split_pattern(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    struct cutter c = {.run = run, .stage = stage, .piece = piece, .behavior = (enum tok_behavior)self->behavior};
    struct tok_cursor at = {0};
    struct tok_match m;
    size_t previous = 0;
    for (;;) {
        bool found;
        TRY(tok_pattern_next(self->pattern, &run->w->match, piece.s, &at, &m, &found, err));
        if (!found) break;
        if (previous != m.start) TRY(cut(&c, previous, m.start, self->invert, err));
        TRY(cut(&c, m.start, m.end, !self->invert, err));
        previous = m.end;
    }
    if (previous != piece.s.n) TRY(cut(&c, previous, piece.s.n, self->invert, err));
    return cut_emit(&c, err);
}

/* Every character with the flag (or equal to the delimiter) is a match of its own. */
static int split_flag(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    struct cutter c = {.run = run, .stage = stage, .piece = piece, .behavior = (enum tok_behavior)self->behavior};
    size_t previous = 0, len;
    for (size_t i = 0; i < piece.s.n; i += len) {
        uint32_t code = tok_utf8(piece.s.p + i, &len);
        if (self->flag ? !(tok_uni(code) & self->flag) : code != self->delimiter) continue;
        if (previous != i) TRY(cut(&c, previous, i, false, err));
        TRY(cut(&c, i, i + len, true, err));
        previous = i + len;
    }
    if (previous != piece.s.n) TRY(cut(&c, previous, piece.s.n, false, err));
    return cut_emit(&c, err);
}

/* \w+|[^\w\s]+ */
static int split_words(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    (void)self;
    size_t start = 0, len;
    uint32_t kind = 0;
    for (size_t i = 0; i < piece.s.n; i += len) {
        uint32_t flags = tok_uni(tok_utf8(piece.s.p + i, &len));
        uint32_t now = flags & UNI_WORD ? UNI_WORD : flags & UNI_SPACE ? 0 : UNI_PUNCT;
        if (now != kind) {
            if (kind) TRY(emit_range(run, stage, piece, start, i, err));
            start = i;
            kind = now;
        }
    }
    return kind ? emit_range(run, stage, piece, start, piece.s.n, err) : ERR_OK;
}

/* White space goes; each punctuation character is alone. */
static int split_bert(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    (void)self;
    size_t start = 0, len;
    for (size_t i = 0; i < piece.s.n; i += len) {
        uint32_t flags = tok_uni(tok_utf8(piece.s.p + i, &len));
        if (!(flags & (UNI_SPACE | UNI_PUNCT))) continue;
        TRY(emit_range(run, stage, piece, start, i, err));
        if (!(flags & UNI_SPACE)) TRY(emit_range(run, stage, piece, i, i + len, err));
        start = i + len;
    }
    return emit_range(run, stage, piece, start, piece.s.n, err);
}

static int split_fixed(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    size_t start = 0, count = 0;
    for (size_t i = 0; i < piece.s.n; i += tok_utf8_len((unsigned char)piece.s.p[i])) {
        if (count++ < self->length) continue;
        TRY(emit_range(run, stage, piece, start, i, err));
        start = i;
        count = 1;
    }
    return emit_range(run, stage, piece, start, piece.s.n, err);
}

/* ---- rewriting -------------------------------------------------------------------------------------------------- */

/* A piece was written anew; each stage that does so may make it longer. */
static int rewritten(struct tok_pre_run *run, struct str piece, struct err *err) {
    if (piece.n > run->w->pre_room) return tok_growth_fail("pre-tokenizers", err);
    run->w->pre_room -= piece.n;
    run->w->end = piece.p + piece.n;
    return ERR_OK;
}

static int split_metaspace(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    struct sb *b = &run->w->pre[stage];
    sb_clear(b);
    bool has = piece.s.p[0] == ' ' || str_starts(piece.s, self->replacement);
    if (!has && (self->scheme == SCHEME_ALWAYS || (self->scheme == SCHEME_FIRST && piece.at_start))) sb_put(b, self->replacement);
    for (size_t i = 0; i < piece.s.n;) {
        size_t space = str_find_char(piece.s, ' ', i);
        if (space == STR_NONE) space = piece.s.n;
        sb_put(b, str_sub(piece.s, i, space - i));
        if (space < piece.s.n) sb_put(b, self->replacement);
        i = space + 1;
    }
    struct tok_text all = {sb_str(b), NULL, piece.at_start};
    TRY(rewritten(run, all.s, err));
    if (!self->split_on) return tok_pre_emit(run, stage, all, err);
    size_t start = 0; /* merged with next: a piece begins at each replacement character */
    for (size_t i = str_find(all.s, self->replacement, 1); i != STR_NONE; i = str_find(all.s, self->replacement, i + 1)) {
        TRY(emit_range(run, stage, all, start, i, err));
        start = i;
    }
    return emit_range(run, stage, all, start, all.s.n, err);
}

static int emit_bytes(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    if (!self->rewrite_bytes) return tok_pre_emit(run, stage, piece, err);
    struct sb mapped = {0};
    for (size_t i = 0; i < piece.s.n; i++) {
        char utf8[4];
        sb_put(&mapped, str_n(utf8, utf8_encode(tok_byte_char((unsigned char)piece.s.p[i]), utf8)));
    }
    piece.s = sb_str(&mapped);
    int code = rewritten(run, piece.s, err);
    if (!code) code = tok_pre_emit(run, stage, piece, err);
    sb_free(&mapped);
    return code;
}

static int split_bytes(const struct tok_pre *self, struct tok_pre_run *run, size_t stage, struct tok_text piece, struct err *err) {
    if (self->add_prefix_space && piece.s.p[0] != ' ') {
        struct sb *b = &run->w->pre[stage];
        sb_clear(b);
        sb_putc(b, ' ');
        sb_put(b, piece.s);
        piece.s = sb_str(b);
        TRY(rewritten(run, piece.s, err));
    }
    if (self->add_prefix_space) run->w->end = piece.s.p + piece.s.n; /* sometimes rewritten: each piece says its own end */
    if (!self->pattern) return emit_bytes(self, run, stage, piece, err);
    tok_scan_fn *next = tok_pattern_scanner(self->pattern)->next; /* GPT-2's pattern matches every character */
    size_t start, end = 0;
    while (next(piece.s, end, &start, &end)) {
        struct tok_text part = {str_sub(piece.s, start, end - start), NULL, piece.at_start && start == 0};
        TRY(emit_bytes(self, run, stage, part, err));
    }
    return ERR_OK;
}

void tok_pre_own_bytes(struct tok *t) {
    struct tok_pre *last = &t->pres[t->n_pres - 1];
    last->rewrite_bytes = false;
    if (!last->add_prefix_space && !last->pattern) t->n_pres--;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static void destroy_pattern(struct tok_pre *self) {
    tok_pattern_destroy(self->pattern);
}

static int read_behavior(yyjson_val *json, const char *what, int *out, struct err *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    struct str name = json_str(json, "behavior", (struct str){0});
    for (int i = 0; i < 5; i++)
        if (name.p && str_is(name, names[i])) return *out = i, ERR_OK;
    return err_set(err, ERR_EFORMAT, "tokenizer.json: %s has no known behavior (\"%.*s\")", what, STR_ARG(name));
}

static int read_split(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    TRY(read_behavior(json, "the pre-tokenizer Split", &p->behavior, err));
    p->invert = json_bool(json, "invert", false);
    p->split = split_pattern;
    p->destroy = destroy_pattern;
    TRY(tok_pattern_read(&t->arena, json_get(json, "pattern"), "the pre-tokenizer Split", &p->pattern, err));
    if (p->behavior == BEHAVIOR_ISOLATED && tok_pattern_scanner(p->pattern)) p->split = split_scanner;
    return ERR_OK;
}

static int read_byte_level(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    p->split = split_bytes;
    p->add_prefix_space = json_bool(json, "add_prefix_space", true);
    p->rewrite_bytes = true;
    p->destroy = destroy_pattern;
    if (!json_bool(json, "use_regex", true)) return ERR_OK;
    return tok_pattern_regex(&t->arena, str_of(tok_scanners[0].pattern), false, &p->pattern, err);
}

static int read_metaspace(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    static const char *const schemes[] = {"always", "first", "never"};
    struct str name = json_str(json, "prepend_scheme", STR("always"));
    p->scheme = -1;
    for (int i = 0; i < 3; i++)
        if (str_is(name, schemes[i])) p->scheme = i;
    if (p->scheme < 0) return err_set(err, ERR_EFORMAT, "tokenizer.json: Metaspace has prepend_scheme \"%.*s\"", STR_ARG(name));
    if (!json_bool(json, "add_prefix_space", true)) p->scheme = SCHEME_NEVER;
    p->replacement = str_copy(&t->arena, json_str(json, "replacement", STR("\xE2\x96\x81")));
    if (p->replacement.n == 0 || p->replacement.n != tok_utf8_len((unsigned char)p->replacement.p[0]))
        return err_set(err, ERR_EFORMAT, "tokenizer.json: the replacement of Metaspace is not one character");
    p->split_on = json_bool(json, "split", true);
    p->split = split_metaspace;
    return ERR_OK;
}

static int read_digits(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    (void)t, (void)err;
    p->split = split_flag;
    p->flag = UNI_NUMERIC;
    p->behavior = json_bool(json, "individual_digits", false) ? BEHAVIOR_ISOLATED : BEHAVIOR_CONTIGUOUS;
    return ERR_OK;
}

static int read_punctuation(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    (void)t;
    p->split = split_flag;
    p->flag = UNI_PUNCT;
    p->behavior = BEHAVIOR_ISOLATED;
    return json_get(json, "behavior") ? read_behavior(json, "the pre-tokenizer Punctuation", &p->behavior, err) : ERR_OK;
}

static int read_white_split(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    (void)t, (void)json, (void)err;
    p->split = split_flag;
    p->flag = UNI_SPACE;
    p->behavior = BEHAVIOR_REMOVED;
    return ERR_OK;
}

static int read_delimiter(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    (void)t;
    struct str s = json_str(json, "delimiter", (struct str){0});
    size_t len = 0;
    if (s.n) p->delimiter = tok_utf8(s.p, &len);
    if (s.n == 0 || len != s.n)
        return err_set(err, ERR_EFORMAT, "tokenizer.json: the delimiter of CharDelimiterSplit is not one character");
    p->split = split_flag;
    p->behavior = BEHAVIOR_REMOVED;
    return ERR_OK;
}

static int read_words(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    (void)t, (void)json, (void)err;
    p->split = split_words;
    return ERR_OK;
}

static int read_bert(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    (void)t, (void)json, (void)err;
    p->split = split_bert;
    return ERR_OK;
}

static int read_fixed(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err) {
    (void)t;
    int64_t length = json_int(json, "length", 5);
    if (length < 1) return err_set(err, ERR_EFORMAT, "tokenizer.json: FixedLength has length %lld", (long long)length);
    p->length = (size_t)length;
    p->split = split_fixed;
    return ERR_OK;
}

static const struct {
    const char *type;
    int (*read)(struct tok *t, yyjson_val *json, struct tok_pre *p, struct err *err);
} readers[] = {
    {"Split", read_split},
    {"ByteLevel", read_byte_level},
    {"Metaspace", read_metaspace},
    {"Digits", read_digits},
    {"Punctuation", read_punctuation},
    {"Whitespace", read_words},
    {"WhitespaceSplit", read_white_split},
    {"BertPreTokenizer", read_bert},
    {"CharDelimiterSplit", read_delimiter},
    {"Delimiter", read_delimiter},
    {"FixedLength", read_fixed},
};

static int read_one(struct tok *t, yyjson_val *json, int depth, struct err *err) {
    struct str type;
    TRY(tok_type_of(json, "a pre-tokenizer", &type, err));
    if (str_is(type, "Sequence")) {
        yyjson_val *list = json_get(json, "pretokenizers"), *part;
        size_t i, n;
        if (depth >= TOK_MAX_DEPTH)
            return err_set(err, ERR_ELIMIT, "tokenizer.json: pre-tokenizers are nested more than %d deep", TOK_MAX_DEPTH);
        if (!yyjson_is_arr(list))
            return err_set(err, ERR_EFORMAT, "tokenizer.json: the pre-tokenizer Sequence has no list \"pretokenizers\"");
        yyjson_arr_foreach(list, i, n, part) TRY(read_one(t, part, depth + 1, err));
        return ERR_OK;
    }
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!str_is(type, readers[i].type)) continue;
        if (t->n_pres == TOK_MAX_PARTS) return err_set(err, ERR_ELIMIT, "tokenizer.json: more than %d pre-tokenizers", TOK_MAX_PARTS);
        struct tok_pre *p = &t->pres[t->n_pres++]; /* counted before it is read, so that tok_destroy sees its pattern */
        p->name = readers[i].type;
        return readers[i].read(t, json, p, err);
    }
    return tok_unknown(type, "pre-tokenizer", err);
}

int tok_read_pre_tokenizers(struct tok *t, yyjson_val *root, struct err *err) {
    yyjson_val *json = json_get(root, "pre_tokenizer");
    t->pres = arena_new(&t->arena, struct tok_pre, TOK_MAX_PARTS);
    if (!json || yyjson_is_null(json)) return ERR_OK;
    return read_one(t, json, 0, err);
}
