/* SentencePiece's tokenizer.model: a protocol buffer with pieces, scores and a normalizer.
 *
 * A BPE model becomes our BPE: every way to cut a piece into two pieces is a merge whose rank is the place of the piece
 * by score, so that equal scores are merged from left to right as in SentencePiece. A Unigram model becomes our Unigram
 * with sums in single precision. Control pieces (<s>, [INST]) are special tokens; user-defined pieces are found before
 * the model sees the text.
 */
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/internal.h"

#include <math.h>
#include <stdlib.h>

enum piece_type { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };

struct spm {
    struct str *pieces;
    double *scores;
    unsigned char *types;
    size_t n;
    int64_t model_type; /* 1 Unigram, 2 BPE */
    int64_t unk, bos, eos, pad;
    bool byte_fallback, suffix;
    struct str charsmap;
    bool dummy_prefix, one_space, escape;
};

/* ---- protocol buffers ------------------------------------------------------------------------------------------- */

struct field {
    uint64_t number, value; /* value: of numbers */
    struct str bytes;       /* of strings and messages */
};

static bool read_varint(struct str *s, uint64_t *out) {
    *out = 0;
    for (int shift = 0; shift < 64 && s->n; shift += 7) {
        unsigned char byte = (unsigned char)*s->p;
        *s = str_from(*s, 1);
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return true;
    }
    return false;
}

/* The next field of a message; false at its end or where it is damaged (*out_bad). */
static bool read_field(struct str *s, struct field *f, bool *out_bad) {
    uint64_t key, size = 0;
    if (s->n == 0) return false;
    *out_bad = true;
    *f = (struct field){0};
    if (!read_varint(s, &key)) return false;
    f->number = key >> 3;
    switch (key & 7) {
    case 0:
        if (!read_varint(s, &f->value)) return false;
        break;
    case 1: size = 8; break;
    case 2:
        if (!read_varint(s, &size)) return false;
        break;
    case 5: size = 4; break;
    default: return false;
    }
    if (size > s->n) return false;
    f->bytes = str_sub(*s, 0, (size_t)size);
    if (size <= 8) memcpy(&f->value, f->bytes.p, (key & 7) == 0 ? 0 : (size_t)size);
    *s = str_from(*s, (size_t)size);
    *out_bad = false;
    return true;
}

static int bad_file(struct err *err) {
    return err_set(err, ERR_EFORMAT, "tokenizer.model: not a SentencePiece model, or damaged");
}

static int read_piece(struct str message, struct str *piece, double *score, unsigned char *type, struct err *err) {
    struct field f;
    bool bad = false;
    *type = PIECE_NORMAL;
    while (read_field(&message, &f, &bad)) {
        if (f.number == 1) *piece = f.bytes;
        if (f.number == 2) {
            uint32_t bits = (uint32_t)f.value;
            float value;
            memcpy(&value, &bits, 4);
            *score = (double)value;
        }
        if (f.number == 3) *type = (unsigned char)f.value;
    }
    if (bad) return bad_file(err);
    if (!piece->p || !utf8_valid(*piece)) return err_set(err, ERR_EFORMAT, "tokenizer.model: a piece is not valid text");
    if (*type < PIECE_NORMAL || *type > PIECE_BYTE || !isfinite(*score)) return bad_file(err);
    return ERR_OK;
}

static int read_trainer(struct spm *m, struct str message, struct err *err) {
    struct field f;
    bool bad = false;
    while (read_field(&message, &f, &bad)) {
        if (f.number == 3) m->model_type = (int64_t)f.value;
        if (f.number == 24) m->suffix = f.value != 0;
        if (f.number == 35) m->byte_fallback = f.value != 0;
        if (f.number == 40) m->unk = (int32_t)f.value;
        if (f.number == 41) m->bos = (int32_t)f.value;
        if (f.number == 42) m->eos = (int32_t)f.value;
        if (f.number == 43) m->pad = (int32_t)f.value;
    }
    return bad ? bad_file(err) : ERR_OK;
}

