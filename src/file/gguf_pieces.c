/* Pieces of SentencePiece with scores as a BPE model: every way to cut a piece into two others is a merge, and the order of the merges is
 * that of the scores. This is how the tokenizer.json of such models came about, too. */
#include "file/gguf_tokens.h"

#include <stdlib.h>

enum { PIECE_MAX = 512 }; /* bytes of a piece that is cut */

static const struct str mark = {"\xE2\x96\x81", 3};

struct merge {
    struct str left, right;
    double score;
    size_t order; /* of the piece, then of the cut */
};

struct merges {
    struct arena arena;
    struct map vocab; /* id by piece */
    struct merge *list;
    size_t n, capacity;
};

static struct str marked(struct arena *a, const struct gguf_token *t) {
    if (t->type != TOKEN_USER || str_find_char(t->text, ' ', 0) == STR_NONE) return t->text;
    struct sb b = {0};
    for (size_t i = 0; i < t->text.n; i++) sb_put(&b, t->text.p[i] == ' ' ? mark : str_sub(t->text, i, 1));
    struct str copy = str_copy(a, sb_str(&b));
    sb_free(&b);
    return copy;
}

void gguf_put_text(struct jsonw *w, const struct gguf_token *t, bool of_pieces) {
    struct arena a = {0};
    jsonw_str(w, of_pieces ? marked(&a, t) : t->text);
    arena_free(&a);
}

static void add_merge(struct merges *m, struct merge merge) {
    if (m->n == m->capacity) {
        m->capacity = m->capacity ? m->capacity * 2 : 4096;
        m->list = mem_realloc(m->list, m->capacity * sizeof *m->list);
    }
    merge.order = m->n;
    m->list[m->n++] = merge;
}

static void cut_piece(struct merges *m, struct str piece, double score) {
    uint32_t code;
    if (piece.n > PIECE_MAX) return;
    for (size_t i = utf8_decode(piece.p, piece.n, &code); i < piece.n; i += utf8_decode(piece.p + i, piece.n - i, &code)) {
        struct str left = str_sub(piece, 0, i), right = str_from(piece, i);
        if (map_find(&m->vocab, left) && map_find(&m->vocab, right)) add_merge(m, (struct merge){left, right, score, 0});
    }
}

static int by_score(const void *a, const void *b) {
    const struct merge *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    if (x->left.n != y->left.n) return x->left.n > y->left.n ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void put_merges(struct merges *m, struct jsonw *w) {
    if (m->n) qsort(m->list, m->n, sizeof *m->list, by_score);
    jsonw_open(w, "merges", '[');
    for (size_t i = 0; i < m->n; i++) {
        jsonw_begin(w, '[');
        jsonw_str(w, m->list[i].left);
        jsonw_str(w, m->list[i].right);
        jsonw_end(w, ']');
    }
    jsonw_end(w, ']');
}

static int put_vocab(const struct gguf *g, struct merges *m, struct jsonw *w, struct err *err) {
    struct gguf_tokens walk;
    struct gguf_token t;
    TRY(gguf_tokens_begin(g, &walk, err));
    jsonw_open(w, "vocab", '{');
    while (gguf_tokens_next(&walk, &t)) {
        bool is_new;
        if (t.type == TOKEN_UNUSED) continue;
        struct map_entry *e = map_put(&m->vocab, marked(&m->arena, &t), &is_new);
        if (!is_new) continue;
        e->value.i = t.id;
        jsonw_key_str(w, e->key);
        jsonw_int(w, t.id);
    }
    jsonw_end(w, '}');
    return ERR_OK;
}

static int put_model(const struct gguf *g, struct str unknown, struct merges *m, struct jsonw *w, struct err *err) {
    struct gguf_tokens walk;
    struct gguf_token t;
    jsonw_open(w, "model", '{');
    jsonw_put_str(w, "type", STR("BPE"));
    if (unknown.p) jsonw_put_str(w, "unk_token", unknown);
    jsonw_put_bool(w, "fuse_unk", true);
    jsonw_put_bool(w, "byte_fallback", true);
    TRY(put_vocab(g, m, w, err));
    TRY(gguf_tokens_begin(g, &walk, err));
    if (!walk.scores) return err_set(err, ERR_EFORMAT, "%s: tokenizer.ggml.scores is missing", g->source.name);
    while (gguf_tokens_next(&walk, &t))
        if (t.type == TOKEN_NORMAL || t.type == TOKEN_USER) cut_piece(m, marked(&m->arena, &t), t.score);
    put_merges(m, w);
    jsonw_end(w, '}');
    return ERR_OK;
}

int gguf_put_pieces(const struct gguf *g, struct str unknown, struct jsonw *w, struct err *err) {
    struct merges m = {0};
    int code = put_model(g, unknown, &m, w, err);
    mem_free(m.list);
    map_free(&m.vocab);
    arena_free(&m.arena);
    return code;
}
