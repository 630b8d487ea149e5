/* WordPiece (longest match first, BERT) and WordLevel (whole words). */
#include "text/tokenizer/internal.h"

struct wordpiece {
    struct str prefix;
    size_t max_chars, max_token_bytes;
    int32_t unk; /* -1: not in the vocabulary */
};

static int put_unknown(int32_t unk, struct tok_ids *out, struct err *err) {
    if (unk < 0)
        return err_set(err, ERR_EFORMAT, "tokenizer: the text has a word that is not in the vocabulary, and unk_token is not in it either");
    tok_ids_put(out, unk);
    return ERR_OK;
}

/* The longest token at `start`: its id and end; -1 when there is none. */
static int32_t longest(const struct tok *t, const struct wordpiece *m, struct str word, size_t start, struct sb *buffer, size_t *out_end) {
    size_t room = m->max_token_bytes, end = word.n - start > room ? start + room : word.n;
    while (end < word.n && end > start && ((unsigned char)word.p[end] & 0xC0) == 0x80) end--;
    sb_clear(buffer);
    if (start > 0) sb_put(buffer, m->prefix);
    size_t head = buffer->n;
    sb_put(buffer, str_sub(word, start, end - start));
    for (; end > start; end = tok_utf8_back(word.p, end)) {
        int32_t id = tok_table_find(&t->table, buffer->p, head + end - start);
        if (id >= 0) return *out_end = end, id;
    }
    return -1;
}

static int wordpiece_encode(const struct tok *t, struct tok_work *w, struct str word, struct tok_ids *out, struct err *err) {
    const struct wordpiece *m = t->model.self;
    size_t n_chars = 0, before = out->n;
    (void)w;
    for (size_t i = 0; i < word.n; i += tok_utf8_len((unsigned char)word.p[i])) n_chars++;
    if (n_chars > m->max_chars) return put_unknown(m->unk, out, err);
    struct sb buffer = {0};
    size_t start = 0;
    while (start < word.n) {
        size_t end = start;
        int32_t id = longest(t, m, word, start, &buffer, &end);
        if (id < 0) break;
        tok_ids_put(out, id);
        start = end;
    }
    sb_free(&buffer);
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
    for (size_t i = 0; i < t->n_vocab_ids; i++)
        if (t->vocab[i].n > m->max_token_bytes) m->max_token_bytes = t->vocab[i].n;
    return ERR_OK;
}

int tok_read_wordpiece(struct tok *t, yyjson_val *model, struct err *err) {
    struct wordpiece *m;
    TRY(read_words(t, model, &m, err));
    int64_t most = json_int(model, "max_input_chars_per_word", 100);
    if (most < 0) return err_set(err, ERR_EFORMAT, "tokenizer.json: max_input_chars_per_word is negative");
    m->max_chars = (size_t)most;
    m->prefix = str_copy(&t->arena, json_str(model, "continuing_subword_prefix", STR("##")));
    t->model = (struct tok_model){"WordPiece", wordpiece_encode, m};
    return ERR_OK;
}

int tok_read_wordlevel(struct tok *t, yyjson_val *model, struct err *err) {
    struct wordpiece *m;
    TRY(read_words(t, model, &m, err));
    t->model = (struct tok_model){"WordLevel", wordlevel_encode, m};
    return ERR_OK;
}