static int read_normalizer(struct spm *m, struct str message, struct err *err) {
    struct field f;
    bool bad = false;
    while (read_field(&message, &f, &bad)) {
        if (f.number == 2) m->charsmap = f.bytes;
        if (f.number == 3) m->dummy_prefix = f.value != 0;
        if (f.number == 4) m->one_space = f.value != 0;
        if (f.number == 5) m->escape = f.value != 0;
    }
    return bad ? bad_file(err) : ERR_OK;
}

static int read_model(struct arena *a, struct str file, struct spm *m, struct err *err) {
    struct field f;
    bool bad = false;
    struct str rest = file;
    *m = (struct spm){.model_type = 1, .unk = 0, .bos = 1, .eos = 2, .pad = -1, .dummy_prefix = true, .one_space = true, .escape = true};
    while (read_field(&rest, &f, &bad)) m->n += f.number == 1;
    if (bad || m->n == 0 || m->n >= TOK_MAX_ID) return bad_file(err);
    m->pieces = arena_try(a, m->n * sizeof *m->pieces);
    m->scores = arena_try(a, m->n * sizeof *m->scores);
    m->types = arena_try(a, m->n);
    if (!m->pieces || !m->scores || !m->types) return err_set(err, ERR_EMEMORY, "tokenizer.model: no memory for %zu pieces", m->n);
    size_t n = 0;
    for (rest = file; read_field(&rest, &f, &bad);) {
        if (f.number == 1) {
            TRY(read_piece(f.bytes, &m->pieces[n], &m->scores[n], &m->types[n], err));
            n++;
        }
        if (f.number == 2) TRY(read_trainer(m, f.bytes, err));
        if (f.number == 3) TRY(read_normalizer(m, f.bytes, err));
    }
    for (size_t i = 0; i < m->n; i++) {
        if (m->types[i] == PIECE_UNKNOWN) m->unk = (int64_t)i;
        if (m->types[i] == PIECE_UNUSED)
            return err_set(err, ERR_EUNSUPPORTED, "tokenizer.model: piece %zu is marked unused, which is not supported", i);
    }
    return ERR_OK;
}

/* ---- normalizing ------------------------------------------------------------------------------------------------ */

static const struct str space_mark = {"\xE2\x96\x81", 3};

/* The user-defined symbol at the start of s: its length, or 0. */
static size_t kept_length(const struct tok_trie *trie, struct str s) {
    size_t longest = 0;
    uint32_t node = 0;
    if (!trie) return 0;
    for (size_t i = 0; i < s.n; i++) {
        node = tok_trie_step(trie, node, (unsigned char)s.p[i]);
        if (!node) break;
        if (trie->nodes[node].value >= 0) longest = i + 1;
    }
    return longest;
}

/* What the start of s becomes, and how much of s that is. */
static struct str normalize_prefix(const struct tok_norm *self, struct str s, size_t *out_len) {
    *out_len = kept_length(self->u.spm.kept, s);
    if (*out_len) return str_sub(s, 0, *out_len);
    struct str to = {NULL, 0};
    if (self->u.spm.charsmap) to = tok_charsmap_find(self->u.spm.charsmap, s, true, out_len);
    if (to.p) return to;
    *out_len = tok_utf8_len((unsigned char)s.p[0]);
    return str_sub(s, 0, *out_len);
}

static void put(struct tok_buf *b, bool marks, struct str s, uint8_t mark) {
    sb_put(&b->text, s);
    if (marks && s.n) memset(sb_extend(&b->mark, s.n), mark, s.n);
}

