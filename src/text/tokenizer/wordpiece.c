/* WordPiece (longest match first, BERT) and WordLevel (whole words). */
#include "text/tokenizer/internal.h"

struct wordpiece {
    struct tok_trie trie;
    bool continues;        /* some token begins with the prefix of tokens inside a word, ... */
    uint32_t continuation; /* ... and this is where the trie stands behind it */
    size_t max_chars;
    int32_t unk; /* -1: not in the vocabulary */
};

static int put_unknown(int32_t unk, struct tok_ids *out, struct err *err) {
    if (unk < 0)
        return err_set(err, ERR_EFORMAT, "tokenizer: the text has a word that is not in the vocabulary, and unk_token is not in it either");
    tok_ids_put(out, unk);
    return ERR_OK;
}

/* The longest token at `start`: its id and end; -1 when there is none. */
static int32_t longest(const struct wordpiece *m, struct str word, size_t start, size_t *out_end) {
    uint32_t node = start > 0 ? m->continuation : 0;
    int32_t best = -1;
    if (start > 0 && !m->continues) return -1;
    for (size_t i = start; i < word.n; i++) {
        node = tok_trie_step(&m->trie, node, (unsigned char)word.p[i]);
        if (!node) break;
        if (m->trie.nodes[node].value < 0) continue;
        best = m->trie.nodes[node].value;
        *out_end = i + 1;
    }
    return best;
}

static int wordpiece_encode(const struct tok *t, struct tok_work *w, struct str word, struct tok_ids *out, struct err *err) {
    const struct wordpiece *m = t->model.self;
    size_t n_chars = 0, before = out->n;
    (void)t, (void)w;
    for (size_t i = 0; i < word.n; i += tok_utf8_len((unsigned char)word.p[i])) n_chars++;
    if (n_chars > m->max_chars) return put_unknown(m->unk, out, err);
    size_t start = 0;
    while (start < word.n) {
        size_t end = start;
        int32_t id = longest(m, word, start, &end);
        if (id < 0) break;
        tok_ids_put(out, id);
        start = end;
    }
    if (start == word.n) return ERR_OK;
    out->n = before;
    return put_unknown(m->unk, out, err);
}

static int wordlevel_encode(const struct tok *t, struct tok_work *w, struct str word, struct tok_ids *out, struct err *err) {
    const struct wordpiece *m = t->model.self;
    (void)w;
    int32_t id = tok_table_find(&t->table, word.p, word.n);
    if (id < 0) return put_unknown(m->unk, out, err);
    tok_ids_put(out, id);
    return ERR_OK;
}

static int read_words(struct tok *t, yyjson_val *model, struct wordpiece **out, struct err *err) {
    struct wordpiece *m = *out = arena_new(&t->arena, struct wordpiece, 1);
    struct str unk = json_str(model, "unk_token", STR("[UNK]"));
    TRY(tok_read_vocab(t, json_get(model, "vocab"), err));
    m->unk = tok_table_find(&t->table, unk.p, unk.n);
    t->unk = m->unk;
    return ERR_OK;
}

static int build_trie(struct tok *t, struct wordpiece *m, struct str prefix, struct err *err) {
    struct tok_trie_item *items = mem_try((t->n_vocab_ids + 1) * sizeof *items);
    size_t n = 0;
    if (!items) return err_set(err, ERR_EMEMORY, "tokenizer: no memory for %zu tokens", t->n_vocab_ids);
    for (size_t i = 0; i < t->n_vocab_ids; i++)
        if (t->vocab[i].n) items[n++] = (struct tok_trie_item){t->vocab[i], (int32_t)i};
    int code = tok_trie_build(&t->arena, &m->trie, items, n, err);
    mem_free(items);
    m->continues = !code;
    for (size_t i = 0; i < prefix.n && m->continues; i++) {
        m->continuation = tok_trie_step(&m->trie, m->continuation, (unsigned char)prefix.p[i]);
        m->continues = m->continuation != 0;
    }
    return code;
}

int tok_read_wordpiece(struct tok *t, yyjson_val *model, struct err *err) {
    struct wordpiece *m;
    TRY(read_words(t, model, &m, err));
    int64_t most = json_int(model, "max_input_chars_per_word", 100);
    if (most < 0) return err_set(err, ERR_EFORMAT, "tokenizer.json: max_input_chars_per_word is negative");
    m->max_chars = (size_t)most;
    TRY(tok_check_lengths(t, err));
    TRY(build_trie(t, m, json_str(model, "continuing_subword_prefix", STR("##")), err));
    t->model = (struct tok_model){"WordPiece", wordpiece_encode, m};
    return ERR_OK;
}

int tok_read_wordlevel(struct tok *t, yyjson_val *model, struct err *err) {
    struct wordpiece *m;
    TRY(read_words(t, model, &m, err));
    t->model = (struct tok_model){"WordLevel", wordlevel_encode, m};
    return ERR_OK;
}