int tok_run_spm(const struct tok_norm *self, struct tok_work *w, struct tok_text *text, struct err *err) {
    struct tok_buf *b = &w->norm[w->i_norm];
    struct str in = text->s, space = self->u.spm.escape ? space_mark : STR(" ");
    const uint8_t *mark = text->mark;
    bool one = self->u.spm.one_space, was_space = one;
    size_t i = 0, len;
    w->i_norm ^= 1;
    sb_clear(&b->text);
    sb_clear(&b->mark);
    while (one && i < in.n && str_is(normalize_prefix(self, str_from(in, i), &len), " ")) i += len;
    if (i < in.n && self->u.spm.dummy_prefix && !self->u.spm.suffix) put(b, mark, space, 0);
    bool any = i < in.n;
    for (; i < in.n; i += len) {
        struct str to = normalize_prefix(self, str_from(in, i), &len);
        uint8_t trusted = mark ? mark[i] : 0;
        while (was_space && to.n && to.p[0] == ' ') to = str_from(to, 1);
        for (size_t k = 0; k < to.n; k++) put(b, mark, to.p[k] == ' ' ? space : str_sub(to, k, 1), trusted);
        if (to.n) was_space = to.p[to.n - 1] == ' ';
        if (!one) was_space = false;
        if (b->text.n > w->norm_room) return tok_growth_fail("normalizer", err);
    }
    while (one && str_ends(sb_str(&b->text), space)) b->text.n -= space.n;
    if (any && self->u.spm.dummy_prefix && self->u.spm.suffix) put(b, mark, space, 0);
    text->s = sb_str(&b->text);
    text->mark = mark ? (const uint8_t *)sb_str(&b->mark).p : NULL;
    return ERR_OK;
}

/* ---- decoding --------------------------------------------------------------------------------------------------- */

static int spm_text(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct str text, struct err *err) {
    (void)self, (void)err;
    sb_put(&s->stages[stage].hold, text);
    return ERR_OK;
}

/* Whole characters out of the bytes so far; each byte that fits nowhere is U+FFFD. */
static int spm_bytes(struct tok_stream *s, size_t stage, bool all, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    struct str bytes = sb_str(&st->previous);
    size_t i = 0, ready = all ? bytes.n : utf8_complete_prefix(bytes);
    while (i < ready) {
        uint32_t code;
        char utf8[4];
        i += utf8_decode(bytes.p + i, ready - i, &code);
        TRY(tok_dec_text(s, stage + 1, str_n(utf8, utf8_encode(code, utf8)), err));
        st->n_seen = 1;
    }
    if (i) memmove(st->previous.p, st->previous.p + i, st->previous.n - i);
    st->previous.n -= i;
    return ERR_OK;
}

/* n_seen: 1 once there is text, or once a space mark at the start has been taken off. */
static int spm_end(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    struct tok_stream_stage *st = &s->stages[stage];
    struct str piece = sb_str(&st->hold);
    int byte = tok_byte_token(piece), code = ERR_OK;
    if (byte >= 0) {
        sb_putc(&st->previous, (char)byte);
        sb_clear(&st->hold);
        return spm_bytes(s, stage, false, err);
    }
    TRY(spm_bytes(s, stage, true, err));
    bool is_unknown = str_eq(piece, self->content), start = st->n_seen == 0, took = false;
    if (is_unknown) piece = STR(" \xE2\x81\x87 ");
    if (start && !is_unknown && (self->drop_first || self->one_space) && str_starts(piece, space_mark)) {
        piece = str_from(piece, space_mark.n);
        took = !self->one_space;
    }
    st->n_seen = st->n_seen || took || piece.n;
    for (size_t i = 0; i < piece.n && !code;) {
        size_t hit = str_find(piece, space_mark, i);
        if (hit == STR_NONE) hit = piece.n;
        code = tok_dec_text(s, stage + 1, str_sub(piece, i, hit - i), err);
        if (!code && hit < piece.n) code = tok_dec_text(s, stage + 1, STR(" "), err);
        i = hit + space_mark.n;
    }
    sb_clear(&st->hold);
    return code;
}

static int spm_flush(const struct tok_dec *self, struct tok_stream *s, size_t stage, struct err *err) {
    (void)self;
    return spm_bytes(s, stage, true, err);
}

const struct tok_dec tok_dec_spm = {.name = "SentencePiece", .text = spm_text, .end = spm_end, .flush = spm_flush};

/* ---- building --------------------------------------------------------------------------------------------------- */

static int by_score(const void *a, const void *b) {
    double x = (*(const double *const *)a)[0], y = (*(const double *const *)b)[0];
    return (x < y) - (x > y);
}

/* ranks[id]: place by score, equal scores share it. */
static int rank_pieces(struct arena *a, const struct spm *m, uint32_t **out, struct err *err) {
    const double **order = arena_try(a, m->n * sizeof *order);
    uint32_t *ranks = *out = arena_try(a, m->n * sizeof *ranks), rank = 0;
    if (!order || !ranks) return err_set(err, ERR_EMEMORY, "tokenizer.model: no memory");
    for (size_t i = 0; i < m->n; i++) order[i] = &m->scores[i];
    qsort(order, m->n, sizeof *order, by_score);
    for (size_t i = 0; i < m->n; i++) {
        if (i && *order[i] != *order[i - 1]) rank++;
        ranks[order[i] - m->scores] = rank;
    }
    return ERR_OK;
}

struct merge_list {
    struct tok_merge *p;
    size_t n, capacity;
};

static void put_merge(struct merge_list *l, struct tok_merge merge) {
    if (l->n == l->capacity) {
        l->capacity = l->capacity ? l->capacity * 2 : 4096;
        l->p = mem_realloc(l->p, l->capacity * sizeof *l->p);
    }
    l->p[l->n++] = merge;
}

static bool merges_into(const struct spm *m, size_t id) {
    return m->types[id] == PIECE_NORMAL || m->types[id] == PIECE_USER;
}

static int build_bpe(struct tok *t, struct arena *a, const struct spm *m, struct err *err) {
    struct merge_list merges = {0};
    uint32_t *ranks;
    struct tok_bpe_options o = {.fuse_unk = true, .byte_fallback = m->byte_fallback};
    TRY(rank_pieces(a, m, &ranks, err));
    TRY(tok_check_lengths(t, err));
    if (m->unk >= 0 && m->unk < (int64_t)m->n) o.unk_token = m->pieces[m->unk];
    for (size_t id = 0; id < m->n; id++) {
        struct str piece = m->pieces[id];
        if (!merges_into(m, id)) continue;
        for (size_t cut = 1; cut < piece.n; cut++) {
            if (((unsigned char)piece.p[cut] & 0xC0) == 0x80) continue;
            int32_t left = tok_table_find(&t->table, piece.p, cut), right = tok_table_find(&t->table, piece.p + cut, piece.n - cut);
            if (left < 0 || right < 0 || !merges_into(m, (size_t)left) || !merges_into(m, (size_t)right)) continue;
            put_merge(&merges, (struct tok_merge){left, right, (int32_t)id, ranks[id]});
        }
    }
    int code = tok_bpe_init(t, &o, merges.p, merges.n, err);
    mem_free(merges.p);
    return code;
}

static int build_unigram(struct tok *t, struct arena *a, const struct spm *m, struct err *err) {
    bool *skip = arena_try(a, m->n * sizeof *skip);
    double least = INFINITY;
    if (!skip) return err_set(err, ERR_EMEMORY, "tokenizer.model: no memory");
    for (size_t i = 0; i < m->n; i++) {
        skip[i] = !merges_into(m, i);
        if (m->types[i] == PIECE_NORMAL && m->scores[i] < least) least = m->scores[i];
    }
    if (m->unk < 0 || m->unk >= (int64_t)m->n) return err_set(err, ERR_EFORMAT, "tokenizer.model: no piece for unknown text");
    struct tok_unigram_options o = {.scores = m->scores,
                                    .skip = skip,
                                    .unk_score = (double)((float)least - 10.0f),
                                    .unk = (int32_t)m->unk,
                                    .byte_fallback = m->byte_fallback,
                                    .single = true};
    return tok_unigram_init(t, &o, err);
}

static int build_normalizer(struct tok *t, const struct spm *m, struct err *err) {
    TRY(tok_read_normalizers(t, NULL, err));
    TRY(tok_read_pre_tokenizers(t, NULL, err));
    struct tok_norm *n = &t->norms[t->n_norms++];
    *n = (struct tok_norm){.name = "SentencePiece", .run = tok_run_spm};
    n->u.spm.dummy_prefix = m->dummy_prefix;
    n->u.spm.one_space = m->one_space;
    n->u.spm.escape = m->escape;
    n->u.spm.suffix = m->suffix;
    if (m->charsmap.n) {
        n->u.spm.charsmap = arena_new(&t->arena, struct tok_charsmap, 1);
        TRY(tok_charsmap_init(&t->arena, m->charsmap, n->u.spm.charsmap, err));
    }
    struct tok_trie_item *items = mem_try((m->n + 1) * sizeof *items);
    size_t n_items = 0;
    if (!items) return err_set(err, ERR_EMEMORY, "tokenizer.model: no memory");
    for (size_t i = 0; i < m->n; i++)
        if (m->types[i] == PIECE_USER) items[n_items++] = (struct tok_trie_item){t->vocab[i], (int32_t)i};
    if (n_items) n->u.spm.kept = arena_new(&t->arena, struct tok_trie, 1);
    int code = n_items ? tok_trie_build(&t->arena, n->u.spm.kept, items, n_items, err) : ERR_OK;
    mem_free(items);
    return code;
}

static int build_added(struct tok *t, const struct spm *m, yyjson_val *config, struct err *err) {
    size_t n = yyjson_obj_size(json_get(config, "added_tokens_decoder"));
    for (size_t i = 0; i < m->n; i++) n += m->types[i] == PIECE_CONTROL || m->types[i] == PIECE_USER;
    TRY(tok_added_room(t, n, err));
    for (size_t i = 0; i < m->n; i++) {
        if (m->types[i] != PIECE_CONTROL && m->types[i] != PIECE_USER) continue;
        bool control = m->types[i] == PIECE_CONTROL;
        struct tok_added_token token = {
            .content = m->pieces[i], .id = (int32_t)i, .special = control, .normalize = !control, .literal = !control};
        TRY(tok_added_put(t, token, err));
    }
    return tok_read_added_decoder(t, config, err);
}

static int build(struct tok *t, struct arena *a, const struct spm *m, yyjson_val *config, struct err *err) {
    TRY(tok_set_vocab(t, m->pieces, NULL, m->n, err));
    TRY(build_normalizer(t, m, err));
    if (m->model_type == 2) TRY(build_bpe(t, a, m, err));
    else if (m->model_type == 1) TRY(build_unigram(t, a, m, err));
    else return err_set(err, ERR_EUNSUPPORTED, "tokenizer.model: model type %lld is neither Unigram nor BPE", (long long)m->model_type);
    TRY(tok_read_decoders(t, NULL, err));
    t->decs[0] = tok_dec_spm;
    t->decs[0].drop_first = m->dummy_prefix;
    t->decs[0].one_space = m->one_space;
    if (m->unk >= 0 && m->unk < (int64_t)m->n) t->decs[0].content = t->vocab[m->unk];
    TRY(build_added(t, m, config, err));
    t->bos = m->bos >= 0 && m->bos < (int64_t)m->n ? (int32_t)m->bos : -1;
    t->eos = m->eos >= 0 && m->eos < (int64_t)m->n ? (int32_t)m->eos : -1;
    t->pad = m->pad >= 0 && m->pad < (int64_t)m->n ? (int32_t)m->pad : -1;
    if (t->bos >= 0 && json_bool(config, "add_bos_token", true)) tok_ids_put(&t->post.before, t->bos);
    if (t->eos >= 0 && json_bool(config, "add_eos_token", false)) tok_ids_put(&t->post.after, t->eos);
    return tok_finish(t, err);
}

int tok_load_sentencepiece(struct tok **out, struct str model, struct str config_json, struct err *err) {
    struct arena a = {0};
    struct spm m;
    yyjson_val *config = NULL;
    struct tok *t = tok_new();
    int code = read_model(&a, model, &m, err);
    if (!code && config_json.n) code = json_parse(&a, config_json, "tokenizer_config.json", JSON_LENIENT, &config, err);
    if (!code) code = build(t, &a, &m, config, err);
    if (!code) code = tok_read_config(t, config_json, err);
    arena_free(&a);
    if (code) tok_destroy(t), t = NULL;
    *out = t;
    return code;
}
